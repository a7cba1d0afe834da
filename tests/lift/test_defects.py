"""Bodies of loops, branches and wrapped functions: their trees, names, states, bounds, and how often they are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.PRNGKey(7)
X = jnp.arange(3.0) / 2


def eat(tree: Any) -> Any:
    """`x * i`, of a tree that is taken apart."""
    out = tree.pop("x") * tree["in"].pop("i")
    tree.clear()
    return out


def tree(x: Any = X) -> dict[str, Any]:
    return {"x": x, "in": {"i": jnp.asarray(2.0)}}


def step(t: Any) -> Any:
    i = t["in"]["i"]
    return {"in": {"i": i}, "x": eat(t)}


def custom(kind: str) -> Any:
    if kind == "vjp":
        f = hkx.custom_vjp(eat)
        f.defvjp(lambda t: (eat(t), 0), lambda _, g: ({"x": g * 2, "in": {"i": jnp.zeros(())}},))
        return f
    g = hkx.custom_jvp(eat)
    g.defjvp(lambda primals, tangents: (eat(primals[0]), 2 * eat(tangents[0])))
    return g


def purified(t: Any) -> Any:
    pure = hkx.purify(eat)
    carry = pure.start(t)
    first, carry = pure(carry, t)
    second, carry = pure(carry, t)
    pure.finish(carry)
    return (first + second) / 2


def stacked(t: Any) -> Any:
    return hkx.layer_stack(2, with_per_layer_inputs=True)(
        lambda t, u: (step(t), eat(u)),  # type: ignore[misc]
    )(t, jax.tree.map(lambda a: jnp.stack([a, a]), t))[0]["x"]


# What each makes of a tree; `eat` doubles x, so most double it, and loops of n rounds n times.
EATERS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "scan": (lambda t: hkx.scan(lambda t, _: (step(t), None), t, None, length=2)[0]["x"], 4),
    "scan, parameters of its own": (
        lambda t: hkx.scan(lambda t, _: (step(t), None), t, None, length=2, param_axes=0)[0]["x"],
        4,
    ),
    "while_loop": (
        lambda t: hkx.while_loop(
            lambda v: v.pop("n") < 2, lambda v: {"n": v.pop("n") + 1, "t": step(v.pop("t"))}, {"n": 0, "t": t}
        )["t"]["x"],
        4,
    ),
    "associative_scan": (
        lambda t: hkx.associative_scan(lambda a, b: {"x": a.pop("x") + b.pop("x")}, {"x": jnp.stack([t["x"]] * 2)})[
            "x"
        ][1],
        2,
    ),
    "cond": (lambda t: hkx.cond(True, eat, lambda t: -eat(t), t), 2),
    "cond, older form": (lambda t: hkx.cond(True, t, eat, t, lambda t: -eat(t)), 2),
    "cond, older form by name": (
        lambda t: hkx.cond(
            False, true_operand=t, true_fun=lambda t: -eat(t), false_operand=dict(t), false_fun=lambda t: 2 * eat(t) / 2
        ),
        2,
    ),
    "vmap": (lambda t: hkx.vmap(eat, in_axes=None, axis_size=2, split_rng=True)(t)[1], 2),
    "grad": (lambda t: hkx.grad(lambda x, t: x * eat(t).sum())(1.0, t) * X / X.sum(), 2),
    "jvp": (lambda t: hkx.jvp(eat, (t,), (t,))[0], 2),
    "remat": (lambda t: hkx.remat(eat)(t), 2),
    "jit": (lambda t: hkx.jit(eat)(t), 2),
    "custom_vjp": (lambda t: custom("vjp")(t), 2),
    "layer_stack, inputs": (stacked, 4),
    "purify": (purified, 2),
}


@pytest.mark.parametrize("name", EATERS)
def test_a_body_that_takes_its_argument_apart(name: str) -> None:
    f, factor = EATERS[name]

    def g(x: Any) -> Any:
        given = tree(x)
        w = hkx.get_parameter("w", [], init=jnp.ones)
        outs = f(given), f(given)
        assert jax.tree.structure(given) == jax.tree.structure(tree(x))
        return w * (outs[0] + outs[1]) / 2

    model = hkx.transform(g)
    out = model.apply(model.init(KEY, X), KEY, X)
    np.testing.assert_allclose(out, factor * X, rtol=1e-6)


SCOPED: dict[str, Callable[[Any, Any], Any]] = {
    "remat": lambda g, x: hkx.remat(g)(x),
    "jit": lambda g, x: hkx.jit(g)(x),
    "grad": lambda g, x: hkx.grad(lambda x: g(x).sum())(x),
    "vmap": lambda g, x: hkx.vmap(g, split_rng=True)(x[None])[0],
    "scan": lambda g, x: hkx.scan(lambda c, _: (g(c), None), x, None, length=3)[0],
    "while_loop": lambda g, x: hkx.while_loop(lambda v: v[0] < 2, lambda v: (v[0] + 1, g(v[1])), (0, x))[1],
    "cond": lambda g, x: hkx.cond(True, g, lambda x: x, x),
    "switch": lambda g, x: hkx.switch(1, [g, lambda x: -g(x)], x),
    "custom_jvp": lambda g, x: hkx.custom_jvp(g)(x),
    "purify": lambda g, x: hkx.purify(g).start(x) and x,
}


@pytest.mark.parametrize("name", SCOPED)
def test_a_name_scope_made_outside_is_entered_inside(name: str) -> None:
    def f(x: Any) -> Any:
        scope = hkx.name_scope("s")

        def g(x: Any) -> Any:
            with scope:
                return hkx.Linear(3)(x)

        y = SCOPED[name](g, x)
        if name not in ("grad", "vmap", "purify"):  # these leave names free
            with pytest.raises(hkx.errors.UsedScopeError), scope:
                pass
        return hkx.Linear(2)(y)

    assert list(hkx.transform(f).init(KEY, X)) == ["s/linear", "linear"]


@pytest.mark.parametrize("name", ["remat", "jit", "grad", "cond"])
def test_keys_of_another_sequence_are_drawn_where_it_is_entered(name: str) -> None:
    key = jax.random.PRNGKey(11)

    def f(x: Any) -> Any:
        other = hkx.with_rng(key)

        def g(x: Any) -> Any:
            with other:
                return x * jax.random.uniform(hkx.next_rng_key())

        if name == "cond":
            return hkx.cond(True, g, lambda x: x, x)
        return SCOPED[name](g, x) * (X if name == "grad" else 1.0)

    out = hkx.transform(f).apply({}, KEY, X)
    np.testing.assert_allclose(out, X * jax.random.uniform(jax.random.split(key)[1]), rtol=1e-6)


def test_names_in_vmap_do_not_depend_on_how_sharing_is_said() -> None:
    def f(x: Any, **axes: Any) -> Any:
        for _ in range(2):
            x = hkx.vmap(lambda x: hkx.dropout(hkx.next_rng_key(), 0.5, hkx.Linear(3)(x)), split_rng=False, **axes)(x)
        return hkx.Linear(3)(x)

    x = jnp.ones((4, 3))
    expected = hkx.transform(f).init(KEY, x)
    assert list(expected) == ["linear"]
    out = hkx.transform(f).apply(expected, KEY, x)
    none = lambda module, name: None  # noqa: E731
    for axes in ({"param_axes": none}, {"state_axes": none}, {"param_axes": none, "state_axes": none}):
        params = hkx.transform(f).init(KEY, x, **axes)
        jax.tree.map(np.testing.assert_array_equal, params, expected)
        np.testing.assert_array_equal(hkx.transform(f).apply(params, KEY, x, **axes), out)
    own = lambda module, name: 0 if name == "b" else None  # noqa: E731
    assert list(hkx.transform(f).init(KEY, x, param_axes=own)) == ["linear", "linear_1", "linear_2"]


def test_calls_with_their_own_parameters_draw_the_same_keys_unless_they_are_split() -> None:
    def f(x: Any, split: bool) -> Any:
        draw = lambda x: hkx.Linear(1)(x) * 0 + jax.random.uniform(hkx.next_rng_key())  # noqa: E731
        return hkx.vmap(draw, split_rng=split, param_axes=0)(x)

    model = hkx.transform(f)
    params = model.init(KEY, jnp.ones((3, 2)), False)
    assert len(np.unique(model.apply(params, KEY, jnp.ones((3, 2)), False))) == 1
    assert len(np.unique(model.apply(params, KEY, jnp.ones((3, 2)), True))) == 3


def linear(x: Any) -> Any:
    return hkx.Linear(3)(x)


THREE = (np.asarray(3), np.int8(3), jnp.asarray(3), jnp.asarray(3, jnp.int16))
AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda loop, x: loop(x),
    "scan": lambda loop, x: hkx.scan(lambda c, _: (loop(c), None), x, None, length=2)[0],
    "cond": lambda loop, x: hkx.cond(x.sum() > 0, loop, lambda x: -x, x),
    "layer_stack": lambda loop, x: hkx.layer_stack(2)(loop)(x),
}


@pytest.mark.parametrize("around", AROUND)
def test_a_bound_that_is_a_constant_array_is_known(around: str) -> None:
    def init(lower: Any, upper: Any) -> Any:
        loop = lambda x: hkx.fori_loop(lower, upper, lambda i, y: linear(y), x)  # noqa: E731
        # A shape will do: nothing that is created depends on a value.
        return hkx.transform(lambda x: AROUND[around](loop, x)).init(KEY, jax.ShapeDtypeStruct(X.shape, X.dtype))

    expected = init(0, 3)
    for n in THREE if around == "nothing" else THREE[2:3]:
        jax.tree.map(np.testing.assert_array_equal, init(0, n), expected)
        jax.tree.map(np.testing.assert_array_equal, init(n * 0, n), expected)
    jax.tree.map(np.testing.assert_array_equal, init(0, jnp.asarray(0)), expected)  # created all the same


@pytest.mark.parametrize("way", [jax.jit, lambda f: lambda *a: jax.eval_shape(f, *a)])
def test_a_bound_that_is_a_constant_array_under_jit(way: Any) -> None:
    n = jnp.asarray(3)
    model = hkx.transform(lambda x: hkx.fori_loop(n - 3, n, lambda i, y: linear(y), x))
    assert jax.tree.map(jnp.shape, way(model.init)(KEY, X)) == {"linear": {"w": (3, 3), "b": (3,)}}


def test_a_number_of_layers_that_is_an_array() -> None:
    init = lambda n: hkx.transform(lambda x: hkx.layer_stack(n)(linear)(x)).init(KEY, X)  # noqa: E731
    jax.tree.map(np.testing.assert_array_equal, init(jnp.asarray(3)), init(3))


def layer_with_states(x: Any) -> Any:
    """A layer with states that look at its input, at one of its parameters, and at a key."""
    w = hkx.get_parameter("w", [3], init=hkx.initializers.RandomNormal())
    first = hkx.get_state("first", [3], init=lambda *_: x + 0)
    scaled = hkx.get_state("scaled", [3], init=lambda *_: x * w)
    noise = hkx.get_state("noise", [3], init=hkx.initializers.RandomNormal())
    return w * x + scaled + noise + first


STACKS = {
    "init": lambda init, x: init(KEY, x),
    "vmap": lambda init, x: jax.tree.map(lambda a: a[1], jax.vmap(init, (None, 0))(KEY, jnp.stack([x + 5, x]))),
}


@pytest.mark.parametrize(("way", "reverse"), [("init", False), ("init", True), ("vmap", False)])
def test_states_of_a_stack_look_at_what_comes_into_their_layer(way: str, reverse: bool) -> None:
    model = hkx.transform_with_state(lambda x: hkx.layer_stack(3, name="s")(layer_with_states)(x, reverse=reverse))
    params, state = STACKS[way](model.init, X)
    ((bundle, states),), w = state.items(), params["s/~"]["w"]
    assert bundle == "s/~"
    x = np.asarray(X)
    for i in (2, 1, 0) if reverse else (0, 1, 2):  # the Python loop
        np.testing.assert_allclose(states["first"][i], x, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(states["scaled"][i], x * w[i], rtol=1e-5, atol=1e-6)
        x = w[i] * x + states["scaled"][i] + states["noise"][i] + states["first"][i]
    assert len(np.unique(np.asarray(states["noise"]).round(5))) == 9
    np.testing.assert_allclose(model.apply(params, state, None, X)[0], x, rtol=1e-4)


def test_states_of_stacks_in_stacks_look_at_what_comes_into_their_layer() -> None:
    def layer(x: Any, y: Any) -> Any:
        return x + y + 0 * hkx.get_state("first", [1], init=lambda *_: x), None

    def inner(x: Any) -> Any:
        return hkx.layer_stack(3, with_per_layer_inputs=True, name="in")(layer)(x, jnp.arange(3.0)[:, None])[0]

    model = hkx.transform_with_state(lambda x: hkx.layer_stack(2, name="out")(inner)(x))
    _, state = model.init(KEY, jnp.ones(1))
    np.testing.assert_array_equal(state["out/in/~"]["first"][..., 0], [[1, 1, 2], [4, 4, 5]])


def test_states_of_a_stack_that_look_at_values_and_those_that_do_not() -> None:
    def layer(x: Any, init: Any) -> Any:
        return x + hkx.Linear(3)(x) + hkx.get_state("s", x.shape, init=lambda *_: init(x))

    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    model = hkx.transform_with_state(lambda x, init: hkx.layer_stack(2)(lambda x: layer(x, init))(x))
    for values_do_not in (jnp.ones_like, lambda x: x.shape[0] * hkx.get_parameter("w", [3], init=jnp.ones)):
        expected, given = model.init(KEY, X, values_do_not), model.init(KEY, shape, values_do_not)
        jax.tree.map(np.testing.assert_array_equal, given, expected)
    with pytest.raises(hkx.errors.AbstractInitError):
        model.init(KEY, shape, lambda x: x + 0)


def test_draws_in_a_stack_are_counted_as_often_as_in_haiku() -> None:
    seen = []

    def layer(x: Any) -> Any:
        return hkx.Linear(3)(x) + jax.random.uniform(hkx.next_rng_key())

    @hkx.experimental.optimize_rng_use
    def f(x: Any) -> Any:
        rng = hkx.maybe_get_rng_sequence_state()
        assert rng is not None
        seen.append(len(rng[1]))
        return hkx.layer_stack(2)(layer)(x)

    hkx.transform(f).init(KEY, X)
    # dm-haiku calls a layer three times: to make it (`w` and its own key: 2), as the next one is made (1), in the stack
    # (1); it reserves [0, 4].
    assert seen == [0, 2 + 1 + 1]


@pytest.mark.parametrize("name", ["cond", "while_loop", "purify"])
def test_what_is_only_visited_leaves_the_state_as_it_was(name: str) -> None:
    def f(x: Any) -> Any:
        hkx.set_state("n", jnp.float32(0.0))
        hkx.set_state("n", jnp.float32(5.0))
        SCOPED[name](lambda x: x + hkx.get_state("n"), x)
        return hkx.get_parameter("now", [], init=lambda *_: hkx.get_state("n"))

    params, state = hkx.transform_with_state(f).init(KEY, X)
    assert (params["~"]["now"], state["~"]["n"]) == (5.0, 0.0)


@pytest.mark.parametrize("reverse", [False, True])
def test_states_of_a_stack_whose_parameters_look_at_the_input_too(reverse: bool) -> None:
    def layer(x: Any) -> Any:
        m = hkx.get_parameter("m", [3], init=lambda *_: x)
        return 2 * x + m + 0 * hkx.get_state("first", [3], init=lambda *_: x)

    model = hkx.transform_with_state(lambda x: hkx.layer_stack(3)(layer)(x, reverse=reverse))
    (params,), (states,) = (tree.values() for tree in model.init(KEY, X))
    made = x = np.asarray(X)
    for i in range(3):  # parameters in the order of the layers, whatever the direction, as in dm-haiku
        np.testing.assert_allclose(params["m"][i], made, rtol=1e-6)
        made = 3 * made
    for i in (2, 1, 0) if reverse else (0, 1, 2):
        np.testing.assert_allclose(states["first"][i], x, rtol=1e-6)
        x = 2 * x + params["m"][i]


def kept(kind: str, value: Any) -> Any:
    """A function with a derivative of its own, by JAX, that sets a state."""

    def f(x: Any) -> Any:
        hkx.set_state("n", value() if callable(value) else value)
        return x * 2

    if kind == "vjp":
        function: Any = jax.custom_vjp(f)
        function.defvjp(lambda x: (f(x), None), lambda _, g: (2 * g,))
    else:
        function = jax.custom_jvp(f)
        function.defjvp(lambda primals, tangents: (f(primals[0]), 2 * tangents[0]))
    return function


def states_kept(function: Any) -> list[Any]:
    model, held = hkx.transform_with_state(lambda x: function(x)), {"~": {"n": jnp.zeros([])}}
    gradient = jax.grad(lambda x: model.apply({}, held, None, x), has_aux=True)
    states = [
        model.init(None, 1.0)[1],
        jax.jit(model.init)(None, 1.0)[1],
        model.init(None, jax.ShapeDtypeStruct((), jnp.float32))[1],
        model.apply({}, held, None, 1.0)[1],
        jax.jit(model.apply)({}, held, None, 1.0)[1],
        gradient(1.0)[1],
        jax.jit(gradient)(1.0)[1],
    ]
    jax.vmap(lambda x: states.append(model.apply({}, held, None, x)[1]))(jnp.ones(2))
    return [float(state["~"]["n"]) for state in states]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_a_constant_is_kept_in_a_function_with_a_derivative_of_its_own(kind: str) -> None:
    assert states_kept(kept(kind, 3.0)) == [3.0] * 8
    assert states_kept(kept(kind, jnp.asarray(4.0))) == [4.0] * 8
    assert states_kept(kept(kind, lambda: jnp.ones([]))) == [1.0] * 8
    inner = kept(kind, 5.0)
    outer = jax.custom_jvp(lambda x: inner(x))
    outer.defjvp(lambda primals, tangents: (inner(primals[0]), 2 * tangents[0]))
    assert states_kept(outer) == [5.0] * 8


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
@pytest.mark.parametrize("jit", [False, True])
def test_a_constant_is_not_kept_where_that_may_run_more_or_less_than_once(kind: str, jit: bool) -> None:
    f = kept(kind, 3.0)
    raw: list[Callable[[Any], Any]] = [
        lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
        lambda x: jax.lax.cond(True, f, lambda x: x, x),
        lambda x: jax.lax.while_loop(lambda x: x < 9, f, x),
        lambda x: jax.jit(f)(x),
        jax.checkpoint(f),
    ]
    for g in raw:
        model = hkx.transform_with_state(g)
        run = jax.jit(model.apply) if jit else model.apply
        with pytest.raises(hkx.errors.StateInInnerTraceError, match="'~/n'"):
            run({}, {"~": {"n": jnp.zeros([])}}, None, 1.0)
        with pytest.raises(hkx.errors.StateInInnerTraceError, match="'~/n'"):
            (jax.jit(model.init) if jit else model.init)(None, 1.0)


def test_a_state_created_in_jit_is_called_a_state() -> None:
    def f(x: Any) -> Any:
        return jax.jit(lambda x: x + hkx.get_state("s", [], init=jnp.zeros))(x)

    with pytest.raises(hkx.errors.StateInInnerTraceError, match="State '~/s' is created or set"):
        hkx.transform_with_state(f).init(None, 1.0)
    with pytest.raises(hkx.errors.StateInInnerTraceError, match="State '~/s'"):
        model = hkx.transform_with_state(lambda x: jax.vmap(lambda x: hkx.get_state("s", [], init=lambda *_: x))(x))
        model.init(None, X)


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_init_runs_a_function_with_a_derivative_of_its_own_as_apply_does(kind: str) -> None:
    model = hkx.transform_with_state(kept(kind, lambda: jnp.ones(2)))
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    for state in (model.init(None, 1.0)[1], model.init(None, shape)[1], model.apply({}, {}, None, 1.0)[1]):
        np.testing.assert_array_equal(state["~"]["n"], [1, 1])


def test_a_map_over_nothing_creates_its_parameters_and_draws_no_key() -> None:
    def f(x: Any) -> Any:
        return hkx.vmap(lambda x: hkx.dropout(hkx.next_rng_key(), 0.5, hkx.Linear(2)(x)), split_rng=True)(x)

    model = hkx.transform(f)
    params = model.init(jax.random.key(0), jnp.ones([0, 3]))
    assert params["linear"]["w"].shape == (3, 2)
    assert model.apply(params, jax.random.key(0), jnp.ones([0, 3])).shape == (0, 2)


@pytest.mark.parametrize(("pred", "expected"), [(True, 12), (False, 23)])
def test_each_branch_of_cond_is_given_its_own_operand_by_name(pred, expected):
    def f(**others):
        funs = {"true_fun": lambda x: x + 10, "false_fun": lambda x: x + 20}
        return hkx.cond(pred, **funs, **({"true_operand": 2.0, "false_operand": 3.0} | others))

    assert float(f()) == float(hkx.transform(f).apply({}, None)) == expected
    with pytest.raises(ValueError, match="and `false_operand="):
        hkx.cond(pred, lambda x: x, lambda x: x, true_operand=2.0)
    with pytest.raises(ValueError, match="only together, and then no other operands"):
        f(operand=4.0)


def _custom_vjp(f: Callable[..., Any]) -> Callable[..., Any]:
    ruled = hkx.custom_vjp(f)
    ruled.defvjp(lambda tree: (f(tree), tree), lambda tree, _: (tree,))
    return ruled


def _custom_jvp(f: Callable[..., Any]) -> Callable[..., Any]:
    ruled = hkx.custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: (f(*primals), f(*tangents)))
    return ruled


@pytest.mark.parametrize("wrap", [hkx.remat, hkx.jit, _custom_vjp, _custom_jvp])
@pytest.mark.parametrize("init", ["traced", "eager"])
def test_what_jax_runs_once_gets_arrays_and_sorted_dicts_in_init_too(wrap, init):
    def inside(tree):
        assert isinstance(tree["n"], jax.Array)
        out = {name: hkx.Linear(1, name=f"{name}{i}")(x) for i, (name, x) in enumerate(tree.items()) if x.ndim}
        return {"z": 3, **dict(reversed(out.items()))}

    def f(x):
        out = wrap(inside)({"b": x, "n": 2, "a": x})
        assert list(out) == ["a", "b", "z"]
        assert jnp.shape(out["z"]) == () and out["z"].dtype == jnp.int32
        return out

    model = hkx.transform(f, init=init)
    params = model.init(KEY, X)
    assert list(params) == ["a0", "b1"]  # the names that Haiku's `remat` gives
    model.apply(params, None, X)
