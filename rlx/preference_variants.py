"""Variants of DPO for pairs of answers: SLiC's hinge, robust DPO and APO."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.dpo import LEFT_OUT


@operator(masks=LEFT_OUT)
def slic_loss(
    chosen_log_probs_t: Float[Array, "T"],
    rejected_log_probs_t: Float[Array, "U"],
    ref_chosen_log_probs_t: Float[Array, "T"],
    ref_rejected_log_probs_t: Float[Array, "U"],
    beta: Real[Array | float, "", "in (0, inf)"] = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: Mask[Array, "", "T"] | None = None,
    rejected_mask_t: Mask[Array, "", "U"] | None = None,
) -> Float[Array, ""]:
    """SLiC's hinge loss of one pair of answers: max(0, 1 - β h), with h as in `rlx.dpo_loss`.

    From "SLiC-HF: Sequence Likelihood Calibration with Human Feedback", Zhao et al. 2023
    (https://arxiv.org/abs/2305.10425), with the log-ratios to a reference of "Statistical Rejection Sampling Improves
    Preference Optimization", Liu et al. 2023 (https://arxiv.org/abs/2309.06657).

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy.
      rejected_log_probs_t: log-probabilities of the rejected answer.
      ref_chosen_log_probs_t: log-probabilities of the preferred answer under the reference policy.
      ref_rejected_log_probs_t: log-probabilities of the rejected answer under the reference policy.
      beta: β > 0.
      stop_target_gradients: whether to stop gradients through the reference.
      chosen_mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      rejected_mask_t: like `chosen_mask_t`, for the rejected answer.

    Returns:
      The loss. A sequence without tokens has log-ratio 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> float(rlx.slic_loss(one, two, one, two))
      1.0
    """
    reference = maybe_stop((ref_chosen_log_probs_t, ref_rejected_log_probs_t), stop_target_gradients)
    chosen, rejected = _log_ratios(chosen_log_probs_t, rejected_log_probs_t, reference)
    return jnp.maximum(1 - beta * (chosen - rejected), 0)


@operator(masks=LEFT_OUT)
def robust_dpo_loss(
    chosen_log_probs_t: Float[Array, "T"],
    rejected_log_probs_t: Float[Array, "U"],
    ref_chosen_log_probs_t: Float[Array, "T"],
    ref_rejected_log_probs_t: Float[Array, "U"],
    beta: Real[Array | float, "", "in (0, inf)"] = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: Mask[Array, "", "T"] | None = None,
    rejected_mask_t: Mask[Array, "", "U"] | None = None,
    flip_probability: Real[Array | float, "", "in [0, 0.5)"] = 0.1,
) -> Float[Array, ""]:
    """Robust DPO's loss of one pair: [-(1 - ε) log σ(β h) + ε log σ(-β h)] / (1 - 2 ε), with h as in `rlx.dpo_loss`.

    Its mean over labels that are flipped with probability ε is DPO's loss with true labels. From "Provably Robust DPO:
    Aligning Language Models with Noisy Feedback", Chowdhury et al. 2024 (https://arxiv.org/abs/2403.00409).

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy.
      rejected_log_probs_t: log-probabilities of the rejected answer.
      ref_chosen_log_probs_t: log-probabilities of the preferred answer under the reference policy.
      ref_rejected_log_probs_t: log-probabilities of the rejected answer under the reference policy.
      beta: β > 0.
      stop_target_gradients: whether to stop gradients through the reference.
      chosen_mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      rejected_mask_t: like `chosen_mask_t`, for the rejected answer.
      flip_probability: ε in [0, ½).

    Returns:
      The loss. A sequence without tokens has log-ratio 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> round(float(rlx.robust_dpo_loss(one, two, one, two)), 4)
      0.6931
    """
    reference = maybe_stop((ref_chosen_log_probs_t, ref_rejected_log_probs_t), stop_target_gradients)
    chosen, rejected = _log_ratios(chosen_log_probs_t, rejected_log_probs_t, reference)
    x, flip = beta * (chosen - rejected), flip_probability
    return ((1 - flip) * jax.nn.softplus(-x) - flip * jax.nn.softplus(x)) / (1 - 2 * flip)


@operator(masks=LEFT_OUT)
def apo_loss(
    chosen_log_probs_t: Float[Array, "T"],
    rejected_log_probs_t: Float[Array, "U"],
    ref_chosen_log_probs_t: Float[Array, "T"],
    ref_rejected_log_probs_t: Float[Array, "U"],
    beta: Real[Array | float, "", "in (0, inf)"] = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: Mask[Array, "", "T"] | None = None,
    rejected_mask_t: Mask[Array, "", "U"] | None = None,
    chosen_is_better: bool = True,
) -> Float[Array, ""]:
    """APO's loss of one pair: APO-zero, 1 - σ(β h_w) + σ(β h_l), or APO-down, σ(β h_w) + 1 - σ(β (h_w - h_l)).

    h_w and h_l are the log-ratios of policy and reference of the two answers. APO-zero makes chosen answers more likely
    and rejected ones less, which fits if chosen answers are better than the model's own; APO-down makes both less
    likely, the rejected ones more so. From "Anchored Preference Optimization and Contrastive Revisions: Addressing
    Underspecification in Alignment", D'Oosterlinck et al. 2024 (https://arxiv.org/abs/2408.06266).

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy.
      rejected_log_probs_t: log-probabilities of the rejected answer.
      ref_chosen_log_probs_t: log-probabilities of the preferred answer under the reference policy.
      ref_rejected_log_probs_t: log-probabilities of the rejected answer under the reference policy.
      beta: β > 0.
      stop_target_gradients: whether to stop gradients through the reference.
      chosen_mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      rejected_mask_t: like `chosen_mask_t`, for the rejected answer.
      chosen_is_better: whether chosen answers are better than those of the model (APO-zero), or not (APO-down).

    Returns:
      The loss. A sequence without tokens has log-ratio 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> float(rlx.apo_loss(one, two, one, two)), float(rlx.apo_loss(one, two, one, two, chosen_is_better=False))
      (1.0, 1.0)
    """
    reference = maybe_stop((ref_chosen_log_probs_t, ref_rejected_log_probs_t), stop_target_gradients)
    chosen, rejected = _log_ratios(chosen_log_probs_t, rejected_log_probs_t, reference)
    if chosen_is_better:
        return jax.nn.sigmoid(-beta * chosen) + jax.nn.sigmoid(beta * rejected)
    return jax.nn.sigmoid(beta * chosen) + jax.nn.sigmoid(-beta * (chosen - rejected))


def _log_ratios(chosen_t: Array, rejected_t: Array, reference: tuple[Array, Array]) -> tuple[Array, Array]:
    """log(π(y) / π_ref(y)) of both answers."""
    return jnp.sum(chosen_t - reference[0], axis=-1), jnp.sum(rejected_t - reference[1], axis=-1)
