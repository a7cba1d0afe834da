"""GRPO and its variants (GSPO, CISPO, DAPO, RLOO): group-relative advantages and losses of whole answers."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import require
from rlx.core.arrays import lhs_broadcast, pick
from rlx.core.masking import counts_of, finite_exponent, masked, masked_mean, masked_sum, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.kl import kl_k3
from rlx.ppo import clipped_surrogate


@operator(masks={"mask": ("rewards",)})
def group_relative_advantages(
    rewards: Real[Array, "G"],
    scale_by_std: bool = True,
    epsilon: Real[Array | float, "", "in [0, inf)"] = 1e-6,
    stop_target_gradients: bool = False,
    *,
    mask: Mask[Array, "", "G"] | None = None,
) -> Float[Array, "G"]:
    """Advantages relative to a group of answers: (r_i - mean(r)) / (std(r) + ε), or r_i - mean(r) if not scaled.

    The scaled form is that of GRPO: "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language
    Models", Shao et al. 2024 (https://arxiv.org/abs/2402.03300). The form without scaling is that of Dr. GRPO, its
    unbiased version: "Understanding R1-Zero-Like Training: A Critical Perspective", Liu et al. 2025
    (https://arxiv.org/abs/2503.20783), which shows that the division favours very easy and very hard questions. In a
    group of one, or with equal rewards, all advantages are 0.

    Args:
      rewards: one reward for each answer in the group.
      scale_by_std: whether to divide by the standard deviation of the group (the population standard deviation, with
        1/G).
      epsilon: ε ≥ 0; added to the standard deviation.
      stop_target_gradients: whether to stop gradients through the advantages.
      mask: false for entries of the group without an answer: they are excluded from means, and their advantage is 0.

    Returns:
      Advantages.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.group_relative_advantages(jnp.array([1, 0, 0, 1]), epsilon=0.0).tolist()
      [1.0, -1.0, -1.0, 1.0]
    """
    gain, counts = _gains(rewards, mask)
    adv = masked(counts, gain - masked_mean(gain, counts))
    if scale_by_std:
        scale = _root_mean_square(adv, counts) + epsilon
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


@operator(masks={"mask_t": ("log_probs_t", "adv_t")})
def sequence_policy_gradient_loss(
    log_probs_t: Float[Array, "T"],
    adv_t: Real[Array, "", "T"],
    mask_t: Mask[Array, "", "T"] | None = None,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """REINFORCE for a sequence: -Σ_t A_t log π(y_t | y_<t), summed over unmasked tokens.

    With one advantage A for the whole answer, it is -A log π(y). With advantages from `rlx.leave_one_out_advantages`
    and a mean over the group it is RLOO ("Back to Basics", Ahmadian et al. 2024, https://arxiv.org/abs/2402.14740).

    Args:
      log_probs_t: log-probabilities of the tokens under the policy.
      adv_t: advantage of the sequence, or of each token.
      mask_t: false for tokens to ignore (prompt, padding), even if they contain NaN. By default all count.
      stop_target_gradients: whether to stop gradients through the advantages.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sequence_policy_gradient_loss(jnp.array([-1.0, -0.5, -9.0]), 2.0, jnp.array([1, 1, 0])))
      3.0
    """
    return -masked_sum(weighted(maybe_stop(adv_t, stop_target_gradients), log_probs_t), mask_t)


@operator(
    masks={
        "mask_t": ("log_probs_t", "old_log_probs_t", "adv_t", "ref_log_probs_t"),
        "kl_weight": ("ref_log_probs_t",),
    }
)
def grpo_loss(
    log_probs_t: Float[Array, "T"],
    old_log_probs_t: Float[Array, "T"],
    adv_t: Real[Array, "", "T"],
    mask_t: Mask[Array, "", "T"] | None = None,
    epsilon: Real[Array | float, "", "in [0, inf]"] = 0.2,
    stop_target_gradients: bool = True,
    *,
    ref_log_probs_t: Float[Array, "T"] | None = None,
    kl_weight: Real[Array | float, "", "in [0, inf)"] = 0.04,
) -> Float[Array, ""]:
    """GRPO's loss of one answer: -1/|y| Σ_t [min(ρ_t A, clip(ρ_t, 1 - ε, 1 + ε) A) - β k3_t].

    Here ρ_t = π(y_t) / π_old(y_t), and k3_t estimates KL(π ‖ π_ref) (`rlx.kl_k3`). Average over the group for the
    paper's objective. From "DeepSeekMath", Shao et al. 2024 (https://arxiv.org/abs/2402.03300). Where π = π_old, as in
    the first pass over new samples, its gradient is that of -A times the mean of the log-probabilities.

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv_t: advantage of the answer, see `rlx.group_relative_advantages`; or one advantage per token.
      mask_t: false for tokens to ignore (prompt, padding), even if they contain NaN. By default all count.
      epsilon: ε ≥ 0.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.
      ref_log_probs_t: log-probabilities under the reference policy; if omitted, there is no penalty.
      kl_weight: β ≥ 0.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> round(float(rlx.grpo_loss(old + jnp.log(jnp.array([2.0, 0.9])), old, 1.0)), 4)
      -1.05
    """
    targets = maybe_stop((old_log_probs_t, adv_t, ref_log_probs_t), stop_target_gradients)
    return masked_mean(_token_losses(log_probs_t, targets, epsilon, kl_weight), mask_t)


@operator(
    masks={
        "mask_t": ("log_probs_t", "old_log_probs_t", "adv_t", "ref_log_probs_t"),
        "kl_weight": ("ref_log_probs_t",),
    }
)
def dr_grpo_loss(
    log_probs_t: Float[Array, "T"],
    old_log_probs_t: Float[Array, "T"],
    adv_t: Real[Array, "", "T"],
    mask_t: Mask[Array, "", "T"] | None = None,
    epsilon: Real[Array | float, "", "in [0, inf]"] = 0.2,
    stop_target_gradients: bool = True,
    *,
    max_length: int | None = None,
    ref_log_probs_t: Float[Array, "T"] | None = None,
    kl_weight: Real[Array | float, "", "in [0, inf)"] = 0.04,
) -> Float[Array, ""]:
    """Dr. GRPO's loss of one answer: the terms of `grpo_loss`, summed and divided by a constant, not by the length.

    -1/L Σ_t [min(ρ_t A, clip(ρ_t, 1 - ε, 1 + ε) A) - β k3_t]

    Dividing by each answer's own length encourages longer wrong answers; a constant L for all answers does not. From
    "Understanding R1-Zero-Like Training: A Critical Perspective", Liu et al. 2025 (https://arxiv.org/abs/2503.20783).
    Its advantages come from `rlx.group_relative_advantages(rewards, scale_by_std=False)`.

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv_t: advantage of the answer, or of each token.
      mask_t: false for tokens to ignore (prompt, padding), even if they contain NaN. By default all count.
      epsilon: ε ≥ 0.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.
      max_length: L, a positive number of tokens, the same for all answers; by default T, counting masked tokens too.
      ref_log_probs_t: log-probabilities under the reference policy; if omitted, there is no penalty.
      kl_weight: β ≥ 0.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> round(float(rlx.dr_grpo_loss(old + jnp.log(jnp.array([2.0, 0.9])), old, 1.0, max_length=10)), 4)
      -0.21
    """
    length = max(log_probs_t.shape[0], 1) if max_length is None else max_length
    require(length > 0, "max_length", max_length, "a positive number of tokens")
    targets = maybe_stop((old_log_probs_t, adv_t, ref_log_probs_t), stop_target_gradients)
    return masked_sum(_token_losses(log_probs_t, targets, epsilon, kl_weight), mask_t) / length


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv")})
def gspo_loss(
    log_probs_t: Float[Array, "T"],
    old_log_probs_t: Float[Array, "T"],
    adv: Real[Array, ""],
    mask_t: Mask[Array, "", "T"] | None = None,
    epsilon_low: Real[Array | float, "", "in [0, inf]"] = 3e-4,
    epsilon_high: Real[Array | float, "", "in [0, inf]"] = 4e-4,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """GSPO's loss of one answer, with a sequence-level importance ratio.

    -min(s A, clip(s, 1 - ε_low, 1 + ε_high) A), where s = (π(y) / π_old(y))^(1/|y|) is the geometric mean of the ratios
    of the tokens. Average over the group for the paper's objective. From "Group Sequence Policy Optimization", Zheng et
    al. 2025 (https://arxiv.org/abs/2507.18071). For a sequence of one token it is PPO's clipped surrogate.

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv: advantage of the answer.
      mask_t: false for tokens to ignore (prompt, padding), even if they contain NaN. By default all count.
      epsilon_low: ε_low ≥ 0.
      epsilon_high: ε_high ≥ 0.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> round(float(rlx.gspo_loss(old + jnp.log(jnp.array([4.0, 1.0])), old, -1.0)), 4)
      2.0
    """
    old_log_probs_t, adv = maybe_stop((old_log_probs_t, adv), stop_target_gradients)
    ratio = _ratio(masked_mean(log_probs_t - old_log_probs_t, mask_t))
    return -clipped_surrogate(ratio, adv, epsilon_low, epsilon_high)


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv")})
def dapo_loss(
    log_probs_t: Float[Array, "G T"],
    old_log_probs_t: Float[Array, "G T"],
    adv: Real[Array, "G", "G T"],
    mask_t: Mask[Array, "", "G T"] | None = None,
    epsilon_low: Real[Array | float, "", "in [0, inf]"] = 0.2,
    epsilon_high: Real[Array | float, "", "in [0, inf]"] = 0.28,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """DAPO's loss of a group: asymmetric clipping, and a mean over all tokens of the group.

    -1/Σ_i|y_i| Σ_i Σ_t min(ρ_it A_i, clip(ρ_it, 1 - ε_low, 1 + ε_high) A_i), with ρ_it = π(y_it) / π_old(y_it)

    The higher upper bound leaves room for unlikely tokens to become more likely; the mean over tokens weights the
    tokens of long and short answers equally. From "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", Yu
    et al. 2025 (https://arxiv.org/abs/2503.14476).

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv: advantages of the answers, see `rlx.group_relative_advantages`; or one advantage per token.
      mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      epsilon_low: ε_low ≥ 0.
      epsilon_high: ε_high ≥ 0.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([[-1.0, -2.0], [-1.0, 0.0]])
      >>> mask = jnp.array([[1, 1], [1, 0]])
      >>> round(float(rlx.dapo_loss(old + jnp.log(2.0), old, jnp.array([1.0, -1.0]), mask)), 4)
      -0.1867
    """
    old_log_probs_t, adv = maybe_stop((old_log_probs_t, adv), stop_target_gradients)
    ratio_t = _ratio(log_probs_t - old_log_probs_t)
    adv = lhs_broadcast.kernel(adv, ratio_t)
    return -masked_mean(clipped_surrogate(ratio_t, adv, epsilon_low, epsilon_high), mask_t)


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv")})
def cispo_loss(
    log_probs_t: Float[Array, "G T"],
    old_log_probs_t: Float[Array, "G T"],
    adv: Real[Array, "G", "G T"],
    mask_t: Mask[Array, "", "G T"] | None = None,
    epsilon_low: Real[Array | float, "", "in [0, inf]"] = 1.0,
    epsilon_high: Real[Array | float, "", "in [0, inf]"] = 0.28,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """CISPO's loss of a group: clipped importance weights on a policy gradient, so that no token's gradient is dropped.

    -1/Σ_i|y_i| Σ_i Σ_t sg(clip(ρ_it, 1 - ε_low, 1 + ε_high)) A_i log π(y_it), with ρ_it = π(y_it) / π_old(y_it) and sg
    stopping gradients. From "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention", MiniMax 2025
    (https://arxiv.org/abs/2506.13585), which uses no lower bound: ε_low = 1.

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv: advantages of the answers, see `rlx.group_relative_advantages`; or one advantage per token.
      mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      epsilon_low: ε_low ≥ 0.
      epsilon_high: ε_high ≥ 0.
      stop_target_gradients: whether to stop gradients through the advantages; they are always stopped through the
        weights.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([[-1.0, -2.0]])
      >>> gradient = jax.grad(rlx.cispo_loss)(old + jnp.log(2.0), old, jnp.array([1.0]), epsilon_high=0.5)
      >>> gradient.tolist()
      [[-0.75, -0.75]]
    """
    adv = lhs_broadcast.kernel(maybe_stop(adv, stop_target_gradients), log_probs_t)
    ratio_t = jnp.exp(log_probs_t - old_log_probs_t)
    weights_t = jax.lax.stop_gradient(jnp.clip(ratio_t, 1 - epsilon_low, 1 + epsilon_high))
    return -masked_mean(weighted(weights_t * adv, log_probs_t), mask_t)


@operator(masks={"mask_t": ("log_probs_t",)})
def rloo_loss(
    log_probs_t: Float[Array, "G T"],
    rewards: Real[Array, "G"],
    mask_t: Mask[Array, "", "G T"] | None = None,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """RLOO's loss of a group: REINFORCE with the mean reward of the other answers as the baseline of each.

    -1/G Σ_i (r_i - 1/(G-1) Σ_{j≠i} r_j) Σ_t log π(y_it)

    From "Back to Basics: Revisiting REINFORCE-Style Optimization for Learning from Human Feedback in LLMs", Ahmadian et
    al. 2024 (https://arxiv.org/abs/2402.14740).

    Args:
      log_probs_t: log-probabilities of the tokens under the policy.
      rewards: rewards of the answers.
      mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      stop_target_gradients: whether to stop gradients through the rewards.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.rloo_loss(jnp.array([[-1.0, -2.0], [-1.0, -1.0]]), jnp.array([1, 0])))
      0.5
    """
    adv = leave_one_out_advantages.kernel(rewards, stop_target_gradients)
    return -jnp.mean(masked_sum(weighted(adv[:, None], log_probs_t), mask_t, axis=-1))


def _ratio(log_ratio: Array) -> Array:
    return jnp.exp(finite_exponent(log_ratio))


def _token_losses(
    log_probs_t: Array,
    targets: tuple[Array, Array, Array | None],
    epsilon: Array | float,
    kl_weight: Array | float,
) -> Array:
    """-min(ρ_t A, clip(ρ_t, 1 - ε, 1 + ε) A) + β k3_t of each token."""
    old_log_probs_t, adv_t, ref_log_probs_t = targets
    losses_t = -clipped_surrogate(_ratio(log_probs_t - old_log_probs_t), adv_t, epsilon, epsilon)
    if ref_log_probs_t is None:
        return losses_t
    return losses_t + weighted(kl_weight, kl_k3.kernel(log_probs_t, ref_log_probs_t))


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
