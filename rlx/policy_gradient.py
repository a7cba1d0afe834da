"""Policy gradient losses for discrete actions: REINFORCE, A2C and all-actions losses."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.arrays import pick_action
from rlx.core.masking import weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.divergences import categorical_entropy


@operator(masks={"w_t": ("adv_t", "logits_t"), "adv_t": ("logits_t",)})
def policy_gradient_loss(
    logits_t: Float[Array, "T A"],
    a_t: Int[Array, "T", "in [-1, A) where w_t"],
    adv_t: Real[Array, "T"],
    w_t: Real[Array, "#T"],
    use_stop_gradient: bool = True,
) -> Float[Array, ""]:
    """Policy gradient loss: mean_t of -w_t A_t log π_t(a_t), whose gradient is the REINFORCE gradient.

    A step with w_t = 0 is ignored: even a NaN there reaches neither the loss nor its gradient. From "Simple Statistical
    Gradient-Following Algorithms for Connectionist Reinforcement Learning", Williams 1992
    (https://link.springer.com/article/10.1007/BF00992696).

    Args:
      logits_t: logits of the policy.
      a_t: actions sampled from the policy; the log-probability of other numbers, such as -1, is -inf.
      adv_t: advantages of the actions.
      w_t: weight of each step, or [1] for all.
      use_stop_gradient: whether to stop gradients through the advantages.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> one = jnp.ones(1)
      >>> round(float(rlx.policy_gradient_loss(jnp.zeros([1, 2]), jnp.array([0]), one, one)), 4)
      0.6931
    """
    log_pi_t = pick_action(jax.nn.log_softmax(logits_t), a_t, -jnp.inf)
    return -jnp.mean(weighted(w_t * maybe_stop(adv_t, use_stop_gradient), log_pi_t))


@operator(masks={"w_t": ("logits_t",)})
def entropy_loss(
    logits_t: Float[Array, "T A"],
    w_t: Real[Array, "#T"],
) -> Float[Array, ""]:
    """Entropy loss: mean_t of -w_t H(π_t), which encourages the policy to explore.

    A step with w_t = 0 is ignored, even if it contains NaN. From "Function Optimization Using Connectionist
    Reinforcement Learning Algorithms", Williams and Peng 1991
    (https://www.tandfonline.com/doi/abs/10.1080/09540099108946587).

    Args:
      logits_t: logits of the policy.
      w_t: weight of each step, or [1] for all.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.entropy_loss(jnp.zeros([1, 2]), jnp.ones(1))), 4)
      -0.6931
    """
    return -jnp.mean(w_t * categorical_entropy(jax.nn.log_softmax(logits_t)))


@operator()
def qpg_loss(
    logits_t: Float[Array, "T A"],
    q_t: Float[Array, "T A"],
    use_stop_gradient: bool = True,
) -> Float[Array, ""]:
    """All-actions policy gradient loss: mean_t of -Σ_a π_t(a) A_t(a) with A_t = q_t - Σ_b π_t(b) q_t(b).

    From "Actor-Critic Policy Optimization in Partially Observable Multiagent Environments", Srinivasan et al. 2018
    (https://arxiv.org/abs/1810.09026), where it is called Q-based policy gradient.

    Args:
      logits_t: logits of the policy.
      q_t: action values; gradients are stopped.
      use_stop_gradient: whether to stop gradients also through the advantages, which depend on the policy.

    Returns:
      The loss. It is zero up to rounding; only its gradient matters.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> jax.grad(rlx.qpg_loss)(jnp.zeros([1, 2]), jnp.array([[2.0, -2.0]])).tolist()
      [[-1.0, 1.0]]
    """
    value = jnp.mean(jnp.sum(jax.nn.softmax(logits_t) * _finite(maybe_stop(q_t, True)), axis=-1))
    # As Σ_a π_t(a) = 1, -Σ_a π_t(a) (q_t(a) - v_t) = v_t - Σ_a π_t(a) q_t(a), and v_t is that sum too.
    return maybe_stop(value, use_stop_gradient) - value


@operator()
def rm_loss(
    logits_t: Float[Array, "T A"],
    q_t: Float[Array, "T A"],
    use_stop_gradient: bool = True,
) -> Float[Array, ""]:
    """Regret matching policy gradient loss: mean_t of -Σ_a π_t(a) max(0, A_t(a)) with A_t = q_t - Σ_b π_t(b) q_t(b).

    From "Actor-Critic Policy Optimization in Partially Observable Multiagent Environments", Srinivasan et al. 2018
    (https://arxiv.org/abs/1810.09026).

    Args:
      logits_t: logits of the policy.
      q_t: action values; gradients are stopped.
      use_stop_gradient: whether to stop gradients also through the advantages, which depend on the policy.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.rm_loss(jnp.zeros([1, 2]), jnp.array([[2.0, -2.0]])))
      -1.0
    """
    probs_t = jax.nn.softmax(logits_t)
    adv_t = maybe_stop(_advantages(probs_t, maybe_stop(q_t, True)), use_stop_gradient)
    return -jnp.mean(jnp.sum(probs_t * jax.nn.relu(adv_t), axis=-1))


@operator()
def rpg_loss(
    logits_t: Float[Array, "T A"],
    q_t: Float[Array, "T A"],
    use_stop_gradient: bool = True,
) -> Float[Array, ""]:
    """Regret policy gradient loss: mean_t of Σ_a max(0, A_t(a)) with A_t = q_t - Σ_b π_t(b) q_t(b).

    From "Actor-Critic Policy Optimization in Partially Observable Multiagent Environments", Srinivasan et al. 2018
    (https://arxiv.org/abs/1810.09026).

    Args:
      logits_t: logits of the policy.
      q_t: action values.
      use_stop_gradient: whether to stop gradients through `q_t`.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.rpg_loss(jnp.zeros([1, 2]), jnp.array([[2.0, -2.0]])))
      2.0
    """
    adv_t = _advantages(jax.nn.softmax(logits_t), maybe_stop(q_t, use_stop_gradient))
    return jnp.mean(jnp.sum(jax.nn.relu(adv_t), axis=-1))


def _advantages(probs_t: Array, q_t: Array) -> Array:
    """A_t(a) = q_t(a) - Σ_b π_t(b) q_t(b), where actions of probability 0 may be worth -∞."""
    q_t = _finite(q_t)
    return q_t - jnp.sum(probs_t * q_t, axis=-1, keepdims=True)


def _finite(q_t: Array) -> Array:
    """Action values of at least -1e30, as 0 · ∞ would be NaN, and an overflow of their sum too."""
    return jnp.maximum(q_t, -1e30)
