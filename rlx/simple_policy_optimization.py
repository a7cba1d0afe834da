"""Simple policy optimisation, the SPO of Xie et al.: a quadratic penalty in place of PPO's clip.

The SPO of Macfarlane et al., which plans by sequential Monte Carlo, is in `rlx.sequential_monte_carlo`.
"""

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import masked_mean, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator(masks={"mask_t": ("prob_ratios_t", "adv_t"), "adv_t": ("prob_ratios_t",)})
def simple_policy_optimization_loss(
    prob_ratios_t: Float[Array, "T"],
    adv_t: Real[Array, "T"],
    epsilon: Real[Array | float, "", "in (0, inf]"] = 0.2,
    use_stop_gradient: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """The loss of simple policy optimisation (SPO): mean_t of -(ρ_t A_t - |A_t| (ρ_t - 1)² / (2 ε)).

    Its optimum is the ratio 1 ± ε at which PPO clips, but its gradient pulls back ratios beyond that, where PPO's
    gradient is zero. From "Simple Policy Optimization", Xie et al. 2024 (https://arxiv.org/abs/2401.16025).

    Args:
      prob_ratios_t: ρ_t = π(a_t) / π_old(a_t).
      adv_t: advantages of the actions.
      epsilon: ε > 0; infinity removes the penalty.
      use_stop_gradient: whether to stop gradients through the advantages.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.simple_policy_optimization_loss(jnp.array([1.5]), jnp.array([2.0]), 0.25))
      -2.0
    """
    adv_t = maybe_stop(adv_t, use_stop_gradient)
    distance_t = jnp.where(adv_t == 0, 0, prob_ratios_t - 1)  # the square of a large one is infinite, and 0 · ∞ NaN
    gain_t = prob_ratios_t - jnp.sign(adv_t) * jnp.square(distance_t) / (2 * epsilon)
    return -masked_mean(weighted(adv_t, gain_t), mask_t)
