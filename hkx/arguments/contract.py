"""The contract of a function: its arguments are checked and converted as its annotations declare.

An annotation declares something if it is a `typing.Annotated` with a `Rule` in it, or that `| None`. All others, and
those that cannot be evaluated, declare nothing. They are read at the first call.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_BY_NAME_ONLY = 2**31  # the position of an argument that is only passed by its name


def _is_none(value: Any) -> bool:
    return value is None


class Rule:
    """The check of an argument, in a `typing.Annotated`.

    Args:
      check: called as `check(value, argument, taker)` with the value, the name of the argument, and that of the class
        or function; it returns the value that the method or function gets, or raises an error.
      absent: a function that is true for values that count as None, if None is allowed; only None by default.

    Example:

      >>> import hkx
      >>> from typing import Annotated
      >>> def even(value, argument, taker):
      ...     if value % 2:
      ...         raise ValueError(f"`{argument}` of `{taker}` must be even, got {value}.")
      ...     return value
      >>> class Halves(hkx.Module):
      ...     def __init__(self, size: Annotated[int, hkx.arguments.Rule(even)], name=None):
      ...         super().__init__(name=name)
      ...         self.half = size // 2
      >>> hkx.testing.transform_and_run(lambda: Halves(6).half)()
      3
      >>> try:
      ...     hkx.testing.transform_and_run(lambda: Halves(5))()
      ... except ValueError as error:
      ...     print(error)
      `size` of `Halves` must be even, got 5.
    """

    def __init__(self, check: Callable[..., Any], absent: Callable[[Any], bool] = _is_none):
        self.check, self.absent = check, absent

    def __call__(self, value: Any, argument: str, taker: str, sizes: dict[str, Any]) -> Any:
        """Returns the value that the function gets; `sizes` are the named dimensions of this call so far."""
        return self.check(value, argument, taker)

    def of(self, type_: Any) -> Rule:
        """The rule of an annotation with this type."""
        return self


class Contract:
    """A function, and `run`, which calls it with arguments that its annotations allow.

    Args:
      function: a function, or a method, whose first argument is its object.
      taker: the name of the function in errors; None for a method, which has the name of the class of its object.
    """

    def __init__(self, function: Callable[..., Any], taker: str | None = None):
        self.function, self.taker = function, taker
        self.run: Callable[..., Any] = self._first

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        declared = declared_by(self.function)
        self.run = functools.partial(_checked, self.function, declared, self.taker) if declared else self.function
        return self.run(*args, **kwargs)


def checked(function: F) -> F:
    """Decorates a function, whose arguments are then checked and converted as its annotations declare.

    Methods of modules need no decorator.

    Example:

      >>> import hkx, jax
      >>> from hkx.arguments import Num, Size
      >>> @hkx.arguments.checked
      ... def repeated(x: Num[jax.Array, "D"], times: Size):
      ...     return jax.numpy.concatenate([x] * times)
      >>> print(repeated([1.0, 2.0], 2))
      [1. 2. 1. 2.]
    """
    contract = Contract(function, function.__name__)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return contract.run(*args, **kwargs)

    return call  # type: ignore[return-value]


def declared_by(function: Callable[..., Any]) -> list[tuple[int, str, Rule, bool]]:
    """The declared arguments of a function: position, name, rule, and whether None is allowed."""
    try:  # not `__wrapped__`: a decorator may pass on other arguments than it takes
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError, NameError):  # no signature, or (from Python 3.14 on) a name that is not defined
        return []
    found = []
    for i, p in enumerate(parameters):
        rule, optional = rule_of(_evaluated(p.annotation, function))
        if rule is not None and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            index = _BY_NAME_ONLY if p.kind is p.KEYWORD_ONLY else i
            found.append((index, p.name, rule, optional or p.default is None))  # `size: Size = None` allows None
    return found


def _checked(function: Callable[..., Any], declared: list[Any], taker: str | None, /, *args: Any, **kwargs: Any) -> Any:
    given, values, sizes = len(args), list(args), {}
    name = taker or type(args[0] if args else None).__name__
    for index, argument, rule, optional in declared:  # only those that were passed: defaults are the author's
        if index < given:
            value = values[index]
            values[index] = None if optional and rule.absent(value) else rule(value, argument, name, sizes)
        elif argument in kwargs:
            value = kwargs[argument]
            kwargs[argument] = None if optional and rule.absent(value) else rule(value, argument, name, sizes)
    return function(*values, **kwargs)


def rule_of(annotation: Any) -> tuple[Rule | None, bool]:
    """The rule in an annotation, and whether it also allows None."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part is not types.NoneType]
        optional = len(parts) < len(typing.get_args(annotation))
        return (rule_of(parts[0])[0] if len(parts) == 1 else None), optional
    metadata = getattr(annotation, "__metadata__", ())
    return next((rule.of(annotation.__origin__) for rule in metadata if isinstance(rule, Rule)), None), False


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function, "__globals__", {}))
    except Exception:  # a name that only type checkers import, or that is local to a function
        return None
