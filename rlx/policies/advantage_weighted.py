"""Advantage-weighted regression: imitate the data, the more so the better it is."""

import jax.numpy as jnp

from rlx.core.arrays import scale_down
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import given_mask, keep, masked_mean, weigh
from rlx.core.types import Array, ArrayLike


@stoppable
def advantage_weighted_loss(
    log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    temperature: ArrayLike = 1.0,
    max_weight: ArrayLike = 20.0,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
) -> Array:
    """Advantage-weighted policy loss: mean_t of -min(exp(A_t / β), w_max) log π(a_t | s_t).

    From "Advantage-Weighted Regression: Simple and Scalable Off-Policy Reinforcement Learning", Peng et al. 2019
    (https://arxiv.org/abs/1910.00177), with w_max = 20, and "Offline Reinforcement Learning with Implicit Q-Learning",
    Kostrikov et al. 2021 (https://arxiv.org/abs/2110.06169), equation 7, with A = Q - V, w_max = 100 and the inverse
    temperature 1/β. As β → ∞ it is behavioural cloning.

    Args:
      log_probs_t: log π(a_t | s_t) of the actions in the data, floats [T].
      adv_t: A_t, their advantages, numbers [T].
      temperature: β > 0, number [], in the unit of the advantages.
      max_weight: w_max > 0, number []; the largest weight of a step.
      stop_target_gradients: whether the weights are constants to gradients.
      mask_t: mask [T], false for steps that do not count, whatever they hold. By default all count.

    Returns:
      The loss, float []; 0 if no step counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.advantage_weighted_loss(jnp.array([-1.0, -1.0]), jnp.array([0.0, 99.0])))
      10.5
    """
    log_probs_t, adv_t, temperature, max_weight, mask_t = check(
        "advantage_weighted_loss",
        log_probs_t=(log_probs_t, "[T]", "float"),
        adv_t=(adv_t, "[T]", "real"),
        temperature=(temperature, "[]", "real in (0, inf]"),
        max_weight=(max_weight, "[]", "real in (0, inf]"),
        mask_t=(given_mask(mask_t), "[] or [T]", "mask"),
    )
    log_probs_t, adv_t = keep(mask_t, log_probs_t, adv_t)
    # The bound is put on the exponent: exp would overflow before it could be bounded.
    weights_t = jnp.exp(jnp.minimum(scale_down(adv_t, temperature), jnp.log(max_weight)))
    return -masked_mean(weigh(maybe_stop(weights_t, stop_target_gradients), log_probs_t), mask_t)
