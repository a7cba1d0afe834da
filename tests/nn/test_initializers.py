"""Initializers: the values that rare arguments give, and errors that name arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

X = jnp.ones([2, 3])


def made(initializer, shape):
    return lambda: hkx.get_parameter("w", shape, init=initializer())


def value(f):
    model = hkx.transform_with_state(f)
    return model.apply(*model.init(0), 0)[0]


REFUSED = {
    "`scale` must be a positive float, got -1": lambda: hkx.initializers.VarianceScaling(-1),
    "Invalid `mode` argument 'fan': it must be 'fan_in', 'fan_out' or 'fan_avg'": (
        lambda: hkx.initializers.VarianceScaling(mode="fan")
    ),
    r"`fan_in_axes` of VarianceScaling is \[3\], expected axes of the shape \(3, 3, 2\)": (
        made(lambda: hkx.initializers.VarianceScaling(fan_in_axes=[3]), [3, 3, 2])
    ),
    r"Orthogonal initializer requires at least a 2D shape. Got \(3,\)": made(hkx.initializers.Orthogonal, [3]),
    r"`axis` of Orthogonal is 2, expected an axis of the shape \(3, 3\)": (
        made(lambda: hkx.initializers.Orthogonal(axis=2), [3, 3])
    ),
    r"Identity initializer requires at least a 2D shape. Got \(3,\)": made(hkx.initializers.Identity, [3]),
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_argument_that_is_refused(text):
    with pytest.raises((ValueError, TypeError), match=text):
        hkx.transform(REFUSED[text]).init(0)


def test_a_single_number_is_drawn_with_a_fan_of_one():
    drawn = value(made(lambda: hkx.initializers.VarianceScaling(4.0, "fan_avg", "uniform"), ()))
    assert drawn.shape == () and abs(drawn) <= np.sqrt(12)
    other = value(made(lambda: hkx.initializers.VarianceScaling(1.0, "fan_avg", "uniform"), ()))
    np.testing.assert_allclose(drawn, 2 * other, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_normal_distribution_may_have_truncation_points_of_its_own_for_each_element(dtype, compiled):
    def init(lower, upper):
        initializer = hkx.initializers.TruncatedNormal(2.0, 1.0, lower, upper)
        return hkx.transform(lambda: hkx.get_parameter("w", [3, 2], dtype, initializer)).init(0)["~"]["w"]

    size = [2, 3, 2] if dtype == jnp.complex64 else [3, 2]
    lower, upper = np.arange(2.0, dtype=np.float32).reshape([1] * (len(size) - 1) + [2]), 2.0
    w = (jax.jit(init) if compiled else init)(lower, upper)
    unit = jax.random.truncated_normal(jax.random.split(jax.random.PRNGKey(0))[1], lower, upper, size, jnp.float32)
    expected = 2.0 * (unit[0] + 1j * unit[1] if len(size) == 3 else unit) + 1.0
    np.testing.assert_allclose(w, expected, rtol=1e-6)


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


def test_what_is_not_a_mode_or_a_number_is_named():
    with pytest.raises(ValueError, match="Invalid `mode` argument array"):
        hkx.initializers.VarianceScaling(mode=np.array([1, 2]))
    with pytest.raises(hkx.errors.NotANumberError, match="`scale`"):
        hkx.initializers.VarianceScaling(1j)
