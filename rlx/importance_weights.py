"""Importance weights between the policy that sampled answers and the one that learns, for tokens or whole answers."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import require
from rlx.core.masking import finite_exponent, masked, masked_mean, masked_sum
from rlx.core.operator import operator
from rlx.core.types import Array

LEVELS, MODES = ("token", "sequence", "geometric"), ("truncate", "mask")


@operator(masks={"mask_t": ("log_probs_t", "behaviour_log_probs_t")})
def importance_weights(
    log_probs_t: Float[Array, "T"],
    behaviour_log_probs_t: Float[Array, "T"],
    mask_t: Mask[Array, "", "T"] | None = None,
    *,
    level: str = "sequence",
    mode: str = "mask",
    min_weight: Real[Array | float, "", "in [0, inf)"] = 0.0,
    max_weight: Real[Array | float, "", "in (0, inf]"] = 3.0,
) -> Float[Array, "T"]:
    """Weights of the tokens of an answer by π(y) / μ(y), where μ is the policy of the engine that sampled it.

    With ρ_t = π(y_t) / μ(y_t), the weight of token t is ρ_t, or Π_t ρ_t ("sequence"), or (Π_t ρ_t)^(1/|y|)
    ("geometric"); it is limited to [min, max], or 0 outside of this range ("mask"). Multiply advantages by the weights.
    If sampler and learner agree exactly, all are 1. From "Your Efficient RL Framework Secretly Brings You Off-Policy RL
    Training", Yao et al. 2025 (https://fengyao.notion.site/off-policy-rl), and, for masks and whole answers, "When
    Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch", Liu et al. 2025.

    Args:
      log_probs_t: log-probabilities under π, here the learner's policy at the time of sampling.
      behaviour_log_probs_t: log-probabilities under μ, as the sampler reported them.
      mask_t: false for tokens to ignore, even if they contain NaN: their weight is 0. By default all count.
      level: "token", "sequence" or "geometric".
      mode: "truncate" or "mask".
      min_weight: the smallest weight.
      max_weight: the largest weight.

    Returns:
      The weights, with gradients stopped.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> mu = jnp.array([-1.0, -2.0])
      >>> pi = mu + jnp.log(jnp.array([0.5, 8.0]))
      >>> rlx.importance_weights(pi, mu, level="token").tolist()
      [0.5, 0.0]
      >>> [round(w, 4) for w in rlx.importance_weights(pi, mu, level="geometric").tolist()]
      [2.0, 2.0]
    """
    require(level in LEVELS, "level", level, f"one of {', '.join(LEVELS)}")
    require(mode in MODES, "mode", mode, f"one of {', '.join(MODES)}")
    log_weight = log_probs_t - behaviour_log_probs_t
    if level != "token":
        whole = masked_sum(log_weight, mask_t) if level == "sequence" else masked_mean(log_weight, mask_t)
        log_weight = jnp.broadcast_to(whole, log_weight.shape)
    weights = jnp.exp(finite_exponent(log_weight))
    if mode == "truncate":
        weights = jnp.clip(weights, min_weight, max_weight)
    else:
        weights = jnp.where((weights >= min_weight) & (weights <= max_weight), weights, 0)
    weights = jax.lax.stop_gradient(weights)
    return weights if mask_t is None else masked(jnp.asarray(mask_t, bool), weights)
