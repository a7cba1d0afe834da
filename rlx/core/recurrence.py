"""The one backward recurrence that all multi-step operators share."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero

from rlx.core.masking import if_counted, slope_where, weighted
from rlx.core.tracing import in_slopes, traced_once
from rlx.core.types import Array, wide_dtype

CHOICE_FROM = 256
"""From this length on, programs traced where JAX's default device is a CPU contain the accelerators' algorithm too.

Shorter sequences are traced with the sequential scan alone, because tracing two algorithms takes longer, and few such
programs are exported to an accelerator.
"""

Equation = Callable[..., Array]
"""The value at one step, given the value at the next step, in which it is affine, and the sequences; elementwise."""

Times = Callable[[Array, Array], Array]
"""A product of weights and values."""

_Maps = tuple[Array, Array, Array | None]  # maps x -> δ + w x, and, if sequences are cut, where w is not 0 for a cut

_KEPT = "kept in a recurrence"
_WINDOW_UNROLLED = 32  # windows of at most this many steps are unrolled into one pass over the sequence


def backward(
    equation: Equation,
    sequences: Sequence[Any],
    *,
    end: Any = 0.0,
    continues_t: Array | None = None,
    steps: int | None = None,
) -> Array:
    """Solves x_t = equation(x_{t+1}, *sequences_t) backwards along the first axis.

    Every return, λ-return, advantage estimate and trace-weighted error is such a recurrence. On a CPU, it runs as a
    sequential reverse scan. An accelerator would start several kernels for each step of a scan. There, sequences are
    solved in a logarithmic number of parallel steps, since affine maps x -> δ + w x, where δ is the equation at 0 and w
    its derivative, compose to affine maps. The choice is made when the program is lowered
    (`jax.lax.platform_dependent`), so one exported program can serve several platforms. Half-precision inputs are
    accumulated in float32, and the result is converted back, because a sum of many small terms stalls in bfloat16.

    Args:
      equation: a function of x_{t+1}, in which it is affine, and of the values of the sequences at t. It must not
        be created anew for each call, because traces are cached by it. To multiply by a weight that may be 0 where the
        other factor is not finite, use `rlx.core.masking.weighted`.
      sequences: floats [T, ...]; numbers apply to every step.
      end: replaces x_{t+1} where nothing follows: a number, or floats [T, ...], of which only those entries are used.
      continues_t: booleans [T], false where nothing follows; by default, only at the last step.
      steps: the number of steps that x_t looks ahead, after which it uses `end`; by default, all steps.

    Returns:
      x_t, floats [T, ...] of the promoted dtype of the inputs. For T = 0 it is empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import backward
      >>> def discounted(g_t, r_t, discount_t):
      ...     return r_t + discount_t * g_t
      >>> backward(discounted, (jnp.array([1.0, 2.0, 3.0]), 0.5), end=4.0).tolist()
      [3.25, 4.5, 5.0]
    """
    dtype = jnp.result_type(*sequences, end)
    wide = wide_dtype(dtype)
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in sequences))
    windowed = steps is not None and steps < shape[0]
    if continues_t is None and not windowed:
        end = end if jnp.ndim(end) < len(shape) else end[-1] if shape[0] else 0.0  # only the last one is used
        shape_of_end = shape[1:]
    else:
        shape_of_end = shape
    numbers = tuple((i, x) for i, x in enumerate(sequences) if isinstance(x, float))
    arrays = tuple(
        jnp.broadcast_to(jnp.asarray(x, wide), shape) if jnp.ndim(x) else jnp.asarray(x, wide)
        for x in sequences
        if not isinstance(x, float)
    )
    end = jnp.broadcast_to(jnp.asarray(end, wide), shape_of_end)
    return _solve(equation, numbers, arrays, end, continues_t, steps if windowed else None).astype(dtype)


def kept(x: Array) -> Array:
    """Marks `x`, inside an equation, as a value to store for the gradient, which recomputes all other values.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import kept
      >>> float(kept(jnp.array(1.0)))
      1.0
    """
    return checkpoint_name(x, _KEPT)


@functools.partial(traced_once, static_argnums=(0, 1, 5))
def _solve(
    equation: Equation,
    numbers: tuple[tuple[int, float], ...],
    sequences: tuple[Array, ...],
    end: Array,
    continues_t: Array | None,
    steps: int | None,
) -> Array:
    equation = _with_numbers(equation, numbers)
    is_cut = continues_t is not None
    if is_cut or steps is not None:
        continues_t = continues_t if is_cut else jnp.arange(end.shape[0]) < end.shape[0] - 1
        continues_t = lax.expand_dims(continues_t, range(1, end.ndim))  # the same for all columns
        equation, sequences = _in_pieces(equation), (continues_t, end, *sequences)
        if steps is not None:
            return _in_windows(equation, sequences, steps, continues_t if is_cut else None)
        end = jnp.zeros(end.shape[1:], end.dtype)
    return _solution(equation, sequences, end)


def _solution(equation: Equation, sequences: tuple[Array, ...], end: Array) -> Array:
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.manual_axes or mesh.explicit_axes:
        sequences, end = _of_one_mesh(sequences, end)
    by_steps = functools.partial(scan, equation)
    steps = max(x.shape[0] for x in sequences if x.ndim)
    if not isinstance(steps, int):  # a symbolic dimension of `jax.export` may have any size
        return by_steps(sequences, end)
    if steps < CHOICE_FROM and jax.default_backend() == "cpu":
        return by_steps(sequences, end)
    return lax.platform_dependent(sequences, end, cpu=by_steps, default=functools.partial(doubling, equation))


def _with_numbers(equation: Equation, numbers: tuple[tuple[int, float], ...]) -> Equation:
    """The equation as a function of the arrays only. Numbers stay Python numbers, for `weighted` to compare with 0."""

    def of_arrays(after: Array, *arrays: Array) -> Array:
        given: list[Any] = list(arrays)
        for place, number in numbers:
            given.insert(place, number)
        return equation(after, *given)

    return of_arrays if numbers else equation


def _of_one_mesh(sequences: tuple[Array, ...], end: Array) -> tuple[tuple[Array, ...], Array]:
    """Makes everything vary between the devices of a `jax.shard_map` if anything does, and gives it the same mesh.

    JAX requires this, because a loop's carry must not begin to vary inside the loop, and what is made anew inside of
    `jax.jit` has no mesh in its type.
    """
    given = [jnp.atleast_1d(x).astype(end.dtype) for x in (*sequences, end)]
    zero = jax.lax.stop_gradient(sum(jnp.sum(x[:0]) for x in given))  # a sum of no elements
    return tuple(x if x.dtype == bool else x + zero for x in sequences), end + zero


def _in_pieces(equation: Equation) -> Equation:
    def at_step(after: Array, continues: Array, end: Array, *sequences: Array) -> Array:
        return equation(jnp.where(continues, after, end), *sequences)

    return at_step


def scan(equation: Equation, sequences: Sequence[Array], end: Array) -> Array:
    """`backward` step by step; sequences [T, ...] or [] and `end` [...] are of one dtype."""

    # Gradients recompute each step. Otherwise the loop would also store the comparison of each weight with 0.
    @functools.partial(jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(_KEPT))
    def step(after: Array, at_step: list[Array]) -> tuple[Array, Array]:
        given = iter(at_step)
        now = equation(after, *(next(given) if x.ndim else x for x in sequences))
        return now, now

    return lax.scan(step, end, [x for x in sequences if x.ndim], reverse=True)[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def doubling(equation: Equation, sequences: Sequence[Array], end: Array) -> Array:
    """`backward` in log2(T) steps, each of which doubles how far ahead entries look.

    The steps are a scan, so that tracing takes equally long for any T: programs for a CPU trace this branch too. It is
    unrolled when it is lowered, because on a GPU each turn of a loop takes longer than the step itself.
    """
    return _doubled(*_maps(equation, sequences), end)


def _doubled(
    delta_t: Array, w_t: Array, end: Array, times: Times = weighted, continues_t: Array | None = None
) -> Array:
    steps = delta_t.shape[0]
    lengths = 2 ** np.arange(max(steps - 1, 0).bit_length())

    def double(maps: _Maps, length: Array) -> tuple[_Maps, None]:
        def ahead(x: Array, beyond: int) -> Array:
            padded = _padded(x, beyond, 0, int(lengths[-1]))
            return lax.dynamic_slice_in_dim(padded, length, steps, allow_negative_indices=False)

        return _compose_with_later(*maps, ahead, times), None

    if lengths.size:
        maps = delta_t, w_t, continues_t
        (delta_t, w_t, _), _ = lax.scan(double, maps, jnp.asarray(lengths), unroll=True)
    return lax.add(delta_t, times(w_t, jnp.broadcast_to(end, delta_t.shape)))


def _slope(
    equation: Equation, primals: tuple[tuple[Array, ...], Array], tangents: tuple[tuple[Any, ...], Any]
) -> tuple[Array, Array]:
    """The tangent of x_t is such a recurrence too: ∂x_t = w_t ∂x_{t+1} + the tangent due to all the sequences.

    Differentiating the doubling itself would store the maps of each of its steps.
    """
    (sequences, end), (sequences_dot, end_dot) = primals, tangents
    x_t = _doubling_in_slopes(equation, sequences, end)
    after = jnp.concatenate([x_t, end[None]])[1:]
    vary = [i for i, dot in enumerate(sequences_dot) if not isinstance(dot, SymbolicZero)]

    def at_steps(*varying: Array) -> Array:
        given = dict(zip(vary, varying, strict=True))
        return equation(after, *(given.get(i, x) for i, x in enumerate(sequences)))

    delta_t = jnp.zeros_like(x_t)
    if vary:
        _, delta_t = jax.jvp(at_steps, tuple(sequences[i] for i in vary), tuple(sequences_dot[i] for i in vary))
    end_dot = jnp.zeros_like(end) if isinstance(end_dot, SymbolicZero) else end_dot
    # Not with `doubling`: JAX cannot transpose a function with a custom rule that also computes with constants. Nor
    # with `weighted`, which is not linear, and without its rule has a wrong derivative at a weight of 0.
    return x_t, _doubled(delta_t, _maps(equation, sequences)[1], end_dot, lax.mul, _continues(sequences))


doubling.defjvp(_slope, symbolic_zeros=True)
_doubling_in_slopes = in_slopes(doubling, _slope, nondiff_argnums=(0,))


def _maps(equation: Equation, sequences: Sequence[Array]) -> tuple[Array, Array]:
    """δ_t and w_t of the equation, which is an affine map x -> δ + w x."""
    shape = jnp.broadcast_shapes(*(x.shape for x in sequences))
    zero = jnp.zeros(shape, jnp.result_type(*(x for x in sequences if x.dtype != bool)))
    delta_t, w_t = jax.jvp(lambda after: equation(after, *sequences), (zero,), (jnp.ones_like(zero),))
    return delta_t, _joined(_continues(sequences), w_t)  # 0 where nothing follows, and not 0 · NaN


def _continues(sequences: Sequence[Array]) -> Array | None:
    """Where something follows, if this is one of the sequences: see `_in_pieces`."""
    return next((x for x in sequences if x.dtype == bool), None)


def _joined(continues_t: Array | None, x: Array) -> Array:
    """`x`, but 0 where nothing follows, so that derivatives do not take NaN from one piece to another as 0 · NaN."""
    if continues_t is None:
        return x
    return lax.select(jnp.broadcast_to(continues_t, x.shape), x, lax.full_like(x, 0))


def _weighted_within(joined: Array | None, w: Array, x: Array) -> Array:
    """`weighted(w, x)`, where w is 0 where nothing follows, and so that derivatives take nothing from there either."""
    return weighted(w, x) if joined is None else slope_where(joined, weighted(w, x))


def _in_windows(equation: Equation, sequences: tuple[Array, ...], n: int, cuts: Array | None) -> Array:
    """The recurrence truncated after `n` steps, fewer than there are; `sequences` is `(continues_t, end, …)`.

    `cuts` is `continues_t`, or None if only the end is one: nothing follows it from which derivatives could be NaN.
    """
    continues_t, end, *_ = sequences
    # An end value that no window reads must not affect the gradient of its weight, even if it is not finite.
    ends_one = ~continues_t | (lax.broadcasted_iota(np.int32, continues_t.shape, 0) >= n - 1)
    end = if_counted(ends_one, end)
    sequences = continues_t, end, *sequences[2:]
    last_t = equation(jnp.zeros_like(end), jnp.zeros_like(continues_t), *sequences[1:])
    solve = _windows_by_steps if n <= _WINDOW_UNROLLED else _windows_by_doubling
    return solve(*_maps(equation, sequences), last_t, n, cuts)


def _windows_by_steps(delta: Array, w: Array, last: Array, n: int, continues: Array | None) -> Array:
    steps = delta.shape[0]
    # The barrier prevents XLA from fusing the padding into its consumers, which would then not be vectorised.
    padded = [None if x is None else _padded(x, 0, 0, n - 1) for x in (delta, w, last, continues)]
    delta, w, last, joined = lax.optimization_barrier(padded)
    total = last[n - 1 :]
    for ahead in reversed(range(n - 1)):
        now = slice(ahead, ahead + steps)
        total = delta[now] + _weighted_within(None if joined is None else joined[now], w[now], total)
    return total


def _windows_by_doubling(delta: Array, w: Array, total: Array, n: int, joined: Array | None) -> Array:
    # delta and w are the composition of `length` successive maps; `total` includes the low bits of n - 1.
    remaining, length = n - 1, 1
    while remaining:
        if remaining % 2:
            total = delta + _weighted_within(joined, w, _ahead(length, total, 0))
        remaining //= 2
        if remaining:
            delta, w, joined = _compose_with_later(delta, w, joined, functools.partial(_ahead, length))
            length *= 2
    return total


def _compose_with_later(
    delta: Array, w: Array, joined: Array | None, ahead: Callable[[Array, int], Array], times: Times = weighted
) -> _Maps:
    """The composition of each map x -> delta + w x with a later one, which is the identity past the end."""
    both = None if joined is None else joined & ahead(joined, True)
    largest = np.finfo(w.dtype).max  # an overflow must stay finite, because 0 · ∞ is NaN
    product = lax.clamp(-largest, _joined(both, times(w, ahead(w, 1))), largest)
    return lax.add(delta, _joined(joined, times(w, ahead(delta, 0)))), product, both


def _ahead(steps: int, x: Array, beyond: int) -> Array:
    """x[t + steps], and `beyond` past the end."""
    return _padded(x, beyond, -steps, steps)


def _padded(x: Array, value: int, before: int, after: int) -> Array:
    return lax.pad(x, np.asarray(value, x.dtype), [(before, after, 0)] + [(0, 0, 0)] * (x.ndim - 1))
