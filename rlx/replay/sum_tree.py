"""Sums of numbers at several levels: changing some and drawing in proportion cost the logarithm of their number.

A tree is a tuple of levels, the numbers first: [⌈N/F⌉, F], then their sums [⌈N/F²⌉, F], and so on up to [1, F]. What is
left over at the end of a level is 0.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.types import Array
from rlx.replay.places import NOWHERE

SumTree: TypeAlias = tuple[Array, ...]

_FAN_OUT = 8
_BELOW_ONE = 1 - 2**-24
_GOLDEN = (5**0.5 - 1) / 2
_LEVELS_OF_A_DRAW = 4  # 8⁴ nodes tell 12 of the 24 bits of a uniform draw apart; the other 12 are the position in one


def empty_tree(capacity: int) -> SumTree:
    """A tree of `capacity` zeros."""
    levels = []
    while not levels or capacity > 1:
        capacity = -(-capacity // _FAN_OUT)
        levels.append(jnp.zeros([capacity, _FAN_OUT], jnp.float32))
    return tuple(levels)


def total(tree: SumTree) -> Array:
    """The sum of all numbers."""
    return jnp.sum(tree[-1])


def put(tree: SumTree, places: Array, values: Array) -> SumTree:
    """The tree with values [B] at places [B], the largest one where a place occurs twice."""
    # XLA copies what is read in no certain order with its next change. What an earlier `put` reads ends in the total,
    # which is never negative, and so this one comes after it.
    places = jnp.where(total(tree) >= 0, places, NOWHERE)
    rows, columns = places // _FAN_OUT, places % _FAN_OUT
    # In two steps, so that the result does not depend on an order, which scatters on GPUs do not have.
    level = tree[0].at[rows, columns].set(0, mode="drop")
    level = level.at[rows, columns].max(values, mode="drop")
    levels = [level]
    for above in tree[1:]:
        # Sums are made anew from what they are of: adding differences would drift away.
        sums = jnp.sum(level.at[rows].get(mode="clip"), axis=-1)
        rows, columns = rows // _FAN_OUT, rows % _FAN_OUT
        level = above.at[rows, columns].set(sums, mode="drop")
        levels.append(level)
    return tuple(levels)


def draw(tree: SumTree, key: Array, n: int) -> tuple[Array, Array]:
    """Places [n], drawn in proportion to the numbers there, and those numbers; places 0 if all numbers are.

    Draws are stratified: each is from another n-th of the total.
    """
    levels = tree[::-1]
    # The last number of each row is for no draw; the very last one turns the strata.
    uniform = jax.random.uniform(key, [-(-len(levels) // _LEVELS_OF_A_DRAW), n + 1], jnp.float32)
    stratum = (_spread(n) + jnp.floor(n * uniform[-1, n])) % n
    position = jnp.minimum((stratum + uniform[0, :n]) / n, _BELOW_ONE)
    node = jnp.zeros([n], jnp.int32)
    value = jnp.zeros([n], jnp.float32)
    for depth, level in enumerate(levels):
        if depth and depth % _LEVELS_OF_A_DRAW == 0:
            position = uniform[depth // _LEVELS_OF_A_DRAW, :n]
        child, value, position = _choose(level.at[node].get(mode="clip"), position)
        node = node * _FAN_OUT + child
    return jnp.where(value > 0, node, 0), value


def _spread(n: int) -> Array:
    """The numbers below n in an order in which those of any part are as far apart as those of the whole.

    So a part of a batch is no part of the replay. With a random turn, no place in a batch has a stratum of its own.
    """
    return jnp.asarray(np.argsort(np.argsort(np.arange(n) * _GOLDEN % 1)), jnp.float32)


def _choose(masses: Array, position: Array) -> tuple[Array, Array, Array]:
    """One of F children for each of n positions in [0, 1) of the mass [n, F] that they have together.

    Returns its number, its mass, and the position in it. It is one without mass only where all are.
    """
    # Written out, this is one loop over the draws, of which each reads a row; cumsum makes several on a CPU. What ends
    # at a child without mass ends at the one before it, to the last bit, and so it cannot be chosen.
    ends = [masses[:, 0]]
    for j in range(1, _FAN_OUT):
        ends.append(ends[-1] + masses[:, j])
    at = position * ends[-1]
    child, start, mass = jnp.zeros(at.shape, jnp.int32), jnp.zeros_like(at), masses[:, 0]
    for j in range(1, _FAN_OUT):
        beyond = at >= ends[j - 1]
        child = child + beyond
        start = jnp.where(beyond, ends[j - 1], start)
        mass = jnp.where(beyond, masses[:, j], mass)
    return child, mass, jnp.clip((at - start) / mass, 0, _BELOW_ONE)
