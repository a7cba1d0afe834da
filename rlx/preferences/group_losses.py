"""Policy losses of a group of sequences, where all tokens of the group are averaged together."""

import jax
import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import finite_exponent, given_mask, keep, masked_mean, weigh
from rlx.core.types import Array, ArrayLike
from rlx.ppo import clipped_surrogate
from rlx.preferences.advantages import leave_one_out_advantages
from rlx.preferences.sequence_losses import sequence_policy_gradient_loss


@stoppable
def dapo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon_low: ArrayLike = 0.2,
    epsilon_high: ArrayLike = 0.28,
    stop_target_gradients: bool = True,
) -> Array:
    """DAPO's loss of a group: an asymmetric clip, and a mean over all tokens of the group.

    -1/Σ_i|y_i| Σ_i Σ_t min(ρ_it A_i, clip(ρ_it, 1 - ε_low, 1 + ε_high) A_i), with ρ_it = π(y_it) / π_old(y_it)

    The higher upper bound leaves room for unlikely tokens to grow; the mean over tokens gives each token of a long
    answer the weight of one in a short answer. From "DAPO: An Open-Source LLM Reinforcement Learning System at Scale",
    Yu et al. 2025 (https://arxiv.org/abs/2503.14476).

    Args:
      log_probs_t: log-probabilities of the tokens under the policy that learns, floats [G, T].
      old_log_probs_t: those under the policy that sampled them, floats [G, T].
      adv: advantages of the answers, numbers [G], see `rlx.group_relative_advantages`.
      mask_t: mask [G, T], false for tokens that do not count, whatever they hold. By default all count.
      epsilon_low: ε_low ≥ 0, number [].
      epsilon_high: ε_high ≥ 0, number [].
      stop_target_gradients: whether all but `log_probs_t` are constants to gradients.

    Returns:
      The loss, float []; 0 if no token counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over prompts with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([[-1.0, -2.0], [-1.0, 0.0]])
      >>> mask = jnp.array([[1, 1], [1, 0]])
      >>> round(float(rlx.dapo_loss(old + jnp.log(2.0), old, jnp.array([1.0, -1.0]), mask)), 4)
      -0.1867
    """
    log_probs_t, old_log_probs_t, adv_t, low, high, mask_t = _check(
        "dapo_loss", log_probs_t, old_log_probs_t, adv, mask_t, epsilon_low, epsilon_high, stop_target_gradients
    )
    ratio = jnp.exp(finite_exponent(log_probs_t - old_log_probs_t))
    return -masked_mean(clipped_surrogate(ratio, adv_t, low, high), mask_t)


@stoppable
def cispo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon_low: ArrayLike = 1.0,
    epsilon_high: ArrayLike = 0.28,
    stop_target_gradients: bool = True,
) -> Array:
    """CISPO's loss of a group: clipped importance weights on a policy gradient, so that no token's gradient is dropped.

    -1/Σ_i|y_i| Σ_i Σ_t sg(clip(ρ_it, 1 - ε_low, 1 + ε_high)) A_i log π(y_it), with ρ_it = π(y_it) / π_old(y_it) and sg
    stopping gradients. From "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention", MiniMax 2025
    (https://arxiv.org/abs/2506.13585), which sets no lower bound: ε_low = 1.

    Args:
      log_probs_t: log-probabilities of the tokens under the policy that learns, floats [G, T].
      old_log_probs_t: those under the policy that sampled them, floats [G, T].
      adv: advantages of the answers, numbers [G], see `rlx.group_relative_advantages`.
      mask_t: mask [G, T], false for tokens that do not count, whatever they hold. By default all count.
      epsilon_low: ε_low ≥ 0, number [].
      epsilon_high: ε_high ≥ 0, number [].
      stop_target_gradients: whether the advantages are constants to gradients; the weights always are.

    Returns:
      The loss, float []; 0 if no token counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over prompts with `jax.vmap`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> old = jnp.array([[-1.0, -2.0]])
      >>> gradient = jax.grad(rlx.cispo_loss)(old + jnp.log(2.0), old, jnp.array([1.0]), epsilon_high=0.5)
      >>> gradient.tolist()
      [[-0.75, -0.75]]
    """
    log_probs_t, old_log_probs_t, adv_t, low, high, mask_t = _check(
        "cispo_loss", log_probs_t, old_log_probs_t, adv, mask_t, epsilon_low, epsilon_high, stop_target_gradients
    )
    weights = jax.lax.stop_gradient(jnp.clip(jnp.exp(log_probs_t - old_log_probs_t), 1 - low, 1 + high))
    return -masked_mean(weigh(weights * adv_t, log_probs_t), mask_t)


@stoppable
def rloo_loss(
    log_probs_t: ArrayLike,
    rewards: ArrayLike,
    mask_t: ArrayLike | None = None,
    stop_target_gradients: bool = True,
) -> Array:
    """RLOO's loss of a group: REINFORCE, where the baseline of each answer is the mean reward of the others.

    -1/G Σ_i (r_i - 1/(G-1) Σ_{j≠i} r_j) Σ_t log π(y_it)

    From "Back to Basics: Revisiting REINFORCE-Style Optimization for Learning from Human Feedback in LLMs", Ahmadian et
    al. 2024 (https://arxiv.org/abs/2402.14740).

    Args:
      log_probs_t: log-probabilities of the tokens under the policy, floats [G, T].
      rewards: rewards of the answers, numbers [G].
      mask_t: mask [G, T], false for tokens that do not count, whatever they hold. By default all count.
      stop_target_gradients: whether the rewards are constants to gradients.

    Returns:
      The loss, float []; 0 if no token counts.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over prompts with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.rloo_loss(jnp.array([[-1.0, -2.0], [-1.0, -1.0]]), jnp.array([1, 0])))
      0.5
    """
    log_probs_t, rewards, mask_t = check(
        "rloo_loss",
        log_probs_t=(log_probs_t, "[G, T]", "float"),
        rewards=(rewards, "[G]", "real"),
        mask_t=(given_mask(mask_t), "[] or [G, T]", "mask"),
    )
    adv = maybe_stop(leave_one_out_advantages(rewards), stop_target_gradients)
    mask_t = jnp.broadcast_to(mask_t, log_probs_t.shape)
    losses = jax.vmap(lambda x, a, m: sequence_policy_gradient_loss(x, a, m, False))(log_probs_t, adv, mask_t)
    return masked_mean(losses, jnp.array(True))


def _check(
    name: str,
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None,
    epsilon_low: ArrayLike,
    epsilon_high: ArrayLike,
    stop: bool,
) -> tuple[Array, ...]:
    """The arguments as arrays, the advantages [G, T], and zeros where tokens do not count."""
    log_probs_t, old_log_probs_t, adv, low, high, mask_t = check(
        name,
        log_probs_t=(log_probs_t, "[G, T]", "float"),
        old_log_probs_t=(old_log_probs_t, "[G, T]", "float"),
        adv=(adv, "[G]", "real"),
        epsilon_low=(epsilon_low, "[]", "real in [0, inf]"),
        epsilon_high=(epsilon_high, "[]", "real in [0, inf]"),
        mask_t=(given_mask(mask_t), "[] or [G, T]", "mask"),
    )
    old_log_probs_t, adv = maybe_stop((old_log_probs_t, adv), stop)
    adv_t = jnp.broadcast_to(jnp.expand_dims(adv, 1), log_probs_t.shape)
    return *keep(mask_t, log_probs_t, old_log_probs_t, adv_t), low, high, mask_t
