"""Sequences with truncations: how far a return looks ahead, and the value from which it bootstraps there.

Where an episode terminates, the discount is 0, and nothing else is needed. A truncated sequence (by a time limit, an
interruption, or the end of the data) would have continued, so its last return bootstraps from the value of the state in
which it was truncated. `truncation_t` marks such steps in an array that contains several pieces in a row, and
`truncation_value_t` has the values of these states. The results are exactly those of the separate pieces.

The end of the array is a truncation too, so functions need no special case for the last step.
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
      truncation_t: mask [T], true where the sequence was truncated at time t, or None.
      truncation_value_t: floats [T], values of the states where it was truncated (others are ignored); None for `v_t`.

    Returns:
      (`v_t` with the values of the truncated states [T], booleans [T], or None if only the end is a truncation).
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
    """`x_t` [T], but `last_t` ([] or [T]) where a piece ends. None for `continues_t` is a single piece.

    If `x_t` is a scalar, it is returned unchanged.
    """
    if jnp.ndim(x_t) == 0:
        return x_t
    if continues_t is None:
        from_end = lax.rev(lax.iota(np.int32, x_t.shape[0]), [0])  # counted like this, the length may be symbolic
        continues_t = lax.gt(from_end, np.int32(0))
    if isinstance(last_t, int):
        return lax.select(continues_t, x_t, lax.full_like(x_t, last_t))  # traced faster than `jnp.where`
    return jnp.where(continues_t, x_t, last_t)


def following(x_t: Array) -> Array:
    """x_{t+1} for each t, and 0 at the end, where nothing follows: floats [T]."""
    return lax.pad(x_t, np.zeros((), x_t.dtype), [(-1, 1, 0)])
