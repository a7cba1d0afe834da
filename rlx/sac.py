"""SAC, soft actor-critic: the losses of the critics, the policy and the temperature."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.arrays import half_square
from rlx.core.masking import masked, weighted, weighted_sum
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.divergences import categorical_entropy
from rlx.td3 import clipped_double_q_learning


@operator(masks={"discount_t": ("q_t", "log_prob_t")})
def sac_critic_loss(
    q_tm1: Float[Array, "N"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "M"],
    log_prob_t: Float[Array, ""],
    temperature: Real[Array | float, "", "in [0, inf)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Soft actor-critic's critic loss: Σ_i ½ (r_t + γ_t (min_j q_t[j] - α log π(a_t | s_t)) - q_tm1[i])².

    From "Soft Actor-Critic Algorithms and Applications", Haarnoja et al. 2018 (https://arxiv.org/abs/1812.05905),
    equation 5. α = 0 gives the loss of TD3. CrossQ (Bhatt et al. 2024, https://arxiv.org/abs/1902.05605) takes `q_t`
    from the critics themselves, in one forward pass with `q_tm1`, so that batch normalisation sees both
    (`hkx.BatchRenorm`).

    Args:
      q_tm1: values of the action at time t-1, one per critic.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_t: values of an action a_t sampled from the policy at time t, one per target critic.
      log_prob_t: log π(a_t | s_t) of that action.
      temperature: α ≥ 0.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sac_critic_loss(jnp.array([1.0, 2.0]), 0.5, 0.5, jnp.array([3.0, 5.0]), -1.0, 2.0))
      2.5
    """
    soft_q_t = masked(discount_t, q_t - weighted(temperature, log_prob_t))
    errors = clipped_double_q_learning.kernel(q_tm1, r_t, discount_t, soft_q_t, stop_target_gradients)
    return jnp.sum(half_square(errors))


@operator()
def sac_actor_loss(
    q_t: Float[Array, "N"],
    log_prob_t: Float[Array, ""],
    temperature: Real[Array | float, "", "in [0, inf)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Soft actor-critic's policy loss: α log π(a_t | s_t) - min_i q_t[i].

    The action is a differentiable sample, a_t = f(noise; s_t), and gradients reach the policy through both the values
    and the log-probability: keep `q_t` a function of the action, with the critics' own parameters held constant. From
    "Soft Actor-Critic Algorithms and Applications", Haarnoja et al. 2018 (https://arxiv.org/abs/1812.05905),
    equation 7.

    Args:
      q_t: values of the action, one per critic.
      log_prob_t: log π(a_t | s_t).
      temperature: α ≥ 0.
      stop_target_gradients: whether to stop gradients through the temperature (it has its own loss).

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sac_actor_loss(jnp.array([3.0, 5.0]), -1.0, 0.5))
      -3.5
    """
    return weighted(maybe_stop(temperature, stop_target_gradients), log_prob_t) - jnp.min(q_t)


@operator()
def sac_temperature_loss(
    temperature: Float[Array, "", "in [0, inf)"],
    log_prob_t: Float[Array, ""],
    target_entropy: Real[Array | float, "", "in (-inf, inf)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Soft actor-critic's temperature loss: -α (log π(a_t | s_t) + H̄).

    It raises α while the policy's entropy is below the target H̄, and lowers it otherwise. From "Soft Actor-Critic
    Algorithms and Applications", Haarnoja et al. 2018 (https://arxiv.org/abs/1812.05905), equation 18.

    Args:
      temperature: α ≥ 0; pass the exponential of an unconstrained parameter to keep it positive.
      log_prob_t: log π(a_t | s_t) of a sampled action.
      target_entropy: H̄ in nats, finite; usually minus the number of action dimensions.
      stop_target_gradients: whether to stop gradients through the log-probability.

    Returns:
      The loss.

    Example:
      >>> import rlx
      >>> float(rlx.sac_temperature_loss(0.5, -1.0, 3.0))
      -1.0
    """
    return -weighted(temperature, maybe_stop(log_prob_t + target_entropy, stop_target_gradients))


@operator(masks={"discount_t": ("q_t",)})
def sac_discrete_critic_loss(
    q_tm1: Float[Array, "N A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "M A"],
    logits_t: Float[Array, "A"],
    temperature: Real[Array | float, "", "in [0, inf)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Discrete soft actor-critic's critic loss: Σ_i ½ (r_t + γ_t V_t - q_tm1[i, a_tm1])².

    V_t = Σ_a π(a | s_t) (min_j q_t[j, a] - α log π(a | s_t)): with discrete actions, the expectation over actions
    replaces a sample. From "Soft Actor-Critic for Discrete Action Settings", Christodoulou 2019
    (https://arxiv.org/abs/1910.07207).

    Args:
      q_tm1: action values at time t-1, one row per critic.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_t: action values at time t, one row per target critic.
      logits_t: logits of the policy π at time t.
      temperature: α ≥ 0.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_tm1, q_t = jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 5.0], [4.0, 3.0]])
      >>> float(rlx.sac_discrete_critic_loss(q_tm1, 0, 0.5, 0.5, q_t, jnp.zeros(2), temperature=0.0))
      0.5
    """
    target = r_t - weighted(discount_t, sac_discrete_actor_loss.kernel(q_t, logits_t, temperature, False))
    return jnp.sum(half_square(maybe_stop(target, stop_target_gradients) - q_tm1[:, a_tm1]))


@operator()
def sac_discrete_actor_loss(
    q_t: Float[Array, "M A"],
    logits_t: Float[Array, "A"],
    temperature: Real[Array | float, "", "in [0, inf)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Discrete soft actor-critic's policy loss: Σ_a π(a | s_t) (α log π(a | s_t) - min_j q_t[j, a]).

    From "Soft Actor-Critic for Discrete Action Settings", Christodoulou 2019 (https://arxiv.org/abs/1910.07207).

    Args:
      q_t: action values, one row per critic.
      logits_t: logits of the policy π.
      temperature: α ≥ 0.
      stop_target_gradients: whether to stop gradients through the action values and the temperature.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.sac_discrete_actor_loss(jnp.array([[3.0, 5.0], [4.0, 3.0]]), jnp.zeros(2), temperature=0.0))
      -3.0
    """
    q_t, temperature = maybe_stop((q_t, temperature), stop_target_gradients)
    log_probs = jax.nn.log_softmax(logits_t)
    value = weighted_sum(jnp.exp(log_probs), jnp.min(q_t, axis=0))
    return weighted(temperature, -categorical_entropy(log_probs)) - value
