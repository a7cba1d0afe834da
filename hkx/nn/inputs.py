"""What layers make of their inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.errors import (
    InputDTypeError,
    InvalidInputError,
    InvalidRankError,
    LeadingDimensionsError,
    NotANumberError,
    OutOfRangeError,
    ScalarInputError,
    StateShapeError,
)


def array_of(inputs: Any, layer: object, argument: str = "inputs", keys: bool = False) -> jax.Array:
    """`inputs` as an array of JAX.

    Args:
      inputs: an array, a number, or nested lists of numbers.
      layer: the module that was called; the message names its class. A string stands for itself.
      argument: the name of the argument.
      keys: whether it may be random keys, which nothing can be computed from.

    Raises:
      InvalidInputError: if it is something else.
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


def array_with_dimensions(inputs: Any, layer: object) -> jax.Array:
    """`array_of`, and not a scalar.

    Raises:
      InvalidInputError: if it is no array.
      ScalarInputError: if it is a scalar.
    """
    inputs = array_of(inputs, layer)
    if not inputs.ndim:
        raise ScalarInputError(type(layer).__name__)
    return inputs


def sequences_of(layer: object, **arguments: Any) -> tuple[list[jax.Array], tuple[int, ...]]:
    """Arrays of sequences, `[..., T, D]` each, and what their leading dimensions broadcast to.

    Raises:
      InvalidInputError: if one is no array.
      InvalidRankError: if one has less than two dimensions.
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
    """The shape of what is computed from arrays of two shapes; None if they do not broadcast."""
    if first == second:
        return first
    try:
        return jnp.broadcast_shapes(first, second)
    except ValueError:
        return None


def without_leading_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without the ones that it begins with: it broadcasts to what the whole does."""
    first = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return tuple(shape[first:])


def check_dtype(fits: bool, layer: object, argument: str, dtype: Any, expected: str) -> None:
    """Raises InputDTypeError unless a layer can compute with the dtype of its argument."""
    if not fits:
        raise InputDTypeError(layer if isinstance(layer, str) else type(layer).__name__, argument, dtype, expected)


def check_state(fits: bool, layer: Any, name: str, state: Any, expected: Any, argument: str, inputs: Any) -> None:
    """Raises StateShapeError unless the state of a layer that is called so fits the shape of its argument."""
    if not fits:
        path = f"{layer.module_name}/{name}"
        raise StateShapeError(path, jnp.shape(state), list(expected), argument, jnp.shape(inputs))


def number(value: Any, dtype: Any, argument: str, low: float = -math.inf, high: float = math.inf) -> Any:
    """A number as a NumPy scalar, for arithmetic on it to be done once; a traced one as an array. None keeps its dtype.

    Raises:
      NotANumberError: if it is something else.
      OutOfRangeError: if there are bounds and it is not between them; a traced one is not checked.
    """
    if isinstance(value, jax.core.Tracer):
        return value if dtype is None else jax.lax.convert_element_type(value, dtype)
    if not isinstance(value, (int, float, np.generic, np.ndarray, jax.Array)) or isinstance(value, np.character):
        raise NotANumberError(argument, value)
    if low > -math.inf and not _between(value, low, high):
        raise OutOfRangeError(argument, value, low, high)
    return np.asarray(value, dtype)[()]


def _between(value: Any, low: float, high: float) -> bool:
    if isinstance(value, (int, float)):  # each layer of a network asks: NumPy takes fifty times as long
        return low <= value <= high
    array = np.asarray(value)
    return bool(np.all((low <= array) & (array <= high)))


def cast(value: Any, dtype: Any) -> jax.Array:
    """`value` as an array of a dtype; one that is, is handed on, which traces faster than `astype`."""
    if isinstance(value, jax.Array) and value.dtype == dtype and not value.weak_type:
        return value
    return jnp.asarray(value, dtype)


@functools.cache
def statistics_dtypes(dtype: Any) -> tuple[Any, Any]:
    """In which dtype the mean of an array of this one is taken, at least float32, and in which it is kept."""
    wide = jnp.promote_types(dtype, jnp.float32)
    return wide, dtype if jnp.issubdtype(dtype, jnp.inexact) else wide
