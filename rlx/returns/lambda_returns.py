"""Discounted returns and λ-returns."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.recurrence import reverse_affine
from rlx.core.types import Array, ArrayLike
from rlx.returns.segments import bootstrapped_returns, split_at_truncations, within


@stoppable
def lambda_returns(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    lambda_: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """λ-returns: G_{t-1} = r_t + γ_t [(1 - λ_t) v_t + λ_t G_t], where the last step bootstraps from v_T.

    λ = 0 gives one-step targets, λ = 1 the discounted return of the whole sequence. With `v_t` the values under the
    policy these are the targets of TD(λ), with `v_t = max_a q_t` those of Peng's Q(λ), with `v_t = q_t[a_t]` those of
    SARSA(λ). A `lambda_` for each step can carry importance ratios: λ_t = λ min(1, ρ_t).

    See Sutton and Barto, "Reinforcement Learning: An Introduction", chapter 12.

    Args:
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      v_t: values of the states at times [1, ..., T], floats [T].
      lambda_: λ in [0, 1], number [] or [T]; the last one has no effect.
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
      >>> rlx.lambda_returns(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([4.0, 8.0]), 0.5).tolist()
      [3.5, 6.0]
    """
    r_t, discount_t, v_t, lambda_ = check(
        "lambda_returns",
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        v_t=(v_t, "[T]", "float"),
        lambda_=(lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
    )
    v_t, goes_on_t = split_at_truncations("lambda_returns", v_t, truncation_t, truncation_value_t)
    returns = bootstrapped_returns(r_t, discount_t, v_t, lambda_, goes_on_t)
    return maybe_stop(returns, stop_target_gradients)


@stoppable
def discounted_returns(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Discounted returns: G_{t-1} = r_t + γ_t G_t, with G_T = v_T.

    See Sutton and Barto, "Reinforcement Learning: An Introduction", section 3.3.

    Args:
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      v_t: value of the state at time T, float [], or values at times [1, ..., T], floats [T]; of these only the last
        is used, and those where `truncation_t` is true.
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
      >>> rlx.discounted_returns(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), 8.0).tolist()
      [4.0, 6.0]
    """
    r_t, discount_t, v_t = check(
        "discounted_returns",
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        v_t=(v_t, "[] or [T] or [1]", "float"),
    )
    v_t = jnp.broadcast_to(v_t, r_t.shape)
    v_t, goes_on_t = split_at_truncations("discounted_returns", v_t, truncation_t, truncation_value_t)
    if goes_on_t is None and v_t.size:
        returns = reverse_affine(r_t, discount_t, v_t[-1])
    else:
        # λ-returns with λ = 1, where values that are not looked at might be NaN.
        last_v_t = within(goes_on_t, jnp.zeros_like(v_t), v_t)
        returns = bootstrapped_returns(r_t, discount_t, last_v_t, jnp.ones([], v_t.dtype), goes_on_t)
    return maybe_stop(returns, stop_target_gradients)
