"""Off-policy returns from action values, in their general form."""

import jax.numpy as jnp

from rlx.core.arrays import pick
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, weigh
from rlx.core.types import Array, ArrayLike
from rlx.returns.segments import corrected_returns, split_at_truncations


@stoppable
def general_off_policy_returns_from_action_values(
    q_t: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    c_t: ArrayLike,
    pi_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Off-policy returns: G_{t-1} = r_t + γ_t (Σ_a π_t(a) q_t[a] - c_t q_t[a_t] + c_t G_t), where c_T counts as 0.

    The coefficients choose the algorithm: c = π(a) / μ(a) is importance sampling, c = λ Harutyunyan's Q(λ),
    c = π(a) tree backup, c = λ min(1, π(a) / μ(a)) Retrace. From "Safe and Efficient Off-Policy Reinforcement
    Learning", Munos et al. 2016 (https://arxiv.org/abs/1606.02647).

    Args:
      q_t: action values at times [1, ..., T], floats [T, A].
      a_t: actions at times [1, ..., T], integers [T]; the last one has no effect.
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      c_t: coefficients at times [1, ..., T], numbers [T]; the last one has no effect.
      pi_t: probabilities of the target policy at times [1, ..., T], floats [T, A].
      stop_target_gradients: whether the returns are constants to gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the return of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default Σ_a π_t(a) q_t[a].

    Returns:
      Returns from times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, pi_t = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.full([2, 2], 0.5)
      >>> a_t, half = jnp.array([0, 1]), jnp.array([0.5, 0.5])
      >>> rlx.general_off_policy_returns_from_action_values(q_t, a_t, jnp.ones(2), half, half, pi_t).tolist()
      [3.125, 4.5]
    """
    name = "general_off_policy_returns_from_action_values"
    q_t, a_t, r_t, discount_t, c_t, pi_t = check(
        name,
        q_t=(q_t, "[T, A]", "float"),
        a_t=(a_t, "[T]", "int"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        c_t=(c_t, "[T]", "real"),
        pi_t=(pi_t, "[T, A]", "float"),
    )
    v_t = jnp.sum(weigh(*(if_used(discount_t[:, None], x) for x in (pi_t, q_t))), axis=-1)
    v_t, goes_on_t = split_at_truncations(name, v_t, truncation_t, truncation_value_t)
    returns = corrected_returns(r_t, discount_t, v_t, pick(q_t, a_t), c_t, goes_on_t)
    return maybe_stop(returns, stop_target_gradients)


@stoppable
def general_off_policy_returns_from_q_and_v(
    q_t: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    c_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Off-policy returns from values of states and of taken actions: G_{t-1} = r_t + γ_t (v_t - c_t q_t + c_t G_t).

    The last step bootstraps from v_T. For the meaning of the coefficients see
    `general_off_policy_returns_from_action_values`; this form needs no sum over actions, so that they may be
    continuous. From "Safe and Efficient Off-Policy Reinforcement Learning", Munos et al. 2016
    (https://arxiv.org/abs/1606.02647).

    Args:
      q_t: values of the actions taken at times [1, ..., T-1], floats [T-1].
      v_t: values of the states at times [1, ..., T], floats [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      c_t: coefficients at times [1, ..., T-1], numbers [T-1].
      stop_target_gradients: whether the returns are constants to gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the return of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default `v_t` is taken to hold them.

    Returns:
      Returns from times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, v_t, c_t, half = jnp.array([2.0]), jnp.array([3.0, 7.0]), jnp.array([0.5]), jnp.array([0.5, 0.5])
      >>> rlx.general_off_policy_returns_from_q_and_v(q_t, v_t, jnp.ones(2), half, c_t).tolist()
      [3.125, 4.5]
    """
    name = "general_off_policy_returns_from_q_and_v"
    v_t, q_t, r_t, discount_t, c_t = check(
        name,
        v_t=(v_t, "[T]", "float"),
        q_t=(q_t, "[T-1]", "float"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        c_t=(c_t, "[T-1]", "real"),
    )
    v_t, goes_on_t = split_at_truncations(name, v_t, truncation_t, truncation_value_t)
    returns = corrected_returns(r_t, discount_t, v_t, _with_last(q_t), _with_last(c_t), goes_on_t)
    return maybe_stop(returns, stop_target_gradients)


def _with_last(x_t: Array) -> Array:
    """[T-1] -> [T]: the last entry is never used."""
    return jnp.concatenate([x_t, jnp.zeros(1, x_t.dtype)])
