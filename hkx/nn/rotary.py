"""Rotary position embeddings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module
from hkx.errors import InvalidRankError, LeadingDimensionsError
from hkx.nn.inputs import array_of, check_dtype, number


class RotaryEmbedding(Module):
    """Rotates pairs of features by angles that grow with the position, so that dot products depend only on distances.

    Feature i is paired with feature `i + D / 2`, and both are rotated by `position * theta**(-2 i / D)`.

    Reference: Su et al. (2021), "RoFormer: enhanced transformer with rotary position embedding", arXiv:2104.09864.

    Args:
      theta: the base of the angles.
      name: the module's name.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> f = hkx.transform(lambda x: hkx.RotaryEmbedding()(x))
      >>> print(f.apply({}, None, jnp.ones([1, 1, 1, 4]))[0, 0, 0])  # at position 0 nothing is rotated
      [1. 1. 1. 1.]
    """

    def __init__(self, theta: float = 10000.0, name: str | None = None):
        super().__init__(name=name)
        self.theta = theta

    def __call__(self, x: jax.Array, positions: jax.Array | None = None) -> jax.Array:
        """Rotates queries or keys.

        Args:
          x: `[..., T, N, D]`: queries or keys of N heads. D must be even.
          positions: `int[T]`, or `int[..., T]` that broadcasts to `x`; `0 … T - 1` by default.

        Returns:
          An array of the shape and dtype of `x`; the angles are computed in float32.

        Raises:
          InvalidRankError: if `x` has fewer than three dimensions.
          LeadingDimensionsError: if `positions` does not broadcast to `x`.
          InputDTypeError: if `x` is of integers.
          ValueError: if D is odd, or `theta` is not positive.
        """
        x = array_of(x, self, "x")
        check_dtype(jnp.issubdtype(x.dtype, jnp.inexact), self, "x", x.dtype, "a floating dtype")
        if x.ndim < 3:
            raise InvalidRankError("RotaryEmbedding", "x", x.shape, 3)
        *leading, length, _, size = x.shape
        if size % 2:
            raise ValueError(f"The last dimension of `x` must be even, got the shape {x.shape}.")
        positions = jnp.arange(length) if positions is None else array_of(positions, self, "positions")
        places = zip(reversed(positions.shape), reversed([*leading, length]), strict=False)
        if not 1 <= positions.ndim < x.ndim - 1 or any(n not in (1, size) for n, size in places):
            expected = f"one that broadcasts to {(*leading, length)}, the shape of `x` without heads and features"
            raise LeadingDimensionsError("RotaryEmbedding", "positions", positions.shape, expected)
        theta = number(self.theta, None, "theta", float(np.finfo(np.float32).tiny))
        frequencies = (theta ** (-np.arange(0, size, 2) / size)).astype(np.float32)
        angles = jnp.expand_dims(
            positions.astype(jnp.float32)[..., None] * _to_rank(frequencies, positions.ndim + 1), -2
        )
        cos, sin = (jnp.expand_dims(f(angles), tuple(range(x.ndim - angles.ndim))) for f in (jnp.cos, jnp.sin))
        first, second = jnp.split(jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32)), 2, axis=-1)
        out = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
        return out.astype(x.dtype)


def _to_rank(vector: np.ndarray, rank: int) -> np.ndarray:
    return vector.reshape((1,) * (rank - 1) + (-1,))
