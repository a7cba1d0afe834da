"""Arguments that have one entry, or one for each dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hkx.errors.nn import InvalidLengthError


def per_dimension(value: Any, n: int, name: str) -> tuple[Any, ...]:
    """`value` for each of `n` dimensions: itself repeated, or its entries if it is a sequence of 1 or `n`.

    Raises:
      InvalidLengthError: if it is a sequence of another length; `name` says of which argument.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return (value,) * n
    if len(value) == 1:
        return tuple(value) * n
    if len(value) == n:
        return tuple(value)
    raise InvalidLengthError(name, value, len(value), n)
