"""TD3 and DDPG: twin critics, a smoothed target policy, and the deterministic policy gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import require_ascending
from rlx.core.arrays import half_square
from rlx.core.masking import masked_mean, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.sampling import normal
from rlx.core.types import Array, Key


@operator(masks={"discount_t": ("q_t",)})
def clipped_double_q_learning(
    q_tm1: Float[Array, "N"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "M"],
    stop_target_gradients: bool = True,
) -> Float[Array, "N"]:
    """Temporal-difference errors of twin critics: r_t + γ_t min_j q_t[j] - q_tm1[i] for each critic i.

    The minimum of two estimates counters the upward bias of values that a policy maximises. From "Addressing Function
    Approximation Error in Actor-Critic Methods", Fujimoto et al. 2018 (https://arxiv.org/abs/1802.09477), TD3. The
    action at time t comes from `rlx.smoothed_target_action`.

    Args:
      q_tm1: values of the action at time t-1, one per critic.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_t: values of the action at time t, one per target critic.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference errors.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.clipped_double_q_learning(jnp.array([1.0, 2.0]), 0.5, 0.5, jnp.array([3.0, 5.0])).tolist()
      [1.0, 0.0]
    """
    target = r_t + discount_t * jnp.min(q_t)
    return maybe_stop(target, stop_target_gradients) - q_tm1


@operator()
def smoothed_target_action(
    key: Key,
    a_t: Float[Array, "D"],
    stddev: Real[Array | float, "", "D", "in [0, inf)"] = 0.2,
    noise_clip: Real[Array | float, "", "D", "in [0, inf]"] = 0.5,
    min_action: Real[Array | float, "", "D", "in [-inf, inf]"] = -1.0,
    max_action: Real[Array | float, "", "D", "in [-inf, inf]"] = 1.0,
) -> Float[Array, "D"]:
    """Target policy smoothing: clip(a_t + clip(ε, -c, c), min_action, max_action) with ε ~ N(0, σ²).

    Values of similar actions become similar, so the policy cannot exploit a narrow peak of the critic. From "Addressing
    Function Approximation Error in Actor-Critic Methods", Fujimoto et al. 2018 (https://arxiv.org/abs/1802.09477), TD3.

    Args:
      key: a key of `jax.random`, typed or raw.
      a_t: action of the target policy.
      stddev: σ ≥ 0, in the units of the actions.
      noise_clip: c ≥ 0.
      min_action: minimum action.
      max_action: maximum action, at least `min_action`.

    Returns:
      The smoothed action.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.smoothed_target_action(jax.random.key(0), jnp.array([0.5, 2.0]), stddev=0.0).tolist()
      [0.5, 1.0]
    """
    require_ascending(strictly=False, min_action=min_action, max_action=max_action)
    noise = stddev * normal(key, a_t.shape, a_t.dtype)
    return jnp.clip(a_t + jnp.clip(noise, -noise_clip, noise_clip), min_action, max_action)


@operator()
def dpg_loss(
    a_t: Float[Array, "D"],
    dqda_t: Float[Array, "D"],
    dqda_clipping: Real[Array, "", "in [0, inf)"] | None = None,
    use_stop_gradient: bool = True,
) -> Float[Array, "D"]:
    """Deterministic policy gradient loss: ½ (stop(a_t + ∂q/∂a) - a_t)², whose gradient for `a_t` is -∂q/∂a.

    From "Deterministic Policy Gradient Algorithms", Silver et al. 2014 (http://proceedings.mlr.press/v32/silver14.pdf).

    Args:
      a_t: action from the policy.
      dqda_t: gradient of the action value with respect to the action.
      dqda_clipping: maximum Euclidean norm of `dqda_t`, above which it is scaled down; None for no limit.
      use_stop_gradient: whether to stop gradients through the target a_t + ∂q/∂a.

    Returns:
      The loss for each action dimension.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.dpg_loss(jnp.zeros(2), jnp.array([3.0, 4.0]), dqda_clipping=2.5).tolist()
      [1.125, 2.0]
    """
    if dqda_clipping is not None:
        squared_norm = jnp.sum(jnp.square(dqda_t))
        too_long = ~(squared_norm <= jnp.square(dqda_clipping))  # also if it is NaN
        dqda_t *= jnp.where(too_long, dqda_clipping / jnp.sqrt(jnp.where(too_long, squared_norm, 1)), 1)
    # Not `dqda_t + a_t - a_t`, in which a slope that is small beside the action would be lost.
    return half_square(maybe_stop(dqda_t, use_stop_gradient) + (maybe_stop(a_t, use_stop_gradient) - a_t))


@operator(masks={"mask": ("q_t", "a_t", "data_a_t")})
def td3_bc_actor_loss(
    q_t: Float[Array, "B"],
    a_t: Float[Array, "B D"],
    data_a_t: Float[Array, "B D"],
    value_weight: Real[Array | float, "", "in [0, inf)"] = 2.5,
    *,
    mask: Mask[Array, "", "B"] | None = None,
) -> Float[Array, ""]:
    """TD3+BC's policy loss of a batch of recorded transitions: -λ mean(q) + mean((a - a_data)²), λ = α / mean|q|.

    This is TD3 for offline RL, with behavioural cloning to stay near the actions in the data; λ, through which
    gradients are stopped, makes α independent of the reward scale. From "A Minimalist Approach to Offline Reinforcement
    Learning", Fujimoto and Gu 2021 (https://arxiv.org/abs/2106.06860).

    Args:
      q_t: values of the policy's actions, by one critic: functions of the actions, with the critic's own parameters
        fixed.
      a_t: actions of the policy.
      data_a_t: actions in the data.
      value_weight: α ≥ 0; 0 gives behavioural cloning.
      mask: false for transitions to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss, a mean over batch and action dimensions; 0 if no transition counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.td3_bc_actor_loss(jnp.array([2.0, 4.0]), jnp.zeros([2, 1]), jnp.ones([2, 1]), 2.0))
      -1.0
    """
    size = jax.lax.stop_gradient(masked_mean(jnp.abs(q_t), mask))
    weight = value_weight / jnp.where(size > 0, size, 1)
    cloning = masked_mean(jnp.mean(jnp.square(a_t - data_a_t), axis=-1), mask)
    return cloning - weighted(weight, masked_mean(q_t, mask))
