"""Masks that shield: sums and means over what counts; the rest (even NaN) reaches neither values nor gradients."""

import math

import jax.numpy as jnp

from rlx.core.types import Array, ArrayLike


def given_mask(mask: ArrayLike | None) -> ArrayLike:
    """`mask`, or True (everything counts) if it is None; check it with the shape "[] or [...]" and kind "mask"."""
    return True if mask is None else mask


def keep(mask: Array, *arrays: ArrayLike) -> tuple[Array, ...]:
    """The arrays with zeros where the mask is false. Done before any arithmetic, it keeps NaN out of gradients too.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import keep
      >>> keep(jnp.array([True, False]), jnp.array([1.0, jnp.nan]))[0].tolist()
      [1.0, 0.0]
    """
    return tuple(jnp.where(mask.astype(bool), x, jnp.zeros_like(x)) for x in arrays)


def masked_sum(x: Array, mask: Array, axis: int | None = None) -> Array:
    """Sum of the entries that count, in the dtype of `x`."""
    return jnp.sum(keep(mask, x)[0], axis=axis)


def masked_mean(x: Array, mask: Array, axis: int | None = None) -> Array:
    """Mean of the entries that count, in the dtype of `x`, accumulated in float32 or wider; 0 where none counts.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import masked_mean
      >>> float(masked_mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])))
      2.0
    """
    wide = jnp.promote_types(x.dtype, jnp.float32)
    count = jnp.sum(jnp.broadcast_to(mask.astype(bool), x.shape), axis=axis)
    total = jnp.sum(keep(mask, x)[0].astype(wide), axis=axis)
    return (total / jnp.maximum(count, 1).astype(wide)).astype(x.dtype)


def finite_exponent(x: Array) -> Array:
    """`x`, held below the point where exp(x) overflows its dtype.

    An infinite probability ratio that a clip then discards would still put 0 · ∞ = NaN into the gradient.
    """
    return jnp.minimum(x, math.log(float(jnp.finfo(x.dtype).max)) - 1)
