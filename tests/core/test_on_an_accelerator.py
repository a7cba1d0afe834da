"""What only a GPU or TPU can show: nothing passes through the host, and its own kernels compute the same."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import same_bits
from jax.sharding import AxisType, PartitionSpec

import hkx
from hkx.init.blocks import BLOCKS_ON_ACCELERATOR

pytestmark = pytest.mark.skipif(jax.default_backend() == "cpu", reason="needs a GPU or TPU")


def forward(x):
    x = hkx.Conv2D(8, 3, w_init=hkx.initializers.VarianceScaling(2.0))(x)
    x = hkx.BatchNorm(True, True, 0.9)(x, is_training=True)
    return hkx.nets.MLP([4096, 1100, 8], w_init=hkx.initializers.TruncatedNormal(0.1))(x.mean((1, 2)))


@pytest.fixture
def model():
    return hkx.transform_with_state(forward)


@pytest.fixture
def arguments():
    return jax.random.key(0), jnp.ones([2, 8, 8, 3])


def on_cpu(function, *arguments):
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        return function(*jax.device_put(arguments, cpu))


def test_initial_values_are_those_of_a_cpu(model, arguments):
    """To rounding: the bits are the same, logarithm and error function differ in the last place."""
    found, expected = model.init(*arguments), on_cpu(model.init, *arguments)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert {d.platform for d in one.devices()} == {jax.default_backend()}
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["as it is", "under jit", "into shards"])
def test_no_value_passes_through_the_host(model, arguments, how, capfd):
    """In `init` the device is told keys, bounds and where arrays begin, and the host sees keys; in `apply`, nothing."""
    init = model.init
    if how == "under jit":
        init = jax.jit(init)
    if how == "into shards":
        mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
        shapes = jax.eval_shape(init, *arguments)
        tree = hkx.sharding.shardings(shapes, mesh, [(".*/w", PartitionSpec("data"))])
        init = hkx.sharding.sharded_init(init, tree)
    with jax.transfer_guard_host_to_device("log_explicit"), jax.transfer_guard_device_to_host("log_explicit"):
        params, state = jax.block_until_ready(init(*arguments))
    said = re.findall(r"(?:shape=\(|\w\[)([\d,]*\d)", capfd.readouterr().err)
    moved = [math.prod(map(int, shape.split(","))) for shape in said]
    assert moved or how != "as it is"
    assert max(moved, default=0) <= 2 * BLOCKS_ON_ACCELERATOR < sum(leaf.size for leaf in jax.tree.leaves(params)) / 100
    with jax.transfer_guard_device_to_host("disallow"):
        out, _ = model.apply(params, state, None, arguments[1])
        jax.block_until_ready(jax.jit(model.apply)(params, state, None, arguments[1]))
    assert out.shape == (2, 8)


def test_large_and_small_arrays_have_the_bits_of_jax_random():
    """Those larger than what is filled at once, those that fill it, and small ones, of one key and of several."""
    shapes = [(2100, 2000), (2048, 2048), (3, 300), (), (0, 4), (70_000,)]
    cut, wide = hkx.initializers.TruncatedNormal(0.37), hkx.initializers.RandomUniform(-2, 5)

    def f():
        for i, shape in enumerate(shapes):
            hkx.get_parameter(f"cut_{i}", shape, init=cut)
            hkx.get_parameter(f"uniform_{i}", shape, init=wide)
        hkx.layer_stack(3)(lambda x: x + hkx.get_parameter("w", [2], init=cut))(jnp.zeros(2))

    same_bits(hkx.transform(f).init(jax.random.key(3)), hkx.transform(f, init="eager").init(jax.random.key(3)))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_fused_kernel_computes_attention(kv_heads):
    """Forward and gradient in bfloat16, beside the plain computation in float32."""

    def model(implementation, dtype):
        def attend(x):
            attention = hkx.GroupedQueryAttention(4, kv_heads, 64, implementation=implementation)
            return attention(x.astype(dtype), is_causal=True).astype(jnp.float32)

        return hkx.without_apply_rng(hkx.transform(attend))

    x = jax.random.normal(jax.random.key(1), [2, 128, 256])
    params = model("xla", jnp.float32).init(jax.random.key(0), x)

    def both(implementation, dtype):
        apply = model(implementation, dtype).apply
        cast = jax.tree.map(lambda p: p.astype(dtype), params)
        slope = jax.jit(jax.grad(lambda p, x: (apply(p, x) ** 2).mean()))
        return jax.tree.leaves((jax.jit(apply)(cast, x), slope(cast, x)))

    for fused, plain in zip(both("cudnn", jnp.bfloat16), both("xla", jnp.float32), strict=True):
        error = jnp.linalg.norm(fused.astype(jnp.float32) - plain) / jnp.linalg.norm(plain)
        assert error < 0.05, error  # bfloat16 rounds to 0.004, several times in a row; 0.021 for "xla" beside itself
