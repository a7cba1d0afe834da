"""Soft actor-critic's losses of the policy and of the temperature; the critic's is `rlx.sac_critic_loss`."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import weigh
from rlx.core.types import Array, ArrayLike


@stoppable
def sac_actor_loss(
    q_t: ArrayLike, log_prob_t: ArrayLike, temperature: ArrayLike, stop_target_gradients: bool = True
) -> Array:
    """Soft actor-critic's policy loss: α log π(a_t | s_t) - min_i q_t[i].

    The action is a differentiable sample, a_t = f(noise; s_t), and gradients reach the policy through both the values
    and the log-probability: keep `q_t` a function of the action, with the critics' own parameters held constant. From
    "Soft Actor-Critic Algorithms and Applications", Haarnoja et al. 2018 (https://arxiv.org/abs/1812.05905), equation
    7.

    Args:
      q_t: values of the action, one of each critic, floats [N].
      log_prob_t: log π(a_t | s_t), float [].
      temperature: α ≥ 0, number [].
      stop_target_gradients: whether the temperature is a constant to gradients (it has a loss of its own).

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sac_actor_loss(jnp.array([3.0, 5.0]), -1.0, 0.5))
      -3.5
    """
    q_t, log_prob_t, temperature = check(
        "sac_actor_loss",
        q_t=(q_t, "[N]", "float"),
        log_prob_t=(log_prob_t, "[]", "float"),
        temperature=(temperature, "[]", "real in [0, inf)"),
    )
    return weigh(maybe_stop(temperature, stop_target_gradients), log_prob_t) - jnp.min(q_t)


@stoppable
def sac_temperature_loss(
    temperature: ArrayLike, log_prob_t: ArrayLike, target_entropy: ArrayLike, stop_target_gradients: bool = True
) -> Array:
    """Soft actor-critic's temperature loss: -α (log π(a_t | s_t) + H̄).

    It raises α while the policy's entropy is below the target H̄, and lowers it otherwise. From "Soft Actor-Critic
    Algorithms and Applications", Haarnoja et al. 2018 (https://arxiv.org/abs/1812.05905), equation 18.

    Args:
      temperature: α ≥ 0, float []; pass exp of an unbounded parameter to keep it positive.
      log_prob_t: log π(a_t | s_t) of a sampled action, float [].
      target_entropy: H̄ in nats, finite number []; minus the number of action dimensions is usual.
      stop_target_gradients: whether the log-probability is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank or kind; map over batches with `jax.vmap`.

    Example:
      >>> import rlx
      >>> float(rlx.sac_temperature_loss(0.5, -1.0, 3.0))
      -1.0
    """
    temperature, log_prob_t, target_entropy = check(
        "sac_temperature_loss",
        temperature=(temperature, "[]", "float in [0, inf)"),
        log_prob_t=(log_prob_t, "[]", "float"),
        target_entropy=(target_entropy, "[]", "real in (-inf, inf)"),
    )
    return -weigh(temperature, maybe_stop(log_prob_t + target_entropy, stop_target_gradients))
