"""Conversions between the kinds of transformed functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import jax

from hkx.arguments import checked_function
from hkx.base.named_tuples import plain
from hkx.base.signatures import Parameters, first_of_pair, pair_with, same, sign, with_leading, without
from hkx.base.tracebacks import leaves_out_own_frames
from hkx.base.types import MutableParams, MutableState, Params, PRNGKey, State
from hkx.core.settings import InitSetting
from hkx.core.transform import Transformed, TransformedWithState, refuse_twice, stateless
from hkx.errors.core import InvalidTemplateError, InvalidTransformedError
from hkx.init.transform import transform_with_state

P = ParamSpec("P")
P1 = ParamSpec("P1")
P2 = ParamSpec("P2")
P3 = ParamSpec("P3")
R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
InitP = ParamSpec("InitP")
Tree = TypeVar("Tree")
Apply: TypeAlias = Callable[Concatenate[Params | None, PRNGKey | None, P], R]
ApplyWithState: TypeAlias = Callable[
    Concatenate[Params | None, State | None, PRNGKey | None, P], tuple[R, MutableState]
]


class _NamedFields(Protocol):
    """A named tuple whose fields are unknown to type checkers."""

    @property
    def _fields(self) -> tuple[str, ...]: ...


@plain(instead={})
class MultiTransformed(NamedTuple, Generic[InitP, Tree]):
    """An `init`, and several pure functions of the parameters that it makes.

    Attributes:
      init: `params = init(rng, *args, **kwargs)`.
      apply: a tree of functions, each `out = apply(params, rng, *args, **kwargs)`, or without `rng` after
        `hkx.without_apply_rng`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f():
      ...     encoder, decoder = hkx.Linear(2), hkx.Linear(3)
      ...     return lambda x: decoder(encoder(x)), (encoder, decoder)
      >>> init, (encode, decode) = hkx.multi_transform(f)
      >>> encode(init(jax.random.key(0), jnp.ones(3)), None, jnp.ones(3)).shape
      (2,)
    """

    init: Callable[InitP, MutableParams]
    apply: Tree


@plain(instead={})
class MultiTransformedWithState(NamedTuple, Generic[InitP, Tree]):
    """An `init`, and several pure functions of the parameters and state that it makes.

    Attributes:
      init: `params, state = init(rng, *args, **kwargs)`.
      apply: a tree of functions, each `out, state = apply(params, state, rng, *args, **kwargs)`, or without `rng` after
        `hkx.without_apply_rng`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f():
      ...     average = hkx.ExponentialMovingAverage(0.9)
      ...     return average, {"update": average, "read": lambda: average.average}
      >>> model = hkx.multi_transform_with_state(f)
      >>> params, state = model.init(None, jnp.ones(()))
      >>> print(model.apply["read"](params, state, None)[0])
      1.0
    """

    init: Callable[InitP, tuple[MutableParams, MutableState]]
    apply: Tree


@overload
def multi_transform_with_state(
    f: Callable[[], tuple[Callable[P, Any], _NamedFields]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformedWithState[Concatenate[PRNGKey | None, P], Any]: ...
@overload
def multi_transform_with_state(
    f: Callable[[], tuple[Callable[P, Any], Callable[P1, R1]]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformedWithState[
    Concatenate[PRNGKey | None, P],
    ApplyWithState[P1, R1],
]: ...
@overload
def multi_transform_with_state(
    f: Callable[[], tuple[Callable[P, Any], tuple[Callable[P1, R1], Callable[P2, R2]]]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformedWithState[
    Concatenate[PRNGKey | None, P],
    tuple[
        ApplyWithState[P1, R1],
        ApplyWithState[P2, R2],
    ],
]: ...
@overload
def multi_transform_with_state(
    f: Callable[[], tuple[Callable[P, Any], tuple[Callable[P1, R1], Callable[P2, R2], Callable[P3, R3]]]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformedWithState[
    Concatenate[PRNGKey | None, P],
    tuple[
        ApplyWithState[P1, R1],
        ApplyWithState[P2, R2],
        ApplyWithState[P3, R3],
    ],
]: ...
@overload
def multi_transform_with_state(
    f: Callable[[], tuple[Callable[P, Any], Any]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformedWithState[Concatenate[PRNGKey | None, P], Any]: ...
def multi_transform_with_state(
    f: Callable[[], tuple[Callable[..., Any], Any]], *, init: InitSetting | None = None
) -> MultiTransformedWithState[..., Any]:
    """Turns several functions that share modules, and use state, into pure functions.

    Args:
      f: a function of no arguments that makes the modules and returns `(init, apply)`: a function that uses all of
        them, and a tree of functions. It runs anew each time that one of them is called.
      init: how `init` runs it, as in `hkx.transform`.

    Returns:
      A `MultiTransformedWithState`, whose `apply` is a tree of functions like that of `f`.

    Raises:
      InvalidTemplateError: if `f` does not return such a pair.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f():
      ...     norm = hkx.ExponentialMovingAverage(0.9)
      ...     return norm, {"update": norm, "look": lambda x: norm(x, update_stats=False)}
      >>> model = hkx.multi_transform_with_state(f)
      >>> params, state = model.init(None, jnp.ones([]))
      >>> y, state = model.apply["update"](params, state, None, jnp.ones([]))
    """
    init_like, applies_like = _look_at(f)
    leaves, structure = jax.tree.flatten(applies_like)

    def part(i: int) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return jax.tree.leaves(_pair(f)[1])[i](*args, **kwargs)

        return transform_with_state(_named_like(leaves[i], run)).apply

    def run_all(*args: Any, **kwargs: Any) -> Any:
        return _pair(f)[0](*args, **kwargs)

    applies = [part(i) for i in range(len(leaves))]
    init_fn = transform_with_state(_named_like(init_like, run_all), init=init).init
    return MultiTransformedWithState(init_fn, jax.tree.unflatten(structure, applies))


@overload
def multi_transform(
    f: Callable[[], tuple[Callable[P, Any], _NamedFields]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformed[Concatenate[PRNGKey | None, P], Any]: ...
@overload
def multi_transform(
    f: Callable[[], tuple[Callable[P, Any], Callable[P1, R1]]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformed[Concatenate[PRNGKey | None, P], Apply[P1, R1]]: ...
@overload
def multi_transform(
    f: Callable[[], tuple[Callable[P, Any], tuple[Callable[P1, R1], Callable[P2, R2]]]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformed[
    Concatenate[PRNGKey | None, P],
    tuple[
        Apply[P1, R1],
        Apply[P2, R2],
    ],
]: ...
@overload
def multi_transform(
    f: Callable[[], tuple[Callable[P, Any], tuple[Callable[P1, R1], Callable[P2, R2], Callable[P3, R3]]]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformed[
    Concatenate[PRNGKey | None, P],
    tuple[
        Apply[P1, R1],
        Apply[P2, R2],
        Apply[P3, R3],
    ],
]: ...
@overload
def multi_transform(
    f: Callable[[], tuple[Callable[P, Any], Any]],
    *,
    init: InitSetting | None = None,
) -> MultiTransformed[Concatenate[PRNGKey | None, P], Any]: ...
def multi_transform(
    f: Callable[[], tuple[Callable[..., Any], Any]], *, init: InitSetting | None = None
) -> MultiTransformed[..., Any]:
    """Turns several functions that share modules into pure functions: one set of parameters, several entry points.

    Args:
      f: a function of no arguments that makes the modules and returns `(init, apply)`: a function that uses all of
        them, and a tree of functions. It runs anew each time that one of them is called.
      init: how `init` runs it, as in `hkx.transform`.

    Returns:
      A `MultiTransformed`, whose `apply` is a tree of functions like that of `f`.

    Raises:
      InvalidTemplateError: if `f` does not return such a pair.
      NonEmptyStateError: in `init` and `apply`, if the functions use state.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f():
      ...     encoder, decoder = hkx.Linear(2, name="encoder"), hkx.Linear(5, name="decoder")
      ...     return lambda x: decoder(encoder(x)), (encoder, decoder)
      >>> autoencoder = hkx.multi_transform(f)
      >>> encode, decode = autoencoder.apply
      >>> x = jnp.ones([1, 5])
      >>> params = autoencoder.init(jax.random.key(0), x)
      >>> decode(params, None, encode(params, None, x)).shape
      (1, 5)
    """
    return MultiTransformed(*_without_state(multi_transform_with_state(f, init=init), _WITH_STATE))


_WITH_STATE = "multi_transform_with_state"


def _pair(f: Callable[[], Any]) -> tuple[Any, Any]:
    pair = checked_function(f, "hkx.multi_transform", "f")()
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not callable(pair[0]):
        raise InvalidTemplateError(pair)
    for leaf in jax.tree.leaves(pair[1]):
        if not callable(leaf):
            raise InvalidTemplateError(leaf)
    return pair[0], pair[1]


def _look_at(f: Callable[[], Any]) -> tuple[Any, Any]:
    """The result of `f`, which is run without computing anything."""
    found: list[Any] = []

    def look() -> None:
        found[:] = _pair(f)

    jax.eval_shape(transform_with_state(look).init, jax.random.key(0))
    return found[0], found[1]


def _named_like(function: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` with the name and signature of a function or a module."""
    sign(run, function)
    run.__name__ = getattr(function, "__name__", None) or getattr(function, "name", "apply")
    return run


def _arguments_of(
    f: Callable[..., Any],
    function: Callable[..., Any],
    change: Callable[[Parameters], Parameters] = same,
    out: Callable[[Any], Any] = same,
) -> Callable[..., Any]:
    """`function` with the name and a changed signature of `f`, for editors and `inspect.signature`."""
    function = leaves_out_own_frames(function)
    function.__name__ = getattr(f, "__name__", function.__name__)
    function.__qualname__ = getattr(f, "__qualname__", function.__qualname__)
    if hasattr(f, "_original_fn"):
        function._original_fn = f._original_fn  # type: ignore[attr-defined]
    sign(function, f, change, out)
    return function


def _with_state(given: Parameters) -> Parameters:
    """The arguments of an `apply`, with the state inserted after the parameters."""
    leading = {given[0].name: given[0].annotation, "state": State | None}
    return with_leading(leading)(given[1:])


@overload
def without_apply_rng(
    f: Transformed[InitP, Concatenate[Params | None, PRNGKey | None, P], R],
) -> Transformed[InitP, Concatenate[Params | None, P], R]: ...
@overload
def without_apply_rng(
    f: TransformedWithState[InitP, Concatenate[Params | None, State | None, PRNGKey | None, P], R],
) -> TransformedWithState[InitP, Concatenate[Params | None, State | None, P], R]: ...
@overload
def without_apply_rng(f: MultiTransformed[InitP, Any]) -> MultiTransformed[InitP, Any]: ...
@overload
def without_apply_rng(f: MultiTransformedWithState[InitP, Any]) -> MultiTransformedWithState[InitP, Any]: ...
def without_apply_rng(f: Any) -> Any:
    """Leaves the key out of `apply`.

    Args:
      f: a `Transformed`, `TransformedWithState`, `MultiTransformed` or `MultiTransformedWithState`.

    Returns:
      The same kind, whose `apply` (or each of its functions) is called without `rng` and uses no random numbers.

    Raises:
      InvalidTransformedError: if `f` is of another kind.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.without_apply_rng(hkx.transform(lambda x: hkx.Linear(1)(x)))
      >>> x = jnp.ones([1, 1])
      >>> model.apply(model.init(jax.random.key(0), x), x).shape
      (1, 1)
    """
    if isinstance(f, (TransformedWithState, MultiTransformedWithState)):
        return type(f)(f.init, jax.tree.map(_without_rng_with_state, f.apply))  # type: ignore[arg-type]
    if isinstance(f, (Transformed, MultiTransformed)):
        return type(f)(f.init, jax.tree.map(_without_rng, f.apply))  # type: ignore[arg-type]
    makers = "transform", "multi_transform", "transform_with_state", _WITH_STATE
    raise InvalidTransformedError(f, "without_apply_rng", *makers)


def _check_pair(f: Any, taker: str, maker: str, other: tuple[type, ...] = ()) -> None:
    if isinstance(f, other) or not (hasattr(f, "init") and hasattr(f, "apply")):
        raise InvalidTransformedError(f, taker, maker)


def _without_rng(apply: Callable[..., Any]) -> Callable[..., Any]:
    def apply_without_rng(params: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_twice("rng", kwargs)
        return apply(params, None, *args, **kwargs)

    return _arguments_of(apply, apply_without_rng, without(1))


def _without_rng_with_state(apply: Callable[..., Any]) -> Callable[..., Any]:
    def apply_without_rng(params: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_twice("rng", kwargs)
        return apply(params, state, None, *args, **kwargs)

    return _arguments_of(apply, apply_without_rng, without(2))


def without_state(
    f: TransformedWithState[InitP, Concatenate[Params | None, State | None, P], R],
) -> Transformed[InitP, Concatenate[Params | None, P], R]:
    """Drops the state from a pair that was transformed with state and uses none.

    Args:
      f: a `TransformedWithState`.

    Returns:
      A `Transformed`.

    Raises:
      NonEmptyStateError: in `init` and `apply`, if the function does use state.

    Example:

      >>> import hkx
      >>> model = hkx.without_state(hkx.transform_with_state(lambda x: x + 1))
      >>> model.apply(model.init(None, 1), None, 1)
      2
    """
    _check_pair(f, "without_state", "transform_with_state", (Transformed, MultiTransformed))
    return Transformed(*_without_state(f, "transform_with_state"))


def _without_state(f: Any, instead: str) -> tuple[Any, Any]:
    """An `init`, and an `apply` or a tree of them, which raise an error naming `instead` if there is state."""

    def init(*args: Any, **kwargs: Any) -> Any:
        return stateless(*f.init(*args, **kwargs), instead=instead)

    def part(apply_with_state: Callable[..., Any]) -> Callable[..., Any]:
        def apply(params: Any, *args: Any, **kwargs: Any) -> Any:
            refuse_twice("state", kwargs)
            return stateless(*apply_with_state(params, {}, *args, **kwargs), instead=instead)

        return _arguments_of(apply_with_state, apply, without(1), first_of_pair)

    return _arguments_of(f.init, init, out=first_of_pair), jax.tree.map(part, f.apply)


def with_empty_state(
    f: Transformed[InitP, Concatenate[Params | None, P], R],
) -> TransformedWithState[InitP, Concatenate[Params | None, State | None, P], R]:
    """Gives a pair that uses no state the signatures of one that does.

    Args:
      f: a `Transformed`.

    Returns:
      A `TransformedWithState`: the state that `apply` is given is not used, and the one that it returns is `{}`.

    Example:

      >>> import hkx
      >>> model = hkx.with_empty_state(hkx.transform(lambda x: x + 1))
      >>> params, state = model.init(None, 1)
      >>> model.apply(params, state, None, 1)
      (2, {})
    """
    _check_pair(f, "with_empty_state", "transform", (TransformedWithState, MultiTransformedWithState))

    def init(*args: InitP.args, **kwargs: InitP.kwargs) -> Any:
        return f.init(*args, **kwargs), {}

    def apply(params: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return f.apply(params, *args, **kwargs), {}

    apply = _arguments_of(f.apply, apply, _with_state, pair_with(State))
    return TransformedWithState(_arguments_of(f.init, init, out=pair_with(State)), apply)
