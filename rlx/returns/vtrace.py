"""V-trace and leaky V-trace: off-policy corrections with clipped importance ratios."""

from typing import NamedTuple

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, weigh
from rlx.core.types import Array, ArrayLike
from rlx.returns.segments import accumulated_errors, following, split_at_truncations, within


class VTraceOutput(NamedTuple):
    """What the actor-critic form of V-trace returns.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one = jnp.ones(1)
      >>> rlx.vtrace_td_error_and_advantage(one, 3 * one, one, 0.5 * one, one).q_estimate.tolist()
      [2.5]
    """

    errors: Array  # [T], targets minus values
    pg_advantage: Array  # [T], what weights the policy gradient
    q_estimate: Array  # [T], estimated values of the actions taken


@stoppable
def vtrace(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """V-trace errors, for learning values from the actions of another policy.

    The error at time t-1 is E_{t-1} = min(ρ̄, ρ_{t-1}) δ_t + γ_t λ_t min(1, ρ_{t-1}) E_t, where
    δ_t = r_t + γ_t v_t - v_{t-1}; errors plus values are the V-trace targets. From "IMPALA: Scalable Distributed
    Deep-RL with Importance Weighted Actor-Learner Architectures", Espeholt et al. 2018
    (https://arxiv.org/abs/1802.01561).

    Args:
      v_tm1: values of the states at times [0, ..., T-1], floats [T].
      v_t: values of the states at times [1, ..., T], floats [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      rho_tm1: ρ = π(a) / μ(a), importance ratios of the actions at times [0, ..., T-1], numbers [T].
      lambda_: λ in [0, 1], number [] or [T].
      clip_rho_threshold: ρ̄ ≥ 0, number [].
      stop_target_gradients: whether errors plus values, the targets, are constants to gradients; if so, an error's
        gradient is -1 for its own value.
      sample_mask: mask [T], false for steps that are not learnable: they add no error and pass on the next one as it
        is. What they hold (even NaN) reaches neither other steps nor gradients. By default all steps count.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the error of that step
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
      >>> half = jnp.array([0.5, 0.5])
      >>> rlx.vtrace(jnp.zeros(2), jnp.array([2.0, 4.0]), jnp.ones(2), half, jnp.array([0.5, 2.0])).tolist()
      [1.75, 3.0]
    """
    return _errors(
        "vtrace",
        _Inputs(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, sample_mask, truncation_t, truncation_value_t),
        ("alpha_", None),
        clip_rho_threshold,
        stop_target_gradients,
    )


@stoppable
def leaky_vtrace(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    alpha_: ArrayLike = 1.0,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """V-trace errors whose clipping leaks: each clipped ratio is α min(ρ̄, ρ) + (1 - α) ρ.

    α = 1 is V-trace, α = 0 plain importance sampling. From "A Self-Tuning Actor-Critic Algorithm", Zahavy et al. 2020
    (https://arxiv.org/abs/2002.12928).

    Args:
      v_tm1: values of the states at times [0, ..., T-1], floats [T].
      v_t: values of the states at times [1, ..., T], floats [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      rho_tm1: ρ = π(a) / μ(a), importance ratios of the actions at times [0, ..., T-1], numbers [T].
      alpha_: α in [0, 1], number [] or [T].
      lambda_: λ in [0, 1], number [] or [T].
      clip_rho_threshold: ρ̄ ≥ 0, number [].
      stop_target_gradients: as in `vtrace`.
      sample_mask: as in `vtrace`.
      truncation_t: as in `vtrace`.
      truncation_value_t: as in `vtrace`.

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> rlx.leaky_vtrace(jnp.zeros(2), jnp.array([2.0, 4.0]), jnp.ones(2), half, jnp.array([0.5, 2.0]), 0.5).tolist()
      [2.125, 4.5]
    """
    return _errors(
        "leaky_vtrace",
        _Inputs(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, sample_mask, truncation_t, truncation_value_t),
        ("alpha_", alpha_),
        clip_rho_threshold,
        stop_target_gradients,
    )


@stoppable
def vtrace_td_error_and_advantage(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    clip_pg_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> VTraceOutput:
    """V-trace errors and the advantages that go with them, as IMPALA's actor-critic uses them.

    With targets V_t = v_t + E_t (see `vtrace`), the value of the action taken at time t-1 is estimated as
    q = r_t + γ_t [λ_t V_t + (1 - λ_t) v_t], its advantage as min(ρ̄_pg, ρ_{t-1}) (q - v_{t-1}). The last step, and each
    step where the sequence was cut, uses v_t in place of the target. From "IMPALA", Espeholt et al. 2018
    (https://arxiv.org/abs/1802.01561).

    Args:
      v_tm1: values of the states at times [0, ..., T-1], floats [T].
      v_t: values of the states at times [1, ..., T], floats [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      rho_tm1: ρ = π(a) / μ(a), importance ratios of the actions at times [0, ..., T-1], numbers [T].
      lambda_: λ in [0, 1], number [] or [T].
      clip_rho_threshold: ρ̄ ≥ 0, number [].
      clip_pg_rho_threshold: ρ̄_pg ≥ 0, number [].
      stop_target_gradients: whether the targets are constants to gradients, in all three outputs.
      sample_mask: as in `vtrace`.
      truncation_t: as in `vtrace`.
      truncation_value_t: as in `vtrace`.

    Returns:
      `VTraceOutput(errors, pg_advantage, q_estimate)`, each floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> out = rlx.vtrace_td_error_and_advantage(jnp.zeros(2), jnp.ones(2), jnp.ones(2), half, jnp.ones(2))
      >>> out.pg_advantage.tolist()
      [1.75, 1.5]
    """
    return _errors_and_advantage(
        "vtrace_td_error_and_advantage",
        _Inputs(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, sample_mask, truncation_t, truncation_value_t),
        ("alpha", None),
        clip_rho_threshold,
        clip_pg_rho_threshold,
        stop_target_gradients,
    )


@stoppable
def leaky_vtrace_td_error_and_advantage(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    alpha: ArrayLike = 1.0,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    clip_pg_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> VTraceOutput:
    """Leaky V-trace errors and the advantages that go with them.

    As `vtrace_td_error_and_advantage`, with each clipped ratio leaking: α min(ρ̄, ρ) + (1 - α) ρ. From "A Self-Tuning
    Actor-Critic Algorithm", Zahavy et al. 2020 (https://arxiv.org/abs/2002.12928).

    Args:
      v_tm1: values of the states at times [0, ..., T-1], floats [T].
      v_t: values of the states at times [1, ..., T], floats [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      rho_tm1: ρ = π(a) / μ(a), importance ratios of the actions at times [0, ..., T-1], numbers [T].
      alpha: α in [0, 1], number [] or [T].
      lambda_: λ in [0, 1], number [] or [T].
      clip_rho_threshold: ρ̄ ≥ 0, number [].
      clip_pg_rho_threshold: ρ̄_pg ≥ 0, number [].
      stop_target_gradients: whether the targets are constants to gradients, in all three outputs.
      sample_mask: as in `vtrace`.
      truncation_t: as in `vtrace`.
      truncation_value_t: as in `vtrace`.

    Returns:
      `VTraceOutput(errors, pg_advantage, q_estimate)`, each floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> out = rlx.leaky_vtrace_td_error_and_advantage(
      ...     jnp.zeros(2), jnp.ones(2), jnp.ones(2), half, jnp.array([1.0, 2.0]), alpha=0.5)
      >>> out.pg_advantage.tolist()
      [2.125, 2.25]
    """
    return _errors_and_advantage(
        "leaky_vtrace_td_error_and_advantage",
        _Inputs(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, sample_mask, truncation_t, truncation_value_t),
        ("alpha", alpha),
        clip_rho_threshold,
        clip_pg_rho_threshold,
        stop_target_gradients,
    )


class _Inputs(NamedTuple):
    v_tm1: ArrayLike
    v_t: ArrayLike
    r_t: ArrayLike
    discount_t: ArrayLike
    rho_tm1: ArrayLike
    lambda_: ArrayLike
    sample_mask: ArrayLike | None
    truncation_t: ArrayLike | None
    truncation_value_t: ArrayLike | None


class _Checked(NamedTuple):
    """The sequences after all checks: cut into pieces, and with what is masked out shielded."""

    v_tm1: Array
    v_t: Array
    r_t: Array
    discount_t: Array
    rho_tm1: Array
    alpha: Array | None
    lambda_: Array
    mask: Array | None
    goes_on_t: Array | None

    def clipped_rho(self, threshold: ArrayLike) -> Array:
        clipped = jnp.minimum(threshold, self.rho_tm1)
        return clipped if self.alpha is None else self.alpha * clipped + weigh(1 - self.alpha, self.rho_tm1)


def _check(
    name: str, inputs: _Inputs, alpha: tuple[str, ArrayLike | None], **thresholds: ArrayLike
) -> tuple[_Checked, tuple[Array, ...]]:
    alpha_name, alpha_value = alpha
    v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_array, *rest = check(
        name,
        v_tm1=(inputs.v_tm1, "[T]", "float"),
        v_t=(inputs.v_t, "[T]", "float"),
        r_t=(inputs.r_t, "[T]", "real"),
        discount_t=(inputs.discount_t, "[T]", "real"),
        rho_tm1=(inputs.rho_tm1, "[T]", "real"),
        lambda_=(inputs.lambda_, "[] or [T] or [1]", "real in [0, 1] if []"),
        **{key: (value, "[] or [T]", "real in [0, inf]") for key, value in thresholds.items()},
        **({} if alpha_value is None else {alpha_name: (alpha_value, "[] or [T] or [1]", "real in [0, 1] if []")}),
        **({} if inputs.sample_mask is None else {"sample_mask": (inputs.sample_mask, "[T]", "mask")}),
    )
    mask = None if inputs.sample_mask is None else rest.pop().astype(bool)
    alpha_array = None if alpha_value is None else rest.pop()
    v_t, goes_on_t = split_at_truncations(name, v_t, inputs.truncation_t, inputs.truncation_value_t)
    if mask is not None:
        v_tm1, v_t, r_t, discount_t, rho_tm1 = (if_used(mask, x) for x in (v_tm1, v_t, r_t, discount_t, rho_tm1))
    checked = _Checked(v_tm1, v_t, r_t, discount_t, rho_tm1, alpha_array, lambda_array, mask, goes_on_t)
    return checked, tuple(rest)


def _accumulate(x: _Checked, clip_rho_threshold: Array, stop: bool) -> Array:
    delta_t = x.clipped_rho(clip_rho_threshold) * (x.r_t + weigh(x.discount_t, x.v_t) - x.v_tm1)
    discount_t, c_t = x.discount_t, x.lambda_ * x.clipped_rho(1.0)
    if x.mask is not None:
        delta_t, discount_t, c_t = jnp.where(x.mask, delta_t, 0), *(jnp.where(x.mask, y, 1) for y in (discount_t, c_t))
    errors = accumulated_errors(delta_t, discount_t, c_t, x.goes_on_t)
    return maybe_stop(errors + x.v_tm1, True) - x.v_tm1 if stop else errors


def _errors(
    name: str, inputs: _Inputs, alpha: tuple[str, ArrayLike | None], clip_rho_threshold: ArrayLike, stop: bool
) -> Array:
    x, (threshold,) = _check(name, inputs, alpha, clip_rho_threshold=clip_rho_threshold)
    return _accumulate(x, threshold, stop)


def _errors_and_advantage(
    name: str,
    inputs: _Inputs,
    alpha: tuple[str, ArrayLike | None],
    clip_rho_threshold: ArrayLike,
    clip_pg_rho_threshold: ArrayLike,
    stop: bool,
) -> VTraceOutput:
    x, (threshold, pg_threshold) = _check(
        name, inputs, alpha, clip_rho_threshold=clip_rho_threshold, clip_pg_rho_threshold=clip_pg_rho_threshold
    )
    errors = _accumulate(x, threshold, stop)
    bootstrap_t = within(x.goes_on_t, following(x.v_tm1) + weigh(x.lambda_, following(errors)), x.v_t)
    q_estimate = x.r_t + weigh(x.discount_t, bootstrap_t)
    return VTraceOutput(errors, x.clipped_rho(pg_threshold) * (q_estimate - x.v_tm1), q_estimate)
