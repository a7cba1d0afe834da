"""D4PG: n-step distributional critics for continuous actions, and the policy that maximises their mean."""

import jax
import jax.numpy as jnp

from rlx.categorical import categorical_td_learning
from rlx.core.annotations import Float, Real
from rlx.core.masking import masked, weighted_sum
from rlx.core.operator import operator
from rlx.core.types import Array


@operator()
def d4pg_critic_loss(
    q_atoms_tm1: Float[Array, "K", "increasing"],
    q_logits_tm1: Float[Array, "K"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    q_atoms_t: Float[Array, "L"],
    q_logits_t: Float[Array, "L"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """D4PG's critic loss: cross entropy between the n-step target and the predicted return distribution.

    The target has the atoms r_1 + γ_1 r_2 + … + γ_1⋯γ_{n-1} r_n + γ_1⋯γ_n z with the target critic's probabilities in
    the last state, and is projected onto `q_atoms_tm1` (`rlx.categorical_l2_project`). From "Distributed Distributional
    Deterministic Policy Gradients", Barth-Maron et al. 2018 (https://arxiv.org/abs/1804.08617), algorithm 1. The paper
    uses the loss as the transition's replay priority. For one step it is `rlx.categorical_td_learning`.

    Args:
      q_atoms_tm1: atoms of the critic at the first state and its action, in increasing order.
      q_logits_tm1: logits over these atoms.
      r_t: rewards of the n steps, n = T.
      discount_t: discounts of the n steps; 0 where the episode ended; later steps are ignored.
      q_atoms_t: atoms of the target critic at the last state and the target policy's action there.
      q_logits_t: logits over these atoms.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss, bounded below by the entropy of the target.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> atoms, logits = jnp.array([0.0, 1.0, 2.0]), jnp.zeros(3)
      >>> r_t, discount_t = jnp.array([0.5, 1.0]), jnp.array([0.5, 0.0])
      >>> round(float(rlx.d4pg_critic_loss(atoms, logits, r_t, discount_t, atoms, logits)), 4)
      1.0986
    """
    is_end_t = (discount_t == 0).astype(jnp.int32)
    discount_t = masked(jnp.cumsum(is_end_t) == is_end_t, discount_t)  # after the end of the episode, it may be NaN
    discounts = jnp.cumprod(jnp.concatenate([jnp.ones(1, discount_t.dtype), discount_t]))
    n_step_return, discount = weighted_sum(discounts[:-1], r_t), discounts[-1]
    q_atoms_t, q_logits_t = masked(discount, q_atoms_t), masked(discount, q_logits_t)
    return categorical_td_learning.kernel(
        q_atoms_tm1, q_logits_tm1, n_step_return, discount, q_atoms_t, q_logits_t, stop_target_gradients
    )


@operator()
def d4pg_actor_loss(q_atoms_t: Float[Array, "K"], q_logits_t: Float[Array, "K"]) -> Float[Array, ""]:
    """D4PG's policy loss: minus the mean of the critic's distribution, -Σ_k p_k z_k, at the policy's action.

    Gradients reach the policy through the logits: keep them a function of the action, with the critic's own parameters
    held constant. From "Distributed Distributional Deterministic Policy Gradients", Barth-Maron et al. 2018
    (https://arxiv.org/abs/1804.08617), algorithm 1. To clip ∂q/∂a, take the gradient of the mean and use
    `rlx.dpg_loss`.

    Args:
      q_atoms_t: atoms of the critic.
      q_logits_t: logits over these atoms at the policy's action.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.d4pg_actor_loss(jnp.array([0.0, 1.0, 5.0]), jnp.zeros(3)))
      -2.0
    """
    return -weighted_sum(jax.nn.softmax(q_logits_t), q_atoms_t)
