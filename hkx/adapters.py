"""Modules made from functions: one that calls a function, and one that a function creates on first use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from hkx.arguments import checked_function, is_iterable
from hkx.base.signatures import sign, with_leading
from hkx.core.frame import Frame, Scope, local
from hkx.core.module import Module
from hkx.core.naming import scope_pushed, snake_case
from hkx.errors.core import NameExpectedError

T = TypeVar("T")


def to_module(f: Callable[..., Any]) -> type[Module]:
    """A module class whose call is `f`.

    Args:
      f: a function that makes modules or asks for parameters.

    Returns:
      A subclass of `Module`, named after the function, whose objects take the arguments of `f` when called.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def head(x):
      ...     return hkx.Linear(1)(x)
      >>> Head = hkx.to_module(head)
      >>> list(hkx.transform(lambda x: Head()(x)).init(jax.random.key(0), jnp.ones([1, 1])))
      ['head/linear']
    """
    checked_function(f, "hkx.to_module", "f")
    default_name = getattr(f, "__name__", None) or snake_case(type(f).__name__)

    class FunctionModule(Module):
        def __init__(self, name: str | None = None):
            if name is not None and not isinstance(name, str):
                raise NameExpectedError(default_name, name)
            super().__init__(name=default_name if name is None else name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return f(*args, **kwargs)

    FunctionModule.__doc__, FunctionModule.__call__.__doc__ = (
        f.__doc__ or "Module produced by `hk.to_module`.",
        f.__doc__,
    )
    sign(FunctionModule.__call__, f, with_leading({"self": inspect.Parameter.empty}))
    return FunctionModule


class Deferred(Generic[T]):
    """Creates a module when it is first called, or when its `target` is first read.

    So a module can depend on one whose size is not known yet. It is named as if the method that defers it had
    created it. If that method has returned, as `__init__` has, numbering starts again: pass a name if the method also
    creates a module of the same class, or the two share their parameters.

    Args:
      factory: a function that returns the module.
      call_methods: the names of the methods, or of the one, whose call creates the module.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def autoencoder(x):
      ...     encoder = hkx.nets.MLP([4, 2])
      ...     decoder = hkx.Deferred(encoder.reverse)  # the size of its output is not known yet
      ...     return decoder(encoder(x))
      >>> model = hkx.transform(autoencoder)
      >>> model.apply(model.init(jax.random.key(0), jnp.ones([1, 7])), None, jnp.ones([1, 7])).shape
      (1, 7)
    """

    _factory: Callable[[], T]
    _target: T | None
    _scope: Any

    def __init__(self, factory: Callable[[], T], call_methods: Sequence[str] | str = ("__call__",)):
        checked_function(factory, "hkx.Deferred", "factory")
        self.__dict__.update(_factory=factory, _target=None, _scope=local.frames[-1].scope if local.frames else None)
        names: Any = tuple(call_methods) if is_iterable(call_methods) else (call_methods,)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"`call_methods` of `hkx.Deferred` must be a list of names, got {call_methods!r}.")
        for method in names:
            if method != "__call__":
                self.__dict__[method] = lambda *args, _method=method, **kwargs: getattr(self.target, _method)(
                    *args, **kwargs
                )

    @property
    def target(self) -> T:
        """The module, which is created on first use."""
        if self._target is None:
            if self._scope is None or not local.frames:
                self.__dict__["_target"] = self._factory()
            else:
                with scope_pushed(local.frames[-1], _again(local.frames[-1], self._scope)):
                    self.__dict__["_target"] = self._factory()
        return self._target  # type: ignore[return-value]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module, which is created on first use."""
        return self.target(*args, **kwargs)  # type: ignore[operator]

    def __getattr__(self, name: str) -> Any:
        target = self.__dict__.get("_target")
        if target is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}: the module has not been made yet. Call it "
                f"first, or read `target.{name}`, which makes it."
            )
        return getattr(target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._target is None:
            object.__setattr__(self, name, value)
        else:
            setattr(self._target, name, value)

    def __delattr__(self, name: str) -> None:
        if self._target is None:
            object.__delattr__(self, name)
        else:
            delattr(self._target, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r})"

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.target})"


def _again(frame: Frame, scope: Scope) -> Scope:
    """The scope for creating a module that was deferred in `scope`, which may have ended, or been copied, since."""
    place = scope.bundle, scope.method
    running = (s for s in reversed(frame.scopes) if (s.bundle, s.method) == place)
    return next(running, None) or frame.scope.reentered(scope)
