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
    "BiasDims": [None, TEXT, 3, [1.5]],
    "Padding": [TEXT, SEVERAL, None],
    "Implementation": [TEXT, SEVERAL, None],
    "Config": [TEXT, 3, SEVERAL],
    "Style": [TEXT, 3, None],
    "ArrayState": [None, TEXT, object()],
    "PairState": [None, TEXT, 3, [1, 2, 3], np.array(2)],
}
OF_ANOTHER_DTYPE = {"Num": None, "Real": np.complex64, "Float": np.int32, "Int": np.float32, "Shaped": None}


def wrong_values(kind: str, annotation: str, rule: Any) -> list[Any]:
    if kind == "Number":
        return WRONG[kind] + ([] if "any" in annotation else [NAN, -1.0])
    if kind not in OF_ANOTHER_DTYPE:
        return WRONG[kind]
    rank, dtype = len(rule.dims) - rule.starred, OF_ANOTHER_DTYPE[kind]
    right = {"Int": np.int32}.get(kind, np.float32)
    ranks = range(rank) if rule.starred else [n for n in range(rank + 2) if n not in rule.shapes]
    return [
        *(None, TEXT, object(), {}, 2**70),
        *([] if kind == "Shaped" else [jax.random.split(jax.random.key(0), [2] * rank)]),
        *(np.ones([2] * n, right) for n in ranks),
        *([] if dtype is None else [np.ones([2] * rank, dtype)]),
    ]


def modules() -> list[type[hkx.Module]]:
    names = [(library, name) for library in (hkx, hkx.nets) for name in dir(library)]
    found = [getattr(library, name) for library, name in names if name != "Module"]
    return [cls for cls in found if isinstance(cls, type) and issubclass(cls, hkx.Module)]


FUNCTIONS = [
    f for f in (getattr(hkx, name) for name in dir(hkx)) if inspect.isfunction(f) and declared_by(inspect.unwrap(f))
]


def check(function: Any, taker: str, call: Any) -> int:
    """Passes every wrong value of every declared argument, alone: they are checked before a missing one is noticed."""
    function, passed = inspect.unwrap(function), 0
    for _, argument, rule, optional in declared_by(function):
        annotation = function.__annotations__[argument]
        for value in wrong_values(annotation.partition("[")[0].partition(" ")[0], annotation, rule):
            if value is None and optional:
                continue
            with pytest.raises((TypeError, ValueError, NotImplementedError)) as raised:
                hkx.transform(lambda: call(**{argument: value})).apply({}, None)  # noqa: B023
            text = str(raised.value)
            named = f"`{argument}" in text or isinstance(raised.value, hkx.errors.ScalarInputError)
            assert named and taker in text and "missing" not in text, (argument, value, text)
            passed += 1
    return passed


@pytest.mark.parametrize("cls", modules())
def test_values_that_an_argument_of_a_module_cannot_have(cls: Any) -> None:
    passed = check(cls.__init__, cls.__name__, cls)
    passed += check(cls.__call__, cls.__name__, lambda **kwargs: cls.__call__(cls.__new__(cls), **kwargs))
    assert passed >= 2 or cls in (hkx.IdentityCore, hkx.RNNCore)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_that_an_argument_of_a_function_cannot_have(function: Any) -> None:
    assert check(function, function.__name__, function) >= 2


def test_the_table_has_functions() -> None:
    assert {f.__name__ for f in FUNCTIONS} >= {"avg_pool", "dropout", "dynamic_unroll", "max_pool", "one_hot"}


@pytest.mark.parametrize("cls", modules())
def test_annotations_can_be_evaluated(cls: Any) -> None:
    """An annotation that cannot be evaluated declares nothing, and says nothing about it."""
    for method in ("__init__", "__call__"):
        typing.get_type_hints(inspect.unwrap(getattr(cls, method)), include_extras=True)
