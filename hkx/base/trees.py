"""Trees in containers of their own, and arrays in memory of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def own_tree(tree: Any, leaf: Callable[[Any], Any] = lambda x: x) -> Any:
    """`tree` rebuilt of new containers, with `leaf` applied to its leaves, as JAX hands it to what it traces.

    What the function does to it (`d.pop("x")`) is not seen by other calls, nor by who made it. A dict keeps its order:
    a function that is called directly sees its keys in that, and one that JAX calls sees them sorted.
    """
    if type(tree) in (dict, defaultdict):
        copy = tree.copy()
        copy.update((key, own_tree(value, leaf)) for key, value in tree.items())
        return copy
    parts, structure = jax.tree.flatten(tree, is_leaf=lambda x: x is not tree)
    if len(parts) == 1 and parts[0] is tree:
        return leaf(tree)
    return jax.tree.unflatten(structure, [own_tree(part, leaf) for part in parts])


def unshared(x: Any) -> Any:
    """`x`; of an array of NumPy's a copy, whose memory nobody fills anew while JAX refers to it."""
    return x.copy() if type(x) is np.ndarray and x.flags.writeable else x
