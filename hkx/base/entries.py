"""Two-level dicts, `{module: {name: value}}`, in which parameters and states are stored.

A module's dict to which there may be other references is never changed in place: a new dict replaces it when an entry
is added. So a copy of the outer dict is a snapshot, and if a module's dict is the same object as before, its entries
have not changed.
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
    """Raises an error if `params` or `state` is not a mapping, or if the state of a module is not one."""
    for what, value in (("params", params), ("state", state)):
        if value is not None and not isinstance(value, Mapping):
            raise InvalidParamsError(what, value)
    for bundle, entries in (state or {}).items():
        if not isinstance(entries, Mapping):
            raise InvalidParamsError(f"state[{bundle!r}]", entries)


def check_structure(taker: str, structure: Any, argument: str = "structure") -> None:
    """Raises an error, naming the function `taker`, if parameters or states are not `{module: {name: value}}`."""
    if not isinstance(structure, Mapping):
        raise NotAStructureError(taker, structure, argument=argument)
    for module, entries in structure.items():
        if not isinstance(entries, Mapping):
            raise NotAStructureError(taker, entries, module, argument)


def walk(tree: Given) -> Iterator[tuple[str, str, Any]]:
    """Iterates over all entries as `(module, name, value)`."""
    for bundle, entries in tree.items():
        for name, value in entries.items():
            yield bundle, name, value


def mapped(change: Callable[[str, str, Any], Any], tree: Given) -> Tree:
    """Replaces each value by `change(module, name, value)`."""
    return {b: {n: change(b, n, value) for n, value in entries.items()} for b, entries in tree.items()}


def under(prefix: str, tree: Mapping[str, T]) -> dict[str, T]:
    """The same entries, with `prefix` added to the modules' names."""
    return {f"{prefix}{bundle}": entries for bundle, entries in tree.items()}


def below(prefix: str, tree: Given) -> Tree:
    """The entries of the modules whose names begin with `prefix`, with the prefix removed."""
    return {bundle[len(prefix) :]: dict(entries) for bundle, entries in tree.items() if bundle.startswith(prefix)}


def copied(tree: Given) -> Tree:
    """A copy of both levels of dicts."""
    return {bundle: dict(entries) for bundle, entries in tree.items()}


def snapshot_of(tree: Given) -> Tree:
    """A snapshot of the entries, which shares the modules' dicts if they are plain dicts."""
    return dict(tree) if {*map(type, tree.values())} <= {dict} else copied(tree)  # type: ignore[arg-type]


def merged(tree: Given, new: Given) -> Tree:
    """The entries of both; those of `new` take precedence."""
    out: Any = dict(tree)
    add(out, new)
    return out


def add(tree: Tree, new: Given) -> None:
    """Adds the entries of `new` to `tree`."""
    for bundle, entries in new.items():
        tree[bundle] = {**tree.get(bundle, {}), **entries}


def add_absent(tree: Tree, new: Given) -> None:
    """Adds to `tree` those entries of `new` that it does not contain."""
    for bundle, entries in new.items():
        known = tree.get(bundle, {})
        tree[bundle] = {**known, **{name: value for name, value in entries.items() if name not in known}}


def selected(tree: Given, keep: Callable[[str, str, Any], bool]) -> Tree:
    """The entries for which `keep(module, name, value)` is true."""
    out = {b: {n: v for n, v in entries.items() if keep(b, n, v)} for b, entries in tree.items()}
    return {bundle: entries for bundle, entries in out.items() if entries}


def changed(before: Given, after: Given) -> Tree:
    """The entries of `after` that are not in `before`, or are another object there."""
    out: Tree = {}
    for bundle, entries in after.items():
        old = before.get(bundle, {})
        if entries is not old and (new := {n: v for n, v in entries.items() if old.get(n, _ABSENT) is not v}):
            out[bundle] = new
    return out


def has_new_names(before: Given, after: Given) -> bool:
    """True if `after` contains entries whose names are not in `before`."""
    known = ((before.get(bundle, {}), entries) for bundle, entries in after.items())
    return any(entries is not old and not entries.keys() <= old.keys() for old, entries in known)
