"""Sums and means over the replicas of a network."""

from collections.abc import Callable
from typing import Any

from hkx import running_init


def over_replicas(reduce: Callable[..., Any], x: Any, axis_name: Any, **options: Any) -> Any:
    """`reduce(x, axis_name)`, as `jax.lax.pmean`; `x` where there is no axis, and where `init` runs without it."""
    if axis_name is None:
        return x
    try:
        return reduce(x, axis_name, **options)
    except NameError:  # no such axis
        if not running_init():
            raise
        return x
