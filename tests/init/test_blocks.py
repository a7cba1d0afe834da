"""The shape-only init: bit for bit the values of an ordinary run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import same_bits, same_but_for_rounding

import hkx
from hkx.base.draws import Draw, sample
from hkx.init import blocks, threefry
from hkx.init.create import run_initialising

SHAPES = [(), (3, 5), (4097,), (0, 4)]
INITIALIZERS = {
    "normal": hkx.initializers.RandomNormal(0.3),
    "normal with mean": hkx.initializers.RandomNormal(0.3, 1.5),
    "truncated": hkx.initializers.TruncatedNormal(0.7),
    "truncated at": hkx.initializers.TruncatedNormal(0.7, -0.2, -1.0, 3.0),
    "truncated one side": hkx.initializers.TruncatedNormal(1.0, 0.0, 0.5, 2.5),
    "uniform": hkx.initializers.RandomUniform(-0.3, 0.9),
    "variance": hkx.initializers.VarianceScaling(2.0, "fan_avg", "uniform"),
    "variance normal": hkx.initializers.VarianceScaling(2.0, "fan_out", "normal"),
    "constant": hkx.initializers.Constant(0.25),
    "array scale": hkx.initializers.RandomNormal(np.float32(0.5)),
    "own": lambda shape, dtype: 3 * jax.random.normal(hkx.next_rng_key(), shape, dtype) + 1,
    "own on top": lambda shape, dtype: 2 * hkx.initializers.TruncatedNormal()(shape, dtype) - 1,
    "zeros": jnp.zeros,
    "numpy": np.ones,
    "full": lambda shape, dtype: jnp.full(shape, 7, dtype),
}


FEW = {k: INITIALIZERS[k] for k in ("normal", "own", "truncated")}


def everything(shapes=SHAPES, dtype=jnp.float32, kinds=INITIALIZERS):
    for kind, init in kinds.items():
        for shape in shapes:
            if kind.startswith("variance") and len(shape) < 2:
                continue
            hkx.get_parameter(f"{kind} {shape}", shape, dtype, init=init)


@pytest.mark.parametrize(
    ("key", "shapes"),
    [(jax.random.PRNGKey(3), [(3, 5)]), pytest.param(jax.random.key(3), SHAPES, marks=pytest.mark.slow)],
    ids=["raw", "typed"],
)
def test_same_bits_as_the_ordinary_run(key, shapes):
    params = hkx.transform(everything).init(key, shapes)
    same_bits(params, run_initialising(everything, key, (shapes,))[0])


@pytest.mark.slow
def test_same_bits_around_the_block_size_and_over_many_calls():
    shapes = [
        (1,),
        (511,),
        (512,),
        (513,),
        (4095,),
        (64, 64),
        (3, 3, 7, 11),
        (300, 123),
        (1500, 1100),
        (threefry.BLOCK * blocks.BLOCKS_PER_CALL,),
        (threefry.BLOCK * (blocks.BLOCKS_PER_CALL + 1) + 1,),
    ]

    def f():
        everything(shapes, kinds={k: INITIALIZERS[k] for k in ("normal", "truncated at", "uniform")})

    same_bits(hkx.transform(f).init(0), run_initialising(f, jax.random.PRNGKey(0))[0])


def test_parts_of_arrays_that_begin_and_end_within_calls(monkeypatch):
    """Parts of one block and of several, whole and not, of which a call fills eight."""
    monkeypatch.setattr(blocks, "BLOCKS_PER_CALL", 8)
    sizes = [(700, 5), (3, 9), (4600, 2)]  # of 2, 1 and 9 blocks
    kinds = [("normal", -np.inf, np.inf, 0.3), ("uniform", -1.0, 2.0, 1.0), ("truncated_normal", -2.0, 2.0, 0.3)]
    draws = [
        Draw(kind, (size,), np.float32, low, high, scale)
        for (size, _), (kind, low, high, scale) in zip(sizes, kinds, strict=True)
    ]
    counts = [count for _, count in sizes]
    keys = jax.random.split(jax.random.PRNGKey(7), sum(counts))
    arrays = blocks.sample_all(draws, [(count,) for count in counts], np.asarray(keys), None)
    firsts = np.cumsum([0, *counts])
    for draw, array, first, count in zip(draws, arrays, firsts, counts, strict=False):
        same_bits(list(array), [sample(draw, key) for key in keys[first : first + count]])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_same_bits_in_half_precision(dtype):
    def f():
        everything([(3, 5)], dtype)

    same_bits(hkx.transform(f).init(1), run_initialising(f, jax.random.PRNGKey(1))[0])


@pytest.mark.slow
def test_same_bits_in_double_precision():
    def f():
        everything([(3, 5)], jnp.float64)

    with jax.enable_x64(True):
        params = hkx.transform(f).init(1)
        same_bits(params, run_initialising(f, jax.random.PRNGKey(1))[0])
    assert params["~"]["normal (3, 5)"].dtype == np.float64


@pytest.mark.parametrize("impl", ["rbg"])
def test_other_key_implementations(impl):
    key = jax.random.key(0, impl=impl)

    def f():
        everything([(3, 5)], kinds=FEW)

    same_bits(hkx.transform(f).init(key), run_initialising(f, key)[0])


def test_unpartitionable_threefry():
    def f():
        everything([(3, 5)], kinds=FEW)

    with jax.threefry_partitionable(False):
        same_bits(hkx.transform(f).init(0), run_initialising(f, jax.random.PRNGKey(0))[0])


def test_reserve_size_changes_keys_alike():
    def f():
        everything([(3, 5)], kinds=FEW)

    with hkx.config.context(rng_reserve_size=3):
        same_bits(hkx.transform(f).init(0), run_initialising(f, jax.random.PRNGKey(0))[0])


@pytest.mark.parametrize(
    "shape", [(300, 40), *(pytest.param(s, marks=pytest.mark.slow) for s in ((3, 5, 7, 300), (20000,)))]
)
@pytest.mark.parametrize(
    "initializer",
    [
        hkx.initializers.TruncatedNormal(0.37),
        hkx.initializers.RandomNormal(),
        hkx.initializers.VarianceScaling(2.0, "fan_out", "uniform"),
    ],
    ids=["cut", "normal", "variance"],
)
def test_large_arrays_in_a_program_have_the_bits_of_small_ones_outside(initializer, shape):
    """In a program the largest array is computed by itself, the others together; outside, all in blocks.

    Where a sum follows the draw (a mean, bounds that are not symmetric), XLA rounds both at once in a program.
    """

    def f():
        return [hkx.get_parameter(f"w{i}", s, init=initializer) for i, s in enumerate([(4, 4), shape, (7, 3)])]

    model = hkx.transform(f)
    same_but_for_rounding(jax.jit(model.init)(jax.random.key(3)), model.init(jax.random.key(3)))


def test_arrays_of_one_shape_are_one_piece_of_code_in_a_program():
    """Though their keys and scales differ: what XLA compiles for one of them serves the others."""

    def f():
        return [hkx.get_parameter(f"w{i}", (8, 128), init=hkx.initializers.RandomNormal(1.0 + i)) for i in range(6)]

    program = jax.jit(hkx.transform(f).init).lower(jax.random.key(3))
    assert program.as_text().count("func private @sample_alone") == 1
    assert program.as_text().count("call @sample_alone") >= 3  # on one device the others are filled together


@pytest.mark.parametrize("kind", ["normal", "truncated", "uniform"])
def test_a_model_of_numbers_in_a_program(kind):
    """The largest array is a number: it is computed by itself, and has no axis."""
    init = {
        "normal": (hkx.initializers.RandomNormal(), jax.random.normal),
        "truncated": (hkx.initializers.TruncatedNormal(), lambda key: jax.random.truncated_normal(key, -2.0, 2.0)),
        "uniform": (hkx.initializers.RandomUniform(), jax.random.uniform),
    }
    initializer, draw = init[kind]
    model = hkx.transform(lambda: [hkx.get_parameter(n, [], init=initializer) for n in "ab"])
    key = jax.random.PRNGKey(5)
    keys = [jax.random.split(key)[1], jax.random.split(jax.random.split(key)[0])[1]]
    params = jax.jit(model.init)(key)["~"]
    np.testing.assert_allclose([params["a"], params["b"]], [draw(k) for k in keys], rtol=1e-6)
    assert jax.vmap(model.init)(jax.random.split(key, 3))["~"]["a"].shape == (3,)


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        jax.random.key(3),
        jax.random.PRNGKey(4),
        jax.device_put(jax.random.key(5), jax.devices()[-1]),
    ],
)
def test_as_on_an_accelerator_the_bits_and_places_are_the_same(monkeypatch, key):
    """Arrays larger than what is filled at once, those that fill it, and small ones, of one key and of several."""
    cut, wide = hkx.initializers.TruncatedNormal(0.37, 1.5), hkx.initializers.RandomUniform(-2, 5)

    def f():
        for i, shape in enumerate([(90, 100), (16, 512), (3, 300), (), (0, 4), (2500,), (5, 7, 70)]):
            hkx.get_parameter(f"cut_{i}", shape, init=cut)
            hkx.get_parameter(f"uniform_{i}", shape, init=wide)
        hkx.get_parameter("zeros", [300, 300], init=jnp.zeros)
        for n in (3, 20):  # within one call, and more than it holds
            hkx.layer_stack(n)(lambda x: x + hkx.get_parameter("w", [2], init=cut))(jnp.zeros(2))

    expected = hkx.transform(f).init(key)
    monkeypatch.setattr(blocks, "is_on_cpu", lambda key: False)
    monkeypatch.setattr(blocks, "BLOCKS_ON_ACCELERATOR", 16)
    found = hkx.transform(f).init(key)
    same_bits(found, expected)
    assert jax.tree.map(lambda x: (x.sharding, x.committed), found) == jax.tree.map(
        lambda x: (x.sharding, x.committed), expected
    )


def test_init_for_an_export_draws_parameters_whose_size_has_a_name():
    def f(x):
        hkx.get_parameter("w", [x.shape[0]], init=INITIALIZERS["normal"])

    (size,) = jax.export.symbolic_shape("size")
    made = jax.eval_shape(hkx.transform(f).init, jax.random.PRNGKey(3), jax.ShapeDtypeStruct([size], jnp.float32))
    assert made["~"]["w"].shape == (size,)
