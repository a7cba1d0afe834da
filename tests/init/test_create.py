"""`hkx.transform(f, init=…)`: the traced, the eager and the checked way, and the arguments and settings of each."""

import collections
import random
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx as hk

pytestmark = pytest.mark.unoptimised

X = jnp.ones(2)


def notices(x):
    y = hk.Linear(4)(x)
    try:
        n = 2 if float(y.sum()) else 3
    except jax.errors.JAXTypeError:
        n = 9
    return hk.Linear(n)(y)


def looks(x):
    y = hk.Linear(4)(x)
    return hk.Linear(9 if isinstance(y, jax.core.Tracer) else 2)(y)


def sets_what_it_saw(x):
    y = hk.Linear(4)(x)
    try:
        seen = np.asarray(y)
    except jax.errors.TracerArrayConversionError:
        seen = np.zeros(4, np.float32)
    hk.get_parameter("seen", [4], init=lambda *_: jnp.asarray(seen))


class TestEager:
    @pytest.mark.parametrize("f", [notices, looks])
    def test_as_apply_sees_it(self, f):
        """In every way to say it, for all transforms, and for those called inside."""
        pairs = [
            hk.transform(f, init="eager"),
            hk.without_state(hk.transform_with_state(f, init="eager")),
            hk.multi_transform(lambda: (f, f), init="eager"),
            hk.without_apply_rng(hk.transform(f, init="eager")),
        ]
        for pair in pairs:
            assert pair.init(0, X)["linear_1"]["w"].shape == (4, 2)
        with hk.config.context(init="eager"):
            assert hk.transform(f).init(0, X)["linear_1"]["w"].shape == (4, 2)
        outer = hk.transform(lambda x: hk.lift(hk.transform(f).init)(hk.next_rng_key(), x) and None, init="eager")
        assert outer.init(0, X)["lifted/linear_1"]["w"].shape == (4, 2)
        assert hk.transform(f).init(0, X)["linear_1"]["w"].shape == (4, 9)

    def test_runs_once_on_the_arguments_themselves(self):
        calls = []

        def f(batch):
            calls.append(batch)
            batch["y"] = hk.Linear(2)(batch["x"])

        batch = {"x": X}
        params = hk.transform(f, init="eager").init(0, batch)
        assert len(calls) == 1 and calls[0] is batch
        np.testing.assert_allclose(batch["y"], X @ params["linear"]["w"], rtol=1e-6)

    def test_needs_arrays(self):
        for setting in ("eager", "check"):
            with pytest.raises(hk.errors.AbstractInitError, match=f'init="{setting}".*ShapeDtypeStruct'):
                hk.transform(notices, init=setting).init(0, jax.ShapeDtypeStruct([2], jnp.float32))


class TestCheck:
    @pytest.mark.parametrize(
        ("f", "words"),
        [
            (notices, ["parameter 'linear_1/w' is float32[4, 9] on abstract values, float32[4, 2] on real ones"]),
            (looks, ["parameter 'linear_1/b' is float32[9]"]),
            (sets_what_it_saw, ["parameter '~/seen' has other values"]),
            (
                lambda x: hk.set_state("z", jnp.asarray(2j if isinstance(hk.Linear(1)(x), jax.core.Tracer) else 3j)),
                ["state '~/z' has other values"],
            ),
            (
                lambda x: hk.set_state("a" if isinstance(hk.Linear(1)(x), jax.core.Tracer) else "b", 1),
                ["state '~/b' is made on real values only", "state '~/a' is made on abstract values only"],
            ),
        ],
    )
    def test_names_what_differs(self, f, words):
        with pytest.raises(hk.errors.InitDependsOnTracingError) as error:
            hk.transform_with_state(f, init="check").init(0, X)
        assert all(word in str(error.value) for word in [*words, 'init="eager"'])

    @pytest.mark.slow
    def test_says_nothing_of_functions_that_are_pure(self):
        def f(batch):
            x = batch.pop("x")
            hk.set_state("key", hk.next_rng_key())
            return hk.BatchNorm(True, True, 0.9)(hk.nets.MLP([3, 2])(x), is_training=True)

        x = jax.random.normal(jax.random.key(1), [5, 2])
        checked = hk.transform_with_state(f, init="check").init(jax.random.key(0), {"x": x})
        with hk.config.context(init="check"):
            again = hk.transform_with_state(f).init(jax.random.key(0), {"x": x})
        expected = hk.transform_with_state(f).init(jax.random.key(0), {"x": x})
        for made in (checked, again):
            assert jax.tree.structure(made) == jax.tree.structure(expected)
            np.testing.assert_array_equal(made[0]["mlp/~/linear_0"]["w"], expected[0]["mlp/~/linear_0"]["w"])


def test_arguments_are_of_each_run_alone():
    """In the order in which the caller put them, which JAX would sort."""
    seen = []

    def f(batch, layers):
        seen.append((list(batch), list(layers)))
        batch["z"] = batch.pop("x") + batch.pop("a").pop()
        layers.clear()
        y = hk.Linear(2)(batch["z"])
        return hk.Linear(2 if float(y.sum()) else 3)(y)

    batch, layers = {"x": X, "a": [X]}, collections.defaultdict(int, {"b": 1, "a": 2})
    assert hk.transform(f).init(0, batch, layers)["linear_1"]["w"].shape == (2, 2)
    assert seen == [(["x", "a"], ["b", "a"])] * 2

    given = {"x": np.ones(2, np.float32), "w": [1]}

    def g(batch):
        batch["x"] *= 2  # in place
        batch["w"].append(1)
        hk.get_parameter("n", [len(batch["w"])], init=jnp.ones)
        hk.set_state("x", jnp.asarray(batch["x"]))

    params, state = hk.transform_with_state(g).init(0, given)
    assert params["~"]["n"].shape == (2,)
    np.testing.assert_array_equal(state["~"]["x"], [2, 2])


def test_modules_are_made_in_the_order_of_the_arguments():
    def f(sizes):
        for name, size in sizes.items():
            hk.Linear(size, name=name)(X)

    assert list(hk.transform(f).init(0, {"z": 1, "a": 2})) == ["z", "a"]


def test_random_numbers_of_numpy_and_python_are_left_alone():
    """What a run draws stays drawn: `init` puts back nothing."""
    state, own = random.getstate(), np.random.default_rng(0)
    hk.transform(lambda x: hk.Linear(2)(x)).init(0, X)
    assert random.getstate() == state
    hk.transform(lambda: hk.get_parameter("w", [], init=lambda *_: jnp.float32(own.normal()))).init(0)
    again = np.random.default_rng(0)
    again.normal()
    assert own.normal() == again.normal()


def test_settings_are_of_the_thread():
    seen = []
    with hk.config.context(init="eager"):
        thread = threading.Thread(target=lambda: seen.append(hk.transform(looks).init(0, X)["linear_1"]["w"].shape))
        thread.start()
        thread.join()
    assert seen == [(4, 2)]  # begins with the settings of the main thread
    assert hk.transform(looks).init(0, X)["linear_1"]["w"].shape == (4, 9)


@pytest.mark.parametrize("init", ["traced", "eager"])
def test_what_stands_for_a_shape_does_so_in_an_init_inside_of_init_too(init):
    def inner(x):
        return hk.get_parameter("w", [2], init=lambda shape, dtype: hk.from_example(x, otherwise=7.0))

    def outer(x):
        made = hk.transform(inner, init=init).init(0, x)["~"]["w"]
        return hk.get_parameter("v", [2], init=lambda shape, dtype: made)

    params = hk.transform(outer).init(0, jax.ShapeDtypeStruct([2], np.float32))
    np.testing.assert_array_equal(params["~"]["v"], [7, 7])
