"""Sequences, with time as the first or second axis."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from hkx.errors import InvalidInputError, LeadingDimensionsError
from hkx.nn.inputs import broadcast, lengths_of


def swap_time_and_batch(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def time_first(sequence: Any) -> Any:
    for leaf in arrays_of(sequence):
        if jnp.ndim(leaf) < 2:
            raise ValueError(
                "`input_sequence` must hold arrays [B, T, ...] if not `time_major`, got one of shape "
                f"{jnp.shape(leaf)}."
            )
    return swap_time_and_batch(sequence)


def arrays_of(sequence: Any) -> list[Any]:
    """The leaves of a sequence, unchanged.

    Raises:
      InvalidInputError: if a leaf is not an array.
    """
    leaves = jax.tree.leaves(sequence)
    for leaf in leaves:
        try:
            jax.typeof(leaf)
        except (TypeError, ValueError):
            raise InvalidInputError("unroll", "input_sequence", leaf) from None
    return leaves


def length(sequence: Any) -> int:
    leaves = arrays_of(sequence)
    if not leaves:
        raise ValueError("`input_sequence` holds no array, so its length is not known.")
    for leaf in leaves:
        if not jnp.shape(leaf):
            raise ValueError("`input_sequence` must hold arrays with a time axis, got one of shape ().")
    return jnp.shape(leaves[0])[0]


def checked_lengths(lengths: Any, sequence: Any, state: Any) -> jax.Array:
    """Returns the lengths as an array, if they are integers, one for each sequence of the batch, `[T, B, ...]`.

    Raises:
      InvalidInputError: if they are not an array.
      InputDTypeError: if they are not integers.
      LeadingDimensionsError: if there is not one for each sequence.
    """
    lengths = lengths_of(lengths, "hkx.dynamic_unroll", "sequence_lengths")
    shape = lengths.shape
    batches = [jnp.shape(x)[1:] for x in jax.tree.leaves(sequence)] + [jnp.shape(x) for x in jax.tree.leaves(state)]
    for batch in batches:
        batch = batch[: len(shape)]
        if broadcast(shape, batch) is None:
            expected = f"{list(batch)}, a length for each sequence of the batch"
            raise LeadingDimensionsError("hkx.dynamic_unroll", "sequence_lengths", shape, expected)
    return lengths


def varying_with(sequence: Any, state: Any) -> Any:
    """Marks `state` as varying between the devices of a `jax.shard_map` if the sequence does.

    JAX requires this, because a loop's carry must not begin to vary inside the loop.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return state
    never = jnp.asarray(False)
    for leaf in jax.tree.leaves(sequence):
        nothing = jnp.ravel(leaf)[:0]  # varies like `leaf`, at no cost
        never = never | jnp.any(nothing != nothing)
    return jax.tree.map(lambda x: jnp.where(never, x, x), state)
