"""Parameters and state: functions that create, get and set them in the running frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from hkx.base.entries import copied
from hkx.base.trees import own_tree, unshared
from hkx.base.types import DType, Initializer, Shape
from hkx.core import shapes
from hkx.core.frame import Frame, current_frame, effectful_frame, local, paths
from hkx.core.hooks import DO_NOT_STORE, GetterContext, SetterContext, chained, with_context
from hkx.errors.advice import note_initializer
from hkx.errors.arguments import InvalidInitializerError
from hkx.errors.core import (
    InvalidParamsError,
    MissingInitializerError,
    MissingParameterError,
    MissingStateError,
    NotAnArrayError,
    ParameterInInnerTraceError,
    ShapeMismatchError,
    StateInInnerTraceError,
)
from hkx.jaxprs.traces import without_trace


def _call_initializer(shape: Any, dtype: DType, init: Initializer) -> Any:
    maker = current_frame("hkx.get_parameter").maker
    constant = shapes.constant_of(init)
    if constant is not None:
        return maker.fill(shape, dtype, constant)
    try:
        return init(shape, dtype)
    except TypeError as error:
        note_initializer(error, init)
        raise


def _create(kind: str, frame: Frame, path: str, shape: Any, dtype: DType, init: Initializer, context: Any) -> Any:
    inner = ParameterInInnerTraceError if kind == "create_param" else StateInInnerTraceError
    if frame.mark.records:
        raise inner(path)
    create: Callable[..., Any] = _call_initializer
    if local.hooks.get(kind):
        create = chained(kind, create, with_context(context))
    elif not callable(init):
        raise InvalidInitializerError(f"The initializer of {path!r}", init)
    value = create(shape, dtype, init)
    if frame.mark.is_inner(value):
        raise inner(path)
    return value


def _context(frame: Frame, path: str, shape: Any, dtype: Any, init: Any) -> GetterContext:
    return GetterContext(path, frame.scope.module, dtype, shape, init, frame.lifted_prefix)


def get_parameter(name: str, shape: Shape, dtype: DType = jnp.float32, init: Initializer | None = None) -> jax.Array:
    """Returns the parameter `name` of the calling module; `init` creates it, and `apply` looks it up.

    Outside of a module, the parameter belongs to the enclosing name scope or transformed function.

    Args:
      name: the name, unique within the module; a second request for it returns the same parameter.
      shape: the shape, checked against the value in `apply`.
      dtype: the dtype passed to the initializer; None is float32. In `apply`, the value keeps its own dtype.
      init: a function of `(shape, dtype)` that returns the initial value; it is called only during `init`.

    Returns:
      The array.

    Raises:
      NotInTransformError: outside of a transformed function.
      MissingInitializerError: if the parameter has to be created and `init` is None.
      MissingParameterError: in `apply`, if the given parameters do not contain it.
      ShapeMismatchError: if the value has another shape.
      ParameterInInnerTraceError: if it would be created inside a raw `jax.jit`, `jax.lax.scan` and the like.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> class Scale(hkx.Module):
      ...     def __call__(self, x):
      ...         return x * hkx.get_parameter("scale", x.shape[-1:], x.dtype, init=jnp.ones)
      >>> hkx.transform(lambda x: Scale()(x)).init(jax.random.key(0), jnp.ones(2))
      {'scale': {'scale': Array([1., 1.], dtype=float32)}}
    """
    frame = effectful_frame("hkx.get_parameter")
    bundle = frame.bundle
    path = shapes.path_of(bundle, name)
    shape, dtype = shapes.sequence(path, shape), jnp.float32 if dtype is None else dtype
    try:
        value = frame.params.get(bundle, {}).get(name)
    except AttributeError:
        raise InvalidParamsError(f"params[{bundle!r}]", frame.params[bundle]) from None
    if value is None:
        if not frame.running_init:
            value = _stand_in(frame, name, path, shape, dtype, init)
        elif init is None:
            raise MissingInitializerError(path)
        else:
            made = shapes.checked(path, shape, dtype)
            value = _create("create_param", frame, path, made, dtype, init, _context(frame, path, shape, dtype, init))
        if frame.running_init and value is not DO_NOT_STORE:
            frame.put(frame.params, bundle, name, value)
    if local.hooks.get("get_param"):
        context = _context(frame, path, shape, dtype, init)
        value = chained("get_param", lambda v: v, with_context(context))(value)
    if not shapes.is_array(value):
        raise NotAnArrayError(path, value)
    if value.shape != tuple(shape):
        raise ShapeMismatchError(path, value.shape, shape, dtype, frame.running_init)
    return value


def _stand_in(frame: Frame, name: str, path: str, shape: Any, dtype: DType, init: Any) -> Any:
    """In `apply`, a missing parameter's value from custom creators that do not call the initializer; else an error.

    Such a creator may have returned `DO_NOT_STORE` in `init`.
    """

    def missing(shape: Any, dtype: DType, init: Any) -> Any:
        if name in frame.params.get(frame.bundle, {}):
            raise NotAnArrayError(path, None)
        raise MissingParameterError(path, shape, np.dtype(dtype), paths(frame.params))

    return chained("create_param", missing, with_context(_context(frame, path, shape, dtype, init)))(shape, dtype, init)


def get_params() -> dict[str, dict[str, Any]]:
    """Returns a copy of the current parameters; during `init`, of those created so far.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     hkx.Linear(1)(x)
      ...     return list(hkx.get_params())
      >>> hkx.transform(f).apply({"linear": {"w": jnp.ones([1, 1]), "b": jnp.ones(1)}}, None, jnp.ones([1, 1]))
      ['linear']
    """
    return copied(current_frame("hkx.get_params").params)


def get_initial_state() -> dict[str, dict[str, Any]]:
    """Returns a copy of the state at the start of the function, together with what has been created since.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx
      >>> hkx.transform_with_state(hkx.get_initial_state).apply({}, {"~": {"n": 1}}, None)
      ({'~': {'n': 1}}, {'~': {'n': 1}})
    """
    return copied(current_frame("hkx.get_initial_state").initial_state)


def get_current_state() -> dict[str, dict[str, Any]]:
    """Returns a copy of the current state.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx
      >>> def f():
      ...     hkx.set_state("n", 2)
      ...     return hkx.get_current_state()
      >>> hkx.transform_with_state(f).apply({}, {"~": {"n": 1}}, None)[0]
      {'~': {'n': 2}}
    """
    return copied(current_frame("hkx.get_current_state").state)


@overload
def get_state(name: str) -> Any: ...
@overload
def get_state(name: str, shape: Shape, dtype: DType = jnp.float32, init: Initializer | None = None) -> jax.Array: ...
@overload
def get_state(
    name: str, shape: Shape | None = None, dtype: DType = jnp.float32, init: Initializer | None = None
) -> Any: ...
def get_state(
    name: str, shape: Shape | None = None, dtype: DType = jnp.float32, init: Initializer | None = None
) -> Any:
    """Returns the current value of the state `name` of the calling module (or scope, or function).

    Args:
      name: the name, unique within the module.
      shape: the shape passed to `init`.
      dtype: the dtype passed to `init`.
      init: a function of `(shape, dtype)` that returns the initial value if there is no value yet.

    Returns:
      The value: an array, or any tree that `set_state` stored.

    Raises:
      NotInTransformError: outside of a transformed function.
      MissingStateError: if there is no value and none can be created.
      StateInInnerTraceError: if it would be created inside a raw `jax.jit`, `jax.lax.scan` and the like.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> def count():
      ...     n = hkx.get_state("n", [], jnp.int32, init=jnp.zeros)
      ...     hkx.set_state("n", n + 1)
      ...     return n
      >>> f = hkx.transform_with_state(count)
      >>> params, state = f.init(None)
      >>> n, state = f.apply(params, state, None)
      >>> print(n, state["~"]["n"])
      0 1
    """
    frame = effectful_frame("hkx.get_state")
    bundle = frame.bundle
    path = shapes.path_of_state(bundle, name)
    value = frame.state.get(bundle, {}).get(name, _ABSENT)
    if value is _ABSENT:
        if init is None:
            raise MissingStateError(path, paths(frame.state))
        if shape is None or dtype is None:
            raise MissingStateError(path, (), needs_shape=True)
        made = shapes.of_state(path, shape, dtype, init)
        value = _create("create_state", frame, path, made, dtype, init, _context(frame, path, shape, dtype, init))
        if value is not DO_NOT_STORE:
            _store_state(frame, bundle, name, value)
    if local.hooks.get("get_state"):
        context = _context(frame, path, shape, dtype, init)
        value = chained("get_state", lambda v: v, with_context(context))(value)
    return value


_ABSENT = object()


def check_outward(frame: Frame, path: str, value: Any, error: Callable[[str], Exception]) -> None:
    """Raises an error if a value stored inside a raw JAX transform would be lost, or be an invalid tracer, outside."""
    if not frame.mark.current and (frame.mark.runs_elsewhere or frame.mark.is_inner(value)):
        raise error(path)


def _store_state(frame: Frame, bundle: str, name: str, value: Any) -> None:
    if name not in frame.initial_state.get(bundle, {}):
        frame.put(frame.initial_state, bundle, name, own_tree(value, unshared))
    frame.put(frame.state, bundle, name, value)


def set_state(name: str, value: Any) -> None:
    """Sets the state `name` of the calling module (or scope, or function).

    The first value set during `init` is the initial value of the state; later values are only visible to `get_state`.

    Args:
      name: the name, unique within the module.
      value: an array, or any tree of arrays.

    Raises:
      NotInTransformError: outside of a transformed function.
      StateInInnerTraceError: inside a raw `jax.lax.scan`, `jax.jit` and the like, and inside a raw `jax.vmap` or
        `jax.grad` if the value depends on what is mapped or differentiated.

    Example:

      >>> import hkx
      >>> f = hkx.transform_with_state(lambda x: hkx.set_state("last", x))
      >>> _, state = f.apply({}, {}, None, 3.0)
      >>> state
      {'~': {'last': 3.0}}
    """
    frame = effectful_frame("hkx.set_state")
    bundle = frame.bundle
    path = shapes.path_of_state(bundle, name)
    if not frame.mark.current:
        value = without_trace(value)
        check_outward(frame, path, value, StateInInnerTraceError)
    if local.hooks.get("set_state"):
        shape = jax.tree.map(lambda x: getattr(x, "shape", None), value)
        dtypes = jax.tree.map(lambda x: getattr(x, "dtype", None), value)
        context = SetterContext(path, frame.scope.module, dtypes, shape, frame.lifted_prefix)
        value = chained("set_state", lambda v: v, with_context(context))(value)
        if value is DO_NOT_STORE:
            return
    _store_state(frame, bundle, name, value)


def owned(tree: Mapping[str, Mapping[str, Any]], name: str, below: set[str]) -> dict[str, Any]:
    """The entries of the module `name`, of modules whose names begin with its name, and of those in `below`."""
    mine = (b for b in tree if b in below or f"{b}/".startswith(f"{name}/"))
    return {f"{b}/{n}": v for b in mine for n, v in tree[b].items()}
