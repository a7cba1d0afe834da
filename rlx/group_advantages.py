"""Advantages of answers relative to other answers to the same question."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import require
from rlx.core.arrays import pick
from rlx.core.masking import counts_of, masked, masked_mean
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator(masks={"mask": ("rewards",)})
def group_relative_advantages(
    rewards: Real[Array, "G"],
    scale_by_std: bool = True,
    epsilon: Real[Array | float, "", "in [0, inf)"] = 1e-6,
    stop_target_gradients: bool = False,
    *,
    mask: Mask[Array, "", "G"] | None = None,
    ddof: int = 0,
) -> Float[Array, "G"]:
    """Advantages relative to a group of answers: (r_i - mean(r)) / (std(r) + ε), or r_i - mean(r) if not scaled.

    The scaled form is that of GRPO: "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language
    Models", Shao et al. 2024 (https://arxiv.org/abs/2402.03300). The form without scaling is that of Dr. GRPO, its
    unbiased version: "Understanding R1-Zero-Like Training: A Critical Perspective", Liu et al. 2025
    (https://arxiv.org/abs/2503.20783), which shows that the division favours very easy and very hard questions. In a
    group of one, or with equal rewards, all advantages are 0.

    Args:
      rewards: one reward for each answer in the group.
      scale_by_std: whether to divide by the standard deviation of the group.
      epsilon: ε ≥ 0; added to the standard deviation.
      stop_target_gradients: whether to stop gradients through the advantages.
      mask: false for entries of the group without an answer: they are excluded from means, and their advantage is 0.
      ddof: the standard deviation is that with 1/(G - ddof), 0 or 1; TRL, verl and Tunix use 1.

    Returns:
      Advantages.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.group_relative_advantages(jnp.array([1, 0, 0, 1]), epsilon=0.0).tolist()
      [1.0, -1.0, -1.0, 1.0]
    """
    require(ddof in (0, 1), "ddof", ddof, "0 or 1")
    gain, counts = _gains(rewards, mask)
    adv = masked(counts, gain - masked_mean(gain, counts))
    if scale_by_std:
        n = jnp.sum(counts).astype(adv.dtype)
        scale = _root_mean_square(adv, counts) * jnp.sqrt(n / jnp.maximum(n - ddof, 1)) + epsilon
        adv = adv / jnp.where(scale > 0, scale, 1)
    return maybe_stop(adv, stop_target_gradients)


@operator(masks={"mask": ("rewards",)})
def leave_one_out_advantages(
    rewards: Real[Array, "G"],
    stop_target_gradients: bool = False,
    *,
    mask: Mask[Array, "", "G"] | None = None,
) -> Float[Array, "G"]:
    """Advantages relative to the mean of the other answers: r_i - 1/(G-1) Σ_{j≠i} r_j.

    The baseline does not depend on the answer itself, so the policy gradient stays unbiased. From "Back to Basics:
    Revisiting REINFORCE-Style Optimization for Learning from Human Feedback in LLMs", Ahmadian et al. 2024
    (https://arxiv.org/abs/2402.14740), after "Buy 4 REINFORCE Samples, Get a Baseline for Free!", Kool et al. 2019. It
    is G/(G-1) times `group_relative_advantages(rewards, scale_by_std=False)`. In a group of one the baseline is 0.

    Args:
      rewards: one reward for each answer in the group.
      stop_target_gradients: whether to stop gradients through the advantages.
      mask: false for entries of the group without an answer: they are excluded from means, and their advantage is 0.

    Returns:
      Advantages.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.leave_one_out_advantages(jnp.array([3.0, 0.0, 1.0])).tolist()
      [2.5, -2.0, -0.5]
    """
    gain, counts = _gains(rewards, mask)
    others = jnp.sum(counts) - 1
    baseline = (jnp.sum(gain) - gain) / jnp.maximum(others, 1).astype(gain.dtype)
    adv = jnp.where(others > 0, masked(counts, gain - baseline), rewards)
    return maybe_stop(adv, stop_target_gradients)


def _gains(rewards: Array, mask: Array | None) -> tuple[Array, Array]:
    """The rewards relative to the first answer of the group, and the mask [G] of answers.

    Means and variances are computed from these: they are exactly zero for equal rewards, and exact for large ones.
    """
    counts = counts_of(mask, rewards.shape)
    first = pick(rewards, jnp.argmax(counts)) if rewards.size else 0
    return masked(counts, rewards - first), counts


def _root_mean_square(x: Array, counts: Array) -> Array:
    """√(mean of x²), with gradient 0 where all are 0."""
    mean_square = masked_mean(jnp.square(x), counts)
    varies = mean_square > 0  # if all are equal, the derivative of the square root is infinite
    return jnp.where(varies, jnp.sqrt(jnp.where(varies, mean_square, 1)), 0)
