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
    eqn: JaxprEqn, used: set[Any], read: Callable[[Any], Any], key: Array | None, debug_info: DebugInfo
) -> dict[Any, Any]:
    """Computes those outputs of one equation that are `used`.

    `read` returns the value of an input, or None if no used output depends on it.
    """
    if eqn.primitive is fill_p:
        return {eqn.outvars[0]: constant(**eqn.params, like=key)}
    if eqn.primitive is split_p:
        return dict(zip(eqn.outvars, split_keys(read(eqn.invars[0]), num=eqn.params["num"]), strict=True))
    if eqn.primitive is example_p:
        return {eqn.outvars[0]: read(eqn.invars[0])}
    program, inputs = _program([eqn], used, read, debug_info)
    in_part = len(program.outvars) < len(eqn.outvars) or any(x is None for x in inputs)
    if in_part and inner_programs(eqn):
        return dict(zip(program.outvars, _compiled(program, inputs), strict=True))
    return dict(zip(program.outvars, jax.core.eval_jaxpr(program, (), *inputs), strict=True))


def carry_out_together(
    equations: list[JaxprEqn], used: set[Any], read: Callable[[Any], Any], debug_info: DebugInfo
) -> dict[Any, Any]:
    """Compiles and runs equations as one program. Returns those outputs that other equations use, `used`."""
    program, inputs = _program(equations, used, read, debug_info)
    return dict(zip(program.outvars, _compiled(program, inputs), strict=True))


def _program(
    equations: list[JaxprEqn], used: set[Any], read: Callable[[Any], Any], debug_info: DebugInfo
) -> tuple[Jaxpr, list[Any]]:
    """A program that computes the used outputs of equations, and its inputs."""
    made = dict.fromkeys(v for eqn in equations for v in eqn.outvars)
    inputs = dict.fromkeys(v for eqn in equations for v in eqn.invars if not isinstance(v, Literal) and v not in made)
    outvars = [v for v in made if v in used]
    names = debug_info._replace(arg_names=("",) * len(inputs), result_paths=("",) * len(outvars))
    effects = set().union(*(eqn.effects for eqn in equations))
    return Jaxpr([], list(inputs), outvars, equations, effects, names), [read(v) for v in inputs]


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
