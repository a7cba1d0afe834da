"""Multi-step temporal-difference errors of transformed action values."""

from rlx.core.arrays import pick
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, largest
from rlx.core.types import Array, ArrayLike
from rlx.retrace import truncated_ratios
from rlx.transformed import (
    transformed_general_off_policy_returns_from_action_values,
    transformed_lambda_returns,
    transformed_n_step_returns,
)
from rlx.value_transforms import IDENTITY_PAIR, TxPair


@stoppable
def transformed_q_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Q(λ) temporal-difference errors of transformed values: h(λ-returns of max_a h⁻¹(q_t[a])) - q_{t-1}[a_{t-1}].

    From "General non-linear Bellman equations", van Hasselt et al. 2019 (https://arxiv.org/abs/1907.03687).

    Args:
      q_tm1: transformed action values at times [0, ..., T-1], floats [T, A].
      a_tm1: actions at times [0, ..., T-1], integers [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      q_t: transformed action values at times [1, ..., T], floats [T, A].
      lambda_: λ in [0, 1], number [] or [T]; the last one has no effect.
      stop_target_gradients: whether the targets (all but the values at times [0, ..., T-1]) are constants to
        gradients.
      tx_pair: the transform of the values and its inverse.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default max_a q_t[a], in transformed space as all values here.

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, half = jnp.array([[4.0, 0.0], [0.0, 8.0]]), jnp.array([0.5, 0.5])
      >>> a_tm1, r_t = jnp.array([0, 1]), jnp.array([1.0, 2.0])
      >>> rlx.transformed_q_lambda(jnp.ones([2, 2]), a_tm1, r_t, half, q_t, 0.5).tolist()
      [2.5, 5.0]
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, lambda_ = check(
        "transformed_q_lambda",
        q_tm1=(q_tm1, "[T, A]", "float"),
        a_tm1=(a_tm1, "[T]", "int"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        q_t=(q_t, "[T, A]", "float"),
        lambda_=(lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
    )
    target = transformed_lambda_returns(
        tx_pair,
        r_t,
        discount_t,
        largest(discount_t, q_t),
        lambda_,
        truncation_t=truncation_t,
        truncation_value_t=truncation_value_t,
    )
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)


@stoppable
def transformed_n_step_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    target_q_t: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    n: int,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """n-step Q-learning temporal-difference errors of transformed values.

    h(n-step returns that bootstrap from h⁻¹(target_q_t[a_t])) - q_{t-1}[a_{t-1}]. With a_t = argmax target_q_t this is
    Q-learning, with a_t = argmax of the online values double Q-learning. From "Recurrent Experience Replay in
    Distributed Reinforcement Learning", Kapturowski et al. 2019 (https://openreview.net/pdf?id=r1lyTjAqYX).

    Args:
      q_tm1: transformed action values at times [0, ..., T-1], floats [T, A].
      a_tm1: actions at times [0, ..., T-1], integers [T].
      target_q_t: transformed action values at times [1, ..., T] to bootstrap from, floats [T, A].
      a_t: actions at times [1, ..., T], integers [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      n: number of steps, at least 1, a Python integer.
      stop_target_gradients: whether the targets (all but the values at times [0, ..., T-1]) are constants to
        gradients.
      tx_pair: the transform of the values and its inverse.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default target_q_t[a_t], in transformed space as all values here.

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> a, ones = jnp.array([0, 1, 0]), jnp.ones(3)
      >>> q_t = jnp.full([3, 2], 4.0)
      >>> rlx.transformed_n_step_q_learning(jnp.ones([3, 2]), a, q_t, a, ones, 0.5 * ones, n=2).tolist()
      [1.5, 1.5, 2.0]
    """
    q_tm1, a_tm1, target_q_t, a_t, r_t, discount_t = check(
        "transformed_n_step_q_learning",
        q_tm1=(q_tm1, "[T, A]", "float"),
        a_tm1=(a_tm1, "[T]", "int"),
        target_q_t=(target_q_t, "[T, A]", "float"),
        a_t=(a_t, "[T]", "int"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
    )
    target = transformed_n_step_returns(
        tx_pair,
        r_t,
        discount_t,
        pick(target_q_t, a_t),
        n,
        truncation_t=truncation_t,
        truncation_value_t=truncation_value_t,
    )
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)


@stoppable
def transformed_retrace(
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
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Retrace errors of transformed values: h(Retrace returns of h⁻¹(q_t)) - q_{t-1}[a_{t-1}].

    For the returns see `retrace`. From "Recurrent Experience Replay in Distributed Reinforcement Learning", Kapturowski
    et al. 2019 (https://openreview.net/pdf?id=r1lyTjAqYX).

    Args:
      q_tm1: transformed action values at times [0, ..., T-1], floats [T, A].
      q_t: transformed action values at times [1, ..., T], floats [T, A].
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
      tx_pair: the transform of the values and its inverse.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default h(Σ_a π_t(a) h⁻¹(q_t[a])), in transformed space as all values here.

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q, a, half = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.array([0, 1]), jnp.array([0.5, 0.5])
      >>> pi_t = jnp.full([2, 2], 0.5)
      >>> rlx.transformed_retrace(q, q, a, a, jnp.ones(2), half, pi_t, half, 0.5).tolist()
      [1.125, -3.5]
    """
    q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t, lambda_, eps = check(
        "transformed_retrace",
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
    c_t = lambda_ * truncated_ratios(if_used(discount_t, pick(pi_t, a_t)), if_used(discount_t, mu_t), eps)
    target = transformed_general_off_policy_returns_from_action_values(
        tx_pair, q_t, a_t, r_t, discount_t, c_t, pi_t, truncation_t=truncation_t, truncation_value_t=truncation_value_t
    )
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)
