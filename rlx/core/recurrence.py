"""The one backward recurrence that all multi-step operators share."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.core.masking import weigh
from rlx.core.types import Array

DOUBLING_FROM = 256
"""Sequences of at least this length are solved by doubling where that is the faster algorithm (not on a CPU).

Shorter ones use a sequential scan everywhere. Lower it if short sequences are slow on your accelerator.
"""

_WINDOW_UNROLLED = 32  # windows of up to so many steps are unrolled into one pass over the sequence


def reverse_affine(delta_t: Array, w_t: Array, init: Array | float | None = None) -> Array:
    """Solves acc_t = delta_t + w_t * acc_{t+1} backwards along the first axis, with acc_T = init.

    Every return, λ-return, advantage estimate and trace-weighted error is this recurrence with its own `delta_t` and
    `w_t`. On a CPU it runs as a sequential reverse scan; on other platforms long sequences are solved in a logarithmic
    number of parallel steps, since maps x -> delta + w x compose to such maps. The choice is made where the program is
    lowered (`jax.lax.platform_dependent`), so one exported program serves several platforms. Half-precision inputs are
    accumulated in float32 and the result is converted back, because a sum of many small terms stalls in bfloat16.

    Args:
      delta_t: float array [T, ...], what each step adds.
      w_t: float array that broadcasts to the shape of `delta_t`, how much of the future counts.
      init: float array [...], the value after the last step; zeros if not given.

    Returns:
      acc_t, float array [T, ...] of the promoted dtype of the inputs. For T = 0 it is empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import reverse_affine
      >>> reverse_affine(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 0.5, 0.5]), 4.0).tolist()
      [3.25, 4.5, 5.0]
    """
    return reverse_recurrence(_as_given, (delta_t, w_t), init)


def reverse_recurrence(
    coefficients: Callable[..., tuple[Array, Array]], sequences: Sequence[Array], init: Array | float | None = None
) -> Array:
    """`reverse_affine` with coefficients that are computed from sequences step by step, inside the recurrence.

    On a CPU a batch of sequences is then read once, as it is, where coefficients for all steps would first be written.

    Args:
      coefficients: elementwise function of one array for each sequence, all of one shape and dtype, that returns
        (delta, w); a function of a module, not made anew for each call.
      sequences: float arrays that broadcast to the shape [T, ...]; scalars are the same at every step.
      init: float array [...], the value after the last step; zeros if not given.

    Returns:
      acc_t, float array [T, ...] of the promoted dtype of the inputs.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import reverse_recurrence
      >>> r_t, discount_t, scale_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([2.0, 2.0])
      >>> reverse_recurrence(lambda r, discount, scale: (scale * r, discount), (r_t, discount_t, scale_t), 4.0).tolist()
      [5.0, 6.0]
    """
    init = 0.0 if init is None else init
    dtype = jnp.result_type(*sequences, init)
    wide = jnp.promote_types(dtype, jnp.float32)
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in sequences))
    arrays = tuple(jnp.broadcast_to(jnp.asarray(x, wide), shape if jnp.ndim(x) else ()) for x in sequences)
    init = jnp.broadcast_to(jnp.asarray(init, wide), shape[1:])
    return _solve(coefficients, arrays, init).astype(dtype)


def windowed_affine(delta_t: Array, w_t: Array, last_t: Array, n: int) -> Array:
    """The same recurrence, cut off after `n` terms: each window of `n` steps ends in its own `last_t`.

    With f_t(x) = delta_t + w_t * x the result is f_t(f_{t+1}(... f_{t+n-2}(last_{t+n-1}))). For small n the maps are
    applied one after the other, to all windows at once, in a single pass; for large n the n - 1 maps are composed by
    repeated doubling, in about 2 log2(n) array operations. A window that would reach past the sequence must meet a
    `w_t` of zero on its way: callers set w_{T-1} = 0.

    Args:
      delta_t: float array [T], what each step adds.
      w_t: float array [T], how much of the future counts, with w_t[T-1] = 0.
      last_t: float array [T], what the last step of a window contributes.
      n: number of steps in a window, at least 1.

    Returns:
      Float array [T].

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import windowed_affine
      >>> windowed_affine(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0, 0.0]), 10 * jnp.ones(3), 2).tolist()
      [11.0, 12.0, 3.0]
    """
    if n > delta_t.shape[0]:
        return reverse_affine(delta_t, w_t)
    dtype = jnp.result_type(delta_t, w_t, last_t)
    wide = jnp.promote_types(dtype, jnp.float32)
    delta, w, last = delta_t.astype(wide), w_t.astype(wide), last_t.astype(wide)
    solve = _window_by_steps if n <= _WINDOW_UNROLLED else _window_by_doubling
    return solve(delta, w, last, n).astype(dtype)


def _window_by_steps(delta: Array, w: Array, last: Array, n: int) -> Array:
    steps = delta.shape[0]
    delta, w, last = (lax.pad(x, jnp.zeros((), x.dtype), [(0, n - 1, 0)]) for x in (delta, w, last))
    total = last[n - 1 :]
    for ahead in reversed(range(n - 1)):
        total = delta[ahead : ahead + steps] + weigh(w[ahead : ahead + steps], total)
    return total


def _window_by_doubling(delta: Array, w: Array, total: Array, n: int) -> Array:
    # delta and w describe the composition of `length` successive maps; `total` has absorbed the low bits of n - 1.
    remaining, length = n - 1, 1
    while remaining:
        if remaining % 2:
            total = delta + weigh(w, _ahead(length, total, 0))
        remaining //= 2
        if remaining:
            delta, w = _compose_with_later(delta, w, functools.partial(_ahead, length))
            length *= 2
    return total


def scan_affine(coefficients: Callable[..., tuple[Array, Array]], sequences: Sequence[Array], init: Array) -> Array:
    """`reverse_recurrence` step by step; sequences [T, ...] or [] and `init` [...] are of one dtype."""
    at_all_steps = [None if x.ndim else jnp.broadcast_to(x, init.shape) for x in sequences]

    def step(acc: Array, inputs: list[Array]) -> tuple[Array, Array]:
        at_step = iter(inputs)
        delta, w = coefficients(*(next(at_step) if x is None else x for x in at_all_steps))
        acc = lax.add(delta, weigh(w, acc))
        return acc, acc

    return lax.scan(step, init, [x for x in sequences if x.ndim], reverse=True)[1]


def doubling_affine(coefficients: Callable[..., tuple[Array, Array]], sequences: Sequence[Array], init: Array) -> Array:
    """The same in log2(T) steps, each of which doubles how far entries look.

    They are one loop, which takes as long to trace for any T: a program for a CPU is traced with this branch in it too.
    """
    shape = jnp.broadcast_shapes(*(x.shape for x in sequences))
    delta_t, w_t = coefficients(*(jnp.broadcast_to(x, shape) for x in sequences))
    lengths = 2 ** np.arange(max(shape[0] - 1, 0).bit_length())

    def double(maps: tuple[Array, Array], length: Array) -> tuple[tuple[Array, Array], None]:
        def ahead(x: Array, beyond: int) -> Array:
            padded = _padded(x, beyond, 0, int(lengths[-1]))
            return lax.dynamic_slice_in_dim(padded, length, shape[0], allow_negative_indices=False)

        return _compose_with_later(*maps, ahead), None

    if lengths.size:
        (delta_t, w_t), _ = lax.scan(double, (delta_t, w_t), jnp.asarray(lengths))
    return lax.add(delta_t, weigh(w_t, jnp.broadcast_to(init, shape)))


@functools.partial(jax.jit, inline=True, static_argnums=0)
def _solve(coefficients: Callable[..., tuple[Array, Array]], sequences: tuple[Array, ...], init: Array) -> Array:
    by_steps = functools.partial(scan_affine, coefficients)
    if max(x.shape[0] for x in sequences if x.ndim) < DOUBLING_FROM:
        return by_steps(sequences, init)
    return lax.platform_dependent(
        sequences, init, cpu=by_steps, default=functools.partial(doubling_affine, coefficients)
    )


def _as_given(delta: Array, w: Array) -> tuple[Array, Array]:
    return delta, w


def _compose_with_later(delta: Array, w: Array, ahead: Callable[[Array, int], Array]) -> tuple[Array, Array]:
    """The composition of each map x -> delta + w x with a later one; past the end is the identity."""
    largest = np.finfo(w.dtype).max  # an overflow must stay finite, or a zero further on would make it NaN
    product = lax.clamp(-largest, weigh(w, ahead(w, 1)), largest)
    return lax.add(delta, weigh(w, ahead(delta, 0))), product


def _ahead(steps: int, x: Array, beyond: int) -> Array:
    """x[t + steps], and `beyond` past the end."""
    return _padded(x, beyond, -steps, steps)


def _padded(x: Array, value: int, before: int, after: int) -> Array:
    return lax.pad(x, np.asarray(value, x.dtype), [(before, after, 0)] + [(0, 0, 0)] * (x.ndim - 1))
