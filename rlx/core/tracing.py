"""Small expressions of operators: tracing one costs a single call, and not one for each `jnp` in it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

_P = ParamSpec("_P")
_R = TypeVar("_R")


def traced_once(function: Callable[_P, _R], static_argnums: int | tuple[int, ...] = ()) -> Callable[_P, _R]:
    """The function of arrays, traced once for each shape and written into the programs that call it.

    It is traced once more for each value of the arguments in `static_argnums`, which it gets as they are.
    """
    return jax.jit(function, inline=True, static_argnums=static_argnums)
