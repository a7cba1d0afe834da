"""Checks and conversions of the inputs of layers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.arguments import checked_integer, checked_number
from hkx.errors import (
    InputDTypeError,
    InvalidInputError,
    InvalidRankError,
    LeadingDimensionsError,
    NotAnArrayError,
    NotANumberError,
    OutOfRangeError,
    ScalarInputError,
    StateShapeError,
)

R = TypeVar("R")


def array_of(inputs: Any, layer: object, argument: str = "inputs", keys: bool = False) -> jax.Array:
    """Converts `inputs` to a JAX array.

    Args:
      inputs: an array, a number, or nested lists of numbers.
      layer: the module that was called, whose class the error names, or a name.
      argument: the name of the argument.
      keys: whether typed random keys are allowed; no arithmetic is possible with them.

    Raises:
      InvalidInputError: if `inputs` is something else.
    """
    cause = None
    if not isinstance(inputs, jax.Array):
        try:
            return jnp.asarray(inputs)
        except (TypeError, ValueError, OverflowError) as error:
            cause = error
    elif keys or isinstance(inputs.dtype, np.dtype):
        return inputs
    name = layer if isinstance(layer, str) else type(layer).__name__
    raise InvalidInputError(name, argument, inputs) from cause


def parts_of(x: Any) -> tuple[Any, ...]:
    """For each dimension of an array, the explicit axes of a mesh along which it is divided, according to its type."""
    return tuple(jax.typeof(x).sharding.spec)


def divided(f: Callable[..., R], *parts: Any) -> Callable[..., R]:
    """`f`, or, on a mesh with explicit axes, `f` with a result that is divided like this.

    For functions of which JAX knows no rule, or whose result could be divided in several ways: it then raises an error.
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

    def look_up(table: jax.Array, indices: jax.Array) -> jax.Array:
        return table[indices]

    return divided(look_up, *parts_of_rows(table, indices))(table, indices)


def array_with_dimensions(inputs: Any, layer: object) -> jax.Array:
    """Like `array_of`, for arrays with at least one dimension.

    Raises:
      InvalidInputError: if `inputs` is not an array.
      ScalarInputError: if it is a scalar.
    """
    inputs = array_of(inputs, layer)
    if not inputs.ndim:
        raise ScalarInputError(type(layer).__name__)
    return inputs


def sequences_of(layer: object, **arguments: Any) -> tuple[list[jax.Array], tuple[int, ...]]:
    """Converts sequences, `[..., T, D]`, to arrays; also returns the shape that their leading dimensions broadcast to.

    Raises:
      InvalidInputError: if one is not an array.
      InvalidRankError: if one has fewer than two dimensions.
      LeadingDimensionsError: if the leading dimensions do not broadcast.
    """
    name, arrays, leading = type(layer).__name__, [], None
    for argument, value in arguments.items():
        array = array_of(value, layer, argument)
        if array.ndim < 2:
            raise InvalidRankError(name, argument, array.shape, 2)
        leading = array.shape[:-2] if leading is None else leading
        if leading != array.shape[:-2]:
            before, leading = leading, broadcast(leading, array.shape[:-2])
            if leading is None:
                expected = f"leading dimensions that broadcast to {before}, those of the arguments before it"
                raise LeadingDimensionsError(name, argument, array.shape, expected)
        arrays.append(array)
    return arrays, leading or ()


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


def dimension_of(value: Any, shape: Sequence[int], layer: str, argument: str) -> int:
    """The dimension of an array of this shape that is given as `argument`, counted from the start.

    Raises:
      InvalidSizeError: if it is not a whole number.
      IndexError: if the array does not have it.
    """
    dimension = checked_integer(value, argument, None)
    if not -len(shape) <= dimension < len(shape):
        raise IndexError(
            f"`{argument}` of `{layer}` is out of range: {dimension}, for an array of shape {tuple(shape)}. It is the "
            "number of a dimension, such as -1 for the last, and not its size."
        )
    return dimension % len(shape)


def check_dtype(
    fits: bool, layer: object, argument: str, dtype: Any, expected: str, converted: str | None = None
) -> None:
    """Raises InputDTypeError, about the dtype of an argument of a layer, unless `fits`."""
    if not fits:
        name = layer if isinstance(layer, str) else type(layer).__name__
        raise InputDTypeError(name, argument, dtype, expected, converted)


def check_real(layer: object, **inputs: jax.Array) -> None:
    """Raises InputDTypeError if an argument of a layer is complex."""
    for argument, x in inputs.items():
        parts = f"`jnp.concatenate([{argument}.real, {argument}.imag], axis=-1)`"
        check_dtype(not jnp.iscomplexobj(x), layer, argument, x.dtype, "a real one", parts)


def lengths_of(lengths: Any, layer: object, argument: str) -> jax.Array:
    """Converts the lengths of sequences to an array of integers.

    Raises:
      InvalidInputError: if `lengths` is not an array.
      InputDTypeError: if it is not of integers.
    """
    lengths = array_of(lengths, layer, argument)
    whole = jnp.issubdtype(lengths.dtype, jnp.integer)
    check_dtype(whole, layer, argument, lengths.dtype, "one of integers", f"`{argument}.astype(jnp.int32)`")
    return lengths


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


def given_or(value: Any, default: Any) -> Any:
    """What was given; the default for None, and, as in Haiku, for what is false. An array, which may be both, stays."""
    return value if hasattr(value, "shape") or value else default


def number(value: Any, dtype: Any, argument: str, low: float = -math.inf, high: float = math.inf) -> Any:
    """Converts a number to a NumPy scalar, so that arithmetic with it is not traced. A traced number stays an array.

    With None for `dtype`, the number keeps its dtype.

    Raises:
      NotANumberError: if `value` is not a number or an array, or complex.
      OutOfRangeError: if it is outside of the bounds, if there are any; a traced number is not checked.
    """
    if isinstance(value, jax.core.Tracer):
        return value if dtype is None else jax.lax.convert_element_type(value, dtype)
    real = isinstance(checked_number(value, argument), (int, float)) or (
        isinstance(value, (np.generic, np.ndarray, jax.Array)) and not np.iscomplexobj(value)
    )
    if not real:
        raise NotANumberError(argument, value)
    if low > -math.inf and not _between(value, low, high):
        raise OutOfRangeError(argument, value, low, high)
    return np.asarray(value, dtype)[()]


def scalar(value: Any, dtype: Any, argument: str, low: float = -math.inf, high: float = math.inf) -> Any:
    """Like `number`, for what cannot be an array of several numbers."""
    checked = number(value, dtype, argument, low, high)
    if np.size(checked) != 1:
        raise NotANumberError(argument, value)
    return checked


def _between(value: Any, low: float, high: float) -> bool:
    if isinstance(value, (int, float)):  # called for every layer; with NumPy it would take fifty times as long
        return low <= value <= high
    array = np.asarray(value)
    return bool(np.all((low <= array) & (array <= high)))


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
