"""How often the branches of a `cond` or `switch` are called, and the states that they share."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.PRNGKey(5)
X = jnp.arange(3.0) / 2
Branch = Callable[[Any], Any]

LAYERS: dict[str, Branch] = {
    "linear": lambda x: hkx.Linear(3)(x),
    "negative": lambda x: -hkx.Linear(3)(x),
    "two": lambda x: hkx.Linear(3)(hkx.Linear(3)(x)),
    "no bias": lambda x: hkx.Linear(3, with_bias=False)(x),
    "mlp": lambda x: hkx.nets.MLP([2, 3])(x),
    "named": lambda x: hkx.Linear(3, name="own_1")(x),
    "nothing": lambda x: 2 * x,
    "state": lambda x: hkx.BatchNorm(True, True, 0.9)(x[None], True)[0],
    "key": lambda x: hkx.Linear(3)(x) + jax.random.uniform(hkx.next_rng_key()),
    "scope": lambda x: x * hkx.get_parameter("w", [], init=jnp.ones),
    "cond": lambda x: hkx.cond(True, LAYERS["linear"], LAYERS["mlp"], x),
    "remat": lambda x: hkx.remat(LAYERS["two"])(x),
    "scan": lambda x: hkx.scan(lambda c, _: (hkx.Linear(3)(c), None), x, None, length=2)[0],
}


class Counted:
    """A model with a `switch` between some layers, which counts the calls of each."""

    def __init__(self, *names: str):
        self.calls = collections.Counter[int]()
        self._branches = [self._counting(i, LAYERS[name]) for i, name in enumerate(names)]
        self.model = hkx.transform_with_state(self._run)
        self.params, self.state = self.model.init(KEY, 0, X)
        self.in_init = dict(self.calls)
        self.calls.clear()

    def _counting(self, i: int, layer: Branch) -> Branch:
        def branch(x: Any) -> Any:
            self.calls[i] += 1
            return layer(x)

        branch.__wrapped__ = layer  # type: ignore[attr-defined]
        return branch

    def _run(self, i: Any, x: Any) -> Any:
        y = hkx.switch(i, self._branches, x)
        return y + hkx.Linear(3)(x)

    def apply(self, i: Any, x: Any) -> Any:
        return self.model.apply(self.params, self.state, KEY, i, x)


TOGETHER = [(a, b) for a in LAYERS for b in LAYERS if a != b]


@pytest.mark.parametrize(
    "names",
    [
        *(pytest.param(pair, marks=[] if n % 34 == 0 else pytest.mark.slow) for n, pair in enumerate(TOGETHER)),
        ("linear", "negative", "two"),
        ("linear", "two", "negative", "mlp", "no bias"),
        ("key", "cond", "linear"),
    ],
    ids="+".join,
)
def test_branches_are_called_once_in_apply(names: tuple[str, ...]) -> None:
    counted = Counted(*names)
    counted.apply(1, X)
    assert counted.calls == dict.fromkeys(range(len(names)), 1)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("linear", "negative", "linear"), {0: 2, 1: 2, 2: 2}),
        (("linear", "mlp", "scope", "state", "key"), {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}),
        (("linear", "nothing", "negative", "nothing"), {0: 2, 1: 2, 2: 2, 3: 2}),
        (("linear", "two"), {0: 2, 1: 3}),  # up to its second layer it is like the first branch
    ],
    ids=lambda x: "",
)
def test_init_calls_a_branch_to_create_and_to_run(names: tuple[str, ...], expected: dict[int, int]) -> None:
    assert Counted(*names).in_init == expected


def test_branches_of_a_function_that_never_ran_init_are_called_once() -> None:
    calls = collections.Counter[str]()

    def counted(name: str) -> Branch:
        return lambda x: [calls.update([name]), LAYERS[name](x)][1]

    names = ["linear", "mlp", "negative", "scope"]
    model = hkx.transform(lambda i, x: hkx.switch(i, [counted(name) for name in names], x))
    linear = {"w": np.full((3, 3), 2.0, np.float32), "b": np.ones(3, np.float32)}
    first, second = ({"w": np.full((3, 2), 3.0), "b": np.zeros(2)}, {"w": np.full((2, 3), 5.0), "b": np.zeros(3)})
    layers = {"linear": linear, "mlp/~/linear_0": first, "mlp/~/linear_1": second, "~": {"w": np.float64(7.0)}}
    params = jax.tree.map(np.float32, layers)
    outs = [model.apply(params, None, i, X) for i in range(4)]
    x = np.asarray(X)
    hidden = np.maximum(x @ first["w"], 0) @ second["w"]
    expected = [x @ linear["w"] + 1, hidden, -x @ linear["w"] - 1, 7 * x]
    for out, value in zip(outs, expected, strict=True):
        np.testing.assert_allclose(out, value, rtol=1e-6)
    assert calls == dict.fromkeys(names, 4)


WAYS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: jax.jit(f)(1, X),
    "grad": lambda f: jax.grad(lambda x: f(1, x)[0].sum())(X),
    "vmap": lambda f: jax.vmap(f)(jnp.arange(2), jnp.stack([X, X])),
    "disable_jit": lambda f: jax.disable_jit()(f)(1, X),
}


@pytest.mark.parametrize("way", WAYS)
def test_branches_are_called_once_under(way: str) -> None:
    counted = Counted("linear", "two", "key", "no bias")
    WAYS[way](counted.apply)
    assert counted.calls == dict.fromkeys(range(4), 1)


def test_branches_whose_parameters_were_made_beforehand_are_called_once_the_second_time() -> None:
    calls = []

    def two(x: Any) -> Any:
        calls.append(1)
        return LAYERS["two"](x)

    def f(x: Any) -> Any:
        return LAYERS["two"](x) if hkx.running_init() else hkx.cond(True, LAYERS["linear"], two, x)

    model = hkx.transform(f)
    params = model.init(KEY, X)
    first = model.apply(params, None, X)
    calls.clear()
    np.testing.assert_array_equal(model.apply(params, None, X), first)
    assert len(calls) == 1


class Scale(hkx.Module):
    def __call__(self, x: Any, n: int) -> Any:
        for name in ("w", "v")[: 1 + (n > 3)]:
            x = x * hkx.get_parameter(name, [], init=jnp.ones)
        return x


@pytest.mark.slow
def test_what_was_found_of_branches_is_not_believed_where_it_does_not_hold() -> None:
    # One place, and the same code: only what the branches ask for tells these programs apart.
    def program(a: int, b: int) -> Any:
        def f(i: Any, x: Any) -> Any:
            y = hkx.switch(i, [lambda x, n=n: [x := Scale()(x, n) for _ in range(n)][-1] for n in (a, b)], x)
            return Scale()(y, 1)

        return hkx.transform(f)

    cases = [(1, 2), (1, 1), (2, 1), (1, 4), (2, 2)]
    params = [jax.tree.map(np.float32, program(*case).init(KEY, 0, 1.0)) for case in cases]
    for (a, b), given in [*zip(cases, params, strict=True)][::-1]:
        shares = a == b
        names = ["scale", *(f"scale_{n}" for n in range(1, a + (0 if shares else b) + 1))]
        assert list(given) == names
        primes = dict(zip(names, [2, 3, 5, 7, 11, 13], strict=False))
        given = {
            name: {"w": np.float32(primes[name]), **({"v": np.float32(1)} if "v" in given[name] else {})}
            for name in names
        }
        for i in (0, 1):
            through = names[:a] if i == 0 or shares else names[a:-1]
            expected = np.prod([primes[name] for name in [*through, names[-1]]])
            assert program(a, b).apply(given, None, i, 1.0) == expected


def left(value: Any) -> Branch:
    return lambda x: [hkx.set_state("s", value), x][1]


def asked(*shape: int, init: Any = jnp.zeros, dtype: Any = jnp.float32) -> Branch:
    return lambda x: x + 0 * hkx.get_state("s", shape, dtype, init=init).sum()


STATES: dict[str, tuple[Branch, Branch, str]] = {
    "shapes asked for": (asked(1), asked(2), r"'~/s': branch 0 makes float32\[1\], branch 1 makes float32\[2\]"),
    "dtypes asked for": (asked(1), asked(1, dtype=jnp.int32), r"'~/s': branch 0 makes float32\[1\].* int32\[1\]"),
    "numbers": (left(0), left(0.5), r"'~/s': branch 0 leaves int32\[\], branch 1 leaves float32\[\]"),
    "arrays": (
        left(np.zeros(2)),
        left(np.zeros(3)),
        r"'~/s': branch 0 leaves float32\[2\], branch 1 leaves float32\[3",
    ),
    "set and asked for": (
        left(np.zeros(2)),
        asked(3),
        r"'~/s': branch 0 makes float32\[2\], branch 1 makes float32\[3",
    ),
    "trees": (left({"a": 0}), left({"b": 0}), r"'~/s'\['a'\]: branch 0 leaves int32\[\], branch 1 leaves nothing"),
    "none": (left(None), left(1), r"'~/s': branch 1 leaves int32\[\], branch 0 leaves nothing"),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_branches_make_in_different_ways(name: str) -> None:
    a, b, message = STATES[name]
    for model in (
        hkx.transform_with_state(lambda x: hkx.cond(True, a, b, x)),
        hkx.transform_with_state(lambda x: hkx.remat(lambda x: hkx.switch(1, [a, b], x))(x)),
    ):
        with pytest.raises(hkx.errors.BranchMismatchError, match=message):
            model.init(KEY, X)


def test_a_state_that_branches_find_with_another_value() -> None:
    model = hkx.transform_with_state(lambda x: hkx.cond(True, left(np.zeros(2)), left(np.zeros(3)), x))
    with pytest.raises(hkx.errors.BranchMismatchError, match="'~/s': branch 0 leaves"):
        model.apply({}, {"~": {"s": jnp.zeros(1)}}, None, X)


def test_results_of_branches_that_are_numbers() -> None:
    model = hkx.transform(lambda x: hkx.cond(True, lambda x: 0, lambda x: 0.5, x))
    with pytest.raises(
        hkx.errors.BranchMismatchError, match=r"branch 0 returns int32\[\], branch 1 returns float32\[\]"
    ):
        model.init(KEY, X)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (asked(1), asked(1)),
        (asked(init=lambda *_: jnp.asarray(0)), asked(init=lambda *_: jnp.asarray(0))),
        (asked(1, init=lambda *_: jnp.zeros(2)), asked(2)),
        (asked(2), asked(1, init=lambda *_: jnp.zeros(2))),
        (left(np.zeros(2)), asked(init=lambda *_: jnp.zeros(2))),
        (asked(1), lambda x: x + hkx.get_state("s")),
    ],
)
def test_a_state_that_branches_make_alike(a: Branch, b: Branch) -> None:
    model = hkx.transform_with_state(lambda x: hkx.cond(True, a, b, x))
    _, state = model.init(KEY, X)
    assert list(state["~"]) == ["s"]
    np.testing.assert_array_equal(model.apply({}, state, None, X)[0], X)
