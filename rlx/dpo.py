"""Direct preference optimisation: losses for learning a sequence policy from preferences (DPO, IPO and KTO)."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arrays import scale_up
from rlx.core.masking import masked, masked_mean, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array, AxisName

LEFT_OUT = {  # of a pair of answers, by the mask of each
    "chosen_mask_t": ("chosen_log_probs_t", "ref_chosen_log_probs_t"),
    "rejected_mask_t": ("rejected_log_probs_t", "ref_rejected_log_probs_t"),
}


@operator(masks=LEFT_OUT)
def dpo_loss(
    chosen_log_probs_t: Float[Array, "T"],
    rejected_log_probs_t: Float[Array, "U"],
    ref_chosen_log_probs_t: Float[Array, "T"],
    ref_rejected_log_probs_t: Float[Array, "U"],
    beta: Real[Array | float, "", "in (0, inf)"] = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: Mask[Array, "", "T"] | None = None,
    rejected_mask_t: Mask[Array, "", "U"] | None = None,
    label_smoothing: Real[Array | float, "", "in [0, 0.5]"] = 0.0,
) -> Float[Array, ""]:
    """DPO's loss of one pair of answers: -log σ(β h).

    h = log(π(y_w) / π_ref(y_w)) - log(π(y_l) / π_ref(y_l)) compares the preferred answer y_w with the rejected answer
    y_l. From "Direct Preference Optimization: Your Language Model is Secretly a Reward Model", Rafailov et al. 2023
    (https://arxiv.org/abs/2305.18290). With labels that are wrong with probability ε, the loss is -(1 - ε) log σ(β h) -
    ε log σ(-β h), conservative DPO (https://ericmitchell.ai/cdpo.pdf).

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy.
      rejected_log_probs_t: log-probabilities of the rejected answer.
      ref_chosen_log_probs_t: log-probabilities of the preferred answer under the reference policy.
      ref_rejected_log_probs_t: log-probabilities of the rejected answer under the reference policy.
      beta: β > 0.
      stop_target_gradients: whether to stop gradients through the reference.
      chosen_mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      rejected_mask_t: like `chosen_mask_t`, for the rejected answer.
      label_smoothing: ε in [0, ½].

    Returns:
      The loss. A sequence without tokens has log-ratio 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> round(float(rlx.dpo_loss(one, two, one, two)), 4)
      0.6931
    """
    ref_chosen_t, ref_rejected_t = maybe_stop((ref_chosen_log_probs_t, ref_rejected_log_probs_t), stop_target_gradients)
    h = _log_ratio(chosen_log_probs_t, ref_chosen_t) - _log_ratio(rejected_log_probs_t, ref_rejected_t)
    x = scale_up(h, jnp.asarray(beta))
    # -log σ(x) is softplus(-x).
    return weighted(1 - label_smoothing, jax.nn.softplus(-x)) + weighted(label_smoothing, jax.nn.softplus(x))


@operator(masks=LEFT_OUT)
def ipo_loss(
    chosen_log_probs_t: Float[Array, "T"],
    rejected_log_probs_t: Float[Array, "U"],
    ref_chosen_log_probs_t: Float[Array, "T"],
    ref_rejected_log_probs_t: Float[Array, "U"],
    tau: Real[Array | float, "", "in (0, inf)"] = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: Mask[Array, "", "T"] | None = None,
    rejected_mask_t: Mask[Array, "", "U"] | None = None,
) -> Float[Array, ""]:
    """IPO's loss of one pair of answers: (h - 1 / (2 τ))², with h as in `rlx.dpo_loss`.

    It drives the margin h to a finite target, whereas DPO increases it without bound on deterministic preferences. From
    "A General Theoretical Paradigm to Understand Learning from Human Preferences", Azar et al. 2023
    (https://arxiv.org/abs/2310.12036), equation 17.

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy.
      rejected_log_probs_t: log-probabilities of the rejected answer.
      ref_chosen_log_probs_t: log-probabilities of the preferred answer under the reference policy.
      ref_rejected_log_probs_t: log-probabilities of the rejected answer under the reference policy.
      tau: τ > 0; the strength of the regularisation towards the reference.
      stop_target_gradients: whether to stop gradients through the reference.
      chosen_mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      rejected_mask_t: like `chosen_mask_t`, for the rejected answer.

    Returns:
      The loss. A sequence without tokens has log-ratio 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> float(rlx.ipo_loss(one, two, one, two, tau=0.25))
      4.0
    """
    ref_chosen_t, ref_rejected_t = maybe_stop((ref_chosen_log_probs_t, ref_rejected_log_probs_t), stop_target_gradients)
    h = _log_ratio(chosen_log_probs_t, ref_chosen_t) - _log_ratio(rejected_log_probs_t, ref_rejected_t)
    return jnp.square(h - 1 / (2 * tau))


@operator(masks={"mask_t": ("log_probs_t", "ref_log_probs_t")})
def kto_loss(
    log_probs_t: Float[Array, "T"],
    ref_log_probs_t: Float[Array, "T"],
    desirable: Mask[Array, ""],
    reference_point: Real[Array | float, ""],
    beta: Real[Array | float, "", "in (0, inf)"] = 0.1,
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
    desirable_weight: Real[Array | float, "", "in [0, inf)"] = 1.0,
    undesirable_weight: Real[Array | float, "", "in [0, inf)"] = 1.0,
) -> Float[Array, ""]:
    """KTO's loss of one answer judged good or bad on its own, without a pair.

    λ_D (1 - σ(β (h - z₀))) for a desirable answer and λ_U (1 - σ(β (z₀ - h))) for an undesirable one, where
    h = log(π(y) / π_ref(y)) and z₀ is the reference point. From "KTO: Model Alignment as Prospect Theoretic
    Optimization", Ethayarajh et al. 2024 (https://arxiv.org/abs/2402.01306).

    Args:
      log_probs_t: log-probabilities of the tokens of the answer under the policy.
      ref_log_probs_t: log-probabilities under the reference policy.
      desirable: whether the answer was judged good.
      reference_point: z₀ ≥ 0, one for a batch; see `rlx.kto_reference_point`.
      beta: β > 0.
      stop_target_gradients: whether to stop gradients through the reference policy and the reference point.
      mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      desirable_weight: λ_D ≥ 0.
      undesirable_weight: λ_U ≥ 0.

    Returns:
      The loss. A sequence without tokens has h = 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.kto_loss(jnp.array([-1.0, -2.0]), jnp.array([-1.0, -2.0]), True, 0.0))
      0.5
    """
    ref_log_probs_t, reference_point = maybe_stop((ref_log_probs_t, reference_point), stop_target_gradients)
    weight = jnp.where(desirable, desirable_weight, undesirable_weight)
    gain = masked(weight, _log_ratio(log_probs_t, ref_log_probs_t) - reference_point)
    gain = scale_up(gain, jnp.asarray(beta))
    # 1 - σ(x) = σ(-x), without cancellation.
    return weight * jax.nn.sigmoid(jnp.where(desirable, -gain, gain))


@operator(masks={"mask_t": ("log_probs_t", "ref_log_probs_t")})
def kto_reference_point(
    log_probs_t: Float[Array, "B T"],
    ref_log_probs_t: Float[Array, "B T"],
    mask_t: Mask[Array, "", "B T"] | None = None,
    stop_target_gradients: bool = True,
    *,
    axis_name: AxisName = None,
) -> Float[Array, ""]:
    """KTO's reference point: an estimate of KL(π ‖ π_ref) from mismatched prompts and answers, clipped at 0.

    z₀ = max(0, 1/N Σ_i log(π(y_i | x_j) / π_ref(y_i | x_j))), where each answer y_i is paired with another prompt, such
    as that of the next answer in the batch. From "KTO: Model Alignment as Prospect Theoretic Optimization", Ethayarajh
    et al. 2024 (https://arxiv.org/abs/2402.01306).

    Args:
      log_probs_t: log-probabilities of the tokens of the mismatched answers under the policy.
      ref_log_probs_t: log-probabilities under the reference policy.
      mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      stop_target_gradients: whether to stop gradients through the result, as in the paper.
      axis_name: name, or names, of mapped axes over which the answers are also split: the mean is over all of them.

    Returns:
      z₀ in nats.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.kto_reference_point(jnp.array([[-1.0], [-2.0]]), jnp.array([[-2.0], [-2.0]])))
      0.5
    """
    mean = masked_mean(_log_ratio(log_probs_t, ref_log_probs_t))
    mean = mean if axis_name is None else jax.lax.pmean(mean, axis_name)
    return maybe_stop(jnp.maximum(mean, 0), stop_target_gradients)


def _log_ratio(log_probs_t: Array, ref_log_probs_t: Array) -> Array:
    """log(π(y) / π_ref(y)): [...] from [..., T]."""
    return jnp.sum(log_probs_t - ref_log_probs_t, axis=-1)
