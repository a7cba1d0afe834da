"""Retrace and general off-policy returns."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.core.annotations import Float, Int, Mask, Real
from rlx.core.arrays import expected_value, pick
from rlx.core.masking import masked
from rlx.core.operator import maybe_stop, operator
from rlx.core.recurrence import backward, discounted, product
from rlx.core.segments import segments, with_ends
from rlx.core.tracing import traced_once
from rlx.core.types import Array


@operator(masks={"discount_t": ("mu_t", "lambda_")})
def retrace(
    q_tm1: Float[Array, "T A"],
    q_t: Float[Array, "T A"],
    a_tm1: Int[Array, "T", "in [-1, A)"],
    a_t: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    pi_t: Float[Array, "T A"],
    mu_t: Float[Array, "T"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"],
    eps: Real[Array | float, "", "in [0, inf)"] = 1e-8,
    stop_target_gradients: bool = True,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Retrace errors: off-policy returns with truncated importance ratios, minus q_{t-1}[a_{t-1}].

    G_{t-1} = r_t + γ_t (Σ_a π_t(a) q_t[a] - c_t q_t[a_t] + c_t G_t) with c_t = λ_t min(1, π_t(a_t) / (μ_t + ε)). From
    "Safe and Efficient Off-Policy Reinforcement Learning", Munos et al. 2016 (https://arxiv.org/abs/1606.02647).

    Args:
      q_tm1: action values at times [0, ..., T-1].
      q_t: action values at times [1, ..., T].
      a_tm1: actions at times [0, ..., T-1].
      a_t: actions at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      pi_t: probabilities of the target policy at times [1, ..., T].
      mu_t: probabilities with which the behaviour policy took the actions `a_t`.
      lambda_: λ in [0, 1]; the last entry has no effect.
      eps: ε ≥ 0, added to `mu_t` before dividing by it.
      stop_target_gradients: whether to stop gradients through the targets (all but the values at times [0, ..., T-1]).
      truncation_t: true where the sequence was truncated at time t without terminating: the target of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; by default
        Σ_a π_t(a) q_t[a].

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q, a, half = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.array([0, 1]), jnp.array([0.5, 0.5])
      >>> pi_t = jnp.full([2, 2], 0.5)
      >>> rlx.retrace(q, q, a, a, jnp.ones(2), half, pi_t, half, 0.5).tolist()
      [1.125, -3.5]
    """
    c_t = lambda_ * truncated_ratios(discount_t, pi_t, a_t, mu_t, eps)
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    arguments = q_t, a_t, r_t, discount_t, c_t, pi_t, stop_target_gradients
    target = general_off_policy_returns_from_action_values.kernel(*arguments, **ends)
    return target - pick(q_tm1, a_tm1)


@operator()
def retrace_continuous(
    q_tm1: Float[Array, "T"],
    q_t: Float[Array, "T-1"],
    v_t: Float[Array, "T"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    log_rhos: Float[Array, "T-1"],
    lambda_: Real[Array, "", "T-1", "#T", "in [0, 1] if scalar"],
    stop_target_gradients: bool = True,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Retrace errors for any action space, from the values and log importance ratios of the actions taken.

    G_{t-1} - q_{t-1}, with G_{t-1} = r_t + γ_t (v_t - c_t q_t + c_t G_t) and c_t = λ_t min(1, exp(log_rhos_t)). From
    "Safe and Efficient Off-Policy Reinforcement Learning", Munos et al. 2016 (https://arxiv.org/abs/1606.02647).

    Args:
      q_tm1: values of the actions taken at times [0, ..., T-1].
      q_t: values of the actions taken at times [1, ..., T-1].
      v_t: values of the states under the target policy at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      log_rhos: log π(a) - log μ(a) of the actions taken at times [1, ..., T-1].
      lambda_: λ in [0, 1]; an entry for time T has no effect.
      stop_target_gradients: whether to stop gradients through the targets (all but the values at times [0, ..., T-1]).
      truncation_t: true where the sequence was truncated at time t without terminating: the target of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; taken from
        `v_t` by default.

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half, zero = jnp.array([0.5, 0.5]), jnp.zeros(1)
      >>> q_tm1, q_t, v_t = jnp.array([2.0, 8.0]), jnp.array([2.0]), jnp.array([3.0, 7.0])
      >>> rlx.retrace_continuous(q_tm1, q_t, v_t, jnp.ones(2), half, zero, 0.5).tolist()
      [1.125, -3.5]
    """
    if jnp.ndim(lambda_):
        lambda_ = lambda_[: log_rhos.shape[0]]
    # Bound the exponent, because the derivative of an infinite ratio is NaN.
    c_t = lambda_ * jnp.exp(jnp.minimum(0.0, masked(discount_t[:-1], log_rhos)))
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    steps = q_t, v_t, r_t, discount_t, c_t
    return general_off_policy_returns_from_q_and_v.kernel(*steps, stop_target_gradients, **ends) - q_tm1


def truncated_ratios(discount_t: Array, pi_t: Array, a_t: Array, mu_t: Array, eps: Array | float) -> Array:
    """min(1, π_t(a_t) / (μ_t + ε)) of the actions taken, where an episode goes on."""
    return jnp.minimum(1.0, masked(discount_t, pick(pi_t, a_t)) / (mu_t + eps))


@operator(masks={"discount_t": ("c_t",)})
def general_off_policy_returns_from_action_values(
    q_t: Float[Array, "T A"],
    a_t: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    c_t: Real[Array, "T"],
    pi_t: Float[Array, "T A"],
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Off-policy returns: G_{t-1} = r_t + γ_t (Σ_a π_t(a) q_t[a] - c_t q_t[a_t] + c_t G_t), where c_T is taken as 0.

    The coefficients determine the algorithm: c = π(a) / μ(a) gives importance sampling, c = λ Harutyunyan's Q(λ), c =
    π(a) tree backup, and c = λ min(1, π(a) / μ(a)) Retrace. From "Safe and Efficient Off-Policy Reinforcement
    Learning", Munos et al. 2016 (https://arxiv.org/abs/1606.02647).

    Args:
      q_t: action values at times [1, ..., T].
      a_t: actions at times [1, ..., T]; the last entry has no effect.
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      c_t: coefficients at times [1, ..., T]; the last entry has no effect.
      pi_t: probabilities of the target policy at times [1, ..., T].
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the return of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; by default
        Σ_a π_t(a) q_t[a].

    Returns:
      Returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, pi_t = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.full([2, 2], 0.5)
      >>> a_t, half = jnp.array([0, 1]), jnp.array([0.5, 0.5])
      >>> rlx.general_off_policy_returns_from_action_values(q_t, a_t, jnp.ones(2), half, half, pi_t).tolist()
      [3.125, 4.5]
    """
    if stop_target_gradients is not True:  # for values, γ_t (…) below suffices
        q_t, pi_t = masked(discount_t, q_t), masked(discount_t, pi_t)
    v_t, continues_t = segments(expected_value(pi_t, q_t), truncation_t, truncation_value_t)
    returns = _corrected_returns(pick(q_t, a_t), v_t, r_t, discount_t, c_t, continues_t)
    return maybe_stop(returns, stop_target_gradients)


@operator()
def general_off_policy_returns_from_q_and_v(
    q_t: Float[Array, "T-1"],
    v_t: Float[Array, "T"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    c_t: Real[Array, "T-1"],
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Off-policy returns from values of states and of taken actions: G_{t-1} = r_t + γ_t (v_t - c_t q_t + c_t G_t).

    The last step bootstraps from v_T. For the meaning of the coefficients see
    `general_off_policy_returns_from_action_values`; this form needs no sum over actions, so actions may be continuous.
    From "Safe and Efficient Off-Policy Reinforcement Learning", Munos et al. 2016 (https://arxiv.org/abs/1606.02647).

    Args:
      q_t: values of the actions taken at times [1, ..., T-1].
      v_t: values of the states at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      c_t: coefficients at times [1, ..., T-1].
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the return of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; taken from
        `v_t` by default.

    Returns:
      Returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, v_t, c_t, half = jnp.array([2.0]), jnp.array([3.0, 7.0]), jnp.array([0.5]), jnp.array([0.5, 0.5])
      >>> rlx.general_off_policy_returns_from_q_and_v(q_t, v_t, jnp.ones(2), half, c_t).tolist()
      [3.125, 4.5]
    """
    v_t, continues_t = segments(v_t, truncation_t, truncation_value_t)
    returns = _corrected_returns(_with_last(q_t), v_t, r_t, discount_t, _with_last(c_t), continues_t)
    return maybe_stop(returns, stop_target_gradients)


@traced_once
def _corrected_returns(
    q_t: Array, v_t: Array, r_t: Array, discount_t: Array, c_t: Array, continues_t: Array | None
) -> Array:
    """G_{t-1} = r_t + γ_t (v_t - c_t q_t + c_t G_t), a discounted sum with discounts γ_t c_t."""
    w_t = product(discount_t, with_ends(c_t, continues_t))
    delta_t = r_t + product(discount_t, v_t) - product(w_t, q_t)
    return backward(discounted, (delta_t, w_t), continues_t=continues_t)


def _with_last(x_t: Array) -> Array:
    """[T-1] -> [T]: the last entry is never used."""
    return lax.pad(x_t, np.zeros((), x_t.dtype), [(0, 1, 0)])
