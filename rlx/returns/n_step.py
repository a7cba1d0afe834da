"""n-step returns."""

import jax.numpy as jnp

from rlx.core.checks import check, whole_number
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import weigh
from rlx.core.recurrence import windowed_affine
from rlx.core.types import Array, ArrayLike
from rlx.returns.segments import split_at_truncations, within


@stoppable
def n_step_bootstrapped_returns(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    n: int,
    lambda_t: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """n-step returns: λ-returns that look at most n steps ahead and then bootstrap.

    G⁽¹⁾_{t-1} = r_t + γ_t v_t and G⁽ⁿ⁾_{t-1} = r_t + γ_t [(1 - λ_t) v_t + λ_t G⁽ⁿ⁻¹⁾_t]. With λ = 1, the default,
    these are r_t + γ_t r_{t+1} + ... + γ_t ... γ_{t+n-1} v_{t+n-1}. Fewer than n steps from the end the return
    bootstraps from the last value, so n larger than T gives the λ-returns of the whole sequence.

    See Sutton and Barto, "Reinforcement Learning: An Introduction", chapter 7.

    Args:
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      v_t: values of states, or of states and actions, at times [1, ..., T], floats [T].
      n: number of steps, at least 1, a Python integer.
      lambda_t: λ at times [1, ..., T] or [1, ..., T-1], number [], [T] or [T-1]; the one at time T has no effect.
      stop_target_gradients: whether the returns are constants to gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: no return looks past it.
        The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default `v_t` is taken to hold them.

    Returns:
      Returns from times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind, or `n` is not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> ones = jnp.ones(3)
      >>> rlx.n_step_bootstrapped_returns(ones, 0.5 * ones, 4.0 * ones, n=2).tolist()
      [2.5, 2.5, 3.0]
    """
    r_t, discount_t, v_t, lambda_t = check(
        "n_step_bootstrapped_returns",
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        v_t=(v_t, "[T]", "float"),
        lambda_t=(lambda_t, "[] or [T] or [T-1]", "real in [0, 1] if []"),
    )
    n = whole_number("n_step_bootstrapped_returns", "n", n, "a positive number of steps")
    v_t, goes_on_t = split_at_truncations("n_step_bootstrapped_returns", v_t, truncation_t, truncation_value_t)
    if lambda_t.ndim == 1 and lambda_t.shape != r_t.shape:
        lambda_t = jnp.concatenate([lambda_t, jnp.ones(1, lambda_t.dtype)])
    lambda_t = within(goes_on_t, jnp.broadcast_to(lambda_t, r_t.shape))
    delta_t = r_t + weigh(discount_t * (1 - lambda_t), v_t)
    returns = windowed_affine(delta_t, discount_t * lambda_t, r_t + weigh(discount_t, v_t), n)
    return maybe_stop(returns, stop_target_gradients)
