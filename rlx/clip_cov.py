"""Clip-Cov and KL-Cov: losses that hold back the tokens which lower the entropy most."""

from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arrays import lhs_broadcast
from rlx.core.masking import counts_of, finite_exponent, masked_mean, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array, AxisName
from rlx.grpo import aggregated
from rlx.ppo import clipped_surrogate


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv", "uniform_t")})
def clip_cov_loss(
    log_probs_t: Float[Array, "G T"],
    old_log_probs_t: Float[Array, "G T"],
    adv: Real[Array, "G", "G T"],
    uniform_t: Real[Array, "G T"],
    mask_t: Mask[Array, "", "G T"] | None = None,
    fraction: Real[Array | float, "", "in [0, 1]"] = 2e-4,
    min_covariance: Real[Array | float, ""] = 1.0,
    max_covariance: Real[Array | float, ""] = 5.0,
    epsilon_low: Real[Array | float, "", "in [0, inf]"] = 0.2,
    epsilon_high: Real[Array | float, "", "in [0, inf]"] = 0.2,
    stop_target_gradients: bool = True,
    *,
    aggregation: str = "token_mean",
    normalizer: Real[Array | float, "", "in (0, inf)"] | None = None,
    axis_name: AxisName = None,
) -> Float[Array, ""]:
    """Clip-Cov's loss of answers: PPO's clipped surrogate, without some tokens whose covariance is large.

    -1/N Σ_t [t ∉ I] min(ρ_t A_t, clip(ρ_t, 1 - ε_low, 1 + ε_high) A_t), with ρ_t = π(y_t) / π_old(y_t). The covariance
    of a token is (log π(y_t) - mean log π) (A_t - mean A), with means over all N tokens; large ones lower the entropy.
    I contains a random max(⌊fraction N⌋, 1) of the tokens between the two bounds whose ratio is not clipped. From "The
    Entropy Mechanism of Reinforcement Learning for Reasoning Language Models", Cui et al. 2025
    (https://arxiv.org/abs/2505.22617).

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv: advantages of the answers, or one advantage per token.
      uniform_t: random numbers, such as `jax.random.uniform(key, log_probs_t.shape)`: of the candidates, those
        with the smallest numbers are left out.
      mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      fraction: the share of tokens to leave out, in [0, 1]; at least one is, if any lies between the bounds.
      min_covariance: lower bound of the covariance.
      max_covariance: upper bound of the covariance.
      epsilon_low: ε_low ≥ 0.
      epsilon_high: ε_high ≥ 0.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.
      aggregation: as for `rlx.dapo_loss`. A token that is left out counts in a mean.
      normalizer: as for `rlx.dapo_loss`.
      axis_name: as for `rlx.dapo_loss`.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([[-1.0, -4.0], [-1.0, -4.0]])  # covariances 1.5, -1.5, -1.5, 1.5
      >>> uniform = jnp.array([[0.9, 0.5], [0.1, 0.2]])  # in a program, jax.random.uniform(key, old.shape)
      >>> float(rlx.clip_cov_loss(old, old, jnp.array([1.0, -1.0]), uniform))  # without the last token
      -0.25
    """
    old_log_probs_t, adv = maybe_stop((old_log_probs_t, adv), stop_target_gradients)
    ratio_t = jnp.exp(finite_exponent(log_probs_t - old_log_probs_t))
    adv_t = jnp.broadcast_to(lhs_broadcast.kernel(adv, ratio_t), ratio_t.shape)
    surrogate_t = clipped_surrogate(ratio_t, adv_t, epsilon_low, epsilon_high)
    counts_t = counts_of(mask_t, ratio_t.shape)
    covariance_t = _covariances(log_probs_t, adv_t, counts_t)
    inside_t = (covariance_t > min_covariance) & (covariance_t < max_covariance)
    may_t = counts_t & inside_t & (surrogate_t >= ratio_t * adv_t)
    left_out_t = _least(uniform_t, may_t, _number(fraction, counts_t))
    return aggregated(jnp.where(left_out_t, 0, -surrogate_t), mask_t, aggregation, normalizer, axis_name)


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv")})
def kl_cov_loss(
    log_probs_t: Float[Array, "G T"],
    old_log_probs_t: Float[Array, "G T"],
    adv: Real[Array, "G", "G T"],
    mask_t: Mask[Array, "", "G T"] | None = None,
    fraction: Real[Array | float, "", "in [0, 1]"] = 2e-3,
    kl_weight: Real[Array | float, "", "in [0, inf)"] = 1.0,
    stop_target_gradients: bool = True,
    *,
    aggregation: str = "token_mean",
    normalizer: Real[Array | float, "", "in (0, inf)"] | None = None,
    axis_name: AxisName = None,
) -> Float[Array, ""]:
    """KL-Cov's loss of answers: the policy gradient without a clip, with a penalty on tokens of the largest covariance.

    -1/N Σ_t (ρ_t A_t - [t ∈ I] β |log ρ_t|), with ρ_t = π(y_t) / π_old(y_t). I contains the max(⌊fraction N⌋, 1) tokens
    whose (log π(y_t) - mean log π) (A_t - mean A) is largest, with means over all N tokens; these lower the entropy
    most. From "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models", Cui et al. 2025
    (https://arxiv.org/abs/2505.22617), whose code estimates the divergence of a token by |log ρ_t|.

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv: advantages of the answers, or one advantage per token.
      mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      fraction: the share of tokens with the penalty, in [0, 1]; at least one has it.
      kl_weight: β ≥ 0.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.
      aggregation: as for `rlx.dapo_loss`.
      normalizer: as for `rlx.dapo_loss`.
      axis_name: as for `rlx.dapo_loss`.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([[-1.0, -4.0], [-1.0, -2.0]])
      >>> loss = rlx.kl_cov_loss(old + jnp.log(0.5), old, jnp.array([1.0, -1.0]))  # a penalty on the first token
      >>> round(float(loss), 4)  # log(2) / 4
      0.1733
    """
    old_log_probs_t, adv = maybe_stop((old_log_probs_t, adv), stop_target_gradients)
    log_ratio_t = log_probs_t - old_log_probs_t
    adv_t = jnp.broadcast_to(lhs_broadcast.kernel(adv, log_ratio_t), log_ratio_t.shape)
    counts_t = counts_of(mask_t, log_ratio_t.shape)
    covariance_t = _covariances(log_probs_t, adv_t, counts_t)
    penalised_t = _least(-covariance_t, counts_t, _number(fraction, counts_t))
    penalty_t = jnp.where(penalised_t, weighted(kl_weight, jnp.abs(log_ratio_t)), 0)
    losses_t = penalty_t - jnp.exp(finite_exponent(log_ratio_t)) * adv_t
    return aggregated(losses_t, mask_t, aggregation, normalizer, axis_name)


def _covariances(log_probs_t: Array, adv_t: Array, counts_t: Array) -> Array:
    """The product of both, less their means over the tokens that count; a constant to gradients."""
    product_t = (log_probs_t - masked_mean(log_probs_t, counts_t)) * (adv_t - masked_mean(adv_t, counts_t))
    return jax.lax.stop_gradient(product_t)


def _number(fraction: Any, counts_t: Array) -> Array:
    total = jnp.asarray(fraction).astype(jnp.float32) * jnp.sum(counts_t).astype(jnp.float32)
    return jnp.maximum(jnp.floor(total).astype(jnp.int32), 1)


def _least(score_t: Array, may_t: Array, number: Array) -> Array:
    """Marks the `number` entries with the least scores among those that may be chosen."""
    rank = jnp.argsort(jnp.argsort(jnp.where(may_t, score_t, jnp.inf).ravel()))
    return may_t & (rank.reshape(score_t.shape) < number)
