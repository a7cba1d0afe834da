"""Contrastive learning: representations of states, and critics of goals, that tell what belongs together (InfoNCE)."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import counts_of, masked_mean, weighted
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(counts={"mask": ("logits",)})
def info_nce_loss(
    logits: Float[Array, "B B"],
    logsumexp_weight: Real[Array | float, "", "in [0, inf)"] = 0.0,
    *,
    mask: Mask[Array, "", "B"] | None = None,
) -> Float[Array, ""]:
    """InfoNCE's loss of a batch: mean_i of log Σ_j exp(f_ij) - f_ii + w (log Σ_j exp(f_ij))².

    f_ij says how well i and j go together; the pairs (i, i) belong together, and all others of the batch stand for what
    does not. From "Representation Learning with Contrastive Predictive Coding", van den Oord et al. 2018
    (https://arxiv.org/abs/1807.03748). With two views of an observation, f bilinear, it is CURL's: "CURL: Contrastive
    Unsupervised Representations for Reinforcement Learning", Laskin et al. 2020 (https://arxiv.org/abs/2004.04136).
    With states and actions i and goals j that were reached later, f = -‖φ(s, a) - ψ(g)‖, it is the loss of a critic of
    goals: "Accelerating Goal-Conditioned Reinforcement Learning Algorithms and Research", Bortkiewicz et al. 2024
    (https://arxiv.org/abs/2408.11052), where w = 0.1. For the symmetric loss add that of `logits.T`.

    Args:
      logits: f.
      logsumexp_weight: w ≥ 0; keeps the scale of f, which the first terms leave open.
      mask: false for members of the batch that do not count, as i and as j, whatever they hold. By default all count.

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
