"""Dicts of two levels, `{module: {name: value}}`: what parameters and states are kept in.

The dict of a module that somebody keeps is never changed in place: where an entry is added, a new dict takes its place.
So what a running function holds now can be kept by a copy of the outer dict alone, and where a module's is the same
dict as before, nothing in it has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from hkx.errors.arguments import NotAStructureError
from hkx.errors.core import InvalidParamsError

T = TypeVar("T")
Tree = dict[str, dict[str, Any]]
Given = Mapping[str, Mapping[str, Any]]
_ABSENT = object()


def check_mappings(params: Any, state: Any) -> None:
    """Raises where one of the two is no mapping, or holds a module's state that is none."""
    for what, value in (("params", params), ("state", state)):
        if value is not None and not isinstance(value, Mapping):
            raise InvalidParamsError(what, value)
    for bundle, entries in (state or {}).items():
        if not isinstance(entries, Mapping):
            raise InvalidParamsError(f"state[{bundle!r}]", entries)


def check_structure(taker: str, structure: Any, argument: str = "structure") -> None:
    """Raises where what `taker` was given, or got, as parameters or states is not `{module: {name: value}}`."""
    if not isinstance(structure, Mapping):
        raise NotAStructureError(taker, structure, argument=argument)
    for module, entries in structure.items():
        if not isinstance(entries, Mapping):
            raise NotAStructureError(taker, entries, module, argument)


def walk(tree: Given) -> Iterator[tuple[str, str, Any]]:
    """All entries, as `(module, name, value)`."""
    for bundle, entries in tree.items():
        for name, value in entries.items():
            yield bundle, name, value


def mapped(change: Callable[[str, str, Any], Any], tree: Given) -> Tree:
    """The entries with `change(module, name, value)` in place of each value."""
    return {b: {n: change(b, n, value) for n, value in entries.items()} for b, entries in tree.items()}


def under(prefix: str, tree: Mapping[str, T]) -> dict[str, T]:
    """The same entries of modules that are called `prefix…`."""
    return {f"{prefix}{bundle}": entries for bundle, entries in tree.items()}


def below(prefix: str, tree: Given) -> Tree:
    """The entries of the modules that are called `prefix…`, without the prefix."""
    return {bundle[len(prefix) :]: dict(entries) for bundle, entries in tree.items() if bundle.startswith(prefix)}


def copied(tree: Given) -> Tree:
    """The same entries in new dicts."""
    return {bundle: dict(entries) for bundle, entries in tree.items()}


def kept(tree: Given) -> Tree:
    """The same entries, whatever is added to `tree` afterwards; a module's dict is not copied."""
    return dict(tree) if {*map(type, tree.values())} <= {dict} else copied(tree)  # type: ignore[arg-type]


def merged(tree: Given, new: Given) -> Tree:
    """The entries of both; where both have one, that of `new`."""
    out: Any = dict(tree)
    add(out, new)
    return out


def add(tree: Tree, new: Given) -> None:
    """Puts the entries of `new` into `tree`."""
    for bundle, entries in new.items():
        tree[bundle] = {**tree.get(bundle, {}), **entries}


def add_absent(tree: Tree, new: Given) -> None:
    """Puts those entries of `new` into `tree` that it does not hold."""
    for bundle, entries in new.items():
        known = tree.get(bundle, {})
        tree[bundle] = {**known, **{name: value for name, value in entries.items() if name not in known}}


def selected(tree: Given, keep: Callable[[str, str, Any], bool]) -> Tree:
    """The entries for which `keep(module, name, value)` holds."""
    out = {b: {n: v for n, v in entries.items() if keep(b, n, v)} for b, entries in tree.items()}
    return {bundle: entries for bundle, entries in out.items() if entries}


def changed(before: Given, after: Given) -> Tree:
    """The entries of `after` that `before` does not hold, or holds another value for."""
    out: Tree = {}
    for bundle, entries in after.items():
        old = before.get(bundle, {})
        if entries is not old and (new := {n: v for n, v in entries.items() if old.get(n, _ABSENT) is not v}):
            out[bundle] = new
    return out


def has_new_names(before: Given, after: Given) -> bool:
    """Whether `after` holds entries of names that `before` does not hold."""
    known = ((before.get(bundle, {}), entries) for bundle, entries in after.items())
    return any(entries is not old and not entries.keys() <= old.keys() for old, entries in known)
