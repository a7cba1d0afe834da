"""Makers, which create all initial values. `init` replaces the default one, to record the values or to skip them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from hkx.base.draws import Draw, sample
from hkx.base.types import Array, DType


def split_key(key: Array, num: int) -> Sequence[Array]:
    """Splits a key into a sequence of `num` keys."""
    return tuple(jax.random.split(key, num))


class Maker(Protocol):
    """Creates the initial values and keys that a running transform requests.

    Attributes:
      on_shapes: whether `init` was given shapes instead of arrays, so that no value can depend on its arguments.
    """

    on_shapes: bool

    def draw(self, draw: Draw, key: Array) -> Array:
        """Samples an array from a standard distribution."""
        ...

    def fill(self, shape: Any, dtype: DType, value: int) -> Array:
        """An array filled with one number."""
        ...

    def split(self, key: Array, num: int) -> Sequence[Array]:
        """Splits a key."""
        ...

    def example(self, value: Array, otherwise: Any) -> Array:
        """An initial value computed from the example arguments, or `otherwise` if those are only shapes."""
        ...


class Eager:
    """Creates values immediately, with `jax.random` and `jax.numpy`."""

    def __init__(self, on_shapes: bool = False):
        self.on_shapes = on_shapes

    def draw(self, draw: Draw, key: Array) -> Array:
        return sample(draw, key)

    def fill(self, shape: Any, dtype: DType, value: int) -> Array:
        return jnp.full(shape, value, dtype)

    def split(self, key: Array, num: int) -> Sequence[Array]:
        return split_key(key, num)

    def example(self, value: Array, otherwise: Any) -> Array:
        return filled_like(value, otherwise) if self.on_shapes else value


class Shapes(Eager):
    """Creates zeros of the right shape, for when only shapes are needed."""

    def draw(self, draw: Draw, key: Array) -> Array:
        return jnp.zeros(draw.shape, jax.dtypes.canonicalize_dtype(draw.dtype))

    def split(self, key: Array, num: int) -> Sequence[Array]:
        return (key,) * num


def filled_like(value: Array, otherwise: Any) -> Array:
    """`otherwise` with the shape and dtype of `value`."""
    return jnp.broadcast_to(jnp.asarray(otherwise, value.dtype), value.shape)


EAGER = Eager()
