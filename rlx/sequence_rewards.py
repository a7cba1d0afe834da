"""Sequence rewards: learning a reward model from preferences, and a penalty for overlong answers."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Real
from rlx.core.arguments import require_ascending
from rlx.core.operator import operator
from rlx.core.types import Array


@operator()
def bradley_terry_loss(
    chosen_reward: Float[Array, ""],
    rejected_reward: Float[Array, ""],
    margin: Real[Array | float, "", "in [0, inf)"] = 0.0,
) -> Float[Array, ""]:
    """The loss of a reward model on one pair of answers: -log σ(r_w - r_l - m).

    σ(r_w - r_l) is the probability that w is preferred to l: "Rank Analysis of Incomplete Block Designs", Bradley and
    Terry 1952; for language models "Training language models to follow instructions with human feedback", Ouyang et al.
    2022 (https://arxiv.org/abs/2203.02155), equation 1. The margin, which grows with the strength of the preference, is
    from "Llama 2: Open Foundation and Fine-Tuned Chat Models", Touvron et al. 2023 (https://arxiv.org/abs/2307.09288).

    Args:
      chosen_reward: r_w, reward of the preferred answer.
      rejected_reward: r_l, reward of the rejected answer.
      margin: m ≥ 0.

    Returns:
      The loss.

    Example:
      >>> import rlx
      >>> round(float(rlx.bradley_terry_loss(1.5, 1.5)), 4)
      0.6931
    """
    return jax.nn.softplus(rejected_reward - chosen_reward + margin)


@operator()
def overlong_penalty(
    length: Real[Array, "*E"],
    max_length: Real[Array | float, "", "in (0, inf)"],
    buffer: Real[Array | float, "", "in (0, inf)"],
) -> Float[Array, "*E"]:
    """DAPO's penalty for long answers: 0 up to max_length - buffer tokens, then decreasing to -1 at max_length.

    Add it to the rewards. It warns of the length limit before it is reached, and does not simply treat a truncated
    answer, which may be correct, as wrong. From "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", Yu
    et al. 2025 (https://arxiv.org/abs/2503.14476), equation 13.

    Args:
      length: numbers of tokens in the answers.
      max_length: the maximum allowed length.
      buffer: the number of tokens below `max_length` over which the penalty grows, at most `max_length`.

    Returns:
      The penalties, in [-1, 0].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.overlong_penalty(jnp.array([10, 75, 101]), max_length=100, buffer=50).tolist()
      [0.0, -0.5, -1.0]
    """
    require_ascending(strictly=False, buffer=buffer, max_length=max_length)
    return jnp.clip((max_length - buffer - length) / buffer, -1, 0)
