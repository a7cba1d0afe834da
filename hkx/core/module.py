"""Modules: objects whose methods run in their own name scope and own the parameters that they request."""

from __future__ import annotations

import functools
import inspect
import reprlib
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import jax

from hkx.arguments.contract import Contract
from hkx.core.frame import Scope, current_frame, local
from hkx.core.hooks import MethodContext, chained
from hkx.core.naming import checked_name, note_below, snake_case, unique_name
from hkx.core.reloaded import wrap_reloaded
from hkx.core.reprs import Record, module_text, note_record, record_of
from hkx.core.settings import current_settings
from hkx.core.store import owned
from hkx.errors.advice import OF_MODULES, missing_attribute, note_arguments, refusing_call
from hkx.errors.core import InvalidNameError, MissingSuperInitError, NotInTransformError

T = TypeVar("T")


def _intercepted(method: Callable[..., Any], module: Module, name: str, cls: type) -> Callable[..., Any]:
    """`method`, bound to `module`, with the active interceptors around it."""
    bound = functools.partial(method, module)
    context = MethodContext(module, name, bound, cls)

    def bind(hook: Callable[..., Any], next_function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: hook(next_function, args, kwargs, context)

    return chained("call", bound, bind)


def _wrap(name: str, method: Callable[..., Any], owner: list[type]) -> Callable[..., Any]:
    """Wraps a method so that it runs in its module's name scope, with the interceptors around it.

    Innermost is the contract, which checks and converts arguments as annotations declare: also those that an
    interceptor, or a subclass by `super()`, passes on. `owner` holds the class once that exists.
    """
    contract = Contract(method)
    if name == "__init__" or getattr(method, "hkx_transparent", False):

        @functools.wraps(method)
        def without_scope(*args: Any, **kwargs: Any) -> Any:
            return contract.run(*args, **kwargs)

        return without_scope
    scope_name = getattr(method, "hkx_name_like", name)

    @functools.wraps(method)
    def wrapped(self: Module, *args: Any, **kwargs: Any) -> Any:
        frames = local.frames
        if not frames:
            return contract.run(self, *args, **kwargs)
        scopes, bundle = frames[-1].scopes, getattr(self, "module_name", None)
        if bundle is not None:
            note_below(scopes, self, bundle)
        hooked = local.hooks.get("call")
        run = contract.run
        function = _intercepted(run, self, name, owner[0]) if hooked else functools.partial(run, self)
        scopes.append(Scope(None, scope_name, self))
        try:
            if bundle is None:
                return function(*args, **kwargs)
            with jax.named_scope(bundle.rpartition("/")[2] + ("" if name == "__call__" else f"/~{name}")):
                return function(*args, **kwargs)
        finally:
            scopes.pop()

    return wrapped


class ModuleMetaclass(type(Protocol)):  # a module may also be a Protocol, and have abstract methods
    """Wraps the methods of modules, and gives each new module its name."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> ModuleMetaclass:
        owner: list[type] = []
        methods = []
        for key, value in namespace.items():
            if key == "module_name" or (key.startswith("__") and key not in ("__call__", "__init__")):
                continue  # special methods such as `__add__` run in the scope of their caller
            if isinstance(value, types.FunctionType):
                methods.append(key)
            elif isinstance(value, property):
                parts = (value.fget, value.fset, value.fdel)
                getter, setter, deleter = (_wrap(key, p, owner) if p else None for p in parts)  # type: ignore[arg-type]
                namespace[key] = property(getter, setter, deleter, value.__doc__)
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        owner.append(cls)
        for key in methods:  # now, because `__init_subclass__` and descriptors may have replaced them
            if callable(method := getattr(cls, key, None)):
                type.__setattr__(cls, key, _wrap(key, method, owner))
        if bases and cls.__repr__ is Module.__repr__:
            cls.__repr__ = cls.__repr__  # an own attribute, which `dataclasses.dataclass` does not replace
        if "forward" in namespace and not any("__call__" in vars(c) for c in cls.__mro__):
            cls.__call__ = refusing_call(cls, OF_MODULES["forward"])
        return cls

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __setattr__(cls, name: str, value: Any) -> None:
            generated = name == "__init__" and isinstance(value, types.FunctionType)  # by `dataclasses.dataclass`
            super().__setattr__(name, _wrap(name, value, [cls]) if generated else value)

    @property
    def __signature__(cls) -> inspect.Signature:
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        if not local.frames:
            raise NotInTransformError(f"{cls.__module__.partition('.')[0]}.{cls.__name__}", is_module=True)
        wrap_reloaded(cls, _wrap)
        module = cls.__new__(cls, *args, **kwargs)
        shown = current_settings().module_auto_repr and getattr(cls, "AUTO_REPR", True)
        note_record(module, Record(cls, (args, kwargs) if shown else None))
        scopes, init = local.frames[-1].scopes, cls.__init__
        transparent = getattr(init, "hkx_transparent", False)
        scopes.append(scopes[-1] if transparent else Scope(None, getattr(init, "hkx_name_like", "__init__"), module))
        try:
            plain = transparent or not local.hooks.get("call")
            constructor = functools.partial(init, module) if plain else _intercepted(init, module, "__init__", cls)  # type: ignore[arg-type]
            constructor(*args, **kwargs)
        except (TypeError, InvalidNameError) as error:
            fields = cls.__init__ is Module.__init__ and bool(inspect.get_annotations(cls))
            note_arguments(error, cls, args, kwargs, fields)
            raise
        finally:
            scopes.pop()
        if not hasattr(module, "module_name"):
            raise MissingSuperInitError(cls)
        return module


class Module(metaclass=ModuleMetaclass):
    """The base class of everything that holds parameters or state.

    Create and call modules inside a transformed function. A module requests its parameters by name, with
    `hkx.get_parameter`, in the method that needs them. All calls of one object share its parameters; different objects
    have their own parameters. The full name of a module says where it was created: `parent/~/child` in `__init__`,
    `parent/child` in `__call__`, and `parent/~method/child` in another method. If the name is taken, a number is
    added.

    A subclass must first call `super().__init__(name=name)`. A `dataclasses.dataclass` does not need this, because its
    generated `__init__` does it.

    Attributes:
      name: the last part of the full name.
      module_name: the full name, under which the parameters are stored.

    Args:
      name: an identifier, or `hkx.force_name("a/full/path")`; None uses the name of the class in snake case.

    Raises:
      NotInTransformError: if it is created outside of a transformed function.
      MissingSuperInitError: if the subclass does not call `super().__init__()`, or not first.
      InvalidNameError: if the name is not an identifier.
      DuplicateNameError: if a name that ends in a number is taken.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> class Affine(hkx.Module):
      ...     def __init__(self, size, name=None):
      ...         super().__init__(name=name)
      ...         self.size = size
      ...     def __call__(self, x):
      ...         w = hkx.get_parameter("w", [x.shape[-1], self.size], init=hkx.initializers.TruncatedNormal())
      ...         return x @ w
      >>> model = hkx.transform(lambda x: Affine(2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 3]))
      >>> jax.tree.map(jnp.shape, params)
      {'affine': {'w': (3, 2)}}
    """

    name: str
    module_name: str
    _is_protocol = False  # read by `isinstance(x, Module)` in Python 3.11, which sets it only in subclasses

    def __init__(self, name: str | None = None):
        frame = current_frame("hkx.Module")
        if name is None:
            name = getattr(self, "name", None)  # a dataclass's field, a property
        if name is None:
            name = snake_case(type(self).__name__)
        name = checked_name(name, type(self).__name__)
        scopes = frame.scopes
        own = len(scopes) - 1  # the index of this constructor's scope, usually the innermost
        while own > 0 and scopes[own].module is not self:
            own -= 1
        # Without such a scope the constructor is transparent. Its caller is left out then, as in Haiku.
        outer = scopes[:own] or scopes[:-2] or scopes
        self.module_name = unique_name(outer[-1], name)
        self.name = self.module_name.rpartition("/")[2]
        note_below(outer, self, self.module_name)

    def __post_init__(self, name: str | None = None) -> None:
        # Called by the generated `__init__` of a dataclass.
        Module.__init__(self, name)

    def params_dict(self) -> Mapping[str, jax.Array]:
        """The parameters of this module and of its submodules, by full name: `{"mlp/~/linear_0/w": …}`."""
        return owned(current_frame("hkx.Module.params_dict").params, self.module_name, record_of(self).names_below)

    def state_dict(self) -> Mapping[str, jax.Array]:
        """The current state of this module and of its submodules, by full name."""
        return owned(current_frame("hkx.Module.state_dict").state, self.module_name, record_of(self).names_below)

    @reprlib.recursive_repr()  # modules may refer to each other
    def __repr__(self) -> str:
        return module_text(self)

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            following = getattr(super(), "__getattr__", None)  # of a class mixed in after this one
            return following(name) if following else missing_attribute(self, name, OF_MODULES)
