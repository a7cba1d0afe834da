"""Rotary position embeddings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hkx.core.module import Module


class RotaryEmbedding(Module):
    """Rotates pairs of features by angles that grow with the position, so that products depend on distances only.

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
        """Rotates.

        Args:
          x: `[..., T, N, D]`: queries or keys of N heads. D is even.
          positions: `int[T]`, or `int[..., T]`; `0 … T - 1` by default.

        Returns:
          An array of the shape and dtype of `x`; the angles are computed in float32.

        Raises:
          ValueError: if D is odd.
        """
        *_, length, _, size = jnp.shape(x)
        if size % 2:
            raise ValueError(f"The last dimension of `x` must be even, got the shape {jnp.shape(x)}.")
        positions = jnp.arange(length) if positions is None else jnp.asarray(positions)
        frequencies = (self.theta ** (-np.arange(0, size, 2) / size)).astype(np.float32)
        angles = jnp.expand_dims(
            positions.astype(jnp.float32)[..., None] * _to_rank(frequencies, positions.ndim + 1), -2
        )
        cos, sin = (jnp.expand_dims(f(angles), tuple(range(jnp.ndim(x) - angles.ndim))) for f in (jnp.cos, jnp.sin))
        first, second = jnp.split(jnp.asarray(x, jnp.promote_types(jnp.result_type(x), jnp.float32)), 2, axis=-1)
        out = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
        return out.astype(jnp.result_type(x))


def _to_rank(vector: np.ndarray, rank: int) -> np.ndarray:
    return vector.reshape((1,) * (rank - 1) + (-1,))
