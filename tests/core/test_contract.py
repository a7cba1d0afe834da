"""Arguments are checked and converted as annotations declare, however a module or function is called."""
# ruff: noqa: F722, F821, UP037  # the dimensions in an annotation are no forward references

from __future__ import annotations

import dataclasses
import sys
import types
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.arguments import (
    Axes,
    Flag,
    Float,
    Function,
    Index,
    Int,
    Items,
    Num,
    Number,
    PositiveSize,
    Real,
    Rule,
    Size,
    Sizes,
)


def run(f: Any) -> Any:
    return hkx.testing.transform_and_run(f)()


class Scaled(hkx.Module):
    def __init__(
        self, size: Size, with_bias: Flag = True, *, rate: Number[float, "[0, 1)"] = 0.5, name: str | None = None
    ):
        super().__init__(name=name)
        self.size, self.with_bias, self.rate = size, with_bias, rate

    def __call__(self, x: Num[jax.Array, "... D"], scale: Num[jax.Array, "D"] = None) -> Any:  # type: ignore[assignment]
        return x, scale

    @hkx.transparent
    def transparent(self, size: Size) -> int:
        return size

    def forms(self, choice: Literal["a", "b"], function: Any = "no rule") -> Any:
        return choice, function


class Passing(Scaled):
    """Its own argument has no rule; the one that it passes on has that of the base class."""

    def __init__(self, width: Any, name: str | None = None):
        super().__init__(width, name=name)

    def __call__(self, x: Any) -> Any:
        return super().__call__([x, x])


@dataclasses.dataclass
class Fields(hkx.Module):
    size: Size
    sizes: Items[Size] = (1,)


class OfFields(Fields):
    pass


@hkx.arguments.checked
def function(x: Num[jax.Array, "T D"], times: Size = 2) -> Any:
    return x, times


SIZE = "`size` of `{}` must be an integer, at least 0, got 'x' of type str."
REFUSED = {
    "by position": (lambda: Scaled("x"), SIZE.format("Scaled")),  # type: ignore[arg-type]
    "by name": (lambda: Scaled(size="x"), SIZE.format("Scaled")),  # type: ignore[arg-type]
    "by name only": (lambda: Scaled(1, rate=1.0), "`rate` of `Scaled` must be in [0, 1), got 1.0"),
    "passed to super().__init__": (lambda: Passing("x"), SIZE.format("Passing")),
    "passed to super().__call__": (lambda: Passing(1)("x"), "`x` of `Passing` is not an array of numbers"),
    "a dataclass": (lambda: Fields("x"), SIZE.format("Fields")),  # type: ignore[arg-type]
    "a subclass of a dataclass": (lambda: OfFields("x"), SIZE.format("OfFields")),  # type: ignore[arg-type]
    "a transparent method": (lambda: Scaled(1).transparent("x"), SIZE.format("Scaled")),  # type: ignore[arg-type]
    "a function": (lambda: function([[1.0]], 2.5), "`times` of `function` must be an integer"),  # type: ignore[arg-type]
    "no None": (lambda: Scaled(None), "`size` of `Scaled` must be an integer"),  # type: ignore[arg-type]
    "a missing argument": (lambda: Scaled(), "missing 1 required positional argument: 'size'"),  # type: ignore[call-arg]
    "a misspelt argument": (lambda: Scaled(1, sise=2), "unexpected keyword argument 'sise'"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_argument_is_named(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises((TypeError, ValueError)) as raised:
        run(call)
    assert text in str(raised.value)


def test_methods_get_converted_values() -> None:
    def f() -> Any:
        layer = Scaled(np.int64(3), np.bool_(False), rate=jnp.float32(0.25))
        fields = OfFields(jnp.array(2), iter([np.int32(4), 5]))
        return layer.size, layer.with_bias, layer.rate, layer([1, 2], scale=[3, 4]), fields.size, fields.sizes

    size, with_bias, rate, (x, scale), of_fields, sizes = run(f)
    assert (type(size), size, with_bias, rate, of_fields, sizes) == (int, 3, False, 0.25, 2, (4, 5))
    assert isinstance(x, jax.Array) and isinstance(scale, jax.Array)
    assert run(lambda: Scaled(1)(1.0 * np.ones(2)))[1] is None  # a default is not checked
    assert run(lambda: Scaled(1)(np.ones(2), None))[1] is None  # and one of None allows None
    assert function([[1]])[1] == 2 and run(lambda: Passing(1)(2.0))[0].shape == (2,)


def test_an_annotation_without_a_rule_declares_nothing() -> None:
    assert run(lambda: Scaled(1).forms("c", 3)) == ("c", 3)  # type: ignore[arg-type]

    class Local:
        """Known to the function only, so that the annotation cannot be evaluated."""

    class Layer(hkx.Module):
        def __call__(self, x: Local, size: Size) -> Any:
            return x, size

    assert run(lambda: Layer()(3, np.int8(2))) == (3, 2)  # type: ignore[arg-type]


def test_values_that_an_interceptor_passes_on_are_converted() -> None:
    seen = []

    def doubled(next_f: Any, args: Any, kwargs: Any, context: hkx.MethodContext) -> Any:
        seen.extend(args)
        return next_f(*(arg * 2 for arg in args), **kwargs)

    def f() -> Any:
        layer = Scaled(1)
        with hkx.intercept_methods(doubled):
            return layer([1, 2])[0]

    np.testing.assert_array_equal(run(f), [1, 2, 1, 2])
    assert seen == [[1, 2], [1, 2]]  # in `init` and `apply`


def test_a_decorator_s_own_signature_counts() -> None:
    def with_one(method: Any) -> Any:
        def called(self: Any, x: Any) -> Any:
            return method(self, 1, x)

        called.__wrapped__ = method  # type: ignore[attr-defined]
        return called

    class Layer(hkx.Module):
        @with_one
        def __call__(self, size: Size, x: Any) -> Any:
            return size, x

    assert run(lambda: Layer()("x")) == (1, "x")  # type: ignore[call-arg]


@hkx.arguments.checked
def shapes(
    query: Num[jax.Array, "*B t D"],
    key: Num[jax.Array, "*B T D"],
    bias: Real[jax.Array, "T", "B T"] | None = None,
    mask: Num[jax.Array | np.ndarray, "..."] | None = None,
) -> Any:
    return query, key, bias, mask


@pytest.mark.parametrize(
    "wrong, error, text",
    [
        (([2, 3, 4], [5]), hkx.errors.InvalidRankError, "`key` is of rank 1"),
        (
            ([3, 4], [5, 6]),
            hkx.errors.LeadingDimensionsError,
            "`key` of `shapes` has shape (5, 6), expected D = 4 as in `query`",
        ),
        (([2, 3, 4], [3, 3, 4]), hkx.errors.LeadingDimensionsError, "leading dimensions that broadcast to (2,)"),
        (
            ([3, 4], [5, 4], [6]),
            hkx.errors.LeadingDimensionsError,
            "`bias` of `shapes` has shape (6,), expected T = 5 as in `key`",
        ),
        (([3, 4], [5, 4], [1, 1, 5]), hkx.errors.InvalidRankError, "rank in [1, 2]"),
    ],
)
def test_a_name_is_one_size_throughout_a_call(wrong: Any, error: Any, text: str) -> None:
    with pytest.raises(error) as raised:
        shapes(*map(jnp.ones, wrong))
    assert text in str(raised.value)


def test_leading_dimensions_broadcast_and_numpy_arrays_may_stay() -> None:
    arrays = [np.ones(shape) for shape in ([2, 1, 3, 4], [5, 2, 4], [7, 2])]
    result = shapes(*arrays, mask=np.ones(1))
    assert [isinstance(x, jax.Array) for x in result] == [True, True, True, False]


@hkx.arguments.checked
def kinds(
    number: Number[float, "(0, 2]"] = 1.0,
    several: Number[float, "[0, inf)", "..."] = 0.0,
    anything: Number[float, "any"] = 0.0,
    sizes: Sizes = 1,
    axes: Axes = (0,),
    index: Index = 0,
    positive: PositiveSize = 1,
    f: Function = abs,
    functions: Items[Function] = (),
    floats: Float[jax.Array, "..."] = 0.0,  # type: ignore[assignment]
    ints: Int[jax.Array, "..."] = 0,  # type: ignore[assignment]
    w_init: hkx.initializers.Initializer | None = None,
    own: Annotated[int, Rule(lambda value, argument, taker: value + 1)] = 0,
) -> dict[str, Any]:
    return locals()


ALLOWED = [
    ("number", 2, 2),
    ("number", np.float32(0.5), 0.5),
    ("several", np.ones(2), np.ones(2)),
    ("several", float("inf"), float("inf")),
    ("anything", float("-inf"), float("-inf")),
    ("sizes", range(1, 3), (1, 2)),
    ("sizes", np.array([1, 2]), (1, 2)),
    ("sizes", jnp.array(3), 3),
    ("axes", (x for x in [1, -1]), (1, -1)),
    ("axes", np.int8(-1), (-1,)),
    ("axes", slice(1, None), slice(1, None)),
    ("index", np.int8(-1), -1),
    ("functions", iter([abs, len]), (abs, len)),
    ("w_init", 0, None),  # what is false, as in Haiku
    ("w_init", jnp.zeros, jnp.zeros),
    ("own", 2, 3),
]


@pytest.mark.parametrize("argument, value, expected", ALLOWED)
def test_a_value_that_is_allowed(argument: str, value: Any, expected: Any) -> None:
    found = kinds(**{argument: value})[argument]
    assert type(found) is type(expected) or isinstance(found, np.generic)
    np.testing.assert_array_equal(found, expected) if argument == "several" else None
    assert argument == "several" or found == expected


@pytest.mark.parametrize(
    "argument, value",
    [
        ("number", 0.0),
        ("number", 2.1),
        ("number", np.ones(2)),
        ("number", float("nan")),
        ("several", np.array([1.0, -1.0])),
        ("anything", "1"),
        ("sizes", [1, 0]),
        ("axes", np.array(1.5)),
        ("index", None),
        ("positive", 0),
        ("f", 3),
        ("functions", [abs, 3]),
        ("functions", "ab"),
        ("floats", 1),
        ("ints", 1.5),
        ("w_init", jnp.zeros(0)),
    ],
)
def test_a_value_that_is_refused(argument: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        kinds(**{argument: value})
    assert f"`{argument}`" in str(raised.value) and "`kinds`" in str(raised.value)


def test_traced_numbers_are_not_compared() -> None:
    assert jax.jit(lambda rate: kinds(rate)["number"])(5.0) == 5.0
    with pytest.raises(jax.errors.TracerIntegerConversionError):
        jax.jit(lambda n: kinds(index=n))(1)


def test_a_constructor_that_autoreload_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """`%autoreload` gives the wrapper in the old class the attributes of the new one."""
    monkeypatch.setitem(sys.modules, "IPython.extensions.autoreload", types.ModuleType("autoreload"))
    file = types.ModuleType("edited_layers")
    monkeypatch.setitem(sys.modules, file.__name__, file)
    text = """
import hkx
from hkx.arguments import Size
class Layer(hkx.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.size = size
"""
    exec(compile(text, "edited_layers.py", "exec"), vars(file))
    old = file.Layer
    assert run(lambda: old(jnp.array(2)).size) == 2
    exec(compile(text.replace("= size", "= size + 1"), "edited_layers.py", "exec"), vars(file))
    old.__init__.__dict__.update(file.Layer.__init__.__dict__)
    assert run(lambda: old(jnp.array(2)).size) == 3
    with pytest.raises(hkx.errors.InvalidSizeError, match="`size` of `Layer`"):
        run(lambda: old("x"))
