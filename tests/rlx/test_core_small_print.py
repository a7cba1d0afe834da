"""What the parts under the operators promise in a line each: ends of ranges, texts, axes, edges of sequences."""

import math
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.core.annotations import Float, Int, Mask, Num, Real
from rlx.core.arguments import as_arrays, known, require_ascending, require_broadcast, shown, whole
from rlx.core.arrays import AllSum, add_up, scale_down, scale_up
from rlx.core.lazy import lazy_exports
from rlx.core.masking import finite_exponent, masked, masked_mean, masked_sum, weighted, weighted_sum
from rlx.core.sampling import either, key_and_shape
from rlx.core.segments import following, segments, with_ends
from rlx.core.trees import Record, record
from rlx.core.types import Array, ArrayLike

pytestmark = pytest.mark.unoptimised
INF = math.inf


@pytest.mark.parametrize(
    ("text", "inside", "outside", "words"),
    [
        ("in [0, 1]", [0, 0.5, 1], [-0.01, 1.01, np.nan], "a number in [0, 1]"),
        ("in (0, 1)", [0.5], [0, 1, np.nan], "a number in (0, 1)"),
        ("in (0, 1]", [0.5, 1], [0, 1.5], "a number in (0, 1]"),
        ("in [0, 1)", [0, 0.5], [-1, 1], "a number in [0, 1)"),
        ("in (0, inf]", [0.1, INF], [0, -1], "a positive number"),
        ("in (0, inf)", [0.1, 9], [0, INF], "a positive, finite number"),
        ("in [0, inf]", [0, INF], [-0.1], "a number of at least 0"),
        ("in [0, inf)", [0, 3], [INF, -1], "a finite number of at least 0"),
        ("in (-inf, inf)", [-5, 5], [INF, -INF, np.nan], "a finite number"),
        ("in [-inf, inf]", [-INF, 0, INF], [np.nan], "a number"),
    ],
)
def test_the_ends_of_a_range(text, inside, outside, words):
    for number in inside:
        for value in (float(number), np.float32(number), jnp.float32(number)):
            as_arrays("f", x=(value, Real[Array, "", text]))
    for number in outside:
        with pytest.raises(rlx.OptionError) as raised:
            as_arrays("f", x=(float(number), Real[Array, "", text]))
        assert str(raised.value) == f"f: argument `x` is {float(number)!r}, expected {words}."
    array = np.asarray([inside[0], outside[0]], np.float32)
    with pytest.raises(rlx.OptionError):
        as_arrays("f", x=(array, Real[Array, "2", text]))
    as_arrays("f", x=(array, Real[Array, "2", text + " if scalar"]))


def test_numbers_in_order():
    increasing = Real[Array, "N", "increasing"]
    for good in ([1.0, 1.5, 2.0], [3.0]):
        as_arrays("f", x=(np.asarray(good), increasing))
    for bad in ([2.0, 1.0], [1.0, 1.0, 2.0], [1.0, np.nan], [np.nan, 1.0]):
        with pytest.raises(rlx.OptionError, match="expected numbers in increasing order"):
            as_arrays("f", x=(np.asarray(bad), increasing))
    require_ascending(low=1, high=2)
    require_ascending(False, low=1, mid=1, high=1)
    with pytest.raises(rlx.OptionError) as raised:
        require_ascending(function="f", low=1, high=1)
    assert str(raised.value) == "f: argument `high` is 1, expected more than `low`, which is 1."
    with pytest.raises(rlx.OptionError) as raised:
        require_ascending(False, a=0, low=2, high=1)
    assert str(raised.value) == "argument `high` is 1, expected at least `low`, which is 2."


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Float[Array, "T+1 A"], "[T+1, A]"),
        (Float[Array, "T-1"], "[T-1]"),
        (Float[Array, "*#E A", "#T"], "[*E, A] or [T] or [1]"),
        (Int[Array, "", "3"], "[] or [3]"),
    ],
)
def test_a_shape_in_words(annotation, words):
    assert annotation.expected == words


def test_annotations_read_as_they_are_written():
    assert repr(Float[Array, "T A"]) == 'Float[Array, "T A"]'
    assert repr(Real[Array | float, "", "in [0, 1]"] | None) == 'Real[Array | float, "", "in [0, 1]"] | None'
    assert repr(None | Mask[ArrayLike, "T"].for_callers) == 'Mask[ArrayLike, "T"] | None'
    assert (Num[Array, "T"] | None).optional and not Num[Array, "T"].optional
    with pytest.raises(TypeError, match="unsupported operand"):
        Num[Array, "T"] | 3
    with pytest.raises(TypeError, match=r'Num\[Array, "T"\] is an annotation'):
        Num[Array, "T"]()
    with pytest.raises(rlx.ArgumentError, match="unreadable axis 'T!' in shape 'A T!'"):
        _ = Num[Array, "A T!"].shapes
    with pytest.raises(rlx.ArgumentError, match=r"unreadable range 'in 0, 1'"):
        _ = Num[Array, "", "in 0, 1"].range


REFUSED = {
    "f: argument `x` is None, expected an array of integers.": (None, Int[Array, ""]),
    "f: argument `x` is a list, expected an array of integers.\nPass an array, for instance jnp.asarray(x).": (
        [1], Int[Array, "1"]),
    "f: argument `x` is a tuple, expected an array of numbers.\nPass an array, for instance jnp.asarray(x).": (
        (1,), Num[Array, "1"]),
    "f: argument `x` is a dict, expected an array of integers.": ({}, Int[Array, "1"]),
    "f: argument `x` is a str, expected an array of real numbers.": ("1", Real[Array, ""]),
    "f: argument `x` is a object, expected an array of real numbers.": (object(), Real[Array, ""]),
    f"f: argument `x` is {10**30}, too large a number, expected an array of integers.": (10**30, Int[Array, ""]),
    "f: argument `x` is 4294967296, too large a number, expected an array of integers.": (
        np.int64(2**32),
        Int[Array, ""],
    ),
    "f: argument `x` is [-3000000000], too large a number, expected an array of real numbers.": (
        np.array([-3_000_000_000]),
        Real[Array, "N"],
    ),
    "f: argument `x` has dtype float32, expected integers.\nPass indices of an integer dtype: "
    "jnp.asarray(x, jnp.int32).": (np.float32(1), Int[Array, ""]),
    "f: argument `x` has dtype int32, expected floating-point numbers.\nPass floating-point values: "
    "jnp.asarray(x, jnp.float32).": (np.int32(1), Float[Array, ""]),
    "f: argument `x` has dtype complex64, expected real numbers.\nConvert `x` first.": (
        np.complex64(1), Real[Array, ""]),
    "f: argument `x` has dtype complex64, expected a mask of booleans or numbers.\nConvert `x` first.": (
        np.complex64(1), Mask[Array, ""]),
    "f: argument `x` has shape [0], expected shape [N] with N at least 1.\nPass arrays whose lengths agree.": (
        np.ones(0), Float[Array, "N"]),
    "f: argument `x` has shape [2], expected shape [3].\nPass arrays whose lengths agree.": (
        np.ones(2), Float[Array, "3"]),
    "f: argument `x` has rank 0 (shape []), expected shape [T].\nGive it the axes that are missing.": (
        1.0, Float[Array, "T"]),
    "f: argument `x` has rank 2 (shape [2, 1]), expected shape [] or [T]: x must be a scalar or a tensor of rank 1."
    "\nFor a batch, give each argument a batch axis and map over it with jax.vmap(rlx.f); for one sequence or step, "
    "index first.": (np.ones([2, 1]), Float[Array, "", "T"]),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_the_words_of_a_check(text):
    value, annotation = REFUSED[text]
    with pytest.raises(rlx.ArgumentError) as raised:
        as_arrays("f", x=(value, annotation))
    assert str(raised.value) == text


def test_lengths_of_several_arguments():
    t, t_plus_1, pairs = Float[Array, "T"], Float[Array, "T+1"], Float[Array, "*E 2"]
    as_arrays("f", x=(np.ones(3), t), y=(np.ones(4), t_plus_1))
    as_arrays("f", x=(np.ones([5, 4, 2]), pairs), y=(np.ones([5, 4]), Float[Array, "*E"]))
    as_arrays("f", x=(np.ones([0]), t))  # a sequence may be empty, actions may not
    with pytest.raises(rlx.ShapeError) as raised:
        as_arrays("f", x=(np.ones(3), t), y=(np.ones(3), t_plus_1))
    assert "`y` has shape [3], expected shape [T+1] with T = 3 from `x`." in str(raised.value)
    with pytest.raises(rlx.ShapeError) as raised:
        as_arrays("f", x=(np.ones([5, 2]), pairs), y=(np.ones([4]), Float[Array, "*E"]))
    assert "expected shape [*E] with E = [5] from `x`." in str(raised.value)
    with pytest.raises(rlx.ShapeError) as raised:
        require_broadcast(a=np.ones([2, 3]), b=np.ones(2))
    assert str(raised.value) == (
        "argument `b` has shape [2], expected one that broadcasts against [2, 3], the shape of the arguments before it."
    )


def test_reals_take_the_dtype_of_the_floats():
    real, mask = Real[Array, ""], Mask[Array, ""]
    half, one, count = as_arrays("f", x=(jnp.bfloat16(1), real), y=(True, real), z=(np.int32(3), real))
    assert half.dtype == one.dtype == count.dtype == jnp.bfloat16
    alone, kept = as_arrays("f", x=(np.int32(3), real), m=(np.int32(1), mask))
    assert alone.dtype == jnp.float32 and kept.dtype == bool
    (one,) = as_arrays("f", x=(np.ones(1), Real[Array, "", "#T"]))
    assert one.shape == (1,)
    _, one = as_arrays("f", y=(np.ones(3), Real[Array, "T"]), x=(np.ones(1), Real[Array, "", "#T"]))
    assert one.shape == ()


def test_a_value_in_words():
    assert [shown(x) for x in (1.5, np.float32(1.5), jnp.int32(2), np.array([1, 2]), "a", None)] == [
        "1.5", "1.5", "2", "[1 2]", "'a'", "None"
    ]  # fmt: skip
    assert "key" in shown(jax.random.key(0)) and known(3) == 3 and known(jnp.ones(2)).tolist() == [1, 1]
    jax.eval_shape(lambda x: () if known(x) is None and "Tracer" in shown(x) else 1 / 0, 1.0)
    assert whole("n", jnp.int32(3), "a number", least=3) == 3 and type(whole("n", True, "a number")) is int
    with pytest.raises(rlx.OptionError) as raised:
        whole("n", 2, "a number of steps", "f", 3)
    assert str(raised.value) == "f: argument `n` is 2, expected a number of steps."
    with pytest.raises(rlx.OptionError) as raised:
        whole("n", 2.0, "a number of steps", "f")
    assert str(raised.value) == "f: argument `n` is 2.0, expected a number of steps, a Python integer."


def test_what_is_infinite_when_it_is_scaled():
    x = jnp.array([2.0, -INF, INF])
    np.testing.assert_array_equal(scale_down(x, 4.0), [0.5, -INF, INF])
    np.testing.assert_array_equal(scale_up(x, jnp.float32(3)), [6, -INF, INF])
    of_finite = lambda scale: lambda t: jnp.where(jnp.isfinite(x), scale(x, t), 0).sum()  # noqa: E731
    assert jax.grad(of_finite(scale_down))(4.0) == -2 / 16
    assert jax.grad(of_finite(scale_up))(4.0) == 2
    assert np.isfinite(jax.grad(lambda t: jnp.where(jnp.isfinite(y := scale_down(x, t)), y, 0).sum())(4.0))


def test_sums_with_names_and_over_axes():
    np.testing.assert_array_equal(add_up(a=jnp.ones([2, 3]), b=jnp.arange(3.0)[None]), [[1, 2, 3]] * 2)
    with pytest.raises(rlx.ShapeError, match="argument `b`"):
        add_up(a=jnp.ones(2), b=jnp.ones(3))
    x = jnp.arange(6.0).reshape(2, 3)
    assert AllSum()(x) == 15 and AllSum()(x, 0).tolist() == [3, 5, 7] and AllSum()(x, (0, 1)) == 15
    assert jax.vmap(AllSum("i"), axis_name="i")(x).tolist() == [15, 15]


def test_what_counts():
    nan, x, mask = np.nan, jnp.array([[1.0, 2.0], [np.nan, 4.0]]), jnp.array([[1, 1], [0, 1]])
    assert masked_sum(x, mask) == 7 and masked_sum(x, mask, 0).tolist() == [1, 6] and masked_sum(x[0]) == 3
    assert masked_mean(x, mask) == pytest.approx(7 / 3) and masked_mean(x, mask, 1).tolist() == [1.5, 4]
    assert masked_mean(x[0]) == 1.5 and masked_mean(x, jnp.zeros([2, 2])) == 0
    assert masked(jnp.array([True, False]), jnp.array([[1.0, nan], [nan, 2.0]])).tolist()[1] == [0, 0]
    mask = mask.astype(bool)
    assert masked(mask, jnp.array([5.0, 6.0])).tolist() == [5, 6]  # of a row where anything counts
    assert masked(mask & jnp.array([[False], [True]]), jnp.array([nan, 6.0])).tolist() == [0, 6]
    assert weighted(0, jnp.array([INF, 1.0])).tolist() == [0, 0] and weighted(2, jnp.ones(2)).tolist() == [2, 2]
    assert weighted_sum(jnp.ones(0), jnp.ones(0)) == 0
    for dtype in (jnp.float16, jnp.float32):
        held = finite_exponent(jnp.asarray([1e4, 2.0], dtype))
        assert np.isfinite(np.exp(np.asarray(held, np.float64))).all() and np.exp(held, dtype=dtype)[0] < np.inf
        assert held[0] == dtype(math.log(float(jnp.finfo(dtype).max)) - 1) and held[1] == 2


@pytest.mark.slow
def test_sums_that_leave_out_what_weighs_nothing():
    nan = np.nan
    for size in (3, 33):  # short rows are added up in another way
        w, y = jnp.arange(size) % 3, jnp.where(jnp.arange(size) % 3 == 0, nan, 1.0)
        expected = sum(n % 3 for n in range(size))
        assert weighted_sum(w, y) == expected and weighted_sum(w[None], y[None], -1).tolist() == [expected]
        assert weighted_sum(w[:, None], y[:, None], 0).tolist() == [expected]
        slope = jax.grad(lambda y, w=w: weighted_sum(w, y))(jnp.where(jnp.isnan(y), 7, y))
        np.testing.assert_array_equal(slope, w)


def test_where_sequences_end():
    v_t, cut = jnp.array([1.0, 2.0, 3.0]), jnp.array([False, True, False])
    values, goes_on = segments(v_t, None, None)
    assert values is v_t and goes_on is None
    values, goes_on = segments(v_t, cut, jnp.array([7.0, 8.0, 9.0]))
    assert values.tolist() == [1, 8, 3] and goes_on.tolist() == [True, False, True]
    with pytest.raises(rlx.OptionError, match="`truncation_value_t` is 'given', expected None, unless"):
        segments(v_t, None, v_t)
    assert with_ends(v_t, None).tolist() == [1, 2, 0] and with_ends(v_t, None, 5 * v_t).tolist() == [1, 2, 15]
    assert with_ends(v_t, goes_on, jnp.array([4.0, 5.0, 6.0])).tolist() == [1, 5, 6] and with_ends(0.9, None) == 0.9
    assert following(v_t).tolist() == [2, 3, 0]


def test_keys_and_shapes_of_samples():
    key, shape = key_and_shape("f", None, 3, 2)
    assert (key == jax.random.key(3)) and shape == (2,)
    assert key_and_shape("f", key, None, np.int32(4)) == (key, (4,))
    assert key_and_shape("f", key, None, [2, 3])[1] == (
        2,
        3,
    )
    with pytest.raises(rlx.OptionError) as raised:
        key_and_shape("f", 1, 2, ())
    assert str(raised.value) == "f: argument `seed` is 2, expected nothing beside `key`, which is the same."
    with pytest.raises(rlx.OptionError, match="f: argument `key` is None, expected a random key or an integer seed"):
        key_and_shape("f", None, None, ())
    assert either("f", "x", None, 0) == 0 and either("f", "x", 0, 1) == 0


def test_trees_by_axis_and_records():
    tree = {"a": np.arange(6).reshape(2, 3), "b": np.arange(3)[None]}
    columns = rlx.tree_split_leaves(tree, axis=-1)
    assert [c["a"].tolist() for c in columns] == [[0, 3], [1, 4], [2, 5]] and columns[1]["b"].tolist() == [1]
    rows = rlx.tree_split_leaves({"a": tree["a"]}, keepdim=True)
    assert [r["a"].shape for r in rows] == [(1, 3)] * 2 and np.shares_memory(rows[0]["a"], tree["a"])
    numbers = rlx.tree_split_leaves(tree["b"][0])
    assert all(isinstance(n, np.ndarray) and np.shares_memory(n, tree["b"]) for n in numbers)  # as RLax's
    with pytest.raises(rlx.ArgumentError, match=r"lengths \[1, 2\] along axis 0, expected one length"):
        rlx.tree_split_leaves(tree)
    with pytest.raises(rlx.ArgumentError, match=r"nests\[1\] is PyTreeDef\(\[\*\]\)"):
        rlx.tree_map_zipped(max, [1, [1]])
    assert rlx.tree_map_zipped(max, []) == []
    key, keys = rlx.tree_split_key(jax.random.PRNGKey(0), {"a": 1, "b": 2})
    np.testing.assert_array_equal(jnp.stack([key, keys["a"], keys["b"]]), jax.random.split(jax.random.PRNGKey(0), 3))

    @record
    class Pair(Record):
        y: int
        x: int

    pair = Pair(y=1, x=2)
    assert (dict(pair), len(pair), pair.to_tuple(), Pair.from_tuple((3, 4)).x) == ({"y": 1, "x": 2}, 2, (1, 2), 4)
    assert jax.tree.leaves(pair) == [2, 1] and pair.replace(y=5).to_tuple() == (5, 2) and pair["x"] == 2
    with pytest.raises(KeyError):
        _ = pair["replace"]


def test_names_that_a_package_does_not_have(monkeypatch):
    monkeypatch.setitem(sys.modules, "face", types.ModuleType("face"))
    load, listed, names = lazy_exports("face", {"rlx.core.types": "Array PyTree"})
    assert listed() == names == ["Array", "PyTree"] and load("Array") is sys.modules["face"].Array is Array
    near = ". Did you mean: 'Array'?"
    for name, advice in (("Arrays", near), ("array", near), ("q", ""), ("_Array", "")):
        with pytest.raises(AttributeError) as raised:
            load(name)
        assert str(raised.value) == f"module 'face' has no attribute {name!r}{advice}" and raised.value.name == name


@pytest.mark.parametrize("keepdims", [False, True])
def test_picking_and_broadcasting_by_place(keepdims):
    values = jnp.arange(6.0).reshape(2, 3)
    picked = rlx.batched_index(values, jnp.array([0, -1]), keepdims)
    assert picked.tolist() == ([[0], [5]] if keepdims else [0, 5])
    assert rlx.lhs_broadcast(jnp.ones(2), values).shape == (2, 1)
    assert rlx.lhs_broadcast(jnp.ones(1), values).shape == (
        1,
        1,
    )
    with pytest.raises(rlx.ShapeError, match=r"`source` has shape \[3\], expected a source shape whose lengths are"):
        rlx.lhs_broadcast(jnp.ones(3), values)
    with pytest.raises(rlx.ShapeError):
        rlx.lhs_broadcast(jnp.ones([2, 3, 1]), values)
    assert rlx.one_hot(jnp.array([0, 2, 5, -1]), 3).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert rlx.one_hot(1, 3, jnp.int32).dtype == jnp.int32 and rlx.one_hot(1, 0).shape == (0,)
    with pytest.raises(rlx.OptionError, match="`num_classes` is -1"):
        rlx.one_hot(1, -1)
