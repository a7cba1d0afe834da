"""Replay of overlapping sequences: a ring buffer of the steps of many environments, and a replay of sequence starts."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.arguments import require, whole
from rlx.core.errors import ArgumentError
from rlx.core.types import Array, ArrayLike, PyTree
from rlx.replay.contract import Replay, Sample, as_items, environments_of, replay_of
from rlx.replay.slots import MOST, length_of
from rlx.replay.uniform import Ring, empty_ring, push, uniform


class SequencesState(NamedTuple):
    """The steps, the number of steps until the next sequence is complete, and the starts of the complete ones."""

    ring: Ring  # each leaf [N, E, ...]
    wait: Array  # int32 [], steps still to come until the next sequence is complete, at least 1
    starts: Any  # the state of a replay of (slot, environment)


class Start(NamedTuple):
    """The start of a sequence: an item of the replay of starts."""

    slot: Any  # int32, in [0, N)
    environment: Any  # int32, in [0, E)


def sequences(capacity: int, length: int, period: int = 1, make_replay: Callable[[int], Replay] = uniform) -> Replay:
    """A replay of sequences of consecutive steps, from many parallel environments.

    In each environment, every `period`-th step starts a sequence of `length` steps, so sequences overlap if `period` is
    smaller than `length`, as in "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2), Kapturowski
    et al. 2019 (https://openreview.net/forum?id=r1lyTjAqYX), which uses lengths of 80 and periods of 40. A sequence can
    be drawn from when its last step is added until its first step is replaced, so no sequence mixes old and new steps.
    The replay holds the last (capacity - length + 1) // period sequences of each environment. Sequences continue past
    the end of an episode, which the learner sees as a discount of 0 among the steps.

    An item is one step of all E environments: each leaf has E as its first axis. `add_batch` takes several items,
    [T, E, ...], as stacked by `jax.lax.scan`, and takes no mask. The items of a `Sample` are [n, length, ...]; n counts
    sequences, in `can_sample` too.

    Args:
      capacity: the maximum number of steps per environment, at least length + period - 1.
      length: number of steps in a sequence, a positive Python integer.
      period: number of steps between the starts of consecutive sequences, a positive Python integer.
      make_replay: a function that takes a capacity and returns the replay of starts, which determines how sequences are
        drawn: `rlx.replay.uniform`, or `functools.partial(rlx.replay.prioritised, exponent=0.9, beta=0.6)` with a
        priority for each sequence.

    Returns:
      A `Replay`, which documents its functions.

    Raises:
      OptionError: if `capacity`, `length` or `period` is not a positive whole number, or `capacity` is too small.

    Example:
      >>> import functools, jax, jax.numpy as jnp
      >>> import rlx
      >>> replay = rlx.replay.sequences(capacity=8, length=4, period=2)
      >>> state = replay.init({"r_t": jnp.zeros(2)})  # two environments
      >>> for t in range(10):
      ...     state = replay.add(state, {"r_t": jnp.array([t, 100 + t], jnp.float32)})
      >>> sample = replay.sample(state, jax.random.key(0), n=50)
      >>> sorted(set(map(tuple, sample.items["r_t"].astype(int).tolist())))
      [(4, 5, 6, 7), (6, 7, 8, 9), (104, 105, 106, 107), (106, 107, 108, 109)]

      >>> r2d2 = functools.partial(rlx.replay.prioritised, exponent=0.9, beta=0.6)
      >>> replay = rlx.replay.sequences(capacity=100, length=4, period=2, make_replay=r2d2)
      >>> state = replay.add_batch(replay.init({"r_t": jnp.zeros(2)}), {"r_t": jnp.ones([20, 2])})
      >>> sample = replay.sample(state, jax.random.key(0), n=3)
      >>> state = replay.update_priorities(state, sample.indices, jnp.abs(sample.items["r_t"]).max(axis=1))
    """
    name = "replay.sequences"
    length = whole("length", length, "a positive number of steps", name, 1)
    period = whole("period", period, "a positive number of steps", name, 1)
    least = length + period - 1
    expected = f"at least length + period - 1 = {least} steps, and at most {MOST}"
    capacity = whole("capacity", capacity, expected, name, least, MOST)
    expected = "a function of a capacity that makes a replay"
    require(callable(make_replay), "make_replay", make_replay, expected, name)
    settings = _Settings(capacity, length, period, make_replay)
    # Partial applications of module-level functions can be pickled; local functions could not.
    functions = _init, _add, _add_batch, _sample, _can_sample, _update_priorities
    return replay_of(SequencesState, *(functools.partial(function, settings) for function in functions))


class _Settings(NamedTuple):
    capacity: int
    length: int
    period: int
    make_replay: Callable[[int], Replay]

    def of_each_environment(self) -> int:
        """The number of sequences stored per environment: as many as a full ring always contains."""
        # So a start is replaced at the latest when the first of its steps is overwritten.
        return (self.capacity - self.length + 1) // self.period

    def replay_of_starts(self, environments: int) -> Replay:
        made = self.make_replay(environments * self.of_each_environment())
        is_replay = isinstance(made, Replay)
        require(is_replay, "make_replay", self.make_replay, "one that makes a Replay", "replay.sequences")
        return made


def _init(settings: _Settings, item: PyTree) -> SequencesState:
    ring = empty_ring(settings.capacity, item)
    replay = settings.replay_of_starts(environments_of(item))
    try:
        starts = replay.init(Start(jnp.int32(0), jnp.int32(0)))
    except ArgumentError:  # a reservoir, which wants a key, would keep starts of what has been overwritten
        starts = None
    expected = "one that makes a replay of any items, which keeps the latest, as rlx.replay.uniform does"
    require(starts is not None, "make_replay", settings.make_replay, expected, "replay.sequences")
    return SequencesState(ring, jnp.full([], settings.length, jnp.int32), starts)


def _add(settings: _Settings, state: SequencesState, item: PyTree) -> SequencesState:
    items = as_items("replay.add", "item", item, state.ring.items, ())
    return _push(settings, state, jax.tree.map(lambda x: x[None], items))


def _add_batch(settings: _Settings, state: SequencesState, items: PyTree) -> SequencesState:
    return _push(settings, state, as_items("replay.add_batch", "items", items, state.ring.items, ("T",)))


def _push(settings: _Settings, state: SequencesState, items: PyTree) -> SequencesState:
    capacity, length, period, _ = settings
    ring, _ = push(state.ring, items)
    steps = length_of(items)
    completed = jnp.maximum((steps - state.wait) // period + 1, 0)
    # The number of completed sequences varies by one, so the first `number` may be negative, which is masked below.
    most = min(-(-steps // period), settings.of_each_environment())
    number = completed - most + jnp.arange(most, dtype=jnp.int32)
    slot = (state.ring.head + state.wait + number * period - length) % capacity
    environments = _environments(state)
    start = Start(jnp.repeat(slot, environments), jnp.tile(jnp.arange(environments, dtype=jnp.int32), most))
    replay = settings.replay_of_starts(environments)
    starts = replay.add_batch(state.starts, start, jnp.repeat(number >= 0, environments))
    return SequencesState(ring, state.wait + completed * period - steps, starts)


def _sample(settings: _Settings, state: SequencesState, key: Array, n: int) -> Sample:
    start, indices, weights = settings.replay_of_starts(_environments(state)).sample(state.starts, key, n)
    slots = (start.slot[:, None] + jnp.arange(settings.length, dtype=jnp.int32)[None]) % settings.capacity
    of = start.environment[:, None]
    return Sample(jax.tree.map(lambda x: x.at[slots, of].get(mode="clip"), state.ring.items), indices, weights)


def _can_sample(settings: _Settings, state: SequencesState, n: int = 1) -> Array:
    return settings.replay_of_starts(_environments(state)).can_sample(state.starts, n)


def _update_priorities(
    settings: _Settings, state: SequencesState, indices: ArrayLike, priorities: ArrayLike
) -> SequencesState:
    replay = settings.replay_of_starts(_environments(state))
    return state._replace(starts=replay.update_priorities(state.starts, indices, priorities))


def _environments(state: SequencesState) -> int:
    return jax.tree.leaves(state.ring.items)[0].shape[1]
