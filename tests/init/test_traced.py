"""The shape-only init: the same values as an ordinary run, and no forward pass."""

import gc

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest
from bits import same_bits

import hkx
from hkx.init import traced as initialise
from hkx.init.create import run_initialising


@pytest.mark.slow
def test_under_jit_and_vmap():
    rtol = 1e-6 if jax.default_backend() == "cpu" else 1e-5  # other compilers round a compiled `init` otherwise
    model = hkx.transform(lambda x: hkx.nets.MLP([70, 3])(x))
    x = jnp.ones([2, 100])
    params = model.init(jax.random.key(0), x)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), params, jax.jit(model.init)(jax.random.key(0), x)
    )
    keys = jax.random.split(jax.random.key(5), 3)
    ensemble = jax.vmap(model.init, in_axes=(0, None))(keys, x)
    for i, key in enumerate(keys):
        one = model.init(key, x)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=rtol), ensemble, one)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params)


def test_a_key_of_the_functions_own_where_init_is_mapped_over_keys():
    def f(x):
        with hkx.with_rng(jax.random.key(3)):
            return hkx.nets.MLP([4, 3])(x)

    model, keys = hkx.transform(f), jax.random.split(jax.random.key(0), 2)
    mapped = jax.vmap(model.init, in_axes=(0, None))(keys, jnp.ones(2))
    jax.tree.map(lambda a, b: same_bits(a[1], b), mapped, model.init(keys[1], jnp.ones(2)))


def test_no_ordinary_run_where_none_is_needed(monkeypatch):
    def refuse(*args):
        raise AssertionError("an ordinary run")

    monkeypatch.setattr("hkx.init.create.run_initialising", refuse)
    model = hkx.transform(lambda x: hkx.nets.MLP([7, 3])(x))
    for init in (model.init, jax.jit(model.init), jax.vmap(model.init, in_axes=(None, 0))):
        init(jax.random.key(0), jnp.ones([2, 3]))


@pytest.mark.parametrize("number", [1, 3, 8])
def test_keys_of_a_users_own_type_are_split_as_often_as_in_an_ordinary_run(number):
    count = 0

    def split(key, shape):
        nonlocal count
        count += 1
        return jnp.broadcast_to(key, (*shape, 5)) + jnp.arange(np.prod(shape), dtype=np.uint32).reshape(*shape, 1)

    impl = jax.extend.random.define_prng_impl(
        key_shape=(5,),
        seed=lambda seed: jnp.full(5, seed, np.uint32),
        split=split,
        random_bits=lambda key, width, shape: jnp.broadcast_to(key[0], shape),
        fold_in=lambda key, data: key + data,
    )

    def f():
        for i in range(number):
            key = hkx.next_rng_key()
            if i % 2:
                hkx.set_state(f"{i}", jax.random.bits(key))

    _, state = hkx.transform_with_state(f).init(jax.random.key(42, impl=impl))
    assert count == number  # the last one too, which nothing that was made depends on
    # Each split keeps its first key and hands out the second, one more: the i-th handed out is 42 + 1.
    assert all(int(bits) == 43 for bits in state.get("~", {}).values())
    jax.eval_shape(hkx.transform_with_state(f).init, jax.random.key(42, impl=impl))


def test_the_forward_pass_is_not_run():
    """The activations of this network would take 400 GB."""

    def f(x):
        x = jnp.broadcast_to(x[:, None], [x.shape[0], 1000, x.shape[1]])
        x = hkx.Linear(100)(x)
        x = jnp.tanh(jnp.repeat(x, 1000, axis=0))
        return hkx.Linear(1)(x)

    params = hkx.transform(f).init(0, jnp.ones([1000, 100]))
    assert jax.tree.map(jnp.shape, params) == {
        "linear": {"w": (100, 100), "b": (100,)},
        "linear_1": {"w": (100, 1), "b": (1,)},
    }


def test_shapes_for_arguments():
    model = hkx.transform(lambda x, y, scale, flag: hkx.Linear(2)(x["a"] * scale) + y if flag else 0)
    x = {"a": jnp.ones([2, 3])}
    spec = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), x)
    same_bits(model.init(0, spec, 1.0, 2.0, flag=True), model.init(0, x, 1.0, 2.0, flag=True))


def test_initial_values_that_depend_on_data_and_on_each_other():
    def f(x):
        w = hkx.get_parameter("w", [3, 2], init=hkx.initializers.RandomNormal())
        tied = hkx.get_parameter("tied", [2, 3], init=lambda *_: w.T * 2)
        hkx.set_state("mean", (x @ w).mean())
        noise = jax.random.normal(hkx.next_rng_key(), [3])
        late = hkx.get_parameter("late", [3], init=lambda s, d: noise + hkx.initializers.RandomUniform()(s, d))
        hkx.set_state("tree", {"a": late, "b": (tied, 3)})
        return hkx.nets.MLP([4, 4])(x)

    x = jnp.arange(6.0).reshape(2, 3)
    model = hkx.transform_with_state(f)
    params, state = model.init(7, x)
    expected = run_initialising(f, jax.random.PRNGKey(7), (x,))
    same_bits((params, state), expected)
    np.testing.assert_array_equal(params["~"]["tied"], 2 * params["~"]["w"].T)
    assert state["~"]["tree"]["b"][1] == 3


@pytest.mark.slow
def test_keys_that_come_out_of_control_flow():
    def f(x):
        def body(i, carry):
            key, total = carry
            key, sub = jax.random.split(key)
            return key, total + jax.random.normal(sub)

        key, _ = jax.lax.fori_loop(0, 3, body, (hkx.next_rng_key(), 0.0))
        with hkx.with_rng(key):
            return hkx.Linear(2)(x) + hkx.Linear(2)(x)

    x = jnp.ones([1, 3])
    same_bits(hkx.transform(f).init(7, x), run_initialising(f, jax.random.PRNGKey(7), (x,))[0])


@pytest.mark.slow
def test_with_jit_disabled_values_can_be_looked_at():
    seen = []

    def f(x):
        seen.append(hkx.Linear(1)(x))
        return x

    with jax.disable_jit():
        hkx.transform(f).init(0, jnp.ones([2, 3]))
    assert len(seen) == 1 and not isinstance(seen[0], jax.core.Tracer)


@pytest.mark.slow
def test_shapes_are_enough_where_jit_is_disabled():
    def f(x):
        y, _ = hkx.scan(lambda c, x: (hkx.Linear(3)(c) + x, None), jnp.zeros(3), hkx.nets.MLP([2, 3])(x))
        return hkx.cond(x.sum() > 0, lambda y: hkx.Linear(2)(y), lambda y: y[:2], y)

    with jax.disable_jit():
        wanted = hkx.transform(f).init(0, jnp.ones([2, 3]))
        made = hkx.transform(f).init(0, jax.ShapeDtypeStruct([2, 3], jnp.float32))
        jax.tree.map(np.testing.assert_array_equal, made, wanted)
        with pytest.raises(hkx.errors.AbstractInitError, match="depends on the values of an argument"):
            hkx.transform(lambda x: f(x) if x.sum() > 0 else x).init(0, jax.ShapeDtypeStruct([2, 3], jnp.float32))


@pytest.mark.eight_devices
def test_result_on_the_device_of_the_key():
    device = jax.devices()[3]

    def own(shape, dtype):
        return jax.random.normal(hkx.next_rng_key(), shape, dtype)

    for w_init in (None, own):
        model = hkx.transform(lambda x, w_init=w_init: hkx.nets.MLP([2] * 5, w_init=w_init)(x))
        for key in (jax.random.key(0), jax.random.PRNGKey(0)):
            params = model.init(jax.device_put(key, device), jnp.ones([1, 3]))
            assert {d for leaf in jax.tree.leaves(params) for d in leaf.devices()} == {device}
    params = hkx.transform(lambda x: hkx.Linear(2)(x)).init(jax.random.key(0), jnp.ones([1, 3]))
    assert not any(leaf.committed for leaf in jax.tree.leaves(params))


def test_initial_values_may_be_donated():
    params = hkx.transform(lambda x: hkx.Linear(200)(x)).init(0, jnp.ones([1, 300]))
    step = jax.jit(lambda p: jax.tree.map(lambda x: x + 1, p), donate_argnums=0)
    jax.block_until_ready(step(params))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(params))


def test_shared_modules_creators_and_nested_transforms():
    def creator(next_creator, shape, dtype, init, context):
        return next_creator(shape, dtype, init) + 1

    def f(x):
        layer = hkx.Linear(3)
        with hkx.custom_creator(creator):
            y = layer(layer(x))
        inner = hkx.transform(lambda y: hkx.Linear(2)(y))
        params = inner.init(hkx.next_rng_key(), y)
        hkx.get_parameter("inner", [3, 2], init=lambda *_: params["linear"]["w"])
        return inner.apply(params, None, y)

    x = jnp.ones([2, 3])
    same_bits(hkx.transform(f).init(7, x), run_initialising(f, jax.random.PRNGKey(7), (x,))[0])


def test_no_tracer_and_no_frame_is_kept_alive():
    model = hkx.transform_with_state(lambda x: hkx.nets.MLP([8, 8])(x))
    with jax.checking_leaks():
        params, state = model.init(0, jnp.ones([2, 3]))
        model.apply(params, state, None, jnp.ones([2, 3]))
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o).__name__ == "Frame" and type(o).__module__ == "hkx.core.frame"]


def normalised(width, wrap=lambda f: f):
    def f(x):
        x = jnp.tile(hkx.Linear(3)(x), [1, width])
        return wrap(lambda x: hkx.BatchNorm(True, True, 0.9)(hkx.Linear(4)(x), is_training=True))(x)

    return hkx.transform_with_state(f)


@pytest.mark.parametrize("way", ["plain", "vmap outside", "remat", "grad"])
def test_averages_start_with_the_example_where_that_is_costly(way, monkeypatch):
    # Above the limit, the forward pass is compiled as one program.
    monkeypatch.setattr("hkx.init.traced.MOST_WORK_ONE_BY_ONE", 100)
    seen = []
    together = initialise.carry_out_together
    monkeypatch.setattr(initialise, "carry_out_together", lambda *a: seen.append(1) or together(*a))
    wraps = {"remat": hkx.remat, "grad": lambda f: lambda x: hkx.value_and_grad(lambda x: f(x).sum())(x)[0]}
    model = normalised(3, wrap=wraps.get(way, lambda f: f))
    init, lead = (jax.vmap(model.init, in_axes=(None, 0)), (1,)) if way == "vmap outside" else (model.init, ())
    x = np.random.default_rng(0).normal(size=[5, 2]).astype(np.float32)
    params, state = jax.tree.map(lambda a: a.reshape(a.shape[len(lead) :]), init(0, x.reshape([*lead, 5, 2])))
    y = np.tile(x @ params["linear"]["w"], [1, 3]) @ params["linear_1"]["w"]
    np.testing.assert_allclose(state["batch_norm/~/mean_ema"]["average"][0], y.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state["batch_norm/~/var_ema"]["average"][0], y.var(0), rtol=1e-5, atol=1e-6)
    assert seen == [1]


def test_costly_averages_wait_for_draws_that_need_other_draws(monkeypatch):
    monkeypatch.setattr("hkx.init.traced.MOST_WORK_ONE_BY_ONE", 100)

    def f(x):
        w = hkx.get_parameter("w", [2, 3], init=hkx.initializers.RandomNormal())
        with hkx.with_rng(jax.random.fold_in(hkx.next_rng_key(), jnp.argmax(w[0]))):
            v = hkx.get_parameter("v", [3, 4], init=hkx.initializers.RandomNormal())
        return hkx.BatchNorm(True, True, 0.9)(x @ w @ v, is_training=True)

    x = np.random.default_rng(0).normal(size=[5, 2]).astype(np.float32)
    params, state = hkx.transform_with_state(f).init(0, x)
    y = x @ params["~"]["w"] @ params["~"]["v"]
    np.testing.assert_allclose(state["batch_norm/~/mean_ema"]["average"][0], y.mean(0), rtol=1e-5, atol=1e-6)


def test_a_key_may_be_given_by_its_type_alone():
    def f(key):
        return hkx.get_parameter("b", [2], init=jnp.ones) + jax.random.normal(key, [2])

    params = hkx.transform(f).init(None, jax.ShapeDtypeStruct([], jax.random.key(0).dtype))
    np.testing.assert_array_equal(params["~"]["b"], [1, 1])


def test_averages_start_without_an_example_of_shapes():
    # The input of the second Linear would have 3e8 numbers, 1.2 GB.
    _, state = normalised(100_000).init(0, jax.ShapeDtypeStruct([1000, 2], jnp.float32))
    np.testing.assert_array_equal(state["batch_norm/~/mean_ema"]["average"], np.zeros([1, 4]))
    np.testing.assert_array_equal(state["batch_norm/~/var_ema"]["average"], np.ones([1, 4]))
