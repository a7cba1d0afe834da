"""Computes the equations of a recorded program: one by one, as an ordinary run would, or several as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from hkx.base.types import Array
from hkx.init.devices import constant
from hkx.init.recording import example_p, fill_p, split_keys, split_p
from hkx.jaxprs.traces import inner_programs


def carry_out(
    eqn: JaxprEqn, inputs: list[Any], used: set[Any], key: Array | None, debug_info: DebugInfo
) -> Sequence[Any]:
    """The outputs of one equation. If it contains a program, only the used outputs are computed; the others are None.

    Inputs on which the used outputs do not depend are None.
    """
    if eqn.primitive is fill_p:
        aval = jax.ShapeDtypeStruct(eqn.params["shape"], eqn.params["dtype"])
        return [constant(aval, eqn.params["value"], key)]
    if eqn.primitive is split_p:
        return split_keys(*inputs, num=eqn.params["num"])
    if eqn.primitive is example_p:
        return inputs
    atoms = [v for v in eqn.invars if not isinstance(v, Literal)]
    values = [x for v, x in zip(eqn.invars, inputs, strict=True) if not isinstance(v, Literal)]
    wanted = [v in used for v in eqn.outvars]
    outvars = [v for v, w in zip(eqn.outvars, wanted, strict=True) if w]
    names = debug_info._replace(arg_names=("",) * len(atoms), result_paths=("",) * len(outvars))
    program = Jaxpr([], atoms, outvars, [eqn], eqn.effects, names)
    as_it_is = all(wanted) and all(x is not None for x in values)
    if as_it_is or not inner_programs(eqn):
        some = iter(jax.core.eval_jaxpr(program, (), *values))
    else:
        some = iter(_compiled(program, values))
    return [next(some) if w else None for w in wanted]


def carry_out_together(
    equations: list[JaxprEqn], used: set[Any], read: Callable[[Any], Any], debug_info: DebugInfo
) -> dict[Any, Any]:
    """Compiles and runs equations as one program. Returns those outputs that other equations use, `used`."""
    made = {v for eqn in equations for v in eqn.outvars}
    inputs = dict.fromkeys(v for eqn in equations for v in eqn.invars if not isinstance(v, Literal) and v not in made)
    outvars = [v for v in dict.fromkeys(v for eqn in equations for v in eqn.outvars) if v in used]
    names = debug_info._replace(arg_names=("",) * len(inputs), result_paths=("",) * len(outvars))
    program = Jaxpr([], list(inputs), outvars, equations, set(), names)
    return dict(zip(outvars, _compiled(program, [read(v) for v in inputs]), strict=True))


def _compiled(program: Jaxpr, inputs: list[Any]) -> Sequence[Any]:
    """Compiles and runs a program. Inputs that are None, on which the outputs do not depend, are replaced by zeros."""
    given = tuple(x is not None for x in inputs)
    try:
        run = _compiled_before(_Program(program, given))
    except TypeError:  # several equations, or one that cannot be hashed
        run = _run(program, given)
    return run(*(x for x in inputs if x is not None))


class _Program:
    """A cache key: a program of one equation, and which of its inputs are given. Equal if both compute the same."""

    def __init__(self, program: Jaxpr, given: tuple[bool, ...]):
        self.program, self.given = program, given
        if len(program.eqns) != 1 or any(np.ndim(v.val) for v in program.eqns[0].invars if isinstance(v, Literal)):
            raise TypeError
        (eqn,) = program.eqns
        places: dict[Any, int] = {v: i for i, v in enumerate([*program.invars, *eqn.outvars])}
        read = [(v.aval, str(v.val) if isinstance(v, Literal) else places[v]) for v in eqn.invars]
        made = [places[v] for v in program.outvars]
        self._same = eqn.primitive, given, tuple(read), tuple(made), tuple(sorted(eqn.params.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self._same == other._same

    def __hash__(self) -> int:
        return hash(self._same)


@functools.lru_cache(maxsize=32)
def _compiled_before(program: _Program) -> Callable[..., Sequence[Any]]:
    return _run(program.program, program.given)


def _run(program: Jaxpr, given: tuple[bool, ...]) -> Callable[..., Sequence[Any]]:
    types: list[Any] = [v.aval for v in program.invars]

    def run(*known: Any) -> Sequence[Any]:
        values = iter(known)
        filled = [next(values) if g else jnp.zeros(t.shape, t.dtype) for g, t in zip(given, types, strict=True)]
        return jaxpr_as_fun(ClosedJaxpr(program, ()))(*filled)

    return jax.jit(run)
