"""Discovered and learnt policy optimisation (DPO of 2022, not direct preference optimisation; LPO): drift functions."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import finite_log, masked, masked_mean
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator(masks={"mask_t": ("prob_ratios_t", "adv_t"), "adv_t": ("prob_ratios_t",)})
def discovered_policy_loss(
    prob_ratios_t: Float[Array, "T"],
    adv_t: Real[Array, "T"],
    alpha: Real[Array | float, "", "in (0, inf)"] = 2.0,
    beta: Real[Array | float, "", "in (0, inf)"] = 0.6,
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """The loss of discovered policy optimisation: mean_t of -(ρ_t A_t - f_t), with a drift f_t in place of PPO's clip.

    f = max(0, (ρ - 1) A - α tanh((ρ - 1) A / α)) where A ≥ 0, and f = max(0, log(ρ) A - β tanh(log(ρ) A / β)) where A <
    0. A drift function keeps the policy near the behaviour policy; this one is a closed form of the drift found by
    meta-learning over many tasks (`learnt_policy_loss`). For good actions the gain levels off at A + α but keeps a
    slope, where PPO's has none; bad actions are pushed back up once they are much less likely than before. From
    "Discovered Policy Optimisation", Lu et al. 2022 (https://arxiv.org/abs/2210.05639).

    Args:
      prob_ratios_t: ρ_t = π(a_t) / π_old(a_t); in log(ρ), a ratio of 0, as after underflow, counts as the smallest
        normal number of its dtype, so that the loss and its gradient stay finite.
      adv_t: A_t, advantages of the actions; normalised over a batch in the paper, whose α and β assume it.
      alpha: α > 0.
      beta: β > 0.
      stop_target_gradients: whether to stop gradients through the advantages.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> ratios, adv_t = jnp.array([1.0, 9.0, 99.0]), jnp.ones(3)
      >>> [round(float(rlx.discovered_policy_loss(r[None], adv_t[:1])), 4) for r in ratios]
      [-1.0, -2.9987, -3.0]
    """
    adv_t = maybe_stop(adv_t, stop_target_gradients)
    gain = prob_ratios_t * adv_t
    # ρ A - max(0, (ρ - 1) A - α tanh(…)), without cancellation of large numbers.
    when_good = jnp.minimum(gain, adv_t + alpha * jnp.tanh((prob_ratios_t - 1) * adv_t / alpha))
    shift = adv_t * finite_log(jnp.where(adv_t < 0, prob_ratios_t, 1))
    when_bad = gain - jnp.maximum(shift - beta * jnp.tanh(shift / beta), 0)
    return -masked_mean(jnp.where(adv_t < 0, when_bad, when_good), mask_t)


@operator(masks={"mask_t": ("prob_ratios_t", "adv_t", "scores_t"), "adv_t": ("prob_ratios_t",)})
def learnt_policy_loss(
    prob_ratios_t: Float[Array, "T"],
    adv_t: Real[Array, "T"],
    scores_t: Float[Array, "T"],
    threshold: Real[Array | float, "", "in [0, inf)"] = 1e-6,
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """The loss of learnt policy optimisation: mean_t of -(ρ_t A_t - max(0, f_t - ξ)), with f_t from a network.

    With any drift max(0, f - ξ) that is 0 with slope 0 at ρ = 1, the policy improves at each step ("Mirror Learning: A
    Unifying Framework of Policy Optimisation", Kuba et al. 2022, https://arxiv.org/abs/2201.02373). A network without
    biases, of the inputs that `learnt_drift_inputs` makes, gives such a drift, and is itself learnt over many tasks:
    "Discovered Policy Optimisation", Lu et al. 2022 (https://arxiv.org/abs/2210.05639). `discovered_policy_loss` is a
    closed form of the drift that it found.

    Args:
      prob_ratios_t: ρ_t = π(a_t) / π_old(a_t).
      adv_t: A_t, advantages of the actions.
      scores_t: f_t, the network's outputs: functions of ρ_t, through which gradients reach the policy.
      threshold: ξ ≥ 0.
      stop_target_gradients: whether to stop gradients through the advantages.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.learnt_policy_loss(jnp.array([2.0]), jnp.array([3.0]), jnp.array([4.0]), threshold=0.0))
      -2.0
    """
    adv_t = maybe_stop(adv_t, stop_target_gradients)
    return masked_mean(jnp.maximum(scores_t - threshold, 0) - prob_ratios_t * adv_t, mask_t)


@operator()
def learnt_drift_inputs(
    prob_ratios_t: Float[Array, "T"], adv_t: Real[Array, "T"], *, mask_t: Mask[Array, "", "T"] | None = None
) -> Float[Array, "T 8"]:
    """The inputs of the drift network of learnt policy optimisation: [x, x², l, l², x A, x² A, l A, l² A].

    x = ρ - 1 and l = log ρ, so all inputs, and the output of a network without biases, are 0 where the policy is
    unchanged. From "Discovered Policy Optimisation", Lu et al. 2022 (https://arxiv.org/abs/2210.05639).

    Args:
      prob_ratios_t: ρ_t = π(a_t) / π_old(a_t); in l, a ratio of 0, as after underflow, counts as the smallest normal
        number of its dtype, so that all inputs are finite.
      adv_t: A_t, advantages of the actions.
      mask_t: false for steps to ignore, even if they contain NaN; their inputs are 0. By default all count.

    Returns:
      Eight numbers for each step.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.learnt_drift_inputs(jnp.array([1.0]), jnp.array([5.0])).tolist()
      [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    if mask_t is not None:
        prob_ratios_t, adv_t = 1 + masked(mask_t, prob_ratios_t - 1), masked(mask_t, adv_t)
    x, l = prob_ratios_t - 1, finite_log(prob_ratios_t)
    inputs = jnp.stack([x, jnp.square(x), l, jnp.square(l)], axis=-1)
    return jnp.concatenate([inputs, adv_t[:, None] * inputs], axis=-1)
