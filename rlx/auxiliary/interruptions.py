"""Repairing sequences that were interrupted while they were written."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.types import Array, ArrayLike

_FIRST, _MID, _LAST = 0, 1, 2  # dm_env's step types


def fix_step_type_on_interruptions(step_type: ArrayLike) -> Array:
    """Marks a step as the last of its episode where the next step is the first of another.

    An environment that crashes or is reset leaves a middle step right before a first step; it becomes a last step.
    Whether it terminated is not told by its type but by its discount, which is 0 for a termination alone.

    Args:
      step_type: dm_env step types (0 first, 1 middle, 2 last), integers [T, B] or [T].

    Returns:
      Step types of the same shape.

    Raises:
      ArgumentError: if `step_type` is not integers of rank 1 or 2.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.fix_step_type_on_interruptions(jnp.array([0, 1, 1, 0, 1])).tolist()
      [0, 1, 2, 0, 1]
    """
    (step_type,) = check("fix_step_type_on_interruptions", step_type=(step_type, "[T, B] or [T]", "int"))
    cut = (step_type[:-1] == _MID) & (step_type[1:] == _FIRST)
    return jnp.concatenate([jnp.where(cut, jnp.asarray(_LAST, step_type.dtype), step_type[:-1]), step_type[-1:]])
