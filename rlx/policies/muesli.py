"""Clipped MPO targets (CMPO), the regulariser that pulls a policy towards them, and Muesli's policy loss."""

import jax
import jax.numpy as jnp

from rlx.core.arrays import pick
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import given_mask, if_used, keep, masked_mean, rows_if_used, weigh
from rlx.core.types import Array, ArrayLike
from rlx.divergences import categorical_kl


def cmpo_policy(prior_logits: ArrayLike, adv: ArrayLike, clip_value: ArrayLike = 1.0) -> Array:
    """The clipped MPO policy: π_CMPO(a) ∝ π_prior(a) exp(clip(adv(a), -c, c)).

    Whatever the scale of the advantages, no probability changes by more than a factor exp(2 c). From "Muesli: Combining
    Improvements in Policy Optimization", Hessel et al. 2021 (https://arxiv.org/abs/2104.06159), section 4.

    Args:
      prior_logits: logits of the prior policy, floats [A]; -inf for actions that do not exist.
      adv: advantages of all actions, divided by an estimate of their standard deviation, numbers [A].
      clip_value: c ≥ 0, number [].

    Returns:
      Probabilities, floats [A].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> [round(p, 4) for p in rlx.cmpo_policy(jnp.zeros(2), jnp.array([5.0, -5.0])).tolist()]
      [0.8808, 0.1192]
    """
    prior_logits, adv, clip_value = check(
        "cmpo_policy",
        prior_logits=(prior_logits, "[A]", "float"),
        adv=(adv, "[A]", "real"),
        clip_value=(clip_value, "[]", "real in [0, inf]"),
    )
    return jnp.exp(_log_cmpo(prior_logits, adv, clip_value))


@stoppable
def cmpo_loss(
    logits: ArrayLike,
    prior_logits: ArrayLike,
    adv: ArrayLike,
    clip_value: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
) -> Array:
    """CMPO's regulariser over all actions: KL(π_CMPO ‖ π), with the policy of `rlx.cmpo_policy` as the target.

    From "Muesli: Combining Improvements in Policy Optimization", Hessel et al. 2021 (https://arxiv.org/abs/2104.06159),
    section 4.

    Args:
      logits: logits of the policy that learns, floats [A].
      prior_logits: logits of the prior policy, floats [A].
      adv: normalised advantages of all actions, numbers [A].
      clip_value: c ≥ 0, number [].
      stop_target_gradients: whether the target policy is a constant to gradients.

    Returns:
      The divergence in nats, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits = jnp.array([0.0, 1.0])
      >>> float(rlx.cmpo_loss(logits, logits, jnp.zeros(2)))
      0.0
    """
    logits, prior_logits, adv, clip_value = check(
        "cmpo_loss",
        logits=(logits, "[A]", "float"),
        prior_logits=(prior_logits, "[A]", "float"),
        adv=(adv, "[A]", "real"),
        clip_value=(clip_value, "[]", "real in [0, inf]"),
    )
    log_target = maybe_stop(_log_cmpo(prior_logits, adv, clip_value), stop_target_gradients)
    return categorical_kl(log_target, jax.nn.log_softmax(logits))


@stoppable
def sampled_cmpo_loss(
    sample_log_probs: ArrayLike,
    sample_adv: ArrayLike,
    clip_value: ArrayLike = 1.0,
    initial_normalizer: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
) -> Array:
    """CMPO's regulariser from sampled actions: -1/N Σ_i exp(clip(adv_i, -c, c)) / z_i · log π(a_i).

    z_i = (z_init + Σ_{k≠i} exp(clip(adv_k, -c, c))) / N estimates the normaliser from the other samples, so that it
    does not depend on a_i. In expectation it is, up to a constant, KL(π_CMPO ‖ π). From "Muesli: Combining Improvements
    in Policy Optimization", Hessel et al. 2021 (https://arxiv.org/abs/2104.06159), section 4.

    Args:
      sample_log_probs: log π(a_i) of actions sampled from the prior policy, under the policy that learns, floats [N].
      sample_adv: their normalised advantages, numbers [N].
      clip_value: c ≥ 0, number [].
      initial_normalizer: z_init ≥ 0, number []; a guess of the normaliser.
      stop_target_gradients: whether the advantages are constants to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sampled_cmpo_loss(jnp.array([-1.0, -3.0]), jnp.zeros(2)))
      2.0
    """
    sample_log_probs, sample_adv, clip_value, initial_normalizer = check(
        "sampled_cmpo_loss",
        sample_log_probs=(sample_log_probs, "[N]", "float"),
        sample_adv=(sample_adv, "[N]", "real"),
        clip_value=(clip_value, "[]", "real in [0, inf]"),
        initial_normalizer=(initial_normalizer, "[]", "real in [0, inf)"),
    )
    gains = jnp.exp(jnp.clip(maybe_stop(sample_adv, stop_target_gradients), -clip_value, clip_value))
    normalizers = (initial_normalizer + jnp.sum(gains) - gains) / max(gains.shape[0], 1)
    return -masked_mean(weigh(gains / normalizers, sample_log_probs), jnp.array(True))


@stoppable
def muesli_policy_loss(
    logits_t: ArrayLike,
    a_t: ArrayLike,
    adv_t: ArrayLike,
    rho_t: ArrayLike,
    prior_logits_t: ArrayLike,
    q_adv_t: ArrayLike,
    kl_weight: ArrayLike = 1.0,
    clip_value: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
) -> Array:
    """Muesli's policy loss: a policy gradient, regularised towards the clipped MPO policy.

    mean_t of -min(ρ̄, ρ_t) A_t log π_t(a_t) + λ KL(π_CMPO,t ‖ π_t), with `rlx.cmpo_loss` over all actions; where there
    are too many of them put `rlx.sampled_cmpo_loss` in its place. From "Muesli: Combining Improvements in Policy
    Optimization", Hessel et al. 2021 (https://arxiv.org/abs/2104.06159), section 4.

    Args:
      logits_t: logits of the policy that learns, floats [T, A].
      a_t: actions taken, integers [T].
      adv_t: A_t, normalised advantages of the actions taken, return minus value, numbers [T].
      rho_t: ρ_t, importance ratios of the actions, of the policy that learns over the one that acted, numbers [T];
        constants to gradients.
      prior_logits_t: logits of the prior (target network) policy, floats [T, A].
      q_adv_t: normalised advantages of all actions, from the model, numbers [T, A].
      kl_weight: λ ≥ 0, number [].
      clip_value: c ≥ 0, number [].
      clip_rho_threshold: ρ̄ ≥ 0, number [].
      stop_target_gradients: whether advantages, and the CMPO policy, are constants to gradients.
      mask_t: mask [T], false for steps that do not count, whatever they hold. By default all count.

    Returns:
      The loss, float []; 0 if no step counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits, a_t, one = jnp.zeros([1, 2]), jnp.array([0]), jnp.ones(1)
      >>> round(float(rlx.muesli_policy_loss(logits, a_t, one, one, logits, jnp.zeros([1, 2]))), 4)
      0.6931
    """
    logits_t, a_t, adv_t, rho_t, prior_logits_t, q_adv_t, kl_weight, clip_value, threshold, mask_t = check(
        "muesli_policy_loss",
        logits_t=(logits_t, "[T, A]", "float"),
        a_t=(a_t, "[T]", "int"),
        adv_t=(adv_t, "[T]", "real"),
        rho_t=(rho_t, "[T]", "real"),
        prior_logits_t=(prior_logits_t, "[T, A]", "float"),
        q_adv_t=(q_adv_t, "[T, A]", "real"),
        kl_weight=(kl_weight, "[]", "real in [0, inf)"),
        clip_value=(clip_value, "[]", "real in [0, inf]"),
        clip_rho_threshold=(clip_rho_threshold, "[]", "real in [0, inf]"),
        mask_t=(given_mask(mask_t), "[] or [T]", "mask"),
    )
    mask_t = jnp.broadcast_to(mask_t, a_t.shape)
    adv_t, rho_t = keep(mask_t, adv_t, rho_t)
    logits_t, prior_logits_t, q_adv_t = keep(mask_t[:, None], logits_t, prior_logits_t, q_adv_t)
    prior_logits_t, q_adv_t = rows_if_used(kl_weight, prior_logits_t), rows_if_used(kl_weight, q_adv_t)
    log_target_t = maybe_stop(_log_cmpo(prior_logits_t, q_adv_t, clip_value), stop_target_gradients)
    log_pi_t = jax.nn.log_softmax(logits_t)
    weight_t = jax.lax.stop_gradient(jnp.minimum(rho_t, threshold)) * maybe_stop(adv_t, stop_target_gradients)
    pg_t = -weigh(weight_t, pick(log_pi_t, a_t))
    kl_t = categorical_kl(log_target_t, if_used(kl_weight, log_pi_t))
    return masked_mean(pg_t + weigh(kl_weight, kl_t), mask_t)


def _log_cmpo(prior_logits: Array, adv: Array, clip_value: Array) -> Array:
    """log π_CMPO [..., A]; the advantage of an action that the prior never takes may be anything."""
    adv = if_used(prior_logits > -jnp.inf, adv)
    return jax.nn.log_softmax(prior_logits + jnp.clip(adv, -clip_value, clip_value))
