"""Plain functions of probabilities, logits and Gaussian parameters: sampling, cross entropy, divergences, ratios."""

import jax
import jax.numpy as jnp

from rlx.core.arrays import pick, scale_down
from rlx.core.checks import check, check_broadcast, check_numbers
from rlx.core.masking import weigh
from rlx.core.types import Array, ArrayLike


def categorical_sample(key: Array, probs: ArrayLike) -> Array:
    """Samples an index from discrete probabilities.

    Args:
      key: a key of `jax.random`, typed or raw.
      probs: non-negative numbers [..., A]; they need not sum to one.

    Returns:
      Integers [...] in [0, A), of dtype int32, or -1 where `probs` is no distribution: where an entry is negative, NaN
      or infinite, or all are zero.

    Raises:
      ArgumentError: if `probs` is a scalar or not an array.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> int(rlx.categorical_sample(jax.random.key(0), jnp.array([0.0, 1.0, 0.0])))
      1
    """
    (probs,) = check("categorical_sample", probs=(probs, "[*E, A]", "real"))
    total = jnp.sum(probs, axis=-1)
    valid = jnp.all(probs >= 0, axis=-1) & (total > 0) & jnp.isfinite(total)
    return jnp.where(valid, jax.random.categorical(key, jnp.log(probs)), -1)


def categorical_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> Array:
    """Cross entropy of a softmax against labels: -Σ_i p_i log softmax(logits)_i with p = labels / Σ_i labels_i.

    A term whose label is 0 counts 0 even where its logit is -inf, and so do labels that are all 0.

    Args:
      labels: non-negative numbers [..., A], for instance probabilities, or counts of visits.
      logits: unnormalised log-probabilities [..., A].

    Returns:
      Float array [...].

    Raises:
      ArgumentError: if the lengths along the last axis differ, or an argument is not numbers.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.categorical_cross_entropy(jnp.array([1.0, 0.0]), jnp.array([0.0, 0.0]))), 4)
      0.6931
    """
    name = "categorical_cross_entropy"
    check(name, labels=(labels, "[*L, A]", "real"), logits=(logits, "[*E, A]", "real"))
    labels, logits = check_broadcast(name, labels=(labels, "real"), logits=(logits, "real"))
    total = jnp.sum(labels, axis=-1, keepdims=True)
    labels = labels / jnp.where(total == 0, jnp.ones_like(total), total)
    return -jnp.sum(weigh(labels, jax.nn.log_softmax(logits)), axis=-1)


def categorical_kl_divergence(p_logits: ArrayLike, q_logits: ArrayLike, temperature: ArrayLike = 1.0) -> Array:
    """Kullback-Leibler divergence of two softmaxes: Σ_i p_i (log p_i - log q_i), p = softmax(p_logits / temperature).

    Args:
      p_logits: unnormalised log-probabilities [..., A].
      q_logits: unnormalised log-probabilities [..., A].
      temperature: positive number that divides both.

    Returns:
      Float array [...], not negative.

    Raises:
      ArgumentError: if the lengths along the last axis differ, or an argument is not numbers.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.categorical_kl_divergence(jnp.array([1.0, 2.0]), jnp.array([2.0, 3.0])))
      0.0
    """
    name = "categorical_kl_divergence"
    check(name, p_logits=(p_logits, "[*P, A]", "real"), q_logits=(q_logits, "[*Q, A]", "real"))
    p_logits, q_logits = check_broadcast(name, p_logits=(p_logits, "real"), q_logits=(q_logits, "real"))
    check_numbers(name, temperature=(temperature, "(0, inf]"))
    log_p, log_q = (jax.nn.log_softmax(scale_down(x, temperature)) for x in (p_logits, q_logits))
    return categorical_kl(log_p, log_q)


def categorical_importance_sampling_ratios(pi_logits_t: ArrayLike, mu_logits_t: ArrayLike, a_t: ArrayLike) -> Array:
    """Importance ratios of actions: π(a_t) / μ(a_t) for softmax policies π and μ.

    Args:
      pi_logits_t: logits of the target policy [..., A].
      mu_logits_t: logits of the behaviour policy [..., A].
      a_t: actions, integers [...].

    Returns:
      Float array [...]; leading axes broadcast.

    Raises:
      ArgumentError: if the shapes do not broadcast, or `a_t` does not hold integers.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits = jnp.array([0.0, 1.0])
      >>> float(rlx.categorical_importance_sampling_ratios(logits, logits, 1))
      1.0
    """
    name = "categorical_importance_sampling_ratios"
    pi_logits_t, mu_logits_t, a_t = check(
        name,
        pi_logits_t=(pi_logits_t, "[*P, A]", "real"),
        mu_logits_t=(mu_logits_t, "[*M, A]", "real"),
        a_t=(a_t, "[*E]", "int"),
    )
    pi_logits_t, mu_logits_t, a_t = check_broadcast(
        name, pi_logits_t=(pi_logits_t, "real"), mu_logits_t=(mu_logits_t, "real"), a_t=(a_t[..., None], "int")
    )
    log_ratios_t = jax.nn.log_softmax(pi_logits_t) - jax.nn.log_softmax(mu_logits_t)
    a_t = jnp.broadcast_to(a_t, jnp.broadcast_shapes(log_ratios_t.shape[:-1] + (1,), a_t.shape))
    return jnp.exp(pick(jnp.broadcast_to(log_ratios_t, a_t.shape[:-1] + log_ratios_t.shape[-1:]), a_t[..., 0]))


def multivariate_normal_kl_divergence(
    mu_0: ArrayLike, sigma_0: ArrayLike, mu_1: ArrayLike, sigma_1: ArrayLike
) -> Array:
    """Kullback-Leibler divergence of two Gaussians with diagonal covariance.

    KL = Σ_i [log(σ₁ᵢ / σ₀ᵢ) + (σ₀ᵢ² + (μ₀ᵢ - μ₁ᵢ)²) / (2 σ₁ᵢ²) - ½]

    Args:
      mu_0: mean of the first [..., D].
      sigma_0: standard deviations of the first, positive, broadcast against `mu_0`.
      mu_1: mean of the second [..., D].
      sigma_1: standard deviations of the second, positive, broadcast against `mu_1`.

    Returns:
      Float array [...], not negative.

    Raises:
      ArgumentError: if the shapes do not broadcast, or a mean is a scalar.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one = jnp.ones(2)
      >>> float(rlx.multivariate_normal_kl_divergence(0 * one, one, one, one))
      1.0
    """
    name = "multivariate_normal_kl_divergence"
    check(name, mu_0=(mu_0, "[*P, D]", "real"), mu_1=(mu_1, "[*Q, D]", "real"))
    mu_0, sigma_0, mu_1, sigma_1 = check_broadcast(
        name, mu_0=(mu_0, "real"), sigma_0=(sigma_0, "real"), mu_1=(mu_1, "real"), sigma_1=(sigma_1, "real")
    )
    spread = jnp.log(sigma_1) - jnp.log(sigma_0)
    distance = (jnp.square(sigma_0) + jnp.square(mu_0 - mu_1)) / (2.0 * jnp.square(sigma_1))
    return jnp.sum(spread + distance - 0.5, axis=-1)


def categorical_entropy(log_probs: Array) -> Array:
    """Entropy of log-probabilities [..., A]: -Σ_i p_i log p_i, where impossible outcomes count 0."""
    return -jnp.sum(weigh(jnp.exp(log_probs), log_probs), axis=-1)


def categorical_kl(log_p: Array, log_q: Array) -> Array:
    """Kullback-Leibler divergence of log-probabilities [..., A], where outcomes impossible under p count 0."""
    possible = log_p > -jnp.inf
    difference = jnp.where(possible, log_p, 0.0) - jnp.where(possible, log_q, 0.0)
    return jnp.sum(weigh(jnp.exp(log_p), difference), axis=-1)


def scaled_log_policy(q: Array, temperature: ArrayLike) -> Array:
    """τ log softmax(q / τ) of [A], with the largest value taken out first: neither small τ nor large q cost digits."""
    gap = q - jax.lax.stop_gradient(jnp.max(q))
    return gap - temperature * jax.nn.logsumexp(scale_down(gap, temperature))
