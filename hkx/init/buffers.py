"""Arrays of NumPy's that a traced program refers to, and that may hold something else when it is carried out."""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
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
    """Whether an output depends on an array of NumPy's that may have held something else when it was read.

    A program refers to such arrays: whoever else holds one may have filled it anew since. Of an array of 64 bits it has
    a copy where JAX computes with 32, made when it was first read. What was read several times, nobody else need hold.

    Args:
      closed: the program.
      constant: whether an array holds what it held when the program was begun.
      examples: an operation, which what stems from examples comes through. The whole forward pass stands behind it,
        with tables such as the mean of all images: of the arrays there only those are looked at that are read several
        times.
    """
    shown = {v for eqn in closed.jaxpr.eqns if eqn.primitive is examples for v in eqn.outvars}
    equations = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive is not examples]
    outputs = [v for v in closed.jaxpr.outvars if isinstance(v, Literal) or v not in shown]
    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    read = filter(_is_numpys, _constants((), closed.jaxpr.eqns, values))
    reads = collections.Counter(id(_memory(value)[0]) for value in read)
    read = filter(_is_numpys, _constants(outputs, needed(equations, outputs), values))
    if any(_may_change(value, reads, constant) for value in read):
        return True
    read = filter(_is_numpys, _constants((), needed(closed.jaxpr.eqns, closed.jaxpr.outvars), values))
    return any(reads[id(_memory(value)[0])] > 1 and _may_change(value, reads, constant) for value in read)


def _is_numpys(value: Any) -> bool:
    return not isinstance(value, jax.Array) and hasattr(value, "__array__")


def _may_change(value: Any, reads: Mapping[int, int], constant: Callable[[np.ndarray], bool]) -> bool:
    # No variable may hold on to the array: the next constant may be the same one, and is then counted anew.
    owner, references = _memory(value)
    shared = owner.base is not None or references > _references_of_one()  # it may be a bytearray's memory, or a file's
    several = owner.ndim > 0 and reads[id(owner)] > 1
    return owner.flags.writeable and (shared or several) and not constant(owner)


def _memory(value: Any) -> tuple[np.ndarray, int]:
    """The array that owns a constant's memory, and the most references that there are to it or to one view of it."""
    # `np.asarray` of what JAX wraps an array in would pass over a view that the program's author holds.
    array, references = value if isinstance(value, np.ndarray) else np.asarray(value), 0
    while True:
        if array is not value or array.base is None:  # else it is the wrapper, which nobody else holds
            references = max(references, sys.getrefcount(array))
        if not isinstance(array.base, np.ndarray):
            return array, references
        array = array.base


@functools.cache
def _references_of_one() -> int:
    """The references to an array that nobody but a program holds."""
    (value,) = jax.make_jaxpr(lambda: jnp.asarray(np.zeros(2, np.float32)))().consts
    return _memory(value)[1]
