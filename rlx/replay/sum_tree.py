"""A sum tree: updating numbers and drawing in proportion to them take logarithmic time.

A tree of N numbers is one array [R, F] that holds level after level: the numbers in ⌈N/F⌉ rows, their sums by rows in
⌈N/F²⌉ rows, and so on up to one row. What is left over at the end of a level is 0.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.types import Array

_FAN_OUT = 8
_BELOW_ONE = 1 - 2**-24
_GOLDEN = (5**0.5 - 1) / 2
_LEVELS_OF_A_DRAW = 4  # 8⁴ nodes tell 12 of the 24 bits of a uniform draw apart; the other 12 are the position in one


def _first_rows(size: int) -> tuple[int, ...]:
    """Of each level of a tree of N numbers the first row, the numbers' own first; behind the last, R."""
    first_rows = [0]
    while size > 1 or len(first_rows) == 1:
        size = -(-size // _FAN_OUT)
        first_rows.append(first_rows[-1] + size)
    return tuple(first_rows)


def empty_tree(size: int) -> Array:
    """A tree of the given number of zeros."""
    return jnp.zeros([_first_rows(size)[-1], _FAN_OUT], jnp.float32)


def total(tree: Array) -> Array:
    """The sum of all numbers."""
    return jnp.sum(tree[-1])


def put(tree: Array, size: int, places: Array, values: Array) -> Array:
    """The tree with values [B] at places [B], the largest one where a place occurs twice."""
    first_rows = _first_rows(size)[:-1]
    rows, columns = places // _FAN_OUT, places % _FAN_OUT
    # In two steps, so that the result does not depend on an order, which scatters on GPUs do not have.
    tree = tree.at[rows, columns].set(0, mode="drop")
    tree = tree.at[rows, columns].max(values, mode="drop")
    for below, above in itertools.pairwise(first_rows):
        # Sums are made anew from what they are of: adding differences would drift away.
        sums = jnp.sum(tree.at[below + rows].get(mode="clip"), axis=-1)
        rows, columns = rows // _FAN_OUT, rows % _FAN_OUT
        tree = tree.at[above + rows, columns].set(sums, mode="drop")
    return tree


def draw(tree: Array, size: int, key: Array, n: int) -> tuple[Array, Array]:
    """Places [n], drawn in proportion to the numbers there, and those numbers; places 0 if all numbers are.

    Draws are stratified: each is from another n-th of the total.
    """
    first_rows = _first_rows(size)[-2::-1]
    # The last number of each row is for no draw; the very last one turns the strata.
    uniform = jax.random.uniform(key, [-(-len(first_rows) // _LEVELS_OF_A_DRAW), n + 1], jnp.float32)
    stratum = (_spread(n) + jnp.floor(n * uniform[-1, n])) % n
    position = jnp.minimum((stratum + uniform[0, :n]) / n, _BELOW_ONE)
    node = jnp.zeros([n], jnp.int32)
    value = jnp.zeros([n], jnp.float32)
    for depth, first_row in enumerate(first_rows):
        if depth and depth % _LEVELS_OF_A_DRAW == 0:
            position = uniform[depth // _LEVELS_OF_A_DRAW, :n]
        child, value, position = _choose(tree.at[first_row + node].get(mode="clip"), position)
        node = node * _FAN_OUT + child
    return jnp.where(value > 0, node, 0), value


def _spread(n: int) -> Array:
    """The numbers below n in an order in which any part is spread as evenly as the whole.

    So a part of a batch does not correspond to a part of the replay. With a random rotation, no place in a batch has
    its own stratum.
    """
    return jnp.asarray(np.argsort(np.argsort(np.arange(n) * _GOLDEN % 1)), jnp.float32)


def _choose(masses: Array, position: Array) -> tuple[Array, Array, Array]:
    """One of F children for each of n positions in [0, 1) of the mass [n, F] that they have together.

    Returns its number, its mass, and the position in it. It is one without mass only where all are.
    """
    # Up to where each child reaches: one without mass up to where the one before it does, to the last bit, and so it
    # cannot be chosen. Written out, this is one loop over the draws; cumsum would make several on a CPU.
    ends = list(itertools.accumulate(masses[:, j] for j in range(_FAN_OUT)))
    at = position * ends[-1]
    # By sums, which XLA does not repeat in all that uses their results, as it does with cheaper operations.
    child = jnp.sum(jnp.stack([at >= end for end in ends[:-1]], axis=-1), axis=-1, dtype=jnp.int32)
    children = jnp.arange(_FAN_OUT, dtype=jnp.int32)[None]
    start = jnp.sum(jnp.where(children < child[:, None], masses, 0), axis=-1)
    mass = jnp.sum(jnp.where(children == child[:, None], masses, 0), axis=-1)
    return child, mass, jnp.clip((at - start) / mass, 0, _BELOW_ONE)
