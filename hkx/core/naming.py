"""Names: unique and forced names, name scopes, and methods that are transparent or named like another."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax

from hkx.arguments import checked_function
from hkx.core.frame import Frame, Scope, current_frame
from hkx.core.reprs import record_of
from hkx.errors.core import DuplicateNameError, InvalidNameError, NotANameError, UsedScopeError

F = TypeVar("F", bound=Callable[..., Any])

_NUMBERED = re.compile(r"(.*)_(0|[1-9]\d*)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<!^)(?=[A-Z][a-z])")  # "_Stack" becomes "__stack", as in checkpoints
_FORCE = "FORCE:"  # marks a full name that is used unchanged; users may also append to such a string
_VALID = re.compile(r"[A-Za-z_]\w*|FORCE:(~|~?[A-Za-z_]\w*)(/(~|~?[A-Za-z_]\w*))*", re.ASCII)


@functools.lru_cache
def snake_case(name: str) -> str:
    """Converts `"MyResNet50"` to `"my_res_net50"`."""
    return _CAMEL.sub("_", name).lower()


def valid_name(name: object) -> bool:
    """True if a module may have this name. In a forced name, each part may begin with `~`, as for methods."""
    return isinstance(name, str) and _VALID.fullmatch(name) is not None


def checked_name(name: Any, class_name: str = "") -> str:
    """Returns `name` if a module, of that class if one is given, may have it; otherwise raises InvalidNameError."""
    if not valid_name(name):
        raise (InvalidNameError if isinstance(name, str) else NotANameError)(name, class_name)
    return name


def unique_name(scope: Scope, name: str) -> str:
    """The full name of a new module called `name` in `scope`, with a number appended if the name is taken.

    A name that ends in a number is used unchanged, and later numbers continue from it. In `apply`, names that a loop or
    a branch took are taken only if there is a parameter or state under the next one: a program that ran the body by
    hand in `init` has none, and continues as in Haiku, from the names before the loop.
    """
    forced, prefix = name.startswith(_FORCE), scope.prefix
    full = name[len(_FORCE) :] if forced else prefix + name  # a module may change its name, and so the prefix
    if forced and (not full.startswith(prefix) or "/" in full[len(prefix) :]):
        return full  # not in this scope, where later numbers would continue from it
    numbered = _NUMBERED.fullmatch(full) if full[-1:].isdigit() else None
    if numbered:
        stem, digits = numbered.groups()
        scope.counts[stem] = max(scope.counts.get(stem, 0), int(digits) + 1)
    else:
        count, ahead = 0 if forced else scope.counts.get(full, 0), scope.ahead.pop(full, 0)
        if ahead > count and not forced and _is_used(f"{full}_{ahead}"):
            count = ahead
        scope.counts[full] = max(scope.counts.get(full, 0), count + 1)
        stem, digits = full, str(count) if count else ""
    if (stem, digits) in scope.taken and not forced:
        raise DuplicateNameError(name)
    scope.taken.add((stem, digits))
    return f"{stem}_{digits}" if digits else stem


def _is_used(bundle: str) -> bool:
    """Returns whether the running frame has a parameter or state of this module, or of one inside it."""
    frame = current_frame("hkx.Module")
    return any(b == bundle or b.startswith(f"{bundle}/") for tree in (frame.params, frame.state) for b in tree)


def note_below(scopes: Iterable[Scope], module: Any, bundle: str) -> None:
    """Records `bundle` as belonging to the modules whose methods are running, for their `params_dict`."""
    for scope in scopes:
        if scope.module is not None and scope.module is not module:
            record_of(scope.module).names_below.add(bundle)


@contextlib.contextmanager
def scope_pushed(frame: Frame, scope: Scope) -> Iterator[Scope]:
    """Makes `scope` the innermost one until the `with` block ends."""
    frame.scopes.append(scope)
    try:
        yield scope
    finally:
        frame.scopes.pop()


class _NameScope(contextlib.AbstractContextManager[None]):
    """A name scope. It is pushed onto the frame that runs on entry, which need not be the one in which it was created.

    It cannot be entered twice, because the second block would silently share the names of the first. Entries are
    recorded in the outermost scope, so that code that hkx runs several times, starting from the same scopes each time,
    may enter it each time.
    """

    def __init__(self, name: str, bundle: str, method: str):
        self._name = name
        self._place = bundle, method
        self._open: list[contextlib.ExitStack] = []

    def __enter__(self) -> None:
        frame = current_frame("hkx.name_scope")
        entered = frame.scopes[0].taken
        if self in entered:
            raise UsedScopeError()
        entered.add(self)
        with contextlib.ExitStack() as stack:
            stack.enter_context(jax.named_scope(self._name))
            stack.enter_context(scope_pushed(frame, Scope(*self._place)))
            self._open.append(stack.pop_all())

    def __exit__(self, *exception: Any) -> bool | None:
        return self._open.pop().__exit__(*exception)


def name_scope(name: str, *, method_name: str = "__call__") -> contextlib.AbstractContextManager[None]:
    """Puts the modules and parameters of the `with` block under a name, as if a module with that name contained them.

    Args:
      name: an identifier, several identifiers joined by `/`, or `hkx.force_name("a/full/path")`. It is made unique.
      method_name: the method that the block represents. Modules are named `name/x` in `"__call__"`, `name/~/x` in
        `"__init__"`, and `name/~method/x` in any other method. The same holds for the parts of a name with `/`.

    Returns:
      A context manager.

    Raises:
      NotInTransformError: outside of a transformed function.
      InvalidNameError: if the name is not an identifier.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     with hkx.name_scope("encoder"):
      ...         return hkx.Linear(1)(x)
      >>> list(hkx.transform(f).init(jax.random.key(0), jnp.ones([1, 1])))
      ['encoder/linear']
    """
    frame = current_frame("hkx.name_scope")
    parts = [name] if not isinstance(name, str) or name.startswith(_FORCE) else name.split("/")
    if not all(map(valid_name, parts)) or not isinstance(method_name, str):
        checked_name(name if isinstance(method_name, str) else method_name)
    scope = functools.reduce(lambda scope, part: Scope(unique_name(scope, part), method_name), parts, frame.scope)
    note_below(frame.scopes, None, full := str(scope.bundle))
    return _NameScope(name.removeprefix(_FORCE), full, method_name)


def current_name() -> str:
    """Returns the name of the innermost module or name scope, or `"~"` outside of all of them.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx
      >>> class Net(hkx.Module):
      ...     def __call__(self):
      ...         return hkx.current_name()
      >>> hkx.transform(lambda: (hkx.current_name(), Net()())).apply({}, None)
      ('~', 'net')
    """
    return current_frame("hkx.current_name").bundle


def force_name(name: str) -> str:
    """Marks a full name that is used unchanged, whatever the surrounding modules are.

    Args:
      name: the full name for a module or scope. Modules with the same forced name share their parameters.

    Returns:
      A string that you pass as `name=` to a module or to `hkx.name_scope`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     with hkx.name_scope("decoder"):
      ...         return hkx.Linear(1, name=hkx.force_name("shared/linear"))(x)
      >>> list(hkx.transform(f).init(jax.random.key(0), jnp.ones([1, 1])))
      ['shared/linear']
    """
    if not isinstance(name, str):
        raise NotANameError(name)
    return f"{_FORCE}{name}"


def name_like(method_name: str) -> Callable[[F], F]:
    """Decorates a method so that its modules and parameters are named as if another method had created them.

    Args:
      method_name: the other method, usually `"__call__"`.

    Returns:
      The decorator.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> class Net(hkx.Module):
      ...     @hkx.name_like("__call__")
      ...     def encode(self, x):
      ...         return hkx.Linear(1)(x)
      >>> list(hkx.transform(lambda x: Net().encode(x)).init(jax.random.key(0), jnp.ones([1, 1])))
      ['net/linear']
    """

    def decorate(method: F) -> F:
        method.hkx_name_like = method_name  # type: ignore[attr-defined]
        return method

    return decorate


def transparent(method: F) -> F:
    """Decorates a method so that its modules and parameters are named as if its caller had created them.

    Args:
      method: a method of a module.

    Returns:
      The method; interceptors do not see its calls.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> class Net(hkx.Module):
      ...     @hkx.transparent
      ...     def encode(self, x):
      ...         return hkx.Linear(1)(x)
      >>> list(hkx.transform(lambda x: Net().encode(x)).init(jax.random.key(0), jnp.ones([1, 1])))
      ['linear']
    """
    checked_function(method, "hkx.transparent").hkx_transparent = True
    return method
