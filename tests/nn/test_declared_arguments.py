"""Every declared argument of every module and function, given values that it cannot have: errors that name it."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.arguments.contract import declared_by

pytestmark = pytest.mark.unoptimised


class Convertible:
    """What JAX converts to an array, and NumPy does not."""

    def __jax_array__(self) -> jax.Array:
        return jnp.float32(1e-5)


SEVERAL, TEXT, NAN = np.array([1, 2]), "text", float("nan")
SIZES = [None, TEXT, [], [2], {}, 2.5, NAN, -1, SEVERAL, 10**30]
WRONG: dict[str, list[Any]] = {
    "Size": SIZES,
    "PositiveSize": [*SIZES, 0],
    "Index": [None, TEXT, [], 2.5, SEVERAL],
    "Sizes": [None, TEXT, {}, 2.5, 0, -1, [1.5], [TEXT], 10**30],
    "Axes": [None, TEXT, [None], 2.5, np.array(1.5)],
    "Flag": [SEVERAL, 7],
    "Function": [None, TEXT, 3, SEVERAL],
    "Initializer": [None, TEXT, 3, SEVERAL],
    "Items": [None, TEXT, 3, np.array(2)],
    "Number": [None, TEXT, (1e-5,), 1j, np.complex64(1), object(), Convertible()],
    "Num": [None, TEXT, object(), {}, 2**70],
    "Real": [None, TEXT, object(), 1j],
    "Float": [None, TEXT, object(), 3],
    "Int": [None, TEXT, object(), 1.5],
    "Shaped": [None, TEXT, object()],
    "BiasDims": [None, TEXT, 3, [1.5]],
    "Padding": [TEXT, SEVERAL, None],
    "Config": [TEXT, 3, SEVERAL],
    "Style": [TEXT, 3, None],
    "ArrayState": [None, TEXT, object()],
    "PairState": [None, TEXT, 3, [1, 2, 3]],
}


def modules() -> list[type[hkx.Module]]:
    names = [(library, name) for library in (hkx, hkx.nets) for name in dir(library)]
    found = [getattr(library, name) for library, name in names if name != "Module"]
    return [cls for cls in found if isinstance(cls, type) and issubclass(cls, hkx.Module)]


def cases() -> typing.Iterator[Any]:
    methods = [(cls, name, getattr(cls, name)) for cls in modules() for name in ("__init__", "__call__")]
    functions = [(None, name, getattr(hkx, name)) for name in dir(hkx) if inspect.isfunction(getattr(hkx, name))]
    for cls, name, wrapped in [*methods, *functions]:
        function = inspect.unwrap(wrapped)
        for _, argument, _, optional in declared_by(function):
            path = f"{cls.__name__}.{name}" if cls else name
            annotation = function.__annotations__[argument]
            yield pytest.param(cls, name, argument, annotation, optional, id=f"{path}-{argument}")


CASES = list(cases())


@pytest.mark.parametrize("cls,name,argument,annotation,optional", CASES)
def test_a_value_that_an_argument_cannot_have_is_refused(
    cls: Any, name: str, argument: str, annotation: str, optional: bool
) -> None:
    """Arguments are checked before a missing one is noticed, so that one wrong argument can be passed alone."""

    def call(value: Any) -> None:
        if name == "__init__":
            cls(**{argument: value})
        elif cls:
            getattr(cls, name)(cls.__new__(cls), **{argument: value})
        else:
            getattr(hkx, name)(**{argument: value})

    kind = annotation.partition("[")[0].partition(" ")[0]
    wrong = WRONG[kind] + ([NAN, -1.0] if kind == "Number" and "any" not in annotation else [])
    for value in wrong:
        if value is None and optional:
            continue
        with pytest.raises((TypeError, ValueError, NotImplementedError)) as raised:
            hkx.transform(lambda: call(value)).apply({}, None)  # noqa: B023
        text = str(raised.value)
        assert f"`{argument}" in text and "missing" not in text, (value, text)
        assert (cls.__name__ if cls else name) in text, (value, text)


def test_nearly_all_layers_declare_arguments() -> None:
    declaring = {case.values[0] for case in CASES}
    assert len(CASES) > 400
    assert [cls.__name__ for cls in modules() if cls not in declaring] == ["IdentityCore", "RNNCore"]


@pytest.mark.parametrize("cls", modules())
def test_annotations_can_be_evaluated(cls: Any) -> None:
    """An annotation that cannot be evaluated declares nothing, and says nothing about it."""
    for method in ("__init__", "__call__"):
        typing.get_type_hints(inspect.unwrap(getattr(cls, method)), include_extras=True)
