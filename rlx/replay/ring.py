"""Items in a ring, the newest in place of the oldest, and uniform draws from it."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.checks import check, whole_number
from rlx.core.errors import ArgumentError, ShapeError
from rlx.core.types import Array, ArrayLike, PyTree
from rlx.replay.contract import Replay, Sample, as_items, as_leaf


class Ring(NamedTuple):
    """Items, where the next one goes, and how many there are."""

    items: PyTree  # each leaf [N, ...]
    head: Array  # int32 [], in [0, N)
    size: Array  # int32 [], in [0, N]


def uniform(capacity: int) -> Replay:
    """A replay that holds the last items and draws each of them with the same probability.

    From "Self-improving reactive agents based on reinforcement learning, planning and teaching", Lin 1992. Draws are
    independent of each other, and all weights are 1.

    Args:
      capacity: how many items it holds, a positive Python integer.

    Returns:
      `Replay`, which says what its functions take. `update_priorities` changes nothing.

    Raises:
      OptionError: if `capacity` is not a positive whole number.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> replay = rlx.replay.uniform(capacity=3)
      >>> state = replay.init({"s_tm1": jnp.zeros(2), "a_tm1": 0})
      >>> state = replay.add_batch(state, {"s_tm1": jnp.ones([2, 2]), "a_tm1": jnp.array([4, 5])})
      >>> state = replay.add_batch(state, {"s_tm1": jnp.ones([2, 2]), "a_tm1": jnp.array([6, 7])})
      >>> sample = replay.sample(state, jax.random.key(0), n=100)
      >>> sorted(set(sample.items["a_tm1"].tolist())), sample.items["s_tm1"].shape
      ([5, 6, 7], (100, 2))
    """
    capacity = whole_number("replay.uniform", "capacity", capacity, "a positive number of items")
    # Parts of functions of this module can be pickled, functions made here could not.
    init = functools.partial(empty_ring, capacity)
    return Replay(init, _add, _add_batch, _sample, _can_sample, _update_priorities)


def empty_ring(capacity: int, item: PyTree) -> Ring:
    """A ring that holds no items yet, for items like this one."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(item)
    if not leaves:
        raise ArgumentError(f"replay.init: argument `item` is {item!r}, expected a tree with at least one array.")
    places = []
    for path, leaf in leaves:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            leaf = as_leaf("replay.init", f"argument `item`{jax.tree_util.keystr(path)}", leaf)
        places.append(jnp.zeros((capacity, *leaf.shape), leaf.dtype))
    return Ring(jax.tree.unflatten(structure, places), jnp.zeros([], jnp.int32), jnp.zeros([], jnp.int32))


def push(ring: Ring, items: PyTree) -> tuple[Ring, Array]:
    """The ring with items [B, ...] in place of the oldest, and the places [B] that they have now."""
    capacity, number = length_of(ring.items), length_of(items)
    if number > capacity:
        raise ShapeError(
            f"replay.add_batch: argument `items` holds {number} items, expected at most {capacity}, the capacity.\n"
            "Add fewer at a time, or make the replay larger."
        )
    places = (ring.head + jnp.arange(number, dtype=jnp.int32)) % capacity
    held = jax.tree.map(lambda x, new: x.at[places].set(new, mode="drop", unique_indices=True), ring.items, items)
    return Ring(held, (ring.head + number) % capacity, jnp.minimum(ring.size + number, capacity)), places


def take(ring: Ring, places: Array) -> PyTree:
    """The items at these places."""
    return jax.tree.map(lambda x: x.at[places].get(mode="clip"), ring.items)


def length_of(tree: PyTree) -> int:
    """The length of the first axis, which all leaves share."""
    return jax.tree.leaves(tree)[0].shape[0]


def random_below(key: Array, shape: tuple[int, ...], bound: Array) -> Array:
    """Integers in [0, bound), as good as equally likely: ⌊bits · bound / 2³²⌋. They are 0 where `bound` is."""
    # A product of 64 bits from its halves: floats of 24 bits would prefer some of a million items to others.
    bits, bound = jax.random.bits(key, shape, jnp.uint32), bound.astype(jnp.uint32)
    high, low, bound_high, bound_low = bits >> 16, bits & 0xFFFF, bound >> 16, bound & 0xFFFF
    middle = high * bound_low + (low * bound_low >> 16)
    carried = low * bound_high + (middle & 0xFFFF)
    return (high * bound_high + (middle >> 16) + (carried >> 16)).astype(jnp.int32)


def _add(state: Ring, item: PyTree) -> Ring:
    items = as_items("replay.add", "item", item, state.items, ())
    return push(state, jax.tree.map(lambda x: x[None], items))[0]


def _add_batch(state: Ring, items: PyTree) -> Ring:
    return push(state, as_items("replay.add_batch", "items", items, state.items, ("B",)))[0]


def _sample(state: Ring, key: Array, n: int) -> Sample:
    n = whole_number("replay.sample", "n", n, "a positive number of items")
    places = random_below(key, (n,), state.size)
    weights = jnp.broadcast_to(jnp.where(state.size > 0, jnp.float32(1), 0), [n])
    return Sample(take(state, places), places, weights)


def _can_sample(state: Ring, n: int = 1) -> Array:
    return state.size >= whole_number("replay.can_sample", "n", n, "a positive number of items")


def _update_priorities(state: Ring, indices: ArrayLike, priorities: ArrayLike) -> Ring:
    as_priorities(indices, priorities)
    return state


def as_priorities(indices: ArrayLike, priorities: ArrayLike) -> tuple[Array, Array]:
    """The arguments of `update_priorities`, checked."""
    indices, priorities = check(
        "replay.update_priorities", indices=(indices, "[B]", "int"), priorities=(priorities, "[B]", "real in [0, inf)")
    )
    return indices, priorities
