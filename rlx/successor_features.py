"""Values for many goals at once: successor features and universal value functions."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.arrays import scale_up
from rlx.core.masking import masked
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator(masks={"discount_t": ("psi_t",)})
def successor_feature_td(
    psi_tm1: Float[Array, "D"],
    phi_t: Real[Array, "D"],
    discount_t: Real[Array, "", "D"],
    psi_t: Float[Array, "D"],
    stop_target_gradients: bool = True,
) -> Float[Array, "D"]:
    """Temporal-difference errors of successor features: φ_t + γ_t ψ_t - ψ_tm1, one per feature.

    If rewards are r_t = φ_t · w, ψ · w are the corresponding values, for every w at once. From "Successor Features
    for Transfer in Reinforcement Learning", Barreto et al. 2017 (https://arxiv.org/abs/1606.05312), after Dayan 1993.

    Args:
      psi_tm1: successor features of the state (and action) at time t-1.
      phi_t: features of the transition to time t.
      discount_t: discount at time t, or one for each feature.
      psi_t: successor features of the state (and action) at time t.
      stop_target_gradients: whether to stop gradients through the target (all but `psi_tm1`).

    Returns:
      The temporal-difference errors.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.successor_feature_td(jnp.zeros(2), jnp.array([1, 0]), 0.5, jnp.array([2.0, 4.0])).tolist()
      [2.0, 2.0]
    """
    target = phi_t + discount_t * psi_t
    return maybe_stop(target, stop_target_gradients) - psi_tm1


@operator(masks={"discount_t": ("psi_t",)})
def successor_feature_q_learning(
    psi_tm1: Float[Array, "A D"],
    a_tm1: Int[Array, "", "in [0, A)"],
    phi_t: Real[Array, "D"],
    discount_t: Real[Array, ""],
    psi_t: Float[Array, "A D"],
    w: Real[Array, "D"],
    stop_target_gradients: bool = True,
) -> Float[Array, "D"]:
    """Temporal-difference errors of the successor features of a greedy policy: φ_t + γ_t ψ_t[a*] - ψ_tm1[a_tm1].

    a* = argmax_a ψ_t[a] · w is the best action for the task w; the dot product of the errors with w is the Q-learning
    error. From "Successor Features for Transfer in Reinforcement Learning", Barreto et al. 2017
    (https://arxiv.org/abs/1606.05312).

    Args:
      psi_tm1: successor features of all actions at time t-1.
      a_tm1: action at time t-1.
      phi_t: features of the transition to time t.
      discount_t: discount at time t.
      psi_t: successor features of all actions at time t.
      w: the task vector: the weight of each feature.
      stop_target_gradients: whether to stop gradients through the target (all but `psi_tm1`).

    Returns:
      The temporal-difference errors.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> psi_t = jnp.array([[2.0, 4.0], [4.0, 2.0]])
      >>> rlx.successor_feature_q_learning(jnp.zeros([2, 2]), 0, jnp.ones(2), 0.5, psi_t, jnp.array([1, 0])).tolist()
      [3.0, 2.0]
    """
    best = jnp.argmax(_worth(psi_t, w))
    return successor_feature_td.kernel(psi_tm1[a_tm1], phi_t, discount_t, psi_t[best], stop_target_gradients)


@operator()
def generalized_policy_improvement(psi_t: Float[Array, "N A D"], w: Real[Array, "D"]) -> Float[Array, "A"]:
    """Action values of the policy that is at least as good as each of several: max_i ψ_i(s, a) · w.

    From "Successor Features for Transfer in Reinforcement Learning", Barreto et al. 2017
    (https://arxiv.org/abs/1606.05312), theorem 1: act greedily with respect to the result.

    Args:
      psi_t: successor features of all actions under each of N policies.
      w: the task vector.

    Returns:
      Action values.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> psi = jnp.array([[[2.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [3.0, 0.0]]])
      >>> rlx.generalized_policy_improvement(psi, jnp.array([1.0, 1.0])).tolist()
      [2.0, 3.0]
    """
    return jnp.max(_worth(psi_t, w), axis=0)


@operator(masks={"discount_t": ("v_t",)})
def uvfa_td_learning(
    v_tm1: Float[Array, "G"],
    r_t: Real[Array, "G"],
    discount_t: Real[Array, "", "G"],
    v_t: Float[Array, "G"],
    stop_target_gradients: bool = True,
) -> Float[Array, "G"]:
    """Temporal-difference errors of the values of many goals: r_t[g] + γ_t[g] v_t[g] - v_tm1[g].

    Every goal g learns from each transition, each with its own pseudo-reward and pseudo-discount (0 where the goal is
    reached). From "Universal Value Function Approximators", Schaul et al. 2015
    (https://proceedings.mlr.press/v37/schaul15.html), after Horde, Sutton et al. 2011.

    Args:
      v_tm1: value of the state at time t-1 for each goal.
      r_t: reward at time t for each goal.
      discount_t: discount at time t, or one for each goal.
      v_t: value of the state at time t for each goal.
      stop_target_gradients: whether to stop gradients through the target (all but `v_tm1`).

    Returns:
      The temporal-difference errors.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.uvfa_td_learning(jnp.zeros(2), jnp.array([0, 1]), jnp.array([0.5, 0.0]), jnp.array([2.0, 4.0])).tolist()
      [1.0, 1.0]
    """
    target = r_t + discount_t * v_t
    return maybe_stop(target, stop_target_gradients) - v_tm1


@operator(masks={"discount_t": ("q_t",)})
def uvfa_q_learning(
    q_tm1: Float[Array, "G A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, "G"],
    discount_t: Real[Array, "", "G"],
    q_t: Float[Array, "G A"],
    stop_target_gradients: bool = True,
) -> Float[Array, "G"]:
    """Q-learning errors of the action values of many goals: r_t[g] + γ_t[g] max_a q_t[g, a] - q_tm1[g, a_tm1].

    From "Universal Value Function Approximators", Schaul et al. 2015 (https://proceedings.mlr.press/v37/schaul15.html),
    section 5.2. With goals relabelled in hindsight, it is also the error of hindsight experience replay
    (https://arxiv.org/abs/1707.01495).

    Args:
      q_tm1: action values at time t-1 for each goal.
      a_tm1: action at time t-1.
      r_t: reward at time t for each goal.
      discount_t: discount at time t, or one for each goal.
      q_t: action values at time t for each goal.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference errors.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t = jnp.array([[1.0, 2.0], [4.0, 3.0]])
      >>> rlx.uvfa_q_learning(jnp.zeros([2, 2]), 1, jnp.array([0, 1]), jnp.array([0.5, 0.0]), q_t).tolist()
      [1.0, 1.0]
    """
    return uvfa_td_learning.kernel(q_tm1[:, a_tm1], r_t, discount_t, jnp.max(q_t, axis=-1), stop_target_gradients)


def _worth(psi: Array, w: Array) -> Array:
    """The values [...] of successor features [..., D] for the task w [D]; features of weight 0 are ignored."""
    w = jnp.broadcast_to(w, psi.shape)
    return jnp.sum(scale_up(masked(w, psi), w), axis=-1)
