"""Copies of the containers of a tree, and of NumPy arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def own_tree(tree: Any, leaf: Callable[[Any], Any] = lambda x: x) -> Any:
    """Copies the containers of `tree`, and applies `leaf` to its leaves, as JAX does for functions that it traces.

    Changes that the function makes to a container (`d.pop("x")`) then affect neither the caller nor other calls. Unlike
    in JAX, whose functions see the keys of a dict sorted, the order of keys is preserved, as in a direct call.
    """
    if type(tree) in (dict, defaultdict):
        copy = tree.copy()
        copy.update((key, own_tree(value, leaf)) for key, value in tree.items())
        return copy
    parts, structure = jax.tree.flatten(tree, is_leaf=lambda x: x is not tree)
    if len(parts) == 1 and parts[0] is tree:
        return leaf(tree)
    return jax.tree.unflatten(structure, [own_tree(part, leaf) for part in parts])


def key_orders(tree: Any) -> Any:
    """The order of the keys in a dict and in the dicts in it, without other values; None for anything else."""
    return {key: key_orders(value) for key, value in tree.items()} if type(tree) in (dict, defaultdict) else None


def reordered(tree: Any, orders: Any) -> Any:
    """A tree whose dicts JAX has sorted, with the orders of keys that `key_orders` gave for it before."""
    if orders is None:
        return tree
    copy = tree.copy()
    copy.clear()
    copy.update((key, reordered(tree[key], order)) for key, order in orders.items())
    return copy


def unshared(x: Any) -> Any:
    """Copies `x` if it is a writeable NumPy array, so that nobody overwrites it while JAX refers to it."""
    return x.copy() if type(x) is np.ndarray and x.flags.writeable else x
