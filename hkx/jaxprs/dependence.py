"""Which equations, and which of their inputs, given outputs depend on, through loops, branches and calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import jax.ref
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params

from hkx.jaxprs.traces import inner_programs


def needed(equations: Sequence[JaxprEqn], outputs: Sequence[Any]) -> list[JaxprEqn]:
    """The equations on which the outputs depend, and those with effects, in order."""
    return [eqn for eqn, _ in needed_inputs(equations, outputs)]


def needed_inputs(
    equations: Sequence[JaxprEqn], outputs: Sequence[Any], effects: bool = True
) -> list[tuple[JaxprEqn, set[Any]]]:
    """The needed equations, each with its needed inputs. Without `effects`, having effects does not make one needed.

    Except that what is read from a mutable array needs all that was done with that array before.
    """
    wanted = {v for v in outputs if not isinstance(v, Literal)}
    kept = []
    for eqn in reversed(equations):
        used = [*eqn.outvars, *_references(eqn)] if eqn.effects else eqn.outvars
        if (effects and eqn.effects) or not wanted.isdisjoint(used):
            inputs = _inputs(eqn, wanted)
            kept.append((eqn, inputs))
            wanted |= inputs
    return kept[::-1]


def without_effects_of(equations: Sequence[JaxprEqn], unknown: Collection[Any]) -> list[JaxprEqn]:
    """The equations, with the effects of those removed that depend on unknown variables.

    What a mutable array holds after such an equation is unknown, too: equations that use it are left out.
    """
    unknown, kept = set(unknown), []
    for eqn in equations:
        if not unknown.isdisjoint(v for v in eqn.invars if not isinstance(v, Literal)):
            unknown.update(eqn.outvars)
            if mutable := _references(eqn):
                unknown.update(mutable)
                continue
            if eqn.effects:
                eqn = _without_effects(eqn)
            if not eqn.outvars:
                continue
        kept.append(eqn)
    return kept


def _references(eqn: JaxprEqn) -> list[Any]:
    """The variables among the inputs and outputs of an equation that stand for mutable arrays, `jax.Ref`."""
    return [v for v in (*eqn.invars, *eqn.outvars) if isinstance(v.aval, jax.ref.AbstractRef)]


def uses_outer_references(closed: ClosedJaxpr) -> bool:
    """True if a program reads or changes a mutable array that was made outside of it."""
    outer = set(closed.jaxpr.constvars)
    return any(eqn.effects and not outer.isdisjoint(_references(eqn)) for eqn in closed.jaxpr.eqns)


def without_effects(equations: Sequence[JaxprEqn]) -> list[JaxprEqn]:
    """The equations, with all effects removed, except those on mutable arrays."""
    kept = [eqn for eqn in equations if eqn.outvars or not eqn.effects or _references(eqn)]
    return [_without_effects(eqn) if eqn.effects else eqn for eqn in kept]


def _without_effects(eqn: JaxprEqn) -> JaxprEqn:
    """An equation, with the effects of the programs inside it removed, except those on mutable arrays."""

    def stripped(x: Any) -> Any:
        if isinstance(x, ClosedJaxpr) and x.jaxpr is not x:  # since JAX 0.12, the two are the same class
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
    """The variables on which the wanted outputs of an equation depend."""
    outputs = [v in wanted for v in eqn.outvars]
    rule = None if eqn.effects or not understood(eqn) else _RULES[eqn.primitive.name]
    matters = [True] * len(eqn.invars) if rule is None else rule(eqn, outputs)
    return {
        v
        for v, m in zip(eqn.invars, matters, strict=True)
        if not isinstance(v, Literal) and (m or not _has_zeros(v.aval))
    }


def understood(eqn: JaxprEqn) -> bool:
    """True if we know which inputs each output of an equation depends on, from the programs inside it.

    JAX does not guarantee the names of such operations and of their parameters. If they are not as expected here, every
    output is assumed to depend on all inputs, which is correct too, but less efficient.
    """
    name = eqn.primitive.name
    return name in _RULES and set(_PARTS.get(name, ())) <= set(eqn.params) and bool(inner_programs(eqn))


def _has_zeros(aval: Any) -> bool:
    """True if `jnp.zeros` can replace a value of this type, which is not so for keys and explicitly sharded arrays."""
    plain = jax.core.ShapedArray(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
    return aval == plain and not jnp.issubdtype(aval.dtype, jax.dtypes.extended)


def _of_program(program: Any, outputs: Sequence[bool]) -> list[bool]:
    """Which inputs of a program the wanted outputs depend on."""
    program = getattr(program, "jaxpr", program)
    live = {v for v, w in zip(program.outvars, outputs, strict=True) if w and not isinstance(v, Literal)}
    live = live.union(*(inputs for _, inputs in needed_inputs(program.eqns, list(live))))
    return [v in live for v in program.invars]


def _of_loop(program: Any, consts: int, carry: list[bool], others: Sequence[bool]) -> tuple[list[bool], list[bool]]:
    """The needed inputs of a loop's body, and the needed parts of its carry: a fixed point over the iterations."""
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
    return _of_program(inner_programs(eqn)[0], outputs)


_CALLS = ("jit", "closed_call", "eval_jaxpr", "remat2", "custom_jvp_call", "custom_vjp_call", "call_hi_primitive")
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
