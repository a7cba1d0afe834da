"""`transform`: turns a function that creates modules into a pair of pure functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from hkx.base.entries import check_mappings
from hkx.base.keys import as_key
from hkx.base.named_tuples import plain
from hkx.base.signatures import sign_of_pair
from hkx.base.tracebacks import leaves_out_own_frames
from hkx.base.types import MutableParams, MutableState, Params, PRNGKey, State
from hkx.core.frame import Frame, Phase, current_frame, leave, local, paths
from hkx.core.hooks import Hooks, leave_entered_since
from hkx.core.making import Maker
from hkx.core.rng import PRNGSequence
from hkx.errors.advice import OF_TRANSFORMED
from hkx.errors.core import JitInTransformError, NonEmptyStateError

P = ParamSpec("P")
R = TypeVar("R")
InitP = ParamSpec("InitP")
ApplyP = ParamSpec("ApplyP")
Created: TypeAlias = tuple[MutableParams, MutableState]
Create: TypeAlias = Callable[[Callable[..., Any], Any, Any, Any], Created]
"""Creates the parameters and state of a function, given the function, a key or None, its args and its kwargs."""


@plain(instead=OF_TRANSFORMED)
class Transformed(NamedTuple, Generic[InitP, ApplyP, R]):
    """A pair of pure functions.

    Attributes:
      init: `params = init(rng, *args, **kwargs)`.
      apply: `out = apply(params, rng, *args, **kwargs)`, or without `rng` after `hkx.without_apply_rng`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> init, apply = hkx.transform(lambda x: hkx.Linear(3)(x))
      >>> apply(init(jax.random.key(0), jnp.ones(2)), None, jnp.ones(2)).shape
      (3,)
    """

    init: Callable[InitP, MutableParams]
    apply: Callable[ApplyP, R]


@plain(instead=OF_TRANSFORMED)
class TransformedWithState(NamedTuple, Generic[InitP, ApplyP, R]):
    """A pair of pure functions that carry state.

    Attributes:
      init: `params, state = init(rng, *args, **kwargs)`.
      apply: `out, state = apply(params, state, rng, *args, **kwargs)`, or without `rng` after `hkx.without_apply_rng`.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> init, apply = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.9)(x))
      >>> params, state = init(None, jnp.ones(()))
      >>> print(apply(params, state, None, jnp.ones(()))[0])
      1.0
    """

    init: Callable[InitP, tuple[MutableParams, MutableState]]
    apply: Callable[ApplyP, tuple[R, MutableState]]


def running_init() -> bool:
    """True in `init`, where the running function creates its parameters; False in `apply`, where it uses them.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx
      >>> hkx.transform(hkx.running_init).apply({}, None)
      False
    """
    return current_frame("hkx.running_init").running_init


def from_example(value: ArrayLike, otherwise: ArrayLike) -> jax.Array:
    """Initial value computed from the arguments of `init`, with a substitute where these are only shapes.

    The first average of `hkx.BatchNorm` is such a value: `init` runs the forward pass up to there. Given
    `jax.ShapeDtypeStruct` instead of arrays, `init` takes `otherwise`, and runs none of the forward pass.

    Args:
      value: an array that depends on the arguments of `init`.
      otherwise: an array that does not, with a shape that broadcasts to the shape of `value`, for example a number.

    Returns:
      During `init`, `otherwise` if `init` was given a `jax.ShapeDtypeStruct`, else `value`; outside of `init`, `value`.
      A costly forward pass (over 2**31 floating-point operations) is compiled as a whole, with its own rounding.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     shift = hkx.from_example(x.mean(0), 0)
      ...     return x - hkx.get_state("shift", shift.shape, init=lambda *_: shift)
      >>> init, apply = hkx.transform_with_state(f)
      >>> print(init(None, jnp.ones([5, 2]))[1]["~"]["shift"])
      [1. 1.]
      >>> print(init(None, jax.ShapeDtypeStruct([5, 2], jnp.float32))[1]["~"]["shift"])
      [0. 0.]
    """
    frame = current_frame("hkx.from_example")
    return frame.maker.example(jnp.asarray(value), otherwise) if frame.running_init else jnp.asarray(value)


def run(f: Callable[..., R], frame: Frame, args: Any, kwargs: Any) -> R:
    """Calls `f` in a frame, and leaves everything entered meanwhile, even after Ctrl-C or an abandoned generator."""
    hooks, lifted_prefix = local.hooks, local.lifted_prefix
    try:
        try:
            local.frames.append(frame)
            out = f(*args, **kwargs)
            for check in frame.exit_checks:
                check()
            return out
        finally:
            _leave(frame, hooks, lifted_prefix)
    finally:
        _leave(frame, hooks, lifted_prefix)  # again, in case Ctrl-C interrupted the first call


def _leave(frame: Frame, hooks: Hooks, lifted_prefix: str | None) -> None:
    leave(frame)
    leave_entered_since(hooks)
    local.lifted_prefix = lifted_prefix


def run_open(f: Callable[..., Any], maker: Maker, key: Any, args: Any = (), kwargs: Any = None) -> Created:
    """Runs `f` with `maker` creating the values; returns the parameters and the initial state that it creates."""
    rng = None if key is None else PRNGSequence(key).split_with(maker.split)
    frame = Frame({}, {}, rng, phase=Phase.OPEN, maker=maker)
    run(f, frame, args, kwargs or {})
    return frame.params, frame.initial_state  # type: ignore[return-value]


_POSITIONS = {"init(rng, *a, **k)": "first", "apply(params, rng, *a, **k)": "second"}


def _key(rng: Any, where: str, signature: str) -> Any:
    if rng is None:
        return None
    position = _POSITIONS.get(signature, "third")
    return as_key(rng, f"{where} must be called with an RNG as the {position} argument, `{signature}`")


def refuse_twice(name: str, kwargs: Mapping[str, Any]) -> None:
    """Raises an error if an argument that this `apply` supplies itself was passed by keyword.

    The user's function may have an argument of the same name.
    """
    if name in kwargs:
        raise TypeError(
            f"`apply` got {name!r} by name. The transforms add the arguments `params`, `state` and `rng`: where the "
            "function that is transformed has arguments of these names, pass them positionally."
        )


def _check_callable(f: Any) -> None:
    if not callable(f):
        raise TypeError(f"{f} is not a callable object: `hkx.transform` takes a function.")
    inner: Any = f
    while hasattr(inner, "func") and hasattr(inner, "keywords"):  # functools.partial
        inner = inner.func
    if isinstance(inner, jax.stages.Wrapped):
        raise JitInTransformError("jit")
    if inspect.isfunction(inner) and inspect.isfunction(getattr(inner, "lower", None)):  # for `hkx.jit` it is a method
        raise JitInTransformError("pmap")


def _apply(
    f: Callable[..., R], params: Params | None, state: State | None, rng: Any, signature: str, args: Any, kwargs: Any
) -> tuple[R, MutableState]:
    check_mappings(params, state)  # before the key, so that swapped arguments give this error
    key = _key(rng, "Apply", signature)
    frame = Frame(params or {}, state or {}, None if key is None else PRNGSequence(key), phase=Phase.CLOSED)
    out = run(f, frame, args, kwargs)
    return out, frame.state  # type: ignore[return-value]


def pair(
    f: Callable[P, R], create: Create
) -> TransformedWithState[
    Concatenate[PRNGKey | None, P], Concatenate[Params | None, State | None, PRNGKey | None, P], R
]:
    """The pair of functions of `hkx.transform_with_state`; its `init` calls `create`."""
    _check_callable(f)

    @leaves_out_own_frames
    def init_fn(rng: PRNGKey | None, *args: P.args, **kwargs: P.kwargs) -> tuple[MutableParams, MutableState]:
        return create(f, _key(rng, "Init", "init(rng, *a, **k)"), args, kwargs)

    @leaves_out_own_frames
    def apply(
        params: Params | None, state: State | None, rng: PRNGKey | None, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[R, MutableState]:
        return _apply(f, params, state, rng, "apply(params, state, rng, *a, **k)", args, kwargs)

    sign_of_pair(init_fn, f, ("rng",), lambda _: tuple[Params, State])
    sign_of_pair(apply, f, ("params", "state", "rng"), lambda result: tuple[result, State])
    return TransformedWithState(init_fn, apply)


def pair_without_state(f: Callable[P, R], create: Create, apply_rng: bool) -> Transformed[..., ..., R]:
    """The pair of functions of `hkx.transform`; its `init` calls `create`."""
    _check_callable(f)

    @leaves_out_own_frames
    def init_fn(rng: PRNGKey | None, *args: P.args, **kwargs: P.kwargs) -> MutableParams:
        params, state = create(f, _key(rng, "Init", "init(rng, *a, **k)"), args, kwargs)
        return stateless(params, state)

    @leaves_out_own_frames
    def apply(params: Params | None, rng: PRNGKey | None, *args: P.args, **kwargs: P.kwargs) -> R:
        refuse_twice("state", kwargs)
        return stateless(*_apply(f, params, None, rng, "apply(params, rng, *a, **k)", args, kwargs))

    @leaves_out_own_frames
    def apply_without_rng(params: Params | None, *args: P.args, **kwargs: P.kwargs) -> R:
        refuse_twice("state", kwargs)
        refuse_twice("rng", kwargs)
        return stateless(*_apply(f, params, None, None, "", args, kwargs))

    sign_of_pair(init_fn, f, ("rng",), lambda _: Params)
    sign_of_pair(apply, f, ("params", "rng"), lambda result: result)
    sign_of_pair(apply_without_rng, f, ("params",), lambda result: result)
    return Transformed(init_fn, apply if apply_rng else apply_without_rng)


def stateless(out: Any, state: MutableState, instead: str = "transform_with_state") -> Any:
    """Returns `out` if there is no state; otherwise raises NonEmptyStateError, which names the transform to use."""
    if state:
        raise NonEmptyStateError(paths(state), instead)
    return out
