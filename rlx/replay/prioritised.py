"""Prioritised replay: items are drawn in proportion to a power of their priorities."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.annotations import Real
from rlx.core.arguments import as_arrays
from rlx.core.keys import as_key
from rlx.core.types import Array, ArrayLike, PyTree, wide_dtype
from rlx.replay.contract import Replay, Sample, as_items, as_priorities, replay_of
from rlx.replay.slots import OUT_OF_BOUNDS, length_of, number_of_items, take_at
from rlx.replay.sum_tree import draw, empty_tree, put, total
from rlx.replay.uniform import Ring, empty_ring, enough, push


class PrioritisedState(NamedTuple):
    """The items, the sums of p^α, and the highest p^α so far."""

    ring: Ring
    tree: Array  # the masses p^α and their sums; see `rlx.replay.sum_tree`
    highest: Array  # float32 []


def prioritised(capacity: int, exponent: ArrayLike, beta: ArrayLike) -> Replay:
    """A replay that draws items in proportion to a power of their priorities, with importance weights.

    Item i is drawn with probability P(i) = p_i^α / Σ_k p_k^α and has the weight w_i = (N P(i))^-β / max_j w_j, with the
    maximum over the sample: the proportional variant of "Prioritized Experience Replay", Schaul et al. 2016
    (https://arxiv.org/abs/1511.05952).

    A new item gets the highest priority so far, initially 1. An item of priority 0 is never drawn, for any exponent. A
    negative, NaN or infinite priority is an error if its value is known; if it is traced, it is ignored. Priorities are
    capped so that the sum of N of them does not overflow. If one update gives an item several priorities, the highest
    is used.

    Draws are stratified: the sum of priorities is split into n parts, and one item is drawn from each; any part of the
    sample is spread over the replay like the whole sample. If nothing can be drawn, because the replay is empty or all
    priorities are 0, the weights are 0.

    Args:
      capacity: the maximum number of items, a positive Python integer.
      exponent: α in [0, 1], number []; 0 draws items uniformly.
      beta: β in [0, 1], number []. Only `sample` uses it: for a schedule, create the functions again in each step, with
        a β that may be traced, as below; the state stays the same.

    Returns:
      A `Replay`, which documents its functions.

    Raises:
      OptionError: if `capacity` is not a positive whole number, or `exponent` or `beta` is out of range.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> replay = rlx.replay.prioritised(capacity=4, exponent=1.0, beta=1.0)
      >>> state = replay.add_batch(replay.init(0), jnp.array([10, 20, 30]))
      >>> state = replay.update_priorities(state, indices=jnp.array([0, 1]), priorities=jnp.array([0.0, 3.0]))
      >>> sample = replay.sample(state, jax.random.key(0), n=4)
      >>> sorted(sample.items.tolist())
      [20, 20, 20, 30]
      >>> {item: round(weight, 2) for item, weight in zip(sample.items.tolist(), sample.weights.tolist())}[20]
      0.33

      >>> @jax.jit
      ... def sample_at(state, key, step):
      ...     beta = jnp.minimum(0.4 + 0.6 * step / 1000, 1.0)
      ...     return rlx.replay.prioritised(4, exponent=1.0, beta=beta).sample(state, key, n=4)
      >>> sample_at(state, jax.random.key(0), 1000).weights.max().item()
      1.0
    """
    capacity = number_of_items("capacity", capacity, "replay.prioritised")
    exponents = {"exponent": (exponent, Real[Array, "", "in [0, 1]"]), "beta": (beta, Real[Array, "", "in [0, 1]"])}
    as_arrays("replay.prioritised", **exponents)
    # Partial applications of module-level functions can be pickled; local functions could not.
    init, sample = functools.partial(_init, capacity), functools.partial(_sample, beta)
    return replay_of(
        PrioritisedState, init, _add, _add_batch, sample, _can_sample, functools.partial(_update_priorities, exponent)
    )


def _init(capacity: int, item: PyTree) -> PrioritisedState:
    return PrioritisedState(empty_ring(capacity, item), empty_tree(capacity), jnp.ones([], jnp.float32))


def _add(state: PrioritisedState, item: PyTree) -> PrioritisedState:
    items = as_items("replay.add", "item", item, state.ring.items, ())
    return _push(state, jax.tree.map(lambda x: x[None], items))


def _add_batch(state: PrioritisedState, items: PyTree, mask: ArrayLike | None = None) -> PrioritisedState:
    return _push(state, as_items("replay.add_batch", "items", items, state.ring.items, ("B",)), mask)


def _push(state: PrioritisedState, items: PyTree, mask: ArrayLike | None = None) -> PrioritisedState:
    ring, slots = push(state.ring, items, mask)
    tree = put(state.tree, length_of(ring.items), slots, jnp.broadcast_to(state.highest, slots.shape))
    return PrioritisedState(ring, tree, state.highest)


def _sample(beta: ArrayLike, state: PrioritisedState, key: Array, n: int) -> Sample:
    n, key = number_of_items("n", n, "replay.sample"), as_key("key", key, "replay.sample")
    slots, masses = draw(state.tree, length_of(state.ring.items), key, n)
    # N and the sum of all masses cancel: (N P_i)^-β / max_j (N P_j)^-β = (min_j P_j / P_i)^β.
    ratios = jnp.min(masses) / jnp.where(masses > 0, masses, 1)
    weights = jnp.where(masses > 0, ratios ** jnp.asarray(beta, jnp.float32), 0)
    return Sample(take_at(state.ring.items, slots), slots, weights)


def _can_sample(state: PrioritisedState, n: int = 1) -> Array:
    return enough(state.ring.size, n) & (total(state.tree) > 0)


def _update_priorities(
    exponent: ArrayLike, state: PrioritisedState, indices: ArrayLike, priorities: ArrayLike
) -> PrioritisedState:
    capacity = length_of(state.ring.items)
    indices, priorities = as_priorities(indices, priorities)
    # In their own dtypes, since of 64 bits not all fit into those of the state.
    counts = (indices >= 0) & (indices < state.ring.size.astype(indices.dtype))
    counts = counts & (priorities >= 0) & (priorities < jnp.inf)
    wide = wide_dtype(priorities.dtype)
    most = float(jnp.finfo(jnp.float32).max) / (2 * capacity)  # so that the sum of all masses stays finite
    masses = jnp.minimum(priorities.astype(wide) ** jnp.asarray(exponent, wide), most).astype(jnp.float32)
    masses = jnp.where(priorities > 0, masses, 0)
    tree = put(state.tree, capacity, jnp.where(counts, indices.astype(jnp.int32), OUT_OF_BOUNDS), masses)
    return PrioritisedState(state.ring, tree, jnp.max(masses, where=counts, initial=state.highest))
