"""TD(λ), SARSA and expected SARSA: temporal-difference errors of state values and of action values."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Mask, Real
from rlx.core.arrays import expected_value, pick
from rlx.core.masking import masked, weighted
from rlx.core.operator import errors_of, maybe_stop, operator
from rlx.core.recurrence import backward, discounted, product
from rlx.core.segments import following, segments, with_ends
from rlx.core.types import Array
from rlx.returns import lambda_returns


@operator(masks={"discount_t": ("v_t",)})
def td_learning(
    v_tm1: Float[Array, ""],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    v_t: Float[Array, ""],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """TD(0) temporal-difference error: r_t + γ_t v_t - v_tm1.

    From "Learning to Predict by the Methods of Temporal Differences", Sutton 1988
    (https://link.springer.com/article/10.1023/A:1022633531479).

    Args:
      v_tm1: value of the state at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      v_t: value of the state at time t.
      stop_target_gradients: whether to stop gradients through the target (all but `v_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import rlx
      >>> float(rlx.td_learning(1.0, 0.5, 0.5, 3.0))
      1.0
    """
    target = r_t + discount_t * v_t
    return maybe_stop(target, stop_target_gradients) - v_tm1


@operator()
def qv_max(
    v_tm1: Float[Array, ""],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """QVMAX temporal-difference error of state values: r_t + γ_t max_a q_t[a] - v_tm1.

    From "The QV Family Compared to Other Reinforcement Learning Algorithms", Wiering and van Hasselt 2009.

    Args:
      v_tm1: value of the state at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      q_t: action values at time t.
      stop_target_gradients: whether to stop gradients through the target (all but `v_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.qv_max(1.0, 0.5, 0.5, jnp.array([3.0, 5.0])))
      2.0
    """
    target = r_t + weighted(discount_t, jnp.max(q_t))
    return maybe_stop(target, stop_target_gradients) - v_tm1


@operator(masks={"discount_t": ("q_t",)})
def sarsa(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "A"],
    a_t: Int[Array, "", "in [-1, A)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """SARSA temporal-difference error: r_t + γ_t q_t[a_t] - q_tm1[a_tm1].

    From "On-Line Q-Learning Using Connectionist Systems", Rummery and Niranjan 1994; see Sutton and Barto,
    "Reinforcement Learning", section 6.4.

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      q_t: action values at time t.
      a_t: action at time t.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sarsa(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, jnp.array([3.0, 5.0]), 0))
      1.0
    """
    target = r_t + discount_t * q_t[a_t]
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@operator()
def expected_sarsa(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "A"],
    probs_a_t: Float[Array, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Expected SARSA temporal-difference error: r_t + γ_t Σ_a π_t(a) q_t[a] - q_tm1[a_tm1].

    From "A Theoretical and Empirical Analysis of Expected Sarsa", van Seijen et al. 2009
    (http://www.cs.ox.ac.uk/people/shimon.whiteson/pubs/vanseijenadprl09.pdf).

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      q_t: action values at time t.
      probs_a_t: π_t, probabilities of the actions at time t.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> probs = jnp.array([0.5, 0.5])
      >>> float(rlx.expected_sarsa(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, jnp.array([3.0, 5.0]), probs))
      1.5
    """
    if stop_target_gradients is not True:  # for values, γ_t (…) below suffices
        q_t, probs_a_t = masked(discount_t, q_t), masked(discount_t, probs_a_t)
    target = r_t + weighted(discount_t, expected_value(probs_a_t, q_t))
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@operator(masks={"discount_t": ("v_t",)})
def qv_learning(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    v_t: Float[Array, ""],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """QV-learning temporal-difference error of action values: r_t + γ_t v_t - q_tm1[a_tm1].

    From "Two Novel On-policy Reinforcement Learning Algorithms based on TD(λ)-methods", Wiering and van Hasselt 2007.

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      v_t: value of the state at time t.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.qv_learning(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, 5.0))
      2.0
    """
    target = r_t + discount_t * v_t
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@operator()
def td_lambda(
    v_tm1: Float[Array, "T"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    v_t: Float[Array, "T"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"],
    stop_target_gradients: bool = True,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """TD(λ) temporal-difference errors: G^λ_{t-1} - v_{t-1}, with the λ-returns of `lambda_returns`.

    See Sutton and Barto, "Reinforcement Learning: An Introduction", chapter 12.

    Args:
      v_tm1: values of the states at times [0, ..., T-1].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      v_t: values of the states at times [1, ..., T].
      lambda_: λ in [0, 1]; the last entry has no effect.
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
      >>> half, v_t = jnp.array([0.5, 0.5]), jnp.array([4.0, 8.0])
      >>> rlx.td_lambda(jnp.ones(2), jnp.array([1.0, 2.0]), half, v_t, 0.5).tolist()
      [2.5, 5.0]
    """
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    return lambda_returns.kernel(r_t, discount_t, v_t, lambda_, stop_target_gradients, **ends) - v_tm1


@operator()
def sarsa_lambda(
    q_tm1: Float[Array, "T A"],
    a_tm1: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    q_t: Float[Array, "T A"],
    a_t: Int[Array, "T", "in [-1, A)"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"],
    stop_target_gradients: bool = True,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """SARSA(λ) temporal-difference errors: λ-returns that bootstrap from q_t[a_t], minus q_{t-1}[a_{t-1}].

    See Sutton and Barto, "Reinforcement Learning: An Introduction", section 12.7.

    Args:
      q_tm1: action values at times [0, ..., T-1].
      a_tm1: actions at times [0, ..., T-1].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      q_t: action values at times [1, ..., T].
      a_t: actions at times [1, ..., T].
      lambda_: λ in [0, 1]; the last entry has no effect.
      stop_target_gradients: whether to stop gradients through the targets (all but the values at times [0, ..., T-1]).
      truncation_t: true where the sequence was truncated at time t without terminating: the target of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; by default
        q_t[a_t].

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, half = jnp.array([[4.0, 0.0], [0.0, 8.0]]), jnp.array([0.5, 0.5])
      >>> a = jnp.array([0, 1])
      >>> rlx.sarsa_lambda(jnp.ones([2, 2]), a, jnp.array([1.0, 2.0]), half, q_t, a, 0.5).tolist()
      [2.5, 5.0]
    """
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    target = lambda_returns.kernel(r_t, discount_t, pick(q_t, a_t), lambda_, stop_target_gradients, **ends)
    return target - pick(q_tm1, a_tm1)


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
      rho_tm1: importance ratios ρ = π(a) / μ(a) of the actions at times [0, ..., T-1].
      lambda_: λ at times [1, ..., T]; the last entry has no effect.
      values: values of the states at times [0, ..., T]: one more than the number of rewards.
      stop_target_gradients: whether to stop gradients through the targets (errors plus values); if so, the gradient of
        an error with respect to its own value is -1.
      truncation_t: true where the sequence was truncated at time t without terminating: the error of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; taken from
        `values` by default.

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> r_t, half, values = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([1.0, 2.0, 4.0])
      >>> rlx.importance_corrected_td_errors(r_t, half, jnp.array([1.0, 2.0]), 0.5, values).tolist()
      [2.0, 4.0]
    """
    v_tm1, (v_t, continues_t) = values[:-1], segments(values[1:], truncation_t, truncation_value_t)
    delta_t = r_t + product(discount_t, v_t) - v_tm1
    c_t = with_ends(following(rho_tm1) * lambda_, continues_t)
    errors = rho_tm1 * backward(discounted, (delta_t, product(discount_t, c_t)), continues_t=continues_t)
    return errors_of(v_tm1, errors, stop_target_gradients)
