"""Inputs of recurrent agents."""

import jax.numpy as jnp

from rlx.core.arrays import one_hot
from rlx.core.checks import check, whole_number
from rlx.core.types import Array, ArrayLike


def embed_oar(features: ArrayLike, action: ArrayLike, reward: ArrayLike, num_actions: int) -> Array:
    """Joins features of the observation, the last action as one-hot, and the last reward through tanh.

    Args:
      features: numbers [B, D].
      action: integers [B] in [0, num_actions).
      reward: numbers [B].
      num_actions: number of actions.

    Returns:
      Floats [B, D + num_actions + 1].

    Raises:
      ArgumentError: if an argument has another rank, length or kind.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.embed_oar(jnp.array([[5.0]]), jnp.array([1]), jnp.array([0.0]), 2).tolist()
      [[5.0, 0.0, 1.0, 0.0]]
    """
    features, action, reward = check(
        "embed_oar",
        features=(features, "[B, D]", "real"),
        action=(action, "[B]", "int"),
        reward=(reward, "[B]", "real"),
    )
    num_actions = whole_number("embed_oar", "num_actions", num_actions, "a positive number")
    return jnp.concatenate([features, one_hot(action, num_actions, features.dtype), jnp.tanh(reward)[:, None]], axis=-1)
