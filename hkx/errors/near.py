"""Names in errors: suggestions for misspelled ones, and that of hkx in the running program."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterable


def _alike(a: str, b: str) -> float:
    """The similarity of two names, in [0, 1], ignoring case."""
    return difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error's text: the most similar name in `known`, or nothing if none is similar enough.

    Python makes such suggestions itself, but only when it prints an uncaught error: they do not appear in logs.
    """
    likeness, near = max(((_alike(name, other), other) for other in known), default=(0.0, ""))
    return f". Did you mean: {near!r}?" if likeness >= 0.7 else ""


def _nearness(path: str, other: str) -> float:
    """The similarity of two full names, or 0 if nobody would mistake one for the other.

    Many parameters are called `w`, so either the modules' names must be similar too, or the same module must have moved
    into another one.
    """
    (module, _, name), (other_module, _, other_name) = path.rpartition("/"), other.rpartition("/")
    likeness = _alike(path, other)
    moved = name == other_name and module.rpartition("/")[2] == other_module.rpartition("/")[2]
    return likeness if moved or min(likeness, _alike(module, other_module)) >= 0.6 else 0.0


def nearest(path: str, known: Iterable[str], what: str) -> str:
    """A line that lists the names in `known` that are most similar to `path`, or says that there are none."""
    known = list(known)
    if not known:
        return f"There are no {what} at all."
    nearness = {other: _nearness(path, other) for other in known}
    close = sorted((other for other in known if nearness[other]), key=lambda other: -nearness[other])[:3]
    if not close:
        return f"None of the {len(known)} {what} that exist has a similar name."
    more = f" (of {len(known)})" if len(known) > len(close) else ""
    return f"The nearest {what} that exist{more}: {', '.join(repr(c) for c in close)}."


def as_imported() -> str:
    """`hk`, if a module of the running program has imported hkx as `hk`, or is written for Haiku; else `hkx`."""
    hkx, frame = sys.modules["hkx"], inspect.currentframe()
    if sys.modules.get("haiku") is hkx:
        return "hk"
    while frame is not None and frame.f_globals.get("hk") is not hkx:
        frame = frame.f_back
    return "hk" if frame else "hkx"
