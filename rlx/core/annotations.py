"""Annotations of operators' arguments, which give the kind of number, the shape and the range.

    q_tm1: Float[Array, "A"], a_tm1: Int[Array, ""], lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0

Shapes. `""` is a scalar, `"T A"` a matrix. `"T+1"` and `"T-1"` are lengths relative to `T`, `"3"` is a fixed length,
and `"{num_bins}"` is the value of the integer setting of that name. `"*E"` is any shape, and `"*E A"` has any leading
axes and then one of length `A`. In `"*#E A"`, the leading axes broadcast against those of other arguments, and all of
these get the same rank. In `"*##E"`, one of the arguments must have the shape to which all of them broadcast, so that
[B, 1] and [B] are refused. `"#T"` is the length T, or 1 for a number that applies to all steps. Several strings are
alternatives. A name stands for the same length throughout a call: the first argument with the name determines it, and
later ones must agree. `T` may be 0, but there must be at least one action `A`, one atom `K` or `L`, and one of the `M`
or `N` elements over which a mean or minimum is taken.

Kinds. `Float`: floating-point numbers, such as the outputs of networks. `Real`: any real numbers or booleans, which are
converted to the common dtype of the call's floating-point arguments (rewards, discounts and importance weights are
often integers). `Int`: indices, of at least 32 bits in the kernel. `Mask`: any real numbers or booleans, which
become booleans. `Number`: any real numbers or booleans, not converted. `Num`: any numbers, including complex ones.

Ranges. `"in [0, 1]"`, `"in (0, inf)"`: round brackets exclude the bound, and NaN is in no range. With `"in [0, 1] if
scalar"`, only scalars are checked, because arrays are data; `"increasing"` requires that values, such as atoms,
increase. `"in [0, A)"` is an index below the length A; `"in [-1, A)"` has -1 for none, such as the action of a padded
step; with `"in [-1, A) where w_t"`, steps with weight 0 may have any. Only numbers and concrete arrays are checked;
tracers always pass.

With `Real[Array | float, ""]`, a Python number stays one; with `Mask[Array, "T"] | None`, the argument may be omitted.
To type checkers, each kind is an alias of `typing.Annotated`, so that they see only the type.
"""

import dataclasses
import functools
import itertools
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import jax.numpy as jnp
import numpy as np

from rlx.core.errors import ArgumentError
from rlx.core.types import Array, ArrayLike

Dims = tuple[tuple[str, int], ...]
"""One shape that an argument may have: for each axis, a name or digits, and an offset."""

KINDS = {
    "Float": ("floating-point numbers", (jnp.floating,), "Pass floating-point values: jnp.asarray({}, jnp.float32)."),
    "Int": ("integers", (jnp.integer,), "Pass indices of an integer dtype: jnp.asarray({}, jnp.int32)."),
    "Real": ("real numbers", (jnp.floating, jnp.integer, jnp.bool_), "Convert `{}` first."),
    "Mask": ("a mask of booleans or numbers", (jnp.floating, jnp.integer, jnp.bool_), "Convert `{}` first."),
    "Number": ("real numbers", (jnp.floating, jnp.integer, jnp.bool_), "Convert `{}` first."),
    "Num": ("numbers", (jnp.number, jnp.bool_), "Convert `{}` first."),
}
"""For each kind: its description, the accepted dtypes, and advice for other dtypes."""

_INTERVAL = re.compile(r"in ([\[(])\s*(\S+)\s*,\s*(\S+?)\s*([\])])( if scalar)?")
_INDICES = re.compile(r"in \[(0|-1), ([A-Z]|\{\w+\})\)(?: where (\w+))?")
_IN_WORDS = {
    "(0, inf]": "a positive number",
    "(0, inf)": "a positive, finite number",
    "[0, inf]": "a number of at least 0",
    "[0, inf)": "a finite number of at least 0",
    "(-inf, inf)": "a finite number",
    "[-inf, inf]": "a number",
}


@dataclasses.dataclass(frozen=True)
class Range:
    """A condition on numbers that are known when Python runs, with its description."""

    holds: Callable[[np.ndarray], bool]
    words: str
    of_scalars: bool = False


@dataclasses.dataclass(frozen=True)
class Indices:
    """The range of indices from `least`, 0 or -1, up to a length, for entries whose weight is not 0."""

    least: int
    length: str
    weight: str | None


@dataclasses.dataclass(frozen=True)
class Shaped:
    """The annotation of an array argument, such as `Float[Array, "T A"]`.

    Example:
      >>> from rlx.core.annotations import Float
      >>> from rlx.core.types import Array
      >>> Float[Array, "*E A", "#T"]
      Float[Array, "*E A", "#T"]
      >>> Float[Array, "*E A", "#T"].expected
      '[*E, A] or [T] or [1]'
    """

    kind: str
    type: Any
    words: tuple[str, ...]  # shapes and ranges, as written
    optional: bool = False
    seen_by: str = ""  # if "callers", the type is shown as ArrayLike

    @functools.cached_property
    def shapes(self) -> tuple[Dims, ...]:
        return tuple(dims for text in self.words if not _is_range(text) for dims in _read_shape(text))

    @functools.cached_property
    def range(self) -> Range | Indices | None:
        return next((_read_range(text) for text in self.words if _is_range(text)), None)

    @functools.cached_property
    def expected(self) -> str:
        """A description of the shapes, such as "[T] or [1]"."""
        return " or ".join(f"[{', '.join(map(_axis_text, dims))}]" for dims in self.shapes)

    @functools.cached_property
    def or_one(self) -> str:
        """For a shape such as "#T", the name "T": if the length is one, the kernel gets a scalar."""
        return next((text[1:] for text in self.words if re.fullmatch(r"#\w+", text)), "")

    @functools.cached_property
    def stays_a_number(self) -> bool:
        return self.type is not Array

    @functools.cached_property
    def for_callers(self) -> "Shaped":
        """The annotation that callers see, with the type ArrayLike, because any array or number is converted."""
        return dataclasses.replace(self, type=ArrayLike, seen_by="callers")

    @functools.cached_property
    def hint(self) -> Any:
        """The type for programs that read annotations at run time, such as beartype, with the rest as a text."""
        return Annotated[self.type | None if self.optional else self.type, repr(self)]

    def __or__(self, other: Any) -> "Shaped":
        if other is not None:
            return NotImplemented
        return dataclasses.replace(self, optional=True)

    __ror__ = __or__

    def __repr__(self) -> str:
        name = "ArrayLike" if self.seen_by else "Array" if self.type is Array else "Array | float"
        return f"{self.kind}[{', '.join([name, *map(_quoted, self.words)])}]" + " | None" * self.optional

    def __call__(self) -> None:
        raise TypeError(f"{self!r} is an annotation")  # `typing` accepts only callables as types


class Kind:
    """A kind of number: `Kind[Array, *shapes]` is an annotation."""

    def __init__(self, name: str):
        self.name = name

    def __getitem__(self, parts: tuple[Any, ...]) -> Shaped:
        kind, *words = parts
        return _made(self.name, kind, tuple(words))


if TYPE_CHECKING:
    from typing import Annotated as Float
    from typing import Annotated as Int
    from typing import Annotated as Mask
    from typing import Annotated as Num
    from typing import Annotated as Number
    from typing import Annotated as Real
else:
    Float, Int, Mask, Num, Number, Real = map(Kind, ("Float", "Int", "Mask", "Num", "Number", "Real"))


@functools.cache
def _made(kind: str, type_: Any, words: tuple[str, ...]) -> Shaped:
    return Shaped(kind, type_, words)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _is_range(text: str) -> bool:
    return text == "increasing" or text.startswith("in ")


@functools.cache
def _read_shape(text: str) -> tuple[Dims, ...]:
    """The shapes that a text stands for: `"T+1"` -> ((("T", 1),),); `"#T"` -> ((("T", 0),), (("1", 0),))."""
    axes = []
    for token in text.split():
        match = re.fullmatch(r"(#?)(\*#{0,2}\w+|\w+|\{\w+\})([+-]\d+)?", token)
        if match is None:
            raise ArgumentError(f"unreadable axis {token!r} in shape {text!r}")
        axis = match[2], int(match[3] or 0)
        axes.append((axis, ("1", 0)) if match[1] else (axis,))
    return tuple(itertools.product(*axes))


def _axis_text(axis: tuple[str, int]) -> str:
    name, offset = axis
    return name.replace("#", "") + (f"{offset:+}" if offset else "")


@functools.cache
def _read_range(text: str) -> Range | Indices:
    if text == "increasing":
        holds = lambda x: bool(np.all(x[1:] > x[:-1]) & ~np.any(np.isnan(x)))  # noqa: E731
        return Range(holds, "numbers in increasing order")
    if indices := _INDICES.fullmatch(text):
        return Indices(int(indices[1]), indices[2], indices[3])
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ArgumentError(f"unreadable range {text!r}")
    low, high = float(match[2]), float(match[3])
    above = operator.ge if match[1] == "[" else operator.gt
    below = operator.le if match[4] == "]" else operator.lt

    def inside(x: np.ndarray) -> bool:
        number = x.item() if x.ndim == 0 else x  # Python numbers are compared several times faster
        return bool(np.all(above(number, low) & below(number, high)))

    span = text[3:].removesuffix(" if scalar")
    return Range(inside, _IN_WORDS.get(span, f"a number in {span}"), match[5] is not None)
