"""Sequences, with time as the first or second axis."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx.errors import InvalidInputError, LeadingDimensionsError
from hkx.nn.numerics import broadcast, parts_of


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
        except (TypeError, ValueError, OverflowError):
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


def check_lengths(lengths: jax.Array, sequence: Any, state: Any) -> None:
    """Raises LeadingDimensionsError unless there is one length for each sequence of the batch, `[T, B, ...]`."""
    shape = lengths.shape
    batches = [np.shape(x)[1:] for x in jax.tree.leaves(sequence)] + [np.shape(x) for x in jax.tree.leaves(state)]
    for batch in batches:
        batch = batch[: len(shape)]
        if broadcast(shape, batch) is None:
            expected = f"{list(batch)}, a length for each sequence of the batch"
            raise LeadingDimensionsError("hkx.dynamic_unroll", "sequence_lengths", shape, expected)


def on_mesh_of(sequence: Any, state: Any) -> Any:
    """The state with the types that steps of the sequence give it, which JAX requires of what a loop carries.

    It varies between the devices of a `jax.shard_map` if the sequence does. A state that is whole is divided, along the
    explicit axes of a mesh, as the batch is.
    """
    mesh, leaves = jax.sharding.get_abstract_mesh(), jax.tree.leaves(sequence)
    if mesh.explicit_axes:
        batches = [(jnp.shape(x)[1], parts_of(x)[1]) for x in leaves if jnp.ndim(x) > 1]
        state = jax.tree.map(functools.partial(_divided_as, dict(batches)), state)
    if not mesh.manual_axes:
        return state
    never = jnp.asarray(False)
    for leaf in leaves:
        nothing = jnp.ravel(leaf)[:0]  # varies like `leaf`, at no cost
        never = never | jnp.any(nothing != nothing)
    return jax.tree.map(lambda x: jnp.where(never, x, x), state)


def _divided_as(batches: dict[int, Any], x: Any) -> Any:
    part = batches.get(jnp.shape(x)[0]) if jnp.ndim(x) > 1 else None
    return x if part is None or any(parts_of(x)) else jax.reshard(x, jax.P(part))
