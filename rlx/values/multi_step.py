"""Multi-step temporal-difference errors: λ-returns and Retrace targets minus predictions."""

import jax.numpy as jnp

from rlx.core.arrays import pick
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, largest
from rlx.core.types import Array, ArrayLike
from rlx.retrace import (
    general_off_policy_returns_from_action_values,
    general_off_policy_returns_from_q_and_v,
)
from rlx.returns import lambda_returns


@stoppable
def td_lambda(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """TD(λ) temporal-difference errors: G^λ_{t-1} - v_{t-1}, with the λ-returns of `lambda_returns`.

    See Sutton and Barto, "Reinforcement Learning: An Introduction", chapter 12.

    Args:
      v_tm1: values of the states at times [0, ..., T-1], floats [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      v_t: values of the states at times [1, ..., T], floats [T].
      lambda_: λ in [0, 1], number [] or [T]; the last one has no effect.
      stop_target_gradients: whether the targets (all but the values at times [0, ..., T-1]) are constants to
        gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default `v_t` is taken to hold them.

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half, v_t = jnp.array([0.5, 0.5]), jnp.array([4.0, 8.0])
      >>> rlx.td_lambda(jnp.ones(2), jnp.array([1.0, 2.0]), half, v_t, 0.5).tolist()
      [2.5, 5.0]
    """
    v_tm1, r_t, discount_t, v_t, lambda_ = check(
        "td_lambda",
        v_tm1=(v_tm1, "[T]", "float"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        v_t=(v_t, "[T]", "float"),
        lambda_=(lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
    )
    target = lambda_returns(
        r_t, discount_t, v_t, lambda_, truncation_t=truncation_t, truncation_value_t=truncation_value_t
    )
    return maybe_stop(target, stop_target_gradients) - v_tm1


@stoppable
def q_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Q(λ) temporal-difference errors: λ-returns that bootstrap from max_a q_t[a], minus q_{t-1}[a_{t-1}].

    A scalar λ is Peng's Q(λ); λ_t set to zero where the action a_t is not greedy is Watkins's. See Sutton and Barto,
    "Reinforcement Learning: An Introduction", section 12.10.

    Args:
      q_tm1: action values at times [0, ..., T-1], floats [T, A].
      a_tm1: actions at times [0, ..., T-1], integers [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      q_t: action values at times [1, ..., T], floats [T, A].
      lambda_: λ in [0, 1], number [] or [T]; the last one has no effect.
      stop_target_gradients: whether the targets (all but the values at times [0, ..., T-1]) are constants to
        gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default max_a q_t[a].

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, half = jnp.array([[4.0, 0.0], [0.0, 8.0]]), jnp.array([0.5, 0.5])
      >>> rlx.q_lambda(jnp.ones([2, 2]), jnp.array([0, 1]), jnp.array([1.0, 2.0]), half, q_t, 0.5).tolist()
      [2.5, 5.0]
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, lambda_ = check(
        "q_lambda",
        q_tm1=(q_tm1, "[T, A]", "float"),
        a_tm1=(a_tm1, "[T]", "int"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        q_t=(q_t, "[T, A]", "float"),
        lambda_=(lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
    )
    target = lambda_returns(
        r_t,
        discount_t,
        largest(discount_t, q_t),
        lambda_,
        truncation_t=truncation_t,
        truncation_value_t=truncation_value_t,
    )
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)


@stoppable
def sarsa_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    a_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """SARSA(λ) temporal-difference errors: λ-returns that bootstrap from q_t[a_t], minus q_{t-1}[a_{t-1}].

    See Sutton and Barto, "Reinforcement Learning: An Introduction", section 12.7.

    Args:
      q_tm1: action values at times [0, ..., T-1], floats [T, A].
      a_tm1: actions at times [0, ..., T-1], integers [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      q_t: action values at times [1, ..., T], floats [T, A].
      a_t: actions at times [1, ..., T], integers [T].
      lambda_: λ in [0, 1], number [] or [T]; the last one has no effect.
      stop_target_gradients: whether the targets (all but the values at times [0, ..., T-1]) are constants to
        gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default q_t[a_t].

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, half = jnp.array([[4.0, 0.0], [0.0, 8.0]]), jnp.array([0.5, 0.5])
      >>> a = jnp.array([0, 1])
      >>> rlx.sarsa_lambda(jnp.ones([2, 2]), a, jnp.array([1.0, 2.0]), half, q_t, a, 0.5).tolist()
      [2.5, 5.0]
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, a_t, lambda_ = check(
        "sarsa_lambda",
        q_tm1=(q_tm1, "[T, A]", "float"),
        a_tm1=(a_tm1, "[T]", "int"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        q_t=(q_t, "[T, A]", "float"),
        a_t=(a_t, "[T]", "int"),
        lambda_=(lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
    )
    target = lambda_returns(
        r_t,
        discount_t,
        pick(q_t, a_t),
        lambda_,
        truncation_t=truncation_t,
        truncation_value_t=truncation_value_t,
    )
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)


@stoppable
def retrace(
    q_tm1: ArrayLike,
    q_t: ArrayLike,
    a_tm1: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    pi_t: ArrayLike,
    mu_t: ArrayLike,
    lambda_: ArrayLike,
    eps: ArrayLike = 1e-8,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Retrace errors: off-policy returns with truncated importance ratios, minus q_{t-1}[a_{t-1}].

    G_{t-1} = r_t + γ_t (Σ_a π_t(a) q_t[a] - c_t q_t[a_t] + c_t G_t) with c_t = λ_t min(1, π_t(a_t) / (μ_t + ε)). From
    "Safe and Efficient Off-Policy Reinforcement Learning", Munos et al. 2016 (https://arxiv.org/abs/1606.02647).

    Args:
      q_tm1: action values at times [0, ..., T-1], floats [T, A].
      q_t: action values at times [1, ..., T], floats [T, A].
      a_tm1: actions at times [0, ..., T-1], integers [T].
      a_t: actions at times [1, ..., T], integers [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      pi_t: probabilities of the target policy at times [1, ..., T], floats [T, A].
      mu_t: probabilities with which the behaviour policy took the actions `a_t`, floats [T].
      lambda_: λ in [0, 1], number [] or [T]; the last one has no effect.
      eps: added to `mu_t` before dividing by it, number [] ≥ 0.
      stop_target_gradients: whether the targets (all but the values at times [0, ..., T-1]) are constants to
        gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default Σ_a π_t(a) q_t[a].

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q, a, half = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.array([0, 1]), jnp.array([0.5, 0.5])
      >>> pi_t = jnp.full([2, 2], 0.5)
      >>> rlx.retrace(q, q, a, a, jnp.ones(2), half, pi_t, half, 0.5).tolist()
      [1.125, -3.5]
    """
    q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t, lambda_, eps = check(
        "retrace",
        q_tm1=(q_tm1, "[T, A]", "float"),
        q_t=(q_t, "[T, A]", "float"),
        a_tm1=(a_tm1, "[T]", "int"),
        a_t=(a_t, "[T]", "int"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        pi_t=(pi_t, "[T, A]", "float"),
        mu_t=(mu_t, "[T]", "float"),
        lambda_=(lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
        eps=(eps, "[]", "real in [0, inf)"),
    )
    c_t = lambda_ * truncated_ratios(discount_t, pick(pi_t, a_t), mu_t, eps)
    target = general_off_policy_returns_from_action_values(
        q_t, a_t, r_t, discount_t, c_t, pi_t, truncation_t=truncation_t, truncation_value_t=truncation_value_t
    )
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)


@stoppable
def retrace_continuous(
    q_tm1: ArrayLike,
    q_t: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    log_rhos: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Retrace errors for actions of any kind, from values and log importance ratios of the actions taken.

    c_t = λ_t min(1, exp(log_rhos_t)) and G_{t-1} = r_t + γ_t (v_t - c_t q_t + c_t G_t), minus q_{t-1}. From "Safe and
    Efficient Off-Policy Reinforcement Learning", Munos et al. 2016 (https://arxiv.org/abs/1606.02647).

    Args:
      q_tm1: values of the actions taken at times [0, ..., T-1], floats [T].
      q_t: values of the actions taken at times [1, ..., T-1], floats [T-1].
      v_t: values of the states under the target policy at times [1, ..., T], floats [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      log_rhos: log π(a) - log μ(a) of the actions taken at times [1, ..., T-1], floats [T-1].
      lambda_: λ in [0, 1], number [], [T-1] or [T]; a last one has no effect.
      stop_target_gradients: whether the targets (all but the values at times [0, ..., T-1]) are constants to
        gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default `v_t` is taken to hold them.

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half, zero = jnp.array([0.5, 0.5]), jnp.zeros(1)
      >>> q_tm1, q_t, v_t = jnp.array([2.0, 8.0]), jnp.array([2.0]), jnp.array([3.0, 7.0])
      >>> rlx.retrace_continuous(q_tm1, q_t, v_t, jnp.ones(2), half, zero, 0.5).tolist()
      [1.125, -3.5]
    """
    q_tm1, q_t, v_t, r_t, discount_t, log_rhos, lambda_ = check(
        "retrace_continuous",
        q_tm1=(q_tm1, "[T]", "float"),
        q_t=(q_t, "[T-1]", "float"),
        v_t=(v_t, "[T]", "float"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        log_rhos=(log_rhos, "[T-1]", "float"),
        lambda_=(lambda_, "[] or [T-1] or [T] or [1]", "real in [0, 1] if []"),
    )
    if lambda_.size > 1:
        lambda_ = lambda_[: log_rhos.shape[0]]
    # The bound is put on the exponent: the slope of an infinite ratio is no number.
    c_t = lambda_ * jnp.exp(jnp.minimum(0.0, if_used(discount_t[:-1], log_rhos)))
    target = general_off_policy_returns_from_q_and_v(
        q_t, v_t, r_t, discount_t, c_t, truncation_t=truncation_t, truncation_value_t=truncation_value_t
    )
    return maybe_stop(target, stop_target_gradients) - q_tm1


def truncated_ratios(discount_t: Array, pi_t: Array, mu_t: Array, eps: Array) -> Array:
    """min(1, π / (μ + ε)) [T] of the actions taken; whatever they are in a state whose discount is 0."""
    return jnp.minimum(1.0, if_used(discount_t, pi_t) / (if_used(discount_t, mu_t) + eps))
