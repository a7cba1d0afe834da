"""Advantages of several answers to one prompt, measured against each other."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import given_mask, keep, masked_mean, masked_sum
from rlx.core.types import Array, ArrayLike


@stoppable
def group_relative_advantages(
    rewards: ArrayLike,
    scale_by_std: bool = True,
    epsilon: ArrayLike = 1e-6,
    stop_target_gradients: bool = False,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Advantages relative to a group of answers: (r_i - mean(r)) / (std(r) + ε), or r_i - mean(r) without the scale.

    With the scale as in GRPO: "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
    Shao et al. 2024 (https://arxiv.org/abs/2402.03300). Without it as in its unbiased form Dr. GRPO: "Understanding
    R1-Zero-Like Training: A Critical Perspective", Liu et al. 2025 (https://arxiv.org/abs/2503.20783), which shows that
    the division favours questions that are very easy or very hard. In a group of one, or of equal rewards, all are 0.

    Args:
      rewards: one reward for each answer in the group, numbers [G].
      scale_by_std: whether to divide by the standard deviation of the group (that of the population, with 1/G).
      epsilon: ε ≥ 0, number []; added to the standard deviation.
      stop_target_gradients: whether the advantages are constants to gradients.
      mask: mask [G], false for places in the group that hold no answer: they enter no mean, and their advantage is 0.

    Returns:
      Advantages, floats [G].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over prompts with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.group_relative_advantages(jnp.array([1, 0, 0, 1]), epsilon=0.0).tolist()
      [1.0, -1.0, -1.0, 1.0]
    """
    rewards, epsilon, mask = check(
        "group_relative_advantages",
        rewards=(rewards, "[G]", "real"),
        epsilon=(epsilon, "[]", "real in [0, inf)"),
        mask=(given_mask(mask), "[] or [G]", "mask"),
    )
    (rewards,) = keep(mask, rewards)
    (adv,) = keep(mask, rewards - masked_mean(rewards, mask))
    if scale_by_std:
        variance = masked_mean(jnp.square(adv), mask)
        varies = variance > 0  # of a constant group the slope of the square root is infinite, and its advantages are 0
        std = jnp.sqrt(jnp.where(varies, variance, jnp.ones_like(variance)))
        adv = adv / jnp.where(varies, std + epsilon.astype(std.dtype), jnp.ones_like(std))
    return maybe_stop(adv, stop_target_gradients)


@stoppable
def leave_one_out_advantages(
    rewards: ArrayLike, stop_target_gradients: bool = False, *, mask: ArrayLike | None = None
) -> Array:
    """Advantages relative to the mean of the other answers: r_i - 1/(G-1) Σ_{j≠i} r_j.

    The baseline does not depend on the answer itself, so the policy gradient stays unbiased. From "Back to Basics:
    Revisiting REINFORCE-Style Optimization for Learning from Human Feedback in LLMs", Ahmadian et al. 2024
    (https://arxiv.org/abs/2402.14740), after "Buy 4 REINFORCE Samples, Get a Baseline for Free!", Kool et al. 2019. It
    is G/(G-1) times `group_relative_advantages(rewards, scale_by_std=False)`. With nobody to compare with (a group of
    one) the baseline is 0.

    Args:
      rewards: one reward for each answer in the group, numbers [G].
      stop_target_gradients: whether the advantages are constants to gradients.
      mask: mask [G], false for places in the group that hold no answer: they enter no mean, and their advantage is 0.

    Returns:
      Advantages, floats [G].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over prompts with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.leave_one_out_advantages(jnp.array([3.0, 0.0, 1.0])).tolist()
      [2.5, -2.0, -0.5]
    """
    rewards, mask = check(
        "leave_one_out_advantages",
        rewards=(rewards, "[G]", "real"),
        mask=(given_mask(mask), "[] or [G]", "mask"),
    )
    (rewards,) = keep(mask, rewards)
    others = jnp.maximum(masked_sum(jnp.ones_like(rewards), mask) - 1, 1)
    (adv,) = keep(mask, rewards - (jnp.sum(rewards) - rewards) / others)
    return maybe_stop(adv, stop_target_gradients)
