"""Helpers for tests of code that uses hkx."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hkx.arguments import checked_flag, checked_function, checked_integer
from hkx.base.keys import as_key
from hkx.base.tracebacks import leaves_out_own_frames
from hkx.init.create import run_initialising
from hkx.init.transform import transform_with_state

__all__ = ["transform_and_run"]


def transform_and_run(
    f: Callable[..., Any] | None = None,
    seed: int | None = 42,
    run_apply: bool = True,
    jax_transform: Callable[..., Any] | None = None,
    *,
    map_rng: Callable[[Any], Any] | None = None,
) -> Any:
    """Makes a function that runs `f` inside a transform: its `init`, then its `apply`.

    `f` runs with real values in both, so that a test can inspect them.

    Args:
      f: the function; None gives a decorator.
      seed: the seed of the key for `init`; `apply` gets the one after it. None for no keys.
      run_apply: whether to run `apply`; if not, the function returns None.
      jax_transform: a transform to apply to both, for example `jax.jit`.
      map_rng: a function that changes the key before each of the two.

    Returns:
      A function of the arguments of `f` that returns what `apply` returns.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> @hkx.testing.transform_and_run
      ... def test_linear():
      ...     assert hkx.Linear(3)(jnp.ones([2, 1])).shape == (2, 3)
      >>> test_linear()
    """
    if f is None:
        return functools.partial(
            transform_and_run, seed=seed, run_apply=run_apply, jax_transform=jax_transform, map_rng=map_rng
        )
    checked_function(f, "hkx.testing.transform_and_run", "f")
    run_apply = checked_flag(run_apply, "run_apply", "hkx.testing.transform_and_run")
    if seed is not None:
        seed = checked_integer(seed, "seed", None)

    @functools.wraps(f)
    @leaves_out_own_frames
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        def key(offset: int) -> Any:
            made = None if seed is None else as_key(seed + offset)
            return made if map_rng is None else map_rng(made)

        init: Callable[..., Any] = functools.partial(run_initialising, lambda: f(*args, **kwargs))
        apply: Callable[..., Any] = transform_with_state(lambda: f(*args, **kwargs)).apply
        if jax_transform is not None:
            init, apply = jax_transform(init), jax_transform(apply)
        params, state = init(key(0))
        return apply(params, state, key(1))[0] if run_apply else None

    return wrapper
