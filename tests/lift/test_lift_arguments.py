"""What the lifting transforms say of arguments that do not go together, and what their rarer arguments do."""

import inspect
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx import errors

X = jnp.ones([2, 3])


def _weighted(x, weights):
    return x * weights


STACKED = {"stack/linear": {"w": np.ones([3, 3, 3]), "b": np.ones([3, 3])}}
UNEVEN = {"stack/linear": {"w": np.ones([3, 3, 3]), "b": np.ones([2, 3])}}
REFUSED = {
    "With `operand=`, `hkx.cond` cannot take operands that you pass positionally": (
        lambda: hkx.cond(True, abs, abs, 1.0, operand=2.0)
    ),
    "With `operand=`, `hkx.switch` cannot take operands that you pass positionally": (
        lambda: hkx.switch(0, [abs, abs], 1.0, operand=2.0)
    ),
    r"Pred must be a scalar, got .* of shape \(2,\)": (lambda: hkx.cond(jnp.array([True, False]), abs, abs, 1.0)),
    r"Branch 0 returns no array.\n  the value: branch 0 returns 'text' \(not an array\)(\n|$)": (
        lambda: hkx.cond(True, lambda x: "text", lambda x: x, 1.0)
    ),
    r"branch 0 returns float32\[\], branch 1 returns key<fry>\[\]": (
        lambda: hkx.cond(True, lambda x: x, lambda x: jax.random.key(0), 1.0)
    ),
    r"given key<fry>\[\], returned int32\[\]": lambda: hkx.fori_loop(0, 2, lambda i, x: i, jax.random.key(0)),
    "must leave states of the same structure.*\n.*n'.*\n.*Give each branch one of its own": (
        lambda: hkx.cond(True, lambda: _left(jnp.float32(1)), lambda: _left(jnp.int32(1)))
    ),
    "`hkx.layer_stack` was given 3 of type int as `f`": lambda: hkx.layer_stack(3)(3),
    r"the layer must return a pair `\(x, z\)`.*, but returned .*Tracer": (
        lambda: hkx.layer_stack(2, with_per_layer_inputs=True)(lambda x, y: x)(X, jnp.ones([2, 3]))
    ),
    r"'stack' have the different leading sizes \[2, 3\]": lambda: hkx.unstack_params(UNEVEN, "stack"),
    r"There is no stack called 'tower' in these parameters. At the top level there are: \['stack'\]": (
        lambda: hkx.unstack_params(STACKED, "tower")
    ),
    "would be called 'linear', which already exists. Pass `mapping=`": (
        lambda: hkx.unstack_params({**STACKED, "linear": {"w": 1}}, "stack")
    ),
    "should be called 'linear', but there is no such module": lambda: hkx.stack_params({}, STACKED, "stack"),
    "`concrete=True` is no longer possible": lambda: hkx.remat(abs, concrete=True),
    r"argument x of(.|\n)*argument weights of": lambda: hkx.vmap(_weighted, split_rng=False)(X, jnp.ones([3, 3])),
    "one axis had size 2: axis 0 of argument weights": lambda: hkx.vmap(_weighted, split_rng=True)(X.T, X),
}


def _left(value):
    hkx.set_state("n", value)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text):
    with pytest.raises((ValueError, TypeError), match=text):
        hkx.transform_with_state(REFUSED[text]).init(0)


def test_what_is_made_outside_says_inside_what_it_lacks():
    mapped = hkx.vmap(lambda x: hkx.Linear(1)(x))
    with pytest.raises(errors.MissingSplitRNGError):
        hkx.transform(mapped).init(0, X)
    with pytest.raises(errors.NotInTransformError, match="custom_setter"):
        hkx.custom_setter(lambda next_setter, value, context: value).__enter__()


def test_one_operand_by_name():
    def f(index):
        one = hkx.cond(index > 0, lambda x: 2 * x, lambda x: 3 * x, operand=5.0)
        return one, hkx.switch(index, [lambda x: 2 * x, lambda x: 3 * x], operand=7.0)

    assert [float(x) for x in hkx.transform(f).apply({}, None, 1)] == [10, 21]


def test_the_state_that_a_function_with_its_own_derivative_leaves():
    @hkx.custom_jvp
    def counted(x):
        n = hkx.get_state("n", [], init=jnp.zeros)
        hkx.set_state("n", n + 1)
        return x * x

    counted.defjvp(lambda primals, tangents: (counted(*primals), 10 * tangents[0]))
    model = hkx.transform_with_state(lambda x: counted(x))
    params, state = model.init(0, 3.0)
    out, after = model.apply(params, state, None, 3.0)
    assert out == 9 and after["~"]["n"] == 1
    (_, after), slope = jax.value_and_grad(lambda x: model.apply(params, after, None, x), has_aux=True)(3.0)
    assert slope == 10 and after["~"]["n"] == 2


@pytest.mark.peer
@pytest.mark.parametrize("reserve", [1, 4])
@pytest.mark.parametrize("rounds", [-2, 0, 1, 3])
def test_keys_after_a_loop_are_those_of_haiku(rounds, reserve):
    haiku = pytest.importorskip("haiku")
    with hkx.config.context(rng_reserve_size=reserve), haiku.config.context(rng_reserve_size=reserve):
        _same_keys(rounds, haiku)


def _same_keys(rounds, haiku):
    def model(lib):
        def f():
            lib.next_rng_key()
            out = lib.fori_loop(0, rounds, lambda i, x: x + lib.get_parameter("w", [], init=jnp.ones), 0.0)
            return (
                out,
                [jax.random.uniform(lib.next_rng_key()) for _ in range(6)],
                lib.get_parameter("v", [], init=lib.initializers.RandomNormal()),
            )

        return lib.transform(f)

    key = jax.random.PRNGKey(3)
    ours, theirs = model(hkx), model(haiku)
    params = theirs.init(key)
    assert jax.tree.all(jax.tree.map(np.array_equal, ours.init(key), params))
    jax.tree.map(np.testing.assert_array_equal, ours.apply(params, key), theirs.apply(params, key))


def test_a_stack_shows_what_it_stacks():
    seen = []

    def watch(next_f, args, kwargs, context):
        seen.append(repr(context.module))
        return next_f(*args, **kwargs)

    def f(x):
        with hkx.intercept_methods(watch):
            return hkx.layer_stack(3, name="stack")(block)(x)

    def block(x):
        return x

    hkx.transform(f).init(0, X)
    assert any("block × 3" in text for text in seen), seen


def test_a_scope_names_what_is_computed_in_it():
    def f(x):
        with hkx.name_scope("tower"):
            return jnp.sin(x)

    jaxpr = jax.make_jaxpr(hkx.transform(f).apply)({}, None, 1.0)
    (sine,) = (eqn for eqn in jaxpr.eqns if eqn.primitive.name == "sin")
    assert "tower" in str(sine.source_info.name_stack)


def test_a_function_without_rng_says_its_arguments():
    model = hkx.without_apply_rng(hkx.transform(lambda x: x))
    assert list(inspect.signature(model.apply).parameters) == ["params", "x"]
    assert list(inspect.signature(hkx.transform(lambda x: x, apply_rng=False).apply).parameters) == ["params", "x"]


def test_a_protocol_is_no_base_of_a_class():
    with pytest.raises(TypeError, match=r"write `class Mine\(SupportsCall, Protocol\)`, or subclass `hkx.Module`"):

        class Mine(hkx.SupportsCall):
            pass

    class Named(hkx.SupportsCall, Protocol):
        def named(self) -> str: ...

    assert not isinstance(3, hkx.SupportsCall) and Named.__name__ == "Named"


def with_a_rule(f):
    function = hkx.custom_vjp(f)
    function.defvjp(lambda x: (f(x), None), lambda _, g: (g,))
    return function


CARRIED = {
    "cond": lambda f, x: hkx.cond(True, f, f, x),
    "custom_vjp": lambda f, x: with_a_rule(f)(x),
    "fori_loop": lambda f, x: hkx.fori_loop(0, 2, lambda i, x: f(x), x),
    "jit": lambda f, x: hkx.jit(f)(x),
    "layer_stack": lambda f, x: hkx.layer_stack(2)(f)(x),
    "map": lambda f, x: hkx.map(f, x[None]),
    "remat": lambda f, x: hkx.remat(f)(x),
    "scan": lambda f, x: hkx.scan(lambda x, _: (f(x), None), x, None, 2),
    "switch": lambda f, x: hkx.switch(0, [f, f], x),
    "vmap": lambda f, x: hkx.vmap(f, split_rng=False)(x),
    "while_loop": lambda f, x: hkx.while_loop(lambda x: x.sum() < 0, f, x),
}


@pytest.mark.parametrize("value", ["text", {"a": np.array(["text"])}, len], ids=["text", "array", "function"])
@pytest.mark.parametrize("carry", CARRIED.values(), ids=CARRIED)
def test_a_state_that_jax_cannot_carry_is_named(carry, value):
    def body(x):
        hkx.set_state("n", value)
        return x

    model = hkx.transform_with_state(lambda x: carry(body, x))
    with pytest.raises((errors.StateNotAnArrayError, errors.StateInLoopError), match=r"'~/n'.*(text|len)"):
        model.init(0, jnp.ones(3))
        model.apply({}, {"~": {"n": 1}}, None, jnp.ones(3))  # what is run in place in `init` is carried here


def test_calls_of_vmap_draw_the_same_key_where_nothing_need_be_said_of_keys(monkeypatch):
    monkeypatch.setattr(hkx.vmap, "require_split_rng", False)
    f = hkx.transform(lambda x: hkx.vmap(lambda x: x + jax.random.uniform(hkx.next_rng_key()))(x))
    first, second = f.apply({}, 0, jnp.zeros(2))
    assert first == second != 0


@pytest.mark.parametrize("derivative", [hkx.grad, hkx.value_and_grad])
def test_what_is_differentiated_shares_its_names_with_what_comes_after(derivative):  # as Haiku's
    def f(x):
        derivative(lambda x: hkx.Linear(1)(x).sum())(x)
        return hkx.Linear(1)(x)

    assert list(hkx.transform(f).init(0, X)) == ["linear"]


@pytest.mark.eight_devices
def test_shard_map_outside_of_a_transform_takes_its_specs():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.P("data")
    sums = hkx.shard_map(lambda x: x.sum(keepdims=True), mesh=mesh, in_specs=[rows], out_specs=rows)
    np.testing.assert_array_equal(sums(jnp.arange(16.0)), np.arange(16.0).reshape(8, 2).sum(1))


def linear(x):
    return hkx.Linear(3)(x)


def stacked(**axes):
    return lambda: hkx.vmap(linear, split_rng=True, **axes)(X)


OF_ANOTHER_KIND = {
    "`argnums` must be an integer, got None": lambda: hkx.grad(linear, argnums=None)(X),
    "`argnums` must be an integer, got []": lambda: hkx.value_and_grad(linear, argnums=[])(X),
    "`argnums` must be an integer, got 'x'": lambda: hkx.grad(linear, argnums="x")(X),
    "`static_argnums` must be an integer, got 0.5": lambda: hkx.remat(linear, static_argnums=0.5)(X),
    "`static_argnums` must be an integer, got 'y'": lambda: hkx.jit(linear, static_argnums="y")(X),
    "`donate_argnums` must be an integer, got None": lambda: hkx.jit(linear, donate_argnums=(0, None))(X),
    "`nondiff_argnums` must be an integer, got 'x'": lambda: hkx.custom_vjp(linear, nondiff_argnums="x"),
    "`nondiff_argnums` of `hkx.custom_jvp` are (1,), and it is given 1 arguments": (
        lambda: hkx.custom_jvp(linear, nondiff_argnums=(1,))(X)
    ),
    "`param_axes` must be an integer, got 'x'": stacked(param_axes="x"),
    "`param_axes` must be an integer, got [0]": stacked(param_axes=lambda module, name: [0]),
    "axis 2 is out of bounds": stacked(param_axes=2),
    "`axis` of `hkx.associative_scan`: axis 2 is out": lambda: hkx.associative_scan(jnp.add, X, axis=2),
    "[0]: given float32[1,3], returned int32[1,3]": lambda: hkx.associative_scan(lambda a, b: (a + b).astype(int), X),
    "[1]: returned float32[1,3], given nothing": lambda: hkx.associative_scan(lambda a, b: (a, b), X),
    "[0]: given float32[1,3], returned float32[1,1,3]": lambda: hkx.associative_scan(lambda a, b: (a + b)[None], X),
    "is a carry, got None. The first one is `pure.start(...)`": lambda: hkx.purify(linear)(None, X),
    "is a carry, got 3. The first one is": lambda: hkx.purify(linear).finish(3),
    "`hkx.Deferred` was given 3 of type int as `factory`": lambda: hkx.Deferred(3),
    "`hkx.to_module` was given 3 of type int as `f`": lambda: hkx.to_module(3),
    "`hkx.testing.transform_and_run` was given 3 of type int as `f`": lambda: hkx.testing.transform_and_run(3),
    "`seed` must be an integer, got 'x'": lambda: hkx.testing.transform_and_run(linear, seed="x"),
    "was given 3 of type int as `filter`": lambda: hkx.capture_intermediates(linear, filter=3),
    "`hkx.without_state(hkx.transform_with_state(f))`": lambda: hkx.without_state(hkx.transform(linear)),
    "`hkx.with_empty_state(hkx.transform(f))`": (lambda: hkx.with_empty_state(hkx.transform_with_state(linear))),
    "3 is not a valid module name": lambda: hkx.force_name(3),
    "'a/b' is not a valid module name": lambda: hkx.lift(linear, name="a/b"),
    "'' is not a valid module name": lambda: hkx.lift_with_state(linear, name=""),
    "None is not a valid module name": lambda: hkx.lift(linear, name=None),
}


@pytest.mark.parametrize("text", OF_ANOTHER_KIND)
def test_an_argument_of_another_kind_is_named(text):
    with pytest.raises((TypeError, ValueError, IndexError)) as info:
        hkx.transform(OF_ANOTHER_KIND[text]).init(0)
    assert text in str(info.value)


def test_positions_of_arguments_may_be_numpy_integers():
    def f(x, factor):
        doubled = hkx.remat(lambda x, factor: factor * hkx.Linear(3)(x), static_argnums=np.int64(1))
        return doubled(x, factor), hkx.jit(lambda x, factor: factor * x, static_argnums=np.int64(1))(x, factor)

    _, tripled = hkx.transform(f).apply({"linear": {"w": X[0][:, None] * X[:1], "b": X[0]}}, None, X, 3)
    np.testing.assert_array_equal(tripled, 3 * X)


def test_a_deferred_module_with_one_method_that_makes_it():
    class Tower(hkx.Module):
        def twice(self, x):
            return 2 * x

    tower = hkx.transform(lambda x: hkx.Deferred(Tower, "twice").twice(x))
    np.testing.assert_array_equal(tower.apply({}, None, X), 2 * X)
