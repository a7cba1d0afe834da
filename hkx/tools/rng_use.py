"""Counts the random keys that a function draws, and draws them in a single operation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

from hkx.core.frame import Phase, current_frame, local
from hkx.core.rng import reserve_rng_keys
from hkx.errors.core import MissingParameterError
from hkx.lift.crossing import Crossing, snapshot
from hkx.lift.wrappers import eval_shape

P = ParamSpec("P")
R = TypeVar("R")
_NAME = "hkx.experimental.optimize_rng_use"


def _draws(fun: Callable[..., Any], args: Any, kwargs: Any) -> int:
    """The number of times that a function calls `next_rng_key`, for any key sequence.

    To get the same numbers as dm-haiku, the function is run as there: in its own transform, with the given parameters.
    """
    frame, before = current_frame(_NAME), local.draws
    held = snapshot(frame)
    own: Crossing[..., Any] = Crossing(fun, _NAME, phase=Phase.CLOSED if frame.params else Phase.OPEN, lifted_name="")
    try:
        jax.eval_shape(lambda *a, **k: own.run(held, a, k)[0], *args, **kwargs)
    except MissingParameterError:  # creating further modules is an error there
        local.draws = before
        eval_shape(fun, *args, **kwargs)
    return local.draws - before


def optimize_rng_use(fun: Callable[P, R]) -> Callable[P, R]:
    """Splits off all keys that a function draws in one operation, which compiles to less code than one for each key.

    The function runs twice: first abstractly, to count its calls of `hkx.next_rng_key`, then after
    `hkx.reserve_rng_keys` for that number. The keys therefore differ from those that it would draw without this.

    Args:
      fun: a function that creates modules or draws keys.

    Returns:
      A function of the same arguments. Use it inside a transformed function, or transform it.

    Example:

      >>> import hkx, jax
      >>> def f():
      ...     return jax.random.normal(hkx.next_rng_key()) + jax.random.normal(hkx.next_rng_key())
      >>> hkx.transform(hkx.experimental.optimize_rng_use(f)).apply({}, 42).shape
      ()
    """

    @functools.wraps(fun)
    def optimized(*args: P.args, **kwargs: P.kwargs) -> R:
        if current_frame(_NAME).rngs[-1] is not None:
            reserve_rng_keys(_draws(fun, args, kwargs))
        return fun(*args, **kwargs)

    return optimized
