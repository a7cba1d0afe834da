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

from rlx.core.masking import masked, weighted
from rlx.core.tracing import traced_once
from rlx.core.types import Array, ArrayLike

Equation = Callable[..., Array]
"""The value at one step, given the value at the next step, in which it is affine, and the sequences; elementwise."""

_SAVED = "saved in a recurrence"


def backward(
    equation: Equation,
    sequences: Sequence[Any],
    *,
    end: Any = 0.0,
    continues_t: Array | None = None,
) -> Array:
    """Solves x_t = equation(x_{t+1}, *sequences_t) backwards along the first axis.

    Every return, λ-return, advantage estimate and trace-weighted error is such a recurrence. On a CPU, it runs as a
    sequential reverse scan. An accelerator would start several kernels for each step of a scan. There, sequences are
    solved in a logarithmic number of parallel steps, since affine maps x -> δ + w x, where δ is the equation at 0 and w
    its derivative, compose to affine maps.

    The choice between the two is made when a program is lowered (`jax.lax.platform_dependent`), but only in programs
    that are traced where JAX's default device is an accelerator. A program that is traced where the default device is
    a CPU holds the scan alone: one that is exported on such a machine for a GPU scans there too, which is right but
    slow. To keep the choice in it, too, `jax.vmap` would transpose all that enters and leaves.

    Args:
      equation: a function of x_{t+1}, in which it is affine, and of the values of the sequences at t. It must not
        be created anew for each call, because traces are cached by it. To multiply by a weight that may be 0 where the
        other factor is not finite, use `product`.
      sequences: floats [T, ...]; numbers apply to every step.
      end: replaces x_{t+1} where nothing follows: a number, or floats [T, ...], of which only those entries are used.
      continues_t: booleans [T], false where nothing follows, besides the last step.

    Returns:
      x_t, floats [T, ...] of the promoted dtype of the inputs. For T = 0 it is empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import backward, discounted
      >>> backward(discounted, (jnp.array([1.0, 2.0, 3.0]), 0.5), end=4.0).tolist()
      [3.25, 4.5, 5.0]
    """
    dtype = jnp.result_type(*sequences, end)
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in sequences))
    if continues_t is None and jnp.ndim(end) == len(shape):
        end = _last(end)
    numbers = tuple((i, x) for i, x in enumerate(sequences) if isinstance(x, float))
    arrays = tuple(
        jnp.broadcast_to(jnp.asarray(x, dtype), shape) if jnp.ndim(x) else jnp.asarray(x, dtype)
        for x in sequences
        if not isinstance(x, float)
    )
    end = jnp.broadcast_to(jnp.asarray(end, dtype), shape[1:] if continues_t is None else shape)
    return _solve(equation, numbers, arrays, end, continues_t)


def product(weight: ArrayLike, x: ArrayLike) -> Array:
    """`weighted(weight, x)` in a recurrence, with a rule for its derivative.

    JAX's derivative of `weighted` has one condition more, on `x`, which takes up to twice the time in a loop.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import product
      >>> product(jnp.array([0.0, 2.0]), jnp.array([jnp.inf, 3.0])).tolist()
      [0.0, 6.0]
    """
    if isinstance(weight, (int, float)) or isinstance(x, (int, float)) or jnp.ndim(weight) > jnp.ndim(x) == 0:
        return weighted(weight, x)
    # `jnp.array`: `jax.vmap` in `jax.jit` may hold arrays of NumPy, which a custom derivative takes after an operation.
    dtype = jnp.result_type(weight, x)
    return _product(jnp.array(weight, dtype), jnp.array(x, dtype))


@jax.custom_jvp
@traced_once
def _product(w: Array, x: Array) -> Array:
    return jnp.where(w == 0, lax.stop_gradient(w), w * x)


@functools.partial(_product.defjvp, symbolic_zeros=True)
def _product_tangent(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Any]:
    # 0 · x is 0 only of a finite x. The value is derived from once more by second derivatives, so it has its own in w.
    (w, x), (w_dot, x_dot) = primals, tangents
    both, zero = w * x, lax.stop_gradient(w)
    counts = (w != 0) | (both == 0)
    terms = [] if isinstance(w_dot, SymbolicZero) else [w_dot * jnp.where(counts, x, zero)]
    terms += [] if isinstance(x_dot, SymbolicZero) else [w * x_dot]
    return jnp.where(counts, both, zero), sum(terms[1:], terms[0])


def discounted(x_t: Array, delta_t: Array, discount_t: Array, lambda_: Array | float = 1.0) -> Array:
    """x_{t-1} = δ_t + γ_t λ_t x_t, the equation of returns, advantages and sums of errors.

    Example:
      >>> from rlx.core.recurrence import discounted
      >>> float(discounted(4.0, 1.0, 0.5))
      3.0
    """
    return delta_t + product(product(discount_t, lambda_), x_t)


def saved(x: Array) -> Array:
    """Marks `x`, inside an equation, as a value to store for the gradient, which recomputes all other values.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import saved
      >>> float(saved(jnp.array(1.0)))
      1.0
    """
    return checkpoint_name(x, _SAVED)


@functools.partial(traced_once, static_argnums=(0, 1))
def _solve(
    equation: Equation,
    numbers: tuple[tuple[int, float], ...],
    sequences: tuple[Array, ...],
    end: Array,
    continues_t: Array | None,
) -> Array:
    equation = _with_numbers(equation, numbers)
    if continues_t is None:
        return _solution(equation, sequences, end)
    continues_t = lax.expand_dims(continues_t, range(1, end.ndim))  # the same for all columns
    return _solution(_in_segments(equation), (continues_t, end, *sequences), _last(end))


def _last(x_t: Array) -> Array:
    """x_T, or 0 of an empty sequence."""
    return jnp.sum(x_t[-1:], axis=0)


def _solution(equation: Equation, sequences: tuple[Array, ...], end: Array) -> Array:
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.manual_axes or mesh.explicit_axes:
        sequences, end = _of_one_mesh(sequences, end)
    by_steps = functools.partial(scan, equation)
    steps = max(x.shape[0] for x in sequences if x.ndim)
    is_symbolic = not isinstance(steps, int)  # a dimension of `jax.export`, which may have any size
    if is_symbolic or jax.default_backend() == "cpu":
        return by_steps(sequences, end)
    return lax.platform_dependent(sequences, end, cpu=by_steps, default=functools.partial(doubling, equation))


def _with_numbers(equation: Equation, numbers: tuple[tuple[int, float], ...]) -> Equation:
    """The equation as a function of the arrays only. Numbers stay Python numbers, for `weighted` to compare with 0."""

    def of_arrays(after: Array, *arrays: Array) -> Array:
        given: list[Any] = list(arrays)
        for index, number in numbers:
            given.insert(index, number)
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


def _in_segments(equation: Equation) -> Equation:
    def at_step(after: Array, continues: Array, end: Array, *sequences: Array) -> Array:
        return equation(jnp.where(continues, after, end), *sequences)

    return at_step


def scan(equation: Equation, sequences: Sequence[Array], end: Array) -> Array:
    """`backward` step by step; sequences [T, ...] or [] and `end` [...] are of one dtype."""

    # Gradients recompute each step. Otherwise the loop would also store the comparison of each weight with 0.
    @functools.partial(jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(_SAVED))
    def step(after: Array, at_step: list[Array]) -> tuple[Array, Array]:
        given = iter(at_step)
        now = equation(after, *(next(given) if x.ndim else x for x in sequences))
        return now, now

    return lax.scan(step, end, [x for x in sequences if x.ndim], reverse=True)[1]


def doubling(equation: Equation, sequences: Sequence[Array], end: Array) -> Array:
    """`backward` in log₂ T steps, each of which doubles how far ahead entries look.

    The steps are a scan, so that tracing takes equally long for any T. It is unrolled when it is lowered, because on a
    GPU each turn of a loop takes longer than the step itself.
    """
    shape = jnp.broadcast_shapes(*(x.shape for x in sequences))
    zero = jnp.zeros(shape, end.dtype)
    delta_t, w_t = jax.jvp(lambda after: equation(after, *sequences), (zero,), (jnp.ones_like(zero),))
    continues_t = next((x for x in sequences if x.dtype == bool), jnp.ones(shape, bool))  # see `_in_segments`
    return _solved(delta_t, masked(continues_t, w_t), end, continues_t)


@jax.custom_jvp
def _solved(delta_t: Array, w_t: Array, end: Array, continues_t: Array) -> Array:
    """x_t = δ_t + w_t x_{t+1}, by doubling."""
    return _doubled(delta_t, w_t, end, w_t != 0)


@_solved.defjvp
def _tangent(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    """∂x_t = ∂δ_t + ∂w_t x_{t+1} + w_t ∂x_{t+1} is such a recurrence too.

    Differentiating the doubling itself would store the maps of each of its steps.
    """
    (_, w_t, end, continues_t), (delta_dot, w_dot, end_dot, _) = primals, tangents
    x_t = _solved(*primals)
    after = jnp.concatenate([x_t, end[None]])[1:]
    passes = continues_t & ((w_t != 0) | jnp.isfinite(after))
    return x_t, _doubled(delta_dot + w_dot * jnp.where(passes, after, lax.stop_gradient(w_t)), w_t, end_dot, passes)


def _doubled(delta_t: Array, w_t: Array, end: Array, passes_t: Array) -> Array:
    """x_t = δ_t + w_t x_{t+1}, where nothing passes to t from what follows if w_t is 0 and `passes_t` false."""
    steps = delta_t.shape[0]
    lengths = 2 ** np.arange(max(steps - 1, 0).bit_length())

    def double(maps: tuple[Array, ...], length: Array) -> tuple[tuple[Array, ...], None]:
        def ahead(x: Array, beyond: int) -> Array:
            after = [(0, int(lengths[-1]), 0)] + [(0, 0, 0)] * (x.ndim - 1)
            padded = lax.pad(x, np.asarray(beyond, x.dtype), after)
            return lax.dynamic_slice_in_dim(padded, length, steps, allow_negative_indices=False)

        delta, w, passes = maps
        further = passes & ahead(passes, True)
        largest = np.finfo(w.dtype).max  # an overflow must stay finite, because 0 · ∞ is NaN
        product = lax.clamp(-largest, _times(further, w, ahead(w, 1)), largest)
        return (delta + _times(passes, w, ahead(delta, 0)), product, further), None

    if lengths.size:
        (delta_t, w_t, passes_t), _ = lax.scan(double, (delta_t, w_t, passes_t), jnp.asarray(lengths), unroll=True)
    return delta_t + _times(passes_t, w_t, jnp.broadcast_to(end, delta_t.shape))


def _times(passes: Array, w: Array, x: Array) -> Array:
    """w x where it passes, else 0; linear in `x`, for JAX to transpose."""
    return w * jnp.where(passes, x, 0)


def backward_in_windows(delta_t: Array, w_t: Array, v_t: Array, n: int) -> Array:
    """Looks `n` steps ahead: x⁽⁰⁾_t = v_t and x⁽ᵏ⁾_{t-1} = δ_t + w_t x⁽ᵏ⁻¹⁾_t, with v_T past the end; floats [T].

    It takes log₂ n compositions of the map x -> δ + w x with itself, which past the end is the identity.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.recurrence import backward_in_windows
      >>> one = jnp.ones(3)
      >>> backward_in_windows(one, 0.5 * one, 8 * one, 2).tolist()
      [3.5, 3.5, 5.0]
    """
    remaining, length = max(min(n, len(v_t)) - 1, 0), 1

    def extended(x_t: Array, after: ArrayLike) -> Array:
        return jnp.concatenate([x_t, jnp.broadcast_to(jnp.asarray(after, x_t.dtype), (remaining, *x_t.shape[1:]))])

    delta_t, w_t, v_t = extended(delta_t, 0), extended(w_t, 1), extended(v_t, v_t[-1:])
    x_t = delta_t + product(w_t, v_t)
    while remaining > 0:
        if remaining % 2:
            after = x_t[length:]
            x_t = delta_t[: len(after)] + product(w_t[: len(after)], after)
        remaining //= 2
        if remaining:
            delta_t = delta_t[:-length] + product(w_t[:-length], delta_t[length:])
            w_t, length = product(w_t[:-length], w_t[length:]), 2 * length
    return x_t
