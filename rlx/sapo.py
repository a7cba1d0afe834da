"""Soft adaptive policy optimisation: a soft gate in place of GRPO's clip."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import finite_exponent, masked_mean
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv_t")})
def sapo_loss(
    log_probs_t: Float[Array, "T"],
    old_log_probs_t: Float[Array, "T"],
    adv_t: Real[Array, "", "T"],
    mask_t: Mask[Array, "", "T"] | None = None,
    temperature_positive: Real[Array | float, "", "in (0, inf)"] = 1.0,
    temperature_negative: Real[Array | float, "", "in (0, inf)"] = 1.05,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """SAPO's loss of one answer: -1/|y| Σ_t 4/τ σ(τ (ρ_t - 1)) A_t, with τ = τ₊ where A_t > 0 and τ₋ elsewhere.

    ρ_t = π(y_t) / π_old(y_t). At ρ = 1 the slope is that of ρ A; away from it tokens count progressively less, but none
    is dropped. A larger τ makes the gate narrower. Average over the group for the paper's objective. From "Soft
    Adaptive Policy Optimization", Gao et al. 2025 (https://arxiv.org/abs/2511.20347).

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv_t: advantage of the answer, see `rlx.group_relative_advantages`; or one advantage per token.
      mask_t: false for tokens to ignore (prompt, padding), even if they contain NaN. By default all count.
      temperature_positive: τ₊ > 0.
      temperature_negative: τ₋ > 0, larger than τ₊ in the paper, since lowering one token's probability raises that of
        all others.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> loss, slope = jax.value_and_grad(rlx.sapo_loss)(old, old, 3.0)
      >>> float(loss), slope.tolist()
      (-6.0, [-1.5, -1.5])
    """
    old_log_probs_t, adv_t = maybe_stop((old_log_probs_t, adv_t), stop_target_gradients)
    tau_t = jnp.where(adv_t > 0, temperature_positive, temperature_negative)
    ratio_t = jnp.exp(finite_exponent(log_probs_t - old_log_probs_t))
    weights_t = 4 / tau_t * jax.nn.sigmoid(tau_t * (ratio_t - 1))
    return -masked_mean(weights_t * adv_t, mask_t)
