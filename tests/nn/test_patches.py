"""Convolutions as products of patches: values and gradients equal those of XLA's convolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

SETTINGS = {
    "plain": ((2, 7, 6, 4), {"kernel_shape": 3}),
    "strides": ((2, 9, 8, 4), {"kernel_shape": (4, 3), "stride": (3, 2), "padding": "VALID"}),
    "rate": ((2, 9, 8, 4), {"kernel_shape": (3, 2), "rate": (2, 3)}),
    "lower": ((2, 7, 6, 4), {"kernel_shape": (4, 2), "stride": 2, "padding": "SAME_LOWER"}),
    "pairs": ((2, 7, 6, 4), {"kernel_shape": 3, "stride": (1, 2), "padding": [(2, 0), (-1, 4)]}),
    "function": ((2, 7, 6, 4), {"kernel_shape": 3, "padding": hkx.pad.causal}),
    "groups": ((2, 7, 6, 4), {"kernel_shape": 3, "stride": 2, "feature_group_count": 2}),
    "first": ((2, 4, 7, 6), {"kernel_shape": 3, "data_format": "NCHW", "feature_group_count": 2}),
    "unbatched": ((7, 6, 4), {"kernel_shape": 2, "with_bias": False}),
    "mask": ((2, 7, 6, 4), {"kernel_shape": 1, "mask": np.tril(np.ones([4, 6]))[None, None]}),
    "empty": ((2, 3, 2, 4), {"kernel_shape": 3, "rate": 2, "padding": "VALID"}),
    "1d": ((2, 9, 4), {"kernel_shape": 4, "stride": 3}),
    "3d": ((1, 4, 5, 3, 4), {"kernel_shape": (2, 3, 1), "stride": (1, 2, 2)}),
}


DEFAULT = ("pairs", "groups")


@pytest.mark.parametrize("setting", [pytest.param(x, marks=[] if x in DEFAULT else pytest.mark.slow) for x in SETTINGS])
def test_equal_to_xla(setting):
    shape, settings = SETTINGS[setting]
    layer = hkx.Conv2D if setting == "unbatched" else {3: hkx.Conv1D, 4: hkx.Conv2D, 5: hkx.Conv3D}[len(shape)]
    x = np.random.default_rng(len(setting)).normal(size=shape).astype(np.float32)

    def transformed(implementation):
        return hkx.transform(lambda x: layer(6, implementation=implementation, **settings)(x))

    params = transformed("xla").init(0, x)

    def result(implementation):
        model = transformed(implementation)

        def loss(params, x):
            y = model.apply(params, None, x)
            return jnp.sum(jnp.sin(y)), y

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(params, x)

    (_, y), gradients = result("xla")
    (_, dot), dot_gradients = result("dot")
    assert dot.shape == y.shape
    np.testing.assert_allclose(dot, y, rtol=1e-5, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4), dot_gradients, gradients)


def test_another_implementation_is_refused():
    with pytest.raises(ValueError, match="`implementation` of `Conv2D` must be 'xla' or 'dot', got 'fft'"):
        hkx.transform(lambda: hkx.Conv2D(3, 3, implementation="fft")).init(0)
