"""Reservoir sampling: every item so far is equally likely to be in the replay."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.keys import as_key
from rlx.core.types import Array, ArrayLike, PyTree
from rlx.replay.contract import Replay, Sample, as_items, replay_of
from rlx.replay.slots import empty_slots, length_of, number_of_items, order_of, out_of_bounds, put_at
from rlx.replay.uniform import enough, keep_priorities, uniform_sample

_MOST = np.iinfo(np.int32).max


class ReservoirState(NamedTuple):
    """The items, how many there have been so far, and the key for future decisions."""

    items: PyTree  # each leaf [N, ...]
    seen: Array  # int32 []
    key: Array


def reservoir(capacity: int) -> Replay:
    """A replay that holds a uniform random sample of all items added so far.

    The t-th item goes to slot t while t <= N; after that, it goes to a slot drawn from 1 to t, or is dropped if there
    is no such slot: algorithm R of "Random sampling with a reservoir", Vitter 1985 (https://doi.org/10.1145/3147.3165),
    as for the average policies of "Deep Reinforcement Learning from Self-Play in Imperfect-Information Games", Heinrich
    and Silver 2016 (https://arxiv.org/abs/1603.01121). Items are drawn as in `rlx.replay.uniform`.

    Its `init(item, key)` also takes a key of `jax.random`, since the choice of items to keep is random. A batch may be
    larger than the capacity. The count of items stops at 2³¹ - 1; later items are treated like the last one counted.

    Args:
      capacity: the maximum number of items, a positive Python integer.

    Returns:
      A `Replay`, which documents its functions. `update_priorities` has no effect.

    Raises:
      OptionError: if `capacity` is not a positive whole number.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> replay = rlx.replay.reservoir(capacity=3)
      >>> state = replay.init(0, jax.random.key(0))
      >>> state = replay.add_batch(state, jnp.arange(10))
      >>> held = set(replay.sample(state, jax.random.key(1), n=100).items.tolist())
      >>> len(held), held <= set(range(10))
      (3, True)
    """
    capacity = number_of_items("capacity", capacity, "replay.reservoir")
    # Partial applications of module-level functions can be pickled; local functions could not.
    return replay_of(
        ReservoirState, functools.partial(_init, capacity), _add, _add_batch, _sample, _can_sample, keep_priorities
    )


def _init(capacity: int, item: PyTree, key: Array) -> ReservoirState:
    return ReservoirState(empty_slots(capacity, item), jnp.zeros([], jnp.int32), as_key("key", key, "replay.init"))


def _add(state: ReservoirState, item: PyTree) -> ReservoirState:
    items = as_items("replay.add", "item", item, state.items, ())
    return _push(state, jax.tree.map(lambda x: x[None], items), None)


def _add_batch(state: ReservoirState, items: PyTree, mask: ArrayLike | None = None) -> ReservoirState:
    return _push(state, as_items("replay.add_batch", "items", items, state.items, ("B",)), mask)


def _push(state: ReservoirState, items: PyTree, mask: ArrayLike | None) -> ReservoirState:
    capacity, number = length_of(state.items), length_of(items)
    key, key_of_slots = jax.random.split(state.key)
    order, added = order_of(items, mask)
    before = jnp.minimum(state.seen, _MOST - number)
    t = before + order
    drawn = jax.random.randint(key_of_slots, [number], 0, jnp.maximum(t, 1), jnp.int32)
    slots = jnp.where(t <= capacity, t - 1, drawn)
    slots = jnp.where((order > 0) & (slots < capacity), slots, out_of_bounds(number))
    return ReservoirState(put_at(state.items, _last_of_each(slots), items), before + added, key)


def _last_of_each(slots: Array) -> Array:
    """Makes slots distinct: of equal slots, all but the last are replaced by slots outside the replay."""
    order = jnp.argsort(slots, stable=True)
    ordered = slots[order]
    last = jnp.append(ordered[1:] != ordered[:-1], True)
    return slots.at[order].set(jnp.where(last, ordered, out_of_bounds(len(slots))))


def _size(state: ReservoirState) -> Array:
    return jnp.minimum(state.seen, length_of(state.items))


def _sample(state: ReservoirState, key: Array, n: int) -> Sample:
    return uniform_sample(state.items, _size(state), key, n)


def _can_sample(state: ReservoirState, n: int = 1) -> Array:
    return enough(_size(state), n)
