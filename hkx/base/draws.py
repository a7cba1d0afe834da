"""Draws of random initial values from a standard distribution."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hkx.base.types import Array, DType, Shape
from hkx.errors.arguments import InvalidDTypeError, NotANumberError


class Draw(NamedTuple):
    """The description of one random array from a standard distribution.

    `low` and `high` are the bounds of a uniform distribution, or the truncation points of a normal one (in standard
    deviations; infinite if it is not truncated). Normal samples are multiplied by `scale`.
    """

    kind: Literal["normal", "truncated_normal", "uniform"]
    shape: tuple[int, ...]
    dtype: Any
    low: float
    high: float
    scale: float = 1.0

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(map(int, self.shape))


def check_dtype(dtype: DType, allowed: Any = jnp.inexact) -> None:
    """Raises an error unless random values can be of this dtype."""
    try:
        fits = jnp.issubdtype(dtype, allowed)
    except (TypeError, ValueError):
        raise InvalidDTypeError("initial values", dtype) from None
    if not fits:
        raise ValueError(
            f"Random initial values need a floating dtype, not {np.dtype(dtype).name}. Most layers make their "
            "parameters in the dtype of their inputs: convert those first, as in `inputs.astype(jnp.float32)`."
        )


def check_fits(shape: Shape, dtype: DType, **values: Any) -> None:
    """Checks the numbers or arrays from which an array of this shape and dtype is computed.

    Raises:
      NotANumberError: if one is complex, and the dtype is not.
      ValueError: if one does not broadcast to the shape.
    """
    for argument, value in values.items():
        if np.iscomplexobj(value) and not jnp.issubdtype(dtype, jnp.complexfloating):
            raise NotANumberError(argument, value)
        try:
            given = np.shape(value)
        except ValueError:  # lists of different lengths
            raise NotANumberError(argument, value) from None
        if not given:  # most often
            continue
        try:
            fits = jnp.broadcast_shapes(given, shape) == tuple(shape)
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"`{argument}` of an initializer has shape {given}, expected a number, or an array that broadcasts to "
                f"{tuple(shape)}, the shape of what it creates."
            )


def sample(draw: Draw, key: Array) -> Array:
    """Samples the array with `jax.random`."""
    kind, shape, dtype, low, high, scale = draw
    if kind == "uniform":
        return jax.random.uniform(key, shape, dtype, low, high)
    if kind == "normal":
        unit = jax.random.normal(key, shape, dtype)
    elif np.issubdtype(dtype, np.complexfloating):
        real, imaginary = jax.random.truncated_normal(key, low, high, (2, *shape), np.finfo(dtype).dtype)
        unit = jax.lax.complex(real, imaginary)
    else:
        unit = jax.random.truncated_normal(key, low, high, shape, dtype)
    return jax.lax.convert_element_type(scale, dtype) * unit + jnp.zeros((), dtype)
