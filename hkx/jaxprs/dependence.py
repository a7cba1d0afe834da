"""Which equations, and which of their inputs, some outputs depend on; through loops, branches and calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params


def needed(equations: Sequence[JaxprEqn], outputs: Sequence[Any]) -> list[JaxprEqn]:
    """The equations that some variables depend on, and those that have effects, in order."""
    return [eqn for eqn, _ in needed_inputs(equations, outputs)]


def needed_inputs(
    equations: Sequence[JaxprEqn], outputs: Sequence[Any], effects: bool = True
) -> list[tuple[JaxprEqn, set[Any]]]:
    """The same equations, each with those of its inputs that matter; without `effects` only for their outputs."""
    wanted = {v for v in outputs if not isinstance(v, Literal)}
    kept = []
    for eqn in reversed(equations):
        if (effects and eqn.effects) or not wanted.isdisjoint(eqn.outvars):
            inputs = _inputs(eqn, wanted)
            kept.append((eqn, inputs))
            wanted |= inputs
    return kept[::-1]


def without_effects_of(equations: Sequence[JaxprEqn], unknown: Collection[Any]) -> list[JaxprEqn]:
    """The equations, but of those that have effects and depend on unknown variables: those lose their effects."""
    unknown, kept = set(unknown), []
    for eqn in equations:
        if not unknown.isdisjoint(v for v in eqn.invars if not isinstance(v, Literal)):
            unknown.update(eqn.outvars)
            eqn = _without_effects(eqn) if eqn.effects else eqn
            if not eqn.outvars:
                continue
        kept.append(eqn)
    return kept


def without_effects(equations: Sequence[JaxprEqn]) -> list[JaxprEqn]:
    """The equations, but of what they do beside computing their outputs."""
    return [_without_effects(eqn) if eqn.effects else eqn for eqn in equations if eqn.outvars or not eqn.effects]


def _without_effects(eqn: JaxprEqn) -> JaxprEqn:
    """An equation whose programs have lost what they do beside computing their outputs."""

    def stripped(x: Any) -> Any:
        if isinstance(x, ClosedJaxpr) and x.jaxpr is not x:  # since JAX 0.12 the two are one class
            return ClosedJaxpr(stripped(x.jaxpr), x.consts)
        if not isinstance(x, Jaxpr):
            return x
        inner = without_effects(x.eqns)
        return x.replace(eqns=inner, effects=set().union(*(e.effects for e in inner)))

    if not any(x.effects for x in jaxprs_in_params(eqn.params)):
        return eqn
    params = jax.tree.map(stripped, eqn.params, is_leaf=lambda x: isinstance(x, (ClosedJaxpr, Jaxpr)) or x is None)
    return eqn.replace(params=params, effects=set().union(*(x.effects for x in jaxprs_in_params(params))))


def _inputs(eqn: JaxprEqn, wanted: Collection[Any]) -> set[Any]:
    """The variables that the wanted outputs of an equation depend on."""
    outputs = [v in wanted for v in eqn.outvars]
    rule = None if eqn.effects or not understood(eqn) else _RULES[eqn.primitive.name]
    matters = [True] * len(eqn.invars) if rule is None else rule(eqn, outputs)
    return {
        v
        for v, m in zip(eqn.invars, matters, strict=True)
        if not isinstance(v, Literal) and (m or not _has_zeros(v.aval))
    }


def understood(eqn: JaxprEqn) -> bool:
    """Whether it is known what each output of an equation with programs in it depends on.

    What JAX calls such operations, and the parts of them, is nothing that it promises. Where it says otherwise than is
    known here, each output is held to depend on all inputs: that is right too, and only takes longer.
    """
    return eqn.primitive.name in _RULES and set(_PARTS.get(eqn.primitive.name, ())) <= set(eqn.params)


def _has_zeros(aval: Any) -> bool:
    """Whether an array of zeros can stand for a value of this type: not for keys, nor where devices hold parts."""
    plain = jax.core.ShapedArray(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
    return aval == plain and not jnp.issubdtype(aval.dtype, jax.dtypes.extended)


def _of_program(program: Any, outputs: Sequence[bool]) -> list[bool]:
    """Which inputs of a program its wanted outputs depend on."""
    program = getattr(program, "jaxpr", program)
    live = {v for v, w in zip(program.outvars, outputs, strict=True) if w and not isinstance(v, Literal)}
    for _, inputs in needed_inputs(program.eqns, list(live)):
        live |= inputs
    return [v in live for v in program.invars]


def _of_loop(program: Any, consts: int, carry: list[bool], others: Sequence[bool]) -> tuple[list[bool], list[bool]]:
    """The inputs of a loop's body that matter, and its carry, grown until no step asks for more."""
    while True:
        inputs = _of_program(program, [*carry, *others])
        asked = [a or b for a, b in zip(carry, inputs[consts : consts + len(carry)], strict=True)]
        if asked == carry:
            return inputs, carry
        carry = asked


def _rank(variable: Any) -> int:
    return variable.aval.ndim


def _scan(eqn: JaxprEqn, outputs: list[bool]) -> list[bool]:
    body = getattr(eqn.params["jaxpr"], "jaxpr", eqn.params["jaxpr"])
    size = sum(_rank(v) == _rank(of_step) for v, of_step in zip(eqn.outvars, body.outvars, strict=True))
    sliced = sum(_rank(v) != _rank(of_step) for v, of_step in zip(eqn.invars, body.invars, strict=True))
    consts = len(eqn.invars) - size - sliced
    inputs, carry = _of_loop(eqn.params["jaxpr"], consts, outputs[:size], outputs[size:])
    return [*inputs[:consts], *carry, *inputs[consts + size :]]


def _while(eqn: JaxprEqn, outputs: list[bool]) -> list[bool]:
    of_condition, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    tested = _of_program(eqn.params["cond_jaxpr"], [True])
    carry = [a or b for a, b in zip(outputs, tested[of_condition:], strict=True)]
    inputs, carry = _of_loop(eqn.params["body_jaxpr"], of_body, carry, ())
    return [*tested[:of_condition], *inputs[:of_body], *carry]


def _cond(eqn: JaxprEqn, outputs: list[bool]) -> list[bool]:
    branches = [_of_program(branch, outputs) for branch in eqn.params["branches"]]
    return [True, *map(any, zip(*branches, strict=True))]


def _call(eqn: JaxprEqn, outputs: list[bool]) -> list[bool]:
    return _of_program(next(iter(jaxprs_in_params(eqn.params))), outputs)


_CALLS = ("jit", "closed_call", "remat2", "custom_jvp_call", "custom_vjp_call")
_PARTS = {
    "scan": ("jaxpr",),
    "while": ("cond_nconsts", "cond_jaxpr", "body_nconsts", "body_jaxpr"),
    "cond": ("branches",),
}
_RULES: dict[str, Callable[[JaxprEqn, list[bool]], list[bool]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    **dict.fromkeys(_CALLS, _call),
}
