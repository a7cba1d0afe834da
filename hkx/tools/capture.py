"""Captures the intermediate values of a model without changing its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from hkx.arguments import checked_function
from hkx.base.signatures import first_of_pair, like, pair_with, second_of_pair
from hkx.core.hooks import MethodContext, intercept_methods
from hkx.core.module import Module
from hkx.core.transform import Transformed, TransformedWithState
from hkx.lift.captured import Destination, Label, Values, record
from hkx.multi import MultiTransformed, MultiTransformedWithState

Filter = Callable[[Any, str], bool]
_NOT_COMPUTED = frozenset(("__init__", "params_dict", "state_dict"))


def _calls(module: Any, method_name: str) -> bool:
    del module
    return method_name == "__call__"


def _capturing(f: Callable[..., Any], chosen: Filter) -> Callable[..., Any]:
    @like(f, result=pair_with(Values))
    def captured(*args: Any, **kwargs: Any) -> tuple[Any, Values]:
        destination = Destination()

        def hook(next_function: Any, args: Any, kwargs: Any, context: MethodContext) -> Any:
            out = next_function(*args, **kwargs)
            module, method = context.module, context.method_name
            if method not in _NOT_COMPUTED and isinstance(module, Module) and chosen(module, method):
                record(Label(destination, module.module_name, method), out)
            return out

        try:
            with intercept_methods(hook):
                out = f(*args, **kwargs)
        finally:
            values = destination.close()
        return out, values

    return captured


def _with_values(result: Any) -> Any:
    """The result of an `apply` with state, with the captured values added to the output."""
    return tuple[tuple[first_of_pair(result), Values], second_of_pair(result)]


def _capturing_with_state(apply: Callable[..., Any], chosen: Filter) -> Callable[..., Any]:
    capturing = _capturing(apply, chosen)

    @like(apply, result=_with_values)
    def captured(*args: Any, **kwargs: Any) -> Any:
        (out, state), values = capturing(*args, **kwargs)
        return (out, values), state

    return captured


def capture_intermediates(f: Any, filter: Filter = _calls) -> Any:
    """Returns the outputs of the modules in a function together with the output of the function.

    Args:
      f: a function that creates and calls modules, or the result of `hkx.transform`, `hkx.transform_with_state` or one
        of their multi forms.
      filter: called as `filter(module, method_name)`; it says whether to record what that method returns. By default,
        it is true for `__call__`.

    Returns:
      For a function, a function of the same arguments that returns `(out, intermediates)`; transform it. For a
      transformed function, the same kind, whose `apply` returns `(out, intermediates)` instead of `out`; `init` and
      the parameters are the same. `intermediates` is `{module_name: {method_name: (first, second, …)}}`, with one value
      for each call, in the order in which the calls return. The names are those of the parameters.

      Values computed inside hkx's own transforms are included. From `hkx.scan`, `hkx.map` and `hkx.layer_stack`, they
      are stacked, `[length, ...]`, in either direction; from `hkx.vmap`, they have the mapped axis in front; from
      `hkx.remat`, `hkx.jit`, `hkx.grad`, `hkx.vjp` and similar, they are unchanged. `hkx.eval_shape` gives no values.

    Raises:
      IntermediateInInnerTraceError: if a value is not valid outside of the code that computes it: a branch of
        `hkx.cond` or `hkx.switch`, `hkx.while_loop`, `hkx.fori_loop`, `hkx.shard_map`, a `hkx.custom_vjp` or
        `hkx.custom_jvp`, or one of JAX's own transforms; or if a value from a transform is not an array.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.layer_stack(6, name="blocks")(lambda x: x + hkx.Linear(2)(x))(x))
      >>> x = jnp.ones([5, 2])
      >>> params = model.init(jax.random.key(0), x)
      >>> out, values = hkx.capture_intermediates(model).apply(params, None, x)
      >>> jax.tree.map(jnp.shape, values["blocks/linear"])
      {'__call__': ((6, 5, 2),)}
    """
    checked_function(filter, "hkx.capture_intermediates", "filter")
    if isinstance(f, (Transformed, MultiTransformed)):
        return type(f)(f.init, jax.tree.map(lambda apply: _capturing(apply, filter), f.apply))
    if isinstance(f, (TransformedWithState, MultiTransformedWithState)):
        return type(f)(f.init, jax.tree.map(lambda apply: _capturing_with_state(apply, filter), f.apply))
    return _capturing(checked_function(f, "hkx.capture_intermediates", "f"), filter)
