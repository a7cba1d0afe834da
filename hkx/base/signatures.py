"""Signatures of functions that are made from other functions, for editors, `help` and `inspect`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, TypeVar

import jax

from hkx.base.types import Params, State

F = TypeVar("F", bound=Callable[..., Any])
Parameters = list[Parameter]


def same(given: Any) -> Any:
    """Keeps the arguments or the result of the other function."""
    return given


def returning(result: Any) -> Callable[[Any], Any]:
    """Replaces the result's annotation by `result`."""
    return lambda _: result


unsaid = returning(Signature.empty)
"""Removes the result's annotation, because that of the other function would be wrong."""


def positional(parameters: Parameters) -> Parameters:
    """The arguments that can be passed by position, made positional-only."""
    fixed = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    by_position = [p.replace(kind=Parameter.POSITIONAL_ONLY) for p in parameters if p.kind in fixed]
    return by_position + [p for p in parameters if p.kind is Parameter.VAR_POSITIONAL]


def unannotated(parameters: Parameters) -> Parameters:
    """The arguments without their annotations."""
    return [p.replace(annotation=Parameter.empty) for p in parameters]


def with_leading(leading: Mapping[str, Any], reserved: Collection[str] = ()) -> Callable[[Parameters], Parameters]:
    """Adds arguments with the given names and annotations at the front.

    If the other function has an argument of one of these names, or of a reserved name, that argument can only be passed
    by position, and is shown with a trailing underscore if its name would occur twice. A keyword-only one is dropped.
    """

    def change(rest: Parameters) -> Parameters:
        names = {*leading, *reserved}
        rest = [p for p in rest if not (p.name in names and p.kind is Parameter.KEYWORD_ONLY)]
        last = max((i for i, p in enumerate(rest) if _clashes(p, names)), default=-1)
        taken = {*leading, *(p.name for p in rest)}
        renamed = []
        for i, p in enumerate(rest):
            name = p.name
            while name in leading or (name != p.name and name in taken):
                name += "_"
            by_position = i <= last and p.kind is Parameter.POSITIONAL_OR_KEYWORD
            renamed.append(p.replace(name=name, kind=Parameter.POSITIONAL_ONLY if by_position else p.kind))
        some = any(p.kind is Parameter.POSITIONAL_ONLY for p in renamed)
        kind = Parameter.POSITIONAL_ONLY if some else Parameter.POSITIONAL_OR_KEYWORD
        return [Parameter(name, kind, annotation=annotation) for name, annotation in leading.items()] + renamed

    return change


def _clashes(parameter: Parameter, names: Collection[str]) -> bool:
    return parameter.name in names and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD


def without(position: int) -> Callable[[Parameters], Parameters]:
    """Removes the argument at one position."""
    variable = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
    return lambda given: [p for n, p in enumerate(given) if n != position or p.kind in variable]


def with_keyword(name: str, default: Any, annotation: Any) -> Callable[[Parameters], Parameters]:
    """Makes all arguments positional-only, and adds a keyword-only one."""
    own = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    return lambda given: [*(p for p in positional(given) if p.name != name), own]


def pair_with(second: Any) -> Callable[[Any], Any]:
    """Makes the result a pair, with `second` as its second part."""
    return lambda result: tuple[Any if result is Signature.empty else result, second]


def first_of_pair(result: Any) -> Any:
    """The annotation of the first result of a pair."""
    return typing.get_args(result)[0] if typing.get_origin(result) is tuple else result


def second_of_pair(result: Any) -> Any:
    """The annotation of the second result of a pair; Any if it is unknown."""
    found = typing.get_args(result)
    return found[1] if typing.get_origin(result) is tuple and len(found) == 2 else Any


def sign(
    function: Callable[..., Any],
    fun: Callable[..., Any],
    parameters: Callable[[Parameters], Parameters] = same,
    result: Callable[[Any], Any] = same,
) -> None:
    """Gives `function` the changed signature of `fun`, from which it is made, if `fun` has a signature.

    Args:
      function: the function that is made.
      fun: the function that it is made from.
      parameters: changes the list of arguments.
      result: changes the annotation of the result.
    """
    with contextlib.suppress(TypeError, ValueError, IndexError):
        theirs = inspect.signature(fun)
        given = parameters(list(theirs.parameters.values()))
        signature = theirs.replace(parameters=given, return_annotation=result(theirs.return_annotation))
        said = {p.name: p.annotation for p in given} | {"return": signature.return_annotation}
        said = {name: annotation for name, annotation in said.items() if annotation is not Signature.empty}
        own = [theirs.return_annotation, *(p.annotation for p in theirs.parameters.values())]
        function.__signature__ = signature  # type: ignore[attr-defined]
        function.__annotations__ = said if all(a is Signature.empty for a in own) else _evaluated(said, fun)


def _evaluated(annotations: dict[str, Any], fun: Any) -> dict[str, Any]:
    """The annotations without names of the module of `fun`, which nobody would find in ours.

    Those that have no value, because they name what is defined later or inside of a function, are left out.
    """
    while isinstance(fun, functools.partial):
        fun = fun.func
    names = getattr(inspect.unwrap(fun if hasattr(fun, "__globals__") else type(fun).__call__), "__globals__", {})

    def evaluated(some: dict[str, Any]) -> dict[str, Any]:
        def annotated() -> None: ...

        annotated.__annotations__ = some
        return typing.get_type_hints(annotated, names, include_extras=True)

    with contextlib.suppress(Exception):
        return evaluated(annotations)
    found: dict[str, Any] = {}
    for name, annotation in annotations.items():
        with contextlib.suppress(Exception):
            found |= evaluated({name: annotation})
    return found


def like(
    fun: Callable[..., Any],
    parameters: Callable[[Parameters], Parameters] = same,
    result: Callable[[Any], Any] = same,
    attributes: bool = True,
) -> Callable[[F], F]:
    """Like `functools.wraps(fun)`, with a changed signature.

    Args:
      fun: the wrapped function.
      parameters: as for `sign`.
      result: as for `sign`.
      attributes: whether to copy the attributes of `fun` too.
    """

    def decorate(function: F) -> F:
        functools.update_wrapper(function, fun, updated=("__dict__",) if attributes else ())
        sign(function, fun, parameters, result)
        return function

    return decorate


_ANNOTATIONS: dict[str, Any] = {"rng": jax.Array | int | None, "params": Params | None, "state": State | None}


def sign_of_pair(function: Callable[..., Any], f: Callable[..., Any], leading: tuple[str, ...], out: Any) -> None:
    """Gives `function`, the `init` or `apply` of a pair, a name, and the arguments of `f` after the leading ones.

    `out` maps the annotation of the result of `f` to that of `function`.
    """
    name = f"{function.__name__.partition('_')[0]}_fn"  # as in dm-haiku: compiled programs are named after it
    function._original_fn = f  # type: ignore[attr-defined]  # read by users of dm-haiku, which sets it too
    function.__name__ = name
    function.__qualname__ = f"{getattr(f, '__qualname__', type(f).__name__)}.{name}"
    function.__doc__ = f"`{name}({', '.join((*leading, '*args', '**kwargs'))})` of `{getattr(f, '__name__', f)}`."
    arguments = {name: _ANNOTATIONS[name] for name in leading}
    reserved = _ANNOTATIONS if name == "apply_fn" else ()
    sign(
        function,
        f,
        with_leading(arguments, reserved),
        lambda result: out(Any if result is Signature.empty else result),
    )


def static_arguments(
    fun: Any, numbers: Sequence[int] | None, names: Sequence[str] | None, count: int
) -> set[int | str]:
    """The positions and the names of the static arguments, however they were given to `jax.jit`."""
    static: set[int | str] = {n if n >= 0 else n + count for n in numbers or ()}
    static |= set(names or ())
    try:
        order = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        order = []
    return static | {i for i, n in enumerate(order) if n in static} | {n for i, n in enumerate(order) if i in static}
