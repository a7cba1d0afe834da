"""Masks and weights: what has no weight reaches neither values nor gradients, whatever it holds (NaN too).

Arguments that a weight or a mask leaves out are declared (`@operator(masks=...)`); what a kernel computes and then
weighs goes through `weighted`, `weighted_sum` and `masked_mean`.
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

_SHORT_ROW = 32  # up to so many entries of a row are added up one by one


@traced_once
def if_used(weights: Array, x: Array) -> Array:
    """`x`, but 0 where what it is weighed with is 0 (or false) and `x` is infinite or NaN.

    `weights` has the shape of `x`, or of its leading axes.
    """
    return _where(_along(_used(weights), x) | jnp.isfinite(x), x)


@traced_once
def rows_if_used(weights: Array, x: Array) -> Array:
    """The rows of `x`, but zeros for a row that is weighed with 0 and whose largest entry is no finite number.

    Minus infinity beside numbers stays: an action that is impossible is as good as not there.
    """
    largest = jnp.max(x, axis=-1)
    used = _along(_used(weights), largest) | jnp.isfinite(largest)
    return _where(used[..., None], x)


@traced_once
def if_counted(mask: Array, x: Array) -> Array:
    """`x`, but 0 where the mask is false, whatever `x` holds; of fewer axes than the mask, where nothing counts."""
    counts = _used(mask)
    if x.ndim < counts.ndim:
        counts = jnp.any(counts, axis=tuple(range(x.ndim, counts.ndim)))
    return _where(_along(counts, x), x)


@traced_once
def slope_if_used(weights: Array, x: Array) -> Array:
    """`x` as it is; no gradient flows through its entries or rows that are weighed with 0 (or false) and not finite."""
    return slopes_if_used(weights, [x])[0]


@traced_once
def slopes_if_used(weights: Array, arguments: list[Array]) -> list[Array]:
    """The same of arguments that are multiplied with each other: none has a slope where one of them is not finite."""
    used = _used(weights)
    rows = (jnp.all(jnp.isfinite(x), axis=tuple(range(used.ndim, x.ndim))) for x in arguments)
    passes = used | functools.reduce(jnp.logical_and, rows)
    return [_with_slope_of(x, _along(passes, x)) for x in arguments]


@functools.partial(traced_once, static_argnums=0)
def leave_out(
    hows: tuple[Callable[[Array, Array], Array], ...], weights: Any, arguments: list[Array | None]
) -> list[Array | None]:
    """What one weight leaves out of several arguments, each in its way: one of the four above."""
    used = _used(weights)
    if slope_if_used in hows:  # of all: those declared together are multiplied with each other
        return [*slopes_if_used(used, [x for x in arguments if x is not None])]
    return [None if x is None else how(used, x) for how, x in zip(hows, arguments, strict=True)]


@jax.custom_jvp
def _with_slope_of(x: Array, used: Array) -> Array:
    return x


@_with_slope_of.defjvp
def _slope_where_used(primals: tuple[Array, Array], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    return primals[0], _where(primals[1], tangents[0])


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
    return weights.astype(dtype), x.astype(dtype)


@jax.custom_jvp
def _product(weights: Array, x: Array) -> Array:
    # The shortest expression with this value; it has no slope in a weight of 0, for which there is the rule.
    return weights * _where(weights != 0, x)


def _counting(weights: Array, x: Array) -> Array:
    """`x`, but 0 where it is infinite or NaN and weighed with 0, which is where 0 x is NaN."""
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


@jax.custom_jvp
def _row_sum(weights: Array, x: Array) -> Array:
    return _added_up(weights, _where(weights != 0, x))


def _added_up(weights: Array, x: Array) -> Array:
    # A sum of XLA's is fast on a CPU where only a product comes before it. With the check between, it would write the
    # checked numbers out: added up one by one, nothing is written, and the rows are what is vectorised.
    wide = wide_dtype(x.dtype)
    columns = (lax.split(part, (1,) * x.shape[-1], axis=x.ndim - 1) for part in (weights, x))
    products = (lax.convert_element_type(product, wide) for product in map(lax.mul, *columns))
    return lax.squeeze(functools.reduce(lax.add, products), [x.ndim - 1]).astype(x.dtype)


def _slope_of_row_sum(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    # Another expression than `_row_sum`, whose plain derivative is right: the slope computes what counts anyway.
    weights, x = primals
    return _added_up(weights, _counting(weights, x)), jnp.sum(_slope_of_weighted(primals, tangents), axis=-1)


_row_sum.defjvp(_slope_of_row_sum, symbolic_zeros=True)


def weighted_sum(weights: ArrayLike, x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Array:
    """Σ w x over `axis`, where what is weighed with 0 adds nothing, as in 0 log 0 = 0.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.masking import weighted_sum
      >>> float(weighted_sum(jnp.array([0.0, 2.0]), jnp.array([-jnp.inf, 3.0])))
      6.0
    """
    return _weighted_sum(weights, x, axis)


@functools.partial(traced_once, static_argnums=2)
def _weighted_sum(weights: ArrayLike, x: ArrayLike, axis: int | tuple[int, ...] | None) -> Array:
    weights, x = _alike(weights, x)
    along_rows = axis == -1 or (axis is None and x.ndim == 1)
    if along_rows and _is_short(x.shape[-1]) and jnp.issubdtype(x.dtype, jnp.floating):
        return _row_sum(weights, x)
    return jnp.sum(_product(weights, x), axis=axis)


def _is_short(size: Any) -> bool:
    return isinstance(size, int) and 0 < size <= _SHORT_ROW  # a size with a name, `jax.export`'s, is of any length


def counts_of(mask: Array | None, shape: Sequence[int]) -> Array:
    """Which entries of an array of that shape count, as booleans. Without a mask all do."""
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
    """`x`, held below the point where exp(x) overflows its dtype.

    An infinite probability ratio that a clip then discards would still put 0 · ∞ = NaN into the gradient.
    """
    return jnp.minimum(x, math.log(float(jnp.finfo(x.dtype).max)) - 1)


def _used(weights: Array) -> Array:
    return weights if weights.dtype == bool else weights != 0


def _along(chosen: Array, x: Array) -> Array:
    """`chosen`, which has the leading axes of `x`, with axes of length one for the others; a scalar as it is."""
    missing = x.ndim - chosen.ndim if chosen.ndim else 0
    return chosen.reshape(chosen.shape + (1,) * missing) if missing else chosen


def _where(chosen: Array, x: Array) -> Array:
    """`x` where chosen, and 0 elsewhere; traced faster than `jnp.where`, which is a function of its own."""
    return lax.select(jnp.broadcast_to(chosen, x.shape), x, lax.full_like(x, 0))
