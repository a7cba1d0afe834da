"""Updating one tree of parameters with another, every so often."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.trees import tree_select
from rlx.core.types import ArrayLike, PyTree


def conditional_update(new_tensors: PyTree, old_tensors: PyTree, is_time: ArrayLike) -> PyTree:
    """Chooses the new tree if it is time, else keeps the old one.

    Args:
      new_tensors: tree of arrays.
      old_tensors: tree of the same structure, shapes and dtypes.
      is_time: boolean [], or an array of the shape of every leaf.

    Returns:
      A tree like `old_tensors`.

    Example:
      >>> import rlx
      >>> rlx.conditional_update({"w": 2.0}, {"w": 1.0}, False)["w"].tolist()
      1.0
    """
    return tree_select(is_time, new_tensors, old_tensors)


def periodic_update(new_tensors: PyTree, old_tensors: PyTree, steps: ArrayLike, update_period: ArrayLike) -> PyTree:
    """Chooses the new tree at every multiple of a period, else keeps the old one: target networks.

    Args:
      new_tensors: tree of arrays, for instance the parameters that are learned.
      old_tensors: tree of the same structure, shapes and dtypes, for instance those of the target network.
      steps: number of steps so far, number [].
      update_period: every how many steps to update, positive number [].

    Returns:
      `new_tensors` if `steps` is a multiple of `update_period` (0 is one), else `old_tensors`.

    Raises:
      ArgumentError: if `steps` or `update_period` is not a scalar, or the period not positive.

    Example:
      >>> import rlx
      >>> rlx.periodic_update({"w": 2.0}, {"w": 1.0}, steps=4, update_period=2)["w"].tolist()
      2.0
    """
    steps, update_period = check(
        "periodic_update",
        steps=(steps, "[]", "number"),
        update_period=(update_period, "[]", "number in (0, inf]"),
    )
    return conditional_update(new_tensors, old_tensors, jnp.mod(steps, update_period) == 0)
