"""Return scaling: the percentile range of returns (DreamerV3), and rewards divided by the deviation of returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import require_ascending, require_parts
from rlx.core.errors import ShapeError
from rlx.core.masking import counts_of, weighted
from rlx.core.operator import operator
from rlx.core.sampling import as_shape
from rlx.core.types import Array, AxisName, settings_in, wide_dtype
from rlx.running_statistics import RunningStatistics, init, normalize, update


@operator(masks={"mask": ("returns",)}, widen=False)
def percentile_range(
    range_tm1: Float[Array | float, ""],
    returns: Real[Array, "*E"],
    decay: Real[Array | float, "", "in [0, 1]"] = 0.99,
    low: Real[Array | float, "", "in [0, 100]"] = 5.0,
    high: Real[Array | float, "", "in [0, 100]"] = 95.0,
    *,
    mask: Mask[Array, "", "*E"] | None = None,
    axis_name: AxisName = None,
) -> Float[Array, ""]:
    """Moving average of the range of returns between two percentiles: R ← η R + (1 - η) (Per(G, 95) - Per(G, 5)).

    Divide advantages or returns by max(1, R): large returns are scaled down to about one, independently of the task's
    rewards, and small ones, which may be noise, are not scaled up. A few outliers have no effect. From "Mastering
    Diverse Domains through World Models", Hafner et al. 2023 (https://arxiv.org/abs/2301.04104), DreamerV3.

    Args:
      range_tm1: the previous R; 0 initially. An array keeps its dtype, which should not be half precision.
      returns: G, all returns of a batch; gradients are stopped.
      decay: η.
      low: the lower percentile, linearly interpolated between returns.
      high: the upper percentile, at least `low`.
      mask: false for entries to ignore, even if they contain NaN. By default all count.
      axis_name: name, or names, of axes of `jax.pmap`, `jax.shard_map` or `jax.vmap` over which the returns are also
        split, or None.

    Returns:
      The updated R; unchanged if no return counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> returns = jnp.arange(101.0)
      >>> scale = rlx.percentile_range(0.0, returns, decay=0.5)
      >>> float(scale), float(90 / jnp.maximum(1, scale))
      (45.0, 2.0)
    """
    require_ascending(strictly=False, low=low, high=high)
    counts = counts_of(mask, returns.shape)
    if axis_name is not None:
        returns, counts = _of_all(returns, axis_name), _of_all(counts.astype(jnp.int32), axis_name) != 0
    range_tm1 = jnp.asarray(range_tm1)
    wide = wide_dtype(returns.dtype, range_tm1.dtype)
    # A Python number begins an average in float32: in half precision it stops far from the ranges that it averages.
    dtype = wide if range_tm1.weak_type else range_tm1.dtype
    if returns.size == 0:
        return range_tm1.astype(dtype)
    number = jnp.sum(counts, dtype=jnp.int32)
    ascending = jnp.sort(jnp.where(counts, returns, jnp.inf).ravel())
    spread = _percentile(ascending, number, high) - _percentile(ascending, number, low)
    spread = jnp.where(jnp.isnan(ascending[-1]), jnp.nan, spread)  # NaN is sorted last, where no percentile may be
    (rate,) = settings_in(wide, decay)
    moved = rate * range_tm1.astype(wide) + (1 - rate) * spread.astype(wide)
    return jax.lax.stop_gradient(jnp.where(number > 0, moved, range_tm1.astype(wide)).astype(dtype))


def _of_all(x: Array, axis_name: Any) -> Array:
    """The data of all devices, gathered by a sum, since `jax.shard_map` knows that sums are equal everywhere."""
    shards = jnp.zeros((jax.lax.psum(1, axis_name), *x.shape), x.dtype)
    return jax.lax.psum(shards.at[jax.lax.axis_index(axis_name)].set(x), axis_name)


def _percentile(ascending: Array, number: Array, percent: Array | float) -> Array:
    """The percentile of the first `number` entries."""
    last = jnp.maximum(number - 1, 0)
    wide = wide_dtype(ascending.dtype)
    position = jnp.asarray(percent, wide) / 100 * last.astype(wide)
    below = jnp.floor(position).astype(jnp.int32)
    share = (position - jnp.floor(position)).astype(ascending.dtype)
    low, high = ascending[below], ascending[jnp.minimum(below + 1, last)]
    return low + weighted(share, high - low)


class RewardScale(NamedTuple):
    """State of `rlx.scale_rewards`.

    Example:
      >>> import rlx
      >>> rlx.initial_reward_scale([3]).discounted.tolist()
      [0.0, 0.0, 0.0]
    """

    discounted: Array  # [*E], γ_t R_t of each environment, which the next return adds to its reward
    statistics: RunningStatistics  # of the returns of all environments at all steps


def initial_reward_scale(shape: Sequence[int] | int = ()) -> RewardScale:
    """The initial state of `rlx.scale_rewards`.

    Args:
      shape: [*E], the shape of the batch of environments stepped together; may be a single integer.

    Returns:
      The state.

    Example:
      >>> import rlx
      >>> float(rlx.initial_reward_scale([128]).statistics.number)
      0.0
    """
    return RewardScale(jnp.zeros(as_shape("shape", shape, "initial_reward_scale")), init(0.0))


@operator(masks={"mask": ("r_t", "discount_t")}, widen=False)
def scale_rewards(
    state: RewardScale,
    r_t: Real[Array, "*E"],
    discount_t: Real[Array, "", "*E", "in [0, 1] if scalar"],
    max_abs: Real[Array | float, "", "in (0, inf]"] = 10.0,
    epsilon: Real[Array | float, "", "in [0, inf)"] = 1e-8,
    *,
    mask: Mask[Array, "", "*E"] | None = None,
    axis_name: AxisName = None,
) -> tuple[Array, RewardScale]:
    """Divides the rewards of one step by the standard deviation of the discounted returns so far.

    R_t = r_t + γ_tm1 R_tm1 for each environment, and r_t / √(Var(R) + ε) within ± max_abs, where the variance is over
    all environments and steps, including this one. Rewards are not centred, so they keep their signs. These returns
    sum past rewards, not future ones. From "Implementation Matters in Deep Policy Gradients", Engstrom et al. 2020
    (https://arxiv.org/abs/2005.12729), section 3, and the baselines that came with PPO; Gymnasium's NormalizeReward.
    Rewards are not divided while the variance is 0.

    Args:
      state: the previous state, see `rlx.initial_reward_scale`.
      r_t: rewards at time t, one per environment.
      discount_t: γ_t, discounts at time t; 0 where the episode terminated or was truncated with this reward.
      max_abs: the maximum absolute value of a result; infinity for no limit.
      epsilon: ε ≥ 0.
      mask: false for environments that took no step, even if they contain NaN: their return is unchanged and their
        result is 0.
      axis_name: name, or names, of axes of `jax.pmap`, `jax.shard_map` or `jax.vmap` over which the environments are
        also split, or None. The statistics are shared by all of them.

    Returns:
      (scaled rewards [*E], new state), with gradients stopped.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.initial_reward_scale([2])
      >>> r_t, state = rlx.scale_rewards(state, jnp.array([0.0, 8.0]), jnp.array([0.5, 0.5]))
      >>> r_t.tolist(), state.discounted.tolist()  # returns 0 and 8
      ([0.0, 2.0], [0.0, 4.0])
    """
    require_parts("state", state, RewardScale._fields, "the state that `rlx.initial_reward_scale` makes")
    shape = jnp.shape(state.discounted)
    if r_t.shape != shape:
        raise ShapeError(
            f"argument `r_t` has shape {list(r_t.shape)}, expected shape {list(shape)}, that of the state.\n"
            f"Begin with rlx.initial_reward_scale({list(r_t.shape)})."
        )
    counts = None if mask is None else counts_of(mask, shape)
    wide = wide_dtype(r_t.dtype, state.discounted.dtype)
    return_t = r_t.astype(wide) + state.discounted.astype(wide)
    statistics = update(state.statistics, return_t, counts, axis_name)
    scaled = normalize(statistics._replace(mean=jnp.zeros_like(statistics.mean)), r_t, epsilon, max_abs)
    discounted = weighted(discount_t.astype(wide), return_t)
    if counts is not None:
        discounted = jnp.where(counts, discounted, state.discounted)
    return jax.lax.stop_gradient((scaled, RewardScale(discounted, statistics)))
