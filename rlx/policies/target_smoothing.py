"""TD3's smoothing of the target policy; its critics' errors are `rlx.clipped_double_q_learning`."""

import jax
import jax.numpy as jnp

from rlx.core.checks import check, check_ascending
from rlx.core.types import Array, ArrayLike


def smoothed_target_action(
    key: Array,
    a_t: ArrayLike,
    stddev: ArrayLike = 0.2,
    noise_clip: ArrayLike = 0.5,
    min_action: ArrayLike = -1.0,
    max_action: ArrayLike = 1.0,
) -> Array:
    """Target policy smoothing: clip(a_t + clip(ε, -c, c), min_action, max_action) with ε ~ N(0, σ²).

    Values of similar actions become similar, so the policy cannot exploit a narrow peak of the critic. From "Addressing
    Function Approximation Error in Actor-Critic Methods", Fujimoto et al. 2018 (https://arxiv.org/abs/1802.09477), TD3.

    Args:
      key: a key of `jax.random`, typed or raw.
      a_t: action of the target policy, floats [D].
      stddev: σ ≥ 0, number [] or [D], in the unit of the actions.
      noise_clip: c ≥ 0, number [] or [D].
      min_action: least action, number [] or [D].
      max_action: greatest action, number [] or [D], at least `min_action`.

    Returns:
      The smoothed action, floats [D].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches (and keys) with `jax.vmap`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.smoothed_target_action(jax.random.key(0), jnp.array([0.5, 2.0]), stddev=0.0).tolist()
      [0.5, 1.0]
    """
    a_t, stddev, noise_clip, least, greatest = check(
        "smoothed_target_action",
        a_t=(a_t, "[D]", "float"),
        stddev=(stddev, "[] or [D]", "real in [0, inf)"),
        noise_clip=(noise_clip, "[] or [D]", "real in [0, inf]"),
        min_action=(min_action, "[] or [D]", "real in [-inf, inf]"),
        max_action=(max_action, "[] or [D]", "real in [-inf, inf]"),
    )
    check_ascending("smoothed_target_action", strictly=False, min_action=min_action, max_action=max_action)
    noise = stddev * jax.random.normal(key, a_t.shape, a_t.dtype)
    return jnp.clip(a_t + jnp.clip(noise, -noise_clip, noise_clip), least, greatest)
