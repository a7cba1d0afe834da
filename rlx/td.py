"""Temporal-difference errors of values of states, and of values of the actions taken."""

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import weigh
from rlx.core.operator import maybe_stop, operator
from rlx.core.pieces import following, pieces
from rlx.core.recurrence import backward
from rlx.core.types import Array


@operator()
def importance_corrected_td_errors(
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    rho_tm1: Real[Array, "T"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"],
    values: Float[Array, "T+1"],
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Multi-step temporal-difference errors with per-decision importance sampling.

    The error at time t is ρ_t Δ_t, with Δ_t = δ_t + γ_{t+1} ρ_{t+1} λ_{t+1} Δ_{t+1} and
    δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t. From "A new Q(λ) with interim forward view and Monte Carlo equivalence",
    Sutton et al. 2014 (http://proceedings.mlr.press/v32/sutton14.html).

    Args:
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      rho_tm1: ρ = π(a) / μ(a), importance ratios of the actions at times [0, ..., T-1].
      lambda_: λ at times [1, ..., T]; the last one has no effect.
      values: values of the states at times [0, ..., T]: one more than there are rewards.
      stop_target_gradients: whether errors plus values, the targets, are constants to gradients; if so, an error's
        gradient is -1 for its own value.
      truncation_t: true where the sequence was cut at time t without terminating: the error of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, read where `truncation_t` is true; by
        default `values` is taken to hold them.

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> r_t, half, values = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([1.0, 2.0, 4.0])
      >>> rlx.importance_corrected_td_errors(r_t, half, jnp.array([1.0, 2.0]), 0.5, values).tolist()
      [2.0, 4.0]
    """
    v_tm1, (v_t, goes_on_t) = values[:-1], pieces(values[1:], truncation_t, truncation_value_t)
    delta_t = r_t + weigh(discount_t, v_t) - v_tm1
    errors = rho_tm1 * backward(_error, (delta_t, discount_t, following(rho_tm1) * lambda_), goes_on_t=goes_on_t)
    return maybe_stop(errors + v_tm1, True) - v_tm1 if stop_target_gradients else errors


def _error(e_t: Array, delta_t: Array, discount_t: Array, c_t: Array) -> Array:
    return delta_t + weigh(weigh(discount_t, c_t), e_t)
