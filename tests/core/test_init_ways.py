"""`init` on abstract values, on real ones, and both: what it may not get wrong without a word."""

import array
import collections
import contextlib
import functools
import itertools
import mmap
import queue
import random
import threading
import types
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import same_but_for_rounding
from jax.experimental import io_callback

import hkx as hk
from hkx.base.draws import Draw
from hkx.base.key_arrays import for_each_key
from hkx.init import buffers
from hkx.init.recording import Recording
from hkx.jaxprs.traces import variable_of

pytestmark = pytest.mark.unoptimised

X = jnp.ones(2)


class TestArraysOfNumpyThatAreFilledAnew:
    """A program that JAX records refers to a NumPy array: it holds no copy of what was in it."""

    def test_by_initializers(self):
        buffer = np.zeros(2, np.float32)

        def f():
            for i in (1, 2):
                buffer[:] = i
                hk.get_parameter(f"as_it_is_{i}", [2], init=lambda *_: jnp.array(buffer))
                hk.get_parameter(f"times_{i}", [2], init=lambda *_: 10 * jnp.array(buffer))
                hk.get_parameter(f"constant_{i}", [2], init=hk.initializers.Constant(buffer))
                hk.get_parameter(f"noise_{i}", [2], init=lambda *_: buffer + 0 * jax.random.normal(hk.next_rng_key()))

        made = hk.transform(f).init(0)["~"]
        for name, value in made.items():
            number = float(name[-1]) * (10 if name.startswith("times") else 1)
            np.testing.assert_array_equal(value, [number, number], name)

    def test_where_jax_writes_constants_into_the_program(self):
        """As later versions of JAX will, by their documentation of constants."""
        setting = "jax_use_simplified_jaxpr_constants"
        before = getattr(jax.config, setting)
        jax.config.update(setting, True)
        buffers.references_of_one.cache_clear()
        try:
            buffer = np.array([1.0, 2.0], np.float32)
            params = hk.transform(lambda: hk.get_parameter("w", [2], init=lambda *_: jnp.asarray(buffer))).init(0)
            np.testing.assert_array_equal(params["~"]["w"], buffer)
        finally:
            jax.config.update(setting, before)
            buffers.references_of_one.cache_clear()

    @pytest.mark.parametrize("init", ["traced", "eager"])
    def test_that_jax_would_refer_to_the_memory_of(self, init):
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

    @pytest.mark.parametrize("memory", [bytearray(8), array.array("f", [0, 0]), mmap.mmap(-1, 8)])
    def test_whose_memory_is_not_numpys(self, memory):
        def f(x):
            for i in (1, 2):
                np.frombuffer(memory, np.float32, 2)[:] = i
                hk.set_state(f"s{i}", x * np.frombuffer(memory, np.float32, 2))

        _, state = hk.transform_with_state(f).init(0, X)
        np.testing.assert_array_equal(state["~"]["s1"], [1, 1])
        np.testing.assert_array_equal(state["~"]["s2"], [2, 2])

    @pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
    @pytest.mark.parametrize("how", ["array", "arithmetic", "in jit", "a view", "set twice"])
    def test_by_states(self, shape, how):
        whole = np.zeros([4, *shape], np.float32)
        buffer = whole[1] if how == "a view" else np.zeros(shape, np.float32)
        if how == "a view" and not shape:
            buffer = whole[1:2].reshape([])

        def f(x):
            for i in (1, 2):
                buffer[...] = i
                one = jnp.cos(0 * hk.get_parameter("w", [], init=hk.initializers.RandomNormal()))
                values = {
                    "array": lambda: jnp.array(buffer),
                    "arithmetic": lambda one=one: buffer * one,
                    "in jit": lambda one=one: jax.jit(lambda y: y * buffer)(one),
                    "a view": lambda one=one: one * buffer,
                    "set twice": lambda: jnp.array(buffer) * 1,
                }
                hk.set_state(f"s{i}", values[how]())
            return x

        _, state = hk.transform_with_state(f).init(0, X)
        for i in (1, 2):
            np.testing.assert_array_equal(state["~"][f"s{i}"], np.full(shape, i))

    def test_by_averages_of_what_is_no_argument(self):
        buffer = np.zeros([2], np.float32)

        def f(x):
            for i in (1, 2):
                buffer[:] = i
                hk.ExponentialMovingAverage(0.5, name=f"ema{i}")(x + buffer)

        _, state = hk.transform_with_state(f).init(0, X)
        for i in (1, 2):
            np.testing.assert_allclose(state[f"ema{i}"]["average"], X + i, rtol=1e-6)

    def test_of_which_only_a_view_is_left(self):
        view = np.zeros([2, 3], np.float32)[1]

        def f(x):
            view[:] = 1
            hk.set_state("s", x[0] * view)
            view[:] = 2
            return x

        _, state = hk.transform_with_state(f).init(0, X)
        np.testing.assert_array_equal(state["~"]["s"], np.ones(3))

    @pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex128"])
    @pytest.mark.parametrize("local", [False, True])
    def test_of_64_bits_or_of_the_function_itself(self, dtype, local):
        """Of those of 64 bits JAX makes a copy, once; and nobody else holds those of the function when it has ended."""
        kept = np.zeros(2, dtype)

        def f(x):
            buffer = np.zeros(2, dtype) if local else kept
            for i in (1, 2):
                buffer[:] = i
                noise = 0 * hk.get_parameter("w", [], init=hk.initializers.RandomNormal())
                hk.get_parameter(
                    f"p{i}", [2], init=lambda *_: jnp.real(buffer + 0 * jax.random.normal(hk.next_rng_key()))
                )
                hk.set_state(f"s{i}", buffer + noise)
                hk.set_state(f"t{i}", jax.jit(lambda y: y * buffer)(x))
            buffer[:] = 7
            return x

        params, state = hk.transform_with_state(f).init(0, X)
        for i in (1, 2):
            for value in (params["~"][f"p{i}"], state["~"][f"s{i}"], state["~"][f"t{i}"]):
                np.testing.assert_array_equal(value, [i, i])

    def test_an_argument_of_64_bits_costs_no_forward_pass(self):
        """The activations would take 400 GB."""

        def f(x):
            y = jnp.repeat(hk.Linear(100)(x), 10**6, axis=0)
            hk.set_state("example", (jnp.asarray(x) * x).sum())
            return hk.Linear(1)(y)

        x = np.ones([1000, 3])
        for given in (x, np.broadcast_to(x[:1], [1000, 3])):  # the second is read-only
            assert hk.transform_with_state(f).init(0, given)[1]["~"]["example"] == 3000

    def test_an_argument_that_the_function_fills(self):
        def f(buffer):
            for i in (1, 2):
                buffer *= 2
                hk.set_state(f"s{i}", jnp.asarray(buffer) + 0)

        given = np.ones(2, np.float32)
        _, state = hk.transform_with_state(f).init(None, given)
        np.testing.assert_array_equal(state["~"]["s1"], [2, 2])
        np.testing.assert_array_equal(state["~"]["s2"], [4, 4])

    def test_tables_that_stay_as_they_are_cost_no_forward_pass(self):
        """The activations would take 400 GB."""
        table = np.arange(3, dtype=np.float32)

        def f(x):
            y = jnp.repeat(hk.Linear(100)(x), 10**6, axis=0)
            hk.get_parameter("table", [3], init=lambda *_: 2 * jnp.asarray(table))
            hk.set_state("example", jnp.asarray(x).sum())
            hk.set_state("fresh", jnp.asarray(np.arange(3.0, dtype=np.float32)) * 1)
            return hk.Linear(1)(y * jnp.asarray(table).sum())

        params, state = hk.transform_with_state(f).init(0, np.ones([1000, 3], np.float32))
        np.testing.assert_array_equal(params["~"]["table"], [0, 2, 4])
        np.testing.assert_array_equal(state["~"]["fresh"], [0, 1, 2])
        assert state["~"]["example"] == 3000


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

    @pytest.mark.parametrize("setting", ["Eager", True, "abstract", ""])
    def test_other_words(self, setting):
        for use in (lambda: hk.transform(looks, init=setting), lambda: hk.config.set(init=setting)):
            with pytest.raises(ValueError, match='`init` must be one of "traced", "eager", "check"'):
                use()


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


def in_a_container(make, put, get):
    def way():
        held = make()
        return functools.partial(put, held), lambda: get(held)

    return way


def in_a_variable():
    held = None

    def put(y):
        nonlocal held
        held = y

    return put, lambda: held


class Own(list):
    """A list whose methods are not those of a list."""

    def __len__(self):
        raise RuntimeError("measured")

    def __setitem__(self, i, value):
        raise RuntimeError("set")


class InSlots:
    __slots__ = ("__hidden", "empty")

    def put(self, y):
        self.__hidden = y

    def get(self):
        return self.__hidden


class Pair(typing.NamedTuple):
    name: str
    value: object


def of_a_class():
    class Holder:
        kept = None

    def read():
        return Holder.kept  # as Python's own cache of attributes has it

    def put(y):
        Holder.kept = y
        read()

    return put, read


def of_a_cache():
    given = []
    cached = functools.cache(lambda: given[-1])

    def put(y):
        given.append(y)
        cached()
        given.clear()

    return put, cached


WAYS_TO_KEEP = {
    "a list": in_a_container(list, lambda held, y: held.append(y), lambda held: held[0]),
    "a list of pairs": in_a_container(list, lambda held, y: held.append(("h", (y, 1))), lambda held: held[0][1][0]),
    "a named tuple": in_a_container(list, lambda held, y: held.append(Pair("h", y)), lambda held: held[0].value),
    "a list of a class": in_a_container(Own, lambda held, y: held.append(y), lambda held: held[0]),
    "a dict": in_a_container(dict, lambda held, y: held.update(h=y), lambda held: held["h"]),
    "a dict of lists": in_a_container(
        lambda: collections.defaultdict(list), lambda held, y: held["h"].append(y), lambda held: held["h"][0]
    ),
    "a deque": in_a_container(collections.deque, lambda held, y: held.append(y), lambda held: held[0]),
    "a queue": in_a_container(queue.Queue, lambda held, y: held.put(y), lambda held: held.get()),
    "a set of objects": in_a_container(set, lambda held, y: held.add(Box(y)), lambda held: min(held, key=id).value),
    "an object": in_a_container(types.SimpleNamespace, lambda held, y: setattr(held, "y", y), lambda held: held.y),
    "slots": in_a_container(InSlots, InSlots.put, InSlots.get),
    "a cache without an end": of_a_cache,
    "a partial function": in_a_container(
        list, lambda held, y: held.append(functools.partial(max, ("h", y))), lambda held: held[0].args[0][1]
    ),
    "a partial function of JAX's": in_a_container(
        list, lambda held, y: held.append(jax.tree_util.Partial(max, ("h", y))), lambda held: held[0].args[0][1]
    ),
    "a class": of_a_class,
    "a variable": in_a_variable,
}


def remembers():
    kept = []
    program = jax.make_jaxpr(lambda: kept.append(jnp.arange(2)))()
    return any(variable_of(kept[0]) in eqn.outvars for eqn in program.eqns)


class TestWhatIsKept:
    def test_a_cache(self):
        """None of its entries can be replaced, so that it is emptied."""
        table = functools.lru_cache(lambda n: (jnp.arange(n), [jnp.ones(n)]))
        runs = []

        def f(x):
            runs.append(x)
            return hk.Linear(2)(x) * table(2)[1][0] + table(2)[0]

        model = hk.transform(f)
        params = model.init(0, X)
        assert len(runs) == 1
        expected = X @ params["linear"]["w"] + np.arange(2)
        np.testing.assert_allclose(model.apply(params, None, X), expected, rtol=1e-6)
        assert table.cache_info().currsize == 1

    def test_a_generator(self):
        def endless():
            table = jnp.arange(2)
            while True:
                yield table

        tables = endless()

        def f(x):
            return hk.Linear(2)(x) + next(tables)

        with pytest.raises(hk.errors.LeakedByInitError, match=r"held by the generator '.*endless'"):
            hk.transform(f).init(0, X)
        tables = endless()
        model = hk.transform(f, init="eager")
        params = model.init(0, X)
        expected = X @ params["linear"]["w"] + np.arange(2)
        np.testing.assert_allclose(model.apply(params, None, X), expected, rtol=1e-6)

    @pytest.mark.parametrize("name", WAYS_TO_KEEP)
    @pytest.mark.parametrize("outside", [lambda init: init, jax.jit])
    def test_has_its_value_where_it_is_kept(self, name, outside):
        """And the function runs once, so that nothing else that it does is done twice."""
        keep, read = WAYS_TO_KEEP[name]()
        runs = []

        def f(x):
            runs.append(len(runs))
            y = jnp.abs(hk.Linear(2)(x))
            keep(y)
            return hk.Linear(3)(y)

        def init(key):
            params = hk.transform(f).init(key, X)
            kept = read()
            keep(None)  # nothing of a trace stays behind
            return params, kept

        params, kept = outside(init)(jax.random.key(1))
        assert runs == [0] and isinstance(kept, jax.Array)
        np.testing.assert_allclose(kept, np.abs(X @ params["linear"]["w"]), rtol=1e-6)
        same_but_for_rounding(params, hk.transform(f).init(jax.random.key(1), X))

    def test_an_array_of_objects(self):
        """NumPy does not say what it refers to, so that the function runs again."""
        kept = np.empty(1, object)

        def f(x):
            kept[0] = hk.Linear(2)(x)

        params = hk.transform(f).init(0, X)
        np.testing.assert_allclose(kept[0], X @ params["linear"]["w"], rtol=1e-6)

    @pytest.mark.skipif(not remembers(), reason="this JAX forgets the variable of what nothing else is computed from")
    def test_keys_parameters_and_numbers(self):
        kept = []

        def f(x):
            kept.extend([hk.next_rng_key(), hk.get_parameter("w", [3], init=jnp.ones), jnp.zeros(()), 1, x])
            kept.append(hk.next_rng_key())

        params = hk.transform(f).init(jax.random.key(3), X)
        assert len(kept) == 6 and kept[1] is params["~"]["w"] and kept[3] == 1 and kept[2] == 0
        eager = []
        kept_traced, kept[:] = list(kept), eager
        hk.transform(f, init="eager").init(jax.random.key(3), X)
        for i in (0, 5):
            np.testing.assert_array_equal(*(jax.random.key_data(keys[i]) for keys in (kept_traced, kept)))

    @pytest.mark.skipif(not remembers(), reason="this JAX forgets the variable of what nothing else is computed from")
    @pytest.mark.parametrize("around", ["nothing", "jit", "init"])
    def test_a_sequence_of_keys_goes_on_where_init_was_called(self, around):
        def go(key):
            kept = []

            def f(x):
                kept.append(hk.PRNGSequence(key))
                kept[0].reserve(2)
                return hk.Linear(2)(x) * jax.random.normal(next(kept[0]))

            hk.transform(f).init(0, X)
            return jnp.stack([next(kept[0]) for _ in range(3)])

        key = jax.random.PRNGKey(5)
        if around == "init":
            keys = hk.transform_with_state(lambda: hk.set_state("keys", go(key))).init(0)[1]["~"]["keys"]
        else:
            keys = jax.jit(go)(key) if around == "jit" else go(key)
        rest, _, reserved = jax.random.split(key, 3)
        rest, second = jax.random.split(rest)
        np.testing.assert_array_equal(keys, np.stack([reserved, second, jax.random.split(rest)[1]]))

    def test_the_other_result_of_an_operation(self):
        """Of which `init` computes what goes into a state alone."""
        kept = []

        def f(x):
            values, indices = jax.lax.top_k(x, 1)
            hk.set_state("largest", values)
            kept.append(indices)
            return x[indices]

        _, state = hk.transform_with_state(f).init(None, jnp.array([2.0, 5.0]))
        assert state["~"]["largest"] == 5 and kept == [1]

    def test_a_buffer_that_is_filled_anew(self):
        """What was in it when it was read is known to nobody any more: no other number takes its place."""
        buffer, kept = np.zeros(2, np.float32), []

        def f(x):
            for i in range(2):
                buffer[:] = i
                kept.append(jnp.asarray(buffer) * 2)
            return x + sum(kept[-2:])

        with pytest.raises(hk.errors.LeakedByInitError):
            hk.transform(f).init(0, X)
        np.testing.assert_array_equal(kept[2:], [[0, 0], [2, 2]])

    @pytest.mark.skipif(remembers(), reason="this JAX knows the variable")
    def test_an_older_jax_says_where_it_is(self):
        kept = []
        with pytest.raises(hk.errors.LeakedByInitError):
            hk.transform(lambda x: kept.append(hk.Linear(2)(x))).init(0, X)

    def test_all_or_nothing(self):
        """Where one of several cannot be replaced the run is repeated, and no list has a value twice in silence."""
        kept, repeats = [], {}

        def f(x):
            kept.append(hk.Linear(2)(x))
            repeats[len(repeats)] = itertools.repeat(kept[-1])

        with pytest.raises(hk.errors.LeakedByInitError, match=r"A traced array of `init` is still held by .*eager"):
            hk.transform(f).init(0, X)
        assert isinstance(kept[0], jax.core.Tracer)
        repeats.clear()

    def test_nor_where_the_function_asks_for_a_value(self):
        """It has run in part only, and what it kept there may be kept once more when it runs again."""
        kept = []

        def f(x):
            kept.append(hk.Linear(2)(x))
            return kept[-1] if float(kept[-1].sum()) > 0 else 0.0

        with pytest.raises(hk.errors.LeakedByInitError, match=r"'kept'.*none if the function asks for the value"):
            hk.transform(f).init(0, X)
        assert isinstance(kept[0], jax.core.Tracer)

    def test_the_place_is_named(self):
        kept, module = [], types.ModuleType("young")  # tests/conftest.py hides those that are older than the test
        module.KEPT = []

        def f(x):
            kept.append(itertools.repeat(hk.Linear(2)(x)))

        def keep(x):
            module.KEPT.append(itertools.repeat(hk.Linear(2)(x)))

        words = "a repeat in a list in the variable"
        with pytest.raises(hk.errors.LeakedByInitError, match=rf"{words} 'kept' of the function '.*f'"):
            hk.transform(f).init(0, X)
        with pytest.raises(hk.errors.LeakedByInitError, match=f"{words} 'KEPT' of the module 'young'"):
            hk.transform(keep).init(0, X)

    def test_a_class_is_named(self):
        class Holder:
            pass

        def f(x):
            setattr(Holder, f"kept_{len(vars(Holder))}", itertools.repeat(hk.Linear(2)(x)))

        with pytest.raises(hk.errors.LeakedByInitError, match=r"held by .*the class '.*Holder'"):
            hk.transform(f).init(0, X)

    def test_what_is_replaced_becomes_real(self):
        kept = {}

        def f(x):
            kept["layer"] = layer = hk.Linear(2)
            kept["out"] = layer(x)

        params = hk.transform(f).init(0, X)
        np.testing.assert_allclose(kept["out"], X @ params["linear"]["w"], rtol=1e-6)

    def test_shapes_alone_leave_no_tracer_either(self):
        kept = []
        with pytest.raises(hk.errors.LeakedByInitError):
            hk.transform(lambda x: kept.append(hk.Linear(2)(x))).init(0, jax.ShapeDtypeStruct([2], jnp.float32))


class Box:
    def __init__(self, value):
        self.value = value


def test_nothing_of_the_users_runs_that_the_function_does_not_call():
    ran = []

    class Lazy(dict):
        def values(self):
            ran.append("values")
            return super().values()

    class Popping(list):
        def __iter__(self):
            while self:
                yield self.pop()

    class Raising(list):
        def __iter__(self):
            raise RuntimeError("iterated")

        def __len__(self):
            raise RuntimeError("measured")

    class Adding(tuple):
        def __radd__(self, other):
            raise RuntimeError("added")

        def __copy__(self):
            raise RuntimeError("copied")

    data, popping, raising, adding = Lazy(size=2), Popping([1, 2]), Raising([1]), Adding((1, 2))

    def f(x, data=data, rest=None):
        assert raising is not None and adding is not None and popping is not None
        return hk.Linear(data["size"])(x)

    given = functools.partial(hk.transform(f).init, data=data, rest=(raising, adding, popping))
    for init in (hk.transform(f).init, given):
        assert init(0, X)["linear"]["w"].shape == (2, 2)
    assert ran == [] and list.__len__(popping) == 2


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


@pytest.mark.parametrize("ordered", [True, False])
def test_effects_happen_in_the_order_of_the_program(ordered):
    seen = []

    def f():
        for i in (0, 1):
            w = hk.get_parameter(f"w{i}", [], init=hk.initializers.RandomNormal())
            jax.debug.callback(lambda w, i=i: seen.append(("w", i)), w, ordered=ordered)
            jax.debug.callback(lambda i=i: seen.append(("after", i)), ordered=ordered)

    hk.transform(f).init(0)
    jax.effects_barrier()
    assert seen == [("w", 0), ("after", 0), ("w", 1), ("after", 1)]


def test_an_error_of_the_functions_own_comes_at_once():
    """It is not provoked a second time, with the whole forward pass."""
    calls = []

    def f(x):
        calls.append(1)
        hk.Linear(2)(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as error:
        hk.transform(f).init(0, X)
    assert calls == [1] and any('init="eager"' in note for note in error.value.__notes__)


def test_a_method_that_traced_arrays_do_not_have_asks_for_values():
    def f(x):
        y = hk.Linear(2)(x)
        return hk.Linear(2)(y) if y.unsafe_buffer_pointer() else y

    assert "linear_1" in hk.transform(f).init(0, X)


WHERE_NOTHING_IS_TRACED = {
    "a number in a text": lambda x, n: x * len(f"{x.mean():.1f}"),
    "a shape": lambda x, n: x.reshape(n, -1),
    "the size of an identity": lambda x, n: x @ jnp.eye(n),
    "the shape of a random array": lambda x, n: x + jax.random.randint(jax.random.key(0), (1, n), 0, 9),
    "the size of a slice": lambda x, n: jax.lax.dynamic_slice(x, [0, 0], [1, n]),
    "how often to repeat": lambda x, n: jnp.tile(x, n),
}
if jax.default_backend() == "cpu":  # elsewhere there is no view of an array's memory
    WHERE_NOTHING_IS_TRACED["memory"] = lambda x, n: x * len(memoryview(x))


@pytest.mark.parametrize("use", WHERE_NOTHING_IS_TRACED.values(), ids=WHERE_NOTHING_IS_TRACED)
def test_a_value_may_be_computed_from_an_argument_and_used(use):
    """JAX refuses these of what it traces by errors of no kind of their own, of which the text names what is traced."""

    def f(x):
        return hk.Linear(2)(use(x, (3 * x[0, 0]).astype(int)))

    x = jnp.ones([2, 3])
    made, wanted = (hk.transform(f, init=init).init(0, x) for init in ("traced", "eager"))
    jax.tree.map(np.testing.assert_array_equal, made, wanted)
    with pytest.raises((TypeError, hk.errors.AbstractInitError)):
        hk.transform(f).init(0, jax.ShapeDtypeStruct(x.shape, x.dtype))


@pytest.mark.slow
def test_bodies_and_branches_may_need_values_where_jax_runs_them_step_by_step():
    def f(x):
        y, _ = hk.scan(lambda c, _: (hk.Linear(int(c.sum()))(c), None), x, None, length=1)
        return hk.cond(x[0, 0] > 0, lambda y: y * int(x.sum()), lambda y: y, y)

    x = np.ones([1, 2], np.float32)
    with jax.disable_jit():
        params = hk.transform(f).init(0, x)
        assert params["linear"]["w"].shape == (2, 2)
        mapped = jax.vmap(lambda x: hk.cond(x > 0, lambda x: 2 * x, lambda x: -x, x))
        assert hk.transform(mapped).apply({}, None, np.array([1.0, -3.0])).tolist() == [2, 3]


def test_an_error_that_shows_an_array_shows_its_value():
    def f(x):
        raise ValueError(f"too large: {x.sum()}")

    with pytest.raises(ValueError, match=r"too large: 2\.0"):
        hk.transform(f).init(0, X)
    with pytest.raises(ValueError, match="too large: "):
        hk.transform(f).init(0, jax.ShapeDtypeStruct([2], jnp.float32))


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


@pytest.mark.parametrize("kind", ["raw", "typed"])
def test_keys_along_another_axis_of_vmap(kind):
    def f():
        hk.get_parameter("w", [2, 3], init=hk.initializers.RandomNormal())
        return hk.get_parameter("b", [2], init=hk.initializers.RandomUniform())

    init = hk.transform(f).init
    seeds = np.arange(6).reshape(2, 3)
    keys = jax.vmap(jax.vmap(jax.random.PRNGKey if kind == "raw" else jax.random.key))(seeds)
    inner = jax.vmap(init, in_axes=1 if kind == "raw" else 0)  # raw keys are [3, 2] there, and then [2, 3]
    made = jax.vmap(inner, in_axes=1)(jnp.moveaxis(keys, 2, 0) if kind == "raw" else keys.T)
    for i, j in np.ndindex(seeds.shape):
        one = init(keys[i, j])["~"]
        jax.tree.map(lambda a, b, i=i, j=j: np.testing.assert_array_equal(a[i, j], b), made["~"], one)


def test_draws_and_splits_along_any_axis_of_their_keys():
    """What stands for them in an abstract run, mapped: one draw and one split for each key."""
    keys = jax.vmap(jax.random.PRNGKey, out_axes=1)(np.arange(3))  # [2, 3], a raw key in each column
    recorder = Recording(keys[:, 0])
    one = Draw("normal", (4,), np.dtype(np.float32), -np.inf, np.inf)
    drawn = jax.vmap(lambda key: recorder.draw(one, key), in_axes=1)(keys)
    halves = jax.vmap(lambda key: jnp.stack(recorder.split(key, 2)), in_axes=1)(keys)
    for i in range(3):
        np.testing.assert_array_equal(drawn[i], jax.random.normal(keys[:, i], [4]))
        np.testing.assert_array_equal(halves[i], jax.random.split(keys[:, i]))


def test_what_is_drawn_for_several_keys_is_what_each_draws_alone():
    """Under `jax.vmap` a key of another kind than JAX's default draws something else."""
    keys = jax.random.split(jax.random.key(0, impl="rbg"), 3)
    alone = [jax.random.normal(key, [2]) for key in keys]
    np.testing.assert_array_equal(for_each_key(lambda key: jax.random.normal(key, [2]), keys), np.stack(alone))


@pytest.mark.parametrize("init", ["traced", "eager"])
def test_what_stands_for_a_shape_does_so_in_an_init_inside_of_init_too(init):
    def inner(x):
        return hk.get_parameter("w", [2], init=lambda shape, dtype: hk.from_example(x, otherwise=7.0))

    def outer(x):
        made = hk.transform(inner, init=init).init(0, x)["~"]["w"]
        return hk.get_parameter("v", [2], init=lambda shape, dtype: made)

    params = hk.transform(outer).init(0, jax.ShapeDtypeStruct([2], np.float32))
    np.testing.assert_array_equal(params["~"]["v"], [7, 7])


@pytest.mark.parametrize("ordered", [True, False])
def test_a_callback_whose_result_is_kept_is_called_once(ordered):
    def f(x):
        y = hk.Linear(1)(x)
        for _ in range(2):
            kept.append(io_callback(lambda: np.int32(next(count)), jax.ShapeDtypeStruct([], np.int32), ordered=ordered))
        kept.append(y)
        return sum(kept)  # JAX 0.10.0 forgets the variable of what nothing else is computed from

    kept, count = [], itertools.count()
    hk.transform(f).init(0, np.ones([2, 3], np.float32))
    assert [int(n) for n in kept[:2]] == [0, 1] and next(count) == 2
