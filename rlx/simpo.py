"""Simple preference optimisation (SimPO): learning from preferences without a reference policy."""

import jax

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import masked_mean
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"chosen_mask_t": ("chosen_log_probs_t",), "rejected_mask_t": ("rejected_log_probs_t",)})
def simpo_loss(
    chosen_log_probs_t: Float[Array, "T"],
    rejected_log_probs_t: Float[Array, "U"],
    beta: Real[Array | float, "", "in (0, inf)"] = 2.0,
    margin: Real[Array | float, "", "in [0, inf)"] = 0.5,
    *,
    chosen_mask_t: Mask[Array, "", "T"] | None = None,
    rejected_mask_t: Mask[Array, "", "U"] | None = None,
) -> Float[Array, ""]:
    """SimPO's loss of one pair of answers: -log σ(β/|y_w| log π(y_w) - β/|y_l| log π(y_l) - γ).

    The reward of an answer is its mean log-probability, the same quantity that guides generation; answers gain nothing
    from length, and no reference policy is needed. From "SimPO: Simple Preference Optimization with a Reference-Free
    Reward", Meng et al. 2024 (https://arxiv.org/abs/2405.14734), equation 6.

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy.
      rejected_log_probs_t: log-probabilities of the rejected answer.
      beta: β > 0; 2 to 2.5 in the paper.
      margin: γ ≥ 0, the target margin between the rewards of the two answers; 0.3 to 1.6 in the paper.
      chosen_mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      rejected_mask_t: like `chosen_mask_t`, for the rejected answer.

    Returns:
      The loss. A sequence without tokens has reward 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> round(float(rlx.simpo_loss(one, two, margin=0.0)), 4)
      0.6931
    """
    gain = masked_mean(chosen_log_probs_t, chosen_mask_t) - masked_mean(rejected_log_probs_t, rejected_mask_t)
    return jax.nn.softplus(margin - beta * gain)
