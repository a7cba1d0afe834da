"""The annotations that declare arguments; the docstring of `hkx.arguments` has a table of them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.arguments.checks import array_of, checked_flag, checked_function, checked_integer, is_iterable, is_number
from hkx.arguments.contract import Rule, rule_of
from hkx.base import types
from hkx.errors.arguments import InvalidInitializerError, NotABoolError, NotANumberError
from hkx.errors.nn import (
    InputDTypeError,
    InvalidRankError,
    LeadingDimensionsError,
    NotAListError,
    OutOfRangeError,
    ScalarInputError,
)

T = TypeVar("T")


def _sizes(value: Any, argument: str, taker: str) -> int | tuple[int, ...]:
    if isinstance(value, (Sequence, np.ndarray, jax.Array)) and is_iterable(value):
        return tuple(checked_integer(size, argument, 1, taker) for size in value)
    return checked_integer(value, argument, 1, taker)


def _axes(value: Any, argument: str, taker: str) -> tuple[int, ...] | slice:
    if isinstance(value, slice):
        return value
    if _is_index(value):
        return (operator.index(value),)
    if is_iterable(value) and all(map(_is_index, dimensions := tuple(value))):
        return tuple(map(operator.index, dimensions))
    raise ValueError(f"`{argument}` should be an int, slice or iterable of ints, got {value!r}, in `{taker}`.")


def _is_index(value: Any) -> bool:
    whole = not hasattr(value, "dtype") or jnp.issubdtype(value.dtype, jnp.integer)
    return hasattr(value, "__index__") and whole and not np.ndim(value)


def _flag(value: Any, argument: str, taker: str) -> bool:
    if type(value) is int and value not in (0, 1):  # most often a size that was passed in a wrong position
        raise NotABoolError(taker, argument, value)
    return checked_flag(value, argument, taker)


class _Items(Rule):
    """Of iterables, whose elements have the rule of the annotated type."""

    def of(self, type_: Any) -> Rule:
        rule, _ = rule_of(type_.__args__[0])
        return Rule(functools.partial(_items, rule))


def _items(rule: Rule | None, value: Any, argument: str, taker: str) -> tuple[Any, ...]:
    # `__getitem__`: the old protocol of sequences, which `ListConfig` and others have.
    sequence = hasattr(value, "__getitem__") and not hasattr(value, "ndim") and not isinstance(value, (str, bytes))
    if not is_iterable(value) and not sequence:
        raise NotAListError(taker, argument, value)
    return tuple(value) if rule is None else tuple(rule(item, argument, taker, {}) for item in value)


def _number(span: str, several: bool) -> Rule:
    """Of a number, or of several, in an interval such as `"[0, 1)"`. Concrete arrays are converted to NumPy's."""
    low, high = (-math.inf, math.inf) if span == "any" else map(float, span[1:-1].split(","))
    above: Any = operator.gt if span[0] == "(" else operator.ge
    below: Any = operator.lt if span[-1] == ")" and high < math.inf else operator.le

    def check(value: Any, argument: str, taker: str) -> Any:
        if isinstance(value, jax.core.Tracer):
            return value
        array = isinstance(value, (np.generic, np.ndarray, jax.Array)) and not np.iscomplexobj(value)
        if not (isinstance(value, (int, float)) or (array and is_number(value) and (several or np.size(value) == 1))):
            raise NotANumberError(argument, value, taker)
        value = np.asarray(value)[()] if array else value  # in a trace, operations on arrays of JAX are traced
        if span != "any" and not np.all(above(value, low) & below(value, high)):
            raise OutOfRangeError(taker, argument, value, span)
        return value

    return Rule(check)


_DTYPES: dict[str, tuple[tuple[Any, ...], str, str | None]] = {  # dtypes, their name in errors, how to convert to one
    "Real": ((jnp.floating, jnp.integer, jnp.bool_), "a real one", "`jnp.concatenate([{0}.real, {0}.imag], axis=-1)`"),
    "Float": ((jnp.inexact,), "a floating dtype", None),
    "Int": ((jnp.integer,), "one of integers", "`{0}.astype(jnp.int32)`"),
}


class _Array(Rule):
    """Of arrays of a kind, with one of several shapes."""

    def __init__(self, kind: str, type_: Any, *shapes: str):
        super().__init__(array_of)
        self.kind, self.dtypes = kind, _DTYPES.get(kind)
        self.leaves_numpy = np.ndarray in getattr(type_, "__args__", ())
        self.shapes = {len(text.split()): text.split() for text in shapes}  # by their ranks
        self.dims = self.shapes[max(self.shapes)]
        self.starred = bool(self.dims) and self.dims[0][0] in "*."

    def __call__(self, value: Any, argument: str, taker: str, sizes: dict[str, Any]) -> Any:
        if not (self.leaves_numpy and isinstance(value, np.ndarray)):
            value = array_of(value, argument, taker, self.kind == "Shaped")
        shape = value.shape
        rank, dims = len(shape), self.dims if self.starred else self.shapes.get(len(shape))
        if dims is None:
            raise InvalidRankError(taker, argument, shape, sorted(self.shapes))
        extra = rank - len(dims)  # -1: a starred dimension stands for none
        if extra < -self.starred:
            if not rank and len(dims) == 2:
                raise ScalarInputError(taker)
            raise InvalidRankError(taker, argument, shape, len(dims) - 1)
        if self.dtypes is not None and not _is_of(self.kind, value.dtype):
            _, expected, conversion = self.dtypes
            raise InputDTypeError(taker, argument, value.dtype, expected, conversion and conversion.format(argument))
        for i, name in enumerate(dims, start=extra):
            if name != "...":
                size = shape[: i + 1] if name[0] == "*" else shape[i]
                if sizes.setdefault(name, (size, argument))[0] != size:
                    _agree(name, size, argument, taker, shape, sizes)
        return value


def _agree(name: str, size: Any, argument: str, taker: str, shape: tuple[int, ...], sizes: dict[str, Any]) -> None:
    """Broadcasts the shape of a starred name; raises LeadingDimensionsError if it, or a size, is another one before."""
    before, where = sizes[name]
    if name[0] != "*":
        raise LeadingDimensionsError(taker, argument, shape, f"{name} = {before} as in `{where}`")
    try:
        sizes[name] = jnp.broadcast_shapes(before, size), where
    except ValueError:
        expected = f"leading dimensions that broadcast to {before}, those of the arguments before it"
        raise LeadingDimensionsError(taker, argument, shape, expected) from None


@functools.cache
def _is_of(kind: str, dtype: Any) -> bool:
    return any(jnp.issubdtype(dtype, allowed) for allowed in _DTYPES[kind][0])


def _initializer(value: Any, argument: str, taker: str) -> Any:
    if not callable(value):
        raise InvalidInitializerError(f"`{argument}` of `{taker}`", value)
    return value


def _absent(value: Any) -> bool:  # as an initializer: what is false, as in Haiku; an array may be both
    return not hasattr(value, "shape") and not value


def _size(least: int | None) -> Rule:
    return Rule(lambda value, argument, taker: checked_integer(value, argument, least, taker))


Size = Annotated[int, _size(0)]
PositiveSize = Annotated[int, _size(1)]
Index = Annotated[int, _size(None)]
Sizes = Annotated[int | Sequence[int], Rule(_sizes)]
Axes = Annotated[int | Sequence[int] | slice, Rule(_axes)]
Flag = Annotated[bool, Rule(_flag)]
Function = Annotated[Callable[..., Any], Rule(lambda value, argument, taker: checked_function(value, taker, argument))]
Items = Annotated[Iterable[T], _Items(_items)]
Initializer = Annotated[types.Initializer, Rule(_initializer, _absent)]

if TYPE_CHECKING:
    from typing import Annotated as Float
    from typing import Annotated as Int
    from typing import Annotated as Num
    from typing import Annotated as Number
    from typing import Annotated as Real
    from typing import Annotated as Shaped
else:

    class _Kind:
        """`Kind[type, *texts]` is `Annotated[type, rule]`."""

        def __init__(self, make: Callable[..., Rule]):
            self.make = make

        def __getitem__(self, parts: tuple[Any, ...]) -> Any:
            type_, *texts = parts
            texts = ["..." if text is ... else text for text in texts]  # linters may take away the quotes
            return Annotated[type_, self.make(type_, *texts)]

    Number = _Kind(lambda _, span, shape="": _number(span, shape == "..."))
    Num, Real, Float, Int, Shaped = (
        _Kind(functools.partial(_Array, kind)) for kind in ("Num", "Real", "Float", "Int", "Shaped")
    )
