"""Sequential Monte Carlo policy optimisation, the SPO of Macfarlane et al.: weights of particles in a search.

The SPO of Xie et al., a PPO-like loss, is in `rlx.simple_policy_optimization`.
"""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Real
from rlx.core.masking import masked, weighted
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"discount_t": ("v_t",)})
def sequential_monte_carlo_log_weights(
    log_weights_tm1: Float[Array, "N"],
    r_t: Real[Array, "N"],
    discount_t: Real[Array, "N"],
    v_tm1: Float[Array, "N"],
    v_t: Float[Array, "N"],
    temperature: Real[Array, "", "in (0, inf)"],
    log_ratios_tm1: Real[Array, "N"] | None = None,
) -> Float[Array, "N"]:
    """One-step update of particle weights in SPO's search: w_t ∝ w_{t-1} ρ_{t-1} exp(A_{t-1} / η).

    A_{t-1} = r_t + γ_t v_t - v_{t-1} is the advantage of the action that a particle took, and ρ = π(a) / β(a) is the
    ratio of the action's probability under the policy to that under the proposal. Every few steps N particles are
    resampled by their weights, `jax.random.categorical(key, log_weights, shape=(N,))`, and restart with equal weights.
    The first actions of the remaining particles are the policy's target (`rlx.mpo_loss` has both constraints of the
    paper's two steps, and η's loss). From "SPO: Sequential Monte Carlo Policy Optimisation", Macfarlane et al. 2024
    (https://arxiv.org/abs/2402.07963).

    Args:
      log_weights_tm1: log w_{t-1}, which need not be normalised: zeros for equal weights, -inf for a particle that is
        excluded, whose other inputs are then ignored.
      r_t: rewards of the particles' model steps.
      discount_t: discounts; 0 where the model's episode ended.
      v_tm1: values of the states before the step.
      v_t: values of the states after the step.
      temperature: η > 0, in the units of the values.
      log_ratios_tm1: log ρ; by default 0, which means that the proposal is the policy itself.

    Returns:
      log w_t, normalised so that Σ w_t = 1.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> r_t, discount_t, v_tm1 = jnp.array([jnp.log(3.0), 0.0]), jnp.array([0.0, 0.5]), jnp.array([0.0, 1.0])
      >>> log_weights = rlx.sequential_monte_carlo_log_weights(
      ...     jnp.zeros(2), r_t, discount_t, v_tm1, v_t=jnp.array([9.0, 2.0]), temperature=1.0)
      >>> [round(w, 4) for w in jnp.exp(log_weights).tolist()]
      [0.75, 0.25]
    """
    counts = ~jnp.isneginf(log_weights_tm1)
    r_t, discount_t, v_tm1, v_t = (masked(counts, x) for x in (r_t, discount_t, v_tm1, v_t))
    gain_tm1 = (r_t + weighted(discount_t, v_t) - v_tm1) / temperature
    if log_ratios_tm1 is not None:
        gain_tm1 = gain_tm1 + masked(counts, log_ratios_tm1)
    return jax.nn.log_softmax(log_weights_tm1 + gain_tm1)
