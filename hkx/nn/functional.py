"""Small functions that layers are put together with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp


def dropout(rng: jax.Array, rate: float | jax.Array, x: jax.Array, broadcast_dims: Sequence[int] = ()) -> jax.Array:
    """Sets each element to zero with probability `rate`, and divides the others by `1 - rate`.

    Reference: Srivastava et al. (2014), "Dropout: a simple way to prevent neural networks from overfitting".

    Args:
      rng: a key, most often `hkx.next_rng_key()`.
      rate: the probability, in `[0, 1)`; a traced number is not checked.
      x: the array.
      broadcast_dims: the dimensions along which elements are dropped together.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      ValueError: if `rate` is not in `[0, 1)`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> hkx.dropout(jax.random.key(0), 0.5, jnp.ones(4)).shape
      (4,)
    """
    if not isinstance(rate, jax.core.Tracer):
        if rate < 0 or rate >= 1:
            raise ValueError(f"`rate` must be in [0, 1), got {rate}.")
        if rate == 0.0:
            return x
    shape = list(jnp.shape(x))
    for dim in broadcast_dims:
        shape[dim] = 1
    keep_rate = 1.0 - rate
    keep = jax.random.bernoulli(rng, keep_rate, shape=shape)
    return jnp.broadcast_to(keep, jnp.shape(x)) * x / keep_rate


def one_hot(x: Any, num_classes: int, dtype: Any = jnp.float32) -> jax.Array:
    """1 where the class is, 0 elsewhere.

    Args:
      x: integers of any shape.
      num_classes: how many classes; what is not in `[0, num_classes)` gives zeros.
      dtype: of the result.

    Returns:
      An array of shape `[*x.shape, num_classes]`.

    Example:

      >>> import hkx
      >>> print(hkx.one_hot(1, 3))
      [0. 1. 0.]
    """
    return jax.nn.one_hot(jnp.asarray(x), num_classes, dtype=dtype)


def multinomial(rng: jax.Array, logits: Any, num_samples: int) -> jax.Array:
    """Independent samples from a categorical distribution, drawn with replacement.

    Args:
      rng: a key, most often `hkx.next_rng_key()`.
      logits: `[..., C]`, the logarithms of the probabilities, up to a constant.
      num_samples: how many samples.

    Returns:
      `int[..., num_samples]`, classes in `[0, C)`.

    Raises:
      ValueError: if `logits` is a scalar.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> print(hkx.multinomial(jax.random.key(0), jnp.array([-jnp.inf, 0.0, -jnp.inf]), num_samples=4))
      [1 1 1 1]
    """
    shape = jnp.shape(logits)
    if not shape:
        raise ValueError("`logits` must have a dimension of classes, got a scalar.")
    logits = jnp.expand_dims(logits, 0)
    samples = jax.random.categorical(rng, logits, axis=-1, shape=(num_samples, *shape[:-1]))
    return jnp.moveaxis(samples, 0, -1)
