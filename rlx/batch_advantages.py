"""Further advantages of answers to a question: REINFORCE++, OPO, ReMax, pass@k and GDPO."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Real
from rlx.core.arguments import require
from rlx.core.operator import operator
from rlx.core.types import Array
from rlx.group_advantages import group_relative_advantages


@operator()
def reinforce_plus_plus_advantages(
    rewards: Real[Array, "Q G"],
    with_baseline: bool = True,
    epsilon: Real[Array | float, "", "in [0, inf)"] = 1e-6,
) -> Float[Array, "Q G"]:
    """REINFORCE++'s advantages of G answers to each of Q questions, scaled by the deviation of the whole batch.

    A = (x - mean(x)) / (std(x) + ε) over all answers. x is the reward; with the baseline, the question's mean reward is
    subtracted from it. Unlike GRPO's, one scale for all does not favour very easy and very hard questions. From
    "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization", Hu et al. 2025
    (https://arxiv.org/abs/2501.03262).

    Args:
      rewards: the rewards of the answers.
      with_baseline: whether to subtract the mean of the answers to the same question first.
      epsilon: ε ≥ 0.

    Returns:
      Advantages.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rewards = jnp.array([[1.0, 0.0], [5.0, 5.0]])
      >>> [[round(a, 4) for a in row] for row in rlx.reinforce_plus_plus_advantages(rewards).tolist()]
      [[1.4142, -1.4142], [0.0, 0.0]]
    """
    x = rewards - jnp.mean(rewards, axis=1, keepdims=True) if with_baseline else rewards
    return group_relative_advantages.kernel(x.ravel(), True, epsilon).reshape(x.shape)


@operator()
def optimal_baseline_advantages(rewards: Real[Array, "G"], lengths: Real[Array, "G"]) -> Float[Array, "G"]:
    """OPO's advantages of a group: r_i - Σ_j l_j r_j / Σ_j l_j, the baseline of least variance.

    The variance of a policy gradient is least for the mean reward weighted by the squared norms of gradients, which are
    about proportional to lengths. From "On-Policy RL with Optimal Reward Baseline", Hao et al. 2025
    (https://arxiv.org/abs/2505.23585).

    Args:
      rewards: one reward for each answer in the group.
      lengths: l, the number of tokens of each answer.

    Returns:
      Advantages; the rewards, if all lengths are 0.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.optimal_baseline_advantages(jnp.array([1.0, 0.0]), jnp.array([3, 1])).tolist()
      [0.25, -0.75]
    """
    total = jnp.sum(lengths)
    return rewards - jnp.sum(lengths * rewards) / jnp.where(total > 0, total, 1)


@operator()
def remax_advantages(rewards: Real[Array, "G"], greedy_reward: Real[Array, ""]) -> Float[Array, "G"]:
    """ReMax's advantages of answers to a question: r_i - r(greedy answer).

    The baseline is the reward of the answer whose tokens are each the likeliest one; it does not depend on the sampled
    answers, so one of them is enough. From "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for
    Aligning Large Language Models", Li et al. 2023 (https://arxiv.org/abs/2310.10505).

    Args:
      rewards: the rewards of the sampled answers.
      greedy_reward: the reward of the greedy answer.

    Returns:
      Advantages.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.remax_advantages(jnp.array([1.0, 0.0]), 0.25).tolist()
      [0.75, -0.25]
    """
    return jnp.asarray(rewards - greedy_reward)


@operator()
def pass_at_k_advantages(correct: Real[Array, "G"], k: int) -> Float[Array, "G"]:
    """Advantages of right and wrong answers when any k of a group together earn 1 if one of them is right (pass@k).

    With n of G answers wrong, a random subset of k is all wrong with probability p = C(n, k) / C(G, k); R = 1 - p is
    the mean reward, and σ = √(R p). A is p / σ for a right answer, and (p - C(n-1, k-1) / C(G-1, k-1)) / σ for a wrong
    one. For k = 1 these are GRPO's. From "Pass@k Training for Adaptively Balancing Exploration and Exploitation of
    Large Reasoning Models", Chen et al. 2025 (https://arxiv.org/abs/2508.10751).

    Args:
      correct: a number above 0 for a right answer, and 0 for a wrong one.
      k: number of answers tried, from 1 to G.

    Returns:
      Advantages; 0 if all subsets pass, or none.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> [round(a, 4) for a in rlx.pass_at_k_advantages(jnp.array([1, 0, 0, 0]), k=2).tolist()]
      [1.0, -0.3333, -0.3333, -0.3333]
    """
    size = correct.shape[0]
    require(1 <= k <= size, "k", k, f"from 1 to the number of answers, {size}")
    wrong = jnp.sum((correct <= 0).astype(correct.dtype))
    tried = jnp.arange(k, dtype=correct.dtype)
    failing = jnp.prod(jnp.maximum(wrong - tried, 0) / (size - tried))  # of k
    others = jnp.prod(jnp.maximum(wrong - tried[1:], 0) / (size - tried[1:]))  # of a wrong answer and k - 1 more
    deviation = jnp.sqrt(failing * (1 - failing))
    adv = jnp.where(correct > 0, failing, failing - others)
    return jnp.where(deviation > 0, adv / jnp.where(deviation > 0, deviation, 1), 0)


@operator()
def decoupled_advantages(
    rewards: Real[Array, "G K"],
    weights: Real[Array, "K"] | None = None,
    epsilon: Real[Array | float, "", "in [0, inf)"] = 1e-6,
) -> Float[Array, "G"]:
    """GDPO's advantages of a group with several rewards: Σ_k w_k (r_ik - mean_i(r_ik)) / (std_i(r_ik) + ε).

    Each reward is normalised in its group alone, so that different combinations of rewards with the same sum have
    different advantages. The paper then normalises over the batch: `rlx.normalized_advantages`. From "GDPO: Group
    reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization", Liu et al. 2026
    (https://arxiv.org/abs/2601.05242).

    Args:
      rewards: K rewards for each answer in the group.
      weights: w; 1 by default.
      epsilon: ε ≥ 0.

    Returns:
      Advantages.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rewards = jnp.array([[1.0, 0.0], [0.0, 0.0], [0.0, 8.0], [1.0, 8.0]])
      >>> rlx.decoupled_advantages(rewards, epsilon=0.0).tolist()
      [0.0, -2.0, 0.0, 2.0]
    """
    each = [group_relative_advantages.kernel(rewards[:, k], True, epsilon) for k in range(rewards.shape[1])]
    scaled = jnp.stack(each, axis=1) if each else jnp.zeros_like(rewards)
    return jnp.sum(scaled if weights is None else scaled * weights[None], axis=1)
