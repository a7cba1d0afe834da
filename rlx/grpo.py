"""GRPO and its variants (GSPO, CISPO, DAPO, RLOO): losses of whole answers."""

from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import require
from rlx.core.arrays import lhs_broadcast
from rlx.core.masking import counts_of, finite_exponent, masked_mean, masked_sum, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array, AxisName
from rlx.group_advantages import leave_one_out_advantages
from rlx.kl import kl_k1, kl_k2, kl_k3
from rlx.ppo import clipped_surrogate

_MASKS = {
    "mask_t": ("log_probs_t", "old_log_probs_t", "adv_t", "ref_log_probs_t"),
    "kl_weight": ("ref_log_probs_t",),
}


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


@operator(masks=_MASKS)
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
    epsilon_high: Real[Array | float, "", "in [0, inf]"] | None = None,
    max_ratio: Real[Array | float, "", "in [1, inf]"] = jnp.inf,
    kl_estimator: str = "k3",
) -> Float[Array, ""]:
    """GRPO's loss of one answer: -1/|y| Σ_t [min(ρ_t A, clip(ρ_t, 1 - ε, 1 + ε) A) - β k3_t].

    Here ρ_t = π(y_t) / π_old(y_t), and k3_t estimates KL(π ‖ π_ref) (`rlx.kl_k3`). Average over the group for the
    paper's objective. From "DeepSeekMath", Shao et al. 2024 (https://arxiv.org/abs/2402.03300). With π = π_old, as in
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
      epsilon_high: the ε of the upper bound, ≥ 0; by default that of both.
      max_ratio: a bound ≥ 1 on ρ_t where A < 0, as in `rlx.dual_clipped_surrogate_pg_loss`; by default there is none.
      kl_estimator: "k1", "k2", "k3", or "k3_k2", which has the value of k3 and the gradient of k2, that of
        KL(π ‖ π_ref). The expected gradient of k1 is zero: in a loss it only adds noise.

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
    losses_t = _token_losses(log_probs_t, targets, (epsilon, epsilon_high, max_ratio), kl_weight, kl_estimator)
    return masked_mean(losses_t, mask_t)


@operator(masks=_MASKS)
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
    epsilon_high: Real[Array | float, "", "in [0, inf]"] | None = None,
    max_ratio: Real[Array | float, "", "in [1, inf]"] = jnp.inf,
    kl_estimator: str = "k3",
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
      epsilon_high: the ε of the upper bound, ≥ 0; by default that of both.
      max_ratio: a bound ≥ 1 on ρ_t where A < 0, as in `rlx.dual_clipped_surrogate_pg_loss`; by default there is none.
      kl_estimator: "k1", "k2", "k3", or "k3_k2", which has the value of k3 and the gradient of k2, that of
        KL(π ‖ π_ref). The expected gradient of k1 is zero: in a loss it only adds noise.

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
    losses_t = _token_losses(log_probs_t, targets, (epsilon, epsilon_high, max_ratio), kl_weight, kl_estimator)
    return masked_sum(losses_t, mask_t) / length


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
    *,
    aggregation: str = "token_mean",
    normalizer: Real[Array | float, "", "in (0, inf)"] | None = None,
    axis_name: AxisName = None,
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
      aggregation: "token_mean", the mean over all tokens of the group; "sequence_mean_token_sum" or
        "sequence_mean_token_mean", the mean over answers of each answer's sum or mean over tokens; or "constant", the
        sum over all tokens divided by `normalizer`.
      normalizer: the number to divide by, in place of the number of tokens, or of answers with tokens. For a token mean
        over m micro-batches whose losses are averaged, the number of tokens in all of them, divided by m.
      axis_name: name, or names, of axes of `jax.pmap`, `jax.vmap` or `jax.shard_map` over which groups are split: the
        number to divide by is the mean over them, so that the mean of losses and gradients over devices, by
        `jax.lax.pmean`, is that of one device.

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
    losses = -clipped_surrogate(ratio_t, adv, epsilon_low, epsilon_high)
    return aggregated(losses, mask_t, aggregation, normalizer, axis_name)


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv")})
def cispo_loss(
    log_probs_t: Float[Array, "G T"],
    old_log_probs_t: Float[Array, "G T"],
    adv: Real[Array, "G", "G T"],
    mask_t: Mask[Array, "", "G T"] | None = None,
    epsilon_low: Real[Array | float, "", "in [0, inf]"] = 1.0,
    epsilon_high: Real[Array | float, "", "in [0, inf]"] = 0.28,
    stop_target_gradients: bool = True,
    *,
    aggregation: str = "token_mean",
    normalizer: Real[Array | float, "", "in (0, inf)"] | None = None,
    axis_name: AxisName = None,
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
      aggregation: as for `rlx.dapo_loss`.
      normalizer: as for `rlx.dapo_loss`.
      axis_name: as for `rlx.dapo_loss`.

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
    return aggregated(-weighted(weights_t * adv, log_probs_t), mask_t, aggregation, normalizer, axis_name)


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
    log_probs_t: Array, targets: tuple[Any, Any, Any], bounds: tuple[Any, Any, Any], kl_weight: Any, kl_estimator: str
) -> Array:
    """-min(ρ_t A, clip(ρ_t, 1 - ε_low, 1 + ε_high) A) + β KL_t of each token, where ρ_t is bounded if A < 0."""
    require(kl_estimator in tuple(KL_ESTIMATORS), "kl_estimator", kl_estimator, f"one of {', '.join(KL_ESTIMATORS)}")
    old_log_probs_t, adv_t, ref_log_probs_t = targets
    epsilon, epsilon_high, max_ratio = bounds
    ratio_t = _ratio(log_probs_t - old_log_probs_t)
    ratio_t = jnp.where(adv_t < 0, jnp.minimum(ratio_t, max_ratio), ratio_t)
    losses_t = -clipped_surrogate(ratio_t, adv_t, epsilon, epsilon if epsilon_high is None else epsilon_high)
    if ref_log_probs_t is None:
        return losses_t
    return losses_t + weighted(kl_weight, KL_ESTIMATORS[kl_estimator](log_probs_t, ref_log_probs_t))


def _k3_with_gradient_of_k2(log_probs_t: Array, ref_log_probs_t: Array) -> Array:
    k2, k3 = (kl.kernel(log_probs_t, ref_log_probs_t) for kl in (kl_k2, kl_k3))
    return jax.lax.stop_gradient(k3 - k2) + k2


KL_ESTIMATORS = {"k1": kl_k1.kernel, "k2": kl_k2.kernel, "k3": kl_k3.kernel, "k3_k2": _k3_with_gradient_of_k2}


def aggregated(losses: Array, mask_t: Array | None, aggregation: str, normalizer: Any, axis_name: AxisName) -> Array:
    """The loss of a group from those of its tokens [G, T]."""
    require(aggregation in AGGREGATIONS, "aggregation", aggregation, f"one of {', '.join(AGGREGATIONS)}")
    require(normalizer is not None or aggregation != "constant", "normalizer", normalizer, "a number, for constant")
    counts = counts_of(mask_t, losses.shape)
    if aggregation == "sequence_mean_token_mean":
        losses = losses / jnp.maximum(jnp.sum(counts, axis=-1, keepdims=True), 1).astype(losses.dtype)
    own = jnp.sum(counts) if aggregation == "token_mean" else jnp.sum(jnp.any(counts, axis=-1))
    count = own.astype(losses.dtype) if normalizer is None else normalizer
    if axis_name is not None:
        count = jax.lax.pmean(count, axis_name)
    return masked_sum(losses, mask_t) / jnp.where(count > 0, count, 1)


AGGREGATIONS = ("token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "constant")
