"""Masks and weights: entries with weight 0 affect neither values nor gradients, even if they are NaN.

Arguments that a weight or a mask applies to are declared with `@operator(masks=...)`. For values that a kernel
computes, there are `weighted`, `weighted_sum` and `masked_mean`.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from rlx.core.tracing import in_slopes, traced_once
from rlx.core.types import Array, ArrayLike, wide_dtype


@traced_once
def if_used(weights: Array, x: Array) -> Array:
    """`x`, but 0 where the weight is 0 (or false) and `x` is infinite or NaN.

    `weights` has the shape of `x`, or of its leading axes.
    """
    return _where(_along(_used(weights), x) | jnp.isfinite(x), x)


@traced_once
def rows_if_used(weights: Array, x: Array) -> Array:
    """`x`, but 0 in rows whose weight is 0 and whose largest entry is not finite.

    Rows with some entries of minus infinity, for impossible actions, stay unchanged.
    """
    largest = jnp.max(x, axis=-1)
    used = _along(_used(weights), largest) | jnp.isfinite(largest)
    return _where(used[..., None], x)


@traced_once
def if_counted(mask: Array, x: Array) -> Array:
    """`x`, but 0 where the mask is false. If `x` has fewer axes, 0 where the mask is false along all the others."""
    counts = _used(mask)
    if x.ndim < counts.ndim:
        counts = jnp.any(counts, axis=tuple(range(x.ndim, counts.ndim)))
    return _where(_along(counts, x), x)


@traced_once
def slope_if_used(weights: Array, x: Array) -> Array:
    """`x`, without a gradient through its entries or rows whose weight is 0 (or false) and which are not finite."""
    return slopes_if_used(weights, [x])[0]


@traced_once
def slopes_if_used(weights: Array, arguments: list[Array]) -> list[Array]:
    """Like `slope_if_used`, for arguments that are multiplied: where one is not finite, none has a gradient."""
    used = _used(weights)
    rows = (jnp.all(jnp.isfinite(x), axis=tuple(range(used.ndim, x.ndim))) for x in arguments)
    passes = used | functools.reduce(jnp.logical_and, rows)
    return [slope_where(_along(passes, x), x) for x in arguments]


@functools.partial(traced_once, static_argnums=0)
def leave_out(
    hows: tuple[Callable[[Array, Array], Array], ...], weights: Any, arguments: list[Array | None]
) -> list[Array | None]:
    """Applies a weight to several arguments, each with one of the four functions above."""
    used = _used(weights)
    if slope_if_used in hows:  # then of all: arguments declared together are multiplied
        return [*slopes_if_used(used, [x for x in arguments if x is not None])]
    return [None if x is None else how(used, x) for how, x in zip(hows, arguments, strict=True)]


@jax.custom_jvp
def slope_where(used: Array, x: Array) -> Array:
    """`x`, without a gradient through its entries that are not used; the shape of `used` broadcasts to that of `x`."""
    return x


@slope_where.defjvp
def _slope_where_used(primals: tuple[Array, Array], tangents: tuple[Any, Array]) -> tuple[Array, Array]:
    return slope_where(*primals), _where(primals[0], tangents[1])  # second derivatives need the rule again


def weighted(weights: ArrayLike, x: ArrayLike) -> Array:
    """`weights * x`, but 0 with zero gradients where the weight is 0 and `x` is infinite or NaN.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import weighted
      >>> weighted(jnp.array([0.0, 2.0]), jnp.array([jnp.inf, 3.0])).tolist()
      [0.0, 6.0]
    """
    if isinstance(weights, (int, float)) and weights != 0:
        return jnp.multiply(weights, x)
    return _weighted(weights, x)


@traced_once
def _weighted(weights: ArrayLike, x: ArrayLike) -> Array:
    return _product(*_alike(weights, x))


def _alike(weights: ArrayLike, x: ArrayLike) -> tuple[Array, Array]:
    weights, x = jnp.broadcast_arrays(weights, x)
    dtype = jnp.result_type(weights, x)
    # A conversion would make an array of a Python number one of float32, to which half precision gives way.
    weights, x = (y if y.dtype == dtype else y.astype(dtype) for y in (weights, x))
    return weights, x


@jax.custom_jvp
def _product(weights: Array, x: Array) -> Array:
    # The shortest expression with this value. Its derivative with respect to a weight of 0 is wrong, hence the rule.
    return weights * _where(weights != 0, x)


def _counting(weights: Array, x: Array) -> Array:
    """`x`, but 0 where the weight is 0 and `x` is infinite or NaN, which is where 0 x is NaN."""
    return _where((weights != 0) | ~jnp.isnan(weights * x), x)


def _slope_of_product(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    return _product_in_slopes(*primals), _slope_of_weighted(primals, tangents)


def _slope_of_weighted(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> Array:
    (weights, x), (weights_dot, x_dot) = primals, tangents
    slopes = []
    if not isinstance(weights_dot, SymbolicZero):
        slopes.append(weights_dot * _counting(weights, x))
    if not isinstance(x_dot, SymbolicZero):
        slopes.append(weights * x_dot)
    return functools.reduce(jnp.add, slopes)


_product.defjvp(_slope_of_product, symbolic_zeros=True)
_product_in_slopes = in_slopes(_product, _slope_of_product)


def weighted_sum(weights: ArrayLike, x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Array:
    """Σ w x over `axis`, where entries with weight 0 add nothing, as in 0 log 0 = 0.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import weighted_sum
      >>> float(weighted_sum(jnp.array([0.0, 2.0]), jnp.array([-jnp.inf, 3.0])))
      6.0
    """
    return _weighted_sum(weights, x, axis)


@functools.partial(traced_once, static_argnums=2)
def _weighted_sum(weights: ArrayLike, x: ArrayLike, axis: int | tuple[int, ...] | None) -> Array:
    return jnp.sum(_product(*_alike(weights, x)), axis=axis)


def counts_of(mask: Array | None, shape: Sequence[int]) -> Array:
    """Which entries of an array of this shape count, as booleans: all of them if there is no mask."""
    return jnp.broadcast_to(jnp.array(True) if mask is None else mask.astype(bool), shape)


def masked_sum(x: Array, mask: Array | None = None, axis: int | None = None) -> Array:
    """Sum of the entries that count, in the dtype of `x`. Without a mask all count."""
    return jnp.sum(x if mask is None else if_counted(mask, x), axis=axis)


def masked_mean(x: Array, mask: Array | None = None, axis: int | None = None) -> Array:
    """Mean of the entries that count, in the dtype of `x`, accumulated in float32 or wider; 0 where none counts.

    Without a mask all count.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import masked_mean
      >>> float(masked_mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])))
      2.0
    """
    wide = wide_dtype(x.dtype)
    counts = counts_of(mask, x.shape)
    total, count = jnp.sum(_where(counts, x).astype(wide), axis=axis), jnp.sum(counts, axis=axis)
    return (total / jnp.maximum(count, 1).astype(wide)).astype(x.dtype)


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


def _used(weights: Array) -> Array:
    return weights if weights.dtype == bool else weights != 0


def _along(chosen: Array, x: Array) -> Array:
    """Adds axes of length one to `chosen`, which has the leading axes of `x`; a scalar is returned unchanged."""
    missing = x.ndim - chosen.ndim if chosen.ndim else 0
    return chosen.reshape(chosen.shape + (1,) * missing) if missing else chosen


def _where(chosen: Array, x: Array) -> Array:
    """`x` where chosen, and 0 elsewhere. Unlike `jnp.where`, this is not a jitted function, so it traces faster."""
    return lax.select(jnp.broadcast_to(chosen, x.shape), x, lax.full_like(x, 0))
