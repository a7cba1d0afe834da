"""Odds ratio preference optimisation: fine-tuning and preference learning in one loss (ORPO)."""

import math

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.masking import counts_of, masked_mean, weighted
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"chosen_mask_t": ("chosen_log_probs_t",), "rejected_mask_t": ("rejected_log_probs_t",)})
def orpo_loss(
    chosen_log_probs_t: Float[Array, "T"],
    rejected_log_probs_t: Float[Array, "U"],
    odds_weight: Real[Array | float, "", "in [0, inf)"] = 0.1,
    *,
    chosen_mask_t: Mask[Array, "", "T"] | None = None,
    rejected_mask_t: Mask[Array, "", "U"] | None = None,
) -> Float[Array, ""]:
    """ORPO's loss of one pair of answers: -log p_w - λ log σ(log odds(p_w) - log odds(p_l)).

    p is the geometric mean of the probabilities of an answer's tokens, and odds(p) = p / (1 - p). The first term is the
    fine-tuning loss on the preferred answer; no reference policy is needed. From "ORPO: Monolithic Preference
    Optimization without Reference Model", Hong et al. 2024 (https://arxiv.org/abs/2403.07691).

    Args:
      chosen_log_probs_t: log-probabilities of the tokens of the preferred answer under the policy.
      rejected_log_probs_t: log-probabilities of the rejected answer.
      odds_weight: λ ≥ 0; 0 gives fine-tuning alone.
      chosen_mask_t: false for tokens to ignore, even if they contain NaN. By default all count.
      rejected_mask_t: like `chosen_mask_t`, for the rejected answer.

    Returns:
      The loss. A sequence without tokens has log-probability 0 and odds 1. A sequence of probability 1 has infinite
      odds; if it is the preferred answer, its gradient is finite. If both have probability 1, their odds are the same.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one, two = jnp.array([-1.0]), jnp.array([-1.0, -1.0])
      >>> round(float(rlx.orpo_loss(one, two, odds_weight=1.0)), 4)
      1.6931
    """
    chosen = masked_mean(chosen_log_probs_t, chosen_mask_t)
    rejected = masked_mean(rejected_log_probs_t, rejected_mask_t)
    preference = _preference_loss(
        _or_odds_of_one(chosen, chosen_mask_t, chosen_log_probs_t),
        _or_odds_of_one(rejected, rejected_mask_t, rejected_log_probs_t),
    )
    return weighted(odds_weight, preference) - chosen


def _or_odds_of_one(log_prob: Array, mask_t: Array | None, log_probs_t: Array) -> Array:
    """The log-probability, or log ½ for a sequence in which no token counts."""
    return jnp.where(jnp.any(counts_of(mask_t, log_probs_t.shape)), log_prob, -math.log(2))


def _preference_loss(log_p: Array, log_q: Array) -> Array:
    """-log σ(log odds(p) - log odds(q)), from log p and log q.

    This is log(1 + r) plus what the worse answer lacks, where r ≤ 1 is the ratio of the odds. If p = 1, r is 0 and has
    a finite slope, whereas the logarithm of infinite odds has none.
    """
    fine = log_p >= log_q
    high, low = jnp.where(fine, log_p, log_q), jnp.where(fine, log_q, log_p)
    certain = low == 0  # both have probability 1, and so the same odds
    ratio = jnp.exp(low - high) * jnp.expm1(high) / jnp.expm1(jnp.where(certain, -1, low))
    ratio = jnp.where(certain, 1, ratio)
    worse, better = jnp.where(fine, -1, log_p), jnp.where(fine, -1, log_q)  # no difference if it is fine
    return jnp.log1p(ratio) + better - worse + jnp.log(-jnp.expm1(worse)) - jnp.log(-jnp.expm1(better))
