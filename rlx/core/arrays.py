"""Small array helpers: indexing, broadcasting, masking, gradient control."""

from __future__ import annotations

import functools
import math
import operator as operators
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.annotations import Int, Mask, Num, Real
from rlx.core.arguments import as_axis_name, is_floating, require, require_broadcast
from rlx.core.errors import ShapeError
from rlx.core.masking import masked, weighted, weighted_sum
from rlx.core.operator import operator
from rlx.core.shapes import broadcast
from rlx.core.tracing import traced_once
from rlx.core.types import Array, ArrayLike, AxisName, in_32_bits

_FEW = 8  # entries: from about a dozen on, a gather is faster


@operator()
def one_hot(
    indices: Real[Array, "*E"], num_classes: Annotated[int, "a number of classes"], dtype: Any = jnp.float32
) -> Num[Array, "*E {num_classes}"]:
    """Vectors with a one at each index: one_hot(i)_k = 1 if k = i else 0.

    Args:
      indices: an index outside [0, num_classes) gives a row of zeros.
      num_classes: length of the new last axis.
      dtype: dtype of the result.

    Returns:
      The vectors, along a new last axis.

    Example:
      >>> import rlx
      >>> rlx.one_hot(1, 3).tolist()
      [0.0, 1.0, 0.0]
    """
    require(num_classes >= 0, "num_classes", num_classes, "a number of classes")
    require(_is_dtype(dtype), "dtype", dtype, "a dtype")
    return _one_hot(indices, num_classes, dtype)


def _is_dtype(dtype: Any) -> bool:
    try:
        return isinstance(hash(dtype), int) and any(jnp.issubdtype(dtype, kind) for kind in (jnp.number, jnp.bool_))
    except TypeError:
        return False


@functools.partial(traced_once, static_argnums=(1, 2))
def _one_hot(indices: Array, num_classes: int, dtype: Any) -> Array:
    indices = in_32_bits(indices)
    classes = np.arange(num_classes).astype(indices.dtype).reshape((1,) * indices.ndim + (num_classes,))
    return (indices[..., None] == classes).astype(dtype)


@operator()
def batched_index(values: Num[Array, "*E D"], indices: Int[Array, "*E"], keepdims: bool = False) -> Num[Array, "*E"]:
    """Picks one entry along the last axis of `values` for each position: out[...] = values[..., indices[...]].

    Args:
      values: the array to pick from.
      indices: indices along the last axis; negative ones count from the end, and those past either end give NaN (from
        integers, the fill value of `jnp.take`: the least signed or the greatest unsigned one; from booleans, true).
      keepdims: keep the last axis, with length 1.

    Returns:
      The entries, without the last axis, or with one of length 1 if `keepdims`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.batched_index(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1, 0])).tolist()
      [2.0, 3.0]
    """
    picked = pick(values, indices)
    return picked[..., None] if keepdims else picked


@operator()
def lhs_broadcast(source: Num[Array, "*S"], target: Num[Array, "*E"]) -> Num[Array, "*E"]:
    """Appends axes of length one to `source` until it broadcasts against `target` from the left.

    Args:
      source: its lengths equal those of the leading axes of `target`, or are 1.
      target: the array to broadcast against.

    Returns:
      `source`, reshaped to the rank of `target`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.lhs_broadcast(jnp.ones([3]), jnp.ones([3, 2])).shape
      (3, 1)
    """
    return _append_axes("source", source, target)


@operator()
def replace_masked(
    data: Num[Array, "*E"], replacement: Num[Array, "*R"] | None, mask: Mask[Array, "*M"]
) -> Num[Array, "*E"]:
    """Replaces entries of `data` where the mask is true: out = where(mask, replacement, data).

    Args:
      data: the values to keep where the mask is false.
      replacement: entries of the shape of `data`, or None for zeros.
      mask: its shape is a prefix of that of `data`.

    Returns:
      An array like `data`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.replace_masked(jnp.array([1.0, 2.0]), None, jnp.array([True, False])).tolist()
      [0.0, 2.0]
    """
    if replacement is not None and broadcast(replacement.shape, data.shape) != data.shape:
        raise ShapeError(
            f"argument `replacement` has shape {list(replacement.shape)}, expected shape {list(data.shape)}, that of "
            "`data`."
        )
    chosen = _append_axes("mask", mask, data)
    return jnp.where(chosen, jnp.zeros_like(data) if replacement is None else replacement, data)


def pick(values: Array, indices: Array) -> Array:
    """`values[..., indices[...]]`, for arguments that have been checked; past either end there is NaN."""
    count = values.shape[-1]
    if not is_floating(values.dtype) or not 0 < count <= _FEW:
        return jnp.take_along_axis(values, indices[..., None], axis=-1, mode="fill")[..., 0]
    return _picked(values, jnp.where(indices < 0, indices + count, indices))


@jax.custom_jvp
def _picked(values: Array, indices: Array) -> Array:
    """One of few entries, by a choice for each: `jax.vmap` over axis 1 would transpose all for a gather."""
    last, count = values.ndim - 1, values.shape[-1]
    columns = jax.lax.split(values, (1,) * count, axis=last)
    columns = [jax.lax.reduce_sum(column, (last,)) for column in columns]  # jnp.squeeze would transpose it too
    picked = columns[0]
    for i, column in enumerate(columns):
        picked = jax.lax.select(indices == i, column, picked)
    is_one = ((indices >= 0) & (indices < count)).astype(values.dtype)
    return picked * is_one / is_one  # 0 / 0 past either end


@_picked.defjvp
def _picked_tangent(primals: tuple[Array, Array], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    values, indices = primals
    is_it = indices[..., None] == jax.lax.broadcasted_iota(indices.dtype, values.shape, values.ndim - 1)
    return _picked(values, indices), jnp.sum(jnp.where(is_it, tangents[0], 0), axis=-1)


def expected_value(probs: Array, x: Array) -> Array:
    """Σ_a π(a) x_a along the last axis of arrays of one shape, where what has probability 0 adds nothing.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.arrays import expected_value
      >>> float(expected_value(jnp.array([0.0, 1.0]), jnp.array([-jnp.inf, 3.0])))
      3.0
    """
    few = isinstance(x.shape[-1], int) and 0 < x.shape[-1] <= 20  # not a dimension of `jax.export`
    return _expected(jnp.array(probs), jnp.array(x)) if few else weighted_sum(probs, x, -1)  # as in `weighted`


@jax.custom_jvp
@traced_once
def _expected(probs: Array, x: Array) -> Array:
    """Adds up few terms one by one. On a CPU, XLA would write those of `weighted_sum` to memory before it adds them."""
    columns = (jax.lax.split(y, (1,) * y.shape[-1], axis=y.ndim - 1) for y in (probs, x))
    terms = (prob * jnp.where(prob != 0, value, prob) for prob, value in zip(*columns, strict=True))
    return jnp.sum(functools.reduce(jnp.add, terms), axis=-1)


@_expected.defjvp
def _expected_tangent(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (probs, x), (probs_dot, x_dot) = primals, tangents
    return _expected(probs, x), jnp.sum(probs_dot * masked(probs, x) + probs * x_dot, axis=-1)


def at_indices(table: Array, indices: Array) -> Array:
    """`table[indices]`, divided between devices as the indices are."""
    if not _on_explicit_axes():
        return table[indices]
    return table.at[indices].get(out_sharding=jax.P(*_parts_of(indices), *_parts_of(table)[1:]))


def added_at(table: Array, indices: Array, x: Array) -> Array:
    """`table` with `x` added at some indices, divided between devices as before."""
    if not _on_explicit_axes():
        return table.at[indices].add(x)
    return table.at[indices].add(x, out_sharding=jax.P(*_parts_of(table)))


def _on_explicit_axes() -> bool:
    """True if types say how arrays are divided, and JAX asks how to divide a result where this is not clear."""
    return bool(jax.sharding.get_abstract_mesh().explicit_axes)


def _parts_of(x: Array) -> tuple[Any, ...]:
    return tuple(jax.typeof(x).sharding.spec)


def pick_action(of_actions: Array, actions: Array, of_none: float) -> Array:
    """Like `pick`, of probabilities or their logarithms, but `of_none` for what is no action, as negative numbers."""
    is_one = (actions >= 0) & (actions < of_actions.shape[-1])
    return jnp.where(is_one, pick(of_actions, jnp.where(is_one, actions, 0)), of_none)


def half_square(x: Array) -> Array:
    """½ x²."""
    return 0.5 * jnp.square(x)


def unit_of(x: Array, axis: int | None = None) -> Array:
    """The largest size of an entry, a unit for lengths, in which squares of entries neither overflow nor underflow.

    It keeps the axis along which it is taken, if there is one. Its reciprocal, by which XLA multiplies, is finite too.
    """
    tiny = float(jnp.finfo(x.dtype).tiny)
    sizes = jnp.abs(jax.lax.stop_gradient(x))
    return jnp.clip(jnp.max(sizes, axis=axis, keepdims=axis is not None, initial=0), tiny, 0.5 / tiny)


@traced_once
def scale_down(x: Array, temperature: ArrayLike) -> Array:
    """`x / temperature`. Infinite entries stay unchanged, and add nothing to the gradient of the temperature."""
    finite = jnp.isfinite(x)
    return jnp.where(finite, jnp.where(finite, x, 0) / temperature, x)


def scale_gaps_down(x: Array, temperature: Array, axis: int | None, axis_name: Any = None) -> tuple[Array, Array]:
    """(`(x - largest) / temperature`, largest), with the largest finite entry along an axis, or of all if it is None.

    A soft maximum, temperature · log Σ exp(x / temperature), is the largest entry plus that of the gaps. Its slope in
    the temperature would be lost to rounding if `x / temperature` were large. The second result lacks the axis. It is 0
    if the temperature varies along the axis, because the soft maximum of the gaps is another one then.
    """
    shape = (1,) * (x.ndim - temperature.ndim) + temperature.shape
    if math.prod(shape if axis is None else shape[axis : axis % x.ndim + 1]) != 1:
        return scale_down(x, temperature), jnp.zeros((), x.dtype)
    y = jax.lax.stop_gradient(x)
    largest = jnp.max(jnp.where(jnp.isfinite(y), y, -jnp.inf), axis=axis, keepdims=axis is not None, initial=-jnp.inf)
    if axis_name is not None:
        largest = jax.lax.pmax(largest, axis_name)
    largest = jnp.where(jnp.isfinite(largest), largest, 0)
    return scale_down(x - largest, temperature), jnp.squeeze(largest, () if axis is None else axis)


def scale_up(x: Array, factor: Array) -> Array:
    """`x * factor`. Infinite entries add nothing to the gradient of the factor."""
    finite = jnp.isfinite(x)
    return jnp.where(finite, jnp.where(finite, x, 0) * factor, x * jax.lax.stop_gradient(factor))


def add_up(**terms: Array) -> Array:
    """The sum of arrays that broadcast. Each is passed by the name of the argument that determines its shape."""
    require_broadcast(**terms)
    return functools.reduce(operators.add, terms.values())


def weighted_term(argument: str, x: Array, weight_argument: str, weight: ArrayLike) -> dict[str, Array]:
    """`weight * x` as a term of `add_up`, by the name of the argument that determines its shape."""
    require_broadcast(**{argument: x, weight_argument: weight})
    return {weight_argument if np.ndim(weight) else argument: weighted(weight, x)}


def _append_axes(argument: str, source: Array, target: Array) -> Array:
    shape = source.shape + (1,) * (target.ndim - source.ndim)
    if broadcast(shape, target.shape) != target.shape:
        raise ShapeError(
            f"argument `{argument}` has shape {list(source.shape)}, expected a {argument} shape "
            f"whose lengths are those of the leading axes of {list(target.shape)}, or 1."
        )
    return source.reshape(shape)


class AllSum:
    """Sums over an array and, with `axis_name`, over the devices (or the mapped axis) of that name too.

    Args:
      axis_name: name, or names, of axes of `jax.pmap`, `jax.vmap` or `jax.shard_map`, or None to sum locally.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.AllSum()(jnp.arange(4.0)))
      6.0
    """

    def __init__(self, axis_name: AxisName = None):
        self._axis_name = axis_name

    def __call__(self, x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Array:
        """Sums `x` over `axis` (all axes by default), then over the named axes."""
        as_axis_name("axis_name", self._axis_name, "AllSum")
        total = jnp.sum(x, axis=axis)
        return total if self._axis_name is None else jax.lax.psum(total, axis_name=self._axis_name)
