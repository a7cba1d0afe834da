"""Trees of arrays: selecting, splitting, mapping, and records (dataclasses that are also pytrees and mappings)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.annotations import Mask
from rlx.core.arguments import as_switch, require, whole
from rlx.core.arrays import replace_masked
from rlx.core.errors import ArgumentError, RankError, ShapeError
from rlx.core.keys import as_key
from rlx.core.leaves import as_arrays_of, require_alike, require_structure
from rlx.core.operator import operator
from rlx.core.types import Array, PyTree


@operator()
def tree_select(pred: Mask[Array, "*E"], on_true: PyTree, on_false: PyTree) -> PyTree:
    """Selects between two trees: `on_true` where `pred` is true, otherwise `on_false`.

    Args:
      pred: a scalar, or an array of the shape of every leaf to select elementwise.
      on_true: tree of arrays.
      on_false: tree of the same structure, shapes and dtypes.

    Returns:
      A tree like `on_true`.

    Example:
      >>> import rlx
      >>> rlx.tree_select(True, {"a": 1.0}, {"a": 2.0})["a"].tolist()
      1.0
    """
    return selected(pred=pred, on_true=on_true, on_false=on_false)


def selected(**arguments: Any) -> PyTree:
    """Selects between two trees by a mask. The three arguments, the mask first, are passed by their names in errors.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.trees import selected
      >>> selected(pred=jnp.array(True), new=1.0, old=2.0).item()
      1.0
    """
    (pred_name, true_name, false_name), (pred, *trees) = arguments, arguments.values()
    on_true, on_false = as_arrays_of(true_name, trees[0]), as_arrays_of(false_name, trees[1])
    require_alike(false_name, on_false, true_name, on_true)
    for path, leaf in jax.tree_util.tree_flatten_with_path(on_true)[0]:
        if pred.shape not in ((), leaf.shape):
            raise ShapeError(
                f"argument `{pred_name}` has shape {list(pred.shape)}, expected shape [] or that of every leaf, which "
                f"is {list(leaf.shape)} of `{true_name}`{jax.tree_util.keystr(path)}."
            )
    return jax.tree.map(lambda x, y: jax.lax.select(pred, x, y), on_true, on_false)


@operator()
def tree_replace_masked(tree_data: PyTree, tree_replacement: PyTree | None, mask: Mask[Array, "*E"]) -> PyTree:
    """Replaces the entries of every leaf where the mask is true (`rlx.replace_masked` over a tree).

    Args:
      tree_data: tree of arrays.
      tree_replacement: tree of the same structure, or None for zeros.
      mask: its shape is a prefix of that of every leaf.

    Returns:
      A tree like `tree_data`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.tree_replace_masked({"a": jnp.ones(2)}, None, jnp.array([0, 1]))["a"].tolist()
      [1.0, 0.0]
    """

    tree_data = as_arrays_of("tree_data", tree_data)
    if tree_replacement is None:
        return jax.tree.map(lambda data: replace_masked.kernel(data, None, mask), tree_data)
    require_structure("tree_replacement", tree_replacement, "tree_data", tree_data)
    tree_replacement = as_arrays_of("tree_replacement", tree_replacement)
    return jax.tree.map(lambda data, new: replace_masked.kernel(data, new, mask), tree_data, tree_replacement)


def tree_map_zipped(fn: Callable[..., Any], nests: Sequence[PyTree]) -> PyTree:
    """Maps a function over a list of trees: each leaf of the result is `fn` of the trees' corresponding leaves.

    Args:
      fn: function of len(nests) leaves.
      nests: trees of the same structure.

    Returns:
      A tree of that structure, or `nests` itself if it is empty.

    Raises:
      ArgumentError: if the structures differ.

    Example:
      >>> import rlx
      >>> rlx.tree_map_zipped(lambda x, y: x + y, [{"a": 1}, {"a": 2}])
      {'a': 3}
    """
    require(callable(fn), "fn", fn, "a function of leaves", "tree_map_zipped")
    require(isinstance(nests, (list, tuple)), "nests", nests, "a list of trees", "tree_map_zipped")
    if not nests:
        return nests
    structures = [jax.tree.structure(nest) for nest in nests]
    for index, structure in enumerate(structures):
        if structure != structures[0]:
            raise ArgumentError(
                f"tree_map_zipped: argument `nests` holds different structures: nests[{index}] is {structure}, "
                f"expected {structures[0]} as in nests[0]: all must share the same tree structure."
            )
    return jax.tree.map(fn, *nests)


def tree_fn(fn: Callable[..., Any], **unmapped_kwargs: Any) -> Callable[..., Any]:
    """Turns a function of leaves into a function of trees.

    Args:
      fn: function of leaves.
      **unmapped_kwargs: keyword arguments passed to `fn` unchanged, not mapped over.

    Returns:
      A function of trees of the same structure.

    Example:
      >>> import rlx
      >>> rlx.tree_fn(lambda x, y, scale: scale * (x + y), scale=10)({"a": 1}, {"a": 2})
      {'a': 30}
    """
    require(callable(fn), "fn", fn, "a function of leaves", "tree_fn")
    return functools.partial(jax.tree.map, functools.partial(fn, **unmapped_kwargs))


def tree_split_key(rng_key: Array, tree_like: PyTree) -> tuple[Array, PyTree]:
    """Makes one random key for each leaf of a tree.

    Args:
      rng_key: a key of `jax.random`, typed or raw.
      tree_like: any tree.

    Returns:
      (new key, tree of keys of the structure of `tree_like`).

    Example:
      >>> import jax
      >>> import rlx
      >>> key, keys = rlx.tree_split_key(jax.random.key(0), {"a": 1, "b": 2})
      >>> sorted(keys)
      ['a', 'b']
    """
    rng_key = as_key("rng_key", rng_key, "tree_split_key")
    leaves, structure = jax.tree.flatten(tree_like)
    rng_key, *keys = jax.random.split(rng_key, len(leaves) + 1)
    return rng_key, jax.tree.unflatten(structure, keys)


def tree_split_leaves(tree_like: PyTree, axis: int = 0, keepdim: bool = False) -> tuple[PyTree, ...]:
    """Splits a tree of arrays into one tree for each index along an axis.

    NumPy leaves become views, without a copy.

    Args:
      tree_like: tree of arrays of one length along `axis`.
      axis: the axis to split.
      keepdim: keep that axis, with length 1.

    Returns:
      A tuple of trees, one for each index along `axis`, or `tree_like` itself if it is empty.

    Raises:
      ArgumentError: if the leaves differ in length.

    Example:
      >>> import numpy as np
      >>> import rlx
      >>> [int(tree["a"]) for tree in rlx.tree_split_leaves({"a": np.array([1, 2])})]
      [1, 2]
    """
    leaves, structure = jax.tree.flatten(tree_like)
    if not leaves and not tree_like:
        return tree_like
    axis = whole("axis", axis, "an axis that all leaves have", "tree_split_leaves")
    keepdim = as_switch("keepdim", keepdim, "tree_split_leaves")
    fewest = min((np.ndim(leaf) for leaf in leaves), default=0)
    require(-fewest <= axis < fewest, "axis", axis, "an axis that all leaves of `tree_like` have", "tree_split_leaves")
    lengths = {np.shape(leaf)[axis] for leaf in leaves}
    if len(lengths) != 1:
        raise ArgumentError(
            f"tree_split_leaves: argument `tree_like` has leaves of lengths {sorted(lengths)} along axis {axis}, "
            "expected one length."
        )

    def pick(leaf: Any, index: int) -> Any:
        where: list[Any] = [*[slice(None)] * np.ndim(leaf), ...]  # with the ellipsis, a single number is a view too
        where[axis % np.ndim(leaf)] = slice(index, index + 1) if keepdim else index
        return leaf[tuple(where)]

    return tuple(jax.tree.unflatten(structure, [pick(leaf, i) for leaf in leaves]) for i in range(lengths.pop()))


def transpose_last_axis_to_first(tree: PyTree) -> PyTree:
    """Moves the last axis of every leaf to the front: [D_1, ..., D_n] becomes [D_n, D_1, ..., D_{n-1}].

    Args:
      tree: tree of arrays of rank one or more.

    Returns:
      A tree of the same structure.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.transpose_last_axis_to_first(jnp.ones([2, 3, 4])).shape
      (4, 2, 3)
    """
    return _moved("transpose_last_axis_to_first", tree, -1, 0)


def transpose_first_axis_to_last(tree: PyTree) -> PyTree:
    """Moves the first axis of every leaf to the end: [D_1, ..., D_n] becomes [D_2, ..., D_n, D_1].

    Args:
      tree: tree of arrays of rank one or more.

    Returns:
      A tree of the same structure.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.transpose_first_axis_to_last(jnp.ones([2, 3, 4])).shape
      (3, 4, 2)
    """
    return _moved("transpose_first_axis_to_last", tree, 0, -1)


def _moved(function: str, tree: PyTree, source: int, destination: int) -> PyTree:
    tree = as_arrays_of("tree", tree, function)
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if leaf.ndim == 0:
            subject = f"argument `tree`{jax.tree_util.keystr(path)}"
            raise RankError(f"{function}: {subject} has rank 0 (shape []), expected at least one axis.")
    return jax.tree.map(lambda x: jnp.moveaxis(x, source, destination), tree)


class Record(Mapping[str, Any]):
    """Base of the small state classes, whose fields are attributes, keys, a tuple, and the children of a pytree.

    A subclass decorated with `@record` is a dataclass registered with JAX. `replace` returns a changed copy.
    """

    def __getitem__(self, key: str) -> Any:
        if key not in self._fields():
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields())

    def __len__(self) -> int:
        return len(self._fields())

    def replace(self, **kwargs: Any) -> Self:
        """A copy with the given fields changed."""
        return type(self)(**{**dict(self), **kwargs})

    def to_tuple(self) -> tuple[Any, ...]:
        """The fields in order of declaration."""
        return tuple(self.values())

    @classmethod
    def from_tuple(cls, args: Sequence[Any]) -> Self:
        """The record whose fields, in order of declaration, are `args`."""
        return cls(*args)

    @classmethod
    def _fields(cls) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(cls))  # pyright: ignore[reportArgumentType]


@dataclass_transform(eq_default=False)
def record(cls: type) -> type:
    """Makes a subclass of `Record` a dataclass and a pytree, whose children are its fields, ordered by name."""
    made = dataclasses.dataclass(eq=False)(cls)
    names = sorted(field.name for field in dataclasses.fields(made))  # as in RLax: saved leaves are compatible
    return jax.tree_util.register_dataclass(made, data_fields=names, meta_fields=[])
