"""What an operator's argument is: its kind of number, its shape and its range, written as the annotation itself.

    q_tm1: Float[Array, "A"], a_tm1: Int[Array, ""], lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0

Shapes. `""` is a scalar, `"T A"` a matrix, `"T+1"` and `"T-1"` are lengths relative to `T`, `"3"` is a fixed length,
`"{num_bins}"` the value of the whole-number setting of that name, `"*E"` any shape, `"*E A"` any leading axes and then
one of length `A`, `"*#E A"` the same with leading axes that broadcast against those of the others (all then get one
rank), `"#T"` the length T, or 1 for a number that stands for all. Several texts are alternatives. A name stands for one
length throughout a call: the first argument that has it decides, later ones must agree. There may be no step `T`, but
at least one action `A`, atom `K` or `L`, and `M` or `N` of what a mean or a minimum is taken.

Kinds. `Float`: floating point, the outputs of networks. `Real`: any real number or boolean, and converted to the dtype
that the `Float` arguments of the call have together (rewards, discounts, importance weights are often integers). `Int`:
indices. `Mask`: any real number or boolean, left as it is; `Number` the same, where it is no mask. `Num`: any number,
complex ones too.

Ranges. `"in [0, 1]"`, `"in (0, inf)"`: round brackets leave out the end, NaN lies nowhere. `"in [0, 1] if scalar"` asks
it of a scalar alone, where an array is data of the steps; `"increasing"` asks for atoms that do not fall. Only what is
known when Python runs is looked at, numbers and concrete arrays; what is traced passes.

`Real[Array | float, ""]` is an argument that stays a Python number where it was given as one, and
`Mask[Array, "T"] | None` one that may be left out. To type checkers each kind is `typing.Annotated` by another name, so
that they read the type alone.
"""

import dataclasses
import functools
import itertools
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from rlx.core.errors import ArgumentError
from rlx.core.types import Array, ArrayLike

Dims = tuple[tuple[str, int], ...]
"""One shape that an argument may have: each axis a name or digits, and an offset."""

KINDS = {
    "Float": ("floating-point numbers", (jnp.floating,), "Pass floating-point values: jnp.asarray({}, jnp.float32)."),
    "Int": ("integers", (jnp.integer,), "Pass indices of an integer dtype: jnp.asarray({}, jnp.int32)."),
    "Real": ("real numbers", (jnp.floating, jnp.integer, jnp.bool_), "Convert `{}` first."),
    "Mask": ("a mask of booleans or numbers", (jnp.floating, jnp.integer, jnp.bool_), "Convert `{}` first."),
    "Number": ("real numbers", (jnp.floating, jnp.integer, jnp.bool_), "Convert `{}` first."),
    "Num": ("numbers", (jnp.number, jnp.bool_), "Convert `{}` first."),
}
"""What each kind is in words, the dtypes it takes, and what to do about another one."""

_INTERVAL = re.compile(r"in ([\[(])\s*(\S+)\s*,\s*(\S+?)\s*([\])])( if scalar)?")
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
    """Where known numbers must lie."""

    holds: Callable[[np.ndarray], bool]
    words: str
    of_scalars: bool = False


@dataclasses.dataclass(frozen=True)
class Shaped:
    """The annotation of an argument that is an array: `Float[Array, "T A"]`.

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
    seen_by: str = ""  # callers see ArrayLike, as "callers"

    @functools.cached_property
    def shapes(self) -> tuple[Dims, ...]:
        return tuple(dims for text in self.words if not _is_range(text) for dims in _read_shape(text))

    @functools.cached_property
    def range(self) -> Range | None:
        return next((_read_range(text) for text in self.words if _is_range(text)), None)

    @functools.cached_property
    def expected(self) -> str:
        """The shapes in words: "[T] or [1]"."""
        return " or ".join(f"[{', '.join(map(_axis_text, dims))}]" for dims in self.shapes)

    @functools.cached_property
    def or_one(self) -> str:
        """The name of an only axis that may have length one, "T" of "#T": the kernel gets it as a number."""
        return next((text[1:] for text in self.words if re.fullmatch(r"#\w+", text)), "")

    @functools.cached_property
    def stays_a_number(self) -> bool:
        return self.type is not Array

    @functools.cached_property
    def for_callers(self) -> "Shaped":
        """The same as callers see it: any array or number is converted."""
        return dataclasses.replace(self, type=ArrayLike, seen_by="callers")

    def __or__(self, other: Any) -> "Shaped":
        if other is not None:
            return NotImplemented
        return dataclasses.replace(self, optional=True)

    __ror__ = __or__

    def __repr__(self) -> str:
        name = "ArrayLike" if self.seen_by else "Array" if self.type is Array else "Array | float"
        return f"{self.kind}[{', '.join([name, *map(_quoted, self.words)])}]" + " | None" * self.optional

    def __call__(self) -> None:
        raise TypeError(f"{self!r} is an annotation")  # `typing` takes for a type only what can be called


class Kind:
    """A kind of number, which `Kind[Array, *shapes]` makes an annotation of."""

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
    """`"T+1"` -> ((("T", 1),),); `"#T"` -> ((("T", 0),), (("1", 0),)): the shapes that it stands for."""
    axes = []
    for token in text.split():
        match = re.fullmatch(r"(#?)(\*#?\w+|\w+|\{\w+\})([+-]\d+)?", token)
        if match is None:
            raise ArgumentError(f"unreadable axis {token!r} in shape {text!r}")
        axis = match[2], int(match[3] or 0)
        axes.append((axis, ("1", 0)) if match[1] else (axis,))
    return tuple(itertools.product(*axes))


def _axis_text(axis: tuple[str, int]) -> str:
    name, offset = axis
    return name.replace("#", "") + (f"{offset:+}" if offset else "")


@functools.cache
def _read_range(text: str) -> Range:
    if text == "increasing":
        holds = lambda x: bool(np.all(x[1:] >= x[:-1]) & ~np.any(np.isnan(x)))  # noqa: E731
        return Range(holds, "numbers in increasing order")
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ArgumentError(f"unreadable range {text!r}")
    low, high = float(match[2]), float(match[3])
    above = operator.ge if match[1] == "[" else operator.gt
    below = operator.le if match[4] == "]" else operator.lt

    def inside(x: np.ndarray) -> bool:
        number = x.item() if x.ndim == 0 else x  # a Python number is compared several times faster
        return bool(np.all(above(number, low) & below(number, high)))

    span = text[3:].removesuffix(" if scalar")
    return Range(inside, _IN_WORDS.get(span, f"a number in {span}"), match[5] is not None)
