"""A sum tree: updating numbers and drawing in proportion to them take logarithmic time.

A tree of N numbers is one array [R, F] that contains one level after the other: the numbers in ⌈N/F⌉ rows, the sums of
these rows in ⌈N/F²⌉ rows, and so on up to a single row. Unused entries at the end of a level are 0.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.types import Array

_FAN_OUT = 8
_BELOW_ONE = 1 - 2**-24
_GOLDEN = (5**0.5 - 1) / 2
_LEVELS_OF_A_DRAW = 4  # 8⁴ nodes use 12 of the 24 bits of a uniform draw; the other 12 are the position in a node


def _first_rows(size: int) -> tuple[int, ...]:
    """The first row of each level of a tree of N numbers, from the numbers up to the root; then R."""
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


def put(tree: Array, size: int, slots: Array, values: Array) -> Array:
    """Writes values [B] at slots [B]; if a slot occurs several times, its largest value."""
    first_rows = _first_rows(size)[:-1]
    rows, columns = slots // _FAN_OUT, slots % _FAN_OUT
    # In two steps, so that the result does not depend on the order of scatters, which is undefined on GPUs.
    tree = tree.at[rows, columns].set(0, mode="drop")
    tree = tree.at[rows, columns].max(values, mode="drop")
    for below, above in itertools.pairwise(first_rows):
        # Sums are recomputed: adding differences would accumulate rounding errors.
        sums = jnp.sum(tree.at[below + rows].get(mode="clip"), axis=-1)
        rows, columns = rows // _FAN_OUT, rows % _FAN_OUT
        tree = tree.at[above + rows, columns].set(sums, mode="drop")
    return tree


def draw(tree: Array, size: int, key: Array, n: int) -> tuple[Array, Array]:
    """Slots [n], drawn in proportion to their numbers, and these numbers; all slots are 0 if all numbers are 0.

    Draws are stratified: each is from a different n-th of the total.
    """
    first_rows = _first_rows(size)[-2::-1]
    # The last number of each row is not used for a draw; that of the last row rotates the strata.
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
    """The numbers below n, in an order in which any part is spread as evenly as the whole.

    So a part of a batch does not correspond to a part of the replay. With a random rotation, positions in a batch are
    not tied to strata.
    """
    return jnp.asarray(np.argsort(np.argsort(np.arange(n) * _GOLDEN % 1)), jnp.float32)


def _choose(masses: Array, position: Array) -> tuple[Array, Array, Array]:
    """Selects one of F children, with masses [n, F], for each of n positions in [0, 1) of their total mass.

    Returns its index, its mass, and the position within it. A child without mass is only selected if all have none.
    """
    # The end of each child. That of a child without mass equals the previous one exactly, so it is never selected.
    # Written out, this compiles to one loop over the draws; cumsum would become several loops on a CPU.
    ends = list(itertools.accumulate(masses[:, j] for j in range(_FAN_OUT)))
    at = position * ends[-1]
    # With sums, because XLA does not recompute them for every use, as it does with cheaper operations.
    child = jnp.sum(jnp.stack([at >= end for end in ends[:-1]], axis=-1), axis=-1, dtype=jnp.int32)
    children = jnp.arange(_FAN_OUT, dtype=jnp.int32)[None]
    start = jnp.sum(jnp.where(children < child[:, None], masses, 0), axis=-1)
    mass = jnp.sum(jnp.where(children == child[:, None], masses, 0), axis=-1)
    within = (at - start) / jnp.where(mass > 0, mass, 1)  # not 0 / 0, which is an error under `jax_debug_nans`
    return child, mass, jnp.clip(within, 0, _BELOW_ONE)
