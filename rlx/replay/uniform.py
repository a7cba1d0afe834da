"""Uniform replay: a ring buffer in which new items replace the oldest, sampled uniformly."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.errors import ShapeError
from rlx.core.keys import as_key
from rlx.core.types import Array, ArrayLike, PyTree
from rlx.replay.contract import Replay, Sample, as_items, as_priorities, replay_of
from rlx.replay.slots import empty_slots, length_of, number_of_items, order_of, out_of_bounds, put_at, take_at


class Ring(NamedTuple):
    """The items, the slot of the next one, and the number of items."""

    items: PyTree  # each leaf [N, ...]
    head: Array  # int32 [], in [0, N)
    size: Array  # int32 [], in [0, N]


def uniform(capacity: int) -> Replay:
    """A replay that holds the most recent items and samples them uniformly.

    From "Self-improving reactive agents based on reinforcement learning, planning and teaching", Lin 1992. Draws are
    independent, and all weights are 1.

    Args:
      capacity: the maximum number of items, a positive Python integer.

    Returns:
      A `Replay`, which documents its functions. `update_priorities` has no effect.

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
    capacity = number_of_items("capacity", capacity, "replay.uniform")
    # Partial applications of module-level functions can be pickled; local functions could not.
    init = functools.partial(empty_ring, capacity)
    return replay_of(Ring, init, _add, _add_batch, _sample, _can_sample, keep_priorities)


def empty_ring(capacity: int, item: PyTree) -> Ring:
    """An empty ring buffer for items like this one."""
    return Ring(empty_slots(capacity, item), jnp.zeros([], jnp.int32), jnp.zeros([], jnp.int32))


def push(ring: Ring, items: PyTree, mask: ArrayLike | None = None) -> tuple[Ring, Array]:
    """Replaces the oldest items by items [B, ...]; also returns their slots [B]."""
    capacity, number = length_of(ring.items), length_of(items)
    if number > capacity:
        raise ShapeError(
            f"replay.add_batch: argument `items` holds {number} items, expected at most {capacity}, the capacity.\n"
            "Add fewer at a time, or make the replay larger."
        )
    order, added = order_of(items, mask)
    slots = jnp.where(order > 0, (ring.head + order - 1) % capacity, out_of_bounds(number))
    size = jnp.minimum(ring.size + added, capacity)
    return Ring(put_at(ring.items, slots, items), (ring.head + added) % capacity, size), slots


def uniform_sample(items: PyTree, size: Array, key: Array, n: int) -> Sample:
    """n of the items at the first `size` slots, drawn uniformly."""
    n, key = number_of_items("n", n, "replay.sample"), as_key("key", key, "replay.sample")
    # Uses all 32 bits: with the 24 bits of a float, probabilities among a million items would differ by an eighth.
    slots = (jax.random.bits(key, [n], jnp.uint32) % jnp.maximum(size, 1).astype(jnp.uint32)).astype(jnp.int32)
    return Sample(take_at(items, slots), slots, jnp.broadcast_to(jnp.where(size > 0, jnp.float32(1), 0), [n]))


def enough(size: Array, n: int) -> Array:
    """True if the replay holds n items."""
    return size >= number_of_items("n", n, "replay.can_sample")


def keep_priorities(state: PyTree, indices: ArrayLike, priorities: ArrayLike) -> PyTree:
    """The `update_priorities` of replays that have none."""
    as_priorities(indices, priorities)
    return state


def _add(state: Ring, item: PyTree) -> Ring:
    items = as_items("replay.add", "item", item, state.items, ())
    return push(state, jax.tree.map(lambda x: x[None], items))[0]


def _add_batch(state: Ring, items: PyTree, mask: ArrayLike | None = None) -> Ring:
    return push(state, as_items("replay.add_batch", "items", items, state.items, ("B",)), mask)[0]


def _sample(state: Ring, key: Array, n: int) -> Sample:
    return uniform_sample(state.items, state.size, key, n)


def _can_sample(state: Ring, n: int = 1) -> Array:
    return enough(state.size, n)
