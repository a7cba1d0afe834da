"""Joint values of a team from the values of its agents: VDN's sum. QMIX's mixing network is `hkx.nets.QMixer`."""

from rlx.core.annotations import Float, Mask
from rlx.core.masking import masked_sum
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"agent_mask": ("agent_values",)})
def vdn_joint_value(
    agent_values: Float[Array, "N"], *, agent_mask: Mask[Array, "", "N"] | None = None
) -> Float[Array, ""]:
    """The value of a joint action in value decomposition networks: Σ_i q_i(o_i, a_i).

    The best action of each agent is then also best for the team, so each agent can act on its own values while the team
    learns from one reward. For the temporal-difference error of joint values, from VDN or QMIX, use `rlx.td_learning`,
    or `rlx.td_lambda` over several steps. From "Value-Decomposition Networks For Cooperative Multi-Agent Learning",
    Sunehag et al. 2017 (https://arxiv.org/abs/1706.05296).

    Args:
      agent_values: q_i, the value of each agent's action: the action it took, or at time t its best action.
      agent_mask: false for absent agents, even if their entries contain NaN. By default all count.

    Returns:
      The joint value; 0 if there is no agent.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, a_tm1 = jnp.array([[1.0, 2.0], [0.0, 4.0], [7.0, 7.0]]), jnp.array([1, 0, 0])  # of three agents
      >>> q_t, there = jnp.array([[1.0, 0.0], [3.0, 5.0], [7.0, 7.0]]), jnp.array([True, True, False])
      >>> taken = rlx.vdn_joint_value(rlx.batched_index(q_tm1, a_tm1), agent_mask=there)
      >>> best = rlx.vdn_joint_value(jnp.max(q_t, axis=-1), agent_mask=there)
      >>> float(rlx.td_learning(taken, r_t=1.0, discount_t=0.5, v_t=best))  # 1 + ½ (1 + 5) - (2 + 0)
      2.0
    """
    return masked_sum(agent_values, agent_mask)
