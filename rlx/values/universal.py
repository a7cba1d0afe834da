"""Values of many goals at once: successor features and universal value functions."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, largest, weigh
from rlx.core.types import Array, ArrayLike


@stoppable
def successor_feature_td(
    psi_tm1: ArrayLike,
    phi_t: ArrayLike,
    discount_t: ArrayLike,
    psi_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Temporal-difference errors of successor features: φ_t + γ_t ψ_t - ψ_tm1, one for each feature.

    Where rewards are r_t = φ_t · w, ψ · w are their values, for every w at once. From "Successor Features for Transfer
    in Reinforcement Learning", Barreto et al. 2017 (https://arxiv.org/abs/1606.05312), after Dayan 1993.

    Args:
      psi_tm1: successor features of the state (and action) at time t-1, floats [D].
      phi_t: features of the transition to time t, numbers [D].
      discount_t: discount at time t, number [], or one for each feature, numbers [D].
      psi_t: successor features of the state (and action) at time t, floats [D].
      stop_target_gradients: whether the target (all but `psi_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference errors, floats [D].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.successor_feature_td(jnp.zeros(2), jnp.array([1, 0]), 0.5, jnp.array([2.0, 4.0])).tolist()
      [2.0, 2.0]
    """
    psi_tm1, phi_t, discount_t, psi_t = check(
        "successor_feature_td",
        psi_tm1=(psi_tm1, "[D]", "float"),
        phi_t=(phi_t, "[D]", "real"),
        discount_t=(discount_t, "[] or [D]", "real"),
        psi_t=(psi_t, "[D]", "float"),
    )
    return maybe_stop(phi_t + weigh(discount_t, psi_t), stop_target_gradients) - psi_tm1


@stoppable
def successor_feature_q_learning(
    psi_tm1: ArrayLike,
    a_tm1: ArrayLike,
    phi_t: ArrayLike,
    discount_t: ArrayLike,
    psi_t: ArrayLike,
    w: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Temporal-difference errors of the successor features of a greedy policy: φ_t + γ_t ψ_t[a*] - ψ_tm1[a_tm1].

    a* = argmax_a ψ_t[a] · w is the best action for the task w; the errors times w are those of Q-learning. From
    "Successor Features for Transfer in Reinforcement Learning", Barreto et al. 2017 (https://arxiv.org/abs/1606.05312).

    Args:
      psi_tm1: successor features of all actions at time t-1, floats [A, D].
      a_tm1: action at time t-1, integer [].
      phi_t: features of the transition to time t, numbers [D].
      discount_t: discount at time t, number [].
      psi_t: successor features of all actions at time t, floats [A, D].
      w: the task: how much each feature is worth, numbers [D].
      stop_target_gradients: whether the target (all but `psi_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference errors, floats [D].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> psi_t = jnp.array([[2.0, 4.0], [4.0, 2.0]])
      >>> rlx.successor_feature_q_learning(jnp.zeros([2, 2]), 0, jnp.ones(2), 0.5, psi_t, jnp.array([1, 0])).tolist()
      [3.0, 2.0]
    """
    psi_tm1, a_tm1, phi_t, discount_t, psi_t, w = check(
        "successor_feature_q_learning",
        psi_tm1=(psi_tm1, "[A, D]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        phi_t=(phi_t, "[D]", "real"),
        discount_t=(discount_t, "[]", "real"),
        psi_t=(psi_t, "[A, D]", "float"),
        w=(w, "[D]", "real"),
    )
    best = jnp.argmax(_worth(psi_t, w))
    return successor_feature_td(psi_tm1[a_tm1], phi_t, discount_t, psi_t[best], stop_target_gradients)


def generalized_policy_improvement(psi_t: ArrayLike, w: ArrayLike) -> Array:
    """Action values of the policy that is at least as good as each of several: max_i ψ_i(s, a) · w.

    From "Successor Features for Transfer in Reinforcement Learning", Barreto et al. 2017
    (https://arxiv.org/abs/1606.05312), theorem 1: act greedily with respect to the result.

    Args:
      psi_t: successor features of all actions under each of N policies, floats [N, A, D].
      w: the task, numbers [D].

    Returns:
      Action values, floats [A].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> psi = jnp.array([[[2.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [3.0, 0.0]]])
      >>> rlx.generalized_policy_improvement(psi, jnp.array([1.0, 1.0])).tolist()
      [2.0, 3.0]
    """
    psi_t, w = check("generalized_policy_improvement", psi_t=(psi_t, "[N, A, D]", "float"), w=(w, "[D]", "real"))
    return jnp.max(_worth(psi_t, w), axis=0)


@stoppable
def uvfa_td_learning(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Temporal-difference errors of the values of many goals: r_t[g] + γ_t[g] v_t[g] - v_tm1[g].

    One transition teaches every goal g, each with its own pseudo-reward and pseudo-discount (0 where the goal is
    reached). From "Universal Value Function Approximators", Schaul et al. 2015
    (https://proceedings.mlr.press/v37/schaul15.html), after Horde, Sutton et al. 2011.

    Args:
      v_tm1: value of the state at time t-1 for each goal, floats [G].
      r_t: reward at time t for each goal, numbers [G].
      discount_t: discount at time t, number [], or one for each goal, numbers [G].
      v_t: value of the state at time t for each goal, floats [G].
      stop_target_gradients: whether the target (all but `v_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference errors, floats [G].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.uvfa_td_learning(jnp.zeros(2), jnp.array([0, 1]), jnp.array([0.5, 0.0]), jnp.array([2.0, 4.0])).tolist()
      [1.0, 1.0]
    """
    v_tm1, r_t, discount_t, v_t = check(
        "uvfa_td_learning",
        v_tm1=(v_tm1, "[G]", "float"),
        r_t=(r_t, "[G]", "real"),
        discount_t=(discount_t, "[] or [G]", "real"),
        v_t=(v_t, "[G]", "float"),
    )
    return maybe_stop(r_t + weigh(discount_t, v_t), stop_target_gradients) - v_tm1


@stoppable
def uvfa_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Q-learning errors of the action values of many goals: r_t[g] + γ_t[g] max_a q_t[g, a] - q_tm1[g, a_tm1].

    From "Universal Value Function Approximators", Schaul et al. 2015
    (https://proceedings.mlr.press/v37/schaul15.html), section 5.2. With goals relabelled afterwards it is also the
    error of hindsight experience replay (https://arxiv.org/abs/1707.01495).

    Args:
      q_tm1: action values at time t-1 for each goal, floats [G, A].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t for each goal, numbers [G].
      discount_t: discount at time t, number [], or one for each goal, numbers [G].
      q_t: action values at time t for each goal, floats [G, A].
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference errors, floats [G].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t = jnp.array([[1.0, 2.0], [4.0, 3.0]])
      >>> rlx.uvfa_q_learning(jnp.zeros([2, 2]), 1, jnp.array([0, 1]), jnp.array([0.5, 0.0]), q_t).tolist()
      [1.0, 1.0]
    """
    q_tm1, a_tm1, r_t, discount_t, q_t = check(
        "uvfa_q_learning",
        q_tm1=(q_tm1, "[G, A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[G]", "real"),
        discount_t=(discount_t, "[] or [G]", "real"),
        q_t=(q_t, "[G, A]", "float"),
    )
    v_t = largest(discount_t, q_t)
    return uvfa_td_learning(q_tm1[:, a_tm1], r_t, discount_t, v_t, stop_target_gradients)


def _worth(psi: Array, w: Array) -> Array:
    """The values [...] for the task w [D] of successor features [..., D]; a feature worth 0 may hold anything."""
    return jnp.matmul(if_used(jnp.broadcast_to(w, psi.shape), psi), w, precision="highest")
