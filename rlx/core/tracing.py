"""Small expressions of operators: tracing one costs a single call, and not one for each `jnp` in it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

_P = ParamSpec("_P")
_R = TypeVar("_R")


def traced_once(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function of arrays, traced once for each shape and written into the programs that call it."""
    return jax.jit(function, inline=True)
