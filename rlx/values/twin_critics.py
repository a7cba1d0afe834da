"""Ensembles of critics that bootstrap from the least of their values, with and without an entropy bonus."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, weigh
from rlx.core.types import Array, ArrayLike
from rlx.losses import l2_loss


@stoppable
def clipped_double_q_learning(
    q_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Temporal-difference errors of twin critics: r_t + γ_t min_j q_t[j] - q_tm1[i] for each critic i.

    The least of two estimates counters the upward bias of values that a policy maximises. From "Addressing Function
    Approximation Error in Actor-Critic Methods", Fujimoto et al. 2018 (https://arxiv.org/abs/1802.09477), TD3. The
    action at time t comes from `rlx.smoothed_target_action`.

    Args:
      q_tm1: values of the action at time t-1, one of each critic, floats [N].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number []; 0 where the episode ended.
      q_t: values of the action at time t, one of each target critic, floats [M].
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference errors, floats [N].

    Raises:
      ArgumentError: if an argument has another rank or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.clipped_double_q_learning(jnp.array([1.0, 2.0]), 0.5, 0.5, jnp.array([3.0, 5.0])).tolist()
      [1.0, 0.0]
    """
    q_tm1, r_t, discount_t, q_t = check(
        "clipped_double_q_learning",
        q_tm1=(q_tm1, "[N]", "float"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[M]", "float"),
    )
    return maybe_stop(r_t + discount_t * jnp.min(if_used(discount_t, q_t)), stop_target_gradients) - q_tm1


@stoppable
def sac_critic_loss(
    q_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    log_prob_t: ArrayLike,
    temperature: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Soft actor-critic's critic loss: Σ_i ½ (r_t + γ_t (min_j q_t[j] - α log π(a_t | s_t)) - q_tm1[i])².

    From "Soft Actor-Critic Algorithms and Applications", Haarnoja et al. 2018 (https://arxiv.org/abs/1812.05905),
    equation 5. α = 0 is TD3's.

    Args:
      q_tm1: values of the action at time t-1, one of each critic, floats [N].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number []; 0 where the episode ended.
      q_t: values of an action a_t sampled from the policy at time t, one of each target critic, floats [M].
      log_prob_t: log π(a_t | s_t) of that action, float [].
      temperature: α ≥ 0, number [].
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sac_critic_loss(jnp.array([1.0, 2.0]), 0.5, 0.5, jnp.array([3.0, 5.0]), -1.0, 2.0))
      2.5
    """
    q_tm1, r_t, discount_t, q_t, log_prob_t, temperature = check(
        "sac_critic_loss",
        q_tm1=(q_tm1, "[N]", "float"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[M]", "float"),
        log_prob_t=(log_prob_t, "[]", "float"),
        temperature=(temperature, "[]", "real in [0, inf)"),
    )
    soft_q_t = q_t - weigh(temperature, if_used(discount_t, log_prob_t))
    return jnp.sum(l2_loss(clipped_double_q_learning(q_tm1, r_t, discount_t, soft_q_t, stop_target_gradients)))
