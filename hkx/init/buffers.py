"""Arrays of NumPy's that a traced program refers to, and that may hold something else when it is carried out."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Primitive, jaxprs_in_params

from hkx.jaxprs.dependence import needed


def _constants(variables: Iterable[Any], equations: Iterable[JaxprEqn], values: dict[Any, Any]) -> Iterable[Any]:
    """The constants among some variables and among what equations read, those of the programs in them included."""
    for v in variables:
        if isinstance(v, Literal):
            yield v.val
        elif v in values:
            yield values[v]
    for eqn in equations:
        yield from _constants(eqn.invars, (), values)
        for program in jax.tree.leaves(tuple(eqn.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr)):
            if isinstance(program, ClosedJaxpr):
                yield from program.consts
        for program in jaxprs_in_params(eqn.params):
            yield from _constants((), program.eqns, {})


def reads_what_may_change(closed: ClosedJaxpr, constant: Callable[[np.ndarray], bool], examples: Primitive) -> bool:
    """Whether an output depends on an array of NumPy's that somebody else holds, who may have filled it anew since.

    A program refers to such arrays; it copies none.

    Args:
      closed: the program.
      constant: whether an array holds what it held when the program was begun.
      examples: an operation, what comes through which is not looked at: it stems from example arguments.
    """
    shown = {v for eqn in closed.jaxpr.eqns if eqn.primitive is examples for v in eqn.outvars}
    equations = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive is not examples]
    outputs = [v for v in closed.jaxpr.outvars if isinstance(v, Literal) or v not in shown]
    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    return any(_may_change(value, constant) for value in _constants(outputs, needed(equations, outputs), values))


def _may_change(value: Any, constant: Callable[[np.ndarray], bool]) -> bool:
    # No variable may hold on to the array: the next constant may be the same one, and is then counted anew.
    if isinstance(value, jax.Array) or not hasattr(value, "__array__"):
        return False
    owner, references = _memory(value)
    shared = owner.base is not None or references > _references_of_one()  # it may be a bytearray's memory, or a file's
    return owner.flags.writeable and shared and not constant(owner)


def _memory(value: Any) -> tuple[np.ndarray, int]:
    """The array that owns the memory of a constant, and how many references there are to it and to views of it."""
    array, references = np.asarray(value), 0
    while isinstance(array.base, np.ndarray):
        references += sys.getrefcount(array)
        array = array.base
    return array, references + sys.getrefcount(array)


@functools.cache
def _references_of_one() -> int:
    """The references to an array that nobody but a program holds."""
    (value,) = jax.make_jaxpr(lambda: jnp.asarray(np.zeros(2, np.float32)))().consts
    return _memory(value)[1]
