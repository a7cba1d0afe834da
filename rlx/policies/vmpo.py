"""V-MPO: on-policy maximum a posteriori policy optimisation, from advantages instead of action values."""

from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.arrays import AllSum, scale_down
from rlx.core.checks import check, check_numbers, require
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import keep, weigh
from rlx.core.types import Array, ArrayLike, Projection
from rlx.policies.mpo import (
    KlConstraints,
    LagrangePenalty,
    MpoOutputs,
    check_loss_weights,
    check_penalty,
    clip_to_positive,
    compute_parametric_kl_penalty_and_dual_loss,
    weighted_terms,
)


@stoppable
def vmpo_loss(
    sample_log_probs: ArrayLike,
    advantages: ArrayLike,
    temperature_constraint: LagrangePenalty,
    kl_constraints: KlConstraints,
    projection_operator: Projection = clip_to_positive,
    restarting_weights: ArrayLike | None = None,
    importance_weights: ArrayLike | None = None,
    top_k_fraction: float = 0.5,
    policy_loss_weight: float = 1.0,
    temperature_loss_weight: float = 1.0,
    kl_loss_weight: float = 1.0,
    alpha_loss_weight: float = 1.0,
    axis_name: Any = None,
    use_stop_gradient: bool = True,
) -> tuple[Array, MpoOutputs]:
    """V-MPO's loss: raise the log-probabilities of the best half of the actions, weighted by exp(A / η).

    Policy loss -N w log π(a) for each of N examples, with the weights of `vmpo_compute_weights_and_temperature_loss`,
    plus that function's temperature loss, plus the penalties and dual losses of
    `compute_parametric_kl_penalty_and_dual_loss`; the mean of the loss over examples is the paper's. From "V-MPO:
    On-Policy Maximum a Posteriori Policy Optimization for Discrete and Continuous Control", Song et al. 2019
    (https://arxiv.org/abs/1909.12238).

    Args:
      sample_log_probs: log-probabilities of the actions taken, floats [*E].
      advantages: their advantages, floats [*E].
      temperature_constraint: the temperature η as `alpha`, and the bound ε of the E-step.
      kl_constraints: (KL divergence of the old from the new policy, its penalty) for each constraint of the M-step;
        divergences are floats [*E], or [*E, D] for penalties per dimension. May be empty.
      projection_operator: makes dual variables positive.
      restarting_weights: numbers [*E], 0 for steps that start an episode, which the agent could not influence, else 1.
      importance_weights: importance ratios, numbers [*E].
      top_k_fraction: fraction of the examples, those of largest advantage, to learn from, in (0, 1].
      policy_loss_weight: weight, not negative, of the policy loss.
      temperature_loss_weight: weight, not negative, of the temperature loss.
      kl_loss_weight: weight, not negative, of the KL penalties.
      alpha_loss_weight: weight, not negative, of their dual losses.
      axis_name: name of an axis of `jax.pmap` or `jax.vmap` that holds further examples, or None.
      use_stop_gradient: whether weights, and each side of the penalties' dual problems, are constants to the other.

    Returns:
      (loss [*E], `MpoOutputs` with its parts).

    Raises:
      ArgumentError: if shapes differ, an argument is not floating point, or `top_k_fraction` selects no example.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> _, parts = rlx.vmpo_loss(-jnp.ones(4), jnp.array([1.0, 1.0, 0.0, 0.0]), temperature, [])
      >>> parts.policy_loss.tolist()
      [2.0, 2.0, 0.0, 0.0]
    """
    log_probs, advantages, restarting, importance = _check(
        "vmpo_loss", advantages, restarting_weights, importance_weights, sample_log_probs
    )
    temperature_loss, weights, num_samples = vmpo_compute_weights_and_temperature_loss(
        advantages,
        restarting,
        importance,
        temperature_constraint,
        projection_operator,
        top_k_fraction,
        axis_name,
        use_stop_gradient,
    )
    check_loss_weights(
        "vmpo_loss",
        policy_loss_weight=policy_loss_weight,
        temperature_loss_weight=temperature_loss_weight,
        kl_loss_weight=kl_loss_weight,
        alpha_loss_weight=alpha_loss_weight,
    )
    num_examples = AllSum(axis_name)(jnp.ones_like(log_probs))
    policy_loss = num_examples * weigh(maybe_stop(weights, use_stop_gradient), -log_probs)
    kl_loss, alpha_loss = compute_parametric_kl_penalty_and_dual_loss(
        kl_constraints, projection_operator, use_stop_gradient
    )
    loss = weighted_terms(
        (policy_loss_weight, policy_loss),
        (temperature_loss_weight, temperature_loss),
        (kl_loss_weight, kl_loss),
        (alpha_loss_weight, alpha_loss),
    )
    return loss, MpoOutputs(temperature_loss, policy_loss, kl_loss, alpha_loss, weights, num_samples)


@stoppable
def vmpo_compute_weights_and_temperature_loss(
    advantages: ArrayLike,
    restarting_weights: ArrayLike | None,
    importance_weights: ArrayLike | None,
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    top_k_fraction: float,
    axis_name: Any = None,
    use_stop_gradient: bool = True,
) -> tuple[Array, Array, Array]:
    """V-MPO's E-step: weights of examples, and the loss of the temperature that they depend on.

    Over the examples in the top fraction, w ∝ ρ exp(A / η); temperature loss η ε + η log(mean ρ exp(A / η)). From
    "V-MPO", Song et al. 2019 (https://arxiv.org/abs/1909.12238).

    Args:
      advantages: A, floats [*E].
      restarting_weights: numbers [*E], 0 for steps that start an episode, else 1; or None for ones.
      importance_weights: ρ, numbers [*E]; or None for ones.
      temperature_constraint: η before projection as `alpha`, and the bound ε.
      projection_operator: makes η positive.
      top_k_fraction: fraction of the examples to learn from, in (0, 1].
      axis_name: name of an axis of `jax.pmap` or `jax.vmap` that holds further examples, or None.
      use_stop_gradient: whether the choice of examples and the importance weights are constants to gradients.

    Returns:
      (temperature loss [], weights [*E] that sum to one over all examples, number of examples chosen []).

    Raises:
      ArgumentError: if shapes differ, or `top_k_fraction` selects no example.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> temperature = rlx.LagrangePenalty(alpha=jnp.array(1.0), epsilon=0.5)
      >>> loss, weights, n = rlx.vmpo_compute_weights_and_temperature_loss(
      ...     jnp.array([1.0, 0.0]), None, None, temperature, lambda x: x, 0.5)
      >>> float(loss), weights.tolist(), float(n)
      (1.5, [1.0, 0.0], 1.0)
    """
    advantages, restarting, importance = _check(
        "vmpo_compute_weights_and_temperature_loss", advantages, restarting_weights, importance_weights
    )
    check_penalty("vmpo_compute_weights_and_temperature_loss", "temperature_constraint", temperature_constraint)
    temperature = projection_operator(jnp.asarray(temperature_constraint.alpha))
    advantages, importance = keep(restarting != 0, advantages, importance)
    scaled = scale_down(advantages, temperature)
    chosen = get_top_k_weights(top_k_fraction, restarting, scaled, axis_name, use_stop_gradient)
    # Scale by the largest advantage among those chosen, so that none overflows and at least one counts fully.
    largest = jnp.max(jnp.where(chosen > 0, scaled, -jnp.inf))
    if axis_name is not None:
        largest = jax.lax.pmax(jax.lax.stop_gradient(largest), axis_name)
    largest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0))
    weights = chosen * maybe_stop(importance, use_stop_gradient) * jnp.exp(jnp.where(chosen > 0, scaled - largest, 0))
    all_sum = AllSum(axis_name)
    total, num_samples = all_sum(weights), all_sum(chosen)
    empty = total <= 0
    log_mean = jnp.log(jnp.where(empty, 1, total)) - jnp.log(jnp.where(empty, 1, num_samples)) + largest
    temperature_loss = temperature * (temperature_constraint.epsilon + jnp.where(empty, 0, log_mean))
    return temperature_loss, weights / jnp.where(empty, 1, total), num_samples


@stoppable
def get_top_k_weights(
    top_k_fraction: float,
    restarting_weights: ArrayLike,
    scaled_advantages: ArrayLike,
    axis_name: Any = None,
    use_stop_gradient: bool = True,
) -> Array:
    """Keeps the weights of the examples with the largest advantages, and sets the others to zero.

    Args:
      top_k_fraction: fraction of all examples to keep, in (0, 1]; examples tied with the last one are kept too.
      restarting_weights: numbers [*E], 0 for examples that are never kept, else 1.
      scaled_advantages: floats [*E].
      axis_name: name of an axis of `jax.pmap` or `jax.vmap` that holds further examples, or None.
      use_stop_gradient: whether the result is a constant to the gradient of the advantages; it always is, since it is
        piecewise constant in them.

    Returns:
      Weights [*E].

    Raises:
      ArgumentError: if shapes differ, or `top_k_fraction` is outside (0, 1] or selects no example.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.get_top_k_weights(0.5, jnp.ones(4), jnp.array([3.0, 1.0, 2.0, 0.0])).tolist()
      [1.0, 0.0, 1.0, 0.0]
    """
    name = "get_top_k_weights"
    scaled, restarting = check(
        name,
        scaled_advantages=(scaled_advantages, "[*E]", "float"),
        restarting_weights=(restarting_weights, "[*E]", "real"),
    )
    check_numbers(name, top_k_fraction=(top_k_fraction, "(0, 1]"))
    valid = jax.lax.stop_gradient(jnp.where(restarting > 0, scaled, -jnp.inf))
    everyone = valid.ravel() if axis_name is None else jax.lax.all_gather(valid, axis_name).ravel()
    k = int(top_k_fraction * everyone.size)
    require(name, "top_k_fraction", k > 0, top_k_fraction, f"at least 1 / {everyone.size}, one example")
    threshold = jax.lax.top_k(everyone, k)[0][-1]
    return restarting * (valid >= threshold).astype(restarting.dtype)


def _check(
    function: str,
    advantages: ArrayLike,
    restarting: ArrayLike | None,
    importance: ArrayLike | None,
    log_probs: ArrayLike | None = None,
) -> tuple[Array, ...]:
    """The examples' arrays, with ones for the weights that are not given."""
    first = {} if log_probs is None else {"sample_log_probs": (log_probs, "[*E]", "float")}
    *rest, checked = check(function, **first, advantages=(advantages, "[*E]", "float"))
    ones = jnp.ones_like(checked)
    _, restarting, importance = check(
        function,
        advantages=(checked, "[*E]", "float"),
        restarting_weights=(ones if restarting is None else restarting, "[*E]", "real"),
        importance_weights=(ones if importance is None else importance, "[*E]", "real"),
    )
    return (*rest, checked, restarting, importance)
