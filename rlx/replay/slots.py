"""Slots for items: arrays with an additional leading axis, and functions to write to and read from them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.annotations import Mask
from rlx.core.arguments import as_arrays, whole
from rlx.core.errors import ArgumentError
from rlx.core.types import Array, ArrayLike, PyTree
from rlx.replay.contract import as_leaf

OUT_OF_BOUNDS = np.iinfo(np.int32).max
"""A slot outside every replay: items written to it are dropped."""

MOST = 2**30
"""The largest capacity: the sum of two slots fits into their dtype, int32."""


def number_of_items(argument: str, value: Any, function: str) -> int:
    """Returns a number of items that a replay may hold."""
    return whole(argument, value, f"a positive number of items, at most {MOST}", function, 1, MOST)


def empty_slots(capacity: int, item: PyTree) -> PyTree:
    """Empty slots [N, ...] for items like this one, filled with zeros."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(item)
    if not leaves:
        raise ArgumentError(f"replay.init: argument `item` is {item!r}, expected a tree with at least one array.")
    made = [as_leaf("replay.init", f"argument `item`{jax.tree_util.keystr(path)}", leaf) for path, leaf in leaves]
    return jax.tree.unflatten(structure, [jnp.zeros((capacity, *leaf.shape), leaf.dtype) for leaf in made])


def length_of(tree: PyTree) -> int:
    """The length of the first axis, which all leaves share."""
    return jax.tree.leaves(tree)[0].shape[0]


def order_of(items: PyTree, mask: ArrayLike | None) -> tuple[Array, Array]:
    """For items [B, ...], the position of each among those to add, from 1, or 0 if not added; the number added."""
    number = length_of(items)
    if mask is None:
        return jnp.arange(1, number + 1, dtype=jnp.int32), jnp.full([], number, jnp.int32)
    (chosen,) = as_arrays("replay.add_batch", mask=(mask, Mask[Array, f"{number}"]))
    return jnp.where(chosen, jnp.cumsum(chosen, dtype=jnp.int32), 0), jnp.sum(chosen, dtype=jnp.int32)


def out_of_bounds(number: int) -> Array:
    """Distinct slots outside every replay."""
    return OUT_OF_BOUNDS - jnp.arange(number, dtype=jnp.int32)


def put_at(held: PyTree, slots: Array, items: PyTree) -> PyTree:
    """Writes items [B, ...] to distinct slots [B]."""
    return jax.tree.map(lambda x, new: x.at[slots].set(new, mode="drop", unique_indices=True), held, items)


def take_at(held: PyTree, slots: Array) -> PyTree:
    """The items [n, ...] at slots [n]."""
    return jax.tree.map(lambda x: x.at[slots].get(mode="clip"), held)
