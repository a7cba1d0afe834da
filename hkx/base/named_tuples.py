"""The named tuples of functions that `transform` and its variants return, as they are at run time."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import TypeVar

from hkx.errors.advice import missing_attribute

C = TypeVar("C")


def plain(instead: Mapping[str, str]) -> Callable[[C], C]:
    """Decorates a generic named tuple, which stays generic to static type checkers only.

    Those that check while a program runs, such as beartype, refuse generic ones, and look for the names in annotations
    in the module of the function that they check. The class may still be subscripted, as each tuple may.

    Args:
      instead: what to write instead of attributes that the class does not have.

    Returns:
      The decorator.
    """

    def decorate(cls: C) -> C:
        generic = "__orig_bases__", "__parameters__", "__class_getitem__"
        own = {name: value for name, value in vars(cls).items() if name not in generic}
        made = type(cls.__name__, (tuple,), own)  # type: ignore[attr-defined]
        made.__annotations__ = typing.get_type_hints(cls)
        # No `__call__`: programs ask `callable(f)` to tell functions from pairs.
        made.__getattr__ = lambda self, name: missing_attribute(self, name, instead)  # type: ignore[attr-defined]
        return typing.cast(C, made)

    return decorate
