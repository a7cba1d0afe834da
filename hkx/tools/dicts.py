"""Mutable and immutable nested mappings, and conversions between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from typing import Any

import jax

from hkx.base.trees import own_tree
from hkx.errors.arguments import NotAStructureError


class KeysOnlyKeysView(KeysView[Any]):
    """The keys of a `FrozenDict`, whose `repr` does not show the values."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


@jax.tree_util.register_pytree_with_keys_class
class FrozenDict(Mapping[Any, Any]):
    """An immutable mapping that can be hashed if its values can.

    It is a pytree with sorted keys, like a dict. Pickling or copying it gives a dict, so that a checkpoint can be read
    where this class is unknown.

    Args:
      mapping: the contents, as a mapping or as pairs; mappings inside are frozen too.

    Example:

      >>> import hkx, jax
      >>> frozen = hkx.data_structures.to_immutable_dict({"linear": {"w": 1}})
      >>> jax.tree.map(lambda x: x + 1, frozen)
      FrozenDict({'linear': FrozenDict({'w': 2})})
    """

    __slots__ = ("_entries",)
    _entries: dict[Any, Any]

    def __init__(self, mapping: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = ()):
        entries = {k: FrozenDict(v) if isinstance(v, Mapping) else v for k, v in dict(mapping).items()}
        object.__setattr__(self, "_entries", entries)

    def __getitem__(self, key: Any) -> Any:
        return self._entries[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> KeysView[Any]:
        """The keys."""
        return KeysOnlyKeysView(self)

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"`{type(self).__name__}` cannot be changed: make a copy with `to_mutable_dict`.")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"`.{name}` is not supported on `{type(self).__name__}`: use `[{name!r}]` instead.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._entries!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (_dicts(self),)

    def tree_flatten_with_keys(self) -> tuple[Iterable[tuple[Any, Any]], tuple[Any, ...]]:
        """The entries sorted by key, as `jax.tree_util` requires."""
        keys = tuple(sorted(self._entries))
        return [(jax.tree_util.DictKey(k), self._entries[k]) for k in keys], keys

    @classmethod
    def tree_unflatten(cls, keys: tuple[Any, ...], values: Iterable[Any]) -> FrozenDict:
        """The inverse of `tree_flatten_with_keys`; its arguments are stored unchanged."""
        new = cls()
        new._entries.update(zip(keys, values, strict=True))
        return new


def _dicts(structure: Any, value: Callable[[Any], Any] = lambda x: x) -> Any:
    return {k: _dicts(v, value) for k, v in structure.items()} if isinstance(structure, Mapping) else value(structure)


def to_mutable_dict(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns a copy in which every mapping, at any depth, is a dict.

    Args:
      mapping: a mapping.

    Returns:
      The copy; the values are shared.

    Raises:
      NotAStructureError: if `mapping` is not a mapping.

    Example:

      >>> import hkx
      >>> params = hkx.data_structures.to_mutable_dict(hkx.data_structures.to_immutable_dict({"a": {"w": 1}}))
      >>> params["a"]["w"] = 2
      >>> params
      {'a': {'w': 2}}
    """
    return {key: _dicts(value) for key, value in _items("to_mutable_dict", mapping)}


def to_haiku_dict(structure: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns a copy in the form that `init` returns: every mapping, at any depth, is a dict.

    Args:
      structure: a mapping.

    Returns:
      The copy; lists and similar values are copied too, arrays are shared.

    Example:

      >>> import hkx, types
      >>> hkx.data_structures.to_haiku_dict(types.MappingProxyType({"a": types.MappingProxyType({"w": 1})}))
      {'a': {'w': 1}}
    """
    return _dicts(structure, own_tree)


def to_immutable_dict(mapping: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Returns an immutable copy.

    Args:
      mapping: a mapping.

    Returns:
      A pytree mapping, with immutable mappings inside; it can be hashed if its values can.

    Raises:
      NotAStructureError: if `mapping` is not a mapping.

    Example:

      >>> import hkx
      >>> hkx.data_structures.to_immutable_dict({"a": {"w": 1}})["a"]["w"]
      1
    """
    return FrozenDict(_items("to_immutable_dict", mapping))


def _items(taker: str, mapping: Any) -> Any:
    if not hasattr(mapping, "items"):
        raise NotAStructureError(f"hkx.data_structures.{taker}", mapping, argument="mapping")
    return mapping.items()
