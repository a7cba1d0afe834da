"""Policy gradient losses for discrete and continuous actions."""

import jax
import jax.numpy as jnp

from rlx.core.arrays import pick
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import if_used, rows_if_used, weigh
from rlx.core.types import Array, ArrayLike
from rlx.divergences import categorical_entropy
from rlx.surrogates import clipped_surrogate


@stoppable
def policy_gradient_loss(
    logits_t: ArrayLike, a_t: ArrayLike, adv_t: ArrayLike, w_t: ArrayLike, use_stop_gradient: bool = True
) -> Array:
    """Policy gradient loss: mean_t of -w_t A_t log π_t(a_t), whose gradient is that of REINFORCE.

    A step with w_t = 0 counts nothing, whatever it holds: a NaN there reaches neither the loss nor its gradient. From
    "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning", Williams 1992
    (https://link.springer.com/article/10.1007/BF00992696).

    Args:
      logits_t: logits of the policy, floats [T, A].
      a_t: actions sampled from it, integers [T].
      adv_t: advantages of the actions, numbers [T].
      w_t: weight of each step, numbers [T].
      use_stop_gradient: whether the advantages are constants to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one = jnp.ones(1)
      >>> round(float(rlx.policy_gradient_loss(jnp.zeros([1, 2]), jnp.array([0]), one, one)), 4)
      0.6931
    """
    logits_t, a_t, adv_t, w_t = check(
        "policy_gradient_loss",
        logits_t=(logits_t, "[T, A]", "float"),
        a_t=(a_t, "[T]", "int"),
        adv_t=(adv_t, "[T]", "real"),
        w_t=(w_t, "[T]", "real"),
    )
    adv_t = if_used(w_t, adv_t)
    log_pi_t = pick(jax.nn.log_softmax(rows_if_used(adv_t * w_t, logits_t)), a_t)
    log_pi_t = if_used(adv_t * w_t, log_pi_t)
    return jnp.mean(-log_pi_t * maybe_stop(adv_t, use_stop_gradient) * w_t)


def entropy_loss(logits_t: ArrayLike, w_t: ArrayLike) -> Array:
    """Entropy loss: mean_t of -w_t H(π_t), which keeps a policy random.

    A step with w_t = 0 counts nothing, whatever it holds. From "Function Optimization Using Connectionist Reinforcement
    Learning Algorithms", Williams and Peng 1991 (https://www.tandfonline.com/doi/abs/10.1080/09540099108946587).

    Args:
      logits_t: logits of the policy, floats [T, A].
      w_t: weight of each step, numbers [T].

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.entropy_loss(jnp.zeros([1, 2]), jnp.ones(1))), 4)
      -0.6931
    """
    logits_t, w_t = check("entropy_loss", logits_t=(logits_t, "[T, A]", "float"), w_t=(w_t, "[T]", "real"))
    entropy_t = categorical_entropy(jax.nn.log_softmax(rows_if_used(w_t, logits_t)))
    return -jnp.mean(entropy_t * w_t)


@stoppable
def qpg_loss(logits_t: ArrayLike, q_t: ArrayLike, use_stop_gradient: bool = True) -> Array:
    """All-actions policy gradient loss: mean_t of -Σ_a π_t(a) A_t(a) with A_t = q_t - Σ_b π_t(b) q_t(b).

    From "Actor-Critic Policy Optimization in Partially Observable Multiagent Environments", Srinivasan et al. 2018
    (https://arxiv.org/abs/1810.09026), where it is called Q-based policy gradient.

    Args:
      logits_t: logits of the policy, floats [T, A].
      q_t: action values, floats [T, A]; constants to gradients.
      use_stop_gradient: whether the advantages, which depend on the policy, are constants to gradients too.

    Returns:
      The loss, float []; zero up to rounding, only its gradient matters.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> jax.grad(rlx.qpg_loss)(jnp.zeros([1, 2]), jnp.array([[2.0, -2.0]])).tolist()
      [[-1.0, 1.0]]
    """
    probs_t, advantages_t = _probs_and_advantages("qpg_loss", logits_t, q_t, True)
    return -jnp.mean(jnp.sum(weigh(probs_t, maybe_stop(advantages_t, use_stop_gradient)), axis=-1))


@stoppable
def rm_loss(logits_t: ArrayLike, q_t: ArrayLike, use_stop_gradient: bool = True) -> Array:
    """Regret matching policy gradient loss: mean_t of -Σ_a π_t(a) max(0, A_t(a)) with A_t = q_t - Σ_b π_t(b) q_t(b).

    From "Actor-Critic Policy Optimization in Partially Observable Multiagent Environments", Srinivasan et al. 2018
    (https://arxiv.org/abs/1810.09026).

    Args:
      logits_t: logits of the policy, floats [T, A].
      q_t: action values, floats [T, A]; constants to gradients.
      use_stop_gradient: whether the advantages, which depend on the policy, are constants to gradients too.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.rm_loss(jnp.zeros([1, 2]), jnp.array([[2.0, -2.0]])))
      -1.0
    """
    probs_t, advantages_t = _probs_and_advantages("rm_loss", logits_t, q_t, True)
    regrets_t = maybe_stop(jax.nn.relu(advantages_t), use_stop_gradient)
    return -jnp.mean(jnp.sum(weigh(probs_t, regrets_t), axis=-1))


@stoppable
def rpg_loss(logits_t: ArrayLike, q_t: ArrayLike, use_stop_gradient: bool = True) -> Array:
    """Regret policy gradient loss: mean_t of Σ_a max(0, A_t(a)) with A_t = q_t - Σ_b π_t(b) q_t(b).

    From "Actor-Critic Policy Optimization in Partially Observable Multiagent Environments", Srinivasan et al. 2018
    (https://arxiv.org/abs/1810.09026).

    Args:
      logits_t: logits of the policy, floats [T, A].
      q_t: action values, floats [T, A].
      use_stop_gradient: whether `q_t` is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.rpg_loss(jnp.zeros([1, 2]), jnp.array([[2.0, -2.0]])))
      2.0
    """
    _, advantages_t = _probs_and_advantages("rpg_loss", logits_t, q_t, use_stop_gradient)
    return jnp.mean(jnp.sum(jax.nn.relu(advantages_t), axis=-1))


@stoppable
def clipped_surrogate_pg_loss(
    prob_ratios_t: ArrayLike, adv_t: ArrayLike, epsilon: ArrayLike, use_stop_gradient: bool = True
) -> Array:
    """PPO's clipped surrogate loss: mean_t of -min(r_t A_t, clip(r_t, 1 - ε, 1 + ε) A_t).

    From "Proximal Policy Optimization Algorithms", Schulman et al. 2017 (https://arxiv.org/abs/1707.06347).

    Args:
      prob_ratios_t: r_t = π(a_t) / π_old(a_t), floats [T].
      adv_t: advantages of the actions, numbers [T].
      epsilon: ε ≥ 0, number [].
      use_stop_gradient: whether the advantages are constants to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.clipped_surrogate_pg_loss(jnp.array([2.0]), jnp.array([1.0]), 0.25)), 4)
      -1.25
    """
    prob_ratios_t, adv_t, epsilon = check(
        "clipped_surrogate_pg_loss",
        prob_ratios_t=(prob_ratios_t, "[T]", "float"),
        adv_t=(adv_t, "[T]", "real"),
        epsilon=(epsilon, "[]", "real in [0, inf]"),
    )
    return -jnp.mean(clipped_surrogate(prob_ratios_t, maybe_stop(adv_t, use_stop_gradient), epsilon, epsilon))


@stoppable
def dpg_loss(
    a_t: ArrayLike, dqda_t: ArrayLike, dqda_clipping: ArrayLike | None = None, use_stop_gradient: bool = True
) -> Array:
    """Deterministic policy gradient loss: ½ (stop(a_t + ∂q/∂a) - a_t)², whose gradient for `a_t` is -∂q/∂a.

    From "Deterministic Policy Gradient Algorithms", Silver et al. 2014 (http://proceedings.mlr.press/v32/silver14.pdf).

    Args:
      a_t: action from the policy, floats [D].
      dqda_t: gradient of the action value with respect to the action, floats [D].
      dqda_clipping: largest Euclidean norm of `dqda_t`, number [] ≥ 0, beyond which it is scaled down; None for no
        limit.
      use_stop_gradient: whether the target a_t + ∂q/∂a is a constant to gradients.

    Returns:
      The loss of each action dimension, floats [D].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.dpg_loss(jnp.zeros(2), jnp.array([3.0, 4.0]), dqda_clipping=2.5).tolist()
      [1.125, 2.0]
    """
    a_t, dqda_t = check("dpg_loss", a_t=(a_t, "[D]", "float"), dqda_t=(dqda_t, "[D]", "float"))
    if dqda_clipping is not None:
        (limit,) = check("dpg_loss", dqda_clipping=(dqda_clipping, "[]", "real in [0, inf)"))
        squared_norm = jnp.sum(jnp.square(dqda_t))
        too_long = squared_norm > jnp.square(limit)
        dqda_t = jnp.where(too_long, limit / jnp.sqrt(jnp.where(too_long, squared_norm, 1)), 1) * dqda_t
    return 0.5 * jnp.square(maybe_stop(dqda_t + a_t, use_stop_gradient) - a_t)


def _probs_and_advantages(function: str, logits_t: ArrayLike, q_t: ArrayLike, stop: bool) -> tuple[Array, Array]:
    logits_t, q_t = check(function, logits_t=(logits_t, "[T, A]", "float"), q_t=(q_t, "[T, A]", "float"))
    probs_t = jax.nn.softmax(logits_t)
    q_t = jnp.asarray(maybe_stop(q_t, stop))
    # Differences first: of large values, and of equal ones, only they keep their digits.
    largest = jax.lax.stop_gradient(jnp.max(q_t, axis=-1, keepdims=True, where=probs_t > 0, initial=-jnp.inf))
    gap_t = q_t - jnp.where(jnp.isfinite(largest), largest, 0)
    return probs_t, gap_t - jnp.sum(weigh(probs_t, gap_t), axis=-1, keepdims=True)
