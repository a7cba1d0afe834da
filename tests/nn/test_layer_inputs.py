"""What layers do with inputs that are lists, are no arrays, have symbols for sizes, or are of half precision."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import hkx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.PRNGKey(0)


def step(core: Any, x: Any) -> Any:
    return core(x, core.initial_state(None))[0]


LAYERS = {
    "Linear": lambda x: hkx.Linear(3)(x),
    "Bias": lambda x: hkx.Bias()(x),
    "Flatten": lambda x: hkx.Flatten(-1)(x),
    "Conv1D": lambda x: hkx.Conv1D(3, 2)(x),
    "Conv1DTranspose": lambda x: hkx.Conv1DTranspose(3, 2)(x),
    "DepthwiseConv1D": lambda x: hkx.DepthwiseConv1D(1, 2)(x),
    "MaxPool": lambda x: hkx.MaxPool(2, 1, "SAME")(x),
    "AvgPool": lambda x: hkx.AvgPool(2, 1, "SAME")(x),
    "BatchNorm": lambda x: hkx.BatchNorm(True, True, 0.9)(x, True),
    "LayerNorm": lambda x: hkx.LayerNorm(-1, True, True)(x),
    "InstanceNorm": lambda x: hkx.InstanceNorm(False, False)(x),
    "GroupNorm": lambda x: hkx.GroupNorm(2)(x),
    "RMSNorm": lambda x: hkx.RMSNorm(-1)(x),
    "SpectralNorm": lambda x: hkx.SpectralNorm()(x),
    "ExponentialMovingAverage": lambda x: hkx.ExponentialMovingAverage(0.9)(x),
    "MultiHeadAttention": lambda x: hkx.MultiHeadAttention(2, 3, w_init=hkx.initializers.VarianceScaling())(x, x, x),
    "LSTM": lambda x: hkx.LSTM(3)(x, hkx.LSTM(3).initial_state(2))[0],
    "GRU": lambda x: hkx.GRU(3)(x, hkx.GRU(3).initial_state(2))[0],
    "MLP": lambda x: hkx.nets.MLP([3])(x),
    "VectorQuantizer": lambda x: hkx.nets.VectorQuantizer(4, 5, 0.25)(x, True)["quantize"],
}
each = pytest.mark.parametrize("name", list(LAYERS))


@each
def test_nested_lists_are_arrays(name: str) -> None:
    model, x = hkx.transform_with_state(LAYERS[name]), np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    run = functools.partial(jax.eval_shape, lambda x: model.apply(*model.init(KEY, x), KEY, x))
    expected = run(x)
    listed = jax.eval_shape(lambda: model.apply(*model.init(KEY, x.tolist()), KEY, x.tolist()))
    assert jax.tree.map(lambda v: (v.shape, v.dtype), listed) == jax.tree.map(lambda v: (v.shape, v.dtype), expected)


@each
@pytest.mark.parametrize("wrong", [None, "x", object()], ids=["None", "str", "object"])
def test_what_is_no_array_is_named(name: str, wrong: Any) -> None:
    with pytest.raises(hkx.errors.InvalidInputError, match="is not an array"):
        hkx.transform_with_state(lambda: LAYERS[name](wrong)).init(KEY)


@pytest.mark.parametrize("name", ["Linear", "LayerNorm", "InstanceNorm", "GroupNorm", "RMSNorm"])
def test_scalars_are_refused(name: str) -> None:
    with pytest.raises(hkx.errors.ScalarInputError, match="must not be scalar"):
        hkx.transform_with_state(lambda: LAYERS[name](np.float32(1))).init(KEY)


@pytest.mark.parametrize(
    "sizes,f",
    [
        ("b, n, 4", lambda x: hkx.Flatten()(x)),
        ("b, n, 4", lambda x: hkx.Reshape((-1, 2))(x)),
        ("b, n, 4", lambda x: hkx.avg_pool(x, 2, 2, "SAME")),
        ("b, n, 4", lambda x: hkx.avg_pool(x, 3, 2, "VALID")),
        ("b, n, 4", lambda x: hkx.Conv1DTranspose(2, 3, 2, w_init=jnp.ones)(x)),
        ("b, n, 4", lambda x: hkx.BatchNorm(True, True, 0.9)(x, True)),
        *(("b, n, 4", functools.partial(lambda size, x: hkx.AdaptiveAvgPool(size)(x), size)) for size in (1, 3, 7, 9)),
        ("b, 3*n + 1, 4", lambda x: hkx.AdaptiveAvgPool(x.shape[1] // 3)(x)),
    ],
)
def test_an_exported_program_serves_every_size(sizes: str, f: Any) -> None:
    model = hkx.transform_with_state(f)
    x = np.random.RandomState(0).standard_normal([2, 7, 4]).astype(np.float32)
    params, state = model.init(None, x)
    apply = jax.jit(lambda x: model.apply(params, state, None, x)[0])
    exported = export.export(apply)(jax.ShapeDtypeStruct(export.symbolic_shape(sizes), x.dtype))
    np.testing.assert_allclose(exported.call(x), apply(x), atol=1e-6)


@pytest.mark.parametrize("dtype,decay", [(jnp.bfloat16, 0.999), (np.float16, 0.9999), (np.int32, 0.9), (np.float32, 1)])
def test_moving_average_of_any_dtype(dtype: Any, decay: float) -> None:
    """A decay that the dtype cannot tell from 1 (or from 0) is not lost; one of 1 leaves the average where it is."""
    model = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(decay)(x))
    values = [np.asarray(v, dtype) for v in (8, 4)]
    _, state = model.init(None, values[0])
    for value in values:
        out, state = model.apply({}, state, None, value)
    expected = (8 * decay + 4) * (1 - decay) / (1 - decay**2) if decay < 1 else 0.0
    np.testing.assert_allclose(np.asarray(out, np.float32), expected, rtol=1e-2)  # bfloat16 has three digits
    assert out.dtype == (np.float32 if dtype is np.int32 else dtype)


def test_batch_norm_of_large_numbers_in_half_precision() -> None:
    """Squares of what float16 holds, it does not hold; and in bfloat16 the difference of squares is mere rounding."""
    random = np.random.RandomState(0).standard_normal([64, 3])
    f = lambda x: hkx.BatchNorm(False, False, 0.9)(x, True)  # noqa: E731
    for dtype, x in ((np.float16, 500 + 8 * random), (jnp.bfloat16, 16 + random)):
        x = np.asarray(x, dtype)
        wide = x.astype(np.float64)
        expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5)
        out = hkx.testing.transform_and_run(f)(x)
        assert out.dtype == dtype
        # The mean is rounded before it is subtracted: by up to 1/32 in bfloat16, 1/4 of 8 in float16.
        np.testing.assert_allclose(np.asarray(out, np.float64), expected, atol=0.07)


@pytest.mark.parametrize(
    "axes,shape,f",
    [
        ((0, 1), (6, 5, 4), lambda x: hkx.BatchNorm(True, True, 0.9)(x, True)),
        (2, (6, 5, 4), lambda x: hkx.LayerNorm(-1, True, True)(x)),
        (1, (6, 5, 4), lambda x: hkx.InstanceNorm(True, True)(x)),
        ((1, 3), (6, 5, 2, 2), lambda x: hkx.GroupNorm(2)(x)),
    ],
    ids=["batch", "layer", "instance", "group"],
)
def test_normalisations_of_float16_are_computed_in_float32(axes: Any, shape: Any, f: Any) -> None:
    """The result is the exact one, rounded to float16 once; near a tie it may be rounded otherwise."""
    x = np.asarray(np.random.RandomState(0).standard_normal(shape), np.float16)
    wide = x.astype(np.float64)
    exact = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    out = hkx.testing.transform_and_run(f)(x.reshape(6, 5, 4))
    rounded = exact.astype(np.float16).reshape(6, 5, 4)
    assert out.dtype == np.float16 and np.mean(np.asarray(out) == rounded) > 0.98
    np.testing.assert_allclose(np.asarray(out, np.float64), rounded, rtol=2**-10)


def test_eps_may_be_learnt() -> None:
    def f(x: Any) -> Any:
        return hkx.LayerNorm(-1, False, False, eps=hkx.get_parameter("eps", [], init=jnp.ones))(x)

    x = np.array([[1.0, 3.0]], np.float32)
    np.testing.assert_allclose(
        jax.jit(hkx.transform(f).apply)({"~": {"eps": 3.0 * jnp.ones([])}}, None, x), [[-0.5, 0.5]]
    )


@pytest.mark.parametrize("flag", [0, 1, True, False, np.bool_(True)])
def test_flags_may_be_numbers(flag: Any) -> None:
    x = np.ones([1, 2, 4], np.float32)
    expected = {"linear": 1 + bool(flag), "query": 1 + bool(flag)}
    for f, name in ((lambda: hkx.Linear(3, flag)(x), "linear"), (_attention(flag, x), "query")):
        params = jax.eval_shape(hkx.transform(f).init, KEY)
        assert [len(v) for k, v in params.items() if k.endswith(name)] == [expected[name]]


def _attention(flag: Any, x: Any) -> Any:
    return lambda: hkx.MultiHeadAttention(2, 3, w_init=hkx.initializers.VarianceScaling(), with_bias=flag)(x, x, x)


@pytest.mark.parametrize("name", [1, ("a",), b"a", np.float32(1)])
def test_a_name_that_is_no_string(name: Any) -> None:
    with pytest.raises(hkx.errors.NotANameError, match="identifier"):
        hkx.testing.transform_and_run(lambda: hkx.Linear(3, name=name))()


@pytest.mark.parametrize("shape", [None, 3, (7,), ((1, 1),), (2, 2.5)])
def test_shapes_that_do_not_fit(shape: Any) -> None:
    with pytest.raises(hkx.errors.InvalidReshapeError):
        hkx.testing.transform_and_run(lambda: hkx.Reshape(shape)(np.ones([2, 6])))()


X, IMAGE = jnp.ones([3, 4]), jnp.ones([2, 5, 5, 4])
EPS = {
    "BatchNorm": lambda e: hkx.BatchNorm(True, True, 0.9, eps=e)(X, True),
    "LayerNorm": lambda e: hkx.LayerNorm(-1, True, True, eps=e)(X),
    "GroupNorm": lambda e: hkx.GroupNorm(2, eps=e)(IMAGE),
    "RMSNorm": lambda e: hkx.RMSNorm(-1, eps=e)(X),
    "SpectralNorm": lambda e: hkx.SpectralNorm(eps=e)(X),
    "BatchRenorm": lambda e: hkx.BatchRenorm(True, True, 0.9, eps=e)(X, True),
}


@pytest.mark.parametrize("name", EPS)
def test_eps_of_another_shape_is_named(name: str) -> None:
    model = hkx.transform_with_state(EPS[name])
    params, state = model.init(KEY, 1e-3)
    for wrong in (np.ones(7, np.float32), np.ones([3, 2, 3], np.float32), jnp.ones(7)):
        with pytest.raises(hkx.errors.NotANumberError, match=r"`eps` .*must be a number or a scalar array, got "):
            model.apply(params, state, None, wrong)


def test_other_arguments_that_are_named() -> None:
    def raised(match: str, f: Any) -> None:
        with pytest.raises((TypeError, ValueError, IndexError), match=match):
            hkx.transform_with_state(f).init(KEY)

    raised(
        "`data_format` must be a string, as 'NHWC', got None", lambda: hkx.BatchNorm(True, True, 0.9, data_format=None)
    )
    raised(
        r"`axis` of `hkx.BatchNorm` is out of range: \(1, 2\)", lambda: hkx.BatchNorm(1, 1, 0.9, axis=(1, 2))(X, True)
    )
    raised("`broadcast_dims` of `hkx.dropout` is out of range: 2", lambda: hkx.dropout(KEY, 0.5, X, (2,)))
    raised("`rng` of `hkx.dropout`", lambda: hkx.dropout("key", 0.5, X))
    raised("`rng` of `hkx.multinomial`", lambda: hkx.multinomial(None, X, 2))
    raised("`logits` must be of a floating dtype, got int32", lambda: hkx.multinomial(KEY, jnp.arange(3), 2))
    raised(r"`logits` must have a dimension of classes, .* \(3, 0\)", lambda: hkx.multinomial(KEY, X[:, :0], 2))
    raised("not int32. .* convert those first", lambda: hkx.Linear(3)(jnp.ones([2, 2], int)))
    raised("not bool. .* convert those first", lambda: hkx.initializers.RandomUniform()([2], bool))


def test_functions_take_seeds_for_keys() -> None:
    x = jnp.ones([50])
    np.testing.assert_array_equal(hkx.dropout(3, 0.5, x), hkx.dropout(jax.random.PRNGKey(3), 0.5, x))
    np.testing.assert_array_equal(hkx.multinomial(3, x, 9), hkx.multinomial(jax.random.PRNGKey(3), x, 9))
    assert not np.array_equal(hkx.dropout(3, 0.5, x), hkx.dropout(4, 0.5, x))


CONVOLUTIONS = {
    "Conv2D": lambda x: hkx.Conv2D(3, 3)(x),
    "Conv2DTranspose": lambda x: hkx.Conv2DTranspose(3, 3)(x),
    "DepthwiseConv2D": lambda x: hkx.DepthwiseConv2D(1, 3)(x),
    "SeparableDepthwiseConv2D": lambda x: hkx.SeparableDepthwiseConv2D(1, 3)(x),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "bfloat16", "complex64"])
def test_an_image_of_another_dtype_than_the_kernel_is_named(name: str, dtype: str) -> None:
    model = hkx.transform(CONVOLUTIONS[name])
    params = model.init(KEY, jnp.ones([1, 5, 5, 2]))
    with pytest.raises(hkx.errors.InputDTypeError, match=rf"`inputs` of `\w+` is of dtype {dtype}, expected float32"):
        model.apply(params, None, jnp.ones([1, 5, 5, 2], dtype))


def test_integers_are_not_normalised_by_moving_averages() -> None:
    model = hkx.transform_with_state(lambda x, training: hkx.BatchNorm(True, True, 0.9)(x, training))
    params, state = model.init(KEY, jnp.ones([4, 3]), True)
    with pytest.raises(hkx.errors.InputDTypeError, match=r"`inputs` of `BatchNorm` is of dtype int32.*moving averages"):
        model.apply(params, state, KEY, jnp.ones([4, 3], int), False)
    out, _ = model.apply(params, state, KEY, jnp.ones([4, 3], int), True)  # as in Haiku
    assert not out.any()


def test_what_cannot_be_averaged_or_has_no_channels_is_named() -> None:
    with pytest.raises(hkx.errors.InputDTypeError, match="`value` of `avg_pool` is of dtype bool"):
        hkx.avg_pool(jnp.ones([1, 4, 1], bool), 2, 2, "SAME")
    with pytest.raises(ValueError, match=r"`inputs` of `DepthwiseConv1D` .* without channels"):
        hkx.transform(lambda: hkx.DepthwiseConv1D(1, 2)(jnp.ones([1, 4, 0]))).init(KEY)


@each
def test_random_keys_and_integers_beyond_all_dtypes_are_no_numbers(name: str) -> None:
    keys = jax.random.split(jax.random.key(0), [2, 3, 2])
    model = hkx.transform_with_state(lambda x: LAYERS[name](x))
    if name == "Flatten":  # nothing is computed
        assert hkx.transform(lambda: hkx.Flatten()(keys)).apply({}, None).shape == (2, 6)
        return
    for wrong in (keys, 2**70):
        with pytest.raises(hkx.errors.InvalidInputError, match="is not an array of numbers"):
            model.init(KEY, wrong)


@pytest.mark.parametrize(
    "wrong", ["text", np.array([["a", "b"]]), object(), np.float32], ids=["text", "texts", "object", "dtype"]
)
@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("unroll", [hkx.dynamic_unroll, hkx.static_unroll], ids=["dynamic", "static"])
def test_a_sequence_that_is_no_array_is_named(unroll: Any, time_major: bool, wrong: Any) -> None:
    with pytest.raises(hkx.errors.HkxError, match=r"no array|not an array"):
        hkx.transform(lambda: unroll(hkx.GRU(3), wrong, jnp.zeros([2, 3]), time_major)).init(KEY)


@pytest.mark.parametrize("lib", ["hkx", pytest.param("haiku", marks=pytest.mark.peer)])
@pytest.mark.parametrize(
    "shape, dims, expected",
    [
        ((4, 1), [1], ()),
        ((4, 1, 3), [1, 2], (3,)),
        ((4, 2, 1), [2], ()),
        ((4, 2, 1), [1], (2, 1)),
        ((4, 1), None, (1,)),
    ],
)
def test_a_bias_does_not_begin_with_dimensions_of_one(lib: str, shape: Any, dims: Any, expected: Any) -> None:
    module = hkx if lib == "hkx" else pytest.importorskip("haiku")
    model = module.transform(lambda x: module.Bias(bias_dims=dims)(x))
    assert model.init(KEY, jnp.ones(shape))["bias"]["b"].shape == expected
