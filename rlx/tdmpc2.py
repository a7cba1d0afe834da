"""TD-MPC2: consistency between latents predicted by a model and those of the encoder."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import masked, masked_sum, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator(masks={"mask_t": ("predictions_t", "targets_t")})
def latent_consistency_loss(
    predictions_t: Float[Array, "T M"],
    targets_t: Float[Array, "T M"],
    rho: Real[Array | float, "", "in [0, 1]"] = 0.5,
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """TD-MPC2's latent consistency loss: Σ_t ρ^t ‖z_t - z̃_t‖² / M, t = 0, ..., T - 1.

    z_t is the latent that the dynamics model predicts from the previous latent and an action, starting from an encoded
    state; z̃_t is the encoded next state. The paper uses the plain norm; its authors' code, to which its coefficients
    apply, uses the mean over features and also divides the loss by T. From "TD-MPC2: Scalable, Robust World Models for
    Continuous Control", Hansen et al. 2024 (https://arxiv.org/abs/2310.16828), equation 3.

    Args:
      predictions_t: z_t, the predicted latents of the 1st, ..., Tth next state.
      targets_t: z̃_t, the encoded latents of those states.
      rho: ρ, the decay of the weight of each further step.
      stop_target_gradients: whether to stop gradients through the targets.
      mask_t: false for steps past the end of the episode, even if they contain NaN. By default all count.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> predictions_t, targets_t = jnp.array([[1.0, 1.0], [2.0, 0.0]]), jnp.array([[1.0, 3.0], [0.0, 0.0]])
      >>> float(rlx.latent_consistency_loss(predictions_t, targets_t))  # (0 + 4) / 2 + ½ (4 + 0) / 2
      3.0
    """
    steps = predictions_t.shape[0]
    weights_t = jnp.cumprod(jnp.where(jnp.arange(steps) > 0, rho, 1))  # rho**t may lack a derivative at 0
    differences_t = masked(weights_t, predictions_t) - masked(weights_t, maybe_stop(targets_t, stop_target_gradients))
    return masked_sum(weighted(weights_t, jnp.mean(jnp.square(differences_t), axis=-1)), mask_t)
