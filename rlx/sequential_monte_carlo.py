"""Sequential Monte Carlo policy optimisation, the SPO of Macfarlane et al.: plans of particles, and their weights.

The SPO of Xie et al., a loss in the manner of PPO's, is in `rlx.simple_policy_optimization`.
"""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Real
from rlx.core.masking import weighted
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
    """Weights of particles one step further, as SPO's search has them: w_t ∝ w_{t-1} ρ_{t-1} exp(A_{t-1} / η).

    A_{t-1} = r_t + γ_t v_t - v_{t-1} is the advantage of the action that a particle took, ρ = π(a) / β(a) the ratio of
    the policy's probability of it to that of the proposal from which it was drawn. After some steps N particles are
    drawn anew from the weights, `jax.random.categorical(key, log_weights, shape=(N,))`, and start with equal ones. The
    first actions of those that are left are the target of the policy (`rlx.mpo_loss` has both constraints of the
    paper's two steps, and η's loss). From "SPO: Sequential Monte Carlo Policy Optimisation", Macfarlane et al. 2024
    (https://arxiv.org/abs/2402.07963).

    Args:
      log_weights_tm1: log w_{t-1}, which need not be normalised: zeros where all are equal, -inf for a particle that is
        out, whatever else is given for it.
      r_t: rewards of the particles' steps in the model.
      discount_t: discounts; 0 where the model's episode ended.
      v_tm1: values of the states from which they stepped.
      v_t: values of the states that they reached.
      temperature: η > 0, in the unit of the values.
      log_ratios_tm1: log ρ; by default 0, the proposal being the policy itself.

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
    gain_tm1 = (r_t + weighted(discount_t, v_t) - v_tm1) / temperature
    if log_ratios_tm1 is not None:
        gain_tm1 = gain_tm1 + log_ratios_tm1
    out = jnp.isneginf(log_weights_tm1)
    return jax.nn.log_softmax(jnp.where(out, log_weights_tm1, log_weights_tm1 + gain_tm1))
