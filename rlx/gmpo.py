"""GMPO and GSPO-token: losses of an answer with a geometric mean of the ratios of its tokens."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import finite_exponent, masked_mean
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.ppo import clipped_surrogate


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv")})
def gmpo_loss(
    log_probs_t: Float[Array, "T"],
    old_log_probs_t: Float[Array, "T"],
    adv: Real[Array, ""],
    mask_t: Mask[Array, "", "T"] | None = None,
    epsilon_low: Real[Array | float, "", "in [0, inf)"] = 0.4,
    epsilon_high: Real[Array | float, "", "in [0, inf)"] = 0.4,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """GMPO's loss of one answer: -A (Π_t ρ_t^clipped)^(1/|y|), the geometric mean of clipped ratios of tokens.

    log ρ_t^clipped is min(log ρ_t, ε_high) where A > 0, and max(log ρ_t, -ε_low) where A ≤ 0, with ρ_t = π(y_t) /
    π_old(y_t). A geometric mean is less sensitive to single tokens than GRPO's arithmetic one. From "Geometric-Mean
    Policy Optimization", Zhao et al. 2025 (https://arxiv.org/abs/2507.20673), whose range is e^-0.4 to e^0.4.

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv: advantage of the answer.
      mask_t: false for tokens to ignore (prompt, padding), even if they contain NaN. By default all count.
      epsilon_low: ε_low ≥ 0, a bound on log ρ_t.
      epsilon_high: ε_high ≥ 0, a bound on log ρ_t.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> round(float(rlx.gmpo_loss(old + jnp.array([0.2, 5.0]), old, 1.0)), 4)  # exp((0.2 + 0.4) / 2)
      -1.3499
    """
    old_log_probs_t, adv = maybe_stop((old_log_probs_t, adv), stop_target_gradients)
    log_ratio_t = log_probs_t - old_log_probs_t
    clipped_t = jnp.where(adv > 0, jnp.minimum(log_ratio_t, epsilon_high), jnp.maximum(log_ratio_t, -epsilon_low))
    return -adv * jnp.exp(finite_exponent(masked_mean(clipped_t, mask_t)))


@operator(masks={"mask_t": ("log_probs_t", "old_log_probs_t", "adv_t")})
def gspo_token_loss(
    log_probs_t: Float[Array, "T"],
    old_log_probs_t: Float[Array, "T"],
    adv_t: Real[Array, "", "T"],
    mask_t: Mask[Array, "", "T"] | None = None,
    epsilon_low: Real[Array | float, "", "in [0, inf]"] = 3e-4,
    epsilon_high: Real[Array | float, "", "in [0, inf]"] = 4e-4,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """GSPO-token's loss of one answer: GSPO's ratio of the whole answer, with an advantage for each token.

    -1/|y| Σ_t min(s_t A_t, clip(s_t, 1 - ε_low, 1 + ε_high) A_t), where s_t = sg(s) π(y_t) / sg(π(y_t)) has the value
    of GSPO's s = (π(y) / π_old(y))^(1/|y|), and sg stops gradients. With one advantage for all tokens, value and
    gradient are those of `rlx.gspo_loss`. From "Group Sequence Policy Optimization", Zheng et al. 2025
    (https://arxiv.org/abs/2507.18071), section 4.3.

    Args:
      log_probs_t: log-probabilities of the tokens under the current policy.
      old_log_probs_t: log-probabilities under the policy that sampled the tokens.
      adv_t: advantage of the answer, or of each token.
      mask_t: false for tokens to ignore (prompt, padding), even if they contain NaN. By default all count.
      epsilon_low: ε_low ≥ 0.
      epsilon_high: ε_high ≥ 0.
      stop_target_gradients: whether to stop gradients through everything but `log_probs_t` and the coefficients.

    Returns:
      The loss; 0 if no token counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([-1.0, -2.0])
      >>> round(float(rlx.gspo_token_loss(old + jnp.log(jnp.array([4.0, 1.0])), old, jnp.array([-1.0, 0.0]))), 4)
      1.0
    """
    old_log_probs_t, adv_t = maybe_stop((old_log_probs_t, adv_t), stop_target_gradients)
    log_ratio = masked_mean(log_probs_t - old_log_probs_t, mask_t)
    constant = jax.lax.stop_gradient(log_ratio)
    ratio_t = jnp.exp(finite_exponent(constant + (log_probs_t - jax.lax.stop_gradient(log_probs_t))))
    return -masked_mean(clipped_surrogate(ratio_t, adv_t, epsilon_low, epsilon_high), mask_t)
