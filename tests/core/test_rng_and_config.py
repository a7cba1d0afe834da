"""Settings that contexts put back, and numbers of keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

SETTINGS = {  # two values of each setting, neither the default
    "check_jax_usage": (True, True),
    "module_auto_repr": (False, False),
    "restore_flatmap": (True, True),
    "rng_reserve_size": (5, 7),
}


def current():
    """What is in force, as the public functions that return the setting before tell it."""
    before = {}
    for name in ("check_jax_usage", "module_auto_repr", "rng_reserve_size"):
        change = getattr(hkx.experimental, name)
        before[name] = change(1 if name == "rng_reserve_size" else False)
        change(before[name])
    return before


DEFAULT = {"check_jax_usage": False, "module_auto_repr": True, "rng_reserve_size": 1}


@pytest.fixture(autouse=True)
def settings_as_before():
    yield
    hkx.config.set(**DEFAULT, restore_flatmap=False)


def test_what_is_set_in_a_context_that_changes_something_else_stays():
    with hkx.config.context(module_auto_repr=False):
        hkx.config.set(rng_reserve_size=5)
    assert current() == DEFAULT | {"rng_reserve_size": 5}


def test_what_is_set_in_a_context_that_changes_the_same_goes_with_it():
    with hkx.config.context(rng_reserve_size=3):
        hkx.config.set(rng_reserve_size=5)
        assert current()["rng_reserve_size"] == 5
        with hkx.config.context(check_jax_usage=True):
            assert hkx.experimental.rng_reserve_size(6) == 5
        assert current()["rng_reserve_size"] == 6
    assert current() == DEFAULT


@pytest.mark.parametrize("name", DEFAULT)
@pytest.mark.parametrize("first_ends_first", [False, True])
def test_contexts_of_one_setting_end_in_any_order(name, first_ends_first):
    one, two = SETTINGS[name]
    a, b = hkx.config.context(**{name: one}), hkx.config.context(**{name: two})
    a.__enter__()
    b.__enter__()
    first, last = (a, b) if first_ends_first else (b, a)
    first.__exit__(None, None, None)
    assert current() == DEFAULT | {name: two if first_ends_first else one}
    last.__exit__(None, None, None)
    assert current() == DEFAULT


def test_a_context_ends_with_an_exception_and_a_wrong_value_changes_nothing():
    with pytest.raises(KeyError), hkx.config.context(rng_reserve_size=3, module_auto_repr=False):
        raise KeyError
    assert current() == DEFAULT
    for wrong in (0, -1, True, 1.5, "2"):
        with pytest.raises(ValueError, match="rng_reserve_size"):
            hkx.config.set(module_auto_repr=False, rng_reserve_size=wrong)
        with pytest.raises(ValueError, match="rng_reserve_size"):
            hkx.config.context(module_auto_repr=False, rng_reserve_size=wrong).__enter__()
        assert current() == DEFAULT


@pytest.mark.peer
def test_nested_settings_are_those_of_haiku():
    hk = pytest.importorskip("haiku", reason="dm-haiku is not installed")

    def program(library):
        config, out = library.config, []

        def note():
            size = library.experimental.rng_reserve_size(1)
            library.experimental.rng_reserve_size(size)
            usage = library.experimental.check_jax_usage(False)
            library.experimental.check_jax_usage(usage)
            out.append((size, usage))

        with config.context(rng_reserve_size=2):
            note()
            config.set(check_jax_usage=True)
            with config.context(check_jax_usage=False):
                config.set(rng_reserve_size=4)
                note()
            note()
        note()
        config.set(check_jax_usage=False)
        return out

    assert program(hkx) == program(hk) == [(2, False), (4, False), (4, True), (1, True)]


KEYS = {
    "typed": (lambda: jax.random.key(0), (0,), jax.dtypes.prng_key),
    "raw": (lambda: jax.random.PRNGKey(0), (0, 2), np.uint32),
    "another implementation": (lambda: jax.random.key(0, impl="rbg"), (0,), jax.dtypes.prng_key),
}


@pytest.mark.parametrize(("key", "shape", "dtype"), KEYS.values(), ids=KEYS)
def test_no_keys_are_an_empty_array_of_keys(key, shape, dtype):
    def f():
        none = hkx.next_rng_keys(0)
        return none, hkx.next_rng_key()

    apply = hkx.transform(f).apply
    for run in (apply, jax.jit(apply)):
        none, after = run({}, key())
        assert none.shape == shape
        assert jnp.issubdtype(none.dtype, dtype)
        first = hkx.transform(hkx.next_rng_key).apply({}, key())  # none was drawn before it
        np.testing.assert_array_equal(*(jax.random.bits(k) for k in (after, first)))
    assert hkx.transform(f).init(key()) == {}


def test_no_keys_may_be_taken_where_none_may_be_drawn():
    def f():
        return jax.jit(lambda: hkx.next_rng_keys(0))()

    assert hkx.transform(f).apply({}, 0).shape == (0, 2)
    keys = hkx.PRNGSequence(0)
    assert keys.take(0) == ()
    keys.reserve(0)
    np.testing.assert_array_equal(next(keys), next(hkx.PRNGSequence(0)))


@pytest.mark.parametrize("take", [hkx.next_rng_key, hkx.maybe_next_rng_key, lambda: hkx.next_rng_keys(2)])
def test_a_key_that_was_reserved_is_none_of_an_inner_trace(take):
    """Which would have it in every round of a loop, although no key is split there."""

    def f():
        hkx.reserve_rng_keys(3)
        return jax.jit(take)()

    with pytest.raises(hkx.errors.KeyInInnerTraceError):
        hkx.transform(f).apply({}, 0)


TAKERS = {
    "next_rng_keys": hkx.next_rng_keys,
    "reserve_rng_keys": hkx.reserve_rng_keys,
    "take": lambda n: hkx.PRNGSequence(0).take(n),
    "reserve": lambda n: hkx.PRNGSequence(jax.random.key(0)).reserve(n),
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
def test_what_is_no_number_of_keys_is_named(take):
    for wrong in (-1, np.int64(-3), np.False_, 1.0, np.float32(2), "2", None, [2], np.ones(2, int)):
        with pytest.raises(TypeError, match=r"`num` must be an integer, at least 0, got"):
            hkx.transform(lambda wrong=wrong: take(wrong)).apply({}, 0)
    for right in (2, True, np.int8(2), np.array(2), jnp.array(2)):
        hkx.transform(lambda right=right: take(right)).apply({}, 0)


def test_a_traced_number_of_keys_is_an_error_of_jax():
    with pytest.raises(jax.errors.TracerIntegerConversionError):
        jax.jit(lambda n: hkx.transform(hkx.next_rng_keys).apply({}, 0, n))(2)


@pytest.mark.parametrize("form", [7, np.int64(7), jnp.uint32(7), jax.random.PRNGKey(7), np.array([0, 7], np.uint32)])
def test_every_form_of_a_key_stands_for_the_same_one(form):
    np.testing.assert_array_equal(hkx.as_key(form), [0, 7])  # threefry's key of a seed: its two halves


def test_a_typed_key_is_one_and_what_is_none_is_named():
    key = jax.random.key(7)
    assert hkx.as_key(key) is key
    for wrong in (True, 1.5, "key", None, jax.random.split(key), np.zeros(3, np.uint32)):
        with pytest.raises(hkx.errors.InvalidRNGError, match=r"(?s)`rng` of `mine`: .*A key is one of"):
            hkx.as_key(wrong, "`rng` of `mine`")


def test_a_raw_key_is_one_where_every_new_key_is_typed():
    typed = jax.random.key(3, impl="unsafe_rbg")
    raw = np.asarray(jax.random.key_data(typed))
    with jax.enable_custom_prng(True), jax.default_prng_impl("unsafe_rbg"):
        assert hkx.as_key(raw) is raw
        with pytest.raises(hkx.errors.InvalidRNGError, match=r"shape \(2,\) and dtype uint32 instead of \(4,\)"):
            hkx.as_key(raw[:2])


def test_a_seed_is_a_key_where_raw_keys_are_refused():
    def run():
        params = hkx.transform(lambda: hkx.get_parameter("w", [2], init=hkx.initializers.RandomNormal())).init(7)
        return params, jax.random.bits(hkx.testing.transform_and_run(hkx.next_rng_key, seed=8)())

    expected = run()
    with jax.legacy_prng_key("error"):
        jax.tree.map(np.testing.assert_array_equal, run(), expected)
