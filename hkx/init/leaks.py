"""Traced arrays that outlive their trace, and what refers to them, for the error that says so."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from typing import Any

import jax.core

_LEVELS = 12
_MOST_REFERRERS = 1000
_NOT_THE_PROGRAMS = {"hkx", "jax", "jaxlib", *sys.stdlib_module_names} - {"__main__"}


def arrays_of(trace: weakref.ref[Any] | None) -> list[Any]:
    """The traced arrays of an abstract run that are still alive, after garbage cycles have been collected."""

    def found() -> list[Any]:
        alive = trace and trace()
        return [] if alive is None else [x for x in gc.get_referrers(alive) if isinstance(x, jax.core.Tracer)]

    for generation in range(3):  # the young generations first, which is fast
        if not found():
            break
        gc.collect(generation)
    return found()


def _variable(namespace: dict[str, Any], seen: set[int]) -> str:
    return next((f"the variable {name!r}" for name, x in namespace.items() if id(x) in seen), "a variable")


def _place(x: Any, seen: set[int]) -> str | None:
    """A description of `x`, which refers to an object in `seen`, if it is part of the user's program."""
    if isinstance(x, dict) and _is_module(x):
        owner, place = x["__name__"], f"{_variable(x, seen)} of the module {x['__name__']!r}"
    elif isinstance(x, types.FunctionType):
        cells = dict(zip(x.__code__.co_freevars, x.__closure__ or (), strict=True))
        name = _variable(cells, seen) if any(id(cell) in seen for cell in cells.values()) else "a default"
        owner, place = x.__module__, f"{name} of the function {x.__qualname__!r}"
    elif isinstance(x, types.FrameType):
        owner = x.f_globals.get("__name__")
        place = f"{_variable(x.f_locals, seen)} of the running function {x.f_code.co_name!r}"
    elif isinstance(x, type):
        owner, place = x.__module__, f"the class {x.__qualname__!r}"
    else:
        owner, place = type(x).__module__, f"an object of the class {type(x).__qualname__!r}"
    return None if str(owner).partition(".")[0] in _NOT_THE_PROGRAMS else place


def _container(x: Any) -> str:
    """A description of a container between the object and its place, or an empty string."""
    if isinstance(x, tuple) and any(isinstance(part, types.CellType) for part in x):
        return ""  # the variables of a function
    known = (list, dict, set, tuple, types.GeneratorType)
    if isinstance(x, known) or type(x).__module__ in ("functools", "itertools", "collections", "_queue", "queue"):
        return f"a {type(x).__name__.strip('_')} in "
    return ""


def holder(targets: list[Any]) -> str | None:
    """A description of what refers to one of the objects; None if nothing in the user's program does."""
    seen = set(map(id, targets))
    level: list[tuple[Any, str]] = [(x, "") for x in targets]
    for _ in range(_LEVELS if targets else 0):
        above: list[tuple[Any, str]] = []
        for referrer, words in _referrers(level):
            if id(referrer) not in seen:
                seen.add(id(referrer))
                place = _place(referrer, seen)
                if place is not None:
                    return words + place
                if not _is_module(referrer) and not isinstance(referrer, type):
                    above.append((referrer, words + _container(referrer)))
        if not above or len(above) > _MOST_REFERRERS:
            return None
        level = above
    return None


def _referrers(level: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """The objects that refer to those of a level, except this search itself, with the description of the referent."""
    objects = tuple(x for x, _ in level)
    words = {id(x): said for x, said in level}
    search = {id(objects), id(level), *map(id, level)}
    return [
        (referrer, words[id(child)])
        for referrer in gc.get_referrers(*objects)
        if id(referrer) not in search and not _is_of_search(referrer)
        for child in gc.get_referents(referrer)
        if id(child) in words
    ]


def _is_module(x: Any) -> bool:
    """True if `x` is a module or its namespace. The search stops there, because anything may import a module."""
    return isinstance(x, types.ModuleType) or (isinstance(x, dict) and "__spec__" in x)


def _is_of_search(x: Any) -> bool:
    return isinstance(x, types.FrameType) and x.f_globals is globals()
