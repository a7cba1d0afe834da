"""Rewards of tokens by log-probabilities: the divergence from a reference, and distillation from a teacher."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import counts_of, masked
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"mask_t": ("log_probs_t", "ref_log_probs_t")})
def kl_shaped_rewards(
    reward: Real[Array, ""],
    log_probs_t: Float[Array, "T"],
    ref_log_probs_t: Float[Array, "T"],
    kl_weight: Real[Array | float, "", "in [0, inf)"] = 0.05,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, "T"]:
    """Rewards of the tokens of an answer: -β log(π(y_t) / π_ref(y_t)), and the answer's reward r at the last token.

    Their sum is r - β log(π(y) / π_ref(y)), whose expectation is the objective of RLHF. From "Fine-Tuning Language
    Models from Human Preferences", Ziegler et al. 2019 (https://arxiv.org/abs/1909.08593).

    Args:
      reward: r.
      log_probs_t: log-probabilities of the tokens under the policy that sampled them.
      ref_log_probs_t: log-probabilities under the reference policy.
      kl_weight: β ≥ 0.
      mask_t: false for tokens to ignore, even if they contain NaN: their reward is 0. By default all count.

    Returns:
      The rewards, with gradients stopped.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> policy, reference = jnp.array([-1.0, -2.0, -3.0]), jnp.array([-2.0, -2.0, -9.0])
      >>> rlx.kl_shaped_rewards(1.0, policy, reference, 0.5, mask_t=jnp.array([1, 1, 0])).tolist()
      [-0.5, 1.0, 0.0]
    """
    counts = counts_of(mask_t, log_probs_t.shape)
    index = jnp.arange(log_probs_t.shape[0])
    last = counts & (index == jnp.max(jnp.where(counts, index, -1), initial=-1))
    shaped = jnp.where(last, reward, 0) - kl_weight * (log_probs_t - ref_log_probs_t)
    return jax.lax.stop_gradient(masked(counts, shaped))


@operator(masks={"mask_t": ("log_probs_t", "teacher_log_probs_t")})
def distillation_advantages(
    log_probs_t: Float[Array, "T"],
    teacher_log_probs_t: Float[Array, "T"],
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, "T"]:
    """Advantages of tokens for on-policy distillation by the reverse KL: log π_teacher(y_t) - log π(y_t).

    The policy gradient with these, `rlx.sequence_policy_gradient_loss(log_probs_t, adv_t)`, on answers that the student
    itself sampled, descends Σ_t KL(π(· | y_<t) ‖ π_teacher(· | y_<t)). From "On-Policy Distillation of Language Models:
    Learning from Self-Generated Mistakes", Agarwal et al. 2023 (https://arxiv.org/abs/2306.13649), and "MiniLLM:
    Knowledge Distillation of Large Language Models", Gu et al. 2023 (https://arxiv.org/abs/2306.08543).

    Args:
      log_probs_t: log-probabilities of the tokens under the student, which sampled them.
      teacher_log_probs_t: log-probabilities under the teacher.
      mask_t: false for tokens to ignore, even if they contain NaN: their advantage is 0. By default all count.

    Returns:
      The advantages, with gradients stopped.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.distillation_advantages(jnp.array([-1.0, -2.0]), jnp.array([-0.5, -4.0])).tolist()
      [0.5, -2.0]
    """
    return jax.lax.stop_gradient(teacher_log_probs_t - log_probs_t)
