"""`hkx.transform`, which turns a function that creates modules into a pair of pure functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, Literal, ParamSpec, TypeVar, overload

from hkx.arguments import checked_flag
from hkx.base.types import Params, PRNGKey, State
from hkx.core.settings import InitSetting, init_setting
from hkx.core.transform import Create, Transformed, TransformedWithState, pair, pair_without_state
from hkx.init.create import create

P = ParamSpec("P")
R = TypeVar("R")


def _create(init: InitSetting | None) -> Create:
    return functools.partial(create, setting=init_setting(init))


def transform_with_state(
    f: Callable[P, R], *, init: InitSetting | None = None
) -> TransformedWithState[
    Concatenate[PRNGKey | None, P], Concatenate[Params | None, State | None, PRNGKey | None, P], R
]:
    """Turns a function that uses modules and state into a pair of pure functions, `init` and `apply`.

    Args:
      f: a function of any arguments. It may create and call modules, and ask for parameters, state and random keys.
      init: how `init` runs `f`: "traced" (on abstract values, as `jax.jit` does: see below), "eager" (on real values,
        including the forward pass, as Haiku does) or "check" (both ways; InitDependsOnTracingError if they differ).
        None uses the setting of `hkx.config.set`, which is "traced" by default.

    Returns:
      `init(rng, *args, **kwargs) -> (params, state)` and `apply(params, state, rng, *args, **kwargs) -> (out, state)`.
      `rng` is a typed key, a raw key, an int seed, or None if no key is needed. `params` and `state` are dicts of
      dicts of arrays, by module and by name. `init` does not run the forward pass: it only needs the shapes and
      dtypes of the arguments, and accepts `jax.ShapeDtypeStruct` instead of arrays.

      `init` runs `f` on abstract values, as `jax.jit` does; what depends on no argument, key or parameter is computed
      at once. If `f` asks for a value (`if x.sum() > 0:`), `init` runs it a second time, on real values. An array that
      `f` stores in a list, a dict or an attribute is replaced there by its value. `init="eager"` runs `f` once, on real
      values.

    Raises:
      JitInTransformError: if `f` is already compiled or mapped.
      LeakedByInitError: in `init`, if `f` stores a traced array elsewhere, as in a tuple in a list.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     n = hkx.get_state("calls", [], jnp.int32, init=jnp.zeros)
      ...     hkx.set_state("calls", n + 1)
      ...     return hkx.Linear(1)(x)
      >>> model = hkx.transform_with_state(f)
      >>> params, state = model.init(jax.random.key(0), jnp.ones([1, 3]))
      >>> y, state = model.apply(params, state, None, jnp.ones([1, 3]))
      >>> print(state["~"]["calls"])
      1
    """
    return pair(f, _create(init))


@overload
def transform(
    f: Callable[P, R], *, apply_rng: Literal[True] = True, init: InitSetting | None = None
) -> Transformed[Concatenate[PRNGKey | None, P], Concatenate[Params | None, PRNGKey | None, P], R]: ...
@overload
def transform(
    f: Callable[P, R], *, apply_rng: Literal[False], init: InitSetting | None = None
) -> Transformed[Concatenate[PRNGKey | None, P], Concatenate[Params | None, P], R]: ...
@overload
def transform(
    f: Callable[P, R], *, apply_rng: bool, init: InitSetting | None = None
) -> Transformed[Concatenate[PRNGKey | None, P], ..., R]: ...
def transform(
    f: Callable[P, R], *, apply_rng: bool = True, init: InitSetting | None = None
) -> Transformed[..., ..., R]:
    """Turns a function that uses modules into a pair of pure functions, `init` and `apply`.

    `init` runs the function to find out which parameters it needs, and creates them; `apply` runs it with parameters
    that you pass. Use `hkx.transform_with_state` for a function with state, such as one with `hkx.BatchNorm`.

    Args:
      f: a function of any arguments. It may create and call modules, and ask for parameters and random keys.
      apply_rng: False leaves the key out of `apply`, as `hkx.without_apply_rng` does.
      init: how `init` runs `f`: "traced" (on abstract values, as `jax.jit` does: see below), "eager" (on real values,
        including the forward pass, as Haiku does) or "check" (both ways; InitDependsOnTracingError if they differ).
        None uses the setting of `hkx.config.set`, which is "traced" by default.

    Returns:
      `init(rng, *args, **kwargs) -> params` and `apply(params, rng, *args, **kwargs) -> out`. `rng` is a typed key, a
      raw key, an int seed, or None if no key is needed. `params` is a dict of dicts of arrays, by module and by name.
      `init` does not run the forward pass: it only needs the shapes and dtypes of the arguments, and accepts
      `jax.ShapeDtypeStruct` instead of arrays.

      `init` runs `f` on abstract values, as `jax.jit` does; what depends on no argument, key or parameter is computed
      at once. If `f` asks for a value (`if x.sum() > 0:`), `init` runs it a second time, on real values. An array that
      `f` stores in a list, a dict or an attribute is replaced there by its value. `init="eager"` runs `f` once, on real
      values.

    Raises:
      JitInTransformError: if `f` is already compiled or mapped.
      LeakedByInitError: in `init`, if `f` stores a traced array elsewhere, as in a tuple in a list.
      NonEmptyStateError: in `init` and `apply`, if `f` uses state.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Linear(2)(x))
      >>> x = jnp.ones([1, 3])
      >>> params = model.init(jax.random.key(0), x)
      >>> jax.jit(model.apply)(params, None, x).shape
      (1, 2)
    """
    return pair_without_state(f, _create(init), checked_flag(apply_rng, "apply_rng", "hkx.transform"))
