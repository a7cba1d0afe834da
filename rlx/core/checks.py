"""The check of arguments as functions call it that state their shapes in tables, in the notation of their docstrings.

    r_t, discount_t, v_t = check("discounted_returns",
        r_t=(r_t, "[T]", "real"), discount_t=(discount_t, "[T]", "real"), v_t=(v_t, "[] or [T]", "float"))

It is `rlx.core.arguments.as_arrays` in another notation, and goes when the last of them is an `operator`.
"""

import functools
from typing import Any

from rlx.core.annotations import Shaped
from rlx.core.arguments import as_arrays, require_ascending, whole
from rlx.core.arguments import require as require_
from rlx.core.types import Array

__all__ = ["check", "check_ascending", "check_numbers", "require", "whole_number"]


def check(function: str, **arguments: tuple[Any, str, str]) -> tuple[Array, ...]:
    """Checks the arguments of one call and returns them, in order, as JAX arrays.

    Args:
      function: name of the calling operator, for messages.
      **arguments: for each argument, by its public name, a tuple (value, shape, kind) in the notation above.

    Returns:
      The values as JAX arrays; arguments of kind `real` that hold integers or booleans are converted to floats.

    Raises:
      RankError, ShapeError, DTypeError, OptionError: naming the function, the argument, what arrived and what was
        expected.

    Example:
      >>> from rlx.core.checks import check
      >>> import numpy as np
      >>> q, r = check("f", q=(np.ones(2, np.float32), "[A]", "float"), r=(1, "[]", "real"))
      >>> q.shape, r.dtype
      ((2,), dtype('float32'))
    """
    return as_arrays(function, **{name: (x, _annotation(shape, kind)) for name, (x, shape, kind) in arguments.items()})


def require(function: str, argument: str, ok: bool, arrived: Any, expected: str) -> None:
    """Raises `OptionError` unless `ok`: for settings, whose values are known when Python runs.

    Example:
      >>> from rlx.core.checks import require
      >>> require("f", "n", 0 > 0, 0, "a positive number of steps")
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: f: argument `n` is 0, expected a positive number of steps.
    """
    require_(ok, argument, arrived, expected, function)


def whole_number(function: str, argument: str, arrived: Any, expected: str, least: int = 1) -> int:
    """A setting that must be a whole number, at least `least`, as a Python integer.

    Example:
      >>> import numpy as np
      >>> from rlx.core.checks import whole_number
      >>> whole_number("f", "n", np.int32(3), "a positive number of steps")
      3
    """
    number = whole(argument, arrived, expected, function)
    require(function, argument, number >= least, number, expected)
    return number


def check_numbers(function: str, **numbers: tuple[Any, str]) -> None:
    """Checks settings that are used as they are given: each a tuple of the value and the interval that it must lie in.

    Example:
      >>> from rlx.core.checks import check_numbers
      >>> check_numbers("f", eps=("1e-3", "[0, inf)"))
      Traceback (most recent call last):
        ...
      rlx.core.errors.DTypeError: f: argument `eps` is a str, expected an array of real numbers.
      >>> check_numbers("f", eps=(-1, "[0, inf)"))
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: f: argument `eps` is -1, expected a finite number of at least 0.
    """
    check(function, **{name: (value, f"[*{name}]", f"real in {span}") for name, (value, span) in numbers.items()})


def check_ascending(function: str, strictly: bool = True, **bounds: Any) -> None:
    """Checks that bounds, which are numbers by name, come in ascending order, each above the one before it.

    Example:
      >>> from rlx.core.checks import check_ascending
      >>> check_ascending("f", low=1.0, high=1.0)
      Traceback (most recent call last):
        ...
      rlx.core.errors.OptionError: f: argument `high` is 1.0, expected more than `low`, which is 1.0.
    """
    require_ascending(strictly, function, **bounds)


@functools.cache
def _annotation(shape: str, kind: str) -> Shaped:
    family, _, limit = kind.partition(" ")
    words = [part.strip()[1:-1].replace(",", "") for part in shape.split(" or ")]
    names = {"any": "Num"}
    return Shaped(names.get(family, family.title()), Array, (*words, *filter(None, [limit.replace("[]", "scalar")])))
