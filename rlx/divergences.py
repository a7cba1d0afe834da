"""Functions of probabilities, logits and Gaussian parameters: sampling, cross entropy, divergences, ratios."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.arguments import require_for_each
from rlx.core.arrays import half_square, pick_action, scale_down
from rlx.core.errors import RankError, ShapeError
from rlx.core.masking import masked, weighted_sum
from rlx.core.operator import operator
from rlx.core.sampling import categorical
from rlx.core.tracing import traced_once
from rlx.core.types import Array, ArrayLike, Key


@operator()
def categorical_sample(key: Key, probs: Real[Array, "*E A"]) -> Int[Array, "*E"]:
    """Samples an index from discrete probabilities.

    Args:
      key: a key of `jax.random`, typed or raw.
      probs: non-negative; they need not sum to one.

    Returns:
      Indices in [0, A), of JAX's default integer dtype, or -1 where `probs` is not a distribution: where an entry is
      negative, NaN or infinite, or all are zero.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> int(rlx.categorical_sample(jax.random.key(0), jnp.array([0.0, 1.0, 0.0])))
      1
    """
    valid = jnp.all((probs >= 0) & jnp.isfinite(probs), axis=-1) & jnp.any(probs > 0, axis=-1)
    return jnp.where(valid, categorical(key, jnp.log(probs)), -1)


@operator()
def categorical_cross_entropy(labels: Real[Array, "*#E A"], logits: Real[Array, "*#E A"]) -> Float[Array, "*E"]:
    """Cross entropy of a softmax against labels: -Σ_i p_i log softmax(logits)_i with p = labels / Σ_i labels_i.

    A term whose label is 0 contributes 0 even if its logit is -inf; if all labels are 0, the cross entropy is 0.

    Args:
      labels: non-negative, such as probabilities or visit counts.
      logits: unnormalised log-probabilities.

    Returns:
      The cross entropies.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.categorical_cross_entropy(jnp.array([1.0, 0.0]), jnp.array([0.0, 0.0]))), 4)
      0.6931
    """
    total = jnp.sum(labels, axis=-1, keepdims=True)
    probs = labels / jnp.where(total == 0, jnp.ones_like(total), total)
    return -weighted_sum(probs, jax.nn.log_softmax(logits), axis=-1)


@operator()
def categorical_kl_divergence(
    p_logits: Real[Array, "*#E A"],
    q_logits: Real[Array, "*#E A"],
    temperature: Real[Array | float, "", "*P", "in (0, inf]"] = 1.0,
) -> Float[Array, "*E"]:
    """Kullback-Leibler divergence of two softmaxes: Σ_i p_i (log p_i - log q_i), p = softmax(p_logits / temperature).

    Args:
      p_logits: unnormalised log-probabilities.
      q_logits: unnormalised log-probabilities.
      temperature: divisor of both logits.

    Returns:
      The divergences, non-negative.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.categorical_kl_divergence(jnp.array([1.0, 2.0]), jnp.array([2.0, 3.0])))
      0.0
    """
    require_for_each("temperature", temperature, "p_logits", p_logits)
    log_p, log_q = (jax.nn.log_softmax(scale_down(x, temperature)) for x in (p_logits, q_logits))
    return categorical_kl(log_p, log_q)


@operator()
def generalized_jensen_shannon_divergence(
    p_logits: Real[Array, "*#E A"],
    q_logits: Real[Array, "*#E A"],
    beta: Real[Array | float, "", "in (0, 1)"] = 0.5,
) -> Float[Array, "*E"]:
    """Generalised Jensen-Shannon divergence of two softmaxes: β KL(p ‖ m) + (1 - β) KL(q ‖ m), m = β p + (1 - β) q.

    For on-policy distillation, on answers sampled by the student, p is the teacher and q the student: "On-Policy
    Distillation of Language Models: Learning from Self-Generated Mistakes", Agarwal et al. 2023
    (https://arxiv.org/abs/2306.13649). Divided by β it tends to KL(p ‖ q) as β → 0, and divided by 1 - β to KL(q ‖ p)
    as β → 1; for these limits see `rlx.categorical_kl_divergence`.

    Args:
      p_logits: unnormalised log-probabilities.
      q_logits: unnormalised log-probabilities.
      beta: β, between 0 and 1; ½ is the Jensen-Shannon divergence.

    Returns:
      The divergences, non-negative.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> certain = jnp.array([0.0, -jnp.inf])
      >>> round(float(rlx.generalized_jensen_shannon_divergence(certain, certain[::-1])), 4)  # log 2
      0.6931
    """
    log_p, log_q = jax.nn.log_softmax(p_logits), jax.nn.log_softmax(q_logits)
    mixture = beta * jnp.exp(log_p) + (1 - beta) * jnp.exp(log_q)
    log_m = jnp.log(jnp.where(mixture > 0, mixture, 1))  # outcomes impossible under both do not count
    return beta * categorical_kl(log_p, log_m) + (1 - beta) * categorical_kl(log_q, log_m)


@operator()
def categorical_importance_sampling_ratios(
    pi_logits_t: Real[Array, "*#E A"], mu_logits_t: Real[Array, "*#E A"], a_t: Int[Array, "*#E", "in [-1, A)"]
) -> Float[Array, "*E"]:
    """Importance ratios of actions: π(a_t) / μ(a_t) for softmax policies π and μ.

    Args:
      pi_logits_t: logits of the target policy.
      mu_logits_t: logits of the behaviour policy.
      a_t: actions; the ratio is NaN for other numbers, such as -1.

    Returns:
      The ratios.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits = jnp.array([0.0, 1.0])
      >>> float(rlx.categorical_importance_sampling_ratios(logits, logits, 1))
      1.0
    """
    log_ratios_t = jax.nn.log_softmax(pi_logits_t) - jax.nn.log_softmax(mu_logits_t)
    shape = jnp.broadcast_shapes(log_ratios_t.shape[:-1], a_t.shape)
    log_ratios_t = jnp.broadcast_to(log_ratios_t, shape + log_ratios_t.shape[-1:])
    return jnp.exp(pick_action(log_ratios_t, jnp.broadcast_to(a_t, shape), jnp.nan))


@operator()
def multivariate_normal_kl_divergence(
    mu_0: Real[Array, "*#E"],
    sigma_0: Real[Array, "*#E"],
    mu_1: Real[Array, "*#E"],
    sigma_1: Real[Array, "*#E"],
) -> Float[Array, "*E"]:
    """Kullback-Leibler divergence of two Gaussians with diagonal covariance.

    KL = Σ_i [log(σ₁ᵢ / σ₀ᵢ) + (σ₀ᵢ² + (μ₀ᵢ - μ₁ᵢ)²) / (2 σ₁ᵢ²) - ½]

    Args:
      mu_0: mean of the first.
      sigma_0: standard deviations of the first; their sign does not count.
      mu_1: mean of the second.
      sigma_1: standard deviations of the second; their sign does not count.

    Returns:
      The divergences, non-negative.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one = jnp.ones(2)
      >>> float(rlx.multivariate_normal_kl_divergence(0 * one, one, one, one))
      1.0
    """
    require_events({"mu_0": mu_0, "mu_1": mu_1}, {"sigma_0": sigma_0, "sigma_1": sigma_1})
    sigma_0, sigma_1 = (jnp.asarray(x, jnp.result_type(x, float)) for x in (sigma_0, sigma_1))
    # Divided before it is squared: the square of a small deviation would be 0.
    return jnp.sum(_divergence_of_deviations(sigma_0, sigma_1) + half_square((mu_0 - mu_1) / sigma_1), axis=-1)


def _growth(sigma_0: Array, sigma_1: Array) -> tuple[Array, Array, Array]:
    """r - 1 for r = |σ₀ / σ₁|, precise also where r is nearly 1; r; and where that is so."""
    size_0, size_1 = (jnp.where(x < 0, -x, x) for x in (sigma_0, sigma_1))
    ratio = size_0 / size_1
    is_near = jnp.abs(ratio - 1) < 0.5
    return jnp.where(is_near, (size_0 - size_1) / size_1, ratio - 1), ratio, is_near


@jax.custom_jvp
@traced_once
def _divergence_of_deviations(sigma_0: Array, sigma_1: Array) -> Array:
    """½ (r² - 1) - log r for r = |σ₀ / σ₁|, precise also where r is nearly 1."""
    growth, ratio, is_near = _growth(sigma_0, sigma_1)
    log_ratio = jnp.where(is_near, jnp.log1p(jnp.where(is_near, growth, 0)), jnp.log(jnp.where(is_near, 1, ratio)))
    return 0.5 * growth * (growth + 2) - log_ratio


def _gradient_in_log_ratio(sigma_0: Array, sigma_1: Array) -> Array:
    """r² - 1, the gradient in log r."""
    growth, _, _ = _growth(sigma_0, sigma_1)
    return growth * (growth + 2)


_divergence_of_deviations.defjvps(
    lambda dot, _, sigma_0, sigma_1: _gradient_in_log_ratio(sigma_0, sigma_1) * (dot / sigma_0),
    lambda dot, _, sigma_0, sigma_1: -_gradient_in_log_ratio(sigma_0, sigma_1) * (dot / sigma_1),
)


def require_events(means: dict[str, Array], deviations: dict[str, Array], function: str = "") -> None:
    """Requires that Gaussians have an event axis, the last, which has one length: that of the means.

    Deviations may have the length 1 there. Means may not, for they would be spread to events that nobody asked for.
    """
    before = f"{function}: " if function else ""
    for name, x in means.items():
        if x.ndim == 0:
            raise RankError(f"{before}argument `{name}` has rank 0 (shape []), expected shape [*E, D].")
    first, length = next((name, mean.shape[-1]) for name, mean in means.items())
    for name, x in {**means, **deviations}.items():
        if x.ndim and x.shape[-1] != length and (name in means or x.shape[-1] != 1):
            raise ShapeError(
                f"{before}argument `{name}` has shape {list(x.shape)}, expected a last axis of length {length}, that "
                f"of `{first}`, along which the Gaussian's dimensions lie."
            )


def log_deviation(sigma: Array) -> Array:
    """log |σ|: a network without a bound may return negative deviations, and the Gaussian is the same."""
    return jnp.log(jnp.abs(sigma))


def categorical_entropy(log_probs: Array) -> Array:
    """Entropy of log-probabilities [..., A]: -Σ_i p_i log p_i, where impossible outcomes count 0."""
    probs = jnp.exp(log_probs)
    # Where a probability underflows to 0, its logarithm times the slope of the result may overflow, and 0 · ∞ is NaN.
    return -weighted_sum(probs, masked(probs != 0, log_probs), axis=-1)


@traced_once
def categorical_kl(log_p: Array, log_q: Array) -> Array:
    """Kullback-Leibler divergence of log-probabilities [..., A], where outcomes impossible under p count 0."""
    probs = jnp.exp(log_p)
    possible = probs != 0
    difference = jnp.where(possible, log_p, 0.0) - jnp.where(possible, log_q, 0.0)
    return weighted_sum(probs, difference, axis=-1)


def scaled_log_policy(q: Array, temperature: ArrayLike) -> Array:
    """τ log softmax(q / τ) of [A]. Subtracts the largest value first, so that small τ and large q lose no precision."""
    gap = q - jax.lax.stop_gradient(jnp.max(q))
    return gap - temperature * jax.nn.logsumexp(scale_down(gap, temperature))
