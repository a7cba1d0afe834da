"""Reshaping layers."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from hkx import Module
from hkx.arguments import Index, Items, Shaped
from hkx.errors import InvalidReshapeError
from hkx.nn.numerics import divided, parts_of


class Reshape(Module):
    """Reshapes all dimensions except the leading ones.

    Args:
      output_shape: the new shape of these dimensions; one entry may be -1, for the remaining size.
      preserve_dims: how many leading dimensions to keep. A negative number counts from the last dimension.
      name: the module's name.

    Raises:
      ValueError: if more than one entry is -1, or `preserve_dims` is 0.
      NotAListError: if `output_shape` is not a sequence.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.transform(lambda x: hkx.Reshape([2, -1])(x)).apply({}, None, jnp.ones([5, 6])).shape
      (5, 2, 3)
    """

    def __init__(self, output_shape: Items[Index], preserve_dims: Index = 1, name: str | None = None):
        super().__init__(name=name)
        self.preserve_dims = preserve_dims
        if self.preserve_dims == 0:
            raise ValueError("Argument preserve_dims should be non-zero: 1 keeps the batch dimension, for example.")
        self.output_shape = tuple(output_shape)
        if self.output_shape.count(-1) > 1:
            raise ValueError(f"At most one entry of `output_shape` may be -1, got {self.output_shape}.")

    def __call__(self, inputs: Shaped[jax.Array, "..."]) -> jax.Array:
        """Reshapes `inputs`; an array with no more dimensions than those to keep is returned unchanged.

        Raises:
          InvalidReshapeError: if the shape does not match the number of elements.
          InvalidInputError: if `inputs` is not an array.
        """
        shape = inputs.shape
        if len(shape) <= self.preserve_dims:
            return inputs
        kept, rest = shape[: self.preserve_dims], _resolved(self.output_shape, shape[self.preserve_dims :])
        parts = parts_of(inputs)
        reshaped = functools.partial(jnp.reshape, shape=(*kept, *rest))
        if not any(parts[len(kept) :]):
            reshaped = divided(reshaped, *parts[: len(kept)], *(None for _ in rest))
        return reshaped(inputs)


def _resolved(output_shape: tuple[int, ...], rest: tuple[int, ...]) -> tuple[int, ...]:
    """`output_shape` with -1 replaced, checked against the number of elements in `rest`."""
    size, known = math.prod(rest), math.prod(n for n in output_shape if n != -1)
    resolved = tuple((size // known if known else 0) if n == -1 else n for n in output_shape)
    if isinstance(size, int) and math.prod(resolved) != size:  # otherwise a symbolic dimension of `jax.export`
        raise InvalidReshapeError(output_shape, rest, size)
    return resolved


class Flatten(Reshape):
    """Merges all dimensions except the leading ones into one.

    Args:
      preserve_dims: how many leading dimensions to keep. A negative number counts from the last dimension.
      name: the module's name.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.transform(lambda x: hkx.Flatten()(x)).apply({}, None, jnp.ones([5, 2, 3])).shape
      (5, 6)
    """

    def __init__(self, preserve_dims: Index = 1, name: str | None = None):
        super().__init__(output_shape=(-1,), preserve_dims=preserve_dims, name=name)
