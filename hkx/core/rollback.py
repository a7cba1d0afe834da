"""Putting back what a function changed: `init` may have to run the user's function a second time.

What the first run popped from a dict, appended to a list or counted up is put back before the second, so that it
happens once.
"""

from __future__ import annotations

import functools
import inspect
import random
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

MOST_OBJECTS = 10_000  # that are looked into
_LIBRARIES = {"hkx", "jax", "numpy", "rlx"}  # which change nothing of their own


def remember(f: Callable[..., Any], *arguments: Any) -> Callable[[], None]:
    """Looks at what `f` can change: its arguments, and the variables and objects of its own module that it refers to.

    A function that `f` holds in a variable of its own, as a decorator does, has its module looked at likewise.

    Args:
      f: the function.
      *arguments: what it will be called with.

    Returns:
      A function that gives all dicts, lists, sets, attributes and variables the values that they have now, and puts
      back the random numbers of NumPy and of Python. Iterators, open files and the like cannot be put back.
    """
    inner: Any = f
    while isinstance(inner, functools.partial):
        inner = inner.func
    homes = {getattr(inner, "__module__", None)}
    undo: list[Callable[[], None]] = [
        functools.partial(np.random.set_state, np.random.get_state()),
        functools.partial(random.setstate, random.getstate()),
    ]
    seen: dict[int, Any] = {}
    todo: list[Any] = [f, *arguments]
    while todo and len(seen) < MOST_OBJECTS:
        x = todo.pop()
        if id(x) not in seen:
            seen[id(x)] = x
            todo += _parts(x, homes, undo)

    def put_back() -> None:
        for change in undo:
            change()

    return put_back


def _parts(x: Any, homes: set[str | None], undo: list[Callable[[], None]]) -> Iterable[Any]:
    """What `x` refers to; adds to `undo` what puts it back."""
    if isinstance(x, (dict, list, set)):
        kept = _contents(x)
        undo.append(lambda: _refill(x, kept))
        return kept[-MOST_OBJECTS:]
    if isinstance(x, np.random.Generator):
        undo.append(functools.partial(setattr, x.bit_generator, "state", x.bit_generator.state))
        return ()
    if isinstance(x, np.random.RandomState):
        undo.append(functools.partial(x.set_state, x.get_state()))
        return ()
    if isinstance(x, random.Random):
        undo.append(functools.partial(x.setstate, x.getstate()))
        return ()
    if isinstance(x, tuple):
        return x
    if isinstance(x, functools.partial):
        return x.func, x.args, x.keywords
    if isinstance(x, types.MethodType):
        return x.__func__, x.__self__
    if isinstance(x, property):
        return x.fget, x.fset
    if inspect.isfunction(x):
        return _variables(x, homes, undo) if x.__module__ in homes else ()
    if isinstance(x, type):
        return tuple(vars(x).values()) if x.__module__ in homes else ()
    return (vars(x), type(x)) if type(x).__module__ in homes and hasattr(x, "__dict__") else ()


def _contents(x: Any) -> list[Any]:
    return [*x, *x.values()] if isinstance(x, dict) else [*x]


def _refill(x: Any, kept: list[Any]) -> None:
    if [*map(id, _contents(x))] == [*map(id, kept)]:
        return
    x.clear()
    if isinstance(x, list):
        x.extend(kept)
    else:
        half = len(kept) // 2
        x.update(zip(kept[:half], kept[half:], strict=True) if isinstance(x, dict) else kept)


def _names(code: types.CodeType) -> set[str]:
    """The names of other variables in a function and in those that it makes."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*inner)


def _variables(f: Any, homes: set[str | None], undo: list[Callable[[], None]]) -> list[Any]:
    """The values of the variables outside of `f` that it refers to."""
    names = {name: f.__globals__[name] for name in _names(f.__code__) if name in f.__globals__}
    undo.append(lambda: f.__globals__.update(names))
    values = list(names.values())
    for cell in f.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
        undo.append(functools.partial(setattr, cell, "cell_contents", value))
        if inspect.isfunction(value) and value.__module__.partition(".")[0] not in _LIBRARIES:
            homes.add(value.__module__)
        values.append(value)
    return values
