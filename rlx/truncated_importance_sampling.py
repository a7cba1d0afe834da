"""Truncated importance sampling: weights for answers sampled by an engine with slightly different numerics."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import masked
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"mask_t": ("log_probs_t", "behaviour_log_probs_t")})
def truncated_importance_weights(
    log_probs_t: Float[Array, "*E"],
    behaviour_log_probs_t: Float[Array, "*E"],
    max_weight: Real[Array | float, "", "in (0, inf)"] = 2.0,
    *,
    mask_t: Mask[Array, "", "*E"] | None = None,
) -> Float[Array, "*E"]:
    """Weights of tokens, or actions: min(π(y_t) / μ(y_t), c).

    An inference engine samples with a policy μ that is not quite the π_old that the learner computes from the same
    parameters (other kernels, lower precision). Multiplied with the advantages of each token, these weights correct for
    the mismatch, up to the bound c: `rlx.grpo_loss(log_probs_t, old_log_probs_t, weights * adv)`. From "Your Efficient
    RL Framework Secretly Brings You Off-Policy RL Training", Yao et al. 2025
    (https://fengyao.notion.site/off-policy-rl); the bound is from "Truncated Importance Sampling", Ionides 2008.

    Args:
      log_probs_t: log-probabilities under π, here the learner's policy at the time of sampling.
      behaviour_log_probs_t: log-probabilities under μ, as the sampler reported them.
      max_weight: c > 0.
      mask_t: false for tokens to ignore, even if they contain NaN: their weight is 0. By default all count.

    Returns:
      The weights, with gradients stopped.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> mu = jnp.array([-1.0, -2.0])
      >>> rlx.truncated_importance_weights(mu + jnp.log(jnp.array([0.5, 9.0])), mu).tolist()
      [0.5, 2.0]
    """
    log_weights = jnp.minimum(log_probs_t - behaviour_log_probs_t, jnp.log(max_weight))
    weights = jax.lax.stop_gradient(jnp.exp(log_weights))
    return weights if mask_t is None else masked(jnp.asarray(mask_t), weights)
