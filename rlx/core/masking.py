"""Masks and weights. One rule holds in all operators: entries that do not count are 0 before the equation.

Arguments are 0 where the mask that governs them is false. With a weight (a discount, a coefficient) of 0, they are 0
if they are infinite or NaN, and so are the values that a kernel multiplies by a weight with `weighted`.

`@operator(masks={"discount_t": ("q_t",), "mask_t": ("adv_t",)})` declares which arguments these are.
"""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rlx.core.tracing import traced_once
from rlx.core.types import Array, ArrayLike, wide_dtype


@traced_once
def masked(by: Array, x: Array) -> Array:
    """`x`, but 0 where a mask is false, or where a weight is 0 and `x` is not finite.

    `by` has the shape of `x` or of its leading axes. If `x` has fewer axes than a mask, such as the advantage of a
    whole sequence, it stays unless all of its steps are masked.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import masked
      >>> masked(jnp.array([True, False]), jnp.array([3.0, 4.0])).tolist()
      [3.0, 0.0]
      >>> masked(jnp.array([0.0, 0.0]), jnp.array([jnp.nan, 4.0])).tolist()
      [0.0, 4.0]
    """
    if x.ndim < by.ndim:
        if by.dtype != bool:
            return x
        by = jnp.any(by, axis=tuple(range(x.ndim, by.ndim)))
    keeps = by if by.dtype == bool else by != 0
    keeps = keeps.reshape(keeps.shape + (1,) * (x.ndim - keeps.ndim))
    zero = jax.lax.stop_gradient(by).astype(x.dtype) if by.shape == x.shape else jnp.zeros_like(x)  # see `_weighted`
    return jnp.where(keeps if by.dtype == bool else keeps | jnp.isfinite(x), x, zero)


def weighted(weight: ArrayLike, x: ArrayLike) -> Array:
    """`weight * x`, but 0, with gradients of 0, where the weight is 0 and `x` is infinite or NaN.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import weighted
      >>> weighted(jnp.array([0.0, 2.0]), jnp.array([jnp.inf, 3.0])).tolist()
      [0.0, 6.0]
    """
    if isinstance(weight, (int, float)) and weight == 0:
        return jnp.zeros_like(x)
    if isinstance(weight, (int, float)) or isinstance(x, (int, float)) or (jnp.ndim(x) == 0 and jnp.ndim(weight) > 0):
        return jnp.multiply(weight, x)  # as in γ_t λ: a single number for all weights is finite
    dtype = jnp.result_type(weight, x)
    return _weighted(jnp.asarray(weight, dtype), jnp.asarray(x, dtype))


@traced_once
def _weighted(weight: Array, x: Array) -> Array:
    # The weight is the 0 that is selected: `jax.vmap` over axis 1 would transpose all for a constant array of zeros.
    # Two products, since where the weight is 0 the derivative of w x in w is x; XLA computes both conditions again for
    # the gradient, where those of w · where(w ≠ 0 or x is finite, x, 0) would be stored.
    is_zero, zero = weight == 0, jax.lax.stop_gradient(weight)
    where_zero = weight * jnp.where(jnp.isfinite(x), x, zero)
    return jnp.where(is_zero, where_zero, jnp.where(is_zero, zero, weight) * x)


@functools.partial(traced_once, static_argnums=2)
def weighted_sum(weight: ArrayLike, x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Array:
    """Σ w x over `axis`, where entries with weight 0 add nothing, as in 0 log 0 = 0.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import weighted_sum
      >>> float(weighted_sum(jnp.array([0.0, 2.0]), jnp.array([-jnp.inf, 3.0])))
      6.0
    """
    return jnp.sum(weighted(weight, x), axis=axis)


def counts_of(mask: Array | None, shape: Sequence[int]) -> Array:
    """The entries of an array of this shape that count, as booleans: all of them if there is no mask."""
    return jnp.broadcast_to(jnp.array(True) if mask is None else mask.astype(bool), shape)


def masked_sum(x: Array, mask: Array | None = None, axis: int | None = None) -> Array:
    """Sum of the entries that count. Without a mask all count."""
    return jnp.sum(x if mask is None else masked(counts_of(mask, x.shape), x), axis=axis)


def masked_mean(x: Array, mask: Array | None = None, axis: int | None = None) -> Array:
    """Mean of the entries that count, accumulated in float32 or wider; 0 where none counts. Without a mask all count.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import masked_mean
      >>> float(masked_mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])))
      2.0
    """
    counts, wide = counts_of(mask, x.shape), wide_dtype(x.dtype)
    total = jnp.sum(masked(counts, x).astype(wide), axis=axis)
    return (total / jnp.maximum(jnp.sum(counts, axis=axis), 1).astype(wide)).astype(x.dtype)


def finite_exponent(x: Array) -> Array:
    """`x`, limited so that exp(x) does not overflow its dtype.

    The gradient of an infinite probability ratio would be 0 · ∞ = NaN, even if a clip discards the ratio.
    """
    return jnp.minimum(x, math.log(float(jnp.finfo(x.dtype).max)) - 1)


def finite_log(x: Array) -> Array:
    """log x, where numbers from 0 up to the smallest normal number count as that number, with slope 0.

    The gradient of the logarithm of a probability ratio that has underflowed to 0 would be ∞ · 0 = NaN.
    """
    tiny = float(jnp.finfo(x.dtype).tiny)
    return jnp.log(jnp.where((x >= 0) & (x < tiny), tiny, x))
