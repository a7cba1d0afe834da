"""Sums and means over the replicas of a network."""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from hkx import running_init


def over_replicas(reduce: Callable[..., Any], x: Any, axis_name: Any, **options: Any) -> Any:
    """`reduce(x, axis_name)`, with `reduce` such as `jax.lax.pmean`.

    Returns `x` if `axis_name` is None, or if `init` runs outside of the `vmap` or mesh that has this axis.
    """
    if axis_name is None:
        return x
    names = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    if not all(isinstance(name, Hashable) and not isinstance(name, (int, float, np.generic)) for name in names):
        raise TypeError(
            "`cross_replica_axis` must be the `axis_name` of a `jax.vmap`, `jax.pmap` or mesh, such as 'batch', or a "
            f"tuple of them, got {axis_name!r}."
        )
    try:
        return reduce(x, axis_name, **options)
    except NameError:  # no such axis
        if not running_init():
            raise
        return x
