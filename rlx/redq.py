"""REDQ and DroQ: critic ensembles with many updates per environment step."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.masking import weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.sac import sac_critic_loss


@operator(masks={"discount_t": ("q_t", "log_prob_t")})
def redq_critic_loss(
    q_tm1: Float[Array, "N"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "M"],
    log_prob_t: Float[Array, ""],
    temperature: Real[Array | float, "", "in [0, inf)"],
    subset: Int[Array, "K", "in [0, M)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """REDQ's critic loss: Σ_i ½ (r_t + γ_t (min_{j ∈ S} q_t[j] - α log π(a_t | s_t)) - q_tm1[i])², for all critics i.

    The minimum is over a random subset S of the ensemble, two of ten in the paper, which is resampled for each update
    and shared by the whole batch. From "Randomized Ensembled Double Q-Learning: Learning Fast Without a Model", Chen et
    al. 2021 (https://arxiv.org/abs/2101.05982), algorithm 1. With S all critics, it is `rlx.sac_critic_loss`, and the
    loss of DroQ, whose few critics use dropout and layer normalisation: "Dropout Q-Functions for Doubly Efficient
    Reinforcement Learning", Hiraoka et al. 2021 (https://arxiv.org/abs/2110.02034).

    Args:
      q_tm1: values of the action at time t-1, one per critic.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_t: values of an action a_t sampled from the policy at time t, one per target critic.
      log_prob_t: log π(a_t | s_t) of that action.
      temperature: α ≥ 0.
      subset: S, indices of the target critics for the minimum: `jax.random.choice(key, M, [2], replace=False)`.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The loss.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, q_t = jnp.zeros(3), jnp.array([1.0, 4.0, 2.0])
      >>> float(rlx.redq_critic_loss(q_tm1, 0.0, 1.0, q_t, 0.0, 0.1, subset=jnp.array([1, 2])))
      6.0
    """
    return sac_critic_loss.kernel(q_tm1, r_t, discount_t, q_t[subset], log_prob_t, temperature, stop_target_gradients)


@operator()
def redq_actor_loss(
    q_t: Float[Array, "N"],
    log_prob_t: Float[Array, ""],
    temperature: Real[Array | float, "", "in [0, inf)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """The policy loss of REDQ and DroQ: α log π(a_t | s_t) - mean_i q_t[i], over all critics.

    It is `rlx.sac_actor_loss` with the mean of the critics in place of their minimum: the mean has lower variance, and
    the targets already counter overestimation. From "Randomized Ensembled Double Q-Learning: Learning Fast Without a
    Model", Chen et al. 2021 (https://arxiv.org/abs/2101.05982), algorithm 1.

    Args:
      q_t: values of the action, one per critic.
      log_prob_t: log π(a_t | s_t).
      temperature: α ≥ 0.
      stop_target_gradients: whether to stop gradients through the temperature (it has its own loss).

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.redq_actor_loss(jnp.array([3.0, 5.0]), -1.0, 0.5))
      -4.5
    """
    return weighted(maybe_stop(temperature, stop_target_gradients), log_prob_t) - jnp.mean(q_t)
