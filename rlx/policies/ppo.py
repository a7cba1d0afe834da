"""The parts of PPO beside its clipped surrogate: the clipped value loss, and the penalty that adapts."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import given_mask, keep, masked_mean, weigh
from rlx.core.types import Array, ArrayLike


@stoppable
def clipped_value_loss(
    v_t: ArrayLike,
    old_v_t: ArrayLike,
    target_t: ArrayLike,
    epsilon: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
) -> Array:
    """PPO's clipped value loss: mean_t of ½ max((v_t - G_t)², (v°_t + clip(v_t - v°_t, -ε, ε) - G_t)²).

    It takes away the gain from moving a value further than ε from the one it had when the data was collected. From the
    implementation that came with "Proximal Policy Optimization Algorithms", Schulman et al. 2017
    (https://arxiv.org/abs/1707.06347); studied in "Implementation Matters in Deep Policy Gradients", Engstrom et al.
    2020 (https://arxiv.org/abs/2005.12729), section 3.

    Args:
      v_t: values under the current parameters, floats [T].
      old_v_t: v°_t, values when the data was collected, floats [T].
      target_t: G_t, returns to learn, numbers [T].
      epsilon: ε ≥ 0, number [], in the unit of the values.
      stop_target_gradients: whether `old_v_t` and `target_t` are constants to gradients.
      mask_t: mask [T], false for steps that do not count, whatever they hold. By default all count.

    Returns:
      The loss, float []; 0 if no step counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.clipped_value_loss(jnp.array([2.0]), jnp.array([0.0]), jnp.array([2.0]), 1.0))
      0.5
    """
    v_t, old_v_t, target_t, epsilon, mask_t = check(
        "clipped_value_loss",
        v_t=(v_t, "[T]", "float"),
        old_v_t=(old_v_t, "[T]", "float"),
        target_t=(target_t, "[T]", "real"),
        epsilon=(epsilon, "[]", "real in [0, inf]"),
        mask_t=(given_mask(mask_t), "[] or [T]", "mask"),
    )
    old_v_t, target_t = maybe_stop((old_v_t, target_t), stop_target_gradients)
    v_t, old_v_t, target_t = keep(mask_t, v_t, old_v_t, target_t)
    clipped_v_t = old_v_t + jnp.clip(v_t - old_v_t, -epsilon, epsilon)
    return 0.5 * masked_mean(jnp.maximum(jnp.square(v_t - target_t), jnp.square(clipped_v_t - target_t)), mask_t)


@stoppable
def kl_penalty_pg_loss(
    prob_ratios_t: ArrayLike,
    adv_t: ArrayLike,
    kl_t: ArrayLike,
    kl_weight: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
) -> Array:
    """PPO's surrogate with a penalty in place of the clip: mean_t of -(ρ_t A_t - β KL_t).

    From "Proximal Policy Optimization Algorithms", Schulman et al. 2017 (https://arxiv.org/abs/1707.06347), equation 8.
    β is adapted by `rlx.adaptive_kl_weight`.

    Args:
      prob_ratios_t: ρ_t = π(a_t) / π_old(a_t), floats [T].
      adv_t: A_t, advantages of the actions, numbers [T].
      kl_t: KL(π_old ‖ π) in each state, in nats, floats [T].
      kl_weight: β ≥ 0, number [].
      stop_target_gradients: whether the advantages and β are constants to gradients.
      mask_t: mask [T], false for steps that do not count, whatever they hold. By default all count.

    Returns:
      The loss, float []; 0 if no step counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.kl_penalty_pg_loss(jnp.array([2.0]), jnp.array([3.0]), jnp.array([0.5]), 4.0))
      -4.0
    """
    prob_ratios_t, adv_t, kl_t, kl_weight, mask_t = check(
        "kl_penalty_pg_loss",
        prob_ratios_t=(prob_ratios_t, "[T]", "float"),
        adv_t=(adv_t, "[T]", "real"),
        kl_t=(kl_t, "[T]", "float"),
        kl_weight=(kl_weight, "[]", "real in [0, inf)"),
        mask_t=(given_mask(mask_t), "[] or [T]", "mask"),
    )
    adv_t, kl_weight = maybe_stop((adv_t, kl_weight), stop_target_gradients)
    prob_ratios_t, adv_t, kl_t = keep(mask_t, prob_ratios_t, adv_t, kl_t)
    return masked_mean(weigh(jnp.asarray(kl_weight), kl_t) - weigh(adv_t, prob_ratios_t), mask_t)


def adaptive_kl_weight(
    kl_weight: ArrayLike,
    kl: ArrayLike,
    target_kl: ArrayLike,
    tolerance: ArrayLike = 1.5,
    factor: ArrayLike = 2.0,
) -> Array:
    """PPO's adaptive penalty: β / 2 if KL < KL_target / 1.5, 2 β if KL > 1.5 KL_target, else β.

    From "Proximal Policy Optimization Algorithms", Schulman et al. 2017 (https://arxiv.org/abs/1707.06347), section 4.
    Call it once after each update of the policy.

    Args:
      kl_weight: β ≥ 0, the coefficient used in the last update, float [].
      kl: mean KL(π_old ‖ π) after it, in nats, float [].
      target_kl: the divergence that an update should have, number [] ≥ 0.
      tolerance: how far off the target, as a factor, the divergence may be, number [] ≥ 1.
      factor: what the coefficient is multiplied or divided by, number [] ≥ 1.

    Returns:
      The coefficient for the next update, float [].

    Raises:
      ArgumentError: if an argument has another rank or kind.

    Example:
      >>> import rlx
      >>> [float(rlx.adaptive_kl_weight(1.0, kl, 0.01)) for kl in (0.001, 0.01, 0.1)]
      [0.5, 1.0, 2.0]
    """
    kl_weight, kl, target_kl, tolerance, factor = check(
        "adaptive_kl_weight",
        kl_weight=(kl_weight, "[]", "float in [0, inf)"),
        kl=(kl, "[]", "float"),
        target_kl=(target_kl, "[]", "real in [0, inf)"),
        tolerance=(tolerance, "[]", "real in [1, inf)"),
        factor=(factor, "[]", "real in [1, inf)"),
    )
    lowered = jnp.where(kl < target_kl / tolerance, kl_weight / factor, kl_weight)
    return jnp.where(kl > target_kl * tolerance, kl_weight * factor, lowered)
