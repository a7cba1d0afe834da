"""Functions that layers share: dtypes, broadcasting, division along the axes of a mesh, and checks of states."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.errors import InputDTypeError, NotAnArrayError, StateShapeError

R = TypeVar("R")


def parts_of(x: Any) -> tuple[Any, ...]:
    """For each dimension of an array, the explicit axes of a mesh along which it is divided, according to its type."""
    return tuple(jax.typeof(x).sharding.spec)


def divided(f: Callable[..., R], *parts: Any) -> Callable[..., R]:
    """`f`, or, on a mesh with explicit axes, `f` with a result that is divided like this.

    For functions without a rule in JAX, or whose result could be divided in several ways: JAX then raises an error.
    Their inside is left to the compiler.
    """
    axes = jax.sharding.get_abstract_mesh().explicit_axes
    auto_axes: Any = jax.sharding.auto_axes
    return auto_axes(f, axes=axes, out_sharding=jax.P(*parts)) if axes else f


def resharded(x: jax.Array, *parts: Any) -> jax.Array:
    """`x`, divided like this if a mesh has explicit axes."""
    return jax.reshard(x, jax.P(*parts)) if jax.sharding.get_abstract_mesh().explicit_axes else x


def parts_of_rows(table: Any, indices: Any) -> tuple[Any, ...]:
    """How `table[indices]` is divided: as the indices are, and then as rows are, along axes that divide no indices."""
    taken = {axis for part in parts_of(indices) for axis in _axes(part)}
    free = (tuple(axis for axis in _axes(part) if axis not in taken) for part in parts_of(table)[1:])
    return (*parts_of(indices), *(axes or None for axes in free))


def _axes(part: Any) -> tuple[Any, ...]:
    return part if isinstance(part, tuple) else () if part is None else (part,)


def rows_at(table: jax.Array, indices: jax.Array) -> jax.Array:
    """`table[indices]`."""
    return divided(_rows, *parts_of_rows(table, indices))(table, indices)


@functools.partial(jax.jit, inline=True)  # so that `init` computes nothing from known indices at once
def _rows(table: jax.Array, indices: jax.Array) -> jax.Array:
    return table[indices]


def broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that two shapes broadcast to; None if they do not."""
    if first == second:
        return first
    try:
        return jnp.broadcast_shapes(first, second)
    except ValueError:
        return None


def without_leading_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without its leading ones."""
    first = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return tuple(shape[first:])


def dimension_of(dimension: int, shape: Sequence[int], layer: str, argument: str) -> int:
    """The dimension of an array of this shape that is given as `argument`, counted from the start.

    Raises:
      IndexError: if the array does not have it.
    """
    return np.lib.array_utils.normalize_axis_index(dimension, len(shape), f"`{argument}` of `{layer}`")


def check_dtype(
    fits: bool, layer: object, argument: str, dtype: Any, expected: str, converted: str | None = None
) -> None:
    """Raises InputDTypeError, about the dtype of an argument of a layer, unless `fits`."""
    if not fits:
        name = layer if isinstance(layer, str) else type(layer).__name__
        raise InputDTypeError(name, argument, dtype, expected, converted)


def check_state(fits: bool, layer: Any, name: str, state: Any, expected: Any, argument: str, inputs: Any) -> None:
    """Raises StateShapeError, about the state `name` of a layer and the argument that it must match, unless `fits`."""
    if not fits:
        path = f"{layer.module_name}/{name}"
        raise StateShapeError(path, jnp.shape(state), list(expected), argument, jnp.shape(inputs))


def state_array(layer: Any, name: str, state: Any) -> Any:
    """The state `name` of a layer: an array, or a number as an array. A checkpoint may hold something else.

    Raises:
      NotAnArrayError: if it is something else.
    """
    if not hasattr(state, "shape"):
        if not isinstance(state, int | float | complex):
            raise NotAnArrayError(f"{layer.module_name}/{name}", state)
        return jnp.asarray(state)
    return state


def widened(x: Any) -> Any:
    """Converts integers and float16 to a dtype into which their sums and squares fit. Anything else stays as it is."""
    if isinstance(x, (jax.Array, np.ndarray)) and (x.dtype == jnp.float16 or jnp.issubdtype(x.dtype, jnp.integer)):
        return x.astype(jnp.float32) if x.dtype == jnp.float16 else x / 1
    return x


def narrowed(result: jax.Array, *arrays: Any) -> jax.Array:
    """The inverse: converts what was computed from the arrays to their common dtype, unless that is one of integers."""
    dtype = jnp.result_type(*(x for x in arrays if x is not None))
    return result if result.dtype == dtype or not jnp.issubdtype(dtype, jnp.inexact) else result.astype(dtype)


def in_32_bits(indices: jax.Array) -> jax.Array:
    """Indices in 32 bits or more. Fewer may not count to the length of an axis, which JAX does not notice."""
    if indices.dtype.itemsize >= 4:
        return indices
    return indices.astype(jnp.float32 if jnp.issubdtype(indices.dtype, jnp.floating) else jnp.int32)


def entries_in(value: Any) -> int:
    """How many entries a sequence has; -1 for what is none, such as a scalar array."""
    try:
        return len(value)
    except TypeError:
        return -1


def constant(value: Any, dtype: Any) -> Any:
    """A number as a NumPy scalar, so that arithmetic with it is not traced. A traced number stays an array."""
    if isinstance(value, jax.core.Tracer):
        return jax.lax.convert_element_type(value, dtype)
    return np.asarray(value, dtype)[()]


def cast(value: Any, dtype: Any) -> jax.Array:
    """Converts `value` to a dtype. An array that already has it is returned as it is, which is faster than `astype`."""
    if isinstance(value, jax.Array) and value.dtype == dtype and not value.weak_type:
        return value
    return jnp.asarray(value, dtype)


@functools.cache
def statistics_dtypes(dtype: Any) -> tuple[Any, Any]:
    """The dtype in which the mean of an array is computed (at least float32), and the dtype in which it is stored."""
    wide = jnp.promote_types(dtype, jnp.float32)
    return wide, dtype if jnp.issubdtype(dtype, jnp.inexact) else wide
