"""Meshes whose axes are in the types of arrays: explicit ones, and those of `jax.shard_map`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P
from jax.sharding import AxisType

import hkx

pytestmark = [pytest.mark.unoptimised, pytest.mark.eight_devices]

KEY = jax.random.key(0)


def explicit_mesh():
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)


def image(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def noting_types(noted):
    def f(x):
        w = hkx.get_parameter("w", [3, 2], init=hkx.initializers.RandomNormal())
        b = hkx.get_parameter("b", [2], init=jnp.zeros)
        mean = hkx.get_state("mean", [2], init=lambda *_: (x @ w).mean(0))
        noted[:] = map(jax.typeof, (w, b, mean, x, hkx.next_rng_key()))
        return x @ w + b[None]

    return f


@pytest.mark.parametrize("types", [AxisType.Explicit, pytest.param(AxisType.Auto, marks=pytest.mark.slow)])
def test_init_sees_the_types_of_an_ordinary_run(types):
    noted = []
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(types,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(np.ones([8, 3], np.float32), jax.NamedSharding(mesh, P("data")))
        runs = []
        for way in ("eager", "traced"):
            model = hkx.transform_with_state(noting_types(noted), init=way)
            for init in (model.init, jax.jit(model.init)):
                made = init(KEY, x)
                assert all(jax.typeof(a).sharding.mesh.axis_names == mesh.axis_names for a in jax.tree.leaves(made))
                runs.append((list(noted), jax.tree.map(np.asarray, made)))
    for noted, made in runs[1:]:
        assert noted == runs[0][0]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), made, runs[0][1])
    assert all(aval.sharding.mesh.axis_names == ("data", "model") for aval in runs[0][0])


def test_a_shape_in_init_keeps_its_type():
    noted = []
    model = hkx.transform(lambda x: noted.append(jax.typeof(x)))
    mesh = explicit_mesh()
    with jax.set_mesh(mesh):
        for spec in (P("data", None), P(None, "model")):
            shape = jax.ShapeDtypeStruct((8, 4), np.float32, sharding=jax.NamedSharding(mesh, spec))
            model.init(KEY, shape)
            assert noted.pop().sharding.spec == spec
    model.init(KEY, jax.ShapeDtypeStruct((), np.float32, weak_type=True))
    assert noted.pop().weak_type


@pytest.mark.parametrize("way", ["traced", pytest.param("eager", marks=pytest.mark.slow)])
def test_parameters_from_keys_of_each_device_vary(way):
    """Otherwise a loop whose carry begins with one would have to begin to vary inside the loop."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))

    def f(x):
        w = hkx.get_parameter("w", [4], init=hkx.initializers.RandomNormal())
        hkx.get_state("mean", [], init=lambda *_: (x * w).mean())
        return jax.lax.scan(lambda c, _: (c * x, None), w, None, length=3)[0]

    model = hkx.transform_with_state(f, init=way)

    def on_each(keys, x):
        params, state = model.init(keys[0], x[0])
        return jax.tree.map(lambda a: a[None], (params, state, model.apply(params, state, None, x[0])[0]))

    keys, x = jax.random.split(KEY, 8), image(8, 4)
    params, state, out = jax.jit(jax.shard_map(on_each, mesh=mesh, in_specs=P("data"), out_specs=P("data")))(keys, x)
    w = np.asarray(params["~"]["w"])
    np.testing.assert_array_equal(w, [model.init(k, x[0])[0]["~"]["w"] for k in keys])
    np.testing.assert_allclose(state["~"]["mean"], (x * w).mean(1), rtol=1e-5)
    np.testing.assert_allclose(out, w * x**3, rtol=1e-5)


def test_stacked_parameters_that_depend_on_others_vary_as_they_do():
    def layer(x):
        w = hkx.get_parameter("w", [3], init=hkx.initializers.RandomNormal())
        return x * hkx.get_parameter("v", [3], init=lambda *_: 2 * w + 1)

    model = hkx.transform(lambda x: hkx.layer_stack(2)(layer)(x))
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))

    def on_each(keys, x):
        return jax.tree.map(lambda w: w[None], model.init(keys[0], x[0]))

    keys, x = jax.random.split(KEY, 8), image(8, 3)
    params = jax.jit(jax.shard_map(on_each, mesh=mesh, in_specs=P("data"), out_specs=P("data")))(keys, x)
    for i, key in enumerate(keys):
        expected = model.init(key, x[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-5), params, expected)


def unrolled(unroll, core, sequence):
    return unroll(core, sequence, core.initial_state(8), time_major=False)[0]


def time_first(f, x):
    return jnp.swapaxes(f(jnp.swapaxes(x, 0, 1)), 0, 1)


def decoded(layer, x):
    first, cache = layer(x[:, :2], cache=layer.initial_cache(8, 4))
    return jnp.concatenate([first, layer(x[:, 2:], cache=cache)[0]], axis=1)


LAYERS = {
    "embed": (lambda i: hkx.Embed(16, 8)(i), np.random.default_rng(0).integers(0, 16, [8, 3])),
    "reshape": (lambda x: hkx.Reshape([2, -1], preserve_dims=2)(x), image(8, 3, 4, 5)),
    "transposed": (lambda x: hkx.Conv2DTranspose(3, 2, 3, padding="VALID")(x), image(8, 5, 4, 2)),
    "quantizer": (lambda x: hkx.nets.VectorQuantizer(4, 6, 0.25)(x, True)["quantize"], image(8, 3, 4)),
    "quantizer_ema": (lambda x: hkx.nets.VectorQuantizerEMA(4, 6, 0.25, 0.9)(x, True)["quantize"], image(8, 4)),
    "dynamic_unroll": (lambda x: unrolled(hkx.dynamic_unroll, hkx.LSTM(4), x), image(8, 3, 2)),
    "static_unroll": (lambda x: unrolled(hkx.static_unroll, hkx.LSTM(4), x), image(8, 3, 2)),
    "bidirectional": (lambda x: hkx.Bidirectional(hkx.LSTM(4), hkx.GRU(4))(x, time_major=False)[0], image(8, 3, 2)),
    "resets": (
        lambda x: unrolled(hkx.dynamic_unroll, hkx.ResetCore(hkx.LSTM(4)), (x, x[..., 0] > 0)),
        image(8, 3, 2),
    ),
    "batch_apply": (lambda x: time_first(hkx.BatchApply(hkx.Conv1D(3, 2)), x), image(8, 3, 4, 2)),
    "cache": (lambda x: decoded(hkx.GroupedQueryAttention(4, 2, 4), x), image(8, 3, 4)),
    "keys": (lambda x: hkx.vmap(lambda x: x + hkx.Linear(2)(x), split_rng=True)(x), image(8, 2)),
}

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in LAYERS if name != "embed"]


@pytest.mark.parametrize("name", ["embed", *SLOW])
def test_a_batch_may_be_divided_along_explicit_axes(name):
    """`init`, the result, the state and the gradient are those of a batch on one device."""
    call, x = LAYERS[name]
    model = hkx.transform_with_state(call)

    def everything(params, state, x):
        def loss(params):
            out, after = model.apply(params, state, None, x)
            return jnp.sin(out).sum(), (out, after)

        return jax.grad(loss, has_aux=True)(params)

    with jax.set_mesh(jax.make_mesh((1,), ("data",))):
        x_whole = jax.device_put(x, P("data"))
        single = model.init(KEY, x_whole)
        expected = jax.tree.map(np.asarray, (single, everything(*single, x_whole)))
    with jax.set_mesh(explicit_mesh()):
        divided = jax.device_put(x, P("data"))
        made = model.init(KEY, divided)
        gradient, (out, after) = jax.jit(everything)(*made, divided)
        assert jax.typeof(out).sharding.spec[0] == "data"
    got = jax.tree.map(np.asarray, (made, (gradient, (out, after))))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, expected)


def test_rows_of_a_table_for_each_of_a_divided_batch():
    model = hkx.without_apply_rng(hkx.transform(LAYERS["embed"][0]))
    ids = LAYERS["embed"][1]
    params = model.init(KEY, ids[0])
    with jax.set_mesh(explicit_mesh()):
        table = jax.device_put(params, P(None, "model"))
        out = jax.vmap(model.apply, (None, 0))(table, jax.device_put(ids, P("data")))
        assert jax.typeof(out).sharding.spec == P("data", None, "model")
    np.testing.assert_array_equal(out, np.asarray(params["embed"]["embeddings"])[ids])


@pytest.mark.parametrize("style", ["ARRAY_INDEX", "ONE_HOT"])
@pytest.mark.parametrize(
    "features,batch,expected",
    [
        (("data", "model"), P("data"), P("data", None, "model")),
        ("model", P(("data", "model")), P(("data", "model"), None, None)),
    ],
)
def test_a_table_divided_along_features_by_the_axis_of_the_batch(style, features, batch, expected):
    model = hkx.without_apply_rng(hkx.transform(lambda ids: hkx.Embed(16, 8, lookup_style=style)(ids)))
    ids = np.random.default_rng(0).integers(0, 16, [8, 3])
    table = image(16, 8)
    with jax.set_mesh(explicit_mesh()):
        params = {"embed": {"embeddings": jax.device_put(table, P(None, features))}}
        loss = lambda params, ids: jnp.sum(model.apply(params, ids) ** 2) / 2  # noqa: E731
        out = model.apply(params, jax.device_put(ids, batch))
        gradient = jax.jit(jax.grad(loss))(params, jax.device_put(ids, batch))["embed"]["embeddings"]
        assert jax.typeof(out).sharding.spec == expected and gradient.sharding.spec == P(None, features)
    np.testing.assert_array_equal(out, table[ids])
    np.testing.assert_allclose(gradient, np.bincount(ids.ravel(), minlength=16)[:, None] * table, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("types", [(AxisType.Explicit,) * 2, (AxisType.Explicit, AxisType.Auto)])
def test_a_shard_map_along_some_of_the_axes(types):
    """The parts of a batch, each of which makes its own parameters, are those of a loop."""

    def f(x):
        h = hkx.Conv1D(4, 3)(x)
        h = hkx.dynamic_unroll(hkx.LSTM(4), h, hkx.LSTM(4).initial_state(x.shape[0]), time_major=False)[0]
        return hkx.Linear(3)(h + hkx.Embed(8, 4)(jnp.argmax(x, -1)))

    model = hkx.without_apply_rng(hkx.transform(f))

    def each(keys, x):
        params = model.init(keys[0], x)
        gradient = jax.grad(lambda x: jnp.sin(model.apply(params, x)).sum())(x)
        return jax.tree.map(lambda a: a[None], (params, gradient, model.apply(params, x)))

    keys, x = jax.random.split(KEY, 4), image(8, 5, 4)
    expected = [each(keys[i : i + 1], x[2 * i : 2 * i + 2]) for i in range(4)]
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=types)
    with jax.set_mesh(mesh):
        mapped = jax.shard_map(each, in_specs=P("data"), out_specs=P("data"), axis_names={"data"})
        got = jax.jit(mapped)(*jax.device_put((keys, x), P("data")))
    for value, *parts in zip(*map(jax.tree.leaves, (got, *expected)), strict=True):
        np.testing.assert_allclose(value, np.concatenate(parts), rtol=1e-4, atol=1e-5)


def test_a_compiled_init_makes_some_parameters_for_each_of_a_divided_batch():
    def member(row):
        names = ("v", "u")
        return sum(hkx.get_parameter(name, [3], init=hkx.initializers.RandomNormal()) for name in names) + row

    def f(x):
        hkx.get_parameter("w", [3], init=hkx.initializers.RandomNormal())
        return hkx.vmap(member, split_rng=True, param_axes=0)(x)

    mesh = explicit_mesh()
    with jax.set_mesh(mesh):
        x = jax.device_put(np.ones([8, 3], np.float32), P("data"))
        made = jax.eval_shape(hkx.transform(f).init, KEY, x)["~"]
    assert {name: tuple(a.sharding.spec) for name, a in made.items()} == {
        "w": (None,),
        "v": ("data", None),
        "u": ("data", None),
    }
