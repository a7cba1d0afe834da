"""`cond` and `switch`: which parameters and states branches share, what follows them, and how often they are called."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import same_but_for_rounding

import hkx

KEY = jax.random.PRNGKey(3)
X = jnp.arange(3.0) / 2
Branch = Callable[[Any], Any]


def linear(size: int = 3, **options: Any) -> Branch:
    return lambda x: hkx.Linear(size, **options)(x)


def twice(x: Any) -> Any:
    return hkx.Linear(3)(hkx.Linear(3)(x))


def dense(params: Any, name: str, x: Any) -> Any:
    return np.asarray(x) @ np.asarray(params[name]["w"]) + np.asarray(params[name].get("b", 0.0))


# The program, the modules that `init` creates, and the result of each branch from the parameters.
PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], list[str], list[Callable[[Any], Any]]]] = {
    "the same": (
        lambda i, x: hkx.switch(i, [linear(), lambda x: -hkx.Linear(3)(x)], x),
        ["linear"],
        [lambda p: dense(p, "linear", X), lambda p: -dense(p, "linear", X)],
    ),
    "more in one": (
        lambda i, x: hkx.switch(i, [linear(), twice], x),
        ["linear", "linear_1"],
        [lambda p: dense(p, "linear", X), lambda p: dense(p, "linear", dense(p, "linear_1", X))],
    ),
    "other parameters of one module": (
        lambda i, x: hkx.switch(i, [linear(with_bias=False), linear()], x),
        ["linear"],
        [lambda p: X @ p["linear"]["w"], lambda p: dense(p, "linear", X)],
    ),
    "named": (
        lambda i, x: hkx.switch(i, [linear(name="first"), linear(name="second")], x),
        ["first", "second"],
        [lambda p: dense(p, "first", X), lambda p: dense(p, "second", X)],
    ),
    "created before": (
        lambda i, x: hkx.switch(i, [hkx.Linear(3), hkx.Linear(3, with_bias=False)], x),
        ["linear", "linear_1"],
        [lambda p: dense(p, "linear", X), lambda p: dense(p, "linear_1", X)],
    ),
    "numbered": (
        lambda i, x: hkx.switch(i, [linear(name="a_3"), linear(name="a")], x),
        ["a_3", "a"],
        [lambda p: dense(p, "a_3", X), lambda p: dense(p, "a", X)],
    ),
    "nested": (
        lambda i, x: hkx.switch(i, [twice, lambda x: hkx.cond(i == 0, linear(), lambda x: -hkx.Linear(3)(x), x)], x),
        ["linear", "linear_1"],
        [lambda p: dense(p, "linear", dense(p, "linear_1", X)), lambda p: -dense(p, "linear", X)],
    ),
    "purified": (
        lambda i, x: hkx.switch(i, [linear(), lambda x: (pure := hkx.purify(linear()))(pure.start(x), x)[0]], x),
        ["linear"],
        [lambda p: dense(p, "linear", X)] * 2,
    ),
}


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "disable_jit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_names_in_all_branches_begin_alike(name: str, eager: bool) -> None:
    f, names, results = PROGRAMS[name]
    model = hkx.transform(f)
    params = model.init(KEY, 0, X)
    assert sorted(params) == sorted(names)
    with jax.disable_jit(eager):
        for i, expected in enumerate(results):
            np.testing.assert_allclose(model.apply(params, None, i, X), expected(params), rtol=1e-5, atol=1e-6)


def test_a_branch_of_another_shape_is_told_what_to_write() -> None:
    model = hkx.transform(
        lambda x: hkx.cond(True, linear(3), lambda x: hkx.nets.MLP([4, 3], name="m")(linear(2)(x)), x)
    )
    with pytest.raises(hkx.errors.ShapeMismatchError, match="linear/w") as error:
        model.init(KEY, X)
    assert 'before the `hkx.cond`, or name them: `hkx.Linear(8, name="second")`' in error.value.__notes__[0]


def test_a_state_that_one_branch_has() -> None:
    def counted(x: Any) -> Any:
        hkx.set_state("n", hkx.get_state("n", [], init=jnp.zeros) + 1)
        return x

    model = hkx.transform_with_state(lambda p, x: hkx.cond(p, counted, jnp.negative, x))
    _, state = model.init(None, True, X)
    assert [model.apply({}, state, None, p, X)[1]["~"]["n"] for p in (True, False)] == [1.0, 0.0]


WITH_HAIKU = {
    "keys": lambda hk, x: (
        hk.cond(
            x.sum() < 0,
            lambda x: hk.Linear(2)(x) + jax.random.uniform(hk.next_rng_key()),
            lambda x: hk.Linear(2)(x) * jax.random.uniform(hk.next_rng_key()),
            x,
        ),
        hk.Linear(1, name="later")(x),
        jax.random.uniform(hk.next_rng_key()),
    ),
    "state": lambda hk, x: hk.cond(
        x.sum() < 0,
        lambda x: hk.BatchNorm(True, True, 0.9)(x, True),
        lambda x: -hk.BatchNorm(True, True, 0.9)(x, True),
        x[None],
    ),
    "by the larger one": lambda hk, x: (
        hk.Linear(3)(hk.Linear(3)(x))
        if hk.running_init()
        else hk.cond(x.sum() < 0, lambda x: hk.Linear(3)(x), lambda x: hk.Linear(3)(hk.Linear(3)(x)), x)
    ),
}


def compare_with_haiku(f: Callable[[Any, Any], Any]) -> None:
    haiku = pytest.importorskip("haiku", reason="compares with dm-haiku")
    outs = []
    for library in (haiku, hkx):
        model = library.transform_with_state(lambda x, hk=library: f(hk, x))
        params, state = model.init(KEY, X)
        outs.append((params, state, model.apply(params, state, jax.random.PRNGKey(5), X)))
    assert jax.tree.structure(outs[0]) == jax.tree.structure(outs[1])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *outs)
    same_but_for_rounding(outs[0][:2], outs[1][:2])  # Haiku compiles the branches


@pytest.mark.peer
@pytest.mark.parametrize("name", WITH_HAIKU)
def test_the_same_as_with_haiku(name: str) -> None:
    compare_with_haiku(WITH_HAIKU[name])


LIFTED: dict[str, Callable[[Any, Branch, Any], Any]] = {
    "cond": lambda hk, f, x: hk.cond(x.sum() > 0, f, lambda x: f(x), x),
    "switch": lambda hk, f, x: hk.switch(1, [f, lambda x: f(x)], x),
    "scan": lambda hk, f, x: hk.scan(lambda carry, x: (carry, f(x)), 0, x[None])[1][0],
    "map": lambda hk, f, x: hk.map(f, x[None])[0],
    "fori_loop": lambda hk, f, x: hk.fori_loop(0, 1, lambda _, x: f(x), x),
    "while_loop": lambda hk, f, x: hk.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, x))[1],
}
LIFTED["nested"] = lambda hk, f, x: LIFTED["map"](hk, lambda x: LIFTED["cond"](hk, f, x), x)
LIFTED["remat"] = lambda hk, f, x: hk.remat(lambda x: LIFTED["scan"](hk, f, x))(x)
LIFTED["condition"] = lambda hk, f, x: hk.while_loop(
    lambda c: (c[0] < 1) & (f(c[1]).sum() < jnp.inf), lambda c: (c[0] + 1, f(c[1])), (0, x)
)[1]


@pytest.mark.parametrize("lifted", LIFTED)
def test_a_module_after_a_loop_or_a_branch_has_parameters_of_its_own(lifted: str) -> None:
    # `init` creates them in the loop, unlike in Haiku, and `apply` finds them.
    model = hkx.transform(lambda x: (LIFTED[lifted](hkx, linear(), x), linear()(x), linear(2)(x)))
    params = model.init(KEY, X)
    inside = ["linear", "linear_1"] if lifted == "condition" else ["linear"]  # the body continues after the condition
    names = [f"linear_{n}" for n in range(len(inside), len(inside) + 2)]
    assert list(params) == inside + names
    for name, out in zip([inside[-1], *names], model.apply(params, None, X), strict=True):
        np.testing.assert_allclose(out, dense(params, name, X), rtol=1e-5, atol=1e-6)


@pytest.mark.peer
@pytest.mark.parametrize("lifted", [name for name in LIFTED if name != "condition"])
def test_names_after_it_are_haikus(lifted: str) -> None:
    def f(hk: Any, x: Any) -> Any:
        block = lambda x: hk.nets.MLP([3, 3], name="block")(hk.Linear(3)(x))  # noqa: E731
        if hk.running_init():
            return block(x), x, hk.Linear(4, name="head")(x)
        y = LIFTED[lifted](hk, block, x)
        return y, block(y), hk.Linear(4, name="head")(x)

    compare_with_haiku(f)


LAYERS: dict[str, Branch] = {
    "linear": linear(),
    "two": twice,
    "key": lambda x: hkx.Linear(3)(x) + jax.random.uniform(hkx.next_rng_key()),
    "cond": lambda x: hkx.cond(True, linear(), jnp.negative, x),
    "scan": lambda x: hkx.scan(lambda c, _: (hkx.Linear(3)(c), None), x, None, length=2)[0],
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: jax.jit(f)(1, X),
    "disable_jit": lambda f: jax.disable_jit()(f)(1, X),
}


@pytest.mark.parametrize("way", WAYS)
def test_branches_are_called_twice_in_init_and_once_in_apply(way: str) -> None:
    calls = collections.Counter[str]()

    def counting(name: str) -> Branch:
        return lambda x: [calls.update([name]), LAYERS[name](x)][1]

    model = hkx.transform(lambda i, x: hkx.switch(i, [counting(name) for name in LAYERS], x))
    params = model.init(KEY, 0, X)
    assert calls == dict.fromkeys(LAYERS, 2)
    calls.clear()
    WAYS[way](lambda i, x: model.apply(params, KEY, i, x))
    assert calls == dict.fromkeys(LAYERS, 1)


@pytest.mark.parametrize(
    ("depth", "in_init", "in_apply"),
    [(1, 4, 2), (2, 12, 4), (3, 32, 8), pytest.param(4, 80, 16, marks=pytest.mark.slow)],
)
def test_calls_of_branches_in_branches(depth: int, in_init: int, in_apply: int) -> None:
    calls = []

    def nested(depth: int, name: str) -> Branch:
        if depth == 0:
            return lambda x: [calls.append(name), hkx.Linear(3, name=name)(x)][1]
        inner = [nested(depth - 1, f"{name}{i}") for i in "ab"]
        return lambda x: hkx.cond(x.sum() > 0, *inner, x)

    model = hkx.transform(nested(depth, "l"))
    params = model.init(KEY, X)
    assert (len(params), len(calls)) == (2**depth, in_init)
    calls.clear()
    model.apply(params, None, X)
    assert len(calls) == in_apply


def left(value: Any) -> Branch:
    return lambda x: [hkx.set_state("s", value), x][1]


def asked(*shape: int, init: Any = jnp.zeros, dtype: Any = jnp.float32) -> Branch:
    return lambda x: x + 0 * hkx.get_state("s", shape, dtype, init=init).sum()


STATES: dict[str, tuple[Branch, Branch, str]] = {
    "shapes asked for": (asked(1), asked(2), r"branch 0 creates float32\[1\], branch 1 creates float32\[2\]"),
    "dtypes asked for": (asked(1), asked(1, dtype=jnp.int32), r"branch 0 creates float32\[1\].* int32\[1\]"),
    "numbers": (left(0), left(0.5), r"branch 0 creates int32\[\], branch 1 creates float32\[\]"),
    "arrays": (left(np.zeros(2)), left(np.zeros(3)), r"branch 0 creates float32\[2\], branch 1 creates float32\[3"),
    "set and asked for": (left(np.zeros(2)), asked(3), r"branch 0 creates float32\[2\], branch 1 creates float32\[3"),
    "trees": (left({"a": 0}), left({"b": 0}), r"\['a'\]: branch 0 creates int32\[\], branch 1 creates nothing"),
    "none": (left(None), left(1), r"branch 1 creates int32\[\], branch 0 creates nothing"),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_branches_create_with_other_types(name: str) -> None:
    a, b, message = STATES[name]
    for f in (lambda x: hkx.cond(True, a, b, x), lambda x: hkx.remat(lambda x: hkx.switch(1, [a, b], x))(x)):
        with pytest.raises(hkx.errors.BranchMismatchError, match="'~/s'.*" + message):
            hkx.transform_with_state(f).init(KEY, X)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (asked(1), asked(1)),
        (asked(init=lambda *_: jnp.asarray(0)), asked(init=lambda *_: jnp.asarray(0))),
        (asked(1, init=lambda *_: jnp.zeros(2)), asked(2)),
        (left(np.zeros(2)), asked(init=lambda *_: jnp.zeros(2))),
        (asked(1), lambda x: x + hkx.get_state("s")),
    ],
)
def test_a_state_that_branches_share(a: Branch, b: Branch) -> None:
    model = hkx.transform_with_state(lambda x: hkx.cond(True, a, b, x))
    _, state = model.init(KEY, X)
    assert list(state["~"]) == ["s"]
    np.testing.assert_array_equal(model.apply({}, state, None, X)[0], X)
