"""Learning distributions of values by quantile regression."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used
from rlx.core.types import Array, ArrayLike
from rlx.losses import huber_loss


@stoppable
def quantile_regression_loss(
    dist_src: ArrayLike,
    tau_src: ArrayLike,
    dist_target: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
) -> Array:
    """Quantile regression loss: Σ_i mean_j |τ_i - 1{u_ij < 0}| L(u_ij) with u_ij = target_j - src_i.

    L is the absolute value, or the Huber loss where `huber_param` is positive. From "Distributional Reinforcement
    Learning with Quantile Regression", Dabney et al. 2017 (https://arxiv.org/abs/1710.10044).

    Args:
      dist_src: predicted quantiles, floats [N].
      tau_src: their probability levels τ, floats [N] in [0, 1].
      dist_target: samples or quantiles of the target, floats [M].
      huber_param: where the Huber loss turns linear, number [] ≥ 0; 0 for none.
      stop_target_gradients: whether `dist_target` is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.quantile_regression_loss(jnp.array([0.0]), jnp.array([0.5]), jnp.array([2.0, -2.0])))
      1.0
    """
    dist_src, tau_src, dist_target, huber_param = check(
        "quantile_regression_loss",
        dist_src=(dist_src, "[N]", "float"),
        tau_src=(tau_src, "[N]", "float in [0, 1]"),
        dist_target=(dist_target, "[M]", "float"),
        huber_param=(huber_param, "[]", "real in [0, inf)"),
    )
    return _loss(dist_src, tau_src, dist_target, huber_param, stop_target_gradients, None)


@stoppable
def quantile_q_learning(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t_selector: ArrayLike,
    dist_q_t: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
) -> Array:
    """Quantile Q-learning loss (QR-DQN): quantile regression against r_t + γ_t times the next action's quantiles.

    The next action is the one with the largest mean over `dist_q_t_selector`; for the loss see
    `quantile_regression_loss`. From "Distributional Reinforcement Learning with Quantile Regression", Dabney et al.
    2017 (https://arxiv.org/abs/1710.10044).

    Args:
      dist_q_tm1: quantiles at time t-1 for each action, floats [N, A].
      tau_q_tm1: their probability levels, floats [N] in [0, 1].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      dist_q_t_selector: quantiles at time t that select the next action, floats [S, A].
      dist_q_t: quantiles at time t that evaluate it, floats [M, A].
      huber_param: where the Huber loss turns linear, number [] ≥ 0; 0 for none.
      stop_target_gradients: whether the target is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, q_t = jnp.zeros([1, 2]), jnp.array([[2.0, 0.0]])
      >>> float(rlx.quantile_q_learning(q_tm1, jnp.array([0.5]), 0, 1.0, 0.5, q_t, q_t))
      1.0
    """
    dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t_selector, dist_q_t, huber_param = check(
        "quantile_q_learning",
        dist_q_tm1=(dist_q_tm1, "[N, A]", "float"),
        tau_q_tm1=(tau_q_tm1, "[N]", "float in [0, 1]"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        dist_q_t_selector=(dist_q_t_selector, "[S, A]", "float"),
        dist_q_t=(dist_q_t, "[M, A]", "float"),
        huber_param=(huber_param, "[]", "real in [0, inf)"),
    )
    best = jnp.argmax(jnp.mean(dist_q_t_selector, axis=0))
    target = r_t + discount_t * if_used(discount_t, dist_q_t[:, best])
    return _loss(dist_q_tm1[:, a_tm1], tau_q_tm1, target, huber_param, stop_target_gradients, None)


@stoppable
def quantile_expected_sarsa(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t: ArrayLike,
    probs_a_t: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
) -> Array:
    """Quantile expected SARSA loss: the mean over next actions of the quantile regression losses against each of them.

    The target is the mixture of the next actions' distributions with weights `probs_a_t`: loss
    Σ_a π_t(a) Σ_i mean_j |τ_i - 1{u < 0}| L(u), u = r_t + γ_t q_t[j, a] - q_tm1[i, a_tm1]. See `quantile_q_learning`.

    Args:
      dist_q_tm1: quantiles at time t-1 for each action, floats [N, A].
      tau_q_tm1: their probability levels, floats [N] in [0, 1].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      dist_q_t: quantiles at time t for each action, floats [M, A].
      probs_a_t: π_t, probabilities of the actions at time t, floats [A].
      huber_param: where the Huber loss turns linear, number [] ≥ 0; 0 for none.
      stop_target_gradients: whether the target, and `probs_a_t`, are constants to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, q_t, probs = jnp.zeros([1, 2]), jnp.array([[2.0, 0.0]]), jnp.array([0.5, 0.5])
      >>> float(rlx.quantile_expected_sarsa(q_tm1, jnp.array([0.5]), 0, 1.0, 0.5, q_t, probs))
      0.75
    """
    dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t, probs_a_t, huber_param = check(
        "quantile_expected_sarsa",
        dist_q_tm1=(dist_q_tm1, "[N, A]", "float"),
        tau_q_tm1=(tau_q_tm1, "[N]", "float in [0, 1]"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        dist_q_t=(dist_q_t, "[M, A]", "float"),
        probs_a_t=(probs_a_t, "[A]", "float"),
        huber_param=(huber_param, "[]", "real in [0, inf)"),
    )
    target = r_t + discount_t * if_used(discount_t * probs_a_t[None, :], dist_q_t)
    weights = jnp.broadcast_to(probs_a_t, target.shape) / target.shape[0]
    stop = stop_target_gradients
    return _loss(dist_q_tm1[:, a_tm1], tau_q_tm1, target.ravel(), huber_param, stop, weights.ravel())


def _loss(source: Array, tau: Array, target: Array, huber_param: Array, stop: bool, weights: Array | None) -> Array:
    """The loss [] of quantiles [N] at levels [N] against samples [M], weighted equally or by `weights` [M]."""
    error = maybe_stop(target, stop)[None, :] - source[:, None]
    weight = jnp.abs(tau[:, None] - (error < 0))
    size = jnp.where(huber_param > 0, huber_loss(error, huber_param), jnp.abs(error))
    losses = jnp.sum(weight * size, axis=0)
    return jnp.mean(losses) if weights is None else jnp.sum(maybe_stop(weights, stop) * losses)
