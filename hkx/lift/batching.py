"""`vmap`, with parameters and state that are shared among the mapped calls, or separate for each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from hkx.arguments import checked_flag, checked_function, checked_integer
from hkx.base.entries import walk
from hkx.base.key_arrays import for_another_use
from hkx.base.signatures import like, unannotated, unsaid
from hkx.core.frame import Frame, Phase, current_frame, local
from hkx.core.guard import TraceMark
from hkx.errors.lift import BatchedKeysError, BatchedValueError, MissingSplitRNGError, NothingMappedError
from hkx.lift.captured import Captured
from hkx.lift.crossing import (
    NOTHING,
    Carry,
    Crossing,
    absorb,
    both,
    creating,
    draws_keys,
    only_looking,
    snapshot,
)
from hkx.lift.stacked import SHARED, Axes, Stacked, created_by

P = ParamSpec("P")
R = TypeVar("R")
# The `out_axes` of the shared values that a call changes, and of captured intermediates.
_COMMON: Any = Carry(None, None, None, None, 0)  # type: ignore[arg-type]


def vmap(
    fun: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    *,
    split_rng: bool | None = None,
    spmd_axis_name: Any = None,
    param_axes: Axes = None,
    state_axes: Axes = None,
) -> Callable[P, R]:
    """`jax.vmap` of a function that may create modules, ask for parameters, set state and draw keys.

    Args:
      fun: the function.
      in_axes: the axis to map over in each argument: an int, None, or a tuple of these or of trees of these.
      out_axes: the position of the mapped axis in the results, in the same form.
      axis_name: the name of the mapped axis, for `jax.lax.psum` and others.
      axis_size: the number of mapped calls, needed only if no argument is mapped.
      split_rng: whether every mapped call draws its own keys. Required.
      spmd_axis_name: as in `jax.vmap`.
      param_axes: None shares the parameters among the mapped calls. An int n gives each call its own parameters, with
        its own initial values, stacked along axis n: an ensemble. A function of the module's name and the parameter's
        name chooses this for each parameter.
      state_axes: the same for states.

    Returns:
      A function like `fun`, whose arguments and results have the mapped axis.

    Names of modules in `fun` are free again afterwards, as in Haiku: two calls that map `fun` use the same parameters.
    For two sets, name the modules, or create them outside. With `param_axes` or `state_axes`, the names stay taken.

    Raises:
      MissingSplitRNGError: if `split_rng` is not given.
      NothingMappedError: if nothing is mapped over, and `axis_size` is not given.
      BatchedValueError: if a shared parameter or state gets a value that differs between the mapped calls.
      BatchedKeysError: if calls that share their keys draw them in a branch that depends on a mapped value.
      MappedSizeError: if a parameter or state is stacked along an axis of another size.

    Outside of a transformed function it is `jax.vmap`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     return hkx.vmap(lambda x: hkx.Linear(2)(x), in_axes=None, param_axes=0, axis_size=10, split_rng=True)(x)
      >>> ensemble = hkx.transform(f)
      >>> params = ensemble.init(jax.random.key(0), jnp.ones(3))
      >>> params["linear"]["w"].shape, ensemble.apply(params, None, jnp.ones(3)).shape
      ((10, 3, 2), (10, 2))
    """
    checked_function(fun, "hkx.vmap", "fun")
    if split_rng is None and local.frames:
        if vmap.require_split_rng:  # type: ignore[attr-defined]
            raise MissingSplitRNGError()
        split_rng = False
    split_rng = None if split_rng is None else checked_flag(split_rng, "split_rng", "hkx.vmap")
    axis_size = None if axis_size is None else checked_integer(axis_size, "axis_size")
    options: dict[str, Any] = {"axis_name": axis_name, "axis_size": axis_size, "spmd_axis_name": spmd_axis_name}
    in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if axis_size is None and not jax.tree.leaves(in_axes):
        raise NothingMappedError(getattr(fun, "__name__", type(fun).__name__))
    outside = jax.vmap(fun, in_axes, out_axes, **options)

    @like(fun, unannotated, unsaid)  # the annotations of `fun` describe a single call
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        if not local.frames:
            return outside(*args, **kwargs)
        if split_rng is None:
            raise MissingSplitRNGError()
        frame = current_frame("hkx.vmap")

        def mapped(body: Any, out: Any = 0, axes: Any = (), extra: Any = ()) -> Any:
            if jax.tree.leaves(axes):
                return jax.vmap(body, (in_axes, 0, *axes), out, **options)(args, kwargs, *extra)

            @functools.wraps(fun, updated=())  # JAX's errors then name the arguments as the user does
            def call(*args: Any, **kwargs: Any) -> Any:
                return body(args, kwargs, *extra)

            return jax.vmap(call, in_axes, out, **options)(*args, **kwargs)

        stacked, size = SHARED, 0
        if param_axes is not None or state_axes is not None:
            stacked, size = _found(frame, fun, mapped, param_axes, state_axes)
        makes_own = not stacked.nothing and param_axes is not None and creating(frame)
        split = (split_rng or makes_own) and draws_keys(frame)
        if split and stacked is SHARED:
            size = _size(mapped, lambda args, kwargs: None)
        return _run(frame, fun, mapped, out_axes, stacked, size, split)

    return wrapped


vmap.require_split_rng = True  # type: ignore[attr-defined]


def _size(mapped: Any, look: Callable[[Any, Any], None]) -> int:
    """The number of mapped calls. `look` is called with the arguments of one of them."""

    def body(args: Any, kwargs: Any) -> Any:
        look(args, kwargs)
        return np.zeros(())

    return jax.eval_shape(lambda: mapped(body)).shape[0]


def _part(mapped: Any) -> Any:
    """The explicit axis of a mesh along which the mapped calls are divided; JAX asks that this be so for all inputs."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda: mapped(lambda args, kwargs: (args, kwargs))))
    return next((x.sharding.spec[0] for x in leaves if x.sharding is not None and x.sharding.spec[0]), None)


def _found(frame: Frame, fun: Any, mapped: Any, param_axes: Axes, state_axes: Axes) -> tuple[Stacked, int]:
    """Which parameters and states of the function are stacked, found by tracing it as in `init`; and the axis size."""
    before, created = snapshot(frame), NOTHING

    def look(args: Any, kwargs: Any) -> None:
        nonlocal created
        created = created_by(fun, "hkx.vmap", before, state_axes is not None, args, kwargs)

    size = _size(mapped, look)
    stacked = Stacked(created, param_axes, state_axes)
    return SHARED if stacked.nothing else stacked, size


def _run(frame: Frame, fun: Any, mapped: Any, out_axes: Any, stacked: Stacked, size: int, split: bool) -> Any:
    """Runs the mapped function. With `split`, every call draws its own keys."""
    crossing: Crossing[..., Any] = Crossing(fun, "hkx.vmap", names=not stacked.nothing)
    mark, before = TraceMark(), snapshot(frame)

    def call(held: Carry, args: Any, kwargs: Any, phase: Phase) -> tuple[Any, Carry, Carry]:
        out, new = crossing.call(held, args, kwargs, phase)
        common, own = stacked.divide(new._replace(rng=None) if split else new)
        _check_unbatched(mark, common)
        return out, common._replace(captured=new.captured), own

    def create(args: Any, kwargs: Any, rng: Any) -> Carry:
        shared, _ = stacked.divide(before)
        new = call(shared._replace(rng=rng), args, kwargs, Phase.OPEN)[1]
        return new._replace(state=new.initial_state, rng=None, captured=Captured())

    rng: Any = before.rng
    if split:
        keys = frame.rngs[-1].take_stacked(size or 1)  # with no calls, parameters are still created
        part = _part(mapped) if jax.sharding.get_abstract_mesh().explicit_axes else None
        rng = keys[:size] if part is None else jax.reshard(keys[:size], jax.P(part)), ()
        if creating(frame) and stacked.shares_new(before):
            # If everything is shared, create it with the key of the first call. Otherwise use a separate key, because
            # with a call's key, shared values would be correlated with that call's own.
            key = for_another_use(keys)[0] if stacked.nothing else frame.rngs[-1].next()
            with only_looking():
                absorb(frame, mapped(create, _COMMON, (None,), ((key, ()),)))
            before = snapshot(frame)
    shared, own = stacked.divide(before)
    phase = Phase.CREATED if split and stacked.nothing else Phase.OPEN

    def body(args: Any, kwargs: Any, own: Carry, rng: Any) -> Any:
        out, common, own = call(both(shared, own)._replace(rng=rng), args, kwargs, phase)
        return out, (own._replace(rng=None), common)

    stacked.check_sizes(own, size)
    axes = stacked.axes(own), 0 if split else None
    out, (own, common) = mapped(body, (out_axes, (0, _COMMON)), axes, (own, rng))
    crossing.finish(common)
    crossing.finish(stacked.moved(own))
    return out


def _check_unbatched(mark: TraceMark, changed: Carry) -> None:
    """Raises an error if a shared value to be stored, or the shared sequence of keys, differs between the calls."""
    for kind, tree in (("parameter", changed.params), ("state", changed.state)):
        for bundle, name, value in walk(tree):
            if mark.is_inner(value):
                raise BatchedValueError(kind, f"{bundle}/{name}")
    if mark.is_inner(changed.rng):
        raise BatchedKeysError()
