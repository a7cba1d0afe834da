"""Which modules the branches of one `cond` or `switch` share."""

from __future__ import annotations

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


def linear(size: int, **options: Any) -> Callable[[Any], Any]:
    return lambda x: hkx.Linear(size, **options)(x)


def dense(params: Any, name: str, x: Any) -> Any:
    return np.asarray(x) @ np.asarray(params[name]["w"]) + np.asarray(params[name].get("b", 0.0))


def check(f: Any, expected: dict[str, Any], shapes: dict[str, Any], index: Any, eager: bool = False) -> None:
    model = hkx.transform(f)
    params = model.init(KEY, 0, X)
    assert jax.tree.map(jnp.shape, params) == shapes
    with jax.disable_jit(eager):
        out = model.apply(params, None, index, X)
    np.testing.assert_allclose(out, expected[index](params), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_branches_that_ask_for_the_same_share_it_and_others_do_not(index: int, eager: bool) -> None:
    # All layers have one shape, so that a wrong name would be a wrong number and no error.
    def f(i: Any, x: Any) -> Any:
        branches = [linear(3), lambda x: -hkx.Linear(3)(x), lambda x: hkx.Linear(3)(hkx.Linear(3)(x))]
        y = hkx.switch(i, branches, x)
        return hkx.Linear(3)(y)

    shape = {"w": (3, 3), "b": (3,)}
    names = ["linear", "linear_1", "linear_2", "linear_3"]
    last = lambda p, y: dense(p, "linear_3", y)  # noqa: E731
    expected = {
        0: lambda p: last(p, dense(p, "linear", X)),
        1: lambda p: last(p, -dense(p, "linear", X)),
        2: lambda p: last(p, dense(p, "linear_1", dense(p, "linear_2", X))),
    }
    check(f, expected, dict.fromkeys(names, shape), index, eager)


@pytest.mark.parametrize("index", [0, 1])
def test_branches_whose_parameters_differ_share_none_of_them(index: int) -> None:
    def f(i: Any, x: Any) -> Any:
        return hkx.switch(i, [linear(3), linear(3, with_bias=False)], x)

    expected = {i: lambda p, name=name: dense(p, name, X) for i, name in enumerate(["linear", "linear_1"])}
    check(f, expected, {"linear": {"w": (3, 3), "b": (3,)}, "linear_1": {"w": (3, 3)}}, index)


@pytest.mark.parametrize("index", [0, 1])
def test_branches_in_branches(index: int) -> None:
    def f(i: Any, x: Any) -> Any:
        inner = lambda x: hkx.cond(i == 0, linear(3), lambda x: 2 * hkx.Linear(3)(x), x)  # noqa: E731
        deeper = lambda x: hkx.Linear(3)(inner(x))  # noqa: E731
        return hkx.cond(i == 0, deeper, lambda x: -deeper(x), x) + hkx.cond(i == 0, inner, deeper, x)

    p = lambda p, name, sign=1: sign * dense(p, name, X)  # noqa: E731
    expected = {
        0: lambda q: dense(q, "linear", p(q, "linear_1")) + p(q, "linear_2"),
        1: lambda q: -dense(q, "linear", p(q, "linear_1", 2)) + dense(q, "linear_3", p(q, "linear_4", 2)),
    }
    names = ["linear", "linear_1", "linear_2", "linear_3", "linear_4"]
    check(f, expected, {name: {"w": (3, 3), "b": (3,)} for name in names}, index)


def test_numbers_of_a_branch_go_on_after_a_number_that_an_earlier_branch_has_given() -> None:
    def in_a_row(x: Any) -> Any:
        y = hkx.Linear(3, name="a_3")(x)
        return y + hkx.Linear(3, name="a")(x)

    def in_branches(x: Any) -> Any:
        return hkx.cond(x[0] > 0, lambda: hkx.Linear(3, name="a_3")(x), lambda: hkx.Linear(3, name="a")(x))

    in_order, made = (list(hkx.transform(f).init(0, jnp.ones(2))) for f in (in_a_row, in_branches))
    assert made == in_order == ["a_3", "a_4"]


def test_a_state_that_only_one_branch_has_keeps_them_apart() -> None:
    class Counted(hkx.Module):
        def __init__(self, counts: bool):
            super().__init__(name="layer")
            self.counts = counts

        def __call__(self, x: Any) -> Any:
            n = hkx.get_state("n", [], init=jnp.zeros) if self.counts else 0.0
            return x * hkx.get_parameter("w", [], init=hkx.initializers.RandomNormal()) + n

    def f(p: Any, x: Any) -> Any:
        return hkx.cond(p, lambda x: Counted(False)(x), lambda x: Counted(True)(x), x)

    params, state = hkx.transform_with_state(f).init(KEY, True, X)
    assert sorted(params) == ["layer", "layer_1"]
    assert list(state) == ["layer_1"]


PROGRAMS = {
    "cond": lambda hk, x: hk.cond(x.sum() < 0, lambda x: hk.Linear(2)(x), lambda x: -hk.Linear(2)(x), x),
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
    "switch": lambda hk, x: hk.switch(
        jnp.asarray(2), [lambda x, s=s: s * hk.nets.MLP([3, 2])(x) for s in (1.0, 2.0, -1.0)], x
    ),
    "state": lambda hk, x: hk.cond(
        x.sum() < 0,
        lambda x: hk.BatchNorm(True, True, 0.9)(x, True),
        lambda x: -hk.BatchNorm(True, True, 0.9)(x, True),
        x[None],
    ),
    "nested": lambda hk, x: hk.cond(
        x.sum() < 0,
        lambda x: hk.cond(True, lambda x: hk.Linear(2)(x), lambda x: -hk.Linear(2)(x), x),
        lambda x: hk.cond(False, lambda x: hk.Linear(2)(x) + 1, lambda x: -hk.Linear(2)(x), x),
        x,
    ),
    "made_beforehand": lambda hk, x: (
        hk.Linear(2)(x)
        if hk.running_init()
        else hk.cond(x.sum() < 0, lambda x: hk.Linear(2)(x), lambda x: -hk.Linear(2)(x), x)
    ),
    "made_by_the_larger_one": lambda hk, x: (
        hk.Linear(3)(hk.Linear(3)(x))
        if hk.running_init()
        else hk.cond(x.sum() < 0, lambda x: hk.Linear(3)(x), lambda x: hk.Linear(3)(hk.Linear(3)(x)), x)
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_with_haiku(name: str) -> None:
    haiku = pytest.importorskip("haiku", reason="compares with dm-haiku")
    outs = []
    for library in (haiku, hkx):
        model = library.transform_with_state(lambda x, hk=library: PROGRAMS[name](hk, x))
        params, state = model.init(KEY, X)
        outs.append((params, state, model.apply(params, state, jax.random.PRNGKey(5), X)))
    assert jax.tree.structure(outs[0]) == jax.tree.structure(outs[1])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *outs)
    same_but_for_rounding(outs[0][:2], outs[1][:2])  # Haiku compiles the branches


def test_a_function_purified_before_a_branch_goes_its_own_way() -> None:
    def own(x: Any) -> Any:
        pure = hkx.purify(linear(3))
        x = x * hkx.get_parameter("w", [3], init=jnp.ones)
        y, carry = pure(pure.start(x), x)
        pure.finish(carry)
        return y

    params = hkx.transform(lambda x: hkx.cond(True, linear(3), own, x)).init(KEY, X)
    assert sorted(params) == ["linear", "linear_1", "~"]


def test_a_branch_that_is_run_a_second_time_for_its_values_keeps_its_names() -> None:
    buffer = np.zeros(3, np.float32)

    def own(x: Any) -> Any:
        buffer[:] = 2.0
        x = x * hkx.get_parameter("w", [3], init=lambda shape, dtype: jnp.asarray(buffer))
        buffer[:] = 5.0
        return hkx.Linear(3)(x)

    def f(x: Any) -> Any:
        scale = float(x.sum())  # so that `init` is run with values
        return scale * hkx.cond(True, linear(3), own, x)

    params = hkx.transform(f).init(KEY, X)
    assert sorted(params) == ["linear", "linear_1", "~"]
    np.testing.assert_array_equal(params["~"]["w"], np.full(3, 2.0))


AFTER: dict[str, Callable[[Any, Any], Any]] = {
    "cond": lambda f, x: hkx.cond(x.sum() > 0, f, f, x),
    "switch": lambda f, x: hkx.switch(1, [f, f], x),
    "scan": lambda f, x: hkx.scan(lambda carry, x: (carry, f(x)), 0, x[None])[1][0],
    "map": lambda f, x: hkx.map(f, x[None])[0],
    "fori_loop": lambda f, x: hkx.fori_loop(0, 1, lambda _, x: f(x), x),
    "while_loop": lambda f, x: hkx.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, x))[1],
}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("lifted", AFTER.values(), ids=AFTER)
def test_a_module_after_a_loop_or_a_branch_has_parameters_of_its_own(lifted: Any, guarded: bool) -> None:
    def f(x: Any) -> Any:
        by_hand = guarded and hkx.running_init()  # as programs for Haiku have it
        return (linear(3)(x) if by_hand else lifted(linear(3), x)), linear(3)(x)

    model = hkx.transform(f)
    params = model.init(KEY, X)
    assert list(params) == ["linear", "linear_1"]
    for name, out in zip(params, model.apply(params, None, X), strict=True):
        np.testing.assert_allclose(out, dense(params, name, X), rtol=1e-5, atol=1e-6)
