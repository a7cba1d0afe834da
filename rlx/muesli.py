"""Muesli: clipped MPO (CMPO) policies, the regulariser towards them, and sampled policy targets."""

from __future__ import annotations

from typing import Annotated, Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Mask, Number, Real
from rlx.core.arguments import require, require_broadcast, require_parts
from rlx.core.arrays import pick_action
from rlx.core.masking import masked, masked_mean, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.trees import Record, record
from rlx.core.types import Array, ArrayLike, in_one_dtype
from rlx.divergences import categorical_kl


@operator()
def cmpo_policy(
    prior_logits: Float[Array, "A"],
    adv: Real[Array, "A"],
    clip_value: Real[Array | float, "", "in [0, inf]"] = 1.0,
) -> Float[Array, "A"]:
    """The clipped MPO policy: π_CMPO(a) ∝ π_prior(a) exp(clip(adv(a), -c, c)).

    No probability changes by more than a factor exp(2 c), whatever the scale of the advantages. From "Muesli: Combining
    Improvements in Policy Optimization", Hessel et al. 2021 (https://arxiv.org/abs/2104.06159), section 4.

    Args:
      prior_logits: logits of the prior policy; -inf for actions that do not exist.
      adv: advantages of all actions, divided by an estimate of their standard deviation.
      clip_value: c ≥ 0.

    Returns:
      Probabilities.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> [round(p, 4) for p in rlx.cmpo_policy(jnp.zeros(2), jnp.array([5.0, -5.0])).tolist()]
      [0.8808, 0.1192]
    """
    return jnp.exp(_log_cmpo(prior_logits, adv, clip_value))


@operator()
def cmpo_loss(
    logits: Float[Array, "A"],
    prior_logits: Float[Array, "A"],
    adv: Real[Array, "A"],
    clip_value: Real[Array | float, "", "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """CMPO's regulariser over all actions: KL(π_CMPO ‖ π), with the policy of `rlx.cmpo_policy` as the target.

    From "Muesli: Combining Improvements in Policy Optimization", Hessel et al. 2021 (https://arxiv.org/abs/2104.06159),
    section 4.

    Args:
      logits: logits of the current policy.
      prior_logits: logits of the prior policy.
      adv: normalised advantages of all actions.
      clip_value: c ≥ 0.
      stop_target_gradients: whether to stop gradients through the target policy.

    Returns:
      The divergence in nats.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits = jnp.array([0.0, 1.0])
      >>> float(rlx.cmpo_loss(logits, logits, jnp.zeros(2)))
      0.0
    """
    log_target = maybe_stop(_log_cmpo(prior_logits, adv, clip_value), stop_target_gradients)
    return categorical_kl(log_target, jax.nn.log_softmax(logits))


@operator()
def sampled_cmpo_loss(
    sample_log_probs: Float[Array, "N"],
    sample_adv: Real[Array, "N"],
    clip_value: Real[Array | float, "", "in [0, inf]"] = 1.0,
    initial_normalizer: Real[Array | float, "", "in [0, inf)"] = 1.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """CMPO's regulariser from sampled actions: -1/N Σ_i exp(clip(adv_i, -c, c)) / z_i · log π(a_i).

    z_i = (z_init + Σ_{k≠i} exp(clip(adv_k, -c, c))) / N estimates the normaliser from the other samples, so that it
    does not depend on a_i. In expectation the loss is KL(π_CMPO ‖ π) up to a constant. From "Muesli: Combining
    Improvements in Policy Optimization", Hessel et al. 2021 (https://arxiv.org/abs/2104.06159), section 4.

    Args:
      sample_log_probs: log π(a_i) under the current policy, of actions sampled from the prior policy.
      sample_adv: normalised advantages of these actions.
      clip_value: c ≥ 0.
      initial_normalizer: z_init ≥ 0; an initial guess of the normaliser.
      stop_target_gradients: whether to stop gradients through the advantages.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sampled_cmpo_loss(jnp.array([-1.0, -3.0]), jnp.zeros(2)))
      2.0
    """
    gains = jnp.exp(jnp.clip(maybe_stop(sample_adv, stop_target_gradients), -clip_value, clip_value))
    normalizers = (initial_normalizer + jnp.sum(gains) - gains) / max(gains.shape[0], 1)
    return -jnp.mean(weighted(gains / normalizers, sample_log_probs))


@operator(
    masks={
        "mask_t": ("logits_t", "adv_t", "rho_t", "prior_logits_t", "q_adv_t"),
        "kl_weight": ("prior_logits_t", "q_adv_t"),
    }
)
def muesli_policy_loss(
    logits_t: Float[Array, "T A"],
    a_t: Int[Array, "T", "in [-1, A) where mask_t"],
    adv_t: Real[Array, "T"],
    rho_t: Real[Array, "T"],
    prior_logits_t: Float[Array, "T A"],
    q_adv_t: Real[Array, "T A"],
    kl_weight: Real[Array | float, "", "in [0, inf)"] = 1.0,
    clip_value: Real[Array | float, "", "in [0, inf]"] = 1.0,
    clip_rho_threshold: Real[Array | float, "", "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """Muesli's policy loss: a policy gradient, regularised towards the clipped MPO policy.

    mean_t of -min(ρ̄, ρ_t) A_t log π_t(a_t) + λ KL(π_CMPO,t ‖ π_t), with `rlx.cmpo_loss` over all actions; if there are
    too many, use `rlx.sampled_cmpo_loss` instead. From "Muesli: Combining Improvements in Policy Optimization", Hessel
    et al. 2021 (https://arxiv.org/abs/2104.06159), section 4.

    Args:
      logits_t: logits of the current policy.
      a_t: actions taken.
      adv_t: A_t, normalised advantages of the actions taken, return minus value.
      rho_t: ρ_t, importance ratios of the actions, current policy over behaviour policy; gradients are stopped.
      prior_logits_t: logits of the prior (target network) policy.
      q_adv_t: normalised advantages of all actions, from the model.
      kl_weight: λ ≥ 0.
      clip_value: c ≥ 0.
      clip_rho_threshold: ρ̄ ≥ 0.
      stop_target_gradients: whether to stop gradients through the advantages and the CMPO policy.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits, a_t, one = jnp.zeros([1, 2]), jnp.array([0]), jnp.ones(1)
      >>> round(float(rlx.muesli_policy_loss(logits, a_t, one, one, logits, jnp.zeros([1, 2]))), 4)
      0.6931
    """
    log_target_t = maybe_stop(_log_cmpo(prior_logits_t, q_adv_t, clip_value), stop_target_gradients)
    log_pi_t = jax.nn.log_softmax(logits_t)
    clipped_rho_t = jax.lax.stop_gradient(jnp.minimum(rho_t, clip_rho_threshold))
    kl_t = categorical_kl(log_target_t, masked(jnp.asarray(kl_weight), log_pi_t))
    pg_t = -weighted(clipped_rho_t * maybe_stop(adv_t, stop_target_gradients), pick_action(log_pi_t, a_t, -jnp.inf))
    return masked_mean(pg_t + weighted(kl_weight, kl_t), mask_t)


@runtime_checkable
class ActionDistribution(Protocol):
    """The interface of a distribution over actions, which those of distrax and TensorFlow Probability provide."""

    def log_prob(self, value: Any, /) -> Any:
        """Log-probabilities of actions."""
        ...


@record
class PolicyTarget(Record):
    """Actions, and the weight with which to imitate each.

    Args:
      actions: sampled actions [N, ...].
      weights: weights of the actions, floats [N, ...] of the shape of their log-probabilities.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> target = rlx.PolicyTarget(actions=jnp.array([0, 1]), weights=jnp.ones(2))
      >>> target.replace(weights=jnp.zeros(2)).weights.tolist()
      [0.0, 0.0]
    """

    actions: Any
    weights: Any


@operator()
def sampled_policy_distillation_loss(
    distribution: ActionDistribution,
    policy_targets: PolicyTarget,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Cross entropy of a policy against weighted samples: mean of -weights · log π(actions).

    Args:
      distribution: anything with a method `log_prob(actions)`.
      policy_targets: the actions to imitate, with their weights.
      stop_target_gradients: whether to stop gradients through the actions and weights.

    Returns:
      The loss. A sample of weight 0 is ignored, even if it is NaN.

    Example:
      >>> import types
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> policy = types.SimpleNamespace(log_prob=lambda a: jnp.log(jnp.array([0.5, 0.5]))[a])
      >>> target = rlx.PolicyTarget(actions=jnp.array([0, 1]), weights=jnp.ones(2))
      >>> round(float(rlx.sampled_policy_distillation_loss(policy, target)), 4)
      0.6931
    """
    require_parts("policy_targets", policy_targets, PolicyTarget._fields(), "a `rlx.PolicyTarget`")
    require_parts("distribution", distribution, ["log_prob"], "a distribution, with a method `log_prob(actions)`")
    given = policy_targets.actions, policy_targets.weights
    actions, weights = maybe_stop(given, stop_target_gradients)
    require(weights is not None, "policy_targets.weights", None, "an array")
    weights = jnp.asarray(weights)
    actions = jax.tree.map(lambda x: _if_used(weights, x), actions)
    log_probs = jnp.asarray(distribution.log_prob(actions))
    require_broadcast(**{"policy_targets.actions": log_probs, "policy_targets.weights": weights})
    return -jnp.mean(weighted(*in_one_dtype(weights, log_probs)))


@operator()
def constant_policy_targets(
    distribution: Any,
    rng_key: Array,
    num_samples: Annotated[int, "a number of actions"],
    weights_scale: Number[Array | float, "", "*W"] = 1.0,
) -> PolicyTarget:
    """Targets sampled from a distribution, all with the same weight.

    Samples from a uniform distribution regularise a policy towards it, more strongly for larger weights.

    Args:
      distribution: anything with methods `sample(seed=key, sample_shape=...)` and `log_prob(actions)`.
      rng_key: a key of `jax.random`.
      num_samples: N, the number of actions to sample.
      weights_scale: the weight.

    Returns:
      A `PolicyTarget` with actions [N, ...] and constant weights of the shape of their log-probabilities, in the dtype
      of `weights_scale` if it is an array of floats, otherwise in JAX's default floating dtype.

    Example:
      >>> import types
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> coin = types.SimpleNamespace(
      ...     sample=lambda seed, sample_shape: jax.random.bernoulli(seed, shape=sample_shape).astype(int),
      ...     log_prob=lambda a: jnp.full(a.shape, jnp.log(0.5)))
      >>> rlx.constant_policy_targets(coin, jax.random.key(0), 3, 2.0).weights.tolist()
      [2.0, 2.0, 2.0]
    """
    methods = "a distribution, with methods `sample(seed=key, sample_shape=...)` and `log_prob(actions)`"
    require_parts("distribution", distribution, ["sample", "log_prob"], methods)
    require(num_samples >= 0, "num_samples", num_samples, "a number of actions")
    actions = distribution.sample(seed=rng_key, sample_shape=(num_samples,))
    log_probs = distribution.log_prob(actions)
    require_broadcast(log_probs=log_probs, weights_scale=weights_scale)
    dtype = jnp.result_type(weights_scale) if isinstance(weights_scale, jax.Array) else float
    ones = jnp.ones(jnp.shape(log_probs), dtype if jnp.issubdtype(dtype, jnp.floating) else float)
    return PolicyTarget(actions, weights_scale * ones)


@operator()
def zero_policy_targets(
    distribution: Any,
    rng_key: Array,
    num_samples: Annotated[int, "a number of actions"],
    *,
    weights_scale: Number[Array | float, "", "*W"] = 0.0,
) -> PolicyTarget:
    """Targets sampled from a distribution with zero weights, which have no effect: placeholders of the right shapes.

    Args:
      distribution: anything with methods `sample(seed=key, sample_shape=...)` and `log_prob(actions)`.
      rng_key: a key of `jax.random`.
      num_samples: N, the number of actions to sample.
      weights_scale: the weight.

    Returns:
      A `PolicyTarget` with actions [N, ...] and weights of the shape of their log-probabilities.

    Example:
      >>> import types
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> coin = types.SimpleNamespace(
      ...     sample=lambda seed, sample_shape: jax.random.bernoulli(seed, shape=sample_shape).astype(int),
      ...     log_prob=lambda a: jnp.full(a.shape, jnp.log(0.5)))
      >>> rlx.zero_policy_targets(coin, jax.random.key(0), 2).weights.tolist()
      [0.0, 0.0]
    """
    return constant_policy_targets.kernel(distribution, rng_key, num_samples, weights_scale)


def _log_cmpo(prior_logits: Array, adv: Array, clip_value: Array | float) -> Array:
    """log π_CMPO [..., A]; advantages of actions with prior probability 0 are ignored."""
    adv = masked(prior_logits > -jnp.inf, adv)
    return jax.nn.log_softmax(prior_logits + jnp.clip(adv, -clip_value, clip_value))


def _if_used(weights: Array, actions: ArrayLike) -> Array:
    """The actions [*W, ...], with 0 in place of non-finite ones whose weight [*W] is 0."""
    actions = jnp.asarray(actions)
    if not jnp.issubdtype(actions.dtype, jnp.floating) or actions.shape[: weights.ndim] != weights.shape:
        return actions
    return masked(weights.reshape(weights.shape + (1,) * (actions.ndim - weights.ndim)), actions)
