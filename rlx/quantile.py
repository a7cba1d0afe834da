"""QR-DQN and IQN: learning value distributions by quantile regression, at fixed or sampled levels."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.masking import masked
from rlx.core.operator import maybe_stop, operator
from rlx.core.tracing import traced_once
from rlx.core.types import Array
from rlx.losses import linear_beyond


@operator()
def quantile_regression_loss(
    dist_src: Float[Array, "N"],
    tau_src: Float[Array, "N", "in [0, 1]"],
    dist_target: Float[Array, "M"],
    huber_param: Real[Array | float, "", "in [0, inf)"] = 0.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Quantile regression loss: Σ_i mean_j |τ_i - 1{u_ij < 0}| L(u_ij) with u_ij = target_j - src_i.

    L is the absolute value, or the Huber loss where `huber_param` is positive. From "Distributional Reinforcement
    Learning with Quantile Regression", Dabney et al. 2017 (https://arxiv.org/abs/1710.10044).

    Args:
      dist_src: predicted quantiles.
      tau_src: probability levels τ in [0, 1] of the predicted quantiles.
      dist_target: samples or quantiles of the target distribution.
      huber_param: threshold where the Huber loss becomes linear; 0 for no Huber loss.
      stop_target_gradients: whether to stop gradients through `dist_target`.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.quantile_regression_loss(jnp.array([0.0]), jnp.array([0.5]), jnp.array([2.0, -2.0])))
      1.0
    """
    return _loss(dist_src, tau_src, maybe_stop(dist_target, stop_target_gradients), huber_param)


@operator(masks={"discount_t": ("dist_q_t",)})
def quantile_q_learning(
    dist_q_tm1: Float[Array, "N A"],
    tau_q_tm1: Float[Array, "N", "in [0, 1]"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    dist_q_t_selector: Float[Array, "S A"],
    dist_q_t: Float[Array, "M A"],
    huber_param: Real[Array | float, "", "in [0, inf)"] = 0.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Quantile Q-learning loss (QR-DQN): quantile regression against r_t + γ_t times the next action's quantiles.

    The next action is the one with the largest mean under `dist_q_t_selector`. For the loss see
    `quantile_regression_loss`. From "Distributional Reinforcement Learning with Quantile Regression", Dabney et al.
    2017 (https://arxiv.org/abs/1710.10044).

    Args:
      dist_q_tm1: quantiles at time t-1 for each action.
      tau_q_tm1: probability levels of these quantiles, in [0, 1].
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      dist_q_t_selector: quantiles at time t that select the next action.
      dist_q_t: quantiles at time t that evaluate the next action.
      huber_param: threshold where the Huber loss becomes linear; 0 for no Huber loss.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, q_t = jnp.zeros([1, 2]), jnp.array([[2.0, 0.0]])
      >>> float(rlx.quantile_q_learning(q_tm1, jnp.array([0.5]), 0, 1.0, 0.5, q_t, q_t))
      1.0
    """
    best = jnp.argmax(jnp.mean(dist_q_t_selector, axis=0))
    target = r_t + discount_t * dist_q_t[:, best]
    return quantile_regression_loss.kernel(dist_q_tm1[:, a_tm1], tau_q_tm1, target, huber_param, stop_target_gradients)


@operator(masks={"discount_t": ("dist_q_t",)})
def quantile_expected_sarsa(
    dist_q_tm1: Float[Array, "N A"],
    tau_q_tm1: Float[Array, "N", "in [0, 1]"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    dist_q_t: Float[Array, "M A"],
    probs_a_t: Float[Array, "A"],
    huber_param: Real[Array | float, "", "in [0, inf)"] = 0.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Quantile expected SARSA loss: the expectation over next actions of the quantile regression loss against each.

    The target is the mixture of the next actions' distributions with weights `probs_a_t`. The loss is Σ_a π_t(a) Σ_i
    mean_j |τ_i - 1{u < 0}| L(u), u = r_t + γ_t q_t[j, a] - q_tm1[i, a_tm1]. See `quantile_q_learning`.

    Args:
      dist_q_tm1: quantiles at time t-1 for each action.
      tau_q_tm1: probability levels of these quantiles, in [0, 1].
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      dist_q_t: quantiles at time t for each action.
      probs_a_t: π_t, probabilities of the actions at time t.
      huber_param: threshold where the Huber loss becomes linear; 0 for no Huber loss.
      stop_target_gradients: whether to stop gradients through the target and `probs_a_t`.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, q_t, probs = jnp.zeros([1, 2]), jnp.array([[2.0, 0.0]]), jnp.array([0.5, 0.5])
      >>> float(rlx.quantile_expected_sarsa(q_tm1, jnp.array([0.5]), 0, 1.0, 0.5, q_t, probs))
      0.75
    """
    target = r_t + discount_t * masked(probs_a_t[None, :], dist_q_t)
    target, probs_a_t = maybe_stop((target, probs_a_t), stop_target_gradients)
    of_each_action = jax.vmap(_loss, in_axes=(None, None, 1, None))
    return jnp.sum(probs_a_t * of_each_action(dist_q_tm1[:, a_tm1], tau_q_tm1, target, huber_param))


@operator(masks={"discount_t": ("dist_q_t",)})
def implicit_quantile_q_learning(
    dist_q_tm1: Float[Array, "N A"],
    tau_q_tm1: Float[Array, "N", "in [0, 1]"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    dist_q_t_selector: Float[Array, "K A"],
    dist_q_t: Float[Array, "M A"],
    huber_param: Real[Array | float, "", "in [0, inf)"] = 1.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """IQN's loss: Σ_i 1/M Σ_j |τ_i - 1{δ_ij < 0}| L_κ(δ_ij) / κ.

    δ_ij = r_t + γ_t Z_{τ'_j}(s_t, a*) - Z_{τ_i}(s_tm1, a_tm1) for quantiles Z at levels τ and τ' drawn uniformly, where
    L_κ is the Huber loss and a* is the action with the largest mean over the samples of `dist_q_t_selector`. From
    "Implicit Quantile Networks for Distributional Reinforcement Learning", Dabney et al. 2018
    (https://arxiv.org/abs/1806.06923), equation 3. It equals `rlx.quantile_q_learning` divided by κ, so that κ → 0
    gives the loss without the Huber part. For a risk-sensitive policy, select actions with levels drawn from a
    distorted distribution.

    Args:
      dist_q_tm1: quantiles at time t-1 for each action.
      tau_q_tm1: the levels τ in [0, 1] of these quantiles.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      dist_q_t_selector: quantiles at time t that select the next action.
      dist_q_t: quantiles at time t that evaluate the next action, at their own levels τ'.
      huber_param: κ; 0 uses |δ| in place of L_κ(δ) / κ.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, q_t = jnp.zeros([1, 2]), jnp.array([[2.0, 0.0]])
      >>> float(rlx.implicit_quantile_q_learning(q_tm1, jnp.array([0.5]), 0, 1.0, 0.5, q_t, q_t, huber_param=0.5))
      0.875
    """
    loss = quantile_q_learning.kernel(
        dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t_selector, dist_q_t, huber_param, stop_target_gradients
    )
    return loss / jnp.where(huber_param > 0, huber_param, 1.0)


@traced_once
def _loss(source: Array, tau: Array, target: Array, huber_param: Array | float) -> Array:
    """The loss of quantiles [N] at levels [N] against samples [M]: Σ_i mean_j |τ_i - 1{u_ij < 0}| L(u_ij)."""
    u = target[None, :] - source[:, None]
    size = linear_beyond(u, huber_param, jnp.where(huber_param > 0, huber_param, 1.0))
    tau = tau[:, None]
    # On a CPU, |τ - 1{u < 0}| in place of this choice and the sums in the other order take three times as long.
    return jnp.sum(jnp.mean(jnp.where(u < 0, 1 - tau, tau) * size, axis=1))
