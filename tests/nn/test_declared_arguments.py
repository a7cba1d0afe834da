"""Every declared argument of every module, given values that its annotation does not allow: errors that name it."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import numpy as np
import pytest

import hkx
from hkx.arguments.contract import declared_by

SEVERAL, TEXT, NAN = np.array([1, 2]), "text", float("nan")
WRONG: dict[str, list[Any]] = {
    "Size": [None, TEXT, [], [2], {}, 2.5, NAN, -1, SEVERAL, 10**30],
    "PositiveSize": [None, TEXT, [], [2], {}, 2.5, NAN, -1, 0, SEVERAL, 10**30],
    "Index": [None, TEXT, [], 2.5, SEVERAL],
    "Sizes": [None, TEXT, {}, 2.5, 0, -1, [1.5], [TEXT], 10**30],
    "Axes": [None, TEXT, [None], 2.5, np.array(1.5)],
    "Flag": [SEVERAL, 7],
    "Function": [None, TEXT, 3, SEVERAL],
    "Initializer": [None, TEXT, 3, SEVERAL],
    "Items": [None, TEXT, 3, np.array(2), [object()]],
    "Number": [None, TEXT, 1j, (1e-5,), np.complex64(1), object()],
    "Num": [None, TEXT, object(), {}, 2**70],
    "Real": [None, TEXT, object(), 1j],
    "Float": [None, TEXT, object(), 3],
    "Int": [None, TEXT, object(), 1.5],
    "Shaped": [None, TEXT, object()],
    "BiasDims": [None, TEXT, 3, [1.5]],
}


def modules() -> list[type[hkx.Module]]:
    names = [(library, name) for library in (hkx, hkx.nets) for name in dir(library)]
    found = [getattr(library, name) for library, name in names if name != "Module"]
    return [cls for cls in found if isinstance(cls, type) and issubclass(cls, hkx.Module)]


def cases() -> typing.Iterator[Any]:
    for cls in modules():
        for method in ("__init__", "__call__"):
            function = inspect.unwrap(getattr(cls, method))
            for _, argument, _, optional in declared_by(function):
                kind = function.__annotations__[argument].partition("[")[0].partition(" ")[0]
                yield pytest.param(cls, method, argument, kind, optional, id=f"{cls.__name__}.{method}-{argument}")


CASES = list(cases())


@pytest.mark.parametrize("cls,method,argument,kind,optional", CASES)
def test_a_value_that_an_argument_cannot_have_is_refused(
    cls: Any, method: str, argument: str, kind: str, optional: bool
) -> None:
    """Arguments are checked before a missing one is noticed, so that one wrong argument can be passed alone."""

    def call(value: Any) -> None:
        if method == "__init__":
            cls(**{argument: value})
        else:
            cls.__call__(cls.__new__(cls), **{argument: value})

    for wrong in WRONG[kind]:
        if wrong is None and optional:
            continue
        with pytest.raises((TypeError, ValueError, NotImplementedError)) as raised:
            hkx.transform(lambda: call(wrong)).apply({}, None)  # noqa: B023
        text = str(raised.value)
        assert f"`{argument}`" in text and f"`{cls.__name__}`" in text and "missing" not in text, text


def test_the_table_has_all_layers() -> None:
    assert len({case.values[0] for case in CASES}) >= 1 and len(CASES) >= 1


@pytest.mark.parametrize("cls", modules())
def test_annotations_can_be_evaluated(cls: Any) -> None:
    """An annotation that cannot be evaluated declares nothing, and says nothing about it."""
    for method in ("__init__", "__call__"):
        typing.get_type_hints(inspect.unwrap(getattr(cls, method)), include_extras=True)
