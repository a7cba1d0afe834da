"""PPO (proximal policy optimisation): clipped policy and value losses, and the adaptive KL penalty."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import counts_of, masked, masked_mean, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.tracing import traced_once
from rlx.core.types import Array, AxisName
from rlx.running_statistics import init, normalize, update


@operator()
def clipped_surrogate_pg_loss(
    prob_ratios_t: Float[Array, "T"],
    adv_t: Real[Array, "T"],
    epsilon: Real[Array | float, "", "in [0, inf]"],
    use_stop_gradient: bool = True,
) -> Float[Array, ""]:
    """PPO's clipped surrogate loss: mean_t of -min(ρ_t A_t, clip(ρ_t, 1 - ε, 1 + ε) A_t).

    From "Proximal Policy Optimization Algorithms", Schulman et al. 2017 (https://arxiv.org/abs/1707.06347).

    Args:
      prob_ratios_t: ρ_t = π(a_t) / π_old(a_t).
      adv_t: advantages of the actions.
      epsilon: ε ≥ 0.
      use_stop_gradient: whether to stop gradients through the advantages.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.clipped_surrogate_pg_loss(jnp.array([2.0]), jnp.array([1.0]), 0.25)), 4)
      -1.25
    """
    adv_t = maybe_stop(adv_t, use_stop_gradient)
    return -jnp.mean(clipped_surrogate(prob_ratios_t, adv_t, epsilon, epsilon))


@operator(masks={"mask_t": ("prob_ratios_t", "adv_t")})
def dual_clipped_surrogate_pg_loss(
    prob_ratios_t: Float[Array, "T"],
    adv_t: Real[Array, "T"],
    epsilon_low: Real[Array | float, "", "in [0, inf]"] = 0.2,
    epsilon_high: Real[Array | float, "", "in [0, inf]"] = 0.2,
    max_ratio: Real[Array | float, "", "in [1, inf]"] = 3.0,
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """PPO's clipped surrogate loss with a second bound, for bad actions: mean_t of -max(PPO_t, c A_t) where A_t < 0.

    PPO_t = min(ρ_t A_t, clip(ρ_t, 1 - ε_low, 1 + ε_high) A_t) has no lower bound where A_t < 0: an action that has
    become far more likely since it was taken would dominate all others. From "Mastering Complex Control in MOBA Games
    with Deep Reinforcement Learning", Ye et al. 2019 (https://arxiv.org/abs/1912.09729), equation 5; common for
    language models trained on stale samples. `max_ratio=jnp.inf` gives PPO's loss with a mask and separate bounds.

    Args:
      prob_ratios_t: ρ_t = π(a_t) / π_old(a_t).
      adv_t: A_t, advantages of the actions.
      epsilon_low: ε_low ≥ 0.
      epsilon_high: ε_high ≥ 0.
      max_ratio: c ≥ 1.
      stop_target_gradients: whether to stop gradients through the advantages.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.dual_clipped_surrogate_pg_loss(jnp.array([99.0]), jnp.array([-1.0])))
      3.0
    """
    adv_t = maybe_stop(adv_t, stop_target_gradients)
    ratios_t = jnp.where(adv_t < 0, jnp.minimum(prob_ratios_t, max_ratio), prob_ratios_t)
    return -masked_mean(clipped_surrogate(ratios_t, adv_t, epsilon_low, epsilon_high), mask_t)


@operator(masks={"mask_t": ("v_t", "old_v_t", "target_t")})
def clipped_value_loss(
    v_t: Float[Array, "T"],
    old_v_t: Float[Array, "T"],
    target_t: Real[Array, "T"],
    epsilon: Real[Array | float, "", "in [0, inf]"],
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """PPO's clipped value loss: mean_t of ½ max((v_t - G_t)², (v°_t + clip(v_t - v°_t, -ε, ε) - G_t)²).

    It removes the incentive to move a value further than ε from its value when the data was collected. From the
    implementation that came with "Proximal Policy Optimization Algorithms", Schulman et al. 2017
    (https://arxiv.org/abs/1707.06347); studied in "Implementation Matters in Deep Policy Gradients", Engstrom et al.
    2020 (https://arxiv.org/abs/2005.12729), section 3.

    Args:
      v_t: values under the current parameters.
      old_v_t: v°_t, values when the data was collected.
      target_t: G_t, the target returns.
      epsilon: ε ≥ 0, in the units of the values.
      stop_target_gradients: whether to stop gradients through `old_v_t` and `target_t`.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.clipped_value_loss(jnp.array([2.0]), jnp.array([0.0]), jnp.array([2.0]), 1.0))
      0.5
    """
    old_v_t, target_t = maybe_stop((old_v_t, target_t), stop_target_gradients)
    clipped_v_t = old_v_t + jnp.clip(v_t - old_v_t, -epsilon, epsilon)
    losses = jnp.maximum(jnp.square(v_t - target_t), jnp.square(clipped_v_t - target_t))
    return 0.5 * masked_mean(losses, mask_t)


@operator(masks={"mask_t": ("prob_ratios_t", "adv_t", "kl_t")})
def kl_penalty_pg_loss(
    prob_ratios_t: Float[Array, "T"],
    adv_t: Real[Array, "T"],
    kl_t: Float[Array, "T"],
    kl_weight: Real[Array | float, "", "in [0, inf)"],
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """PPO's surrogate loss with a KL penalty in place of the clip: mean_t of -(ρ_t A_t - β KL_t).

    From "Proximal Policy Optimization Algorithms", Schulman et al. 2017 (https://arxiv.org/abs/1707.06347), equation 8.
    β is adapted by `rlx.adaptive_kl_weight`.

    Args:
      prob_ratios_t: ρ_t = π(a_t) / π_old(a_t).
      adv_t: A_t, advantages of the actions.
      kl_t: KL(π_old ‖ π) in each state, in nats.
      kl_weight: β ≥ 0.
      stop_target_gradients: whether to stop gradients through the advantages and β.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.kl_penalty_pg_loss(jnp.array([2.0]), jnp.array([3.0]), jnp.array([0.5]), 4.0))
      -4.0
    """
    adv_t, kl_weight = maybe_stop((adv_t, kl_weight), stop_target_gradients)
    return -masked_mean(weighted(adv_t, prob_ratios_t) - weighted(kl_weight, kl_t), mask_t)


@operator()
def adaptive_kl_weight(
    kl_weight: Float[Array, "", "in [0, inf)"],
    kl: Float[Array, ""],
    target_kl: Real[Array | float, "", "in [0, inf)"],
    tolerance: Real[Array | float, "", "in [1, inf)"] = 1.5,
    factor: Real[Array | float, "", "in [1, inf)"] = 2.0,
) -> Float[Array, ""]:
    """PPO's adaptive KL coefficient: β / 2 if KL < KL_target / 1.5, 2 β if KL > 1.5 KL_target, else β.

    From "Proximal Policy Optimization Algorithms", Schulman et al. 2017 (https://arxiv.org/abs/1707.06347), section 4.
    Call it once after each update of the policy.

    Args:
      kl_weight: β ≥ 0, the coefficient used in the last update.
      kl: mean KL(π_old ‖ π) after that update, in nats.
      target_kl: the target divergence of an update, ≥ 0.
      tolerance: the factor by which the divergence may differ from the target, ≥ 1.
      factor: the factor by which the coefficient is multiplied or divided, ≥ 1.

    Returns:
      The coefficient for the next update.

    Example:
      >>> import rlx
      >>> [float(rlx.adaptive_kl_weight(1.0, kl, 0.01)) for kl in (0.001, 0.01, 0.1)]
      [0.5, 1.0, 2.0]
    """
    lowered = jnp.where(kl < target_kl / tolerance, kl_weight / factor, kl_weight)
    adapted = jnp.where(kl > target_kl * tolerance, kl_weight * factor, lowered)
    return jnp.where(jnp.isnan(kl), jnp.nan, adapted)  # which is neither larger nor smaller than the target


@operator(masks={"mask": ("adv",)})
def normalized_advantages(
    adv: Real[Array, "*E"],
    epsilon: Real[Array | float, "", "in [0, inf)"] = 1e-8,
    *,
    mask: Mask[Array, "", "*E"] | None = None,
    axis_name: AxisName = None,
) -> Float[Array, "*E"]:
    """Advantages normalised over a batch to mean 0 and standard deviation 1: (A - mean(A)) / √(Var(A) + ε).

    PPO's reference implementation normalises so; see "Implementation Matters in Deep Policy Gradients", Engstrom et al.
    2020 (https://arxiv.org/abs/2005.12729). Over a whole batch, rather than over the answers to one question, it is
    also the normalisation of "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage
    Normalization", Hu et al. 2025 (https://arxiv.org/abs/2501.03262); its variant with a baseline takes A to be the
    rewards minus their group's mean (`rlx.group_relative_advantages(rewards, scale_by_std=False)`).

    Args:
      adv: A, all advantages of a batch.
      epsilon: ε ≥ 0.
      mask: false for entries to ignore, even if they contain NaN; their result is 0. By default all count.
      axis_name: name, or names, of axes of `jax.pmap`, `jax.shard_map` or `jax.vmap` over which the batch is also
        split, or None.

    Returns:
      The normalised advantages, with gradients stopped; 0 if all are equal.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.normalized_advantages(jnp.array([5.0, 1.0, 9.0]), mask=jnp.array([1, 1, 0])).tolist()
      [1.0, -1.0, 0.0]
    """
    adv, counts = jax.lax.stop_gradient(adv), counts_of(mask, adv.shape)
    statistics = update(init(jax.ShapeDtypeStruct([], adv.dtype)), adv, counts, axis_name)
    return masked(counts, normalize(statistics, adv, epsilon))


@traced_once
def clipped_surrogate(ratio: Array, adv: Array, epsilon_low: Array | float, epsilon_high: Array | float) -> Array:
    """PPO's objective, to be maximised: min(ρ A, clip(ρ, 1 - ε_low, 1 + ε_high) A), elementwise.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.ppo import clipped_surrogate
      >>> clipped_surrogate(jnp.array([2.0, 2.0]), jnp.array([1.0, -1.0]), 0.5, 0.5).tolist()
      [1.5, -2.0]
    """
    clipped = jnp.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
    return jnp.fmin(ratio * adv, clipped * adv)  # not 0 · ∞ = NaN, which `jnp.minimum` would return
