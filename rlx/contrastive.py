"""Contrastive learning (InfoNCE) of state representations and goal-conditioned critics."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import counts_of, masked_mean, weighted
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"mask": ("logits",)})
def info_nce_loss(
    logits: Float[Array, "B B"],
    logsumexp_weight: Real[Array | float, "", "in [0, inf)"] = 0.0,
    *,
    mask: Mask[Array, "", "B"] | None = None,
) -> Float[Array, ""]:
    """The InfoNCE loss of a batch: mean_i of log Σ_j exp(f_ij) - f_ii + w (log Σ_j exp(f_ij))².

    f_ij scores how well i and j match; (i, i) are the positive pairs, and all other pairs of the batch are negatives.
    From "Representation Learning with Contrastive Predictive Coding", van den Oord et al. 2018
    (https://arxiv.org/abs/1807.03748). With two views of each observation and bilinear f, it is the loss of "CURL:
    Contrastive Unsupervised Representations for Reinforcement Learning", Laskin et al. 2020
    (https://arxiv.org/abs/2004.04136). With state-action pairs i, goals j that were reached later, and f = -‖φ(s, a) -
    ψ(g)‖, it is the loss of the goal-conditioned critic of "Accelerating Goal-Conditioned Reinforcement Learning
    Algorithms and Research", Bortkiewicz et al. 2024 (https://arxiv.org/abs/2408.11052), where w = 0.1. For the
    symmetric loss, add the loss of `logits.T`.

    Args:
      logits: f.
      logsumexp_weight: w ≥ 0; controls the scale of f, which the first terms do not determine.
      mask: false for members of the batch to ignore, as i and as j, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no member counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.info_nce_loss(jnp.zeros([4, 4]))), 4)  # log 4
      1.3863
    """
    counts = counts_of(mask, logits.shape[:1])
    normalizer = jax.nn.logsumexp(jnp.where(counts[None, :] | ~counts[:, None], logits, -jnp.inf), axis=1)
    return masked_mean(normalizer - jnp.diagonal(logits) + weighted(logsumexp_weight, jnp.square(normalizer)), counts)
