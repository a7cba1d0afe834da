"""Distributions over actions: small trees of parameters with methods.

The objects are frozen dataclasses registered with JAX, so they can be closed over, passed to and returned from `jit`,
`vmap` and `scan`. Samples are bit-identical to `jax.random.categorical` and `jax.random.normal` with the same key.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.arrays import pick, scale_down
from rlx.core.checks import check, check_broadcast, require
from rlx.core.types import Array, ArrayLike, Scalar
from rlx.divergences import (
    categorical_entropy,
    categorical_kl_divergence,
    categorical_sample,
    multivariate_normal_kl_divergence,
)

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EpsilonGreedy:
    """The best action with probability 1 - ε, a uniformly random one with probability ε; see `rlx.epsilon_greedy`.

    Actions that tie for the best share its probability. Each method's `epsilon` takes the place of the field.
    """

    epsilon: Any = None

    def probs(self, preferences: ArrayLike, epsilon: ArrayLike | None = None) -> Array:
        """Probabilities [..., A] of actions with preferences [..., A], for instance action values."""
        (preferences,) = check("epsilon_greedy.probs", preferences=(preferences, "[*E, A]", "real"))
        epsilon = self.epsilon if epsilon is None else epsilon
        require("epsilon_greedy", "epsilon", epsilon is not None, None, "a number, when made or when called")
        epsilon = jnp.asarray(epsilon, preferences.dtype)
        best = (preferences == jnp.max(preferences, axis=-1, keepdims=True)).astype(preferences.dtype)
        best = best / jnp.sum(best, axis=-1, keepdims=True)
        return (1 - epsilon) * best + epsilon / preferences.shape[-1]

    def sample(self, key: Array, preferences: ArrayLike, epsilon: ArrayLike | None = None) -> Array:
        """Actions, integers [...]."""
        return categorical_sample(key, self.probs(preferences, epsilon))

    def logprob(self, sample: ArrayLike, preferences: ArrayLike, epsilon: ArrayLike | None = None) -> Array:
        """Log-probabilities [...] of the actions `sample`, integers [...]."""
        return jnp.log(_picked("epsilon_greedy", sample, self.probs(preferences, epsilon)))

    def entropy(self, preferences: ArrayLike, epsilon: ArrayLike | None = None) -> Array:
        """Entropies [...] in nats."""
        probs = self.probs(preferences, epsilon)
        return -jnp.sum(probs * jnp.log(jnp.where(probs > 0, probs, 1)), axis=-1)

    def kl(self, p_preferences: ArrayLike, q_preferences: ArrayLike, epsilon: ArrayLike | None = None) -> Array:
        """Kullback-Leibler divergences [...] between the policies of two preferences."""
        p, q = self.probs(p_preferences, epsilon), self.probs(q_preferences, epsilon)
        return jnp.sum(p * (jnp.log(jnp.where(p > 0, p, 1)) - jnp.log(jnp.where(p > 0, q, 1))), axis=-1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Softmax:
    """Probabilities proportional to exp(logits / temperature); see `rlx.softmax` and `rlx.clipped_entropy_softmax`.

    `action_spec` is accepted, for a common interface with continuous policies, and not used.
    """

    temperature: Any = 1.0
    entropy_clip: Any = None

    def sample(self, key: Array, logits: ArrayLike, action_spec: Any = None) -> Array:
        """Actions, integers [...], for logits [..., A]."""
        return jax.random.categorical(key, self._scaled("sample", logits))

    def probs(self, logits: ArrayLike, action_spec: Any = None) -> Array:
        """Probabilities [..., A]."""
        return jax.nn.softmax(self._scaled("probs", logits))

    def logprob(self, sample: ArrayLike, logits: ArrayLike, action_spec: Any = None) -> Array:
        """Log-probabilities [...] of the actions `sample`, integers [...]."""
        return _picked("softmax", sample, jax.nn.log_softmax(self._scaled("logprob", logits)))

    def entropy(self, logits: ArrayLike) -> Array:
        """Entropies [...] in nats, at most `entropy_clip` times the largest possible."""
        scaled = self._scaled("entropy", logits)
        entropy = categorical_entropy(jax.nn.log_softmax(scaled))
        if self.entropy_clip is None:
            return entropy
        return jnp.minimum(entropy, self.entropy_clip * jnp.log(jnp.asarray(scaled.shape[-1], scaled.dtype)))

    def kl(self, p_logits: ArrayLike, q_logits: ArrayLike) -> Array:
        """Kullback-Leibler divergences [...] between the policies of two logits."""
        return categorical_kl_divergence(p_logits, q_logits, self.temperature)

    def _scaled(self, method: str, logits: ArrayLike) -> Array:
        (logits,) = check(f"softmax.{method}", logits=(logits, "[*E, A]", "real"))
        return scale_down(logits, jnp.asarray(self.temperature, logits.dtype))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DiagonalGaussian:
    """Independent Gaussians along the last axis; see `rlx.gaussian_diagonal`.

    `sigma` broadcasts against `mu` [..., D]; the field is used where a method is not given one.
    """

    sigma: Any = None

    def sample(self, key: Array, mu: ArrayLike, sigma: ArrayLike | None = None) -> Array:
        """Actions [..., D]."""
        mu, sigma = self._parameters("sample", mu, sigma)
        return mu + sigma * jax.random.normal(key, jnp.broadcast_shapes(mu.shape, sigma.shape), mu.dtype)

    def prob(self, sample: ArrayLike, mu: ArrayLike, sigma: ArrayLike | None = None) -> Array:
        """Densities [...] of the actions `sample` [..., D]."""
        return jnp.exp(self.logprob(sample, mu, sigma))

    def logprob(self, sample: ArrayLike, mu: ArrayLike, sigma: ArrayLike | None = None) -> Array:
        """Log-densities [...] of the actions `sample` [..., D]."""
        mu, sigma = self._parameters("logprob", mu, sigma)
        return _normal_logprob(
            *check_broadcast(
                "gaussian_diagonal.logprob", sample=(sample, "real"), mu=(mu, "float"), sigma=(sigma, "float")
            )
        )

    def entropy(self, mu: ArrayLike, sigma: ArrayLike | None = None) -> Array:
        """Differential entropies [...] in nats: Σ_i [½ + ½ log 2π + log σ_i]."""
        mu, sigma = self._parameters("entropy", mu, sigma)
        return jnp.sum(
            0.5 + _HALF_LOG_TAU + jnp.log(jnp.broadcast_to(sigma, jnp.broadcast_shapes(mu.shape, sigma.shape))), axis=-1
        )

    def kl_to_standard_normal(self, mu: ArrayLike, sigma: ArrayLike | None = None) -> Array:
        """Kullback-Leibler divergences [...] to a Gaussian of mean 0 and standard deviation 1."""
        mu, sigma = self._parameters("kl_to_standard_normal", mu, sigma)
        return multivariate_normal_kl_divergence(mu, sigma, jnp.zeros_like(mu), jnp.ones_like(sigma))

    def kl(self, mu_0: ArrayLike, sigma_0: ArrayLike | None, mu_1: ArrayLike, sigma_1: ArrayLike | None) -> Array:
        """Kullback-Leibler divergences [...] between two such Gaussians."""
        mu_0, sigma_0 = self._parameters("kl", mu_0, sigma_0)
        mu_1, sigma_1 = self._parameters("kl", mu_1, sigma_1)
        return multivariate_normal_kl_divergence(mu_0, sigma_0, mu_1, sigma_1)

    def _parameters(self, method: str, mu: ArrayLike, sigma: ArrayLike | None) -> tuple[Array, Array]:
        function = f"gaussian_diagonal.{method}"
        sigma = self.sigma if sigma is None else sigma
        require(function, "sigma", sigma is not None, None, "standard deviations, when made or when called")
        check(function, mu=(mu, "[*E, D]", "float"))
        mu, sigma = check_broadcast(function, mu=(mu, "float"), sigma=(sigma, "real"))
        return mu, sigma


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SquashedGaussian:
    """A Gaussian pushed through tanh into the bounds of an action; see `rlx.squashed_gaussian`.

    `mu` and `sigma` [..., D] are unbounded network outputs: the Gaussian's mean is tanh(mu), its log standard deviation
    moves from `sigma_min` to `sigma_max` with ½ (tanh(sigma) + 1). `action_spec` has the attributes `minimum` and
    `maximum`, as dm_env's bounded arrays do. `entropy` and the divergences are those of the Gaussian before tanh.
    """

    sigma_min: Any = -4.0
    sigma_max: Any = 0.0

    def sample(self, key: Array, mu: ArrayLike, sigma: ArrayLike, action_spec: Any) -> Array:
        """Actions [..., D] between the bounds of `action_spec`."""
        mu, sigma = self._gaussian("sample", mu, sigma)
        action = jnp.tanh(DiagonalGaussian().sample(key, mu, sigma))
        low, half_range = _bounds(action, action_spec)
        return low + half_range * (action + 1)

    def prob(self, sample: ArrayLike, mu: ArrayLike, sigma: ArrayLike, action_spec: Any) -> Array:
        """Densities [...] of the actions `sample` [..., D]."""
        return jnp.exp(self.logprob(sample, mu, sigma, action_spec))

    def logprob(self, sample: ArrayLike, mu: ArrayLike, sigma: ArrayLike, action_spec: Any) -> Array:
        """Log-densities [...] of the actions `sample` [..., D]; an action on its bound counts as just inside."""
        mu, sigma = self._gaussian("logprob", mu, sigma)
        sample, mu, sigma = check_broadcast(
            "squashed_gaussian.logprob", sample=(sample, "real"), mu=(mu, "float"), sigma=(sigma, "float")
        )
        low, half_range = _bounds(sample, action_spec)
        limit = 1 - jnp.finfo(sample.dtype).epsneg
        squashed = jnp.clip((sample - low) / half_range - 1, -limit, limit)
        log_slope = jnp.log1p(-jnp.square(squashed)) + jnp.log(half_range)
        return _normal_logprob(jnp.arctanh(squashed), mu, sigma) - jnp.sum(log_slope, axis=-1)

    def entropy(self, mu: ArrayLike, sigma: ArrayLike) -> Array:
        """Differential entropies [...] of the Gaussian, in nats."""
        return DiagonalGaussian().entropy(*self._gaussian("entropy", mu, sigma))

    def kl_to_standard_normal(self, mu: ArrayLike, sigma: ArrayLike) -> Array:
        """Kullback-Leibler divergences [...] of the Gaussian to one of mean 0 and standard deviation 1."""
        return DiagonalGaussian().kl_to_standard_normal(*self._gaussian("kl_to_standard_normal", mu, sigma))

    def kl(self, mu_0: ArrayLike, sigma_0: ArrayLike, mu_1: ArrayLike, sigma_1: ArrayLike) -> Array:
        """Kullback-Leibler divergences [...] between two of the Gaussians."""
        return DiagonalGaussian().kl(*self._gaussian("kl", mu_0, sigma_0), *self._gaussian("kl", mu_1, sigma_1))

    def _gaussian(self, method: str, mu: ArrayLike, sigma: ArrayLike) -> tuple[Array, Array]:
        function = f"squashed_gaussian.{method}"
        check(function, mu=(mu, "[*E, D]", "float"))
        mu, sigma = check_broadcast(function, mu=(mu, "float"), sigma=(sigma, "float"))
        log_sigma = self.sigma_min + 0.5 * (self.sigma_max - self.sigma_min) * (jnp.tanh(sigma) + 1)
        return jnp.tanh(mu), jnp.exp(log_sigma)


def greedy() -> EpsilonGreedy:
    """The policy that takes the best action; actions that tie for the best are equally likely.

    Returns:
      A distribution with methods `sample(key, preferences)`, `probs(preferences)`, `logprob(sample, preferences)`,
      `entropy(preferences)` and `kl(p_preferences, q_preferences)`, for preferences [..., A].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.greedy().probs(jnp.array([1.0, 3.0, 3.0])).tolist()
      [0.0, 0.5, 0.5]
    """
    return EpsilonGreedy(0.0)


def epsilon_greedy(epsilon: ArrayLike | None = None) -> EpsilonGreedy:
    """The policy π(a) = (1 - ε) greedy(a) + ε / A: mostly the best action, sometimes a uniformly random one.

    Args:
      epsilon: ε in [0, 1], a number or a traced scalar; may be left out here and given to each method instead.

    Returns:
      A distribution with methods `sample(key, preferences, epsilon)`, `probs(preferences, epsilon)`,
      `logprob(sample, preferences, epsilon)`, `entropy(preferences, epsilon)` and `kl`, for preferences [..., A].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.epsilon_greedy(0.5).probs(jnp.array([1.0, 2.0])).tolist()
      [0.25, 0.75]
    """
    return EpsilonGreedy(epsilon)


def softmax(temperature: ArrayLike = 1.0) -> Softmax:
    """The policy π(a) ∝ exp(logits_a / temperature).

    Args:
      temperature: positive number; lower is greedier.

    Returns:
      A distribution with methods `sample(key, logits)`, `probs(logits)`, `logprob(sample, logits)`,
      `entropy(logits)` and `kl(p_logits, q_logits)`, for logits [..., A].

    Raises:
      OptionError: if the temperature is the number 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.softmax().probs(jnp.array([0.0, 0.0])).tolist()
      [0.5, 0.5]
    """
    return Softmax(_not_zero("softmax", temperature))


def clipped_entropy_softmax(temperature: ArrayLike = 1.0, entropy_clip: ArrayLike = 1.0) -> Softmax:
    """A softmax policy whose entropy is clipped, so that an entropy bonus stops once a policy is random enough.

    H_clip = min(H, entropy_clip · log A)

    Args:
      temperature: positive number that divides the logits.
      entropy_clip: fraction of the largest entropy; 1 does not clip.

    Returns:
      A distribution with the methods of `rlx.softmax`.

    Raises:
      OptionError: if the temperature is the number 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> policy = rlx.clipped_entropy_softmax(entropy_clip=0.5)
      >>> bool(policy.entropy(jnp.zeros(4)) == 0.5 * jnp.log(4.0))
      True
    """
    return Softmax(_not_zero("clipped_entropy_softmax", temperature), entropy_clip)


def gaussian_diagonal(sigma: ArrayLike | None = None) -> DiagonalGaussian:
    """Gaussian policies with diagonal covariance: a ~ N(μ, diag(σ²)).

    Args:
      sigma: standard deviations that broadcast against the means; may be left out here and given to each method.

    Returns:
      A distribution with methods `sample(key, mu, sigma)`, `prob(sample, mu, sigma)`, `logprob(sample, mu, sigma)`,
      `entropy(mu, sigma)`, `kl_to_standard_normal(mu, sigma)` and `kl(mu_0, sigma_0, mu_1, sigma_1)`, for means
      [..., D]; the last axis is one event.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.gaussian_diagonal(1.0).logprob(jnp.zeros(1), jnp.zeros(1))), 4)
      -0.9189
    """
    return DiagonalGaussian(sigma)


def squashed_gaussian(sigma_min: ArrayLike = -4, sigma_max: ArrayLike = 0.0) -> SquashedGaussian:
    """Gaussian policies squashed by tanh into the bounds of an action space.

    u ~ N(tanh(mu), s²) with log s = sigma_min + ½ (sigma_max - sigma_min)(tanh(sigma) + 1), and the action is
    minimum + ½ (maximum - minimum)(tanh(u) + 1).

    Args:
      sigma_min: lowest log standard deviation.
      sigma_max: highest log standard deviation.

    Returns:
      A distribution with methods `sample(key, mu, sigma, action_spec)`, `prob(sample, mu, sigma, action_spec)`,
      `logprob(sample, mu, sigma, action_spec)`, and of the Gaussian before tanh `entropy(mu, sigma)`,
      `kl_to_standard_normal(mu, sigma)` and `kl(mu_0, sigma_0, mu_1, sigma_1)`, for network outputs [..., D].
      `action_spec` has the attributes `minimum` and `maximum`.

    Example:
      >>> import types
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> spec = types.SimpleNamespace(minimum=-2.0, maximum=2.0)
      >>> action = rlx.squashed_gaussian().sample(jax.random.key(0), jnp.zeros(1), jnp.zeros(1), spec)
      >>> bool(abs(action[0]) <= 2.0)
      True
    """
    return SquashedGaussian(sigma_min, sigma_max)


def _not_zero(function: str, temperature: ArrayLike) -> ArrayLike:
    zero = isinstance(temperature, Scalar) and temperature == 0
    require(function, "temperature", not zero, temperature, "a positive number; its limit is rlx.greedy()")
    return temperature


def _picked(function: str, sample: ArrayLike, of_actions: Array) -> Array:
    """The entries [...] of the actions `sample` in [..., A]."""
    (sample,) = check(f"{function}.logprob", sample=(sample, "[*S]", "int"))
    shape = jnp.broadcast_shapes(sample.shape, of_actions.shape[:-1])
    return pick(jnp.broadcast_to(of_actions, shape + of_actions.shape[-1:]), jnp.broadcast_to(sample, shape))


def _normal_logprob(sample: Array, mu: Array, sigma: Array) -> Array:
    scaled = (sample - mu) / sigma
    log_sigma = jnp.broadcast_to(jnp.log(sigma), scaled.shape)
    return jnp.sum(-0.5 * jnp.square(scaled) - log_sigma - _HALF_LOG_TAU, axis=-1)


def _bounds(like: Array, action_spec: Any) -> tuple[Array, Array]:
    low, high = jnp.asarray(action_spec.minimum, like.dtype), jnp.asarray(action_spec.maximum, like.dtype)
    _, low, high = check_broadcast(
        "squashed_gaussian", action=(like, "float"), minimum=(low, "float"), maximum=(high, "float")
    )
    return low, 0.5 * (high - low)
