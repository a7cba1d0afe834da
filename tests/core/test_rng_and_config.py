"""Settings that contexts put back, and numbers of keys."""

import threading

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


def test_contexts_of_generators_that_take_turns():
    def steps(**changes):
        with hkx.config.context(**changes):
            yield
            yield

    a, b = steps(rng_reserve_size=5), steps(rng_reserve_size=7, check_jax_usage=True)
    for generator in (a, b, a):
        next(generator)
    next(a, None)
    assert current() == DEFAULT | {"rng_reserve_size": 7, "check_jax_usage": True}
    b.close()
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


def test_a_context_that_another_thread_ends_puts_back_what_the_first_had():
    context = hkx.config.context(rng_reserve_size=3)
    context.__enter__()
    seen = []

    def end():
        seen.append(current())
        context.__exit__(None, None, None)
        seen.append(current())

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert seen == [DEFAULT | {"rng_reserve_size": 3}] * 2  # a thread keeps the settings that it began with
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
