"""`traced_once`: makes JAX trace the equation of a layer once for each shape, and not at each call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from hkx.core.frame import local
from hkx.errors.core import NotInTransformError
from hkx.jaxprs.traces import recording_program

P = ParamSpec("P")
R = TypeVar("R")


def traced_once(function: Callable[P, R], static_argnames: str | Sequence[str] = ()) -> Callable[P, R]:
    """A function that JAX traces and differentiates once for each shape, and writes into the programs that call it.

    A network calls the same few equations again and again, and JAX records every operation of each call, and
    differentiates it, in Python. Here it does so at the first call, and later calls with arrays of the same shapes and
    dtypes reuse the record: `jax.jit(function, inline=True)`. The programs are the same as without it, except that a
    newer JAX may sum the parts of a gradient in another order. If operations run one by one, outside of `jax.jit` and
    the like, the function is called directly.

    Args:
      function: a pure function of arrays, given by position; None is allowed among them. It uses only its arguments:
        no modules, parameters, states or keys of the running transform.
      static_argnames: the names of its other arguments, which are hashable and are passed by name.

    Returns:
      A function like it.

    Raises:
      NotInTransformError: when it is traced, in `jax.jit` or `init` for example, if it uses the running transform.

    Example:

      >>> import functools, hkx, jax, jax.numpy as jnp
      >>> @functools.partial(hkx.traced_once, static_argnames="power")
      ... def scaled(x, scale, *, power):
      ...     return x * scale**power
      >>> def f(x):
      ...     return scaled(x, hkx.get_parameter("scale", [], init=jnp.ones), power=2)
      >>> model = hkx.without_apply_rng(hkx.transform(f))
      >>> print(jax.jit(model.apply)({"~": {"scale": 3.0 * jnp.ones([])}}, jnp.ones(2)))
      [9. 9.]
    """

    def alone(*arrays: P.args, **static: P.kwargs) -> R:
        # A parameter read here would become a constant in the cached trace, which other calls use too.
        frames = local.frames
        try:
            local.frames = []
            return function(*arrays, **static)
        except NotInTransformError as error:
            error.add_note(_ALONE)
            raise
        finally:
            local.frames = frames

    compiled = jax.jit(functools.wraps(function)(alone), inline=_WHEN_TRACED, static_argnames=static_argnames)

    @functools.wraps(function)
    def call(*arrays: P.args, **static: P.kwargs) -> R:
        if recording_program() and all(isinstance(x, _OPERANDS) for x in arrays) and _is_hashable(*static.values()):
            return compiled(*arrays, **static)
        return function(*arrays, **static)

    return call


def _is_hashable(*values: Any) -> bool:
    try:
        hash(values)
    except TypeError:  # a user's class may have set a list
        return False
    return True


_ALONE = (
    "This is in a function of `hkx.traced_once`, which JAX traces for many calls at once. Call modules around it, and "
    "give it what it needs of parameters, states and keys as arguments."
)

# `True` makes JAX 0.10 inline during tracing; newer versions do that later, and have a name for this.
_WHEN_TRACED: Any = getattr(jax, "Inline").JAX_EARLY if hasattr(jax, "Inline") else True  # noqa: B009
_OPERANDS: tuple[Any, ...] = (jax.Array, np.ndarray, np.generic, type(None))
