"""The chains of hooks: custom creators, getters, setters and method interceptors.

A hook receives the next function in the chain. The hook that was entered first runs first.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from hkx.arguments import checked_flag
from hkx.core.frame import current_frame, local
from hkx.errors.arguments import checked_hook

Hooks: TypeAlias = Mapping[str, tuple[Callable[..., Any], ...]]
"""The active hooks, by kind."""


class DoNotStore:
    """The type of `DO_NOT_STORE`."""

    @property
    def shape(self) -> Any:
        raise ValueError("DO_NOT_STORE is no array: it has no `shape` and no `dtype`.")

    dtype = shape

    def __repr__(self) -> str:
        return "DO_NOT_STORE"

    __reduce__ = __repr__  # copies, and what is unpickled, are the same object


DO_NOT_STORE = DoNotStore()
"""Returned by a custom creator or setter to store nothing."""


class GetterContext(NamedTuple):
    """Information for a custom creator or getter about the requested value.

    Attributes:
      full_name: the names of the module and of the value, `"mlp/~/linear_0/w"`.
      module: the module that requests it, or None outside of a module.
      original_dtype: the requested dtype.
      original_shape: the requested shape.
      original_init: the initializer that was passed.
      lifted_prefix_name: the name under which the running transform was lifted into another one, if it was.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def shown(next_creator, shape, dtype, init, context):
      ...     print(context.full_name, context.module_name, context.name, context.original_shape)
      ...     return next_creator(shape, dtype, init)
      >>> def f(x):
      ...     with hkx.custom_creator(shown):
      ...         return hkx.Linear(2, with_bias=False)(x)
      >>> params = hkx.transform(f).init(jax.random.key(0), jnp.ones([1, 3]))
      linear/w linear w [3, 2]
    """

    full_name: str
    module: Any
    original_dtype: Any
    original_shape: Any
    original_init: Any
    lifted_prefix_name: str | None = None

    @property
    def module_name(self) -> str:
        """The part of `full_name` before the last slash."""
        return self.full_name.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The part of `full_name` after the last slash."""
        return self.full_name.rpartition("/")[2]


class SetterContext(NamedTuple):
    """Information for a custom setter about the state that is set.

    Attributes:
      full_name: the full name of the state.
      module: the module that sets it, or None.
      original_dtype: the dtype of the value; if the state is a tree, a tree of dtypes.
      original_shape: the shape of the value; if the state is a tree, a tree of shapes.
      lifted_prefix_name: the name under which the running transform was lifted into another one, if it was.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> def shown(next_setter, value, context):
      ...     print(context.full_name, context.original_shape, context.original_dtype)
      ...     return next_setter(value)
      >>> def f():
      ...     with hkx.custom_setter(shown):
      ...         hkx.set_state("seen", jnp.zeros([2]))
      >>> params, state = hkx.transform_with_state(f).init(None)
      ~/seen (2,) float32
    """

    full_name: str
    module: Any
    original_dtype: Any
    original_shape: Any
    lifted_prefix_name: str | None = None

    module_name = GetterContext.module_name
    name = GetterContext.name


class MethodContext(NamedTuple):
    """Information for a method interceptor about the call.

    Attributes:
      module: the module whose method is called.
      method_name: the name of the method.
      orig_method: the method as it would run without interceptors, bound to the module.
      orig_class: the class that defines the method.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def shown(next_function, args, kwargs, context):
      ...     print(context.module.name, context.method_name, context.orig_class.__name__)
      ...     return next_function(*args, **kwargs)
      >>> def f(x):
      ...     layer = hkx.Linear(2)
      ...     with hkx.intercept_methods(shown):
      ...         return layer(x)
      >>> params = hkx.transform(f).init(jax.random.key(0), jnp.ones([1, 3]))
      linear __call__ Linear
    """

    module: Any
    method_name: str
    orig_method: Callable[..., Any]
    orig_class: type


class _Entered(functools.partial[Any]):
    """A hook of one `with` block, distinct from the same function entered by another block."""


@contextlib.contextmanager
def pushed(hook: Callable[..., Any], *kinds: str) -> Iterator[None]:
    """Adds a hook to the chains of the given kinds until the `with` block ends."""
    entered = _Entered(checked_hook(hook, kinds))
    try:
        try:
            local.hooks = {**local.hooks, **{kind: (*local.hooks.get(kind, ()), entered) for kind in kinds}}
            yield
        finally:
            uninstall(entered, *kinds)
    finally:
        uninstall(entered, *kinds)  # again, in case Ctrl-C interrupted the first call


def _pushed_for(taker: str, what: str, hook: Callable[..., Any], **flags: Any) -> Any:
    current_frame(taker)
    return pushed(hook, *(f"{what}_{of.removesuffix('s')}" for of, on in flags.items() if checked_flag(on, of, taker)))


def leave_entered_since(before: Hooks) -> None:
    """Removes hooks of `with` blocks that were entered after `before` and not left. Installed hooks stay."""
    if local.hooks is not before:
        local.hooks = {
            kind: tuple(h for h in hooks if not isinstance(h, _Entered) or h in before.get(kind, ()))
            for kind, hooks in local.hooks.items()
        }


def install(hook: Callable[..., Any], kind: str) -> None:
    """Adds a hook around all others of its kind, in this thread, until `uninstall`. Has no effect the second time."""
    others = tuple(h for h in local.hooks.get(kind, ()) if h is not hook)
    local.hooks = {**local.hooks, kind: (hook, *others)}


def uninstall(hook: Callable[..., Any], *kinds: str) -> None:
    """Removes a hook, if it is there."""
    local.hooks = {
        **local.hooks,
        **{kind: tuple(h for h in local.hooks.get(kind, ()) if h is not hook) for kind in kinds},
    }


def chained(kind: str, original: Callable[..., Any], bind: Callable[..., Callable[..., Any]]) -> Callable[..., Any]:
    """Wraps the hooks of one kind around `original`; `bind(hook, next_function)` returns a call of one."""
    for hook in reversed(local.hooks.get(kind, ())):
        original = bind(hook, original)
    return original


def with_context(context: Any) -> Callable[..., Callable[..., Any]]:
    """The `bind` of creators, getters and setters: they take the next function, its arguments, and the context."""
    return lambda hook, next_function: lambda *args: hook(next_function, *args, context)


def custom_creator(creator: Callable[..., Any], *, params: bool = True, state: bool = False):
    """Runs `creator` whenever a parameter (or a state) is created, until the `with` block ends.

    Args:
      creator: called as `creator(next_creator, shape, dtype, init, context)`. It returns the initial value, usually a
        modified `next_creator(shape, dtype, init)`, or `hkx.DO_NOT_STORE`.
      params: whether it runs for parameters.
      state: whether it runs for the initial values that `get_state` creates.

    Returns:
      A context manager. Creators nest: the outer one runs first.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def zeros(next_creator, shape, dtype, init, context):
      ...     return next_creator(shape, dtype, jnp.zeros)
      >>> def f(x):
      ...     with hkx.custom_creator(zeros):
      ...         return hkx.Linear(1)(x)
      >>> hkx.transform(f).init(jax.random.key(0), jnp.ones([1, 1]))["linear"]["w"]
      Array([[0.]], dtype=float32)
    """
    return _pushed_for("hkx.custom_creator", "create", creator, params=params, state=state)


def custom_getter(getter: Callable[..., Any], *, params: bool = True, state: bool = False):
    """Runs `getter` whenever a parameter (or a state) is read, until the `with` block ends.

    Args:
      getter: called as `getter(next_getter, value, context)`. It returns the value that the module sees, usually a
        modified `next_getter(value)`. The stored value does not change.
      params: whether it runs for parameters.
      state: whether it runs for states.

    Returns:
      A context manager. Getters nest: the outer one runs first.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def halve(next_getter, value, context):
      ...     return next_getter(value) / 2
      >>> def f(x):
      ...     with hkx.custom_getter(halve):
      ...         return hkx.Linear(1, w_init=jnp.ones)(x)
      >>> model = hkx.transform(f)
      >>> x = jnp.ones([1, 1])
      >>> params = model.init(jax.random.key(0), x)
      >>> print(params["linear"]["w"], model.apply(params, None, x))
      [[1.]] [[0.5]]
    """
    return _pushed_for("hkx.custom_getter", "get", getter, params=params, state=state)


def custom_setter(setter: Callable[..., Any]):
    """Runs `setter` whenever a state is set, until the `with` block ends.

    Args:
      setter: called as `setter(next_setter, value, context)`. It returns the value to store, usually a modified
        `next_setter(value)`, or `hkx.DO_NOT_STORE` to keep the state unchanged.

    Returns:
      A context manager. Setters nest: the outer one runs first.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> def f():
      ...     with hkx.custom_setter(lambda next_setter, value, context: next_setter(value * 2)):
      ...         hkx.set_state("count", jnp.ones([]))
      >>> params, state = hkx.transform_with_state(f).init(None)
      >>> print(state["~"]["count"])
      2.0
    """
    current_frame("hkx.custom_setter")
    return pushed(setter, "set_state")


def intercept_methods(interceptor: Callable[..., Any]):
    """Runs `interceptor` around every method call of every module, until the `with` block ends.

    Args:
      interceptor: called as `interceptor(next_function, args, kwargs, context)` with a `hkx.MethodContext`. It returns
        the result of the method call, usually a modified `next_function(*args, **kwargs)`.

    Returns:
      A context manager, for use inside or around a transformed function. The outer interceptor runs first.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def double(next_function, args, kwargs, context):
      ...     out = next_function(*args, **kwargs)
      ...     return out * 2 if context.method_name == "__call__" else out
      >>> def f(x):
      ...     with hkx.intercept_methods(double):
      ...         return hkx.Linear(1, w_init=jnp.ones)(x)
      >>> model = hkx.transform(f)
      >>> x = jnp.ones([1, 3])
      >>> print(model.apply(model.init(jax.random.key(0), x), None, x))
      [[6.]]
    """
    return pushed(interceptor, "call")
