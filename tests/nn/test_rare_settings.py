"""Rare arguments of layers: what they compute."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import hkx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.PRNGKey(0)
X, SCALAR, ONE = jnp.ones([2, 3]), jnp.array(2), jnp.array(1)


def value(f):
    model = hkx.transform_with_state(f)
    return model.apply(*model.init(0), 0)[0]


def test_same_lower_puts_the_larger_half_before():
    kernel = jax.random.normal(jax.random.key(0), [2, 2, 2, 2])
    picture = jax.random.normal(jax.random.key(1), [1, 4, 4, 2])

    def layer():
        w_init = hkx.initializers.Constant(kernel)
        return hkx.Conv2DTranspose(2, 2, padding="SAME_LOWER", with_bias=False, w_init=w_init)(picture)

    expected = jax.lax.conv_general_dilated(
        picture, kernel, (1, 1), [(1, 0), (1, 0)], dimension_numbers=("NHWC", "HWOI", "NHWC")
    )
    np.testing.assert_allclose(value(layer), expected, rtol=1e-5, atol=1e-5)


def test_a_largest_of_booleans_is_whether_any_is_true():
    given = jnp.zeros([1, 4, 4, 1], bool).at[0, 3, 0, 0].set(True)
    expected = np.zeros([1, 2, 2, 1], bool)
    expected[0, 1, 0, 0] = True
    assert value(lambda: hkx.max_pool(given, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")).tolist() == expected.tolist()


def test_normalisations_without_a_scale_and_products_without_a_bias():
    x = jnp.array([[3.0, 4.0]])
    np.testing.assert_allclose(
        value(lambda: hkx.RMSNorm(-1, create_scale=False, eps=0)(x)), x / np.sqrt(12.5), rtol=1e-6
    )
    w = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    by_einsum = value(
        lambda: hkx.Einsum([2, 2], "...a,ab->...b", with_bias=False, w_init=hkx.initializers.Constant(w))(x)
    )
    np.testing.assert_allclose(by_einsum, x @ w)


OF_A_SIZE = {
    "Conv1D": lambda n, x: hkx.Conv1D(n, n, padding=(n, n - 2))(x),
    "get_state": lambda n, x: hkx.get_state("mean", [n], init=jnp.zeros),
    "layer_stack": lambda n, x: hkx.layer_stack(n)(hkx.Linear(4))(x),
    "next_rng_keys": lambda n, x: hkx.next_rng_keys(n),
}


@pytest.mark.parametrize("make", OF_A_SIZE.values(), ids=OF_A_SIZE)
def test_a_size_may_come_from_an_argument(make):
    """In `init`, which then looks at its value, and outside of `jit`."""
    model, fixed = hkx.transform_with_state(make), hkx.transform_with_state(lambda _, x: make(3, x))
    size, x = jnp.array(3), jnp.ones([2, 2, 4])
    made, wanted = (m.init(0, size, x) for m in (model, fixed))
    jax.tree.map(np.testing.assert_array_equal, made, wanted)
    jax.tree.map(np.testing.assert_array_equal, model.apply(*made, 0, size, x), fixed.apply(*made, 0, size, x))
    with pytest.raises(TypeError, match="depends on the value of the argument"):
        jax.jit(model.init)(0, size, x)


def test_one_name_of_a_parameter_is_not_a_list_of_letters():
    class Layer(hkx.Module):
        def __call__(self, x):
            return x @ hkx.get_parameter("kernel", [3, 2], init=jnp.ones)

    params = hkx.transform(lambda x: hkx.WeightNorm(Layer(), "kernel")(x)).init(0, X)
    assert list(params["layer"]) == ["kernel", "kernel_scale"]


@pytest.mark.parametrize("axis", [-2, -1])
def test_a_negative_axis_of_group_norm_is_one_of_the_input(axis):  # in Haiku, one of the array with groups
    x = np.random.default_rng(0).normal(size=[2, 4, 3, 5]).astype(np.float32)
    y = value(lambda: hkx.GroupNorm(2, axis, False, False, data_format="NCHW")(x))
    np.testing.assert_allclose(y, (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5), 1e-4)


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


@pytest.mark.parametrize("shape", [(1, 3)])
def test_a_constant_may_be_one_for_each_channel(shape):
    model = hkx.transform_with_state(lambda x, eps: hkx.BatchNorm(False, False, 0.9, eps)(x, True))
    x = np.random.RandomState(0).randn(5, 3).astype(np.float32)
    eps = np.float32([0.5, 1.0, 2.0])[: int(np.prod(shape))].reshape(shape)
    out = model.apply(*model.init(0, x, eps), None, x, eps)[0]
    np.testing.assert_allclose(out, (x - x.mean(0)) / np.sqrt(x.var(0) + eps), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "sizes,f",
    [
        ("b, n, 4", lambda x: hkx.Flatten()(x)),
        ("b, n, 4", lambda x: hkx.avg_pool(x, 2, 2, "SAME")),
        ("b, n, 4", lambda x: hkx.Conv1DTranspose(2, 3, 2, w_init=jnp.ones)(x)),
        ("b, n, 4", lambda x: hkx.AdaptiveAvgPool(3)(x)),
        ("b, 3*n + 1, 4", lambda x: hkx.AdaptiveAvgPool(x.shape[1] // 3)(x)),
        ("b, n, 4", lambda x: hkx.MixtureOfExperts(4, 2, 3)(x.reshape(-1, 4))),
    ],
)
def test_an_exported_program_serves_every_size(sizes: str, f: Any) -> None:
    model = hkx.transform_with_state(f)
    x = np.random.RandomState(0).standard_normal([2, 7, 4]).astype(np.float32)
    params, state = model.init(KEY, x)
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


def test_eps_may_be_learnt() -> None:
    def f(x: Any) -> Any:
        return hkx.LayerNorm(-1, False, False, eps=hkx.get_parameter("eps", [], init=jnp.ones))(x)

    x = np.array([[1.0, 3.0]], np.float32)
    np.testing.assert_allclose(
        jax.jit(hkx.transform(f).apply)({"~": {"eps": 3.0 * jnp.ones([])}}, None, x), [[-0.5, 0.5]]
    )


def test_functions_take_seeds_for_keys() -> None:
    x = jnp.ones([50])
    np.testing.assert_array_equal(hkx.dropout(3, 0.5, x), hkx.dropout(jax.random.PRNGKey(3), 0.5, x))
    np.testing.assert_array_equal(hkx.multinomial(3, x, 9), hkx.multinomial(jax.random.PRNGKey(3), x, 9))
    assert not np.array_equal(hkx.dropout(3, 0.5, x), hkx.dropout(4, 0.5, x))


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


def test_random_keys_are_reshaped():
    keys = jax.random.split(jax.random.key(0), [2, 3, 2])
    assert hkx.transform(lambda: hkx.Flatten()(keys)).apply({}, None).shape == (2, 6)
