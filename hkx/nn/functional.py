"""Small functions that layers are built from."""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import jax.numpy as jnp

from hkx import PRNGKey, as_key
from hkx.arguments import Index, Items, Num, Number, Size, checked
from hkx.nn.numerics import dimension_of, in_32_bits


@checked
def dropout(
    rng: PRNGKey, rate: Number[float | jax.Array, "[0, 1)"], x: Num[jax.Array, "..."], broadcast_dims: Items[Index] = ()
) -> jax.Array:
    """Sets each element to zero with probability `rate`, and divides the others by `1 - rate`.

    Reference: Srivastava et al. (2014), "Dropout: a simple way to prevent neural networks from overfitting".

    Args:
      rng: a key, usually `hkx.next_rng_key()`, or a seed.
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
    if not isinstance(rate, jax.core.Tracer) and rate == 0.0:
        return x
    shape = list(x.shape)
    for dim in broadcast_dims:
        shape[dimension_of(dim, x.shape, "hkx.dropout", "broadcast_dims")] = 1
    keep_rate = 1.0 - rate
    keep = jax.random.bernoulli(as_key(rng, "`rng` of `hkx.dropout`"), keep_rate, shape=shape)
    return jnp.where(keep, x, 0) / keep_rate  # 0 where `x` is infinite, too


@checked
def one_hot(x: Num[Any, "..."], num_classes: Size, dtype: Any = jnp.float32) -> jax.Array:
    """One-hot vectors: 1 at the class, 0 elsewhere.

    Args:
      x: integers or bools of any shape, or floats, which count if they equal a class.
      num_classes: the number of classes; a number outside of `[0, num_classes)` gives zeros.
      dtype: the dtype of the result.

    Returns:
      An array of shape `[*x.shape, num_classes]`.

    Raises:
      TypeError: if JAX has no such dtype.

    Example:

      >>> import hkx
      >>> print(hkx.one_hot(1, 3))
      [0. 1. 0.]
    """
    x = in_32_bits(x)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jax.nn.one_hot(x, num_classes, dtype=dtype)
    classes = jnp.arange(num_classes).astype(x.dtype).reshape([1] * x.ndim + [-1])
    return (x[..., None] == classes).astype(float if dtype is None else dtype)


@checked
def multinomial(rng: PRNGKey, logits: Num[Any, "..."], num_samples: Size) -> jax.Array:
    """Independent samples from a categorical distribution, drawn with replacement.

    Args:
      rng: a key, usually `hkx.next_rng_key()`, or a seed.
      logits: `[..., C]`, the logarithms of the probabilities, up to a constant.
      num_samples: the number of samples.

    Returns:
      `int[..., num_samples]`, classes in `[0, C)`.

    Raises:
      ValueError: if `logits` is a scalar, has no floating dtype, or has no classes.
      InvalidSizeError: if `num_samples` is not a whole number.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> print(hkx.multinomial(jax.random.key(0), jnp.array([-jnp.inf, 0.0, -jnp.inf]), num_samples=4))
      [1 1 1 1]
    """
    shape = logits.shape
    if not shape or not shape[-1]:
        raise ValueError(f"`logits` must have a dimension of classes, got an array of shape {shape}.")
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ValueError(f"`logits` must be of a floating dtype, got {logits.dtype}: they are logarithms.")
    logits, rng = jnp.expand_dims(logits, 0), as_key(rng, "`rng` of `hkx.multinomial`")
    samples = jax.random.categorical(rng, logits, axis=-1, shape=(num_samples, *shape[:-1]))
    return jnp.moveaxis(samples, 0, -1)
