"""Munchausen Q-learning: soft Q-learning that adds its own log-policy to the reward."""

import jax
import jax.numpy as jnp

from rlx.core.arrays import pick, scale_down
from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import rows_if_used, weigh
from rlx.core.types import Array, ArrayLike
from rlx.divergences import scaled_log_policy


@stoppable
def munchausen_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    target_q_tm1: ArrayLike,
    temperature: ArrayLike = 0.03,
    munchausen_scale: ArrayLike = 0.9,
    clip_value_min: ArrayLike = -1.0,
    stop_target_gradients: bool = True,
) -> Array:
    """Munchausen Q-learning temporal-difference error.

    r_t + α max(l₀, τ log π(a_tm1 | s_tm1)) + γ_t Σ_a π(a | s_t) (q_t[a] - τ log π(a | s_t)) - q_tm1[a_tm1], where the
    policy is π(· | s) = softmax(q(s, ·) / τ) of the target network. α = 0 is soft Q-learning, and with τ → 0 besides
    Q-learning. From "Munchausen Reinforcement Learning", Vieillard et al. 2020 (https://arxiv.org/abs/2007.14430).

    Args:
      q_tm1: action values at time t-1, floats [A].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number []; 0 where the episode ended.
      q_t: action values of the target network at time t, floats [A]; -inf for actions that do not exist.
      target_q_tm1: action values of the target network at time t-1, floats [A].
      temperature: τ > 0, number [], in the unit of the values.
      munchausen_scale: α in [0, 1], number [].
      clip_value_min: l₀ ≤ 0, number []; the least that the scaled log-policy may be.
      stop_target_gradients: whether the target (all but `q_tm1`) is a constant to gradients.

    Returns:
      The temporal-difference error, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q = jnp.array([0.0, 0.0])
      >>> round(float(rlx.munchausen_q_learning(q, 0, 1.0, 0.5, q, q, temperature=1.0)), 4)
      0.7227
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, target_q_tm1, temperature, scale, least = check(
        "munchausen_q_learning",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[A]", "float"),
        target_q_tm1=(target_q_tm1, "[A]", "float"),
        temperature=(temperature, "[]", "real in (0, inf)"),
        munchausen_scale=(munchausen_scale, "[]", "real in [0, 1]"),
        clip_value_min=(clip_value_min, "[]", "real in [-inf, 0]"),
    )
    target_q_tm1, q_t = rows_if_used(scale, target_q_tm1), rows_if_used(discount_t, q_t)
    bonus = jnp.clip(pick(scaled_log_policy(target_q_tm1, temperature), a_tm1), least, 0)
    log_policy_t = scaled_log_policy(q_t, temperature)
    # q - τ log π is one number, the soft value, for all actions that are possible.
    bootstrap = jnp.sum(weigh(jax.nn.softmax(scale_down(q_t, temperature)), q_t - log_policy_t))
    target = r_t + weigh(scale, bonus) + weigh(discount_t, bootstrap)
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)
