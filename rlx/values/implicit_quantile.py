"""Implicit quantile networks: quantile regression at sampled levels."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import stoppable
from rlx.core.types import Array, ArrayLike
from rlx.values.quantile import quantile_q_learning


@stoppable
def implicit_quantile_q_learning(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t_selector: ArrayLike,
    dist_q_t: ArrayLike,
    huber_param: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
) -> Array:
    """IQN's loss: Σ_i 1/M Σ_j |τ_i - 1{δ_ij < 0}| L_κ(δ_ij) / κ.

    δ_ij = r_t + γ_t Z_{τ'_j}(s_t, a*) - Z_{τ_i}(s_tm1, a_tm1) for quantiles Z at levels τ and τ' drawn uniformly, L_κ
    the Huber loss, and a* the action with the largest mean over the samples of `dist_q_t_selector`. From "Implicit
    Quantile Networks for Distributional Reinforcement Learning", Dabney et al. 2018 (https://arxiv.org/abs/1806.06923),
    equation 3. It is `rlx.quantile_q_learning` divided by κ, which makes κ → 0 the loss without a Huber part. For a
    policy that minds risk, select with levels drawn from a distorted distribution.

    Args:
      dist_q_tm1: quantiles at time t-1 for each action, floats [N, A].
      tau_q_tm1: the levels τ at which they were predicted, floats [N] in [0, 1].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number []; 0 where the episode ended.
      dist_q_t_selector: quantiles at time t that select the next action, floats [K, A].
      dist_q_t: quantiles at time t that evaluate it, at their own levels τ', floats [M, A].
      huber_param: κ ≥ 0, number []; 0 for |δ| in place of L_κ(δ) / κ.
      stop_target_gradients: whether the target is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, q_t = jnp.zeros([1, 2]), jnp.array([[2.0, 0.0]])
      >>> float(rlx.implicit_quantile_q_learning(q_tm1, jnp.array([0.5]), 0, 1.0, 0.5, q_t, q_t, huber_param=0.5))
      0.875
    """
    dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t_selector, dist_q_t, huber_param = check(
        "implicit_quantile_q_learning",
        dist_q_tm1=(dist_q_tm1, "[N, A]", "float"),
        tau_q_tm1=(tau_q_tm1, "[N]", "float in [0, 1]"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        dist_q_t_selector=(dist_q_t_selector, "[K, A]", "float"),
        dist_q_t=(dist_q_t, "[M, A]", "float"),
        huber_param=(huber_param, "[]", "real in [0, inf)"),
    )
    loss = quantile_q_learning(
        dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t_selector, dist_q_t, huber_param, stop_target_gradients
    )
    return loss / jnp.where(huber_param > 0, huber_param, jnp.ones_like(huber_param))
