"""Generalised advantage estimates and importance-corrected multi-step errors."""

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import weigh
from rlx.core.types import Array, ArrayLike
from rlx.returns.segments import accumulated_errors, following, split_at_truncations


@stoppable
def truncated_generalized_advantage_estimation(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    lambda_: ArrayLike,
    values: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Generalised advantage estimates over a sequence: Â_t = δ_t + γ_{t+1} λ_{t+1} Â_{t+1}.

    Here δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t, and the last step has Â_{T-1} = δ_{T-1}. Adding `values[:-1]` gives
    λ-returns. From "High-Dimensional Continuous Control Using Generalized Advantage Estimation", Schulman et al. 2015
    (https://arxiv.org/abs/1506.02438); truncated as in PPO (https://arxiv.org/abs/1707.06347).

    Args:
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      lambda_: λ in [0, 1], number [] or [T].
      values: values of the states at times [0, ..., T], floats [T+1]: one more than there are rewards.
      stop_target_gradients: whether the advantages are constants to gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the advantage of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true. With
        environments that reset by themselves `values` holds the value of the first state of the next episode there, so
        give this; by default `values` is taken to hold them.

    Returns:
      Advantages at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> r_t, discount_t, values = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([1.0, 2.0, 4.0])
      >>> rlx.truncated_generalized_advantage_estimation(r_t, discount_t, 0.5, values).tolist()
      [1.5, 2.0]
    """
    name = "truncated_generalized_advantage_estimation"
    r_t, discount_t, lambda_, values = check(
        name,
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        lambda_=(lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
        values=(values, "[T+1]", "float"),
    )
    v_t, goes_on_t = split_at_truncations(name, values[1:], truncation_t, truncation_value_t)
    delta_t = r_t + weigh(discount_t, v_t) - values[:-1]
    advantages = accumulated_errors(delta_t, discount_t, lambda_, goes_on_t)
    return maybe_stop(advantages, stop_target_gradients)


@stoppable
def importance_corrected_td_errors(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike,
    values: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Multi-step temporal-difference errors with per-decision importance sampling.

    The error at time t is ρ_t Δ_t, with Δ_t = δ_t + γ_{t+1} ρ_{t+1} λ_{t+1} Δ_{t+1} and
    δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t. From "A new Q(λ) with interim forward view and Monte Carlo equivalence",
    Sutton et al. 2014 (http://proceedings.mlr.press/v32/sutton14.html).

    Args:
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      rho_tm1: ρ = π(a) / μ(a), importance ratios of the actions at times [0, ..., T-1], numbers [T].
      lambda_: λ at times [1, ..., T], number [] or [T]; the last one has no effect.
      values: values of the states at times [0, ..., T], floats [T+1]: one more than there are rewards.
      stop_target_gradients: whether errors plus values, the targets, are constants to gradients; if so, an error's
        gradient is -1 for its own value.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the error of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default `values` is taken to hold them.

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> r_t, half, values = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([1.0, 2.0, 4.0])
      >>> rlx.importance_corrected_td_errors(r_t, half, jnp.array([1.0, 2.0]), 0.5, values).tolist()
      [2.0, 4.0]
    """
    name = "importance_corrected_td_errors"
    r_t, discount_t, rho_tm1, lambda_, values = check(
        name,
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        rho_tm1=(rho_tm1, "[T]", "real"),
        lambda_=(lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
        values=(values, "[T+1]", "float"),
    )
    v_tm1 = values[:-1]
    v_t, goes_on_t = split_at_truncations(name, values[1:], truncation_t, truncation_value_t)
    delta_t = r_t + weigh(discount_t, v_t) - v_tm1
    errors = rho_tm1 * accumulated_errors(delta_t, discount_t, following(rho_tm1) * lambda_, goes_on_t)
    return maybe_stop(errors + v_tm1, True) - v_tm1 if stop_target_gradients else errors
