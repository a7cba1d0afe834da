"""Loops: `scan`, `map`, `fori_loop`, `while_loop` and `associative_scan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.arguments import checked_function
from hkx.base.entries import mapped, merged
from hkx.core.frame import Frame, current_frame, local
from hkx.errors.lift import ConditionEffectError
from hkx.lift import loops
from hkx.lift.checks import as_arrays, checked_unroll
from hkx.lift.crossing import (
    NOTHING,
    Carry,
    Crossing,
    changes_of_transform,
    check_carried,
    created_between,
    creating,
    draw_from,
    fill_keys,
    snapshot,
)
from hkx.lift.loops import Loop, check_carry, joined, runs_eagerly, settled, varying_like
from hkx.lift.stacked import Axes

C = TypeVar("C")
X = TypeVar("X")
Y = TypeVar("Y")


def scan(
    f: Callable[[C, X], tuple[C, Y]],
    init: C,
    xs: X = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    param_axes: Axes = None,
    state_axes: Axes = None,
) -> tuple[C, Y]:
    """`jax.lax.scan` with a body that may create modules, ask for parameters, set state and draw keys.

    Computes `carry, ys[t] = f(carry, xs[t])` for `t = 0 … length - 1`. State and keys pass from each iteration to the
    next. All iterations share their parameters, which `init` creates in the first one.

    Args:
      f: a function of the carry and of one slice of `xs`, which returns the new carry and one output. The carry must
        keep its structure, shapes and dtypes.
      init: the first carry, any tree.
      xs: a tree of arrays with the leading axis `length`, or None.
      length: the number of iterations, needed only if `xs` contains no array.
      reverse: runs from the last slice to the first; `ys` stays in the order of `xs`.
      unroll: how many iterations one step of the compiled loop contains.
      param_axes: None shares the parameters among the iterations. An int n gives each iteration its own parameters,
        with their own initial values, stacked along axis n, as in a stack of layers. A function of the module's name
        and the parameter's name decides for each parameter.
      state_axes: the same for states; shared states pass from each iteration to the next.

    Returns:
      The last carry, and the outputs stacked along a new leading axis.

    Raises:
      CarryMismatchError: if the carry changes its structure, shape or dtype.
      StateInLoopError: if a state does so, or if a state is created in `apply`.
      LateParameterError: if a later iteration asks for a parameter that the first one does not ask for.
      ScanLengthError: if the lengths differ, or no length is given.
      InvalidSizeError: if `length` is negative, or not a whole number.
      MappedSizeError: if a parameter or state is stacked along an axis of another size than `length`.

    Outside of a transformed function it is `jax.lax.scan`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(xs):
      ...     return hkx.scan(lambda h, x: 2 * [hkx.Linear(2)(h) + x], jnp.zeros(2), xs)
      >>> model = hkx.transform(f)
      >>> params = model.init(jax.random.key(0), jnp.ones([5, 2]))
      >>> list(params), model.apply(params, None, jnp.ones([5, 2]))[1].shape
      (['linear'], (5, 2))
    """
    if not local.frames:
        return jax.lax.scan(f, init, xs, length=length, reverse=reverse, unroll=unroll)
    return loops.scan("hkx.scan", f, init, xs, length, reverse, unroll, (param_axes, state_axes))


def map(f: Callable[[X], Y], xs: X) -> Y:
    """`jax.lax.map` whose function may create modules, ask for parameters, set state and draw keys.

    Computes `ys[t] = f(xs[t])`, one slice after the other.

    Args:
      f: a function of one slice.
      xs: a tree of arrays with the same leading axis.

    Returns:
      The results, stacked along a new leading axis.

    Raises:
      the same as `hkx.scan`.

    Outside of a transformed function it is `jax.lax.map`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda xs: hkx.map(lambda x: hkx.Linear(3)(x), xs))
      >>> params = model.init(jax.random.key(0), jnp.ones([5, 2]))
      >>> model.apply(params, None, jnp.ones([5, 2])).shape
      (5, 3)
    """
    if not local.frames:
        return jax.lax.map(f, xs)
    checked_function(f, "hkx.map", "f")
    return loops.scan("hkx.map", lambda _, x: ((), f(x)), (), xs)[1]


def _known(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer)


def _bounds(lower: Any, upper: Any) -> tuple[Any, Any]:
    """The bounds of a loop, as Python ints if both are known, which concrete arrays are inside a trace too.

    The index that JAX passes to the body is then weakly typed, as for Python ints.
    """
    if all(_known(b) and jnp.ndim(b) == 0 and jnp.issubdtype(jnp.result_type(b), jnp.integer) for b in (lower, upper)):
        return int(lower), int(upper)
    return lower, upper


def _select(pred: Any, on_true: Any, on_false: Any) -> Any:
    def choose(a: Any, b: Any) -> Any:
        return a if a is b else jnp.where(pred, a, b)

    return jax.tree.map(choose, on_true, on_false)


def _unchanged(init: Any, out: Any, name: str) -> Any:
    """The result of a loop without iterations: the first value, with the dtypes of the body's result."""
    check_carry(name, init, out, "a value")
    return joined(init, out, init)


def _first_iteration(
    frame: Frame, pred: Any, body: Crossing[..., Any], args: tuple[Any, ...], init: Any, name: str
) -> Any:
    """Runs the first iteration, to create what the body needs. Its result and its changes of state count if `pred`."""
    if _known(pred) and not pred:
        return body.visit(args, part=lambda out: _unchanged(init, out, name))
    before = snapshot(frame)
    out, new = body.call(before, args, any_state=True)
    new.captured.refuse(name)
    check_carry(name, init, out, "a value")
    if _known(pred):
        body.finish(new)
        return joined(init, out)
    check_carried(new.state)
    old = merged(new.initial_state, before.state)
    state = mapped(lambda bundle, entry, value: _select(pred, value, old[bundle][entry]), new.state)
    body.finish(new._replace(state=state))
    return _select(pred, out, init)


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, C], C], init_val: C, *, unroll: int | bool | None = None
) -> C:
    """`jax.lax.fori_loop` whose body may create modules, ask for parameters, set state and draw keys.

    Computes `val = body_fun(i, val)` for `i = lower … upper - 1`. During `init`, the body creates its parameters even
    if the loop runs zero times.

    Args:
      lower: the first index, an int or an integer array of shape [].
      upper: one more than the last index.
      body_fun: a function of the index and of the value that returns the new value.
      init_val: the first value, any tree.
      unroll: how many iterations one step of the compiled loop contains.

    Returns:
      The last value.

    Raises:
      the same as `hkx.scan`.

    Outside of a transformed function it is `jax.lax.fori_loop`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.fori_loop(0, 3, lambda i, y: hkx.Linear(2)(y), x))
      >>> params = model.init(jax.random.key(0), jnp.ones(2))
      >>> model.apply(params, None, jnp.ones(2)).shape
      (2,)
    """
    if not local.frames:
        return jax.lax.fori_loop(lower, upper, body_fun, init_val, unroll=unroll)
    name = "hkx.fori_loop"
    unroll = None if unroll is None else checked_unroll(unroll)
    frame = current_frame(name)
    pure: Crossing[..., Any] = Crossing(body_fun, name, in_loop=True)
    init_val = as_arrays(init_val)
    if frame.running_init:
        if not (isinstance(lower, int) and isinstance(upper, int)):  # JAX checks here what it checks in `apply`
            jax.eval_shape(lambda: jax.lax.fori_loop(lower, upper, lambda i, nothing: nothing, ()))
        lower, upper = _bounds(lower, upper)
        known = isinstance(lower, int) and isinstance(upper, int)
        pred = bool(lower < upper) if known else jnp.asarray(lower < upper)
        init_val = _first_iteration(frame, pred, pure, (as_arrays(lower), init_val), init_val, name)
        lower = lower + 1
        if known and lower >= upper:
            if lower > upper:  # in Haiku, a loop of no iterations splits off keys, unlike a loop of one
                fill_keys(frame)
            pure.finish(NOTHING)
            return init_val
    loop = Loop(frame, name)

    def body(i: Any, value: Any) -> Any:
        out, moving = loop.step(pure, value[1], i, value[0])
        check_carry(name, value[0], out, "a value")
        return varying_like((out, moving), value)

    if runs_eagerly():  # the body takes names even if it is not called
        jax.eval_shape(body, lower, (init_val, loop.start))
    start = settled(lambda value: body(lower, value), (init_val, loop.start))
    out, moving = jax.lax.fori_loop(lower, upper, body, start, unroll=unroll)
    loop.finish(moving, pure)
    return out


def while_loop(cond_fun: Callable[[C], Any], body_fun: Callable[[C], C], init_val: C) -> C:
    """`jax.lax.while_loop` whose functions may create modules and parameters; the body may set state and draw keys.

    Computes `while cond_fun(val): val = body_fun(val)`. During `init`, both functions create their parameters even if
    the loop runs zero times.

    Args:
      cond_fun: a function of the value that returns a bool of shape [].
      body_fun: a function of the value that returns the new value.
      init_val: the first value, any tree.

    Returns:
      The last value.

    Raises:
      ConditionEffectError: if `cond_fun` sets state or draws a key.
      and the same as `hkx.scan`.

    Outside of a transformed function it is `jax.lax.while_loop`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     return hkx.while_loop(lambda y: jnp.abs(y).sum() < 9, lambda y: y + hkx.Linear(2, w_init=jnp.ones)(y), x)
      >>> model = hkx.transform(f)
      >>> model.apply(model.init(jax.random.key(0), jnp.ones(2)), None, jnp.ones(2))
      Array([9., 9.], dtype=float32)
    """
    if not local.frames:
        return jax.lax.while_loop(cond_fun, body_fun, init_val)
    name = "hkx.while_loop"
    frame = current_frame(name)
    condition: Crossing[..., Any] = Crossing(cond_fun, name, in_loop=True)
    init_val = as_arrays(init_val)
    if creating(frame):
        before = snapshot(frame)
        go = condition.visit((init_val,), part=lambda go: go)
        if not created_between(before, snapshot(frame)):
            draw_from(frame, before.rng)
        body: Crossing[..., Any] = Crossing(body_fun, name, after=condition, in_loop=True)
        init_val = _first_iteration(frame, go, body, (init_val,), init_val, name)
    loop = Loop(frame, name)
    bodies: list[Crossing[..., Any]] = []

    def pure_cond(value: Any) -> Any:
        go, moving = loop.step(condition, value[1], value[0])
        state, keys = value[1]
        new = changes_of_transform(Carry({}, state, {}, keys), moving)
        if new.state or new.rng is not None:
            raise ConditionEffectError()
        return go

    def pure_body(value: Any) -> Any:
        bodies[:] = [Crossing(body_fun, name, after=condition, in_loop=True)]
        out, moving = loop.step(bodies[0], value[1], value[0])
        check_carry(name, value[0], out, "a value")
        return varying_like((out, moving), value)

    if runs_eagerly():
        jax.eval_shape(pure_cond, (init_val, loop.start))
        jax.eval_shape(pure_body, (init_val, loop.start))
    out, moving = jax.lax.while_loop(pure_cond, pure_body, settled(pure_body, (init_val, loop.start)))
    loop.finish(moving, condition, *bodies)
    return out


def associative_scan(fn: Callable[[X, X], X], elems: X, reverse: bool = False, axis: int = 0) -> X:
    """`jax.lax.associative_scan` whose operator may create modules and ask for parameters.

    Computes `out[t] = fn(out[t - 1], elems[t])` in parallel, for an associative operator. The operator is called on
    several slices at a time, about `2 log2(length)` times, and asks for the same parameters each time.

    Args:
      fn: an associative function of two trees of slices, which keep the scanned axis.
      elems: a tree of arrays with the same size along `axis`.
      reverse: runs from the last element to the first.
      axis: the axis to scan along.

    Returns:
      A tree like `elems`.

    Raises:
      IndexError: if an array lacks the axis.
      CarryMismatchError: if the function changes the number of arrays, their shapes or dtypes.

    Outside of a transformed function it is `jax.lax.associative_scan`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     def combine(a, b):
      ...         return a + b * hkx.get_parameter("scale", [], init=jnp.ones)
      ...     return hkx.associative_scan(combine, x)
      >>> model = hkx.transform(f)
      >>> print(model.apply(model.init(None, jnp.ones(3)), None, jnp.ones(3)))
      [1. 2. 3.]
    """
    if not local.frames:
        return jax.lax.associative_scan(fn, elems, reverse=reverse, axis=axis)
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(elems)]
    for shape in shapes:
        np.lib.array_utils.normalize_axis_index(axis, len(shape), "`axis` of `hkx.associative_scan`")
    checked_function(fn, "hkx.associative_scan", "fn")

    def combine(first: Any, second: Any) -> Any:
        given = jax.tree.leaves(first)  # before `fn` can take it apart
        out = fn(first, second)
        check_carry("hkx.associative_scan", given, jax.tree.leaves(out), "a tree of arrays")
        return out

    pure: Crossing[..., Any] = Crossing(combine, "hkx.associative_scan")
    if creating(current_frame("hkx.associative_scan")) and all(shape[axis] < 2 for shape in shapes):
        pure.inline(elems, elems)
    return jax.lax.associative_scan(pure.inline, elems, reverse=reverse, axis=axis)


__all__ = ["associative_scan", "fori_loop", "map", "scan", "while_loop"]
