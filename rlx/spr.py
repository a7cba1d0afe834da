"""SPR (self-predictive representations): predicting future latents, compared by cosine similarity."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask
from rlx.core.arrays import unit_of
from rlx.core.masking import masked_sum
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator(masks={"mask_t": ("predictions_t", "targets_t")})
def spr_loss(
    predictions_t: Float[Array, "T D"],
    targets_t: Float[Array, "T D"],
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """The loss of self-predictive representations: -Σ_t cos(ŷ_t, ỹ_t), over the T predicted steps.

    The predictions start from the latent of one state and follow the actions taken, through a transition model, a
    projection and a predictor; the targets are projections of the states reached, from averaged parameters
    (`rlx.periodic_update`). Only the directions of the latents matter; the cosine with a zero vector is 0. From
    "Data-Efficient Reinforcement Learning with Self-Predictive Representations", Schwarzer et al. 2021
    (https://arxiv.org/abs/2007.05929).

    Args:
      predictions_t: ŷ_t, the predicted projections of the states 1, ..., T steps ahead.
      targets_t: ỹ_t, the projections of those states.
      stop_target_gradients: whether to stop gradients through the targets.
      mask_t: false for steps past the end of the episode, even if they contain NaN. By default all count.

    Returns:
      The loss, between -T and T.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> predictions_t, targets_t = jnp.array([[2.0, 0.0], [1.0, 0.0]]), jnp.array([[3.0, 0.0], [0.0, 5.0]])
      >>> float(rlx.spr_loss(predictions_t, targets_t))
      -1.0
    """
    targets_t = maybe_stop(targets_t, stop_target_gradients)
    return -masked_sum(jnp.sum(_direction(predictions_t) * _direction(targets_t), axis=-1), mask_t)


def _direction(x: Array) -> Array:
    """x / ‖x‖, and 0 for 0."""
    is_zero = jnp.all(x == 0, axis=-1, keepdims=True)
    x = x / jnp.where(is_zero, 1, unit_of(x, -1))
    return x * jax.lax.rsqrt(jnp.where(is_zero, 1, jnp.sum(jnp.square(x), axis=-1, keepdims=True)))
