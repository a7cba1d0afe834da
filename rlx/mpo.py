"""Maximum a posteriori policy optimisation: MPO and V-MPO, with their E-steps, M-steps and dual losses."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.annotations import Float, Real
from rlx.core.arguments import as_arrays, known, require, require_broadcast_to_first, require_parts
from rlx.core.arrays import AllSum, add_up, scale_gaps_down, weighted_term
from rlx.core.errors import OptionError, ShapeError
from rlx.core.masking import weighted, weighted_sum
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array, ArrayLike, AxisName, Projection


def clip_to_positive(x: Array) -> Array:
    """The default projection of dual variables: at least 1e-10."""
    return jnp.maximum(x, 1e-10)


class LagrangePenalty(NamedTuple):
    """A dual variable and the constraint that it enforces.

    Example:
      >>> import rlx
      >>> rlx.LagrangePenalty(alpha=1.0, epsilon=0.1).per_dimension
      False
    """

    alpha: Any  # [] or [D]: the multiplier, before projection to positive numbers
    epsilon: Any  # []: the bound of the constraint, not negative
    per_dimension: bool = False  # whether there is a constraint for each entry of the last axis


class MpoOutputs(NamedTuple):
    """The components of the losses `rlx.mpo_loss` and `rlx.vmpo_loss`, and the E-step weights.

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
    num_samples: Any  # [] number of samples that share the weights


@operator(widen=False)
def mpo_loss(
    sample_log_probs: Float[Array, "*E"],
    sample_q_values: Float[Array, "*E"],
    temperature_constraint: LagrangePenalty,
    kl_constraints: Sequence[tuple[ArrayLike, LagrangePenalty]],
    projection_operator: Projection = clip_to_positive,
    policy_loss_weight: Real[Array | float, "", "*P", "in [0, inf)"] = 1.0,
    temperature_loss_weight: Real[Array | float, "", "*T", "in [0, inf)"] = 1.0,
    kl_loss_weight: Real[Array | float, "", "*K", "in [0, inf)"] = 1.0,
    alpha_loss_weight: Real[Array | float, "", "*A", "in [0, inf)"] = 1.0,
    sample_axis: Annotated[int, "an axis of `sample_q_values`"] = 0,
    use_stop_gradient: bool = True,
) -> tuple[Array, MpoOutputs]:
    """MPO's loss: fit the policy to its own actions, reweighted by exp(q / η), with bounds on the KL divergence.

    It adds the policy loss -Σ_s w_s log π(a_s), with weights from `mpo_compute_weights_and_temperature_loss`, that
    function's temperature loss, and the penalties and dual losses of `compute_parametric_kl_penalty_and_dual_loss`.
    From "Maximum a Posteriori Policy Optimisation", Abdolmaleki et al. 2018 (https://arxiv.org/abs/1806.06920).

    Args:
      sample_log_probs: log-probabilities of sampled actions, which lie along the axis `sample_axis`.
      sample_q_values: action values of the same actions.
      temperature_constraint: the temperature η as `alpha`, and the bound ε of the E-step's KL divergence.
      kl_constraints: (KL divergence of the old from the new policy, its penalty) for each constraint of the M-step;
        divergences are floats [*E], or [*E, D] for penalties per dimension. May be empty.
      projection_operator: function that makes dual variables positive.
      policy_loss_weight: non-negative weight of the policy loss.
      temperature_loss_weight: non-negative weight of the temperature loss.
      kl_loss_weight: non-negative weight of the KL penalties.
      alpha_loss_weight: non-negative weight of the dual losses of the KL penalties.
      sample_axis: the axis of the sampled actions.
      use_stop_gradient: whether to stop gradients through the weights, and between the penalties and their dual losses.

    Returns:
      (loss [*E], `MpoOutputs` with its parts).

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> loss, parts = rlx.mpo_loss(-jnp.ones([4, 2]), jnp.zeros([4, 2]), temperature, [])
      >>> loss.tolist(), parts.policy_loss.tolist()
      ([1.5, 1.5], [1.0, 1.0])
    """
    temperature_loss, weights, num_samples = mpo_compute_weights_and_temperature_loss.kernel(
        sample_q_values, temperature_constraint, projection_operator, sample_axis
    )
    weights = maybe_stop(weights, use_stop_gradient)  # the result has them, too
    policy_loss = -weighted_sum(weights, sample_log_probs, axis=sample_axis)
    kl_loss, alpha_loss = _kl_losses(kl_constraints, projection_operator, use_stop_gradient, policy_loss)
    parts = MpoOutputs(temperature_loss, policy_loss, kl_loss, alpha_loss, weights, num_samples)
    return _loss(parts, policy_loss_weight, temperature_loss_weight, kl_loss_weight, alpha_loss_weight), parts


@operator(widen=False)
def mpo_compute_weights_and_temperature_loss(
    sample_q_values: Float[Array, "*E"],
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    sample_axis: Annotated[int, "an axis of `sample_q_values`"] = 0,
) -> tuple[Array, Array, int]:
    """MPO's E-step: weights of the sampled actions, and the loss for the temperature.

    The weights are w_s ∝ exp(q_s / η) and the temperature loss is η ε + η log(mean_s exp(q_s / η)), whose minimiser
    bounds the KL divergence of the weights from uniform by ε. From "Maximum a Posteriori Policy Optimisation",
    Abdolmaleki et al. 2018 (https://arxiv.org/abs/1806.06920).

    Args:
      sample_q_values: action values of S sampled actions, which lie along the axis `sample_axis`.
      temperature_constraint: η before projection as `alpha`, and the bound ε.
      projection_operator: function that makes η positive.
      sample_axis: the axis of the sampled actions.

    Returns:
      (temperature loss [*E], weights that sum to one along the sample axis, number of samples S).

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> loss, weights, n = rlx.mpo_compute_weights_and_temperature_loss(jnp.zeros([4]), temperature, lambda x: x)
      >>> float(loss), weights.tolist(), n
      (0.5, [0.25, 0.25, 0.25, 0.25], 4)
    """
    ndim = sample_q_values.ndim
    require(-ndim <= sample_axis < ndim, "sample_axis", sample_axis, "an axis of `sample_q_values`")
    temperature, epsilon = _temperature(temperature_constraint, projection_operator, sample_q_values=sample_q_values)
    num_samples = sample_q_values.shape[sample_axis]
    require(num_samples != 0, "sample_axis", sample_axis, f"one of at least one sample in {sample_q_values.shape}")
    scaled, shift = scale_gaps_down(sample_q_values, temperature, sample_axis)
    log_mean = jax.nn.logsumexp(scaled, axis=sample_axis) - jnp.log(jnp.asarray(num_samples, scaled.dtype))
    temperature_loss = temperature * epsilon + temperature * log_mean + shift
    return temperature_loss, jax.nn.softmax(scaled, axis=sample_axis), num_samples


@operator(widen=False)
def compute_parametric_kl_penalty_and_dual_loss(
    kl_constraints: Sequence[tuple[ArrayLike, LagrangePenalty]],
    projection_operator: Projection,
    use_stop_gradient: bool = True,
) -> tuple[Array, Array]:
    """Sums `kl_constraint_loss` over several constraints of the policy.

    Args:
      kl_constraints: (KL divergence [*E] or [*E, D], its `LagrangePenalty`) for each constraint; may be empty.
      projection_operator: function that makes dual variables positive.
      use_stop_gradient: as in `kl_constraint_loss`.

    Returns:
      (penalties, dual losses), each [*E], or zeros [] without constraints.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> penalty = rlx.LagrangePenalty(alpha=jnp.array(2.0), epsilon=0.5)
      >>> losses = rlx.compute_parametric_kl_penalty_and_dual_loss([(jnp.array(1.0), penalty)], lambda x: x)
      >>> [float(loss) for loss in losses]
      [2.0, -1.0]
    """
    return _kl_losses(kl_constraints, projection_operator, use_stop_gradient, jnp.zeros(()))


@operator(widen=False)
def kl_constraint_loss(
    kl: Float[Array, "*E"],
    penalty: LagrangePenalty,
    projection_operator: Projection,
    use_stop_gradient: bool = True,
) -> tuple[Array, Array, Array]:
    """A hard constraint on a KL divergence, as a penalty for the policy and a loss for its multiplier α.

    The penalty is stop(α) KL and the dual loss is α (ε - stop(KL)): α grows while the divergence exceeds ε and shrinks
    while it is below. If per dimension, both are summed over the last axis. From "Relative Entropy Regularized Policy
    Iteration", Abdolmaleki et al. 2018 (https://arxiv.org/abs/1812.02256).

    Args:
      kl: KL divergences; for a penalty per dimension, the last axis holds the dimensions.
      penalty: α before projection ([] or [D]), ε, and whether it is per dimension.
      projection_operator: function that makes α positive.
      use_stop_gradient: whether α is a constant in the penalty and the divergence in the dual loss.

    Returns:
      (penalty [*E], dual loss [*E], projected α).

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> penalty = rlx.LagrangePenalty(alpha=jnp.array(2.0), epsilon=0.5)
      >>> [float(x) for x in rlx.kl_constraint_loss(jnp.array(1.0), penalty, lambda x: x)]
      [2.0, -1.0, 2.0]
    """
    _require_parts("penalty", penalty, projection_operator)
    kl, alpha, epsilon = as_arrays(
        "kl_constraint_loss",
        **{
            "kl": (kl, Float[Array, "*E D"] if penalty.per_dimension else Float[Array, "*E"]),
            "penalty.alpha": (penalty.alpha, Real[Array, "*A"]),
            "penalty.epsilon": (penalty.epsilon, Real[Array, "*B", "in [0, inf)"]),
        },
    )
    require_broadcast_to_first(kl=kl, **{"penalty.alpha": alpha, "penalty.epsilon": epsilon})
    alpha = jnp.asarray(projection_operator(alpha))
    multiplier, epsilon = _of_rank(kl.ndim, alpha), _of_rank(kl.ndim, epsilon)
    kl_loss = maybe_stop(multiplier, use_stop_gradient) * kl
    alpha_loss = multiplier * (epsilon - maybe_stop(kl, use_stop_gradient))
    if penalty.per_dimension:
        kl_loss, alpha_loss = jnp.sum(kl_loss, axis=-1), jnp.sum(alpha_loss, axis=-1)
    return kl_loss, alpha_loss, alpha


@operator(masks={"restarting_weights": ("advantages", "importance_weights")}, widen=False)
def vmpo_loss(
    sample_log_probs: Float[Array, "*E"],
    advantages: Float[Array, "*E"],
    temperature_constraint: LagrangePenalty,
    kl_constraints: Sequence[tuple[ArrayLike, LagrangePenalty]],
    projection_operator: Projection = clip_to_positive,
    restarting_weights: Real[Array, "*E"] | None = None,
    importance_weights: Real[Array, "*E"] | None = None,
    top_k_fraction: float = 0.5,
    policy_loss_weight: Real[Array | float, "", "*P", "in [0, inf)"] = 1.0,
    temperature_loss_weight: Real[Array | float, "", "*T", "in [0, inf)"] = 1.0,
    kl_loss_weight: Real[Array | float, "", "*K", "in [0, inf)"] = 1.0,
    alpha_loss_weight: Real[Array | float, "", "*A", "in [0, inf)"] = 1.0,
    axis_name: AxisName = None,
    use_stop_gradient: bool = True,
) -> tuple[Array, MpoOutputs]:
    """V-MPO's loss: increase the log-probabilities of the best half of the actions, weighted by exp(A / η).

    It adds the policy loss -N w log π(a) for each of N examples, with weights from
    `vmpo_compute_weights_and_temperature_loss`, that function's temperature loss, and the penalties and dual losses of
    `compute_parametric_kl_penalty_and_dual_loss`. Average over examples for the paper's loss. From "V-MPO: On-Policy
    Maximum a Posteriori Policy Optimization for Discrete and Continuous Control", Song et al. 2019
    (https://arxiv.org/abs/1909.12238).

    Args:
      sample_log_probs: log-probabilities of the actions taken.
      advantages: advantages of these actions.
      temperature_constraint: the temperature η as `alpha`, and the bound ε of the E-step.
      kl_constraints: (KL divergence of the old from the new policy, its penalty) for each constraint of the M-step;
        divergences are floats [*E], or [*E, D] for penalties per dimension. May be empty.
      projection_operator: function that makes dual variables positive.
      restarting_weights: 0 for steps that start an episode, which the agent could not influence; otherwise 1.
      importance_weights: importance ratios.
      top_k_fraction: fraction of the examples to learn from, those with the largest advantages, in (0, 1].
      policy_loss_weight: non-negative weight of the policy loss.
      temperature_loss_weight: non-negative weight of the temperature loss.
      kl_loss_weight: non-negative weight of the KL penalties.
      alpha_loss_weight: non-negative weight of the dual losses of the KL penalties.
      axis_name: name, or names, of axes of `jax.pmap` or `jax.vmap` over which the examples are also split, or None.
      use_stop_gradient: whether to stop gradients through the weights, and between the penalties and their dual losses.

    Returns:
      (loss [*E], `MpoOutputs` with its parts).

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> _, parts = rlx.vmpo_loss(-jnp.ones(4), jnp.array([1.0, 1.0, 0.0, 0.0]), temperature, [])
      >>> parts.policy_loss.tolist()
      [2.0, 2.0, 0.0, 0.0]
    """
    temperature_loss, weights, num_samples = vmpo_compute_weights_and_temperature_loss.kernel(
        advantages,
        restarting_weights,
        importance_weights,
        temperature_constraint,
        projection_operator,
        top_k_fraction,
        axis_name,
        use_stop_gradient,
    )
    num_examples = AllSum(axis_name)(jnp.ones_like(sample_log_probs))
    policy_loss = num_examples * weighted(weights, -sample_log_probs)
    kl_loss, alpha_loss = _kl_losses(kl_constraints, projection_operator, use_stop_gradient, policy_loss)
    parts = MpoOutputs(temperature_loss, policy_loss, kl_loss, alpha_loss, weights, num_samples)
    return _loss(parts, policy_loss_weight, temperature_loss_weight, kl_loss_weight, alpha_loss_weight), parts


@operator(masks={"restarting_weights": ("advantages", "importance_weights")}, widen=False)
def vmpo_compute_weights_and_temperature_loss(
    advantages: Float[Array, "*E"],
    restarting_weights: Real[Array, "*E"] | None,
    importance_weights: Real[Array, "*E"] | None,
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    top_k_fraction: float,
    axis_name: AxisName = None,
    use_stop_gradient: bool = True,
) -> tuple[Array, Array, Array]:
    """V-MPO's E-step: weights of the examples, and the loss for the temperature.

    Over the examples in the top fraction, the weights are w ∝ ρ exp(A / η) and the temperature loss is η ε + η log(mean
    ρ exp(A / η)). From "V-MPO", Song et al. 2019 (https://arxiv.org/abs/1909.12238).

    Args:
      advantages: A.
      restarting_weights: 0 for steps that start an episode, otherwise 1; None means all ones.
      importance_weights: ρ; None means all ones.
      temperature_constraint: η before projection as `alpha`, and the bound ε.
      projection_operator: function that makes η positive.
      top_k_fraction: fraction of the examples to learn from, in (0, 1].
      axis_name: name, or names, of axes of `jax.pmap` or `jax.vmap` over which the examples are also split, or None.
      use_stop_gradient: whether to stop gradients through the weights of the result, and the importance weights.

    Returns:
      (temperature loss [], weights [*E] that sum to one over all examples, number of examples chosen []).

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> loss, weights, n = rlx.vmpo_compute_weights_and_temperature_loss(
      ...     jnp.array([1.0, 0.0]), None, None, temperature, lambda x: x, 0.5)
      >>> float(loss), weights.tolist(), float(n)
      (1.5, [1.0, 0.0], 1.0)
    """
    temperature, epsilon = _temperature(temperature_constraint, projection_operator, advantages=advantages)
    ones = jnp.ones_like(advantages)
    restarting = ones if restarting_weights is None else restarting_weights
    importance = ones if importance_weights is None else importance_weights
    scaled, shift = scale_gaps_down(jnp.where(restarting > 0, advantages, -jnp.inf), temperature, None, axis_name)
    chosen = get_top_k_weights.kernel(top_k_fraction, restarting, scaled, axis_name, use_stop_gradient)
    # Scale by the largest selected advantage, so that none overflows and at least one has full weight.
    largest = jnp.max(jnp.where(chosen > 0, scaled, -jnp.inf))
    if axis_name is not None:
        largest = jax.lax.pmax(jax.lax.stop_gradient(largest), axis_name)
    largest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0))
    weights = chosen * maybe_stop(importance, use_stop_gradient) * jnp.exp(jnp.where(chosen > 0, scaled - largest, 0))
    all_sum = AllSum(axis_name)
    total, num_samples = all_sum(weights), all_sum(chosen)
    empty = total <= 0
    log_mean = jnp.log(jnp.where(empty, 1, total)) - jnp.log(jnp.where(empty, 1, num_samples)) + largest
    temperature_loss = temperature * (epsilon + jnp.where(empty, 0, log_mean)) + jnp.where(empty, 0, shift)
    return temperature_loss, maybe_stop(weights / jnp.where(empty, 1, total), use_stop_gradient), num_samples


@operator()
def get_top_k_weights(
    top_k_fraction: float,
    restarting_weights: Real[Array, "*E"],
    scaled_advantages: Float[Array, "*E"],
    axis_name: AxisName = None,
    use_stop_gradient: bool = True,
) -> Real[Array, "*E"]:
    """Keeps the weights of the examples with the largest advantages, and sets the rest to zero.

    Args:
      top_k_fraction: fraction of all examples to keep, in (0, 1]; examples tied with the last one count too.
      restarting_weights: 0 for examples that never count, otherwise 1.
      scaled_advantages: A / η.
      axis_name: name, or names, of axes of `jax.pmap` or `jax.vmap` over which the examples are also split, or None.
      use_stop_gradient: whether to stop gradients from the result to the advantages. The result is piecewise constant
        in them, so their gradient is zero either way.

    Returns:
      The weights.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.get_top_k_weights(0.5, jnp.ones(4), jnp.array([3.0, 1.0, 2.0, 0.0])).tolist()
      [1.0, 0.0, 1.0, 0.0]
    """
    fraction = known(top_k_fraction)
    if fraction is None or fraction.ndim or not jnp.issubdtype(fraction.dtype, jnp.number):
        fraction = np.array(np.nan)  # fails the check of the range
    require(0 < fraction <= 1, "top_k_fraction", top_k_fraction, "a number in (0, 1]")
    valid = jax.lax.stop_gradient(jnp.where(restarting_weights > 0, scaled_advantages, -jnp.inf))
    names = axis_name if isinstance(axis_name, (tuple, list)) else [] if axis_name is None else [axis_name]
    everyone = functools.reduce(jax.lax.all_gather, names, valid).ravel()  # `jax.vmap` gathers along one axis at a time
    k = int(fraction * everyone.size)
    require(k > 0, "top_k_fraction", top_k_fraction, f"at least 1 / {everyone.size}, one example")
    threshold = jax.lax.top_k(everyone, k)[0][-1]
    # Not `valid >= threshold`, which would leave out NaN, and with it the sign that something is wrong.
    return restarting_weights * (~(valid < threshold)).astype(restarting_weights.dtype)


def _temperature(constraint: LagrangePenalty, projection: Projection, **scaled: Array) -> tuple[Array, Array]:
    """η, projected to be positive, and ε; both must broadcast to the array that η scales."""
    _require_parts("temperature_constraint", constraint, projection)
    given = {
        **{name: (x, Float[Array, "*S"]) for name, x in scaled.items()},
        "temperature_constraint.alpha": (constraint.alpha, Real[Array, "*A"]),
        "temperature_constraint.epsilon": (constraint.epsilon, Real[Array, "*E", "in [0, inf)"]),
    }
    arrays = as_arrays("mpo_loss", **given)
    require_broadcast_to_first(**dict(zip(given, arrays, strict=True)))
    return jnp.asarray(projection(arrays[1])), arrays[2]


def _require_parts(argument: str, penalty: Any, projection: Any) -> None:
    require_parts(argument, penalty, LagrangePenalty._fields, "a `rlx.LagrangePenalty`")  # or that of RLax
    require(callable(projection), "projection_operator", projection, "a function")


def _kl_losses(
    kl_constraints: Sequence[tuple[Any, LagrangePenalty]], projection: Projection, stop: bool, like: Array
) -> tuple[Array, Array]:
    """Penalties and dual losses, summed over the constraints; zeros of the shape of `like` if there are none."""
    try:
        pairs = [(kl, penalty) for kl, penalty in kl_constraints]
    except (TypeError, ValueError):
        expected = "pairs of a KL divergence and its `rlx.LagrangePenalty`"
        raise OptionError(f"argument `kl_constraints` is {kl_constraints!r}, expected {expected}.") from None
    losses = [kl_constraint_loss.kernel(kl, penalty, projection, stop)[:2] for kl, penalty in pairs]
    if not losses:
        return jnp.zeros_like(like), jnp.zeros_like(like)
    named = [{f"kl_constraints[{i}]": x for i, x in enumerate(each)} for each in zip(*losses, strict=True)]
    return add_up(**named[0]), add_up(**named[1])


def _loss(parts: MpoOutputs, policy: ArrayLike, temperature: ArrayLike, kl: ArrayLike, alpha: ArrayLike) -> Array:
    """The sum of the weighted parts."""
    shape, own = list(parts.policy_loss.shape), list(parts.kl_loss.shape)
    if own != shape:
        raise ShapeError(f"argument `kl_constraints` gives losses of shape {own}, expected {shape}, one per example.")
    return add_up(
        **weighted_term("sample_log_probs", parts.policy_loss, "policy_loss_weight", policy),
        **weighted_term("temperature_constraint", parts.temperature_loss, "temperature_loss_weight", temperature),
        **weighted_term("kl_constraints", parts.kl_loss, "kl_loss_weight", kl),
        **weighted_term("alphas", parts.alpha_loss, "alpha_loss_weight", alpha),
    )


def _of_rank(ndim: int, x: Array) -> Array:
    """Adds leading axes of length one to `x`, up to `ndim` axes; scalars stay unchanged."""
    return x if x.ndim in (0, ndim) else x.reshape((1,) * (ndim - x.ndim) + x.shape)
