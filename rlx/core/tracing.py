"""How functions are traced: small expressions once, and those with a derivative of their own with it."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

_P = ParamSpec("_P")
_R = TypeVar("_R")


def traced_once(function: Callable[_P, _R], static_argnums: int | tuple[int, ...] = ()) -> Callable[_P, _R]:
    """The function of arrays, traced once for each shape and written into the programs that call it.

    It is traced once more for each value of the arguments in `static_argnums`, which it gets as they are.
    """
    return jax.jit(function, inline=_WHEN_TRACED, static_argnums=static_argnums)


# JAX 0.10 inlines `True` when it traces, newer ones later, and have a name for this.
_WHEN_TRACED: Any = getattr(jax, "Inline").JAX_EARLY if hasattr(jax, "Inline") else True  # noqa: B009


def in_slopes(
    function: Callable[_P, _R], rule: Callable[..., Any], nondiff_argnums: tuple[int, ...] = ()
) -> Callable[_P, _R]:
    """A function that has this rule for its derivative, as the rule itself calls it for the value.

    In a scan JAX drops the rule of a value that comes with a slope, and computes the value as it is written. What is
    in a checkpoint it leaves alone: there the function is with its rule, which a second derivative needs.
    """
    kept = jax.checkpoint(function, prevent_cse=False, static_argnums=nondiff_argnums)
    again = jax.custom_jvp(kept, nondiff_argnums=nondiff_argnums)
    again.defjvp(rule, symbolic_zeros=True)
    return again
