"""TQC (truncated quantile critics): targets without the largest quantiles of several distributional critics."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Real
from rlx.core.arguments import require
from rlx.core.masking import masked, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.quantile import quantile_regression_loss


@operator()
def truncated_quantiles(dist_q: Float[Array, "N K"], num_dropped: int = 2) -> Float[Array, "R"]:
    """The pooled quantiles of all critics, in ascending order, without the largest `num_dropped` per critic.

    The number dropped controls overestimation more finely than a minimum over critics. From "Controlling Overestimation
    Bias with Truncated Mixture of Continuous Distributional Quantile Critics", Kuznetsov et al. 2020
    (https://arxiv.org/abs/2005.04269).

    Args:
      dist_q: quantiles of an action's return, a row of K for each of N critics, in any order.
      num_dropped: d, at least 0 and less than K.

    Returns:
      The smallest N (K - d) of the N K quantiles, ascending.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.truncated_quantiles(jnp.array([[1.0, 2.0, 9.0], [3.0, 4.0, 5.0]]), num_dropped=1).tolist()
      [1.0, 2.0, 3.0, 4.0]
    """
    critics, quantiles = dist_q.shape
    expected = f"at least 0 and less than the number of quantiles, which is {quantiles}"
    require(0 <= num_dropped < quantiles, "num_dropped", num_dropped, expected)
    ascending = jnp.sort(dist_q.ravel())
    # NaN is sorted last, among the quantiles that are dropped.
    return jnp.where(jnp.isnan(ascending[-1]), jnp.nan, ascending[: critics * (quantiles - num_dropped)])


@operator(masks={"discount_t": ("dist_q_t", "log_prob_t")})
def tqc_critic_loss(
    dist_q_tm1: Float[Array, "N K"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    dist_q_t: Float[Array, "M L"],
    log_prob_t: Float[Array, ""],
    temperature: Real[Array | float, "", "in [0, inf)"],
    num_dropped: int = 2,
    huber_param: Real[Array | float, "", "in [0, inf)"] = 1.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """TQC's critic loss: quantile regression of every critic against the same truncated mixture.

    Σ_n 1/K Σ_k mean_i |τ_k - 1{u < 0}| L(u) with u = r_t + γ_t (z_i - α log π(a_t | s_t)) - q_tm1[n, k], for the
    quantiles z_i of `truncated_quantiles`, levels τ_k = (2 k - 1) / (2 K), k from 1, and the Huber loss L. From
    "Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile Critics", Kuznetsov et
    al. 2020 (https://arxiv.org/abs/2005.04269). The policy loss is that of soft actor-critic, with the mean of all
    quantiles: `rlx.sac_actor_loss(jnp.mean(dist_q)[None], log_prob, temperature)`.

    Args:
      dist_q_tm1: quantiles of the action at time t-1, K for each of the N critics.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      dist_q_t: quantiles of an action a_t sampled from the policy at time t, one row per target critic.
      log_prob_t: log π(a_t | s_t) of that action.
      temperature: α ≥ 0.
      num_dropped: number of quantiles to drop per target critic, less than its number of quantiles.
      huber_param: threshold where the Huber loss becomes linear; 0 for the absolute value.
      stop_target_gradients: whether to stop gradients through the target (all but `dist_q_tm1`).

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> dist_q_t = jnp.array([[2.0, 99.0], [2.0, 50.0]])
      >>> float(rlx.tqc_critic_loss(jnp.zeros([1, 1]), 0.0, 1.0, dist_q_t, 0.0, 0.1, num_dropped=1))
      0.75
    """
    quantiles = dist_q_tm1.shape[1]
    tau = ((jnp.arange(quantiles, dtype=float) + 0.5) / quantiles).astype(dist_q_tm1.dtype)
    soft_q_t = masked(discount_t, truncated_quantiles.kernel(dist_q_t, num_dropped) - weighted(temperature, log_prob_t))
    target = maybe_stop(r_t + discount_t * soft_q_t, stop_target_gradients)
    losses = jax.vmap(lambda row: quantile_regression_loss.kernel(row, tau, target, huber_param, False))(dist_q_tm1)
    return jnp.sum(losses) / quantiles
