"""How functions are traced: small expressions only once, and functions with custom derivatives."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

_P = ParamSpec("_P")
_R = TypeVar("_R")


def traced_once(function: Callable[_P, _R], static_argnums: int | tuple[int, ...] = ()) -> Callable[_P, _R]:
    """A function of arrays that is traced once for each shape, and inlined into the programs that call it.

    It is also traced again for each value of the arguments in `static_argnums`, which are passed unchanged.
    """
    return jax.jit(function, inline=_WHEN_TRACED, static_argnums=static_argnums)


# In JAX 0.10, `inline=True` inlines while tracing; newer versions do so later, and need this name instead.
_WHEN_TRACED: Any = getattr(jax, "Inline").JAX_EARLY if hasattr(jax, "Inline") else True  # noqa: B009
