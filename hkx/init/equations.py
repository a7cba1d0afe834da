"""Computes the equations of a recorded program: one by one, as an ordinary run would, or several as one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend.core import DebugInfo, Jaxpr, JaxprEqn, Literal

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

    types: list[Any] = [v.aval for v in program.invars]

    def run(*known: Any) -> Sequence[Any]:
        values = iter(known)
        filled = [
            jnp.zeros(t.shape, t.dtype) if x is None else next(values) for t, x in zip(types, inputs, strict=True)
        ]
        return jax.core.eval_jaxpr(program, (), *filled)

    return jax.jit(run)(*(x for x in inputs if x is not None))
