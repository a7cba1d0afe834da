"""What depends on nothing traced is computed at once during `init`: caches of constants, and NumPy arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx as hk

pytestmark = pytest.mark.unoptimised

X = jnp.ones(2)


def in_a_cache():
    table = functools.lru_cache(lambda: jnp.arange(2.0) + 1)
    return table, table


def in_a_dict():
    tables = {}

    def table():
        if "table" not in tables:
            tables["table"] = jnp.arange(2.0) + 1
        return tables["table"]

    return table, lambda: tables["table"]


AROUND = {
    "nothing": lambda f, x: f(x),
    "scan": lambda f, x: hk.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
    "fori_loop": lambda f, x: hk.fori_loop(0, 2, lambda i, x: f(x), x),
    "cond": lambda f, x: hk.cond(x.sum() > 0, f, lambda x: -f(x), x),
    "remat": lambda f, x: hk.remat(f)(x),
    "grad": lambda f, x: hk.grad(lambda x: f(x).sum())(x),
    "vmap": lambda f, x: hk.vmap(f, split_rng=False)(x[None])[0],
    "layer_stack": lambda f, x: hk.layer_stack(2)(f)(x),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("cache", [in_a_cache, in_a_dict])
def test_a_constant_that_a_program_computes_once_is_a_real_array(cache, around):
    table, held = cache()
    runs = []

    def f(x):
        runs.append(1)
        return AROUND[around](lambda x: hk.Linear(2, w_init=jnp.ones)(x) * table(), x)

    model = hk.transform(f)
    params = model.init(0, X)
    assert runs == [1] and not isinstance(held(), jax.core.Tracer)
    np.testing.assert_array_equal(held(), [1, 2])
    np.testing.assert_array_equal(model.apply(params, None, X), model.apply(params, None, X))


def test_a_generator_of_constants():
    def endless():
        table = jnp.arange(2.0)
        while True:
            yield table

    tables = endless()
    model = hk.transform(lambda x: hk.Linear(2)(x) + next(tables))
    params = model.init(0, X)
    expected = X @ params["linear"]["w"] + np.arange(2)
    np.testing.assert_allclose(model.apply(params, None, X), expected, rtol=1e-6)


def test_code_that_asks_for_the_value_of_a_constant_runs_once():
    runs = []

    def f(x):
        runs.append(1)
        mask = jnp.tril(jnp.ones([2, 2]))
        return hk.Linear(2)(x) if mask.any() else x

    assert "linear" in hk.transform(f).init(0, X) and runs == [1]


def test_a_buffer_that_is_filled_again_between_two_constants():
    buffer, seen = np.zeros(2, np.float32), []

    def f(x):
        for i in range(2):
            buffer[:] = i
            seen.append(jnp.asarray(buffer) * 2)
        return x + sum(seen[-2:])

    hk.transform(f).init(0, X)
    np.testing.assert_array_equal(seen, [[0, 0], [2, 2]])


def test_constant_parameters_stay_abstract():
    """The activations would take 400 GB."""

    def f(x):
        y = jnp.repeat(hk.Linear(100, w_init=jnp.ones)(x), 10**6, axis=0)
        return hk.Linear(1, w_init=hk.initializers.Constant(2.0))(y)

    params = hk.transform(f).init(0, np.ones([1000, 3], np.float32))
    assert params["linear"]["w"].sum() == 300 and params["linear_1"]["w"].sum() == 200


def test_buffers_that_initializers_read():
    buffer = np.zeros(2, np.float32)

    def f():
        for i in (1, 2):
            buffer[:] = i
            hk.get_parameter(f"as_it_is_{i}", [2], init=lambda *_: jnp.array(buffer))
            hk.get_parameter(f"times_{i}", [2], init=lambda *_: 10 * jnp.array(buffer))
            hk.get_parameter(f"constant_{i}", [2], init=hk.initializers.Constant(buffer))

    made = hk.transform(f).init(0)["~"]
    for name, value in made.items():
        number = float(name[-1]) * (10 if name.startswith("times") else 1)
        np.testing.assert_array_equal(value, [number, number], name)


@pytest.mark.parametrize("init", ["traced", "eager"])
def test_buffers_that_jax_would_refer_to_the_memory_of(init):
    """`jnp.asarray` copies no array that lies at a multiple of 64 bytes, on a CPU (JAX 0.10.0)."""
    memory = np.zeros(64, np.float32)
    buffer = memory[-memory.ctypes.data // 4 % 16 :][:16].reshape(4, 4)

    def f():
        for i in (1, 2):
            buffer[:] = i
            hk.get_parameter(f"constant_{i}", [4, 4], init=hk.initializers.Constant(buffer))
            hk.Embed(embedding_matrix=buffer, name=f"embed_{i}")(jnp.arange(2))

    made = hk.transform(f, init=init).init(0)
    buffer[:] = 7
    for i in (1, 2):
        np.testing.assert_array_equal(made["~"][f"constant_{i}"], np.full([4, 4], i))
        np.testing.assert_array_equal(made[f"embed_{i}"]["embeddings"], np.full([4, 4], i))


STATES = {
    "the buffer": lambda buffer, one: buffer,
    "an array": lambda buffer, one: jnp.array(buffer),
    "arithmetic": lambda buffer, one: jnp.asarray(buffer) * 1,
    "a copy": lambda buffer, one: buffer.copy() * one,
}


@pytest.mark.parametrize("how", STATES)
def test_buffers_that_states_are_read_from(how):
    buffer = np.zeros([2, 3], np.float32)

    def f(x):
        for i in (1, 2):
            buffer[...] = i
            one = jnp.cos(0 * hk.get_parameter("w", [], init=hk.initializers.RandomNormal()))
            hk.set_state(f"s{i}", STATES[how](buffer, one))

    _, state = hk.transform_with_state(f).init(0, X)
    for i in (1, 2):
        np.testing.assert_array_equal(state["~"][f"s{i}"], np.full([2, 3], i))


@pytest.mark.eight_devices
@pytest.mark.parametrize("shapes", [False])
def test_constants_of_a_raw_shard_map_are_a_part_of_the_program(shapes):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def f(x):
        mean = lambda x: x - jax.lax.pmean(x.mean() + jnp.arange(2.0).sum(), "data")  # noqa: E731
        y = jax.shard_map(mean, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data"))(hk.Linear(4)(x))
        return hk.Linear(2)(y)

    x = jnp.ones([4, 3])
    params = hk.transform(f).init(0, jax.ShapeDtypeStruct(x.shape, x.dtype) if shapes else x)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, params, hk.transform(f, init="eager").init(0, x)))


def test_an_argument_of_64_bits_costs_no_forward_pass():
    """The activations would take 400 GB."""

    def f(x):
        y = jnp.repeat(hk.Linear(100)(x), 10**6, axis=0)
        hk.set_state("example", (jnp.asarray(x) * x).sum())
        return hk.Linear(1)(y)

    x = np.ones([1000, 3])
    for given in (x, np.broadcast_to(x[:1], [1000, 3])):  # the second is read-only
        assert hk.transform_with_state(f).init(0, given)[1]["~"]["example"] == 3000


def test_an_argument_that_the_function_fills():
    def f(buffer):
        for i in (1, 2):
            buffer *= 2
            hk.set_state(f"s{i}", jnp.asarray(buffer) + 0)

    given = np.ones(2, np.float32)
    _, state = hk.transform_with_state(f).init(None, given)
    np.testing.assert_array_equal(state["~"]["s1"], [2, 2])
    np.testing.assert_array_equal(state["~"]["s2"], [4, 4])
