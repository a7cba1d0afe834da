"""`transform`: a function that makes modules becomes a pair of pure functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, TypeVar, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from hkx.core.frame import Frame, Phase, current_frame, local, paths
from hkx.core.rng import PRNGSequence, as_key
from hkx.core.settings import InitSetting, init_setting
from hkx.core.signatures import sign, with_leading
from hkx.core.types import MutableParams, MutableState, Params, PRNGKey, State
from hkx.errors.core import (
    InvalidParamsError,
    JitInTransformError,
    NonEmptyStateError,
    NoSuchAttributeError,
    NotCallableError,
)
from hkx.errors.near import did_you_mean
from hkx.errors.slips import OF_TRANSFORMED
from hkx.init.blocks import running_recorder
from hkx.init.create import create, run

P = ParamSpec("P")
R = TypeVar("R")
InitP = ParamSpec("InitP")
ApplyP = ParamSpec("ApplyP")


def _no_such_attribute(pair: Any, name: str) -> Any:
    if name in OF_TRANSFORMED:
        raise NoSuchAttributeError(pair, name, OF_TRANSFORMED[name])
    try:
        return object.__getattribute__(pair, name)
    except AttributeError as error:
        if not name.startswith("_") and (meant := did_you_mean(name, dir(type(pair)))):
            error.args, error.name, error.obj = (f"{error}{meant}",), name, None
        raise


def _not_callable(pair: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotCallableError("What `hkx.transform` returns", OF_TRANSFORMED["forward"])


class Transformed(NamedTuple, Generic[InitP, ApplyP, R]):
    """A pair of pure functions.

    Attributes:
      init: `params = init(rng, *args, **kwargs)`.
      apply: `out = apply(params, rng, *args, **kwargs)`, or without `rng` after `hkx.without_apply_rng`.
    """

    init: Callable[InitP, MutableParams]
    apply: Callable[ApplyP, R]
    if not TYPE_CHECKING:
        __getattr__, __call__ = _no_such_attribute, _not_callable


class TransformedWithState(NamedTuple, Generic[InitP, ApplyP, R]):
    """A pair of pure functions that carry state.

    Attributes:
      init: `params, state = init(rng, *args, **kwargs)`.
      apply: `out, state = apply(params, state, rng, *args, **kwargs)`, or without `rng` after `hkx.without_apply_rng`.
    """

    init: Callable[InitP, tuple[MutableParams, MutableState]]
    apply: Callable[ApplyP, tuple[R, MutableState]]
    if not TYPE_CHECKING:
        __getattr__, __call__ = _no_such_attribute, _not_callable


class Context:
    """A running transform, as `new_context` gives it: `with` runs code in it, the `collect_` methods read it."""

    def __init__(self, frame: Frame):
        self._frame = frame

    def __enter__(self) -> Context:
        local.frames.append(self._frame)
        return self

    def __exit__(self, *exception: object) -> None:
        local.frames.remove(self._frame)
        if exception[:1] == (None,):
            for check in self._frame.at_end:
                check()

    def collect_params(self) -> MutableParams:
        """The parameters."""
        return {k: dict(v) for k, v in self._frame.params.items()}

    def collect_initial_state(self) -> MutableState:
        """The state as it was first set."""
        return {k: dict(v) for k, v in self._frame.initial_state.items()}

    def collect_state(self) -> MutableState:
        """The state as it is now."""
        return {k: dict(v) for k, v in self._frame.state.items()}


def new_context(
    *, params: Params | None = None, state: State | None = None, rng: PRNGKey | PRNGSequence | None = None
) -> Context:
    """A running transform without a function: modules may be made and called in its `with` block.

    Args:
      params: the parameters. None creates them, as `init` does; a mapping holds all of them, as in `apply`.
      state: the state that there is.
      rng: a typed key, a raw key, an int seed, a `PRNGSequence`, or None.

    Returns:
      A context manager with the methods `collect_params`, `collect_initial_state` and `collect_state`.

    Raises:
      InvalidParamsError: if `params` or `state` is not a mapping.
      InvalidRNGError: if `rng` is not a key.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> with hkx.new_context(rng=jax.random.key(0)) as context:
      ...     y = hkx.Linear(2)(jnp.ones([1, 3]))
      >>> jax.tree.map(jnp.shape, context.collect_params())
      {'linear': {'b': (2,), 'w': (3, 2)}}
    """
    _check_mappings(params, state)
    if rng is not None and not isinstance(rng, PRNGSequence):
        rng = PRNGSequence(as_key(rng, "`hkx.new_context`"))
    return Context(Frame(params or {}, state or {}, rng, phase=Phase.OPEN if params is None else Phase.CLOSED))


def running_init() -> bool:
    """Whether the running function is creating its parameters, in `init`, rather than using them, in `apply`.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx
      >>> hkx.transform(hkx.running_init).apply({}, None)
      False
    """
    return current_frame("hkx.running_init").running_init


def from_example(value: ArrayLike, otherwise: ArrayLike) -> jax.Array:
    """For an initial value that comes from the example arguments of `init`, where those have values.

    `init` runs only what an initial value depends on. Where a module's initial state is computed from what flows
    through the model, as the first average of `hkx.BatchNorm` is, that is the forward pass up to there. `init` with
    `jax.ShapeDtypeStruct` in place of arrays needs another value, and runs none of it.

    Args:
      value: an array that depends on the arguments of `init`.
      otherwise: one that does not, of a shape that can be broadcast to the shape of `value`, for example a number.

    Returns:
      During `init`, `otherwise` if `init` was given a `jax.ShapeDtypeStruct`; else `value`. Where all such values of
      the model together take more than 2**31 floating-point operations they are computed in one compiled program, and
      may differ from those of an ordinary run by rounding. Outside of `init`, `value`.

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
    if current_frame("hkx.from_example").running_init:
        recorder = running_recorder()
        value = jnp.asarray(value)
        if local.on_shapes:
            return jnp.broadcast_to(jnp.asarray(otherwise, value.dtype), value.shape)
        if recorder is not None:
            return recorder.example(value)
    return jnp.asarray(value)


_POSITIONS = {"init(rng, *a, **k)": "first", "apply(params, rng, *a, **k)": "second"}


def _key(rng: Any, where: str, signature: str) -> Any:
    if rng is None:
        return None
    position = _POSITIONS.get(signature, "third")
    return as_key(rng, f"{where} must be called with an RNG as the {position} argument, `{signature}`")


def refuse_twice(name: str, kwargs: Mapping[str, Any]) -> None:
    """Raises where what an `apply` fills in itself is given by name: an argument of the user's own can be called so."""
    if name in kwargs:
        raise TypeError(
            f"`apply` got {name!r} by name. The transforms add the arguments `params`, `state` and `rng`: where the "
            "function that is transformed has arguments of these names, pass them positionally."
        )


def _check_mappings(params: Any, state: Any) -> None:
    for what, value in (("params", params), ("state", state)):
        if value is not None and not isinstance(value, Mapping):
            raise InvalidParamsError(what, value)


def _check_callable(f: Any) -> None:
    if not callable(f) or isinstance(f, (Transformed, TransformedWithState)):
        raise TypeError(f"{f} is not a callable object: `hkx.transform` takes a function.")
    inner: Any = f
    while hasattr(inner, "func") and hasattr(inner, "keywords"):  # functools.partial
        inner = inner.func
    if isinstance(inner, jax.stages.Wrapped):
        raise JitInTransformError("jit")
    if inspect.isfunction(inner) and inspect.isfunction(getattr(inner, "lower", None)):  # of `hkx.jit` it is a method
        raise JitInTransformError("pmap")


_ANNOTATIONS: dict[str, Any] = {"rng": jax.Array | int | None, "params": Params | None, "state": State | None}


def _keep_signature(function: Callable[..., Any], f: Callable[..., Any], leading: tuple[str, ...], out: Any) -> None:
    """Gives `function` the arguments of `f` after the leading ones, for editors, `help` and `inspect.signature`.

    `out` says what it returns, given what `f` does.
    """
    name = f"{function.__name__.partition('_')[0]}_fn"  # as with dm-haiku, for the names of compiled programs
    function.hkx_made_of = f  # type: ignore[attr-defined]
    function.__name__ = name
    function.__qualname__ = f"{getattr(f, '__qualname__', type(f).__name__)}.{name}"
    function.__doc__ = f"`{name}({', '.join((*leading, '*args', '**kwargs'))})` of `{getattr(f, '__name__', f)}`."
    arguments = {name: _ANNOTATIONS[name] for name in leading}
    reserved = _ANNOTATIONS if name == "apply_fn" else ()
    sign(
        function,
        f,
        with_leading(arguments, reserved),
        lambda result: out(Any if result is inspect.Signature.empty else result),
    )


def transform_with_state(
    f: Callable[P, R], *, init: InitSetting | None = None
) -> TransformedWithState[
    Concatenate[PRNGKey | None, P], Concatenate[Params | None, State | None, PRNGKey | None, P], R
]:
    """Turns a function that makes modules, and uses state, into a pair of pure functions.

    Args:
      f: a function of any arguments. In it modules may be made, and parameters, state and keys asked for.
      init: how `init` runs `f`: "traced" (on abstract values, as `jax.jit` does: see below), "eager" (on real ones,
        forward pass included, as Haiku does) or "check" (both, and InitDependsOnTracingError where they differ). None
        for the setting of `hkx.config.set`, which is "traced" by default.

    Returns:
      `init(rng, *args, **kwargs) -> (params, state)` and `apply(params, state, rng, *args, **kwargs) -> (out, state)`.
      `rng` is a typed key, a raw key, an int seed, or None if no key is needed. `params` and `state` are dicts of
      dicts of arrays, by module and by name. `init` does not run the forward pass: it needs the shapes and dtypes of
      the arguments only, and takes `jax.ShapeDtypeStruct` for an array.

      Python code of `f` may run twice in `init`: abstractly, in containers of its own for the arguments, and once more
      on the arguments themselves where it asks for a value, keeps an array, or creates something from a NumPy array
      that it may have filled anew. Code that looks whether a value is traced takes its traced way; what a NumPy array
      held between two fillings is not always seen. Where that matters, `init="eager"` runs `f` once, on real values.

    Raises:
      JitInTransformError: if `f` is already compiled or mapped.
      LeakedByInitError: in `init`, if `f` keeps a traced array, in a list or a cache, say.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     n = hkx.get_state("calls", [], jnp.int32, init=jnp.zeros)
      ...     hkx.set_state("calls", n + 1)
      ...     return hkx.Linear(1)(x)
      >>> model = hkx.transform_with_state(f)
      >>> params, state = model.init(jax.random.key(0), jnp.ones([1, 3]))
      >>> y, state = model.apply(params, state, None, jnp.ones([1, 3]))
      >>> print(state["~"]["calls"])
      1
    """
    _check_callable(f)
    setting = init_setting(init)

    def init_fn(rng: PRNGKey | None, *args: P.args, **kwargs: P.kwargs) -> tuple[MutableParams, MutableState]:
        return create(f, _key(rng, "Init", "init(rng, *a, **k)"), args, kwargs, setting)

    def apply(
        params: Params | None, state: State | None, rng: PRNGKey | None, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[R, MutableState]:
        return _apply(f, params, state, rng, "apply(params, state, rng, *a, **k)", args, kwargs)

    _keep_signature(init_fn, f, ("rng",), lambda _: tuple[Params, State])
    _keep_signature(apply, f, ("params", "state", "rng"), lambda result: tuple[result, State])
    return TransformedWithState(init_fn, apply)


def _apply(
    f: Callable[..., R], params: Params | None, state: State | None, rng: Any, signature: str, args: Any, kwargs: Any
) -> tuple[R, MutableState]:
    _check_mappings(params, state)  # before the key: where the two are swapped, this says so
    key = _key(rng, "Apply", signature)
    frame = Frame(params or {}, state or {}, None if key is None else PRNGSequence(key), phase=Phase.CLOSED)
    out = run(f, frame, args, kwargs)
    return out, frame.state  # type: ignore[return-value]


@overload
def transform(
    f: Callable[P, R], *, apply_rng: Literal[True] = True, init: InitSetting | None = None
) -> Transformed[Concatenate[PRNGKey | None, P], Concatenate[Params | None, PRNGKey | None, P], R]: ...
@overload
def transform(
    f: Callable[P, R], *, apply_rng: Literal[False], init: InitSetting | None = None
) -> Transformed[Concatenate[PRNGKey | None, P], Concatenate[Params | None, P], R]: ...
@overload
def transform(
    f: Callable[P, R], *, apply_rng: bool, init: InitSetting | None = None
) -> Transformed[Concatenate[PRNGKey | None, P], ..., R]: ...
def transform(
    f: Callable[P, R], *, apply_rng: bool = True, init: InitSetting | None = None
) -> Transformed[..., ..., R]:
    """Turns a function that makes modules into a pair of pure functions.

    Args:
      f: a function of any arguments. In it modules may be made, and parameters and keys asked for.
      apply_rng: False leaves the key out of `apply`, as `hkx.without_apply_rng` does.
      init: how `init` runs `f`: "traced" (on abstract values, as `jax.jit` does: see below), "eager" (on real ones,
        forward pass included, as Haiku does) or "check" (both, and InitDependsOnTracingError where they differ). None
        for the setting of `hkx.config.set`, which is "traced" by default.

    Returns:
      `init(rng, *args, **kwargs) -> params` and `apply(params, rng, *args, **kwargs) -> out`. `rng` is a typed key, a
      raw key, an int seed, or None if no key is needed. `params` is a dict of dicts of arrays, by module and by name.
      `init` does not run the forward pass: it needs the shapes and dtypes of the arguments only, and takes
      `jax.ShapeDtypeStruct` for an array.

      Python code of `f` may run twice in `init`: abstractly, in containers of its own for the arguments, and once more
      on the arguments themselves where it asks for a value, keeps an array, or creates something from a NumPy array
      that it may have filled anew. Code that looks whether a value is traced takes its traced way; what a NumPy array
      held between two fillings is not always seen. Where that matters, `init="eager"` runs `f` once, on real values.

    Raises:
      JitInTransformError: if `f` is already compiled or mapped.
      LeakedByInitError: in `init`, if `f` keeps a traced array, in a list or a cache, say.
      NonEmptyStateError: in `init` and `apply`, if `f` uses state.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Linear(2)(x))
      >>> x = jnp.ones([1, 3])
      >>> params = model.init(jax.random.key(0), x)
      >>> jax.jit(model.apply)(params, None, x).shape
      (1, 2)
    """
    _check_callable(f)
    setting = init_setting(init)

    def init_fn(rng: PRNGKey | None, *args: P.args, **kwargs: P.kwargs) -> MutableParams:
        params, state = create(f, _key(rng, "Init", "init(rng, *a, **k)"), args, kwargs, setting)
        return stateless(params, state)

    def apply(params: Params | None, rng: PRNGKey | None, *args: P.args, **kwargs: P.kwargs) -> R:
        refuse_twice("state", kwargs)
        return stateless(*_apply(f, params, None, rng, "apply(params, rng, *a, **k)", args, kwargs))

    def apply_without_rng(params: Params | None, *args: P.args, **kwargs: P.kwargs) -> R:
        refuse_twice("state", kwargs)
        refuse_twice("rng", kwargs)
        return stateless(*_apply(f, params, None, None, "", args, kwargs))

    _keep_signature(init_fn, f, ("rng",), lambda _: Params)
    _keep_signature(apply, f, ("params", "rng"), lambda result: result)
    _keep_signature(apply_without_rng, f, ("params",), lambda result: result)
    return Transformed(init_fn, apply if apply_rng else apply_without_rng)


def stateless(out: Any, state: MutableState, instead: str = "transform_with_state") -> Any:
    """`out`, where there is no state; else NonEmptyStateError, naming the function to use `instead`."""
    if state:
        raise NonEmptyStateError(paths(state), instead)
    return out
