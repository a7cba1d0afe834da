"""Traced arrays that a function leaves in lists, dicts, attributes and elsewhere."""

import collections
import functools
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import same_but_for_rounding

import hkx as hk

pytestmark = pytest.mark.unoptimised

X = jnp.ones(2)


def in_a_container(make, put, get):
    def way():
        held = make()
        return functools.partial(put, held), lambda: get(held)

    return way


class Own(list):
    """A list whose methods are not those of a list."""

    def __len__(self):
        raise RuntimeError("measured")

    def __setitem__(self, i, value):
        raise RuntimeError("set")


class Box:
    def __init__(self, value):
        self.value = value


SERVED = {
    "a list": in_a_container(list, lambda held, y: held.append(y), lambda held: held[0]),
    "a list of a class": in_a_container(Own, lambda held, y: held.append(y), lambda held: held[0]),
    "a dict": in_a_container(dict, lambda held, y: held.update(h=y), lambda held: held["h"]),
    "a dict of lists": in_a_container(
        lambda: collections.defaultdict(list), lambda held, y: held["h"].append(y), lambda held: held["h"][0]
    ),
    "a set of objects": in_a_container(set, lambda held, y: held.add(Box(y)), lambda held: min(held, key=id).value),
    "an object": in_a_container(types.SimpleNamespace, lambda held, y: setattr(held, "y", y), lambda held: held.y),
}


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("outside", [lambda init: init, jax.jit], ids=["plain", "jit"])
def test_a_traced_array_is_replaced_by_its_value(name, outside):
    keep, read = SERVED[name]()
    runs = []

    def f(x):
        runs.append(len(runs))
        y = jnp.abs(jax.nn.relu(hk.Linear(2)(x)))
        keep(y)
        return hk.Linear(3)(y)

    def init(key):
        params = hk.transform(f).init(key, X)
        held = read()
        keep(None)
        return params, held

    params, held = outside(init)(jax.random.key(1))
    assert runs == [0] and isinstance(held, jax.Array)
    np.testing.assert_allclose(held, np.maximum(X @ params["linear"]["w"], 0), rtol=1e-6)
    same_but_for_rounding(params, hk.transform(f).init(jax.random.key(1), X))


UNUSED = {
    "a function of custom derivatives": jax.nn.relu,
    "a compiled function": jax.jit(lambda x: x * 2),
    "a function compiled in another": jax.nn.silu,
    "one of two results": lambda x: jax.lax.top_k(x, 2)[1],
    "a loop": lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), 0.0, x)[1],
    "a function called twice": lambda x: jnp.var(x) + jnp.var(x),
}


@pytest.mark.parametrize("name", UNUSED)
def test_a_result_that_nothing_uses_gets_its_value(name):
    held = []
    params = hk.transform(lambda x: held.append(UNUSED[name](hk.Linear(2)(x)))).init(1, X)
    np.testing.assert_allclose(held[0], UNUSED[name](X @ params["linear"]["w"]), rtol=1e-6)


class InSlots:
    __slots__ = ("value",)


class Holder:
    value = None


def in_a_variable():
    held = None

    def put(y):
        nonlocal held
        held = y

    return put, lambda: held


OVERWRITTEN = {
    "a slot": in_a_container(InSlots, lambda held, y: setattr(held, "value", y), lambda held: held.value),
    "a class": in_a_container(lambda: Holder, lambda held, y: setattr(held, "value", y), lambda held: held.value),
    "a variable": in_a_variable,
    "an array of objects": in_a_container(
        lambda: np.empty(1, object), lambda held, y: held.__setitem__(0, y), lambda held: held[0]
    ),
    "a tuple": in_a_container(dict, lambda held, y: held.update(h=("h", y)), lambda held: held["h"][1]),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_where_a_second_run_overwrites_it_the_value_is_there(name):
    keep, read = OVERWRITTEN[name]()
    runs = []

    def f(x):
        runs.append(1)
        y = hk.Linear(2)(x)
        keep(y)

    params = hk.transform(f).init(0, X)
    assert len(runs) == 2
    np.testing.assert_allclose(read(), X @ params["linear"]["w"], rtol=1e-6)
    keep(None)


LEAKS = {
    "a list of pairs": lambda held, y: held.append(("h", (y, 1))),
    "a deque": lambda held, y: held.append(collections.deque([y])),
    "an iterator": lambda held, y: held.append(itertools.repeat(y)),
    "a partial function": lambda held, y: held.append(functools.partial(max, ("h", y))),
}


@pytest.mark.parametrize("name", LEAKS)
def test_the_error_names_what_still_holds_it(name):
    held = []
    with pytest.raises(hk.errors.LeakedByInitError, match=r"in a list in the variable 'held' of the function .*eager"):
        hk.transform(lambda x: LEAKS[name](held, hk.Linear(2)(x))).init(0, X)
    held.clear()
    hk.transform(lambda x: LEAKS[name](held, hk.Linear(2)(x)), init="eager").init(0, X)
    assert len(held) == 1


def test_the_other_result_of_an_operation():
    """Of which `init` computes what goes into a state alone."""
    kept = []

    def f(x):
        values, indices = jax.lax.top_k(x, 1)
        hk.set_state("largest", values)
        kept.append(indices)
        return x[indices]

    _, state = hk.transform_with_state(f).init(None, jnp.array([2.0, 5.0]))
    assert state["~"]["largest"] == 5 and kept == [1]


def test_all_or_nothing():
    """Where one of several cannot be replaced the run is repeated, and no list has a value twice in silence."""
    kept, repeats = [], {}

    def f(x):
        kept.append(hk.Linear(2)(x))
        repeats[len(repeats)] = itertools.repeat(kept[-1])

    with pytest.raises(hk.errors.LeakedByInitError, match=r"A traced array of `init` is still held by .*eager"):
        hk.transform(f).init(0, X)
    assert isinstance(kept[0], jax.core.Tracer)
    repeats.clear()


def test_nor_where_the_function_asks_for_a_value():
    """It has run in part only, and what it kept there may be kept once more when it runs again."""
    kept = []

    def f(x):
        kept.append(hk.Linear(2)(x))
        return kept[-1] if float(kept[-1].sum()) > 0 else 0.0

    with pytest.raises(hk.errors.LeakedByInitError, match=r"'kept'.*if the function asks for the value"):
        hk.transform(f).init(0, X)
    assert isinstance(kept[0], jax.core.Tracer)


def test_the_place_is_named():
    module = types.ModuleType("young")  # tests/conftest.py hides those that are older than the test
    module.KEPT = []

    def keep(x):
        module.KEPT.append(itertools.repeat(hk.Linear(2)(x)))

    words = "a repeat in a list in the variable"
    with pytest.raises(hk.errors.LeakedByInitError, match=f"{words} 'KEPT' of the module 'young'"):
        hk.transform(keep).init(0, X)


def test_a_class_is_named():
    class Holder:
        pass

    def f(x):
        setattr(Holder, f"kept_{len(vars(Holder))}", itertools.repeat(hk.Linear(2)(x)))

    with pytest.raises(hk.errors.LeakedByInitError, match=r"held by .*the class '.*Holder'"):
        hk.transform(f).init(0, X)


def test_shapes_alone_leave_no_tracer_either():
    kept = []
    with pytest.raises(hk.errors.LeakedByInitError):
        hk.transform(lambda x: kept.append(hk.Linear(2)(x))).init(0, jax.ShapeDtypeStruct([2], jnp.float32))


def test_keys_parameters_and_numbers():
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
