"""Functions on the two-level mappings `{module: {name: value}}` in which parameters and state are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from hkx.arguments import checked_flag, checked_function, checked_integer
from hkx.base.entries import check_structure
from hkx.errors.core import NotAnArrayError
from hkx.tools.trace import ArraySpec

T = TypeVar("T")
U = TypeVar("U")
TwoLevel = Mapping[str, Mapping[str, T]]


def traverse(structure: TwoLevel[T]) -> Iterator[tuple[str, str, T]]:
    """Iterates over all values, ordered by module name, then by name.

    Args:
      structure: `{module: {name: value}}`.

    Returns:
      An iterator of `(module, name, value)`.

    Example:

      >>> import hkx
      >>> list(hkx.data_structures.traverse({"b": {"w": 1}, "a": {"y": 2, "x": 3}}))
      [('a', 'x', 3), ('a', 'y', 2), ('b', 'w', 1)]
    """
    yield from _entries("traverse", structure)


def _entries(taker: str, structure: TwoLevel[T], fn: object = abs) -> Iterator[tuple[str, str, T]]:
    """The entries of a structure. Raises an error if `taker` was given an invalid structure or an invalid `fn`."""
    taker = f"hkx.data_structures.{taker}"
    checked_function(fn, taker, "fn")
    check_structure(taker, structure)
    for module in sorted(structure):
        for name in sorted(structure[module]):
            yield module, name, structure[module][name]


def partition_n(
    fn: Callable[[str, str, T], int], structure: TwoLevel[T], n: int
) -> tuple[dict[str, dict[str, T]], ...]:
    """Splits a structure into `n` parts.

    Args:
      fn: called as `fn(module, name, value)`; it returns the number of the part, in `[0, n)`.
      structure: `{module: {name: value}}`.
      n: the number of parts.

    Returns:
      `n` structures; a module is only in those parts that contain one of its values.

    Raises:
      AssertionError: if `fn` returns a number that is not in `[0, n)`.

    Example:

      >>> import hkx
      >>> params = {"a": {"w": 1, "b": 2}, "c": {"w": 3}}
      >>> hkx.data_structures.partition_n(lambda module, name, value: value - 1, params, 3)
      ({'a': {'w': 1}}, {'a': {'b': 2}}, {'c': {'w': 3}})
    """
    return _partition_n(fn, structure, n, "partition_n")


def _partition_n(
    fn: Callable[[str, str, T], int], structure: TwoLevel[T], n: int, taker: str
) -> tuple[dict[str, dict[str, T]], ...]:
    n = checked_integer(n, "n")
    parts: tuple[dict[str, dict[str, T]], ...] = tuple({} for _ in range(n))
    for module, name, value in _entries(taker, structure, fn):
        part = fn(module, name, value)
        if not 0 <= part < n:
            raise AssertionError(
                f"`fn` returned {part} for {f'{module}/{name}'!r}; with n={n}, a part must be in range [0, {n})."
            )
        parts[part].setdefault(module, {})[name] = value
    return parts


def partition(
    predicate: Callable[[str, str, T], bool], structure: TwoLevel[T]
) -> tuple[dict[str, dict[str, T]], dict[str, dict[str, T]]]:
    """Splits a structure in two.

    Args:
      predicate: called as `predicate(module, name, value)`.
      structure: `{module: {name: value}}`.

    Returns:
      The part for which the predicate is true, and the rest.

    Example:

      >>> import hkx
      >>> params = {"linear": {"w": 1, "b": 2}, "norm": {"scale": 3}}
      >>> hkx.data_structures.partition(lambda module, name, value: module == "linear", params)
      ({'linear': {'b': 2, 'w': 1}}, {'norm': {'scale': 3}})
    """
    return _partition(predicate, structure, "partition")


def _partition(
    predicate: Callable[[str, str, T], bool], structure: TwoLevel[T], taker: str
) -> tuple[dict[str, dict[str, T]], dict[str, dict[str, T]]]:
    checked_function(predicate, f"hkx.data_structures.{taker}", "predicate")
    true, false = _partition_n(lambda *entry: 0 if predicate(*entry) else 1, structure, 2, taker)
    return true, false


def filter(predicate: Callable[[str, str, T], bool], structure: TwoLevel[T]) -> dict[str, dict[str, T]]:
    """Returns the part of a structure for which a predicate is true.

    Args:
      predicate: called as `predicate(module, name, value)`.
      structure: `{module: {name: value}}`.

    Returns:
      A structure; a module without values is left out.

    Example:

      >>> import hkx
      >>> params = {"linear": {"w": 1, "b": 2}, "norm": {"scale": 3}}
      >>> hkx.data_structures.filter(lambda module, name, value: name == "w", params)
      {'linear': {'w': 1}}
    """
    return _partition(predicate, structure, "filter")[0]


def map(fn: Callable[[str, str, T], U], structure: TwoLevel[T]) -> dict[str, dict[str, U]]:
    """Replaces every value of a structure by `fn(module, name, value)`.

    Args:
      fn: the function.
      structure: `{module: {name: value}}`.

    Returns:
      A structure with the same modules and names; a module without values is left out.

    Example:

      >>> import hkx
      >>> params = {"linear": {"w": 1, "b": 2}}
      >>> hkx.data_structures.map(lambda module, name, value: value if name == "w" else 2 * value, params)
      {'linear': {'b': 4, 'w': 1}}
    """
    out: dict[str, dict[str, U]] = {}
    for module, name, value in _entries("map", structure, fn):
        out.setdefault(module, {})[name] = fn(module, name, value)
    return out


def _spec(value: Any) -> tuple[tuple[int, ...], np.dtype]:
    return np.shape(value), getattr(value, "dtype", None) or jax.dtypes.result_type(value)


def _is_array(value: Any) -> bool:
    """True if `value` has a shape, as a plain number does."""
    return hasattr(value, "shape") or isinstance(value, int | float | complex)


def _described(value: Any) -> str:
    """A description such as `f32[2,3]`, or the `repr` of something that is not an array, such as a dict of arrays."""
    return repr(ArraySpec(*_spec(value))) if _is_array(value) else repr(value)


def _differ(a: Any, b: Any) -> bool:
    """True if one of two values is an array, and the other has another shape or dtype, or is not an array."""
    return any(hasattr(x, "shape") and hasattr(x, "dtype") for x in (a, b)) and _described(a) != _described(b)


def merge(*structures: TwoLevel[Any], check_duplicates: bool = False) -> dict[str, dict[str, Any]]:
    """Merges structures into one; if several contain a value with the same name, the last one is used.

    Args:
      *structures: mappings `{module: {name: value}}`.
      check_duplicates: whether arrays with the same name must have the same shape and dtype.

    Returns:
      A structure.

    Raises:
      ValueError: if that check fails.

    Example:

      >>> import hkx
      >>> hkx.data_structures.merge({"linear": {"w": 1, "b": 2}}, {"linear": {"w": 3}, "norm": {"scale": 4}})
      {'linear': {'b': 2, 'w': 3}, 'norm': {'scale': 4}}
    """
    out: dict[str, dict[str, Any]] = {}
    check_duplicates = checked_flag(check_duplicates, "check_duplicates", "merge")
    for structure in structures:
        for module, name, value in _entries("merge", structure):
            entries = out.setdefault(module, {})
            if check_duplicates and name in entries and _differ(entries[name], value):
                raise ValueError(
                    f"Duplicate array found with a different shape/dtype: {f'{module}/{name}'!r} is "
                    f"{_described(entries[name])} vs {_described(value)}. Rename one of them, or leave "
                    "`check_duplicates` off to take the last one."
                )
            entries[name] = value
    return out


def is_subset(*, subset: TwoLevel[Any], superset: TwoLevel[Any]) -> bool:
    """Returns whether every name of one structure is in the other; values are not compared.

    Args:
      subset: `{module: {name: value}}`, the names to look for.
      superset: `{module: {name: value}}`, in which they are searched.

    Returns:
      True if it contains all names.

    Example:

      >>> import hkx
      >>> hkx.data_structures.is_subset(subset={"a": {"w": 1}}, superset={"a": {"w": 2, "b": 3}})
      True
    """
    check_structure("is_subset", superset, "superset")
    return all(name in superset.get(module, {}) for module, name, _ in _entries("is_subset", subset))


def tree_size(tree: Any) -> int:
    """Returns the total number of elements of all arrays in a tree.

    Args:
      tree: a tree of arrays, or of anything with a shape and a dtype; a plain number counts as the array to which JAX
        converts it.

    Returns:
      The number.

    Raises:
      NotAnArrayError: if there is something else in the tree, such as a mapping that is not a pytree.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.data_structures.tree_size({"linear": {"w": jnp.ones([2, 3]), "b": jnp.ones(3)}})
      9
    """
    return sum(math.prod(shape) for shape, _ in _specs(tree))


def _specs(tree: Any) -> Iterator[tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each array in a tree."""
    for path, leaf in jax.tree.leaves_with_path(tree):
        if not _is_array(leaf):
            raise NotAnArrayError(f"tree{jax.tree_util.keystr(path)}", leaf)
        yield _spec(leaf)


def tree_bytes(tree: Any) -> int:
    """Returns the total number of bytes of all arrays in a tree.

    Args:
      tree: as for `tree_size`.

    Returns:
      The number.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.data_structures.tree_bytes({"w": jnp.ones([2, 3]), "h": jnp.ones([4], jnp.bfloat16)})
      32
    """
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in _specs(tree))
