"""Arguments that must be a flag, a list, an initializer or a number of one element, and are an array."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

X, IMAGE, KEY = jnp.ones([2, 3]), jnp.ones([1, 32, 32, 2]), jax.random.PRNGKey(0)


@pytest.mark.parametrize("flag", [1, np.True_, np.array(True), jnp.array(True), "yes", [0]])
def test_what_python_takes_for_true_is_a_flag(flag):
    params = hkx.transform(lambda: hkx.Linear(2, with_bias=flag)(X)).init(0)
    assert set(params["linear"]) == {"w", "b"}


def test_a_traced_flag_is_an_error_of_jax_with_what_to_write():
    model = hkx.transform_with_state(lambda is_training: hkx.BatchNorm(True, True, 0.9)(X, is_training))
    with pytest.raises(jax.errors.TracerBoolConversionError) as raised:
        jax.jit(model.init)(0, True)
    assert any("static_argnames" in note for note in raised.value.__notes__)


SCALAR, ONE = jnp.array(2), jnp.array(1)
LISTS = {
    "output_shape": lambda: hkx.Reshape(SCALAR)(X),
    "broadcast_dims": lambda: hkx.dropout(KEY, 0.5, X, SCALAR),
    "padding": lambda: hkx.max_pool(IMAGE, 2, 1, np.array([1, 2])),
    "layers.* of .*skip_connections": lambda: hkx.deep_rnn_with_skip_connections(SCALAR),
    "an `LSTMState`": lambda: hkx.LSTM(3)(X, SCALAR),
    "a pair of states": lambda: hkx.Bidirectional(hkx.GRU(3), hkx.GRU(3))(jnp.ones([2, 2, 3]), SCALAR),
    "a tuple of 1 states": lambda: hkx.DeepRNN([hkx.GRU(3)])(X, SCALAR),
    "call_methods": lambda: hkx.Deferred(lambda: hkx.Linear(2), SCALAR)(X),
}


@pytest.mark.parametrize("name", LISTS)
def test_an_array_that_is_no_list_is_named(name):
    with pytest.raises((TypeError, ValueError), match=f"(?i){name}"):
        hkx.transform(LISTS[name]).init(0)


def test_a_list_may_be_an_iterator():
    def f(x):
        deferred = hkx.Deferred(lambda: hkx.nets.MLP(iter([3])), call_methods=iter(["__call__", "reverse"]))
        normalised = hkx.WeightNorm(hkx.Linear(2), iter(["w", "b"]))
        return deferred(x), deferred.reverse(), hkx.Sequential(iter([jnp.tanh]))(x), normalised(x)

    params = hkx.transform(f).init(0, X)
    assert set(params["linear"]) == {"w", "b", "w_scale", "b_scale"} and params["mlp/~/linear_0"]["w"].shape == (3, 3)


TWO = np.ones([1, 2], np.float32)
DRAWN = {
    "stddev": [hkx.initializers.RandomNormal(TWO), hkx.initializers.TruncatedNormal(TWO)],
    "mean": [hkx.initializers.RandomNormal(1.0, TWO), hkx.initializers.TruncatedNormal(1.0, TWO)],
    "lower": [hkx.initializers.TruncatedNormal(lower=TWO)],
    "upper": [hkx.initializers.TruncatedNormal(upper=TWO)],
    "minval": [hkx.initializers.RandomUniform(TWO, 2.0)],
    "maxval": [hkx.initializers.RandomUniform(0.0, TWO)],
}


@pytest.mark.parametrize("argument", DRAWN)
def test_an_array_of_another_shape_than_what_is_drawn_is_named(argument):
    for initializer in DRAWN[argument]:
        for init in (lambda: initializer([4, 3], jnp.float32), lambda: hkx.Linear(3, w_init=initializer)(X)):  # noqa: B023
            with pytest.raises(ValueError, match=rf"`{argument}` of an initializer has shape \(1, 2\), expected"):
                hkx.transform(init).init(0)
        assert hkx.testing.transform_and_run(lambda: initializer([4, 2], jnp.float32))().shape == (4, 2)  # noqa: B023


@pytest.mark.parametrize("argument", ["stddev", "mean", "lower", "upper"])
def test_a_complex_number_for_real_values_is_named(argument):
    initializer = hkx.initializers.TruncatedNormal(**{argument: 1j})
    with pytest.raises(hkx.errors.NotANumberError, match=f"`{argument}` must be a number"):
        hkx.transform(lambda: initializer([2], jnp.float32)).init(0)


SEVERAL = np.array([1, 2])


def test_what_is_not_a_mode_or_a_number_is_named():
    with pytest.raises(ValueError, match="Invalid `mode` argument array"):
        hkx.initializers.VarianceScaling(mode=SEVERAL)
    with pytest.raises(hkx.errors.NotANumberError, match="`scale`"):
        hkx.initializers.VarianceScaling(1j)
    with pytest.raises(hkx.errors.OutOfRangeError, match="`warmup_length`"):
        hkx.transform(lambda: hkx.ExponentialMovingAverage(0.9, False, 10**30)).init(0)


def test_numbers_may_be_arrays_in_a_compiled_function():
    def f(x):
        average = hkx.ExponentialMovingAverage(0.5, False, SCALAR)
        return average(x), hkx.Flatten(SCALAR)(x[None, None]), hkx.Reshape([1, 1, 3], ONE)(x)

    model = hkx.transform_with_state(f)
    _, state = jax.jit(model.init)(0, X)
    (average, flat, reshaped), state = jax.jit(model.apply)({}, state, None, X)
    assert (
        flat.shape == (1, 1, 6)
        and reshaped.shape == (2, 1, 1, 3)
        and state["exponential_moving_average"]["counter"] == -1
    )
    np.testing.assert_array_equal(average, X)  # while it warms up
    assert hkx.testing.transform_and_run(lambda: hkx.ExponentialMovingAverage(0.5, False, 2).warmup_length)() == 2


def test_a_size_of_zero_is_the_one_by_default():  # as in Haiku
    def f():
        layer = hkx.MultiHeadAttention(3, 2, w_init=jnp.ones, value_size=0, model_size=0)
        return layer.value_size, layer.model_size

    assert hkx.testing.transform_and_run(f)() == (2, 6)


@pytest.mark.parametrize("dims", [(1, 2), [1, 2], np.array([1, 2]), range(1, 3)], ids=str)
def test_dimensions_of_a_bias(dims):
    params = hkx.transform(lambda x: hkx.Bias(bias_dims=dims)(x)).init(0, jnp.ones([2, 3, 4]))
    assert params["bias"]["b"].shape == (3, 4)


@pytest.mark.parametrize("dims", [0, [], (), np.zeros(0, int)], ids=str)
def test_no_dimension_of_a_bias(dims):
    assert hkx.transform(lambda x: hkx.Bias(bias_dims=dims)(x)).init(0, jnp.ones([2, 3, 4]))["bias"]["b"].shape == ()


@pytest.mark.parametrize("shape", [(), (1, 1), (1, 3)])
def test_a_constant_may_be_one_for_each_channel(shape):
    model = hkx.transform_with_state(lambda x, eps: hkx.BatchNorm(False, False, 0.9, eps)(x, True))
    x = np.random.RandomState(0).randn(5, 3).astype(np.float32)
    eps = np.float32([0.5, 1.0, 2.0])[: int(np.prod(shape))].reshape(shape)
    out = model.apply(*model.init(0, x, eps), None, x, eps)[0]
    np.testing.assert_allclose(out, (x - x.mean(0)) / np.sqrt(x.var(0) + eps), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis_name", ["i", ("i", "j"), ["i"]])
def test_an_axis_that_is_not_mapped_is_named(axis_name):
    def f(x):
        quantizer = hkx.nets.VectorQuantizer(3, 4, 0.25, cross_replica_axis=axis_name)
        return hkx.BatchNorm(True, True, 0.9, cross_replica_axis=axis_name)(x, True), quantizer(x, True)

    model = hkx.transform_with_state(f)
    params, state = model.init(0, X)
    text = re.escape(f"`cross_replica_axis` is {axis_name!r}, but no such axis is mapped here")
    with pytest.raises(hkx.errors.UnboundAxisError, match=text) as raised:
        model.apply(params, state, None, X)
    assert isinstance(raised.value, NameError)  # what JAX raises


@pytest.mark.parametrize("dtype", ["x", 3, [], {}, (1, 2), np.ones(2)], ids=str)
def test_a_dtype_that_is_none_is_named(dtype):
    with pytest.raises(hkx.errors.InvalidDTypeError, match="'one_hot'"):
        hkx.one_hot(1, 3, dtype)
    assert [hkx.one_hot(1, 3, dtype).dtype for dtype in ("half", None, float, np.int8)] == ["f2", "f4", "f4", "i1"]


def test_one_hot_vectors_of_numbers_that_are_no_integers():
    x = np.array([1.0, 0.5, np.nan, np.inf, -1.0, 3.0, 2.0])
    for dtype in (np.float32, np.float16, jnp.bfloat16, np.complex64):
        out = hkx.one_hot(jnp.asarray(x, dtype), 3, np.int8)
        np.testing.assert_array_equal(out, np.asarray(x[:, None] == np.arange(3), np.int8))
        assert out.dtype == np.int8
    assert hkx.one_hot(2.0, 3, None).dtype == hkx.one_hot(2, 3, None).dtype


def test_a_size_that_no_array_can_have_is_named():
    for f in (
        lambda n: hkx.Linear(n)(X),
        lambda n: hkx.Conv2D(2, n)(IMAGE),
        lambda n: hkx.max_pool(IMAGE, n, 1, "SAME"),
    ):
        with pytest.raises(hkx.errors.InvalidSizeError, match=r"must be an integer, at least [01] and below 2\*\*63"):
            hkx.transform(f).init(0, 10**30)
    assert hkx.arguments.checked_integer(2**63 - 1, "n") == 2**63 - 1
