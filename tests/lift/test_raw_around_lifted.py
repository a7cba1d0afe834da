"""A function of hkx inside a raw JAX transform: what is right works, and what would be lost or leak is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.errors import KeyInInnerTraceError, ParameterInInnerTraceError, StateInInnerTraceError

pytestmark = pytest.mark.unoptimised

KEY = jax.random.PRNGKey(0)
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
F = Callable[..., Any]


def mapped(f: F) -> F:
    """Called once for all rows: what does not depend on the rows is the same for all."""
    return lambda x: jax.vmap(f)(x)


PASSING = {
    "vmap": mapped,
    "grad": lambda f: lambda x: jax.grad(lambda x: f(x).sum())(x),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](x)[0],
    "vmap of grad": lambda f: jax.vmap(jax.grad(lambda x: f(x).sum())),
}
RECORDING = {
    "jit": lambda f: lambda x: jax.jit(f)(x),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0],
    "cond": lambda f: lambda x: jax.lax.cond(True, f, lambda x: x, x),
    "remat": lambda f: lambda x: jax.checkpoint(f)(x),
    "jit in vmap": lambda f: lambda x: jax.vmap(jax.jit(f))(x),
}


def loop(f: F) -> F:
    return lambda x: hkx.scan(lambda c, _: (f(c), None), x, None, length=3)[0]


LIFTED = {
    "scan": loop,
    "fori_loop": lambda f: lambda x: hkx.fori_loop(0, 3, lambda _, c: f(c), x),
    "cond": lambda f: lambda x: hkx.cond(True, f, f, x),
    "remat": hkx.remat,
    "jit": hkx.jit,
    "purify": lambda f: lambda x: through_purify(f, x),
}


def through_purify(f: F, x: Any) -> Any:
    pure = hkx.purify(f)
    y, carry = pure(pure.start(x), x)
    pure.finish(carry)
    return y


def drawn(key: Any) -> Any:
    """The key itself as a number between 1 and 2: what a distribution makes of it takes far longer to compile."""
    return 1 + key[0].astype(np.float32) * np.float32(2**-32)


def noisy(x: Any) -> Any:
    return x * drawn(hkx.next_rng_key())


def with_each(raw: list[str], names: list[str]) -> Any:
    """Each lifted function in the first of the raw transforms, and the first function in each of them."""
    pairs = dict.fromkeys([*((name, raw[0]) for name in names), *((names[0], r) for r in raw)])
    return pytest.mark.parametrize(("name", "raw"), list(pairs))


@with_each([*PASSING], [*LIFTED])
def test_keys_go_on_after_a_passing_trace(name: str, raw: str) -> None:
    """As the same program without the raw transform draws them."""

    def program(around: F) -> F:
        def f(x: Any) -> Any:
            first = around(LIFTED[name](noisy))(x)
            return first, hkx.next_rng_key()

        return f

    first, after = hkx.transform(program(PASSING[raw])).apply({}, KEY, X)
    _, expected = hkx.transform(program(lambda f: f)).apply({}, KEY, X)
    np.testing.assert_array_equal(after, expected)
    assert np.isfinite(first).all()
    hkx.transform(program(PASSING[raw])).init(KEY, X)


@with_each([*RECORDING], [*LIFTED])
def test_keys_drawn_in_a_recording_trace(name: str, raw: str) -> None:
    """Also where the function of hkx is traced by itself, and no key is drawn later."""
    f = hkx.transform(RECORDING[raw](LIFTED[name](noisy)))
    with pytest.raises(KeyInInnerTraceError):
        f.apply({}, KEY, X)


@with_each([*RECORDING], [*LIFTED, "layer_stack"])
def test_what_draws_no_key_works_in_a_recording_trace(name: str, raw: str) -> None:
    def f(x: Any, around: F = RECORDING[raw]) -> Any:
        def layer(x: Any) -> Any:
            return jnp.tanh(hkx.Linear(3)(x))

        function = hkx.layer_stack(3)(layer) if name == "layer_stack" else LIFTED[name](layer)
        return (function if hkx.running_init() else around(function))(x)

    model = hkx.transform(f)
    params = model.init(KEY, X)
    y = model.apply(params, KEY, X)
    times = 3 if raw == "scan" else 1
    expected = X
    for _ in range(times):
        expected = model.apply(params, KEY, expected, lambda f: f)
    np.testing.assert_allclose(y, expected, atol=1e-6)


def counts(x: Any) -> Any:
    hkx.set_state("n", x.sum())
    return x


def through_updater(x: Any) -> Any:
    inner = hkx.transform_with_state(counts)
    lifted, updater = hkx.lift_with_state(inner.init, name="inner", allow_reuse=True)
    params, state = lifted(None, x)
    y, state = inner.apply(params, state, None, x)
    updater.update(state)
    return y


SETTING = {
    "grad": lambda x: hkx.grad(lambda x: counts(x).sum())(x),
    "vmap": lambda x: hkx.vmap(lambda _: counts(x), split_rng=False)(jnp.zeros(2)).sum(0),
    "lift_with_state": through_updater,
    "layer_stack": lambda x: hkx.layer_stack(2)(counts)(x),
    **{name: (lambda x, lifted=lifted: lifted(counts)(x)) for name, lifted in LIFTED.items()},
}


@with_each(["vmap", "grad", *RECORDING], [*SETTING])
def test_state_set_in_a_raw_transform(name: str, raw: str) -> None:
    model = hkx.transform_with_state({**RECORDING, **PASSING}[raw](SETTING[name]))
    _, state = hkx.transform_with_state(SETTING[name]).init(KEY, X[0])
    for run in (lambda: model.init(None, X), lambda: model.apply({}, state, None, X)):
        with pytest.raises((StateInInnerTraceError, ParameterInInnerTraceError), match=r"/n'|__layer"):
            run()


@pytest.mark.parametrize("raw", RECORDING)
@pytest.mark.parametrize("lift", [hkx.lift, hkx.transparent_lift])
def test_parameters_lifted_in_a_recording_trace(lift: Any, raw: str) -> None:
    inner = hkx.transform(lambda x: hkx.Linear(3)(x))

    def f(x: Any) -> Any:
        return inner.apply(lift(inner.init, allow_reuse=True)(KEY, x), None, x)

    with pytest.raises(ParameterInInnerTraceError, match="linear/"):
        hkx.transform(RECORDING[raw](f)).init(KEY, X)


@pytest.mark.peer
@pytest.mark.parametrize("raw", PASSING)
def test_loops_in_passing_traces_are_as_with_haiku(raw: str) -> None:
    hk = pytest.importorskip("haiku")

    def program(library: Any) -> F:
        def f(x: Any) -> Any:
            core = library.Linear(3)

            def body(c: Any, _: Any) -> Any:
                return jnp.tanh(core(c)) * drawn(library.next_rng_key()), None

            y = PASSING[raw](lambda x: library.scan(body, x, None, length=3)[0])(x)
            return y, library.Linear(2)(y), library.next_rng_key()

        return f

    ours, theirs = hkx.transform(program(hkx)), hk.transform(program(hk))
    params, expected = ours.init(KEY, X), theirs.init(KEY, X)
    jax.tree.map(np.testing.assert_array_equal, params, expected)
    out = zip(ours.apply(params, KEY, X), theirs.apply(expected, KEY, X), strict=True)
    for a, b in out:
        np.testing.assert_allclose(a, b, atol=1e-6)


def averaging(steps):
    """A function that averages rows, and whose state therefore varies between devices."""
    return lambda x: steps(hkx.ExponentialMovingAverage(0.5, zero_debias=False), x)


WITH_STATE = {
    "scan": (lambda ema, x: hkx.scan(lambda c, row: (c, ema(row)), 0, x)[1], lambda x: x),
    "map": (lambda ema, x: hkx.map(ema, x), lambda x: x),
    "fori_loop": (lambda ema, x: hkx.fori_loop(0, 3, lambda i, c: c + ema(x[i]), x[0]), lambda x: x),
    "while_loop": (
        lambda ema, x: hkx.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + ema(x[c[0]])), (0, x[0])),
        lambda x: x,
    ),
    "cond": (lambda ema, x: hkx.cond(x.sum() > 0, ema, lambda row: row, x[0]), lambda x: x[:1] if x.sum() > 0 else []),
    "switch": (lambda ema, x: hkx.switch(1, [lambda row: row, ema], x[0]), lambda x: x[:1]),
    "a branch in a loop": (
        lambda ema, x: hkx.scan(lambda c, row: (c, hkx.cond(row.sum() > 0, ema, lambda row: row, row)), 0, x)[1],
        lambda x: [row for row in x if row.sum() > 0],
    ),
}


@pytest.mark.eight_devices
@pytest.mark.parametrize("name", WITH_STATE)
def test_a_state_that_begins_to_vary_between_devices_in_a_loop_or_branch(name: str) -> None:
    steps, averaged = WITH_STATE[name]
    model = hkx.without_apply_rng(hkx.transform_with_state(averaging(steps)))
    x = np.random.default_rng(3).normal(size=[6, 2]).astype(np.float32)
    x[0] = np.abs(x[0])
    x[3] = -np.abs(x[3])
    state = jax.tree.map(jnp.zeros_like, model.init(None, jnp.asarray(x[:3]))[1])
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def last(state: Any, x: Any) -> Any:
        return model.apply({}, state, x)[1]["exponential_moving_average"]["hidden"][None]

    hidden = jax.jit(jax.shard_map(last, mesh=mesh, in_specs=(jax.P(), jax.P("d")), out_specs=jax.P("d")))(state, x)
    for part, result in zip((x[:3], x[3:]), hidden, strict=True):
        expected = np.zeros(2)
        for row in averaged(part):
            expected = 0.5 * expected + 0.5 * row
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.eight_devices
@pytest.mark.parametrize("stacked", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_loop_whose_parameters_vary_between_devices_and_its_first_value_does_not(stacked: bool) -> None:
    def layer(x: Any) -> Any:
        return x @ hkx.get_parameter("w", [2, 2], init=hkx.initializers.RandomUniform(-1, 1))

    model = hkx.transform(
        hkx.layer_stack(2)(layer) if stacked else lambda x: hkx.fori_loop(0, 2, lambda _, x: layer(x), x)
    )
    x, keys = jnp.array([1.0, -2.0]), jax.random.split(jax.random.key(4), 2)
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def member(keys: Any) -> Any:
        params = model.init(keys[0], x)
        return jax.tree.map(lambda a: a[None], (*jax.tree.leaves(params), model.apply(params, None, x)))

    weights, out = jax.jit(jax.shard_map(member, mesh=mesh, in_specs=jax.P("d"), out_specs=jax.P("d")))(keys)
    assert not np.allclose(weights[0], weights[1])
    for w, result in zip(np.broadcast_to(np.reshape(weights, [2, -1, 2, 2]), [2, 2, 2, 2]), out, strict=True):
        np.testing.assert_allclose(result, np.asarray(x) @ w[0] @ w[1], rtol=1e-5, atol=1e-6)


@pytest.mark.eight_devices
def test_the_gradient_of_a_branch_that_some_devices_take_waits_for_no_others() -> None:
    def f(x: Any) -> Any:
        weigh = lambda x: x * hkx.get_parameter("w", [1, 2], init=jnp.ones)  # noqa: E731
        return hkx.cond(x.sum() > 0, weigh, lambda x: x, x)

    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    model = hkx.without_apply_rng(hkx.transform(f))
    each = jax.shard_map(model.apply, mesh=mesh, in_specs=(jax.P(), jax.P("d")), out_specs=jax.P("d"))
    x = jnp.array([[1.0, 2.0], [-3.0, -4.0]])
    gradient = jax.jit(jax.grad(lambda params: each(params, x).sum()))
    params = {"~": {"w": jnp.ones([1, 2])}}
    branches = re.findall(r"branches=\(\n(.*?)\n +\)\n", str(jax.make_jaxpr(gradient)(params)), re.DOTALL)
    assert len(branches) == 2  # forwards and backwards
    assert not any("psum" in text for text in branches)  # else it never ends
    np.testing.assert_array_equal(gradient(params)["~"]["w"], [[1.0, 2.0]])
