"""Advantages of several answers to one prompt, measured against each other."""

import jax
import jax.numpy as jnp

from rlx.core.arrays import pick
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import given_mask, keep, masked_mean
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
    gain, mask = _gains(rewards, mask)
    (adv,) = keep(mask, gain - masked_mean(gain, mask))
    if scale_by_std:
        std = _root_mean_square(adv, mask)
        scale = std + epsilon.astype(std.dtype)
        adv = adv / jnp.where(scale > 0, scale, jnp.ones_like(scale))
    return maybe_stop(adv.astype(rewards.dtype), stop_target_gradients)


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
    gain, counts = _gains(rewards, mask)
    others = jnp.sum(counts) - 1
    (adv,) = keep(counts, gain - (jnp.sum(gain) - gain) / jnp.maximum(others, 1).astype(gain.dtype))
    (alone,) = keep(counts, rewards.astype(gain.dtype))
    return maybe_stop(jnp.where(others > 0, adv, alone).astype(rewards.dtype), stop_target_gradients)


def _gains(rewards: Array, mask: Array) -> tuple[Array, Array]:
    """What each answer has more than the first one of the group, in float32 or wider, and the mask [G] of answers.

    Means and variances are taken of these: of equal rewards they are exactly zero, and of large ones exact.
    """
    counts = jnp.broadcast_to(mask.astype(bool), rewards.shape)
    (rewards,) = keep(counts, rewards.astype(jnp.promote_types(rewards.dtype, jnp.float32)))
    first = pick(rewards, jnp.argmax(counts)) if rewards.size else jnp.zeros((), rewards.dtype)
    return keep(counts, rewards - first)[0], counts


def _root_mean_square(x: Array, mask: Array) -> Array:
    """√(mean of x²), which neither overflows nor underflows, with slope 0 where all are 0."""
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x), initial=0))
    scale = jnp.where(largest > 0, largest, jnp.ones_like(largest))
    mean_square = masked_mean(jnp.square(x / scale), mask)
    varies = mean_square > 0  # where all are equal the slope of the square root is infinite
    return jnp.where(varies, scale * jnp.sqrt(jnp.where(varies, mean_square, jnp.ones_like(scale))), 0)
