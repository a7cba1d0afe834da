"""Traced arrays that a function leaves in a list, a dict or an attribute: their values take their place there."""

from __future__ import annotations

import gc
import types
from collections.abc import Sequence
from typing import Any

import jax


def holders_of(arrays: Sequence[Any]) -> list[Any] | None:
    """The lists, dicts and objects that hold some traced arrays; None if anything else of the program holds one.

    JAX's own references do not count: they disappear with the arrays.
    """
    found: list[Any] = []
    objects = tuple(arrays)  # which Python passes on as it is
    operations = filter(_is_of_jax, gc.get_referents(*objects))  # those that made the arrays: they hold their operands
    others = {id(arrays), id(objects), *map(id, gc.get_referents(*operations))}
    for holder in gc.get_referrers(*objects):
        if id(holder) in others or _is_of_jax(holder) or _is_of_search(holder):
            continue
        of_a_class = isinstance(holder, dict) and any(isinstance(x, type) for x in gc.get_referrers(holder))
        if of_a_class or not (isinstance(holder, (list, dict)) or hasattr(holder, "__dict__")):
            return None
        found.append(holder)
    return found


def _is_of_jax(holder: Any) -> bool:
    return type(holder).__module__.partition(".")[0] in ("jax", "jaxlib") and jax.tree_util.all_leaves([holder])


def _is_of_search(holder: Any) -> bool:
    return isinstance(holder, types.FrameType) and holder.f_globals is globals()


def replace(holders: Sequence[Any], arrays: Sequence[Any], values: Sequence[Any]) -> None:
    """Puts the values in the place of the arrays. Methods that the holders' classes define are not called."""
    new = dict(zip(map(id, arrays), values, strict=True))
    kind: Any
    for holder in holders:
        if isinstance(holder, list):
            kind, entries = list, list(enumerate(list.__iter__(holder)))
        else:
            kind, holder = dict, holder if isinstance(holder, dict) else object.__getattribute__(holder, "__dict__")
            entries = list(dict.items(holder))
        for place, x in entries:
            if id(x) in new:
                kind.__setitem__(holder, place, new[id(x)])
