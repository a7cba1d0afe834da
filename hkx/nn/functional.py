"""Small functions that layers are built from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp

from hkx import PRNGKey, as_key
from hkx.arguments import checked_integer, is_iterable
from hkx.errors import InvalidDTypeError
from hkx.nn.inputs import array_of, dimension_of, in_32_bits, scalar


def dropout(rng: PRNGKey, rate: float | jax.Array, x: jax.Array, broadcast_dims: Iterable[int] = ()) -> jax.Array:
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
    x = array_of(x, "dropout", "x")
    if not isinstance(rate, jax.core.Tracer):
        if not 0 <= scalar(rate, None, "rate") < 1:
            raise ValueError(f"`rate` of dropout must be in [0, 1), got {rate}.")
        if rate == 0.0:
            return x
    shape = list(x.shape)
    if not is_iterable(broadcast_dims):
        raise TypeError(f"`broadcast_dims` must be a sequence of dimensions, got {broadcast_dims!r}.")
    for dim in broadcast_dims:
        shape[dimension_of(dim, x.shape, "hkx.dropout", "broadcast_dims")] = 1
    keep_rate = 1.0 - rate
    keep = jax.random.bernoulli(as_key(rng, "`rng` of `hkx.dropout`"), keep_rate, shape=shape)
    return jnp.where(keep, x, 0) / keep_rate  # 0 where `x` is infinite, too


def one_hot(x: Any, num_classes: int, dtype: Any = jnp.float32) -> jax.Array:
    """One-hot vectors: 1 at the class, 0 elsewhere.

    Args:
      x: integers or bools of any shape. Other numbers may be equal to integers.
      num_classes: the number of classes; what is none of `[0, num_classes)` gives zeros.
      dtype: the dtype of the result.

    Returns:
      An array of shape `[*x.shape, num_classes]`.

    Raises:
      InvalidDTypeError: if JAX has no such dtype.

    Example:

      >>> import hkx
      >>> print(hkx.one_hot(1, 3))
      [0. 1. 0.]
    """
    x = in_32_bits(array_of(x, "one_hot", "x"))
    try:
        _ = hash(dtype), jnp.dtype(dtype)
    except (TypeError, ValueError):
        raise InvalidDTypeError("one_hot", dtype) from None
    number_of_classes = checked_integer(num_classes, "num_classes")
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jax.nn.one_hot(x, number_of_classes, dtype=dtype)
    classes = jnp.arange(number_of_classes).astype(x.dtype).reshape([1] * x.ndim + [-1])
    return (x[..., None] == classes).astype(float if dtype is None else dtype)


def multinomial(rng: PRNGKey, logits: Any, num_samples: int) -> jax.Array:
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
    logits = array_of(logits, "multinomial", "logits")
    shape = logits.shape
    if not shape or not shape[-1]:
        raise ValueError(f"`logits` must have a dimension of classes, got an array of shape {shape}.")
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ValueError(f"`logits` must be of a floating dtype, got {logits.dtype}: they are logarithms.")
    logits, rng = jnp.expand_dims(logits, 0), as_key(rng, "`rng` of `hkx.multinomial`")
    samples = jax.random.categorical(
        rng, logits, axis=-1, shape=(checked_integer(num_samples, "num_samples"), *shape[:-1])
    )
    return jnp.moveaxis(samples, 0, -1)
