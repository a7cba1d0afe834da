"""Policy targets: sampled actions with weights, for a policy to be distilled into."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, weigh
from rlx.core.trees import Record, record
from rlx.core.types import Array, ArrayLike


class ActionDistribution(Protocol):
    """What a distribution over actions must offer; those of distrax and TensorFlow Probability do."""

    def log_prob(self, value: Any, /) -> Any:
        """Log-probabilities of actions."""
        ...


@record
class PolicyTarget(Record):
    """Actions, and how much each should be imitated.

    Args:
      actions: sampled actions [N, ...].
      weights: their weights, floats [N, ...] of the shape of their log-probabilities.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> target = rlx.PolicyTarget(actions=jnp.array([0, 1]), weights=jnp.ones(2))
      >>> target.replace(weights=jnp.zeros(2)).weights.tolist()
      [0.0, 0.0]
    """

    actions: Any
    weights: Any


@stoppable
def sampled_policy_distillation_loss(
    distribution: ActionDistribution, policy_targets: PolicyTarget, stop_target_gradients: bool = True
) -> Array:
    """Cross entropy of a policy against weighted samples: mean of -weights · log π(actions).

    Args:
      distribution: anything with a method `log_prob(actions)`.
      policy_targets: what to imitate.
      stop_target_gradients: whether actions and weights are constants to gradients.

    Returns:
      The loss, float []. A sample of weight 0 counts nothing, whatever it is.

    Example:
      >>> import types
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> policy = types.SimpleNamespace(log_prob=lambda a: jnp.log(jnp.array([0.5, 0.5]))[a])
      >>> target = rlx.PolicyTarget(actions=jnp.array([0, 1]), weights=jnp.ones(2))
      >>> round(float(rlx.sampled_policy_distillation_loss(policy, target)), 4)
      0.6931
    """
    policy_targets = maybe_stop(policy_targets, stop_target_gradients)
    weights = jnp.asarray(policy_targets.weights)
    actions = jax.tree.map(lambda x: _if_used(weights, x), policy_targets.actions)
    return -jnp.mean(weigh(weights, distribution.log_prob(actions)))


def constant_policy_targets(
    distribution: Any, rng_key: Array, num_samples: int, weights_scale: float = 1.0
) -> PolicyTarget:
    """Targets sampled from a distribution, all with one weight.

    Samples of a uniform distribution make a target that pulls a policy towards it, the more the larger the weight.

    Args:
      distribution: anything with methods `sample(seed=key, sample_shape=...)` and `log_prob(actions)`.
      rng_key: a key of `jax.random`.
      num_samples: number N of actions to sample.
      weights_scale: the weight.

    Returns:
      A `PolicyTarget` with actions [N, ...] and constant weights of the shape of their log-probabilities, in the dtype
      of `weights_scale` or, of a Python number, JAX's default.

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
    actions = distribution.sample(seed=rng_key, sample_shape=(num_samples,))
    log_probs = distribution.log_prob(actions)
    return PolicyTarget(actions, weights_scale * jnp.ones(jnp.shape(log_probs)))


def zero_policy_targets(
    distribution: Any, rng_key: Array, num_samples: int, *, weights_scale: float = 0.0
) -> PolicyTarget:
    """Targets sampled from a distribution with zero weights, which teach nothing: placeholders of the right shapes.

    Args:
      distribution: anything with methods `sample(seed=key, sample_shape=...)` and `log_prob(actions)`.
      rng_key: a key of `jax.random`.
      num_samples: number N of actions to sample.
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
    return constant_policy_targets(distribution, rng_key, num_samples, weights_scale)


def _if_used(weights: Array, actions: ArrayLike) -> Array:
    """The actions [*W, ...], but 0 where their weight [*W] is 0 and they are no finite numbers."""
    actions = jnp.asarray(actions)
    if not jnp.issubdtype(actions.dtype, jnp.floating) or actions.shape[: weights.ndim] != weights.shape:
        return actions
    return if_used(weights.reshape(weights.shape + (1,) * (actions.ndim - weights.ndim)), actions)
