"""One-step temporal-difference errors of state values."""

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import largest, weigh
from rlx.core.types import Array, ArrayLike


@stoppable
def td_learning(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """TD(0) temporal-difference error: r_t + γ_t v_t - v_tm1.

    From "Learning to Predict by the Methods of Temporal Differences", Sutton 1988
    (https://link.springer.com/article/10.1023/A:1022633531479).

    Args:
      v_tm1: value of the state at time t-1, float [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number []; 0 where the episode ended.
      v_t: value of the state at time t, float [].
      stop_target_gradients: whether the target (all but `v_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank or kind; map over batches with `jax.vmap`.

    Example:
      >>> import rlx
      >>> float(rlx.td_learning(1.0, 0.5, 0.5, 3.0))
      1.0
    """
    v_tm1, r_t, discount_t, v_t = check(
        "td_learning",
        v_tm1=(v_tm1, "[]", "float"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        v_t=(v_t, "[]", "float"),
    )
    target = r_t + weigh(discount_t, v_t)
    return maybe_stop(target, stop_target_gradients) - v_tm1


@stoppable
def qv_max(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """QVMAX temporal-difference error of state values: r_t + γ_t max_a q_t[a] - v_tm1.

    From "The QV Family Compared to Other Reinforcement Learning Algorithms", Wiering and van Hasselt 2009.

    Args:
      v_tm1: value of the state at time t-1, float [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      q_t: action values at time t, floats [A].
      stop_target_gradients: whether the target (all but `v_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.qv_max(1.0, 0.5, 0.5, jnp.array([3.0, 5.0])))
      2.0
    """
    v_tm1, r_t, discount_t, q_t = check(
        "qv_max",
        v_tm1=(v_tm1, "[]", "float"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[A]", "float"),
    )
    target = r_t + weigh(discount_t, largest(discount_t, q_t))
    return maybe_stop(target, stop_target_gradients) - v_tm1
