"""Running mean and variance, for example of observations, over any tree of arrays and several devices.

    state = running_statistics.init(observation)                 # of one item; nothing seen yet
    state = running_statistics.update(state, observations)       # leaves with any axes in front
    normalized = running_statistics.normalize(state, observations)

All items seen so far have the same weight; for moving averages see `rlx.create_ema`, for the targets of a linear layer
`rlx.popart`. Differences from one of the items are averaged, so that a mean much larger than the standard deviation
costs no precision; batches and the parts on several devices are merged as in "Algorithms for Computing the Sample
Variance: Analysis and Recommendations", Chan, Golub and LeVeque 1983.

Example:
  >>> import jax.numpy as jnp
  >>> from rlx import running_statistics
  >>> state = running_statistics.init({"position": jnp.zeros(2), "speed": 0.0})
  >>> batch = {"position": jnp.array([[1.0, 10.0], [3.0, 10.0]]), "speed": jnp.array([5.0, 9.0])}
  >>> state = running_statistics.update(state, batch)
  >>> state.mean["position"].tolist(), float(state.variance["speed"])
  ([2.0, 10.0], 4.0)
  >>> running_statistics.normalize(state, batch)["speed"].tolist()
  [-1.0, 1.0]
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.annotations import Real
from rlx.core.arguments import as_arrays, as_axis_name, require_parts
from rlx.core.arrays import AllSum, lhs_broadcast
from rlx.core.errors import ArgumentError, ShapeError
from rlx.core.leaves import require_real
from rlx.core.masking import masked, weighted
from rlx.core.types import Array, ArrayLike, AxisName, PyTree, wide_dtype

__all__ = ["RunningStatistics", "init", "merge", "normalize", "unnormalize", "update"]


class RunningStatistics(NamedTuple):
    """The number of items seen so far, with their mean and variance.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx import running_statistics
      >>> float(running_statistics.init(jnp.zeros(3)).number)
      0.0
    """

    number: Array  # [], how many items, or the sum of their weights
    mean: PyTree  # of each entry of an item; 0 where nothing was seen
    variance: PyTree  # of the population (1/N); 0 where nothing was seen


def init(item: PyTree) -> RunningStatistics:
    """The initial statistics, before any items.

    Args:
      item: one item, a tree of arrays or of objects with a shape and a dtype, which gives the shapes of the means.
        Statistics are in float32, or in float64 for float64 leaves.

    Returns:
      The state, all zeros.

    Example:
      >>> import jax
      >>> from rlx import running_statistics
      >>> running_statistics.init(jax.ShapeDtypeStruct([84, 84], "uint8")).mean.dtype
      dtype('float32')
    """
    require_real("item", item, "running_statistics.init")
    zeros = jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), wide_dtype(jnp.result_type(x))), item)
    return RunningStatistics(jnp.zeros(()), zeros, jax.tree.map(jnp.zeros_like, zeros))


def update(
    state: RunningStatistics, batch: PyTree, weights: ArrayLike | None = None, axis_name: AxisName = None
) -> RunningStatistics:
    """Adds a batch of items to the statistics.

    μ ← μ + s δ and σ² ← σ² + s (σ_B² - σ²) + s (1 - s) δ², with s = m / (n + m) for the m items of the batch and the n
    before it, δ = μ_B - μ. Gradients are stopped through the statistics.

    Args:
      state: the previous statistics.
      batch: a tree like that of `init`, whose leaves have the same additional leading axes; none for a single item.
        After about 2²⁴ updates, the number of float32 statistics grows no further, and new items hardly change them.
      weights: numbers ≥ 0 or a mask, of the shape of these axes: how often each item counts. Items of weight 0 are
        ignored, even if they contain NaN. By default each counts once.
      axis_name: name, or names, of axes of `jax.pmap`, `jax.shard_map` or `jax.vmap` over which the items are also
        split, or None. The state is the same on all of them, before and after.

    Returns:
      The updated statistics.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx import running_statistics
      >>> state = running_statistics.init(0.0)
      >>> for x in (jnp.array([1.0, 2.0, jnp.nan]), jnp.array([6.0, jnp.inf, jnp.nan])):
      ...     state = running_statistics.update(state, x, weights=jnp.isfinite(x))
      >>> float(state.number), float(state.mean)
      (3.0, 3.0)
    """
    state, shape = _arrays_and_axes("update", "batch", state, batch)
    as_axis_name("axis_name", axis_name, "running_statistics.update")
    if weights is not None:
        annotation = Real[Array, " ".join(map(str, shape)), "in [0, inf)"]
        (weights,) = as_arrays("running_statistics.update", weights=(weights, annotation))
        weights = weights.astype(state.number.dtype)

    if 0 in shape:
        return state

    all_sum = AllSum(axis_name)
    if weights is None:
        own, chosen, is_any = jnp.asarray(math.prod(shape), state.number.dtype), 0, jnp.ones((), state.number.dtype)
    else:
        own, chosen, is_any = (
            jnp.sum(weights),
            jnp.argmax(weights.ravel() > 0),
            jnp.any(weights > 0).astype(weights.dtype),
        )
    count, devices = all_sum(own), jnp.maximum(all_sum(is_any), 1)

    def one_of(x: Array, item: tuple[int, ...]) -> Array:
        """The mean over devices of one unmasked item each. Unlike the running mean, it is close to the other items."""
        one = x.reshape(math.prod(shape), *item)[chosen]
        return all_sum(is_any.astype(x.dtype) * one, axis=()) / devices.astype(x.dtype)

    def average(x: Array) -> Array:
        # The square of an item without weight may be infinite.
        weighed = x if weights is None else weighted(lhs_broadcast.kernel(weights, x).astype(x.dtype), x)
        return all_sum(weighed, axis=tuple(range(len(shape)))) / jnp.where(count > 0, count, 1).astype(x.dtype)

    def moments(mean: Array, x: ArrayLike) -> tuple[Array, Array]:
        x = jnp.asarray(x, mean.dtype)
        x = x if weights is None else masked(weights != 0, x)
        one = one_of(x, mean.shape)
        off = x - _below(one, x)
        first = average(off)
        off = off - _below(first, x)
        rest = average(off)  # corrects the rounding error of the sum
        return (one - mean) + (first + rest), jnp.maximum(average(jnp.square(off)) - jnp.square(rest), 0)

    means, structure = jax.tree.flatten(state.mean)
    found = list(map(moments, means, structure.flatten_up_to(batch)))
    deltas, variances = (structure.unflatten([pair[i] for pair in found]) for i in (0, 1))
    return jax.lax.stop_gradient(_together(state, count, deltas, variances))


def merge(state: RunningStatistics, other: RunningStatistics) -> RunningStatistics:
    """Merges the statistics of two sets of items.

    Args:
      state: statistics of some items.
      other: statistics of other items, of the same shapes.

    Returns:
      The statistics of all items together.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx import running_statistics
      >>> nothing = running_statistics.init(0.0)
      >>> one = running_statistics.update(nothing, jnp.array([1.0]))
      >>> both = running_statistics.merge(one, running_statistics.update(nothing, jnp.array([5.0])))
      >>> float(both.mean), float(both.variance)
      (3.0, 4.0)
    """
    name = "running_statistics.merge"
    require_parts("other", other, RunningStatistics._fields, "an `rlx.running_statistics.RunningStatistics`", name)
    state, front = _arrays_and_axes("merge", "other", state, other.mean)
    if front:
        raise ShapeError("running_statistics.merge: argument `other` has axes in front that `state` has not.")
    other = _as_floats(other)
    deltas = jax.tree.map(jnp.subtract, other.mean, state.mean)
    return _together(state, other.number, deltas, other.variance)


def normalize(
    state: RunningStatistics, x: PyTree, epsilon: ArrayLike = 1e-8, max_abs: ArrayLike | None = None
) -> PyTree:
    """Normalises items: (x - μ) / √(σ² + ε), within ± max_abs.

    Entries that have not varied so far (σ² = 0) are divided by 1, so that a constant input that changes later does not
    blow up.

    Args:
      state: statistics.
      x: a tree like that of `init`, whose leaves may have additional leading axes.
      epsilon: ε ≥ 0.
      max_abs: the maximum absolute value, such as 10, or None for no limit.

    Returns:
      The tree of floats; a leaf of floats keeps its dtype.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx import running_statistics
      >>> state = running_statistics.update(running_statistics.init(0.0), jnp.array([1.0, 5.0]))
      >>> running_statistics.normalize(state, jnp.array([1.0, 99.0]), max_abs=10.0).tolist()
      [-1.0, 10.0]
    """
    state, _ = _arrays_and_axes("normalize", "x", state, x)
    settings = {"epsilon": (epsilon, Real[Array, "", "in [0, inf)"])}
    if max_abs is not None:
        settings["max_abs"] = max_abs, Real[Array, "", "in (0, inf]"]
    as_arrays("running_statistics.normalize", **settings)

    def normalized(mean: Array, variance: Array, leaf: Any) -> Array:
        x = jnp.asarray(leaf, mean.dtype)
        z = (x - _below(mean, x)) / _below(_scale(variance, epsilon), x)
        if max_abs is not None:
            limit = jnp.asarray(max_abs, z.dtype)
            z = jnp.clip(z, -limit, limit)
        dtype = jnp.result_type(leaf)
        return z.astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else z

    return jax.tree.map(normalized, state.mean, state.variance, x)


def unnormalize(state: RunningStatistics, x: PyTree, epsilon: ArrayLike = 1e-8) -> PyTree:
    """The inverse of `normalize`, except for its limit: x √(σ² + ε) + μ.

    Args:
      state: statistics.
      x: a tree like that of `init`, of floats, whose leaves may have additional leading axes.
      epsilon: the ε ≥ 0 of `normalize`.

    Returns:
      The tree of floats, which keep their dtypes.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx import running_statistics
      >>> state = running_statistics.update(running_statistics.init(0.0), jnp.array([1.0, 5.0]))
      >>> running_statistics.unnormalize(state, jnp.array([-1.0, 2.0])).tolist()
      [1.0, 7.0]
    """
    state, _ = _arrays_and_axes("unnormalize", "x", state, x)
    as_arrays("running_statistics.unnormalize", epsilon=(epsilon, Real[Array, "", "in [0, inf)"]))

    def unnormalized(mean: Array, variance: Array, leaf: Any) -> Array:
        z = jnp.asarray(leaf, mean.dtype)
        x = z * _below(_scale(variance, epsilon), z) + _below(mean, z)
        dtype = jnp.result_type(leaf)
        return x.astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else x

    return jax.tree.map(unnormalized, state.mean, state.variance, x)


def _together(state: RunningStatistics, count: Array, deltas: PyTree, variances: PyTree) -> RunningStatistics:
    """The state with `count` more items, whose means differ by `deltas` from those of the state."""
    everything = state.number + count
    # For the first items exactly 1: on a GPU x / x may not be, and then their mean would count as variance.
    share = jnp.where(
        state.number > 0, count / jnp.where(everything > 0, everything, 1), (count > 0).astype(count.dtype)
    )

    def mean(old: Array, delta: Array) -> Array:
        return old + share.astype(old.dtype) * delta

    def variance(old: Array, delta: Array, new: Array) -> Array:
        s = share.astype(old.dtype)
        return old + s * (new - old) + weighted(s * (1 - s), jnp.square(delta))  # the first square may be infinite

    means = jax.tree.map(mean, state.mean, deltas)
    return RunningStatistics(everything, means, jax.tree.map(variance, state.variance, deltas, variances))


def _below(statistic: Array, x: Any) -> Array:
    """The statistic of an item [...], with as many leading axes as the items `x` [*E, ...]."""
    return statistic.reshape((1,) * (jnp.ndim(x) - statistic.ndim) + statistic.shape)


def _scale(variance: Array, epsilon: Any) -> Array:
    return jnp.sqrt(jnp.where(variance == 0, 1, variance + jnp.asarray(epsilon, variance.dtype)))


def _arrays_and_axes(
    function: str, argument: str, state: RunningStatistics, tree: PyTree
) -> tuple[RunningStatistics, tuple[int, ...]]:
    """The state as arrays of floats, and the axes in front of those of the state, the same in all leaves of a tree."""
    name = f"running_statistics.{function}"
    require_parts("state", state, RunningStatistics._fields, "an `rlx.running_statistics.RunningStatistics`", name)
    require_real(argument, tree, name)
    expected, given = jax.tree.structure(state.mean), jax.tree.structure(tree)
    if expected != given:
        raise ArgumentError(
            f"running_statistics.{function}: argument `{argument}` is the tree {given}, expected {expected}, that of "
            "the item that `running_statistics.init` was given."
        )
    leading: tuple[int, ...] | None = None
    leaves, means = jax.tree_util.tree_flatten_with_path(tree)[0], jax.tree.leaves(state.mean)
    for (path, leaf), mean in zip(leaves, means, strict=True):
        shape, own = jnp.shape(leaf), jnp.shape(mean)
        front = shape[: len(shape) - len(own)]
        leading = front if leading is None else leading
        if shape != (*front, *own) or front != leading:
            wanted = [*leading, *own] if shape == (*front, *own) else ["...", *own]
            raise ShapeError(
                f"running_statistics.{function}: argument `{argument}`{jax.tree_util.keystr(path)} has shape "
                f"{list(shape)}, expected shape [{', '.join(map(str, wanted))}]."
            )
    return _as_floats(state), leading or ()


def _as_floats(state: RunningStatistics) -> RunningStatistics:
    """The state as arrays of floats, because one that was loaded may hold numbers, also whole ones."""

    def as_float(x: ArrayLike) -> Array:
        array = jnp.asarray(x)
        return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(wide_dtype(array.dtype))

    return RunningStatistics(*jax.tree.map(as_float, tuple(state)))
