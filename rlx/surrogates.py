"""What policy losses of several families share: clipped surrogates and ratios, step by step."""

import jax
import jax.numpy as jnp

from rlx.core.types import Array, ArrayLike


def clipped_surrogate(ratio: Array, adv: Array, epsilon_low: ArrayLike, epsilon_high: ArrayLike) -> Array:
    """PPO's objective, to be maximised: min(ρ A, clip(ρ, 1 - ε_low, 1 + ε_high) A), entry by entry.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.surrogates import clipped_surrogate
      >>> import rlx
      >>> clipped_surrogate(jnp.array([2.0, 2.0]), jnp.array([1.0, -1.0]), 0.5, 0.5).tolist()
      [1.5, -2.0]
    """
    # The bound that matters is chosen before the product: an infinite ratio that it cuts off reaches no gradient of A.
    return adv * jnp.where(adv < 0, jnp.maximum(ratio, 1 - epsilon_low), jnp.minimum(ratio, 1 + epsilon_high))


def truncated_ratio(log_ratio: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """clip(ρ, low, high) as a constant to gradients."""
    return jax.lax.stop_gradient(jnp.clip(jnp.exp(log_ratio), low, high))
