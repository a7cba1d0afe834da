"""Dropout as a module."""

from __future__ import annotations

import jax
import numpy as np

from hkx import Module, dropout, next_rng_key
from hkx.arguments import Flag, Index, Items, Num, Number


class Dropout(Module):
    """During training, sets each element to zero with probability `rate`, and divides the others by `1 - rate`.

    Reference: Srivastava et al. (2014), "Dropout: a simple way to prevent neural networks from overfitting".

    Args:
      rate: the probability, in `[0, 1)`.
      broadcast_dims: the dimensions along which elements are dropped together.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x, is_training: hkx.Dropout(0.5)(x, is_training))
      >>> print(model.apply({}, None, jnp.ones(4), False))
      [1. 1. 1. 1.]
      >>> sorted(set(model.apply({}, jax.random.key(0), jnp.ones(100), True).tolist()))
      [0.0, 2.0]
    """

    def __init__(self, rate: Number[float, "[0, 1)"], broadcast_dims: Items[Index] = (), name: str | None = None):
        super().__init__(name=name)
        self.rate = rate
        self.broadcast_dims = broadcast_dims

    def __call__(self, x: Num[jax.Array, "..."], is_training: Flag, rng: jax.Array | None = None) -> jax.Array:
        """Drops elements.

        Args:
          x: an array of any shape.
          is_training: whether elements are dropped; if not, `x` is returned unchanged.
          rng: the key; None draws the next key of the running transform.

        Returns:
          An array of the shape and dtype of `x`.

        Raises:
          ValueError: if `rate` is not in `[0, 1)`.
          MissingRNGError: if a key is needed, and none was passed to `apply`.
        """
        never = isinstance(self.rate, (int, float, np.generic)) and self.rate == 0
        if not is_training or never:
            return x
        return dropout(next_rng_key() if rng is None else rng, self.rate, x, self.broadcast_dims)
