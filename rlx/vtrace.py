"""V-trace (IMPALA) and leaky V-trace: off-policy corrections with clipped importance ratios."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.operator import errors_of, operator
from rlx.core.recurrence import backward, discounted, product
from rlx.core.segments import following, segments, with_ends
from rlx.core.types import Array

_MASKS = {"sample_mask": ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "truncation_value_t")}


class VTraceOutput(NamedTuple):
    """The output of the actor-critic form of V-trace.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one = jnp.ones(1)
      >>> rlx.vtrace_td_error_and_advantage(one, 3 * one, one, 0.5 * one, one).q_estimate.tolist()
      [2.5]
    """

    errors: Array  # [T], targets minus values
    pg_advantage: Array  # [T], advantages for the policy gradient
    q_estimate: Array  # [T], estimated values of the actions taken


@operator(masks=_MASKS)
def leaky_vtrace(
    v_tm1: Float[Array, "T"],
    v_t: Float[Array, "T"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    rho_tm1: Real[Array, "T"],
    alpha_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0,
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0,
    clip_rho_threshold: Real[Array | float, "", "#T", "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Real[Array, "T"] | None = None,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Leaky V-trace errors: each clipped importance ratio becomes α min(ρ̄, ρ) + (1 - α) ρ.

    α = 1 gives V-trace and α = 0 plain importance sampling. From "A Self-Tuning Actor-Critic Algorithm", Zahavy et al.
    2020 (https://arxiv.org/abs/2002.12928).

    Args:
      v_tm1: values of the states at times [0, ..., T-1].
      v_t: values of the states at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      rho_tm1: importance ratios ρ = π(a) / μ(a) of the actions at times [0, ..., T-1].
      alpha_: α in [0, 1].
      lambda_: λ in [0, 1].
      clip_rho_threshold: ρ̄ ≥ 0.
      stop_target_gradients: as in `vtrace`.
      sample_mask: as in `vtrace`.
      truncation_t: as in `vtrace`.
      truncation_value_t: as in `vtrace`.

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> rlx.leaky_vtrace(jnp.zeros(2), jnp.array([2.0, 4.0]), jnp.ones(2), half, jnp.array([0.5, 2.0]), 0.5).tolist()
      [2.125, 4.5]
    """
    v_t, continues_t = segments(v_t, truncation_t, truncation_value_t)
    delta_t = _leaky(rho_tm1, clip_rho_threshold, alpha_) * (r_t + product(discount_t, v_t) - v_tm1)
    c_t = lambda_ * _leaky(rho_tm1, 1.0, alpha_)
    errors = _sum_of_errors(delta_t, discount_t, c_t, sample_mask, continues_t)
    return errors_of(v_tm1, errors, stop_target_gradients)


def _leaky(rho_tm1: Array, threshold: Array | float, alpha: Array | float) -> Array:
    """α min(ρ̄, ρ) + (1 - α) ρ."""
    largest = float(jnp.finfo(rho_tm1.dtype).max)  # 0 · ∞ is NaN
    return alpha * jnp.minimum(threshold, rho_tm1) + (1 - alpha) * jnp.minimum(rho_tm1, largest)


def _sum_of_errors(
    delta_t: Array, discount_t: Array, c_t: Array, sample_mask: Array | None, continues_t: Array | None
) -> Array:
    """E_{t-1} = δ_t + γ_t c_t E_t; steps that do not count pass E_t on."""
    w_t = product(discount_t, c_t)
    if sample_mask is not None:
        delta_t, w_t = jnp.where(sample_mask != 0, delta_t, 0), jnp.where(sample_mask != 0, w_t, 1)
    return backward(discounted, (delta_t, w_t), continues_t=continues_t)


@operator(masks=_MASKS)
def vtrace(
    v_tm1: Float[Array, "T"],
    v_t: Float[Array, "T"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    rho_tm1: Real[Array, "T"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0,
    clip_rho_threshold: Real[Array | float, "", "#T", "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Real[Array, "T"] | None = None,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """V-trace errors, for learning the values of a policy from actions chosen by another policy.

    The error at time t-1 is E_{t-1} = min(ρ̄, ρ_{t-1}) δ_t + γ_t λ_t min(1, ρ_{t-1}) E_t, where
    δ_t = r_t + γ_t v_t - v_{t-1}; errors plus values are the V-trace targets. From "IMPALA: Scalable Distributed
    Deep-RL with Importance Weighted Actor-Learner Architectures", Espeholt et al. 2018
    (https://arxiv.org/abs/1802.01561).

    Args:
      v_tm1: values of the states at times [0, ..., T-1].
      v_t: values of the states at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      rho_tm1: importance ratios ρ = π(a) / μ(a) of the actions at times [0, ..., T-1].
      lambda_: λ in [0, 1].
      clip_rho_threshold: ρ̄ ≥ 0.
      stop_target_gradients: whether to stop gradients through the targets (errors plus values); if so, the gradient of
        an error with respect to its own value is -1.
      sample_mask: false for steps to exclude from learning: they add no error and pass the next step's error on
        unchanged. Their contents (even NaN) reach neither other steps nor gradients. By default all steps count.
      truncation_t: true where the sequence was truncated at time t without terminating: the error of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; taken from
        `v_t` by default.

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> rlx.vtrace(jnp.zeros(2), jnp.array([2.0, 4.0]), jnp.ones(2), half, jnp.array([0.5, 2.0])).tolist()
      [1.75, 3.0]
    """
    v_t, continues_t = segments(v_t, truncation_t, truncation_value_t)
    delta_t = jnp.minimum(clip_rho_threshold, rho_tm1) * (r_t + product(discount_t, v_t) - v_tm1)
    c_t = lambda_ * jnp.minimum(1.0, rho_tm1)
    errors = _sum_of_errors(delta_t, discount_t, c_t, sample_mask, continues_t)
    return errors_of(v_tm1, errors, stop_target_gradients)


@operator(masks=_MASKS)
def leaky_vtrace_td_error_and_advantage(
    v_tm1: Float[Array, "T"],
    v_t: Float[Array, "T"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    rho_tm1: Real[Array, "T"],
    alpha: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0,
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0,
    clip_rho_threshold: Real[Array | float, "", "#T", "in [0, inf]"] = 1.0,
    clip_pg_rho_threshold: Real[Array | float, "", "#T", "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Real[Array, "T"] | None = None,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> VTraceOutput:
    """Leaky V-trace errors and the corresponding advantages.

    They are those of `vtrace_td_error_and_advantage`, with each clipped ratio replaced by α min(ρ̄, ρ) + (1 - α) ρ.
    From "A Self-Tuning Actor-Critic Algorithm", Zahavy et al. 2020 (https://arxiv.org/abs/2002.12928).

    Args:
      v_tm1: values of the states at times [0, ..., T-1].
      v_t: values of the states at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      rho_tm1: importance ratios ρ = π(a) / μ(a) of the actions at times [0, ..., T-1].
      alpha: α in [0, 1].
      lambda_: λ in [0, 1].
      clip_rho_threshold: ρ̄ ≥ 0.
      clip_pg_rho_threshold: ρ̄_pg ≥ 0.
      stop_target_gradients: whether to stop gradients through the targets V_t in all three outputs. Gradients
        still pass through other inputs of the last two; `rlx.policy_gradient_loss` stops its advantages.
      sample_mask: as in `vtrace`.
      truncation_t: as in `vtrace`.
      truncation_value_t: as in `vtrace`.

    Returns:
      `VTraceOutput(errors, pg_advantage, q_estimate)`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> out = rlx.leaky_vtrace_td_error_and_advantage(
      ...     jnp.zeros(2), jnp.ones(2), jnp.ones(2), half, jnp.array([1.0, 2.0]), alpha=0.5)
      >>> out.pg_advantage.tolist()
      [2.125, 2.25]
    """
    steps = v_tm1, v_t, r_t, discount_t
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    clipping = rho_tm1, alpha, lambda_, clip_rho_threshold
    errors = leaky_vtrace.kernel(*steps, *clipping, stop_target_gradients, sample_mask, **ends)
    q_estimate = _action_values(errors, *steps, lambda_, **ends)
    pg_advantage = _leaky(rho_tm1, clip_pg_rho_threshold, alpha) * (q_estimate - v_tm1)
    return VTraceOutput(errors, pg_advantage, q_estimate)


@operator(masks=_MASKS)
def vtrace_td_error_and_advantage(
    v_tm1: Float[Array, "T"],
    v_t: Float[Array, "T"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    rho_tm1: Real[Array, "T"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0,
    clip_rho_threshold: Real[Array | float, "", "#T", "in [0, inf]"] = 1.0,
    clip_pg_rho_threshold: Real[Array | float, "", "#T", "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Real[Array, "T"] | None = None,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> VTraceOutput:
    """V-trace errors and policy gradient advantages, as used by IMPALA's actor-critic.

    With targets V_t = v_t + E_t (see `vtrace`), the value of the action taken at time t-1 is estimated as q = r_t + γ_t
    [λ_t V_t + (1 - λ_t) v_t], and its advantage as min(ρ̄_pg, ρ_{t-1}) (q - v_{t-1}); these v_t are those of `v_tm1`,
    one step later. The last step, and each step where the sequence was truncated, uses `v_t` in place of the bracket.
    From "IMPALA", Espeholt et al. 2018 (https://arxiv.org/abs/1802.01561).

    Args:
      v_tm1: values of the states at times [0, ..., T-1].
      v_t: values of the states at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      rho_tm1: importance ratios ρ = π(a) / μ(a) of the actions at times [0, ..., T-1].
      lambda_: λ in [0, 1].
      clip_rho_threshold: ρ̄ ≥ 0.
      clip_pg_rho_threshold: ρ̄_pg ≥ 0.
      stop_target_gradients: whether to stop gradients through the targets V_t in all three outputs. Gradients
        still pass through other inputs of the last two; `rlx.policy_gradient_loss` stops its advantages.
      sample_mask: as in `vtrace`.
      truncation_t: as in `vtrace`.
      truncation_value_t: as in `vtrace`.

    Returns:
      `VTraceOutput(errors, pg_advantage, q_estimate)`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> out = rlx.vtrace_td_error_and_advantage(jnp.zeros(2), jnp.ones(2), jnp.ones(2), half, jnp.ones(2))
      >>> out.pg_advantage.tolist()
      [1.75, 1.5]
    """
    steps = v_tm1, v_t, r_t, discount_t
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    clipping = rho_tm1, lambda_, clip_rho_threshold
    errors = vtrace.kernel(*steps, *clipping, stop_target_gradients, sample_mask, **ends)
    q_estimate = _action_values(errors, *steps, lambda_, **ends)
    pg_advantage = jnp.minimum(clip_pg_rho_threshold, rho_tm1) * (q_estimate - v_tm1)
    return VTraceOutput(errors, pg_advantage, q_estimate)


def _action_values(
    errors: Array,
    v_tm1: Array,
    v_t: Array,
    r_t: Array,
    discount_t: Array,
    lambda_: Array | float,
    truncation_t: Array | None,
    truncation_value_t: Array | None,
) -> Array:
    """r_t + γ_t [λ_t V_t + (1 - λ_t) v_t], with targets V_t = v_t + E_t; at the end of a segment r_t + γ_t v_t."""
    v_t, continues_t = segments(v_t, truncation_t, truncation_value_t)
    error_t = following(errors)
    if continues_t is not None:  # no derivative of a product may take NaN from one segment to another
        lambda_, error_t = with_ends(lambda_, continues_t), with_ends(error_t, continues_t)
    bootstrap_t = with_ends(following(v_tm1) + product(lambda_, error_t), continues_t, v_t)
    return r_t + product(discount_t, bootstrap_t)
