"""Intermediate values of a model, without a change to the model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hkx.core.errors import IntermediateInInnerTraceError
from hkx.core.frame import TraceMark
from hkx.core.hooks import MethodContext, intercept_methods
from hkx.core.module import Module
from hkx.core.transform import Transformed, TransformedWithState

Filter = Callable[[Any, str], bool]
_NOT_COMPUTED = frozenset(("__init__", "params_dict", "state_dict"))


def _calls(module: Any, method_name: str) -> bool:
    del module
    return method_name == "__call__"


def _capturing(f: Callable[..., Any], chosen: Filter) -> Callable[..., Any]:
    @functools.wraps(f)
    def captured(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, dict[str, tuple[Any, ...]]]]:
        values: dict[str, dict[str, tuple[Any, ...]]] = {}
        mark = TraceMark()

        def keep(next_function: Any, args: Any, kwargs: Any, context: MethodContext) -> Any:
            out = next_function(*args, **kwargs)
            module, method = context.module, context.method_name
            if method not in _NOT_COMPUTED and isinstance(module, Module) and chosen(module, method):
                if mark.is_inner(out):
                    raise IntermediateInInnerTraceError(module.module_name, method)
                methods = values.setdefault(module.module_name, {})
                methods[method] = (*methods.get(method, ()), out)
            return out

        with intercept_methods(keep):
            return f(*args, **kwargs), values

    return captured


def capture_intermediates(f: Any, filter: Filter = _calls) -> Any:
    """Returns what the modules in a function returned, next to what the function returns.

    Args:
      f: a function that makes and calls modules; or what `hkx.transform` or `hkx.transform_with_state` made of one.
      filter: called as `filter(module, method_name)`; says whether what that method returns is kept. By default it is
        true for `__call__`.

    Returns:
      For a function, a function of the same arguments that returns `(out, intermediates)`, to be transformed. For a
      transformed one, the same kind, whose `apply` returns `(out, intermediates)` where it returned `out`; `init` and
      the parameters are the same. `intermediates` is `{module_name: {method_name: (first, second, …)}}` with one value
      for each call, in the order of the returns.

    Raises:
      IntermediateInInnerTraceError: in `apply`, if a value is computed inside a loop, a branch or another transform,
        such as `hkx.scan`, and has no meaning outside of it.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.nets.MLP([3, 1])(x))
      >>> x = jnp.ones([5, 2])
      >>> params = model.init(jax.random.key(0), x)
      >>> out, values = hkx.capture_intermediates(model).apply(params, None, x)
      >>> jax.tree.map(jnp.shape, values["mlp/~/linear_0"])
      {'__call__': ((5, 3),)}
    """
    if isinstance(f, Transformed):
        return Transformed(f.init, _capturing(f.apply, filter))
    if isinstance(f, TransformedWithState):
        capturing = _capturing(f.apply, filter)

        @functools.wraps(f.apply)
        def apply(*args: Any, **kwargs: Any) -> Any:
            (out, state), values = capturing(*args, **kwargs)
            return (out, values), state

        return TransformedWithState(f.init, apply)
    return _capturing(f, filter)
