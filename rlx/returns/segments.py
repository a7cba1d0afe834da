"""Sequences that end in places: where a return may look ahead, and which value stands in for what it cannot see.

An episode that terminated has discount 0, and needs no more. A sequence that was merely cut (a time limit, an
interruption, the end of the data) goes on in truth, so its last return bootstraps from the value of the state in which
it was cut. `truncation_t` marks such steps inside an array that holds several pieces one after the other, and
`truncation_value_t` gives the values of the states there; the results are then exactly those of the pieces alone.
The end of the array is such a cut too, which is why no function needs a case of its own for its last step.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.core.checks import check, require
from rlx.core.masking import weigh
from rlx.core.recurrence import reverse_affine, reverse_recurrence
from rlx.core.types import Array, ArrayLike


def split_at_truncations(
    function: str, v_t: Array, truncation_t: ArrayLike | None, truncation_value_t: ArrayLike | None
) -> tuple[Array, Array | None]:
    """The values to bootstrap from, and a mask of the steps whose successor belongs to the same piece.

    Args:
      function: name of the calling operator, for messages.
      v_t: values of the states at times [1, ..., T], floats [T].
      truncation_t: mask [T], true where the sequence was cut at time t, or None.
      truncation_value_t: floats [T], values of the states at which it was cut (read only there), or None for `v_t`.

    Returns:
      (v_t with the values of the cut-off states put in [T], booleans [T] or None where only the end is a cut).
    """
    if truncation_t is None:
        given = truncation_value_t is not None
        require(function, "truncation_value_t", not given, "given", "None, unless `truncation_t` is given too")
        return v_t, None
    v_t, truncation_t = check(function, v_t=(v_t, "[T]", "float"), truncation_t=(truncation_t, "[T]", "mask"))
    cut_t = truncation_t.astype(bool)
    if truncation_value_t is not None:
        v_t, truncation_value_t = check(
            function, v_t=(v_t, "[T]", "float"), truncation_value_t=(truncation_value_t, "[T]", "float")
        )
        v_t = jnp.where(cut_t, truncation_value_t, v_t)
    return v_t, ~cut_t & (jnp.arange(v_t.shape[0]) < v_t.shape[0] - 1)


def bootstrapped_returns(r_t: Array, discount_t: Array, v_t: Array, c_t: Array, goes_on_t: Array | None) -> Array:
    """Returns that bootstrap in part from values: G_{t-1} = r_t + γ_t [(1 - c_t) v_t + c_t G_t].

    At the last step of a piece c_t counts as 0. All arguments are floats [T] (`c_t` may be a scalar), `goes_on_t`
    booleans [T].
    """
    if c_t.ndim == 0 and v_t.size:
        if goes_on_t is None:
            return reverse_recurrence(_bootstrapped, (r_t, discount_t, v_t, c_t), v_t[-1])
        return reverse_recurrence(_bootstrapped_in_pieces, (r_t, discount_t, v_t, c_t, goes_on_t))
    c_t = within(goes_on_t, jnp.broadcast_to(c_t, r_t.shape))
    dtype = jnp.result_type(r_t, discount_t, v_t, c_t)
    return reverse_affine(*_bootstrapped(*(x.astype(dtype) for x in (r_t, discount_t, v_t, c_t))))


def corrected_returns(
    r_t: Array, discount_t: Array, v_t: Array, q_t: Array, c_t: Array, goes_on_t: Array | None
) -> Array:
    """Returns that correct values of states by those of actions: G_{t-1} = r_t + γ_t (v_t - c_t q_t + c_t G_t).

    At the last step of a piece c_t counts as 0, and q_t is not looked at. All arguments are floats [T], `goes_on_t`
    booleans [T].
    """
    c_t, q_t = within(goes_on_t, c_t), within(goes_on_t, q_t)
    w_t = weigh(discount_t, c_t)
    return reverse_affine(r_t - weigh(w_t, q_t) + weigh(discount_t, v_t), w_t)


def accumulated_errors(error_t: Array, discount_t: Array, c_t: Array, goes_on_t: Array | None) -> Array:
    """Discounted sums of errors ahead within a piece: E_t = error_t + γ_t c_t E_{t+1}.

    All arguments are floats [T] (`c_t` may be a scalar), `goes_on_t` booleans [T].
    """
    if c_t.ndim == 0 and goes_on_t is None:
        return reverse_recurrence(_accumulated, (error_t, discount_t, c_t))
    if goes_on_t is not None:
        c_t = within(goes_on_t, jnp.broadcast_to(c_t, error_t.shape))
    return reverse_affine(
        error_t, weigh(discount_t, c_t)
    )  # nothing follows the last step, so that its c_t does not matter


def within(goes_on_t: Array | None, x_t: Array, last_t: ArrayLike = 0) -> Array:
    """`x_t` [T] with `last_t` ([] or [T]) at the last step of each piece; None is a single piece."""
    if goes_on_t is None:
        goes_on_t = lax.lt(lax.iota(np.int32, x_t.shape[0]), np.int32(x_t.shape[0] - 1))
    if isinstance(last_t, int) and x_t.shape == goes_on_t.shape:
        return lax.select(goes_on_t, x_t, lax.full_like(x_t, last_t))  # traced faster than `jnp.where`
    return jnp.where(goes_on_t, x_t, last_t)


def following(x_t: Array) -> Array:
    """x_{t+1} for each t, and 0 past the end, where nothing follows: floats [T]."""
    return lax.pad(x_t, np.zeros((), x_t.dtype), [(-1, 1, 0)])


# The coefficients of recurrences: of one shape and dtype, so that `lax` will do, which is traced faster than `jnp`.


def _bootstrapped(r: Array, discount: Array, v: Array, c: Array) -> tuple[Array, Array]:
    w = lax.mul(discount, c)
    return lax.add(r, weigh(lax.sub(discount, w), v)), w


def _bootstrapped_in_pieces(r: Array, discount: Array, v: Array, c: Array, goes_on: Array) -> tuple[Array, Array]:
    # Where a piece ends, v takes the place of the return that follows: to the last digit what the piece alone gives.
    delta, w = _bootstrapped(r, discount, v, c)
    last = lax.select(goes_on > 0, lax.full_like(v, 0), v)
    return lax.add(delta, weigh(w, last)), lax.mul(w, goes_on)


def _accumulated(error: Array, discount: Array, c: Array) -> tuple[Array, Array]:
    return error, lax.mul(discount, c)
