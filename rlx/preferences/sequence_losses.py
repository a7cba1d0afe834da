"""Policy losses of one sequence, from the log-probabilities of its tokens."""

import jax.numpy as jnp

from rlx.core.checks import check, whole_number
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import finite_exponent, given_mask, if_used, keep, masked_mean, masked_sum, weigh
from rlx.core.types import Array, ArrayLike
from rlx.ppo import clipped_surrogate
from rlx.preferences.kl import kl_k3


@stoppable
def sequence_policy_gradient_loss(
    log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    stop_target_gradients: bool = True,
) -> Array:
    """REINFORCE for a sequence: -Σ_t A_t log π(y_t | y_<t), summed over the tokens that count.

    With one advantage A for the whole answer it is -A log π(y). With advantages from `rlx.leave_one_out_advantages` and
    a mean over the group it is RLOO ("Back to Basics", Ahmadian et al. 2024, https://arxiv.org/abs/2402.14740).

    Args:
      log_probs_t: log-probabilities of the tokens under the policy, floats [T].
      adv_t: advantage of the sequence, number [], or of each token, numbers [T].
      mask_t: mask [T], false for tokens that do not count (prompt, padding), whatever they hold. By default all count.
      stop_target_gradients: whether the advantages are constants to gradients.

    Returns:
      The loss, float []; 0 if no token counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over sequences with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sequence_policy_gradient_loss(jnp.array([-1.0, -0.5, -9.0]), 2.0, jnp.array([1, 1, 0])))
      3.0
    """
    log_probs_t, adv_t, mask_t = check(
        "sequence_policy_gradient_loss",
        log_probs_t=(log_probs_t, "[T]", "float"),
        adv_t=(adv_t, "[] or [T]", "real"),
        mask_t=(given_mask(mask_t), "[] or [T]", "mask"),
    )
    adv_t = maybe_stop(adv_t, stop_target_gradients)
    log_probs_t, adv_t = keep(mask_t, log_probs_t, jnp.broadcast_to(adv_t, log_probs_t.shape))
    return -jnp.sum(weigh(adv_t, log_probs_t))


@stoppable
def grpo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon: ArrayLike = 0.2,
    stop_target_gradients: bool = True,
    *,
    ref_log_probs_t: ArrayLike | None = None,
    kl_weight: ArrayLike = 0.04,
) -> Array:
    """GRPO's loss of one answer: -1/|y| Σ_t [min(ρ_t A, clip(ρ_t, 1 - ε, 1 + ε) A) - β k3_t].

    Here ρ_t = π(y_t) / π_old(y_t), and k3_t estimates KL(π ‖ π_ref) (`rlx.kl_k3`). Average over the group for the
    paper's objective. From "DeepSeekMath", Shao et al. 2024 (https://arxiv.org/abs/2402.03300). Where π = π_old, as in
    the first pass over new samples, its gradient is that of -A times the mean of the log-probabilities.

    Args:
      log_probs_t: log-probabilities of the tokens under the policy that learns, floats [T].
      old_log_probs_t: those under the policy that sampled them, floats [T].
      adv_t: advantage of the answer, number [], see `rlx.group_relative_advantages`; or of each token, numbers [T].
      mask_t: mask [T], false for tokens that do not count (prompt, padding), whatever they hold. By default all count.
      epsilon: ε ≥ 0, number [].
      stop_target_gradients: whether all but `log_probs_t` are constants to gradients.
      ref_log_probs_t: log-probabilities under the reference policy, floats [T]; without it there is no penalty.
      kl_weight: β ≥ 0, number [].

    Returns:
      The loss, float []; 0 if no token counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over sequences with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> round(float(rlx.grpo_loss(old + jnp.log(jnp.array([2.0, 0.9])), old, 1.0)), 4)
      -1.05
    """
    return masked_mean(
        *_token_losses(
            "grpo_loss",
            log_probs_t,
            old_log_probs_t,
            adv_t,
            mask_t,
            epsilon,
            stop_target_gradients,
            ref_log_probs_t,
            kl_weight,
        )
    )


@stoppable
def dr_grpo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon: ArrayLike = 0.2,
    stop_target_gradients: bool = True,
    *,
    max_length: int | None = None,
    ref_log_probs_t: ArrayLike | None = None,
    kl_weight: ArrayLike = 0.04,
) -> Array:
    """Dr. GRPO's loss of one answer: the terms of `grpo_loss`, summed and divided by a constant, not by the length.

    -1/L Σ_t [min(ρ_t A, clip(ρ_t, 1 - ε, 1 + ε) A) - β k3_t]

    Dividing by each answer's own length makes wrong answers longer; one constant L for all answers does not. From
    "Understanding R1-Zero-Like Training: A Critical Perspective", Liu et al. 2025 (https://arxiv.org/abs/2503.20783).
    Its advantages come from `rlx.group_relative_advantages(rewards, scale_by_std=False)`.

    Args:
      log_probs_t: log-probabilities of the tokens under the policy that learns, floats [T].
      old_log_probs_t: those under the policy that sampled them, floats [T].
      adv_t: advantage of the answer, number [], or of each token, numbers [T].
      mask_t: mask [T], false for tokens that do not count (prompt, padding), whatever they hold. By default all count.
      epsilon: ε ≥ 0, number [].
      stop_target_gradients: whether all but `log_probs_t` are constants to gradients.
      max_length: L, a positive number of tokens, the same for all answers; by default T, counting masked tokens too.
      ref_log_probs_t: log-probabilities under the reference policy, floats [T]; without it there is no penalty.
      kl_weight: β ≥ 0, number [].

    Returns:
      The loss, float []; 0 if no token counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over sequences with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> round(float(rlx.dr_grpo_loss(old + jnp.log(jnp.array([2.0, 0.9])), old, 1.0, max_length=10)), 4)
      -0.21
    """
    if max_length is not None:
        max_length = whole_number("dr_grpo_loss", "max_length", max_length, "a positive number of tokens")
    losses, mask = _token_losses(
        "dr_grpo_loss",
        log_probs_t,
        old_log_probs_t,
        adv_t,
        mask_t,
        epsilon,
        stop_target_gradients,
        ref_log_probs_t,
        kl_weight,
    )
    return masked_sum(losses, mask) / (max(losses.shape[0], 1) if max_length is None else max_length)


@stoppable
def gspo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon_low: ArrayLike = 3e-4,
    epsilon_high: ArrayLike = 4e-4,
    stop_target_gradients: bool = True,
) -> Array:
    """GSPO's loss of one answer, whose importance ratio is that of the whole sequence.

    -min(s A, clip(s, 1 - ε_low, 1 + ε_high) A), where s = (π(y) / π_old(y))^(1/|y|) is the geometric mean of the ratios
    of the tokens. Average over the group for the paper's objective. From "Group Sequence Policy Optimization", Zheng et
    al. 2025 (https://arxiv.org/abs/2507.18071). For a sequence of one token it is PPO's clipped surrogate.

    Args:
      log_probs_t: log-probabilities of the tokens under the policy that learns, floats [T].
      old_log_probs_t: those under the policy that sampled them, floats [T].
      adv: advantage of the answer, number [].
      mask_t: mask [T], false for tokens that do not count (prompt, padding), whatever they hold. By default all count.
      epsilon_low: ε_low ≥ 0, number [].
      epsilon_high: ε_high ≥ 0, number [].
      stop_target_gradients: whether all but `log_probs_t` are constants to gradients.

    Returns:
      The loss, float []; 0 if no token counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over sequences with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> round(float(rlx.gspo_loss(old + jnp.log(jnp.array([4.0, 1.0])), old, -1.0)), 4)
      2.0
    """
    log_probs_t, old_log_probs_t, adv, epsilon_low, epsilon_high, mask_t = check(
        "gspo_loss",
        log_probs_t=(log_probs_t, "[T]", "float"),
        old_log_probs_t=(old_log_probs_t, "[T]", "float"),
        adv=(adv, "[]", "real"),
        epsilon_low=(epsilon_low, "[]", "real in [0, inf]"),
        epsilon_high=(epsilon_high, "[]", "real in [0, inf]"),
        mask_t=(given_mask(mask_t), "[] or [T]", "mask"),
    )
    old_log_probs_t, adv = maybe_stop((old_log_probs_t, adv), stop_target_gradients)
    log_probs_t, old_log_probs_t = keep(mask_t, log_probs_t, old_log_probs_t)
    counts = jnp.any(jnp.broadcast_to(mask_t.astype(bool), log_probs_t.shape))
    (adv,) = keep(counts, adv)
    ratio = jnp.exp(finite_exponent(masked_mean(log_probs_t - old_log_probs_t, mask_t)))
    return -clipped_surrogate(ratio, adv, epsilon_low, epsilon_high)


def _token_losses(
    name: str,
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None,
    epsilon: ArrayLike,
    stop: bool,
    ref_log_probs_t: ArrayLike | None,
    kl_weight: ArrayLike,
) -> tuple[Array, Array]:
    """GRPO's loss of each token [T], and the mask of those that count."""
    log_probs_t, old_log_probs_t, adv_t, epsilon, kl_weight, mask_t, *ref = check(
        name,
        log_probs_t=(log_probs_t, "[T]", "float"),
        old_log_probs_t=(old_log_probs_t, "[T]", "float"),
        adv_t=(adv_t, "[] or [T]", "real"),
        epsilon=(epsilon, "[]", "real in [0, inf]"),
        kl_weight=(kl_weight, "[]", "real in [0, inf)"),
        mask_t=(given_mask(mask_t), "[] or [T]", "mask"),
        **({} if ref_log_probs_t is None else {"ref_log_probs_t": (ref_log_probs_t, "[T]", "float")}),
    )
    old_log_probs_t, adv_t, ref = maybe_stop((old_log_probs_t, adv_t, ref), stop)
    adv_t = jnp.broadcast_to(adv_t, log_probs_t.shape)
    log_probs_t, old_log_probs_t, adv_t = keep(mask_t, log_probs_t, old_log_probs_t, adv_t)
    losses = -clipped_surrogate(jnp.exp(finite_exponent(log_probs_t - old_log_probs_t)), adv_t, epsilon, epsilon)
    if ref:
        losses = losses + weigh(kl_weight, kl_k3(log_probs_t, if_used(kl_weight, ref[0]), mask_t))
    return losses, mask_t
