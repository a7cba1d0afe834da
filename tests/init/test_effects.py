"""Effects of a function, such as `jax.debug.print`, during `init`."""

import contextlib
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import hkx as hk

pytestmark = pytest.mark.unoptimised

X = jnp.ones(2)


@pytest.mark.parametrize("ordered", [True, False])
def test_effects_on_traced_values_happen_in_the_order_of_the_program(ordered):
    seen = []

    def f():
        for i in (0, 1):
            w = hk.get_parameter(f"w{i}", [], init=hk.initializers.RandomNormal())
            jax.debug.callback(lambda w, i=i: seen.append(("w", i)), w, ordered=ordered)
            jax.debug.callback(lambda w, i=i: seen.append(("after", i)), w + 1, ordered=ordered)

    hk.transform(f).init(0)
    jax.effects_barrier()
    assert seen == [("w", 0), ("after", 0), ("w", 1), ("after", 1)]


def test_effects_without_traced_values_happen_when_they_are_traced():
    seen = []

    def f():
        w = hk.get_parameter("w", [], init=hk.initializers.RandomNormal())
        jax.debug.callback(lambda w: seen.append("w"), w, ordered=True)
        jax.debug.callback(lambda: seen.append("at once"), ordered=True)

    hk.transform(f).init(0)
    jax.effects_barrier()
    assert seen == ["at once", "w"]


class TestEffectsWithShapesForArguments:
    """They are dropped where what they would show has no value; others happen."""

    def run(self, f):
        seen = []
        params = hk.transform(functools.partial(f, seen)).init(0, jax.ShapeDtypeStruct([2], jnp.float32))
        jax.effects_barrier()
        return params, seen

    def test_of_the_function(self, capsys):
        def f(seen, x):
            y = hk.Linear(2)(x)
            jax.debug.print("y {}", y)
            jax.debug.callback(lambda y: seen.append("y"), y, ordered=True)
            jax.debug.callback(lambda w: seen.append("key"), hk.next_rng_key())
            return hk.Linear(3)(y)

        params, seen = self.run(f)
        assert list(params) == ["linear", "linear_1"] and seen == ["key"] and capsys.readouterr().out == ""

    @pytest.mark.parametrize("way", ["scan", "remat", "cond", "raw scan", "jit"])
    def test_of_what_is_in_it(self, way):
        def f(seen, x):
            def step(x):
                jax.debug.callback(lambda x: seen.append("x"), x)
                return x + (0 if way == "cond" else jax.random.uniform(hk.next_rng_key()))

            def raw(carry, _):
                jax.debug.callback(lambda x: seen.append("x"), carry[0])
                return (carry[0] + 1, jax.random.split(carry[1])[0]), None

            key = hk.next_rng_key()
            ways = {
                "scan": lambda: hk.scan(lambda x, _: (step(x), None), x, None, length=3)[0],
                "remat": lambda: hk.remat(step)(x),
                "cond": lambda: hk.cond(x.sum() > 0, step, lambda x: x, x),
                "raw scan": lambda: jax.lax.scan(raw, (x, key), None, length=3)[0][1],
                "jit": lambda: jax.jit(lambda x, key: raw((x, key), None)[0][1])(x, key),
            }
            out = ways[way]()
            with hk.with_rng(out) if "raw" in way or way == "jit" else contextlib.nullcontext():
                return hk.Linear(3)(x)

        params, seen = self.run(f)
        expected = hk.transform(functools.partial(f, []), init="eager").init(0, X)
        np.testing.assert_array_equal(params["linear"]["w"], expected["linear"]["w"])
        assert seen == []


def test_derivatives_by_custom_rules_are_no_arrays_that_were_kept():
    """JAX's programs refer to the trace where a custom rule was used: this is no reason to run a function again."""
    calls = []

    def f(x):
        calls.append(1)
        return hk.BatchNorm(True, True, 0.9)(jax.nn.relu(hk.Linear(2)(x)), is_training=True)

    jax.jit(hk.transform_with_state(f).init).lower(0, jnp.ones([2, 2]))
    assert calls == [1]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_callback_whose_result_is_kept_is_called_once(ordered):
    def f(x):
        y = hk.Linear(1)(x)
        for _ in range(2):
            kept.append(io_callback(lambda: np.int32(next(count)), jax.ShapeDtypeStruct([], np.int32), ordered=ordered))
        kept.append(y)

    kept, count = [], itertools.count()
    hk.transform(f).init(0, np.ones([2, 3], np.float32))
    assert [int(n) for n in kept[:2]] == [0, 1] and next(count) == 2
