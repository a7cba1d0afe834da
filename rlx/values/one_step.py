"""One-step temporal-difference errors of action values: target minus prediction, for one transition."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, largest, rows_if_used, weigh
from rlx.core.types import Array, ArrayLike


@stoppable
def q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Q-learning temporal-difference error: r_t + γ_t max_a q_t[a] - q_tm1[a_tm1].

    From "Learning from Delayed Rewards", Watkins 1989; see Sutton and Barto, "Reinforcement Learning", section 6.5.

    Args:
      q_tm1: action values at time t-1, floats [A].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number []; 0 where the episode ended.
      q_t: action values at time t, floats [A].
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.q_learning(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, jnp.array([3.0, 5.0])))
      2.0
    """
    q_tm1, a_tm1, r_t, discount_t, q_t = check(
        "q_learning",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[A]", "float"),
    )
    target = r_t + weigh(discount_t, largest(discount_t, q_t))
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@stoppable
def double_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t_value: ArrayLike,
    q_t_selector: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Double Q-learning temporal-difference error: r_t + γ_t q_t_value[argmax q_t_selector] - q_tm1[a_tm1].

    One set of values selects the next action and another evaluates it, which removes the upward bias of the maximum.
    From "Double Q-learning", van Hasselt 2010
    (https://papers.nips.cc/paper/3964-double-q-learning.pdf).

    Args:
      q_tm1: action values at time t-1, floats [A].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      q_t_value: action values at time t that evaluate, floats [A].
      q_t_selector: action values at time t that select, floats [A].
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, selector = jnp.array([3.0, 5.0]), jnp.array([1.0, 0.0])
      >>> float(rlx.double_q_learning(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, q_t, selector))
      1.0
    """
    q_tm1, a_tm1, r_t, discount_t, q_t_value, q_t_selector = check(
        "double_q_learning",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t_value=(q_t_value, "[A]", "float"),
        q_t_selector=(q_t_selector, "[A]", "float"),
    )
    target = r_t + weigh(discount_t, q_t_value[jnp.argmax(q_t_selector)])
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@stoppable
def persistent_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    action_gap_scale: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Persistent Q-learning temporal-difference error, which widens the gap between the best and other actions.

    r_t + γ_t [(1 - α) max_a q_t[a] + α q_t[a_tm1]] - q_tm1[a_tm1]

    From "Increasing the Action Gap: New Operators for Reinforcement Learning", Bellemare et al. 2016
    (https://arxiv.org/abs/1512.04860).

    Args:
      q_tm1: action values at time t-1, floats [A].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      q_t: action values at time t, floats [A].
      action_gap_scale: α in [0, 1], number []; 0 is Q-learning.
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.persistent_q_learning(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, jnp.array([3.0, 5.0]), 0.5))
      1.5
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, action_gap_scale = check(
        "persistent_q_learning",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[A]", "float"),
        action_gap_scale=(action_gap_scale, "[]", "real in [0, 1]"),
    )
    q_t = rows_if_used(discount_t, q_t)
    bootstrap = weigh(1 - action_gap_scale, jnp.max(q_t)) + weigh(action_gap_scale, q_t[a_tm1])
    target = r_t + weigh(discount_t, bootstrap)
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@stoppable
def sarsa(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    a_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """SARSA temporal-difference error: r_t + γ_t q_t[a_t] - q_tm1[a_tm1].

    From "On-Line Q-Learning Using Connectionist Systems", Rummery and Niranjan 1994; see Sutton and Barto,
    "Reinforcement Learning", section 6.4.

    Args:
      q_tm1: action values at time t-1, floats [A].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      q_t: action values at time t, floats [A].
      a_t: action at time t, integer [].
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sarsa(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, jnp.array([3.0, 5.0]), 0))
      1.0
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, a_t = check(
        "sarsa",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[A]", "float"),
        a_t=(a_t, "[]", "int"),
    )
    target = r_t + weigh(discount_t, q_t[a_t])
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@stoppable
def expected_sarsa(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    probs_a_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Expected SARSA temporal-difference error: r_t + γ_t Σ_a π_t(a) q_t[a] - q_tm1[a_tm1].

    From "A Theoretical and Empirical Analysis of Expected Sarsa", van Seijen et al. 2009
    (http://www.cs.ox.ac.uk/people/shimon.whiteson/pubs/vanseijenadprl09.pdf).

    Args:
      q_tm1: action values at time t-1, floats [A].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      q_t: action values at time t, floats [A].
      probs_a_t: π_t, probabilities of the actions at time t, floats [A].
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> probs = jnp.array([0.5, 0.5])
      >>> float(rlx.expected_sarsa(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, jnp.array([3.0, 5.0]), probs))
      1.5
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, probs_a_t = check(
        "expected_sarsa",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[A]", "float"),
        probs_a_t=(probs_a_t, "[A]", "float"),
    )
    target = r_t + discount_t * jnp.sum(weigh(if_used(discount_t, probs_a_t), if_used(discount_t, q_t)))
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@stoppable
def qv_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """QV-learning temporal-difference error of action values: r_t + γ_t v_t - q_tm1[a_tm1].

    From "Two Novel On-policy Reinforcement Learning Algorithms based on TD(λ)-methods", Wiering and van Hasselt 2007.

    Args:
      q_tm1: action values at time t-1, floats [A].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      v_t: value of the state at time t, float [].
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.qv_learning(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, 5.0))
      2.0
    """
    q_tm1, a_tm1, r_t, discount_t, v_t = check(
        "qv_learning",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        v_t=(v_t, "[]", "float"),
    )
    target = r_t + weigh(discount_t, v_t)
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]
