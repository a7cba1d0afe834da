"""Sequences with truncations: how far a return looks ahead, and the value from which it bootstraps there.

The discount is 0 where an episode terminates, and nothing else is needed. A truncated sequence (by a time limit, an
interruption, or the end of the data) would have continued, so its last return bootstraps from the value of the state in
which it was truncated. `truncation_t` marks such steps in an array that contains several segments in a row, and
`truncation_value_t` has the values of these states. The results are exactly those of the separate segments.

The end of the array is a truncation too, so functions need no special case for the last step.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.core.arguments import require
from rlx.core.masking import masked
from rlx.core.types import Array


def segments(v_t: Array, truncation_t: Array | None, truncation_value_t: Array | None) -> tuple[Array, Array | None]:
    """The values to bootstrap from, and a mask of the steps whose successor belongs to the same segment.

    Args:
      v_t: values of the states at times [1, ..., T], floats [T].
      truncation_t: booleans [T], true where the sequence was truncated at time t, or None.
      truncation_value_t: floats [T], values of the states where it was truncated (others are ignored); None for `v_t`.

    Returns:
      (`v_t` with the values of the truncated states [T], booleans [T], or None if only the end is a truncation).
    """
    if truncation_t is None:
        given = truncation_value_t is not None
        require(not given, "truncation_value_t", "given", "None, unless `truncation_t` is given too")
        return v_t, None
    if truncation_value_t is not None:
        v_t = jnp.where(truncation_t, truncation_value_t, v_t)
    return v_t, ~truncation_t


def with_ends(x_t: Any, continues_t: Array | None, end_t: Array | None = None) -> Any:
    """`x_t` [T], but 0, or `end_t` [T], at the last step of each segment; a scalar is returned unchanged.

    None for `continues_t` is a single segment. The last step is set by padding, because `jax.vmap` over axis 1 would
    transpose everything for a mask of it.
    """
    if jnp.ndim(x_t) == 0:
        return x_t
    zero, steps = np.zeros((), x_t.dtype), x_t.shape[0]
    x_t = following(lax.pad(x_t, zero, [(1, -1, 0)]))  # the number of steps may be 0, or symbolic
    if end_t is not None:
        x_t += lax.pad(lax.pad(end_t, zero, [(1 - steps, 0, 0)]), zero, [(steps - 1, 0, 0)])
    if continues_t is None:
        return x_t
    return masked(continues_t, x_t) if end_t is None else jnp.where(continues_t, x_t, end_t)


def following(x_t: Array) -> Array:
    """x_{t+1} for each t, and 0 at the end, where nothing follows: floats [T]."""
    return lax.pad(x_t, np.zeros((), x_t.dtype), [(-1, 1, 0)])
