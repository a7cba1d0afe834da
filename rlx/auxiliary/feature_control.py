"""Feature control: auxiliary tasks of changing learned features."""

import jax.numpy as jnp

from rlx.core.checks import check, require
from rlx.core.types import Array, ArrayLike

_CUMULANT_TYPES = ("feature", "absolute_change", "increase", "decrease", "potential")


def feature_control_rewards(
    features: ArrayLike, cumulant_type: str = "absolute_change", discount: ArrayLike | None = None
) -> Array:
    """Rewards for features, or for their changes, one for each feature.

    For features φ, `feature` gives φ_t, `absolute_change` |φ_t - φ_{t-1}|, `increase` φ_t - φ_{t-1}, `decrease`
    φ_{t-1} - φ_t, and `potential` γ φ_t - φ_{t-1}. From "Reinforcement Learning with Unsupervised Auxiliary Tasks",
    Jaderberg et al. 2016 (https://arxiv.org/abs/1611.05397).

    Args:
      features: φ at times [0, ..., T], floats [T+1, D].
      cumulant_type: which of the above.
      discount: γ, number [], [D] or [T, D], for `potential` alone.

    Returns:
      Rewards at times [1, ..., T], floats [T, D].

    Raises:
      ArgumentError: for an unknown `cumulant_type`, a missing `discount`, or features of another rank or kind.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.feature_control_rewards(jnp.array([[1.0, 2.0], [3.0, 1.0]]), "increase").tolist()
      [[2.0, -1.0]]
    """
    name = "feature_control_rewards"
    require(
        name, "cumulant_type", cumulant_type in _CUMULANT_TYPES, cumulant_type, f"one of {', '.join(_CUMULANT_TYPES)}"
    )
    (features,) = check(name, features=(features, "[T+1, D]", "float"))
    before, after = features[:-1], features[1:]
    if cumulant_type == "feature":
        return after
    if cumulant_type == "absolute_change":
        return jnp.abs(after - before)
    if cumulant_type == "increase":
        return after - before
    if cumulant_type == "decrease":
        return before - after
    require(name, "discount", discount is not None, discount, "a number, for cumulant_type='potential'")
    after, discount = check(
        name, features=(after, "[T, D]", "float"), discount=(discount, "[] or [D] or [T, D]", "real in [0, 1] if []")
    )
    return jnp.broadcast_to(discount, after.shape) * after - before
