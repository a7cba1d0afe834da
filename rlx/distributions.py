"""Distributions over discrete actions: small trees of parameters with methods.

The objects are frozen dataclasses registered with JAX, so they can be closed over, passed to and returned from `jit`,
`vmap` and `scan`. Samples are bit-identical to `jax.random.categorical` with the same key, in float32 for
logits of half precision.

Parameters (logits, preferences, means) are passed to each method, as in RLax, or once, when the policy is created. In
that case it is a distribution like those of distrax, with `sample(seed=key, sample_shape=(n,))` and
`log_prob(actions)`, and can be used wherever an operator takes a `distribution`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.annotations import Int, Real
from rlx.core.arguments import as_arrays, require_broadcast, require_for_each
from rlx.core.arrays import one_hot, pick_action, scale_down
from rlx.core.sampling import categorical, either, key_and_shape
from rlx.core.types import Array, ArrayLike
from rlx.divergences import categorical_entropy, categorical_kl_divergence, categorical_sample

_TEMPERATURE = Real[Array, "*T", "in (0, inf]"]
_ENTROPY_CLIP = Real[Array, "*C", "in [0, inf]"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EpsilonGreedy:
    """The best action with probability 1 - ε, a uniformly random one with probability ε; see `rlx.epsilon_greedy`.

    Tied best actions share the probability. An argument passed to a method overrides the field.
    """

    epsilon: Any = None
    preferences: Any = None

    def probs(self, preferences: ArrayLike | None = None, epsilon: ArrayLike | None = None) -> Array:
        """Probabilities [..., A] of actions with preferences [..., A], such as action values."""
        return self._probs("probs", "preferences", preferences, epsilon)

    def _probs(self, method: str, argument: str, preferences: ArrayLike | None, epsilon: ArrayLike | None) -> Array:
        name = f"epsilon_greedy.{method}"
        wanted = {
            argument: (either(name, argument, preferences, self.preferences), Real[Array, "*E A"]),
            "epsilon": (either(name, "epsilon", epsilon, self.epsilon), Real[Array, "*P", "in [0, 1]"]),
        }
        q, epsilon = as_arrays(name, **wanted)
        require_for_each("epsilon", epsilon, argument, q, name)
        epsilon = epsilon.astype(q.dtype)
        highest = jnp.max(q, axis=-1, keepdims=True)
        # XLA may compute `q` anew for each use, and round it otherwise there: then none equals the highest.
        first = one_hot.kernel(jnp.argmax(q, axis=-1), q.shape[-1], bool)
        best = (first | (q == highest)).astype(q.dtype)
        greedy = jnp.where(jnp.isnan(highest), highest, best / jnp.sum(best, axis=-1, keepdims=True))
        possible, number = _possible(q)
        return (1 - epsilon) * greedy + jnp.where(possible, epsilon / number, 0)

    def sample(
        self,
        key: Array | int | None = None,
        preferences: ArrayLike | None = None,
        epsilon: ArrayLike | None = None,
        *,
        seed: Array | int | None = None,
        sample_shape: Sequence[int] | int = (),
    ) -> Array:
        """Actions, integers [*sample_shape, ...]; `seed` is an alias of `key`."""
        key, shape = key_and_shape("epsilon_greedy.sample", key, seed, sample_shape)
        probs = self.probs(preferences, epsilon)
        return categorical_sample.kernel(key, jnp.broadcast_to(probs, shape + probs.shape))

    def logprob(
        self, sample: ArrayLike, preferences: ArrayLike | None = None, epsilon: ArrayLike | None = None
    ) -> Array:
        """Log-probabilities [...] of the actions `sample`, integers [...]; -inf for other numbers, such as -1."""
        return jnp.log(_picked("epsilon_greedy", sample, 0.0, preferences=self.probs(preferences, epsilon)))

    log_prob = logprob

    def entropy(self, preferences: ArrayLike | None = None, epsilon: ArrayLike | None = None) -> Array:
        """Entropies [...] in nats."""
        probs = self.probs(preferences, epsilon)
        return -jnp.sum(probs * jnp.log(jnp.where(probs > 0, probs, 1)), axis=-1)

    def kl(self, p_preferences: ArrayLike, q_preferences: ArrayLike, epsilon: ArrayLike | None = None) -> Array:
        """Kullback-Leibler divergences [...] between the policies given by two sets of preferences."""
        p = self._probs("kl", "p_preferences", p_preferences, epsilon)
        q = self._probs("kl", "q_preferences", q_preferences, epsilon)
        both = {"p_preferences": (p, Real[Array, "*#E A"]), "q_preferences": (q, Real[Array, "*#E A"])}
        p, q = as_arrays("epsilon_greedy.kl", **both)
        return jnp.sum(p * (jnp.log(jnp.where(p > 0, p, 1)) - jnp.log(jnp.where(p > 0, q, 1))), axis=-1)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of the preferences that the policy was created with."""
        return jnp.shape(either("epsilon_greedy.batch_shape", "preferences", None, self.preferences))[:-1]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Softmax:
    """Probabilities proportional to exp(logits / temperature); see `rlx.softmax` and `rlx.clipped_entropy_softmax`.

    `action_spec` is accepted for a common interface with continuous policies, but not used.
    """

    temperature: Any
    entropy_clip: Any = None
    logits: Any = None

    def sample(
        self,
        key: Array | int | None = None,
        logits: ArrayLike | None = None,
        action_spec: Any = None,
        *,
        seed: Array | int | None = None,
        sample_shape: Sequence[int] | int = (),
    ) -> Array:
        """Actions, integers [*sample_shape, ...], for logits [..., A]; `seed` is an alias of `key`.

        The action is -1 where the logits are not a distribution: where one is NaN or infinite, or all are -inf.
        """
        key, shape = key_and_shape("softmax.sample", key, seed, sample_shape)
        scaled = self._scaled("sample", logits)
        actions = categorical(key, scaled, shape + scaled.shape[:-1])
        return jnp.where(jnp.isfinite(jnp.max(scaled, axis=-1)), actions, -1)

    def probs(self, logits: ArrayLike | None = None, action_spec: Any = None) -> Array:
        """Probabilities [..., A]."""
        return jax.nn.softmax(self._scaled("probs", logits))

    def logprob(self, sample: ArrayLike, logits: ArrayLike | None = None, action_spec: Any = None) -> Array:
        """Log-probabilities [...] of the actions `sample`, integers [...]; -inf for other numbers, such as -1."""
        return _picked("softmax", sample, -jnp.inf, logits=jax.nn.log_softmax(self._scaled("logprob", logits)))

    log_prob = logprob

    def entropy(self, logits: ArrayLike | None = None) -> Array:
        """Entropies [...] in nats, at most `entropy_clip` times the largest possible."""
        scaled = self._scaled("entropy", logits)
        entropy = categorical_entropy(jax.nn.log_softmax(scaled))
        if self.entropy_clip is None:
            return entropy
        (entropy_clip,) = as_arrays("softmax.entropy", entropy_clip=(self.entropy_clip, _ENTROPY_CLIP))
        require_broadcast(entropy=entropy, entropy_clip=entropy_clip)
        largest = jnp.log(_possible(scaled)[1][..., 0])
        return jnp.minimum(entropy, entropy_clip.astype(scaled.dtype) * largest)

    def kl(self, p_logits: ArrayLike, q_logits: ArrayLike) -> Array:
        """Kullback-Leibler divergences [...] between the policies given by two sets of logits."""
        p_logits, q_logits, temperature = as_arrays(
            "softmax.kl",
            p_logits=(p_logits, Real[Array, "*#E A"]),
            q_logits=(q_logits, Real[Array, "*#E A"]),
            temperature=(self.temperature, _TEMPERATURE),
        )
        require_for_each("temperature", temperature, "p_logits", p_logits, "softmax.kl")
        return categorical_kl_divergence.kernel(p_logits, q_logits, temperature.astype(p_logits.dtype))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of the logits that the policy was created with."""
        return jnp.shape(either("softmax.batch_shape", "logits", None, self.logits))[:-1]

    def _scaled(self, method: str, logits: ArrayLike | None) -> Array:
        function = f"softmax.{method}"
        logits, temperature = as_arrays(
            function,
            logits=(either(function, "logits", logits, self.logits), Real[Array, "*E A"]),
            temperature=(self.temperature, _TEMPERATURE),
        )
        require_for_each("temperature", temperature, "logits", logits, function)
        return scale_down(logits, temperature.astype(logits.dtype))


def greedy(preferences: ArrayLike | None = None) -> EpsilonGreedy:
    """The policy that takes the best action; tied best actions are equally likely.

    Args:
      preferences: values of the actions; may be omitted here and passed to each method instead.

    Returns:
      A distribution with methods `sample(key, preferences)`, `probs(preferences)`, `logprob(sample, preferences)`,
      `entropy(preferences)` and `kl(p_preferences, q_preferences)`, for preferences [..., A].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.greedy().probs(jnp.array([1.0, 3.0, 3.0])).tolist()
      [0.0, 0.5, 0.5]
    """
    return EpsilonGreedy(0.0, preferences)


def epsilon_greedy(epsilon: ArrayLike | None = None, preferences: ArrayLike | None = None) -> EpsilonGreedy:
    """The policy π(a) = (1 - ε) greedy(a) + ε / A: mostly the best action, sometimes a uniformly random one.

    Args:
      epsilon: ε in [0, 1], a number or a traced scalar; may be omitted here and passed to each method instead.
      preferences: values of the A actions; may be omitted here and passed to each method instead. Actions of value -inf
        are impossible: they do not count and are not taken, unless all are.

    Returns:
      A distribution with methods `sample(key, preferences, epsilon)`, `probs(preferences, epsilon)`,
      `logprob(sample, preferences, epsilon)`, `entropy(preferences, epsilon)` and `kl`, for preferences [..., A].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.epsilon_greedy(0.5).probs(jnp.array([1.0, 2.0])).tolist()
      [0.25, 0.75]
    """
    if epsilon is not None:
        as_arrays("epsilon_greedy", epsilon=(epsilon, Real[Array, "*P", "in [0, 1]"]))
    return EpsilonGreedy(epsilon, preferences)


def softmax(temperature: ArrayLike = 1.0, logits: ArrayLike | None = None) -> Softmax:
    """The policy π(a) ∝ exp(logits_a / temperature).

    Args:
      temperature: positive number; lower is greedier; the limit at 0 is `rlx.greedy()`.
      logits: unnormalised log-probabilities; may be omitted here and passed to each method instead.

    Returns:
      A distribution with methods `sample(key, logits)`, `probs(logits)`, `logprob(sample, logits)`,
      `entropy(logits)` and `kl(p_logits, q_logits)`, for logits [..., A].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.softmax().probs(jnp.array([0.0, 0.0])).tolist()
      [0.5, 0.5]
      >>> policy = rlx.softmax(logits=jnp.array([0.0, 0.0]))
      >>> rlx.constant_policy_targets(policy, jax.random.key(0), num_samples=3).actions.shape
      (3,)
    """
    as_arrays("softmax", temperature=(temperature, _TEMPERATURE))
    return Softmax(temperature, None, logits)


def clipped_entropy_softmax(
    temperature: ArrayLike = 1.0, entropy_clip: ArrayLike = 1.0, logits: ArrayLike | None = None
) -> Softmax:
    """A softmax policy with clipped entropy, so that an entropy bonus stops once the policy is random enough.

    H_clip = min(H, entropy_clip · log A)

    Args:
      temperature: positive number that divides the logits.
      entropy_clip: fraction of the maximum entropy, at least 0; 1 means no clipping. Of A actions, those of logit -inf
        do not count.
      logits: unnormalised log-probabilities; may be omitted here and passed to each method instead.

    Returns:
      A distribution with the methods of `rlx.softmax`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> policy = rlx.clipped_entropy_softmax(entropy_clip=0.5)
      >>> bool(policy.entropy(jnp.zeros(4)) == 0.5 * jnp.log(4.0))
      True
    """
    settings = {"temperature": (temperature, _TEMPERATURE), "entropy_clip": (entropy_clip, _ENTROPY_CLIP)}
    as_arrays("clipped_entropy_softmax", **settings)
    return Softmax(temperature, entropy_clip, logits)


def _possible(preferences: Array) -> tuple[Array, Array]:
    """The possible actions, those above -inf, or all if none is; and their number [..., 1], in the same dtype."""
    possible = preferences > -jnp.inf
    possible = possible | ~jnp.any(possible, axis=-1, keepdims=True)
    return possible, jnp.sum(possible, axis=-1, keepdims=True).astype(preferences.dtype)


def _picked(function: str, sample: ArrayLike, of_none: float, **of_actions: Array) -> Array:
    """The entries [...] of the actions `sample` in [..., A], which come from the argument of this name."""
    given = {argument: (x, Real[Array, "*#E A"]) for argument, x in of_actions.items()}
    values, sample = as_arrays(f"{function}.logprob", **given, sample=(sample, Int[Array, "*#E"]))
    shape = jnp.broadcast_shapes(sample.shape, values.shape[:-1])
    return pick_action(jnp.broadcast_to(values, shape + values.shape[-1:]), jnp.broadcast_to(sample, shape), of_none)
