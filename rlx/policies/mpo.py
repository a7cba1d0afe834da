"""Maximum a posteriori policy optimisation: MPO's E-step, M-step and dual losses."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.arrays import scale_down
from rlx.core.checks import check, check_numbers, require, whole_number
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import weigh
from rlx.core.types import Array, ArrayLike, Projection


def clip_to_positive(x: Array) -> Array:
    """The default projection of dual variables: at least 1e-10."""
    return jnp.maximum(x, jnp.asarray(1e-10, x.dtype))


class LagrangePenalty(NamedTuple):
    """A dual variable and the constraint that it enforces.

    Example:
      >>> import rlx
      >>> rlx.LagrangePenalty(alpha=1.0, epsilon=0.1).per_dimension
      False
    """

    alpha: Any  # [] or [D]: the multiplier, before projection to positive numbers
    epsilon: Any  # []: the bound of the constraint, not negative
    per_dimension: bool = False  # whether the constraint is on each of the last axis' entries


class MpoOutputs(NamedTuple):
    """The parts of the losses of `rlx.mpo_loss` and `rlx.vmpo_loss`, and the weights behind them.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> _, parts = rlx.mpo_loss(-jnp.ones(2), jnp.zeros(2), temperature, [])
      >>> parts.normalized_weights.tolist(), parts.num_samples
      ([0.5, 0.5], 2)
    """

    temperature_loss: Array  # [*E], or [] for V-MPO
    policy_loss: Array  # [*E]
    kl_loss: Array  # [*E]
    alpha_loss: Array  # [*E]
    normalized_weights: Array  # shape of the Q-values or advantages
    num_samples: Any  # [] how many samples the weights are spread over


KlConstraints = Sequence[tuple[ArrayLike, LagrangePenalty]]


@stoppable
def mpo_loss(
    sample_log_probs: ArrayLike,
    sample_q_values: ArrayLike,
    temperature_constraint: LagrangePenalty,
    kl_constraints: KlConstraints,
    projection_operator: Projection = clip_to_positive,
    policy_loss_weight: float = 1.0,
    temperature_loss_weight: float = 1.0,
    kl_loss_weight: float = 1.0,
    alpha_loss_weight: float = 1.0,
    sample_axis: int = 0,
    use_stop_gradient: bool = True,
) -> tuple[Array, MpoOutputs]:
    """MPO's loss: fit the policy to its own actions, reweighted by exp(q / η), within bounds on the KL divergence.

    Policy loss -Σ_s w_s log π(a_s) with the weights of `mpo_compute_weights_and_temperature_loss`, plus that function's
    temperature loss, plus the penalties and dual losses of `compute_parametric_kl_penalty_and_dual_loss`. From "Maximum
    a Posteriori Policy Optimisation", Abdolmaleki et al. 2018 (https://arxiv.org/abs/1806.06920).

    Args:
      sample_log_probs: log-probabilities of S sampled actions, floats [*E] with an axis of length S at `sample_axis`.
      sample_q_values: their action values, floats of the same shape.
      temperature_constraint: the temperature η as `alpha`, and the bound ε of the E-step's KL divergence.
      kl_constraints: (KL divergence of the old from the new policy, its penalty) for each constraint of the M-step;
        divergences are floats [*E], or [*E, D] for penalties per dimension. May be empty.
      projection_operator: makes dual variables positive.
      policy_loss_weight: weight, not negative, of the policy loss.
      temperature_loss_weight: weight, not negative, of the temperature loss.
      kl_loss_weight: weight, not negative, of the KL penalties.
      alpha_loss_weight: weight, not negative, of their dual losses.
      sample_axis: which axis runs over the sampled actions.
      use_stop_gradient: whether weights, and each side of the penalties' dual problems, are constants to the other.

    Returns:
      (loss [*E], `MpoOutputs` with its parts).

    Raises:
      ArgumentError: if shapes differ, or an argument is not floating point.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> loss, parts = rlx.mpo_loss(-jnp.ones([4, 2]), jnp.zeros([4, 2]), temperature, [])
      >>> loss.tolist(), parts.policy_loss.tolist()
      ([1.5, 1.5], [1.0, 1.0])
    """
    sample_log_probs, sample_q_values = check(
        "mpo_loss",
        sample_log_probs=(sample_log_probs, "[*E]", "float"),
        sample_q_values=(sample_q_values, "[*E]", "float"),
    )
    check_loss_weights(
        "mpo_loss",
        policy_loss_weight=policy_loss_weight,
        temperature_loss_weight=temperature_loss_weight,
        kl_loss_weight=kl_loss_weight,
        alpha_loss_weight=alpha_loss_weight,
    )
    temperature_loss, weights, num_samples = mpo_compute_weights_and_temperature_loss(
        sample_q_values, temperature_constraint, projection_operator, sample_axis
    )
    policy_loss = -jnp.sum(weigh(maybe_stop(weights, use_stop_gradient), sample_log_probs), axis=sample_axis)
    kl_loss, alpha_loss = _kl_losses(kl_constraints, projection_operator, use_stop_gradient, policy_loss)
    loss = weighted_terms(
        (policy_loss_weight, policy_loss),
        (temperature_loss_weight, temperature_loss),
        (kl_loss_weight, kl_loss),
        (alpha_loss_weight, alpha_loss),
    )
    return loss, MpoOutputs(temperature_loss, policy_loss, kl_loss, alpha_loss, weights, num_samples)


def mpo_compute_weights_and_temperature_loss(
    sample_q_values: ArrayLike,
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    sample_axis: int = 0,
) -> tuple[Array, Array, int]:
    """MPO's E-step: weights of sampled actions, and the loss of the temperature that they depend on.

    w_s ∝ exp(q_s / η); temperature loss η ε + η log(mean_s exp(q_s / η)), whose minimum over η bounds the KL divergence
    of the weights from uniform by ε. From "Maximum a Posteriori Policy Optimisation", Abdolmaleki et al. 2018
    (https://arxiv.org/abs/1806.06920).

    Args:
      sample_q_values: action values of S sampled actions, floats [*E] with an axis of length S at `sample_axis`.
      temperature_constraint: η before projection as `alpha`, and the bound ε.
      projection_operator: makes η positive.
      sample_axis: which axis runs over the sampled actions.

    Returns:
      (temperature loss [*E], weights that sum to one along the sample axis, number of samples S).

    Raises:
      ArgumentError: if `sample_q_values` is not floating point, or has no axis `sample_axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> loss, weights, n = rlx.mpo_compute_weights_and_temperature_loss(jnp.zeros([4]), temperature, lambda x: x)
      >>> float(loss), weights.tolist(), n
      (0.5, [0.25, 0.25, 0.25, 0.25], 4)
    """
    name = "mpo_compute_weights_and_temperature_loss"
    (q_values,) = check(name, sample_q_values=(sample_q_values, "[*E]", "float"))
    check_penalty(name, "temperature_constraint", temperature_constraint)
    sample_axis = whole_number(name, "sample_axis", sample_axis, "an axis of `sample_q_values`", -q_values.ndim)
    require(name, "sample_axis", sample_axis < q_values.ndim, sample_axis, "an axis of `sample_q_values`")
    num_samples = q_values.shape[sample_axis]
    temperature = projection_operator(jnp.asarray(temperature_constraint.alpha))
    scaled = scale_down(q_values, temperature)
    log_mean = jax.nn.logsumexp(scaled, axis=sample_axis) - jnp.log(jnp.asarray(num_samples, scaled.dtype))
    temperature_loss = temperature * temperature_constraint.epsilon + temperature * log_mean
    return temperature_loss, jax.nn.softmax(scaled, axis=sample_axis), num_samples


@stoppable
def compute_parametric_kl_penalty_and_dual_loss(
    kl_constraints: KlConstraints, projection_operator: Projection, use_stop_gradient: bool = True
) -> tuple[Array, Array]:
    """Sums `kl_constraint_loss` over several constraints of the policy.

    Args:
      kl_constraints: (KL divergence [*E] or [*E, D], its `LagrangePenalty`) for each constraint; may be empty.
      projection_operator: makes dual variables positive.
      use_stop_gradient: as in `kl_constraint_loss`.

    Returns:
      (penalties, dual losses), each [*E], or zeros [] without constraints.

    Raises:
      ArgumentError: if a divergence is not floating point.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> penalty = rlx.LagrangePenalty(alpha=jnp.array(2.0), epsilon=0.5)
      >>> losses = rlx.compute_parametric_kl_penalty_and_dual_loss([(jnp.array(1.0), penalty)], lambda x: x)
      >>> [float(loss) for loss in losses]
      [2.0, -1.0]
    """
    return _kl_losses(kl_constraints, projection_operator, use_stop_gradient, jnp.zeros(()))


@stoppable
def kl_constraint_loss(
    kl: ArrayLike,
    penalty: LagrangePenalty,
    projection_operator: Callable[[Array], Array],
    use_stop_gradient: bool = True,
) -> tuple[Array, Array, Array]:
    """A hard bound on a KL divergence, as a penalty for the policy and a loss for its multiplier α.

    Penalty stop(α) KL and dual loss α (ε - stop(KL)): α grows while the divergence exceeds ε and shrinks below it. Per
    dimension, both are summed over the last axis. From "Relative Entropy Regularized Policy Iteration", Abdolmaleki et
    al. 2018 (https://arxiv.org/abs/1812.02256).

    Args:
      kl: divergences, floats [*E], or [*E, D] for a penalty per dimension.
      penalty: α before projection ([] or [D]), ε, and whether it is per dimension.
      projection_operator: makes α positive.
      use_stop_gradient: whether α is a constant in the penalty and the divergence in the dual loss.

    Returns:
      (penalty [*E], dual loss [*E], projected α).

    Raises:
      ArgumentError: if `kl` is not floating point, or is a scalar with a penalty per dimension.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> penalty = rlx.LagrangePenalty(alpha=jnp.array(2.0), epsilon=0.5)
      >>> [float(x) for x in rlx.kl_constraint_loss(jnp.array(1.0), penalty, lambda x: x)]
      [2.0, -1.0, 2.0]
    """
    check_penalty("kl_constraint_loss", "penalty", penalty)
    (kl,) = check("kl_constraint_loss", kl=(kl, "[*E, D]" if penalty.per_dimension else "[*E]", "float"))
    alpha = projection_operator(jnp.asarray(penalty.alpha))
    multiplier = alpha if alpha.ndim in (0, kl.ndim) else alpha.reshape((1,) * (kl.ndim - alpha.ndim) + alpha.shape)
    epsilon = jnp.asarray(penalty.epsilon)
    if epsilon.ndim not in (0, kl.ndim):
        epsilon = epsilon.reshape((1,) * (kl.ndim - epsilon.ndim) + epsilon.shape)
    kl_loss = maybe_stop(multiplier, use_stop_gradient) * kl
    alpha_loss = multiplier * (epsilon - maybe_stop(kl, use_stop_gradient))
    if penalty.per_dimension:
        kl_loss, alpha_loss = jnp.sum(kl_loss, axis=-1), jnp.sum(alpha_loss, axis=-1)
    return kl_loss, alpha_loss, alpha


def weighted_terms(*terms: tuple[ArrayLike, Array]) -> Array:
    """Σ_i w_i x_i of settings w_i and losses x_i; a term of weight 0 may be anything."""
    return functools.reduce(operator.add, [weigh(jnp.asarray(weight), loss) for weight, loss in terms])


def check_penalty(function: str, argument: str, penalty: LagrangePenalty) -> None:
    """Checks that a multiplier is made of numbers, and its bound not negative."""
    check(
        function,
        **{
            f"{argument}.alpha": (penalty.alpha, "[*A]", "real"),
            f"{argument}.epsilon": (penalty.epsilon, "[*E]", "real in [0, inf)"),
        },
    )


def check_loss_weights(function: str, **weights: float) -> None:
    """Checks that the weights of the parts of a loss are not negative."""
    check_numbers(function, **{name: (weight, "[0, inf)") for name, weight in weights.items()})


def _kl_losses(kl_constraints: KlConstraints, projection: Projection, stop: bool, like: Array) -> tuple[Array, Array]:
    """Sums over constraints; zeros of the shape of `like` where there are none."""
    losses = [kl_constraint_loss(kl, penalty, projection, stop)[:2] for kl, penalty in kl_constraints]
    if not losses:
        return jnp.zeros_like(like), jnp.zeros_like(like)
    kl_loss = functools.reduce(operator.add, [kl for kl, _ in losses])
    return kl_loss, functools.reduce(operator.add, [alpha for _, alpha in losses])
