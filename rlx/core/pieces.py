"""Sequences that end in places: where a return may look ahead, and which value stands in for what it cannot see.

An episode that terminated has discount 0, and needs no more. A sequence that was merely cut (a time limit, an
interruption, the end of the data) goes on in truth, so its last return bootstraps from the value of the state in which
it was cut. `truncation_t` marks such steps inside an array that holds several pieces one after the other, and
`truncation_value_t` gives the values of the states there; the results are then exactly those of the pieces alone.
The end of the array is such a cut too, which is why no function needs a case of its own for its last step.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.core.arguments import require
from rlx.core.types import Array


def pieces(v_t: Array, truncation_t: Array | None, truncation_value_t: Array | None) -> tuple[Array, Array | None]:
    """The values to bootstrap from, and a mask of the steps whose successor belongs to the same piece.

    Args:
      v_t: values of the states at times [1, ..., T], floats [T].
      truncation_t: mask [T], true where the sequence was cut at time t, or None.
      truncation_value_t: floats [T], values of the states at which it was cut (read only there), or None for `v_t`.

    Returns:
      (v_t with the values of the cut-off states put in [T], booleans [T] or None where only the end is a cut).
    """
    if truncation_t is None:
        given = truncation_value_t is not None
        require(not given, "truncation_value_t", "given", "None, unless `truncation_t` is given too")
        return v_t, None
    cut_t = truncation_t.astype(bool)
    if truncation_value_t is not None:
        v_t = jnp.where(cut_t, truncation_value_t, v_t)
    return v_t, ~cut_t & (jnp.arange(v_t.shape[0]) < v_t.shape[0] - 1)


def within(continues_t: Array | None, x_t: Any, last_t: Any = 0) -> Any:
    """`x_t` [T] with `last_t` ([] or [T]) where a piece ends, None being a single piece; a number as it is."""
    if jnp.ndim(x_t) == 0:
        return x_t
    if continues_t is None:
        from_end = lax.rev(lax.iota(np.int32, x_t.shape[0]), [0])  # counted from there, no length need be a number
        continues_t = lax.gt(from_end, np.int32(0))
    if isinstance(last_t, int):
        return lax.select(continues_t, x_t, lax.full_like(x_t, last_t))  # traced faster than `jnp.where`
    return jnp.where(continues_t, x_t, last_t)


def following(x_t: Array) -> Array:
    """x_{t+1} for each t, and 0 past the end, where nothing follows: floats [T]."""
    return lax.pad(x_t, np.zeros((), x_t.dtype), [(-1, 1, 0)])
