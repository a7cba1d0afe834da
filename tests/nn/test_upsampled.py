"""The transposed convolution's own derivative is that of the convolution with a spread out input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised


def spread_out(x, w, stride, pads, layout):
    return jax.lax.conv_general_dilated(x, w, (1,) * len(stride), pads, lhs_dilation=stride, dimension_numbers=layout)


def compare(module, spatial, channels_last=True):
    """Values and derivatives of all kinds, with those of JAX's own operation."""
    random = np.random.default_rng(0)
    x = random.normal(size=(2, *spatial, 3) if channels_last else (2, 3, *spatial)).astype(np.float32)
    seen = {}

    def f(x):
        layer = module()
        seen["layer"] = layer
        seen["pads"] = layer._pads([x.shape[d] for d in layer.dimension_numbers.lhs_spec[2:]])
        return layer(x)

    model = hkx.without_apply_rng(hkx.transform(f))
    w = model.init(0, x)["layer"]["w"]
    layer, pads = seen["layer"], seen["pads"]

    def ours(x, w):
        return model.apply({"layer": {"w": w}}, x)

    def theirs(x, w):
        return spread_out(x, w, layer.stride, pads, layer.dimension_numbers)

    tangents = jax.tree.map(lambda a: random.normal(size=a.shape).astype(np.float32), (x, w))
    cotangent = random.normal(size=theirs(x, w).shape).astype(np.float32)
    for derive in (
        lambda f: f(x, w),
        lambda f: jax.jvp(f, (x, w), tangents)[1],
        lambda f: jax.jvp(lambda w: f(x, w), (w,), tangents[1:])[1],
        lambda f: jax.vjp(f, x, w)[1](cotangent),
    ):
        for a, b in zip(jax.tree.leaves(derive(ours)), jax.tree.leaves(derive(theirs)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)  # sums of products in another order
    return ours, theirs, x, w


LINES = [
    pytest.param(*sizes, p, marks=[] if (sizes, p) in (((2, 3), "VALID"), ((3, 2), "SAME")) else pytest.mark.slow)
    for sizes in ((1, 3), (2, 3), (3, 1), (3, 2), (5, 2))
    for p in ("SAME", "VALID")
]


@pytest.mark.parametrize(("kernel", "stride", "padding"), LINES)
def test_one_dimension(kernel, stride, padding):
    compare(lambda: hkx.Conv1DTranspose(4, kernel, stride, padding=padding, with_bias=False, name="layer"), spatial=[5])


@pytest.mark.parametrize("channels_last", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_two_dimensions(channels_last):
    compare(
        lambda: hkx.Conv2DTranspose(
            4, (4, 3), (2, 3), with_bias=False, data_format="NHWC" if channels_last else "NCHW", name="layer"
        ),
        [3, 5],
        channels_last,
    )


@pytest.mark.slow
def test_an_output_shape_and_given_pads():
    compare(lambda: hkx.Conv1DTranspose(2, 3, 2, output_shape=9, with_bias=False, name="layer"), [5])
    compare(lambda: hkx.Conv1DTranspose(2, 3, 2, padding=[(4, 1)], with_bias=False, name="layer"), [5])
    compare(lambda: hkx.Conv1DTranspose(2, 4, 3, padding=[(0, 0)], with_bias=False, name="layer"), [5])


@pytest.mark.slow
def test_second_derivatives_and_vmap():
    ours, theirs, x, w = compare(lambda: hkx.Conv1DTranspose(2, 3, 2, with_bias=False, name="layer"), [4])

    def curvature(f):
        return jax.grad(lambda w: jnp.sum(jax.grad(lambda x, w: jnp.sum(f(x, w) ** 3))(x, w) ** 2))(w)

    np.testing.assert_allclose(curvature(ours), curvature(theirs), rtol=1e-3, atol=1e-2)
    many = jax.vmap(jax.grad(lambda w: jnp.sum(ours(x, w) ** 2)))(jnp.stack([w, 2 * w]))
    expected = jax.vmap(jax.grad(lambda w: jnp.sum(theirs(x, w) ** 2)))(jnp.stack([w, 2 * w]))
    np.testing.assert_allclose(many, expected, rtol=1e-4, atol=1e-3)
