"""The engine of loops: passes state and keys from one iteration to the next. Parameters are shared, or one for each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from hkx.arguments import checked_flag
from hkx.base.entries import merged
from hkx.core.frame import Frame, Phase, current_frame, paths
from hkx.errors.core import described
from hkx.errors.lift import BodyResultError, CarryMismatchError, LateParameterError, ScanLengthError, StateInLoopError
from hkx.lift.captured import Captured
from hkx.lift.checks import (
    as_arrays,
    checked_length,
    checked_pair,
    checked_unroll,
    difference,
    entry_name,
    is_value,
    is_weak,
)
from hkx.lift.crossing import (
    NOTHING,
    Carry,
    Crossing,
    absorb,
    both,
    changes,
    changes_of_transform,
    check_carried,
    fill_keys,
    only_looking,
    snapshot,
)
from hkx.lift.stacked import SHARED, Axes, Stacked, created_by

T = TypeVar("T")


def runs_eagerly() -> bool:
    """True if JAX executes loops and branches directly (`jax_disable_jit`), rather than tracing bodies and branches."""
    return bool(jax.config.jax_disable_jit)  # type: ignore[attr-defined]


def types_of(tree: Any) -> Any:
    """The types of the arrays of a tree, which say between which devices they vary."""
    return jax.eval_shape(lambda: tree)


def _never() -> list[jax.Array]:
    """False, varying along each axis of the `jax.shard_map` that is running; none if it does not check what varies."""
    axes = jax.sharding.get_abstract_mesh().manual_axes
    if not axes:
        return []
    false = jnp.asarray(False)
    varying = [jax.lax.pcast(false, axis, to="varying") for axis in axes]
    return [never for never in varying if types_of(never) != types_of(false)]


def _varies(type_: Any, never: jax.Array) -> bool:
    """True if arrays of this type vary along the axis along which `never` does."""
    return jax.eval_shape(lambda x: jax.lax.select(never, x, x), type_) == type_


def varies(value: Any) -> bool:
    """True if an array in a tree varies between the devices of a `jax.shard_map` that checks it."""
    return any(_varies(type_, never) for never in _never() for type_ in jax.tree.leaves(types_of(value)))


def varying_as(tree: T, types: Any) -> T:
    """`tree`, which varies between the devices of a `jax.shard_map` where arrays of these types do too.

    JAX requires this of what a loop carries and of what branches return. Values do not change.
    """

    def join(x: Any, type_: Any) -> Any:
        for never in axes:
            x = jax.lax.select(never, x, x) if _varies(type_, never) else x
        return x

    axes = _never()
    return jax.tree.map(join, tree, types) if axes and types_of(tree) != types else tree


def varying_like(tree: T, given: T) -> T:
    """`tree`, which varies between the devices of a `jax.shard_map` where what was given does too."""
    return varying_as(tree, types_of(given)) if _never() else tree


def settled(step: Callable[[T], T], carry: T) -> T:
    """The carry with which a loop begins: it varies between the devices of a `jax.shard_map` where later ones do."""
    while _never():
        with only_looking():
            after = jax.eval_shape(step, carry)
        before, carry = carry, varying_as(carry, after)
        if types_of(before) == types_of(carry):
            break
    return carry


def same_output_types(branches: Sequence[Callable[..., Any]], *args: Any) -> Sequence[Callable[..., Any]]:
    """The branches; what they return varies between the devices of a `jax.shard_map` where that of any of them does."""
    if not _never():
        return branches
    with only_looking():
        types = [jax.eval_shape(branch, *args) for branch in branches]
    return [lambda *args, branch=branch: functools.reduce(varying_as, types, branch(*args)) for branch in branches]


class Loop:
    """The values that are constant during a JAX loop, and the calls of its body.

    Attributes:
      start: the state and keys for the first iteration, which are carried in addition to the user's carry.
    """

    def __init__(self, frame: Frame, name: str, phase: Phase = Phase.RUN, stacked: Stacked = SHARED):
        """`name` is the public function that creates this object; for branches, `phase` is CREATED."""
        fill_keys(frame)
        self._frame = frame
        self._name = name
        self._phase = phase
        self._stacked = stacked
        self._before = snapshot(frame)
        self._shared, _ = stacked.divide(self._before)
        check_carried(self._shared.state)
        self.start: tuple[Any, Any] = (self._shared.state, self._shared.rng)

    def vary_with(self, choice: Any) -> None:
        """Makes parameters vary between the devices of a `jax.shard_map` where the choice of a branch does.

        Else JAX sums their gradient over the devices inside of the branch, and waits for those that took another one.
        """
        params = self._shared.params
        for never in _never():
            if _varies(types_of(jnp.asarray(choice)), never):
                params = jax.tree.map(functools.partial(jax.lax.select, never), params, params)
        self._shared = self._shared._replace(params=params)

    def step(self, body: Crossing[..., Any], moving: Any, *args: Any) -> tuple[Any, Any]:
        """Calls a body in the trace of a loop. Returns its result, and the state and keys for the next iteration."""
        out, moving, left = self.step_with_own(body, moving, NOTHING, *args)
        left.captured.refuse(self._name)
        return out, moving

    def step_with_own(self, body: Crossing[..., Any], moving: Any, own: Carry, *args: Any) -> tuple[Any, Any, Carry]:
        """Like `step`, for an iteration with its own parameters and states. Also returns these, and captured values."""
        held = both(self._shared._replace(state=moving[0], rng=moving[1]), own)
        out, after = body.run(held, args, phase=self._phase, full_keys=True)
        new, left = _own(self._stacked, own, changes(held, after))
        late = list(paths(new.params))
        if late:
            raise LateParameterError(self._name, late)
        state = self._stacked.divide(after)[0].state
        # For branches, the caller first compares their states with one another.
        if self._phase is not Phase.CREATED or set(paths(moving[0])) != set(paths(state)):
            self.check(moving[0], state)
        return out, (state, after.rng), left

    def check(self, before: Any, after: Any) -> None:
        """Raises an error if a state has changed its structure, shape or dtype."""
        problem = difference(before, after, entry_name, ("before", "after"))
        if problem:
            raise StateInLoopError(self._name, problem)

    def finish(self, moving: Any, *bodies: Crossing[..., Any]) -> None:
        """Writes the final state and keys, and the names that the bodies took, into the running frame."""
        absorb(self._frame, changes_of_transform(self._before, moving))
        for body in bodies:
            body.finish(NOTHING)


def _own(stacked: Stacked, own: Carry, new: Carry) -> tuple[Carry, Carry]:
    """Divides the changes of an iteration into shared and own entries. The latter include own states not changed."""
    shared, mine = stacked.divide(new._replace(captured=Captured()))
    return shared, mine._replace(state=merged(own.state, mine.state), rng=None, captured=new.captured)


def check_carry(name: str, given: Any, returned: Any, what: str = "a carry") -> None:
    """Raises an error if the carry that a body returns is not like the one that it was given."""
    problem = difference(given, returned)
    if problem:
        raise CarryMismatchError(name, what, problem)


def _pair(name: str, result: Any) -> tuple[Any, Any]:
    carry, y = checked_pair(name, result, "a pair `(carry, y)`")
    for leaf in jax.tree.leaves(y):
        if not is_value(leaf):
            raise BodyResultError(name, leaf, "arrays as outputs, which are stacked")
    return carry, y


def _length(name: str, xs: Any, length: int | None) -> int:
    leaves = jax.tree.leaves(xs)
    for leaf in leaves:
        if not is_value(leaf):
            raise ScanLengthError(name, f"{described(leaf)} among its inputs, which is no array")
        if jnp.ndim(leaf) == 0:
            raise ScanLengthError(name, f"the scalar {leaf!r} among its inputs")
    sizes = sorted(
        {jnp.shape(leaf)[0] for leaf in leaves} | ({checked_length(length)} if length is not None else set())
    )
    if not sizes:
        raise ScanLengthError(name, "neither inputs nor a length")
    if len(sizes) > 1:
        raise ScanLengthError(name, f"inputs of the different lengths {sizes}")
    return sizes[0]


def joined(before: Any, after: Any, values: Any = None) -> Any:
    """The carry `after` (or other `values`), with the dtypes that a carry that began as `before` has from now on.

    A weakly typed carry, from a Python number, takes the dtype that the body returns, as in JAX. If what the body
    returns is weakly typed and of the same dtype, it stays weakly typed.
    """

    def join(a: Any, b: Any, value: Any) -> Any:
        dtype = jax.typeof(b).dtype
        if is_weak(a) and is_weak(b) and jax.typeof(a).dtype == dtype:
            return jnp.asarray(value)
        return jnp.asarray(value, dtype if jnp.issubdtype(dtype, jax.dtypes.prng_key) else jnp.result_type(a, b))

    return jax.tree.map(join, before, after, after if values is None else values)


def scan(
    name: str,
    f: Any,
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    axes: tuple[Axes, Axes] = (None, None),
) -> tuple[Any, Any]:
    """The implementation of `hkx.scan`, for the public function `name`; `axes` are the axes of stacked entries.

    In `init`, the first iteration runs outside of JAX's loop, because it creates parameters and state.
    """
    frame = current_frame(name)
    length, unroll, reverse = _length(name, xs, length), checked_unroll(unroll), checked_flag(reverse, "reverse", name)
    init = as_arrays(init)
    body: Crossing[..., Any] = Crossing(f, name, in_loop=True)
    slice_of = lambda i: lambda a: jnp.asarray(a)[i] if length else jnp.zeros_like(a, shape=jnp.shape(a)[1:])  # noqa: E731
    stacked = SHARED
    if axes[0] is not None or axes[1] is not None:
        example, held = (init, jax.tree.map(slice_of(0), xs)), snapshot(frame)
        created = jax.eval_shape(lambda: created_by(f, name, held, axes[1] is not None, example, {}))
        stacked = Stacked(created, *axes)
        fill_keys(frame)
    slices = xs, stacked.leading(snapshot(frame), length)
    ys: list[Any] = []
    open_dtypes = False
    if frame.running_init:
        first, rest = (-1, slice(None, -1)) if reverse else (0, slice(1, None))
        x, own = jax.tree.map(slice_of(first), slices)
        result, new = body.call(both(stacked.divide(snapshot(frame))[0], own), (init, x), any_state=True)
        shared, left = _own(stacked, own, new)
        absorb(frame, shared)
        carry, y = _pair(name, result)
        check_carry(name, init, carry)
        ys.append(jax.tree.map(lambda a: jnp.asarray(a)[None][:length], (y, left)))
        init = joined(init, carry, carry if length else init)
        slices, length = jax.tree.map(lambda a: jnp.asarray(a)[rest], slices), max(length - 1, 0)
        open_dtypes = any(map(is_weak, jax.tree.leaves(y)))  # decided by what later iterations return, even if none do
    if length > 0 or not ys or open_dtypes:
        loop = Loop(frame, name, Phase.RUN if stacked.nothing else Phase.OPEN, stacked)

        def step(carry: Any, slices: Any) -> Any:
            given, moving = carry
            result, moving, left = loop.step_with_own(body, moving, slices[1], given, slices[0])
            new, y = _pair(name, result)
            check_carry(name, given, new)
            return varying_like((new, moving), carry), (y, left)

        stated = None if jax.tree.leaves(slices) else length  # JAX does not accept a symbolic dimension as `length`
        start = settled(lambda carry: step(carry, jax.tree.map(slice_of(0), slices))[0], (init, loop.start))
        (init, moving), others = jax.lax.scan(step, start, slices, stated, reverse=reverse, unroll=unroll)
        loop.finish(moving)
        ys.insert(0 if reverse else 1, others)
    y, left = ys[0] if len(ys) == 1 else jax.tree.map(lambda *parts: jnp.concatenate(parts), *ys)
    body.finish(stacked.moved(left))
    return init, y
