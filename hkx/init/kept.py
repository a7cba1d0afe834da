"""Traced arrays that a function has stored during its abstract run, in a list for example.

The garbage collector finds them, and their values replace them. So the function need not run again, and what it has
stored is the same as after an ordinary run.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.core

_JAX = ("jax", "jaxlib")


def arrays_of(trace: weakref.ref[Any] | None) -> list[Any]:
    """The traced arrays of an abstract run that are still alive, after garbage cycles have been collected.

    It is not enough to check whether the trace itself is alive, because programs with custom derivative rules refer to
    their trace.
    """
    if trace is None:
        return []

    def found() -> list[Any]:
        return [] if trace() is None else [x for x in gc.get_referrers(trace()) if isinstance(x, jax.core.Tracer)]

    for generation in range(2):  # the young generations, which is fast
        if trace() is not None:
            gc.collect(generation)
    if found():
        gc.collect()
    return found()


class Places:
    """The containers, attributes and variables that refer to some objects, where each can be replaced."""

    def __init__(self, containers: list[tuple[Any, _Replace]], tuples: dict[int, tuple[Any, ...]]):
        self._containers = containers
        self._tuples = tuples

    def fill(self, objects: Sequence[Any], values: Sequence[Any]) -> None:
        """Replaces the objects by values. Tuples that contain one are replaced by new tuples."""
        new = dict(zip(map(id, objects), values, strict=True))

        def made(x: Any) -> Any:
            if id(x) not in new and id(x) in self._tuples:
                new[id(x)] = tuple.__new__(type(x), map(made, x))
            return new.get(id(x), x)

        held = new.keys() | self._tuples.keys()
        for container, replace in self._containers:
            replace(container, held, made)


def places_of(objects: Sequence[Any]) -> Places | None:
    """The places that refer to some objects; None if there are none, or if an object cannot be replaced in one of them.

    References from JAX, which record how a stored array was computed, do not count: they disappear with the array.
    """
    containers: list[tuple[Any, _Replace]] = []
    tuples: dict[int, tuple[Any, ...]] = {}
    level: tuple[Any, ...] = tuple(objects)
    while level:
        above: list[Any] = []
        search = {id(x) for x in (objects, level, above, containers, tuples)}
        held = {id(x) for x in level}
        for holder in gc.get_referrers(*level):
            if id(holder) in search or id(holder) in tuples or _is_of_jax(holder) or _is_of_search(holder):
                continue
            if isinstance(holder, tuple):
                if type(holder) is not tuple and not hasattr(holder, "_fields"):
                    return None
                tuples[id(holder)] = holder
                above.append(holder)
            else:
                replace = _way_to_replace(holder, held)
                if replace is None:
                    return None
                containers.append((holder, replace))
        level = tuple(above)
    return Places(containers, tuples) if containers else None


def _is_of_jax(holder: Any) -> bool:
    return type(holder).__module__.partition(".")[0] in _JAX and jax.tree_util.all_leaves([holder])


def _is_of_search(holder: Any) -> bool:
    return isinstance(holder, types.FrameType) and holder.f_globals is globals()


_Replace = Callable[[Any, Collection[int], Callable[[Any], Any]], None]
"""`replace(container, ids, new)` replaces each `x` in a container whose `id(x)` is in `ids` by `new(x)`."""


def _way_to_replace(holder: Any, held: Collection[int]) -> _Replace | None:
    for kind, replace in _IN.items():
        if isinstance(holder, kind):
            return replace
    return _in_object if _has_attribute(holder, held) else None


def _in_list(holder: list[Any], held: Collection[int], made: Callable[[Any], Any]) -> None:
    for i in range(list.__len__(holder)):  # bypasses methods that a subclass overrides
        x = list.__getitem__(holder, i)
        if id(x) in held:
            list.__setitem__(holder, i, made(x))


def _in_deque(holder: collections.deque[Any], held: Collection[int], made: Callable[[Any], Any]) -> None:
    for i, x in enumerate(list(collections.deque.__iter__(holder))):
        if id(x) in held:
            collections.deque.__setitem__(holder, i, made(x))


def _in_dict(holder: dict[Any, Any], held: Collection[int], made: Callable[[Any], Any]) -> None:
    owner = next((x for x in gc.get_referrers(holder) if isinstance(x, type)), None)
    for name, x in list(dict.items(holder)):
        if id(x) in held:
            if owner is None:
                dict.__setitem__(holder, name, made(x))
            else:  # the `__dict__` of a class can only be changed through the class
                type.__setattr__(owner, name, made(x))


def _in_cell(holder: types.CellType, held: Collection[int], made: Callable[[Any], Any]) -> None:
    holder.cell_contents = made(holder.cell_contents)


def _variables(holder: Any) -> dict[str, Any]:
    try:
        return object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return {}


def _slots(holder: Any) -> Iterator[tuple[types.MemberDescriptorType, Any]]:
    """The filled slots of an object, with their values."""
    for kind in type(holder).__mro__:
        if "__slots__" in vars(kind):
            for slot in vars(kind).values():
                if isinstance(slot, types.MemberDescriptorType):
                    with contextlib.suppress(AttributeError):
                        yield slot, slot.__get__(holder)


def _has_attribute(holder: Any, held: Collection[int]) -> bool:
    """Whether an attribute or a slot of an object refers to one of the objects with these ids."""
    return any(id(x) in held for x in (*_variables(holder).values(), *(x for _, x in _slots(holder))))


def _in_object(holder: Any, held: Collection[int], made: Callable[[Any], Any]) -> None:
    _in_dict(_variables(holder), held, made)
    for slot, x in list(_slots(holder)):
        if id(x) in held:
            slot.__set__(holder, made(x))


def _in_partial(holder: functools.partial[Any], held: Collection[int], made: Callable[[Any], Any]) -> None:
    state = made(holder.func), made(holder.args), holder.keywords, holder.__dict__
    holder.__setstate__(state)  # type: ignore[attr-defined]  # as unpickling does


def _in_cache(holder: Any, held: Collection[int], made: Callable[[Any], Any]) -> None:
    holder.cache_clear()  # entries cannot be replaced, but they can be recomputed


_IN: dict[type, _Replace] = {
    list: _in_list,
    dict: _in_dict,
    collections.deque: _in_deque,
    types.CellType: _in_cell,
    functools.partial: _in_partial,
    type(functools.lru_cache(lambda: None)): _in_cache,
}
