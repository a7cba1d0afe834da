"""Losses that learn a sequence policy from preferences, without a reward model: DPO, IPO and KTO."""

import jax
import jax.numpy as jnp

from rlx.core.arrays import scale_up
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import given_mask, if_used, keep, masked_mean, weigh
from rlx.core.types import Array, ArrayLike


@stoppable
def dpo_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    ref_chosen_log_probs_t: ArrayLike,
    ref_rejected_log_probs_t: ArrayLike,
    beta: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
    label_smoothing: ArrayLike = 0.0,
) -> Array:
    """DPO's loss of one pair of answers: -log σ(β h).

    h = log(π(y_w) / π_ref(y_w)) - log(π(y_l) / π_ref(y_l)) compares the answer that was preferred, y_w, with the other,
    y_l. From "Direct Preference Optimization: Your Language Model is Secretly a Reward Model", Rafailov et al. 2023
    (https://arxiv.org/abs/2305.18290). With labels that are wrong with probability ε it is
    -(1 - ε) log σ(β h) - ε log σ(-β h), conservative DPO (https://ericmitchell.ai/cdpo.pdf).

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy, floats [T].
      rejected_log_probs_t: those of the other answer, floats [U].
      ref_chosen_log_probs_t: log-probabilities of the preferred answer under the reference policy, floats [T].
      ref_rejected_log_probs_t: those of the other answer, floats [U].
      beta: β > 0, number [].
      stop_target_gradients: whether the reference is a constant to gradients.
      chosen_mask_t: mask [T], false for tokens that do not count, whatever they hold. By default all count.
      rejected_mask_t: mask [U], likewise.
      label_smoothing: ε in [0, ½], number [].

    Returns:
      The loss, float []. A sequence without tokens has log-ratio 0.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over pairs with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> round(float(rlx.dpo_loss(one, two, one, two)), 4)
      0.6931
    """
    margin, (beta, label_smoothing) = _margin(
        "dpo_loss",
        (chosen_log_probs_t, rejected_log_probs_t, ref_chosen_log_probs_t, ref_rejected_log_probs_t),
        (chosen_mask_t, rejected_mask_t),
        stop_target_gradients,
        beta=(beta, "(0, inf)"),
        label_smoothing=(label_smoothing, "[0, 0.5]"),
    )
    margin = scale_up(margin, beta)
    right, wrong = jax.nn.softplus(-margin), jax.nn.softplus(margin)
    return weigh(1 - label_smoothing, right) + weigh(label_smoothing, wrong)


@stoppable
def ipo_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    ref_chosen_log_probs_t: ArrayLike,
    ref_rejected_log_probs_t: ArrayLike,
    tau: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
) -> Array:
    """IPO's loss of one pair of answers: (h - 1 / (2 τ))², with h as in `rlx.dpo_loss`.

    It drives the margin h to a finite goal, where DPO pushes on for ever on preferences that are certain. From "A
    General Theoretical Paradigm to Understand Learning from Human Preferences", Azar et al. 2023
    (https://arxiv.org/abs/2310.12036), equation 17.

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy, floats [T].
      rejected_log_probs_t: those of the other answer, floats [U].
      ref_chosen_log_probs_t: log-probabilities of the preferred answer under the reference policy, floats [T].
      ref_rejected_log_probs_t: those of the other answer, floats [U].
      tau: τ > 0, number []; how strongly the reference holds.
      stop_target_gradients: whether the reference is a constant to gradients.
      chosen_mask_t: mask [T], false for tokens that do not count, whatever they hold. By default all count.
      rejected_mask_t: mask [U], likewise.

    Returns:
      The loss, float []. A sequence without tokens has log-ratio 0.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over pairs with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> float(rlx.ipo_loss(one, two, one, two, tau=0.25))
      4.0
    """
    margin, (tau,) = _margin(
        "ipo_loss",
        (chosen_log_probs_t, rejected_log_probs_t, ref_chosen_log_probs_t, ref_rejected_log_probs_t),
        (chosen_mask_t, rejected_mask_t),
        stop_target_gradients,
        tau=(tau, "(0, inf)"),
    )
    return jnp.square(margin - 1 / (2 * tau))


@stoppable
def kto_loss(
    log_probs_t: ArrayLike,
    ref_log_probs_t: ArrayLike,
    desirable: ArrayLike,
    reference_point: ArrayLike,
    beta: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    desirable_weight: ArrayLike = 1.0,
    undesirable_weight: ArrayLike = 1.0,
) -> Array:
    """KTO's loss of one answer that was judged good or bad by itself, without a pair.

    λ_D (1 - σ(β (h - z₀))) for a desirable answer and λ_U (1 - σ(β (z₀ - h))) for an undesirable one, where
    h = log(π(y) / π_ref(y)) and z₀ is the reference point. From "KTO: Model Alignment as Prospect Theoretic
    Optimization", Ethayarajh et al. 2024 (https://arxiv.org/abs/2402.01306).

    Args:
      log_probs_t: log-probabilities of the tokens of the answer under the policy, floats [T].
      ref_log_probs_t: those under the reference policy, floats [T].
      desirable: whether the answer was judged good, boolean or 0/1 [].
      reference_point: z₀ ≥ 0, number [], one for a batch; see `rlx.kto_reference_point`.
      beta: β > 0, number [].
      stop_target_gradients: whether the reference policy and the reference point are constants to gradients.
      mask_t: mask [T], false for tokens that do not count, whatever they hold. By default all count.
      desirable_weight: λ_D ≥ 0, number [].
      undesirable_weight: λ_U ≥ 0, number [].

    Returns:
      The loss, float []. A sequence without tokens has h = 0.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over answers with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.kto_loss(jnp.array([-1.0, -2.0]), jnp.array([-1.0, -2.0]), True, 0.0))
      0.5
    """
    log_probs_t, ref_log_probs_t, reference_point, beta, desirable_weight, undesirable_weight, desirable, mask_t = (
        check(
            "kto_loss",
            log_probs_t=(log_probs_t, "[T]", "float"),
            ref_log_probs_t=(ref_log_probs_t, "[T]", "float"),
            reference_point=(reference_point, "[]", "real"),
            beta=(beta, "[]", "real in (0, inf)"),
            desirable_weight=(desirable_weight, "[]", "real in [0, inf)"),
            undesirable_weight=(undesirable_weight, "[]", "real in [0, inf)"),
            desirable=(desirable, "[]", "mask"),
            mask_t=(given_mask(mask_t), "[] or [T]", "mask"),
        )
    )
    ref_log_probs_t, reference_point = maybe_stop((ref_log_probs_t, reference_point), stop_target_gradients)
    good = desirable.astype(bool)
    weight = jnp.where(good, desirable_weight, undesirable_weight)
    gain = if_used(weight, _log_ratio(log_probs_t, ref_log_probs_t, mask_t) - reference_point)
    gain = scale_up(gain, beta)
    # 1 - σ(x) = σ(-x), without the difference of near numbers.
    return weight * jax.nn.sigmoid(jnp.where(good, -gain, gain))


@stoppable
def kto_reference_point(
    log_probs_t: ArrayLike,
    ref_log_probs_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    stop_target_gradients: bool = True,
) -> Array:
    """KTO's reference point: an estimate of KL(π ‖ π_ref) from mismatched prompts and answers, never negative.

    z₀ = max(0, 1/N Σ_i log(π(y_i | x_j) / π_ref(y_i | x_j))), where each answer y_i is paired with another prompt, for
    instance that of the next in the batch. From "KTO: Model Alignment as Prospect Theoretic Optimization", Ethayarajh
    et al. 2024 (https://arxiv.org/abs/2402.01306).

    Args:
      log_probs_t: log-probabilities of the tokens of the mismatched answers under the policy, floats [B, T].
      ref_log_probs_t: those under the reference policy, floats [B, T].
      mask_t: mask [B, T], false for tokens that do not count, whatever they hold. By default all count.
      stop_target_gradients: whether the result is a constant to gradients, as in the paper.

    Returns:
      z₀ in nats, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.kto_reference_point(jnp.array([[-1.0], [-2.0]]), jnp.array([[-2.0], [-2.0]])))
      0.5
    """
    log_probs_t, ref_log_probs_t, mask_t = check(
        "kto_reference_point",
        log_probs_t=(log_probs_t, "[B, T]", "float"),
        ref_log_probs_t=(ref_log_probs_t, "[B, T]", "float"),
        mask_t=(given_mask(mask_t), "[] or [B, T]", "mask"),
    )
    mean = masked_mean(_log_ratio(log_probs_t, ref_log_probs_t, mask_t), jnp.array(True))
    return maybe_stop(jnp.maximum(mean, 0), stop_target_gradients)


def _log_ratio(log_probs_t: Array, ref_log_probs_t: ArrayLike, mask_t: Array) -> Array:
    """log(π(y) / π_ref(y)), summed over the tokens that count: [...] from [..., T]."""
    log_probs_t, ref_log_probs_t = keep(mask_t, log_probs_t, ref_log_probs_t)
    return jnp.sum(log_probs_t - ref_log_probs_t, axis=-1)


def _margin(
    name: str,
    log_probs: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike],
    masks: tuple[ArrayLike | None, ArrayLike | None],
    stop: bool,
    **settings: tuple[ArrayLike, str],
) -> tuple[Array, list[Array]]:
    """The difference of the log-ratios of a pair of answers, and the checked settings."""
    chosen, rejected, ref_chosen, ref_rejected, chosen_mask, rejected_mask, *rest = check(
        name,
        chosen_log_probs_t=(log_probs[0], "[T]", "float"),
        rejected_log_probs_t=(log_probs[1], "[U]", "float"),
        ref_chosen_log_probs_t=(log_probs[2], "[T]", "float"),
        ref_rejected_log_probs_t=(log_probs[3], "[U]", "float"),
        chosen_mask_t=(given_mask(masks[0]), "[] or [T]", "mask"),
        rejected_mask_t=(given_mask(masks[1]), "[] or [U]", "mask"),
        **{key: (value, "[]", f"real in {interval}") for key, (value, interval) in settings.items()},
    )
    ref_chosen, ref_rejected = maybe_stop((ref_chosen, ref_rejected), stop)
    margin = _log_ratio(chosen, ref_chosen, chosen_mask) - _log_ratio(rejected, ref_rejected, rejected_mask)
    return margin, rest
