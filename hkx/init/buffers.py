"""NumPy arrays that a traced program refers to, and whose contents may have changed when the program runs."""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Primitive

from hkx.jaxprs.dependence import needed
from hkx.jaxprs.traces import inner_programs


def _constants(variables: Iterable[Any], equations: Iterable[JaxprEqn], values: dict[Any, Any]) -> Iterable[Any]:
    """The constants among some variables, and among the inputs of equations and of the programs inside them."""
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
        for program in inner_programs(eqn):
            yield from _constants((), program.eqns, {})


def reads_what_may_change(closed: ClosedJaxpr, constant: Callable[[np.ndarray], bool], examples: Primitive) -> bool:
    """Whether an output depends on a NumPy array whose contents may have been different when it was read.

    A program refers to NumPy arrays without copying them, so other code that refers to one may have overwritten it
    since. An exception is a 64-bit array, if JAX computes with 32 bits: the program has a copy, made when the array was
    first read. An array that was read several times may have changed in between, even if nothing else refers to it now.

    Args:
      closed: the program.
      constant: whether an array still has the contents that it had when tracing began.
      examples: the operation through which all initial values from example arguments pass. They depend on the forward
        pass, which uses constants such as the mean of all images. Of the arrays read there, only those that are read
        several times are checked.
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
    # No variable may keep a reference to the array, because it would be counted if the next constant is the same array.
    owner, references = _memory(value)
    shared = owner.base is not None or references > references_of_one()  # the base may be a bytearray or a file
    several = owner.ndim > 0 and reads[id(owner)] > 1
    return owner.flags.writeable and (shared or several) and not constant(owner)


def _memory(value: Any) -> tuple[np.ndarray, int]:
    """The array that owns a constant's memory, and the largest number of references to it or to one of its views."""
    # `np.asarray` of a NumPy array could skip a view to which the user's code refers.
    array, references = value if isinstance(value, np.ndarray) else np.asarray(value), 0
    while True:
        if array is not value or array.base is None:  # otherwise it is a wrapper that nothing else refers to
            references = max(references, sys.getrefcount(array))
        if not isinstance(array.base, np.ndarray):
            return array, references
        array = array.base


@functools.cache
def references_of_one() -> int:
    """The reference count of an array to which only a program refers."""
    closed = jax.make_jaxpr(lambda: jnp.asarray(np.zeros(2, np.float32)))()
    (value,) = _constants(closed.jaxpr.outvars, (), dict(zip(closed.jaxpr.constvars, closed.consts, strict=True)))
    return _memory(value)[1]
