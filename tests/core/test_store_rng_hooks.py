"""Parameters, state, keys and hooks as the running function sees them."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.testing import transform_and_run


def keys_by_hand(seed, reserve=1, count=6):
    """The sequence that repeated splitting gives."""
    key, out = jax.random.PRNGKey(seed), []
    while len(out) < count:
        key, *new = jax.random.split(key, reserve + 1)
        out += new
    return np.stack(out[:count])


def test_sequence_take_reserve_and_state():
    sequence = hkx.PRNGSequence(5)
    by_hand = jax.random.split(jax.random.PRNGKey(5), 4)
    np.testing.assert_array_equal(np.stack(sequence.take(3)), by_hand[1:])
    assert sequence.take(0) == ()
    key, subkeys = sequence.internal_state
    np.testing.assert_array_equal(key, by_hand[0])
    assert subkeys == ()
    sequence.reserve(3)
    assert len(sequence.internal_state[1]) == 3
    sequence.reserve_up_to_full()
    assert len(sequence.internal_state[1]) == 1
    other = hkx.PRNGSequence(0)
    other.replace_internal_state(sequence.internal_state)
    np.testing.assert_array_equal(next(other), next(sequence))
    np.testing.assert_array_equal(next(other), next(sequence))


def test_maybe_keys_without_a_key():
    f = hkx.transform(lambda: (hkx.maybe_next_rng_key(), hkx.maybe_get_rng_sequence_state()))
    assert f.apply({}, None) == (None, None)
    for needs_key in (hkx.next_rng_key, lambda: hkx.next_rng_keys(1), lambda: hkx.reserve_rng_keys(1)):
        with pytest.raises(hkx.errors.MissingRNGError):
            hkx.transform(needs_key).apply({}, None)


def test_with_rng_puts_the_sequence_back_when_the_body_raises():
    def f():
        with pytest.raises(KeyError), hkx.with_rng(1):
            raise KeyError
        return hkx.next_rng_key()

    np.testing.assert_array_equal(hkx.transform(f).apply({}, 5), keys_by_hand(5, count=1)[0])


@transform_and_run
def test_get_state_and_initial_state():
    if hkx.running_init():
        hkx.set_state("first", 1)
        hkx.set_state("first", 2)
        assert hkx.get_initial_state() == {"~": {"first": 1}}
        assert hkx.get_current_state() == {"~": {"first": 2}}
        hkx.get_params()["~"] = "a copy"
        assert hkx.get_params() == {}
    else:
        assert hkx.get_state("first") == 1


def test_state_trees_none_and_false_are_values():
    def f():
        hkx.set_state("tree", {"a": (1, [2.0])})
        hkx.set_state("zero", 0)
        return hkx.get_state("tree"), hkx.get_state("zero", [], init=jnp.ones)

    (tree, zero), state = hkx.transform_with_state(f).apply({}, {}, None)
    assert tree == {"a": (1, [2.0])} and zero == 0 and state == {"~": {"tree": tree, "zero": 0}}


def test_no_dtype_is_float32():
    """As in Haiku, for what makes the parameter and for hooks. To NumPy it is float64."""
    heard = []

    def creator(next_creator, shape, dtype, init, context):
        heard.extend([dtype, context.original_dtype])
        return next_creator(shape, dtype, init)

    def f():
        with hkx.custom_creator(creator):
            return hkx.get_parameter("w", [2], None, init=lambda shape, dtype: np.ones(shape, dtype))

    assert hkx.transform(f).init(None)["~"]["w"].dtype == np.float32
    assert heard == [jnp.float32] * 2


def test_parameter_dtype_in_apply_is_the_given_one():
    f = hkx.transform(lambda: hkx.get_parameter("w", [2], jnp.float32, init=jnp.zeros))
    assert f.apply({"~": {"w": np.ones(2, np.int8)}}, None).dtype == np.int8
    assert (
        hkx.transform(lambda: hkx.get_parameter("w", [2], "float16", init=np.ones)).init(None)["~"]["w"].dtype == "f2"
    )


def logging(log, tag):
    def creator(next_creator, shape, dtype, init, context):
        log.append((tag, "create", context.full_name, tuple(context.original_shape)))
        return next_creator(shape, dtype, init)

    def getter(next_getter, value, context):
        log.append((tag, "get", context.module_name, context.name))
        return next_getter(value)

    def setter(next_setter, value, context):
        log.append((tag, "set", context.full_name, context.original_shape))
        return next_setter(value)

    return creator, getter, setter


def test_hooks_run_outer_first_and_see_the_context():
    log = []

    def f():
        c1, g1, s1 = logging(log, 1)
        c2, g2, s2 = logging(log, 2)
        with hkx.custom_creator(c1, state=True), hkx.custom_creator(c2), hkx.custom_getter(g1), hkx.custom_getter(g2):
            hkx.Linear(2, with_bias=False)(jnp.ones([1, 3]))
            hkx.get_state("s", [4], init=jnp.zeros)
        with hkx.custom_setter(s1), hkx.custom_setter(s2):
            hkx.set_state("s", jnp.ones([4]))

    hkx.transform_with_state(f).init(0)
    assert log == [
        (1, "create", "linear/w", (3, 2)),
        (2, "create", "linear/w", (3, 2)),
        (1, "get", "linear", "w"),
        (2, "get", "linear", "w"),
        (1, "create", "~/s", (4,)),
        (1, "set", "~/s", (4,)),
        (2, "set", "~/s", (4,)),
    ]


def test_hooks_change_what_is_stored_and_what_is_seen():
    def f():
        with hkx.custom_creator(lambda n, s, d, i, c: n(s, d, jnp.ones) * 2):
            a = hkx.get_parameter("a", [], init=jnp.zeros)
        with hkx.custom_getter(lambda n, v, c: n(v) + 10):
            b = hkx.get_parameter("a", [])
        with hkx.custom_getter(lambda n, v, c: n(v) * 5, params=False, state=True):
            hkx.set_state("s", 1)
            s = hkx.get_state("s")
        with hkx.custom_setter(lambda n, v, c: hkx.DO_NOT_STORE):
            hkx.set_state("never", 1)
        with hkx.custom_creator(lambda n, s, d, i, c: hkx.DO_NOT_STORE, params=False, state=True):
            hkx.get_state("never", [], init=jnp.zeros)
        return a, b, s

    model = hkx.transform_with_state(f)
    params, state = model.init(None)
    assert float(params["~"]["a"]) == 2 and state == {"~": {"s": 1}}
    assert [float(v) for v in model.apply(params, state, None)[0]] == [2, 12, 5]


def test_hooks_end_with_their_block_and_when_it_raises():
    def f():
        with pytest.raises(KeyError), hkx.custom_getter(lambda n, v, c: n(v) + 1):
            raise KeyError
        return hkx.get_parameter("a", [], init=jnp.zeros)

    assert float(hkx.transform(f).apply({"~": {"a": jnp.ones([])}}, None)) == 1


def test_interceptors():
    log = []

    class Net(hkx.Module):
        def __call__(self, x, y=0):
            return self.add(x) + y

        def add(self, x):
            return x + self.one

        @property
        def one(self):
            return 1

        @hkx.transparent
        def hidden(self, x):
            return x

    def interceptor(next_function, args, kwargs, context):
        log.append((type(context.module).__name__, context.method_name, args, kwargs, context.orig_class.__name__))
        out = next_function(*args, **kwargs)
        return out * 10 if context.method_name == "add" else out

    def f():
        with hkx.intercept_methods(interceptor):
            net = Net()
            return net.hidden(net(2, y=3))

    model = hkx.transform(f)
    assert model.apply({}, None) == 33
    assert log == [
        ("Net", "__init__", (), {}, "Net"),
        ("Net", "__call__", (2,), {"y": 3}, "Net"),
        ("Net", "add", (2,), {}, "Net"),
        ("Net", "one", (), {}, "Net"),
    ]
    log.clear()
    with hkx.intercept_methods(interceptor):
        hkx.transform(lambda: Net()(1)).apply({}, None)
    assert len(log) == 4


def test_interceptor_that_calls_twice_or_the_original():
    class Net(hkx.Module):
        def __call__(self, x):
            return x + 1

    def twice(next_function, args, kwargs, context):
        if context.method_name == "__init__":
            return next_function(*args, **kwargs)
        return next_function(*args) + context.orig_method(*args)

    def f():
        with hkx.intercept_methods(twice):
            return Net()(1)

    assert hkx.transform(f).apply({}, None) == 4


def test_module_repr():
    @transform_and_run
    def f():
        assert repr(hkx.Linear(3, name="u")) == "Linear(output_size=3, name='u')"
        assert repr(hkx.Linear(3)) == "Linear(output_size=3)"
        assert repr(hkx.nets.MLP([1, 2], with_bias=False)) == "MLP(output_sizes=[1, 2], with_bias=False)"
        thousand = int("1000")  # equal to the default, and another object
        assert repr(hkx.nets.MobileNetV1(num_classes=thousand)) == "MobileNetV1()"
        axes = np.array([-2, -1])  # its `==` with a default is no answer
        assert repr(hkx.LayerNorm(-1, True, True, param_axis=axes)).endswith("param_axis=array([-2, -1]))")
        with hkx.config.context(module_auto_repr=False):
            assert "object at" in repr(hkx.Linear(3))

    f()


def test_methods_of_a_module_work_outside_where_they_need_no_transform():
    kept = []

    class Net(hkx.Module):
        def double(self, x):
            return 2 * x

    hkx.transform(lambda: kept.append(Net())).init(None)
    assert kept[0].double(4) == 8


def test_transform_and_run():
    seen = []
    out = transform_and_run(lambda x: (seen.append(hkx.maybe_next_rng_key()), x)[1], seed=3)(7)
    assert out == 7 and len(seen) == 2
    np.testing.assert_array_equal(seen[0], keys_by_hand(3, count=1)[0])
    np.testing.assert_array_equal(seen[1], keys_by_hand(4, count=1)[0])
    assert transform_and_run(seed=None)(hkx.maybe_next_rng_key)() is None
    assert transform_and_run(run_apply=False)(lambda: 1)() is None
    assert int(transform_and_run(lambda x: x + 1, jax_transform=jax.jit)(jnp.ones([], int))) == 2
    mapped = transform_and_run(map_rng=lambda k: jax.random.fold_in(k, 1))(hkx.next_rng_key)()
    np.testing.assert_array_equal(mapped, jax.random.split(jax.random.fold_in(jax.random.PRNGKey(43), 1))[1])


def test_sequence_that_a_compiled_function_left_behind():
    kept = []
    key = jax.random.PRNGKey(5)
    jax.jit(lambda: kept.append(hkx.PRNGSequence(key)))()
    gc.collect()
    with pytest.raises(hkx.errors.KeyInInnerTraceError):
        jax.jit(lambda: next(kept[0]))()
    np.testing.assert_array_equal(next(kept[0]), keys_by_hand(5, count=1)[0])


def test_parameters_that_a_creator_does_not_store():
    def f():
        with (
            hkx.custom_creator(lambda n, s, d, i, c: hkx.DO_NOT_STORE),
            hkx.custom_getter(lambda n, v, c: n(c.original_init(c.original_shape, c.original_dtype))),
        ):
            return hkx.get_parameter("w", [2], init=jnp.ones)

    model = hkx.transform(f)
    params = model.init(None)
    assert params == {}
    np.testing.assert_array_equal(model.apply(params, None), np.ones(2))


def test_a_module_may_be_a_protocol_or_abstract():
    import abc
    from typing import Protocol, runtime_checkable

    @runtime_checkable
    class Sized(Protocol):
        def size(self) -> int: ...

    class Base(hkx.Module, Sized):
        @abc.abstractmethod
        def __call__(self): ...

    class Net(Base):
        def size(self):
            return 3

        def __call__(self):
            return self.size()

    assert hkx.transform(lambda: (Net()(), isinstance(Net(), Sized))).apply({}, None) == (3, True)
    with pytest.raises(TypeError, match="abstract"):
        hkx.transform(lambda: Base()).init(None)
