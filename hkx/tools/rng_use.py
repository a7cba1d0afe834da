"""How many random keys a function draws, and drawing them in one operation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from hkx.core.frame import current_frame
from hkx.core.rng import reserve_rng_keys, split_key
from hkx.lift.wrappers import eval_shape

P = ParamSpec("P")
R = TypeVar("R")


def _keys_used(fun: Callable[..., Any], args: Any, kwargs: Any) -> int:
    used = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal used
        rng = current_frame("hkx.experimental.optimize_rng_use").rngs[-1]
        if rng is None:
            return fun(*args, **kwargs)
        split_off = 0

        def split(key: Any, num: int) -> Any:
            nonlocal split_off
            split_off += num - 1
            return split_key(key, num)

        before = len(rng.internal_state[1])
        rng.split_with(split)
        out = fun(*args, **kwargs)
        used = before + split_off - len(rng.internal_state[1])
        return out

    eval_shape(counted, *args, **kwargs)
    return used


def optimize_rng_use(fun: Callable[P, R]) -> Callable[P, R]:
    """Splits off all keys that a function draws in one operation, which compiles to less than one for each.

    The function is run twice: first abstractly, to count the keys that it draws, then after `hkx.reserve_rng_keys` of
    that many. So the keys differ from those that it would have drawn without this.

    Args:
      fun: a function that makes modules or draws keys.

    Returns:
      A function of the same arguments, to be used inside a transformed function or to be transformed.

    Example:

      >>> import hkx, jax
      >>> def f():
      ...     return jax.random.normal(hkx.next_rng_key()) + jax.random.normal(hkx.next_rng_key())
      >>> hkx.transform(hkx.experimental.optimize_rng_use(f)).apply({}, 42).shape
      ()
    """

    @functools.wraps(fun)
    def optimized(*args: P.args, **kwargs: P.kwargs) -> R:
        if current_frame("hkx.experimental.optimize_rng_use").rngs[-1] is not None:
            reserve_rng_keys(_keys_used(fun, args, kwargs))
        return fun(*args, **kwargs)

    return optimized
