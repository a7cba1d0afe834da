"""FastTD3: TD3 with distributional twin critics, for many environments at once."""

import jax
import jax.numpy as jnp

from rlx.categorical import categorical_td_learning
from rlx.core.annotations import Float, Real
from rlx.core.masking import weighted_sum
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"discount_t": ("q_atoms_t", "q_logits_t")})
def fast_td3_critic_loss(
    q_atoms_tm1: Float[Array, "K", "increasing"],
    q_logits_tm1: Float[Array, "N K"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_atoms_t: Float[Array, "L"],
    q_logits_t: Float[Array, "M L"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """FastTD3's critic loss: cross entropies of all critics against the target distribution with the smallest mean.

    In place of the minimum of two values in `rlx.clipped_double_q_learning`, the target is the distribution of the
    target critic with the smaller mean, shifted to r_t + γ_t z and projected (`rlx.categorical_td_learning`). From
    "FastTD3: Simple, Fast, and Capable Reinforcement Learning for Humanoid Control", Seo et al. 2025
    (https://arxiv.org/abs/2505.22642). The policy maximises the mean of a critic: `rlx.d4pg_actor_loss`.

    Args:
      q_atoms_tm1: atoms of the critics at time t-1, in increasing order.
      q_logits_tm1: logits over these atoms for the action at time t-1, one row per critic.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_atoms_t: atoms of the target critics at time t.
      q_logits_t: logits over these atoms for the action at time t, one row per target critic.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss, summed over the critics.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> atoms, q_logits_t = jnp.array([0.0, 1.0]), jnp.array([[0.0, 9.0], [0.0, 0.0]])
      >>> round(float(rlx.fast_td3_critic_loss(atoms, jnp.zeros([1, 2]), 0.0, 1.0, atoms, q_logits_t)), 4)
      0.6931
    """
    values_t = weighted_sum(jax.nn.softmax(q_logits_t), q_atoms_t[None, :], axis=-1)
    least = q_logits_t[jnp.argmin(values_t)]

    def loss(logits: Array) -> Array:
        return categorical_td_learning.kernel(
            q_atoms_tm1, logits, r_t, discount_t, q_atoms_t, least, stop_target_gradients
        )

    return jnp.sum(jax.vmap(loss)(q_logits_tm1))
