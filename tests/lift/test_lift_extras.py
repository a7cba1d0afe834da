"""What dm-haiku does not have: creation in branches and loops, members of their own, custom derivatives, stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import hkx
from hkx.init.create import run_initialising

pytestmark = pytest.mark.unoptimised

KEY = jax.random.key(5)
X = jnp.arange(6.0).reshape(3, 2) / 5
NORMAL = hkx.initializers.RandomNormal()


def assert_close(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def noisy(x: Any) -> Any:
    return hkx.Linear(2, w_init=NORMAL)(x) + jax.random.uniform(hkx.next_rng_key())


def test_a_while_loop_that_is_not_entered_creates_its_parameters() -> None:
    def f(x: Any) -> Any:
        return hkx.while_loop(lambda v: v.sum() < hkx.get_parameter("bound", [], init=jnp.zeros), hkx.Linear(2), x)

    model = hkx.transform(f)
    for params in (model.init(KEY, X), run_initialising(f, KEY, (X,))[0]):
        assert sorted(params) == ["linear", "~"]
        assert_close(model.apply(params, None, X), X)


def test_an_ordinary_init_does_not_execute_what_is_not_taken() -> None:
    def endless(name: str) -> Any:
        def run(x: Any) -> Any:
            x = jax.lax.while_loop(lambda v: v.sum() < jnp.inf, lambda v: v * 0, x)
            return hkx.Linear(2, name=name)(x)

        return run

    def f(x: Any) -> Any:
        x = hkx.cond(False, endless("skipped"), hkx.Linear(2, name="taken"), x)
        x = hkx.fori_loop(0, 0, lambda _, v: endless("fori")(v), x)
        return hkx.while_loop(lambda v: False, endless("while"), x)

    params, _ = run_initialising(f, KEY, (X,))
    assert sorted(params) == ["fori", "skipped", "taken", "while"]


LIFTED = {
    "scan": lambda f: lambda x: hkx.scan(lambda c, _: (f(c), None), x, None, length=3)[0],
    "cond": lambda f: lambda x: hkx.cond(x.sum() > 0, f, f, x),
    "while": lambda f: lambda x: hkx.while_loop(lambda x: x.sum() < 0, f, x),
    "fori": lambda f: lambda x: hkx.fori_loop(0, 3, lambda _, x: f(x), x),
    "grad": lambda f: hkx.grad(lambda x: f(x).sum()),
    "vmap": lambda f: hkx.vmap(f, split_rng=True),
    "remat": hkx.remat,
    "stack": lambda f: hkx.layer_stack(3)(f),
    "vjp": lambda f: lambda x: hkx.vjp(f, x)[1](x)[0],
    "purify": lambda f: lambda x: hkx.purify(f)(hkx.purify(f).start(x), x)[0],
}


@pytest.mark.parametrize("name", LIFTED)
def test_init_runs_the_function_abstractly_and_once(name: str) -> None:
    runs: list[bool] = []
    model = hkx.transform(lambda x: (runs.append(isinstance(x + 0, jax.core.Tracer)), LIFTED[name](noisy)(x))[1])
    with jax.checking_leaks():
        model.init(KEY, X)
    assert runs == [True]


def test_ensemble_is_that_many_models() -> None:
    model = hkx.transform(lambda x: hkx.vmap(noisy, in_axes=None, param_axes=0, axis_size=3, split_rng=True)(x))

    def one_by_one(x: Any) -> Any:
        keys, out = hkx.next_rng_keys(3), []
        for i in range(3):
            with hkx.with_rng(keys[i]), hkx.name_scope(f"member_{i}"):
                out.append(noisy(x))
        return jnp.stack(out)

    reference = hkx.transform(one_by_one)
    with jax.numpy_rank_promotion("allow"):
        members = reference.init(KEY, X)
        params = model.init(KEY, X)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[members[f"member_{i}/linear"] for i in range(3)])
        assert_close(params, {"linear": stacked})
        assert_close(jax.jit(model.apply)(params, KEY, X), reference.apply(members, KEY, X))


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_with_own_parameters_is_a_stack_of_layers(reverse: bool) -> None:
    def cell(c: Any, x: Any) -> Any:
        return jnp.tanh(noisy(c)) + x, c.sum()

    def one_by_one(xs: Any) -> Any:
        c, ys = jnp.ones(2), {}
        for i in (2, 1, 0) if reverse else (0, 1, 2):
            with hkx.name_scope(f"layer_{i}"):
                c, ys[i] = cell(c, xs[i])
        return c, jnp.stack([ys[i] for i in range(3)])

    model = hkx.transform(lambda xs: hkx.scan(cell, jnp.ones(2), xs, param_axes=0, reverse=reverse))
    reference = hkx.transform(one_by_one)
    params, layers = model.init(KEY, X), reference.init(KEY, X)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[layers[f"layer_{i}/linear"] for i in range(3)])
    assert_close(params, {"linear": stacked})
    assert_close(model.apply(params, KEY, X), reference.apply(layers, KEY, X))


def test_stacks_and_separate_layers_load_into_each_other() -> None:
    def block(x: Any) -> Any:
        return hkx.Linear(2)(jnp.tanh(hkx.Linear(2)(x))) + hkx.nets.MLP([2])(x)

    def loop(x: Any) -> Any:
        for _ in range(4):
            x = block(x)
        return x

    class Net(hkx.Module):
        def __init__(self, run: Any):
            super().__init__(name="net")
            self.run = run

        def __call__(self, x: Any) -> Any:
            return self.run(x)

    stacked = hkx.transform(lambda x: Net(hkx.layer_stack(4, name="blocks")(block))(x))
    separate = hkx.transform(lambda x: Net(loop)(x))
    params = separate.init(KEY, X)
    like = stacked.init(KEY, X)
    converted = hkx.stack_params(params, like, "net/blocks")
    assert jax.tree.map(jnp.shape, converted) == jax.tree.map(jnp.shape, like)
    assert_close(stacked.apply(converted, None, X), separate.apply(params, None, X))
    assert_close(hkx.unstack_params(converted, "net/blocks"), params)
    with pytest.raises(hkx.errors.StackError, match="no stack called"):
        hkx.unstack_params(params, "net/blocks")


@pytest.mark.parametrize("reverse", [False, True])
def test_an_initializer_in_a_stack_sees_what_comes_into_its_layer(reverse: bool) -> None:
    def layer(x: Any) -> Any:
        return 2 * x + hkx.get_parameter("m", [1, 2], init=lambda *_: x.mean(0, keepdims=True))

    model = hkx.transform(lambda x: hkx.layer_stack(3)(layer)(x, reverse=reverse))
    expected, y = [], np.asarray(X)
    for _ in range(3):  # in the order of the layers, whatever the direction, as in dm-haiku
        expected.append(y.mean(0, keepdims=True))
        y = 2 * y + expected[-1]
    for init in (model.init, jax.jit(model.init)):
        (made,) = init(KEY, X).values()
        np.testing.assert_allclose(made["m"], expected, rtol=1e-5)


def test_layer_stack_remat_has_the_same_gradient() -> None:
    def model(remat: Any) -> Any:
        return hkx.transform(lambda x: hkx.layer_stack(3, remat=remat)(noisy)(x).sum())

    params = model(False).init(KEY, X)
    plain = jax.grad(model(False).apply)(params, KEY, X)
    assert_close(jax.grad(model(True).apply)(params, KEY, X), plain)
    saved = jax.checkpoint_policies.everything_saveable
    assert_close(jax.grad(model(saved).apply)(params, KEY, X), plain)


def test_layer_stack_remat_computes_a_layer_again_for_the_gradient() -> None:
    def times(remat: Any) -> int:
        layer = lambda x: jnp.tanh(hkx.Linear(x.shape[-1])(x))  # noqa: E731
        model = hkx.transform(lambda x: hkx.layer_stack(3, remat=remat)(layer)(x).sum())
        return str(jax.make_jaxpr(jax.grad(model.apply))(model.init(KEY, X), None, X)).count(" = tanh ")

    assert (times(False), times(jax.checkpoint_policies.everything_saveable), times(True)) == (1, 1, 2)


def test_a_pure_function_has_the_name_of_the_function() -> None:
    def energy(x: Any) -> Any:
        """Sums up."""
        return x.sum()

    pure = hkx.transform(lambda x: hkx.purify(energy)).apply({}, None, X)
    assert (pure.__name__, pure.__doc__, pure.__module__) == ("energy", "Sums up.", __name__)


def test_custom_vjp_changes_the_gradient_by_its_arguments_alone() -> None:
    @hkx.custom_vjp
    def f(x: Any, scale: Any) -> Any:
        return noisy(x) * scale

    f.defvjp(lambda x, scale: (noisy(x) * scale, x), lambda x, g: (jnp.full_like(x, 0.5), jnp.array(7.0)))
    model = hkx.transform(lambda x: f(x, scale=jnp.array(2.0)).sum())
    plain = hkx.transform(lambda x: (noisy(x) * 2.0).sum())
    params = model.init(KEY, X)
    assert_close(params, plain.init(KEY, X))
    assert_close(model.apply(params, KEY, X), plain.apply(params, KEY, X))
    assert_close(jax.grad(jax.jit(model.apply))(params, KEY, X), jax.grad(plain.apply)(params, KEY, X))
    assert_close(jax.jit(jax.grad(model.apply, 2))(params, KEY, X), jnp.full_like(X, 0.5))


def test_custom_jvp_changes_the_derivative_by_its_arguments_alone() -> None:
    @hkx.custom_jvp
    def f(x: Any) -> Any:
        return noisy(x)

    f.defjvp(lambda primals, tangents: (noisy(*primals), 3 * tangents[0]))
    model, plain = hkx.transform(lambda x: f(x).sum()), hkx.transform(lambda x: noisy(x).sum())
    params = model.init(KEY, X)
    assert_close(jax.grad(jax.jit(model.apply))(params, KEY, X), jax.grad(plain.apply)(params, KEY, X))
    assert_close(jax.grad(model.apply, 2)(params, KEY, X), jnp.full_like(X, 3.0))


def test_only_the_branch_that_is_taken_has_effects_at_init() -> None:
    seen: list[str] = []

    def branch(name: str) -> Callable[..., Any]:
        def run(x: Any) -> Any:
            jax.debug.callback(lambda x: seen.append(name), x)
            return hkx.Linear(2)(x)

        return run

    def f(x: Any) -> Any:
        y = hkx.cond(x[0] > 0, branch("true"), branch("false"), x)
        return hkx.while_loop(lambda y: y[0] > 1e9, lambda y: y, hkx.switch(1, [branch("a"), branch("b")], y))

    for init in (hkx.transform(f).init, lambda key, x: hkx.testing.transform_and_run(f, run_apply=False)(x)):
        seen.clear()
        init(jax.random.key(0), jnp.ones(2))
        jax.effects_barrier()
        assert seen == ["true", "b"]


@pytest.mark.eight_devices
def test_shard_map_on_a_mesh_with_explicit_axes() -> None:
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))

    def f(x: Any) -> Any:
        return hkx.shard_map(out_specs=jax.P("data"))(lambda x: hkx.Linear(2, w_init=jnp.ones)(x))(x)

    model = hkx.transform(f)
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones([4, 3]), jax.P("data"))
        params = model.init(jax.random.key(0), x)
        out = model.apply(params, None, x)
    assert out.sharding.spec[0] == "data"
    np.testing.assert_array_equal(out, np.full([4, 2], 3.0))


@pytest.mark.eight_devices
@pytest.mark.parametrize("axis_type", ["Auto", "Explicit"])
def test_shard_map_where_a_mesh_is_set_makes_states_from_constants(axis_type: str) -> None:
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType[axis_type],))

    def f(x: Any) -> Any:
        count = lambda x: x + hkx.get_state("n", [], init=hkx.initializers.Constant(3))  # noqa: E731
        return hkx.shard_map(count, in_specs=(jax.P("data"),), out_specs=jax.P("data"))(x)

    model = hkx.transform_with_state(f)
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.arange(4.0), jax.NamedSharding(mesh, jax.P("data")))
        params, state = model.init(None, x)
        np.testing.assert_array_equal(model.apply(params, state, None, x)[0], [3.0, 4.0, 5.0, 6.0])


@pytest.mark.eight_devices
def test_shard_map_names_a_state_that_differs_between_devices() -> None:
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    average = lambda x: x + hkx.ExponentialMovingAverage(0.9, name="ema")(x.mean())  # noqa: E731
    rows = jax.P("data")
    model = hkx.transform_with_state(lambda x: hkx.shard_map(average, mesh=mesh, in_specs=(rows,), out_specs=rows)(x))
    with pytest.raises(ValueError, match=r"In `hkx.shard_map`, the state 'ema/(hidden|average)' .*`jax.lax.pmean"):
        model.init(None, jnp.arange(4.0))


@pytest.mark.eight_devices
def test_shard_map() -> None:
    mesh = jax.make_mesh((3,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = PartitionSpec("rows")

    def f(x: Any) -> Any:
        def shard(x: Any) -> Any:
            hkx.set_state("mean", jax.lax.pmean(x.mean(), "rows"))
            return hkx.Linear(2)(x), jax.random.uniform(hkx.next_rng_key(), [1])

        return hkx.shard_map(shard, mesh=mesh, in_specs=(rows,), out_specs=rows, split_rng=True)(x)

    model = hkx.transform_with_state(f)
    params, state = model.init(KEY, X)
    (y, drawn), state = jax.jit(model.apply)(params, state, KEY, X)
    assert_close(y, X @ params["linear"]["w"] + params["linear"]["b"][None])
    assert len(set(drawn.tolist())) == 3
    assert_close(state, {"~": {"mean": X.mean()}})


def test_associative_scan_asks_for_the_same_parameters_each_time() -> None:
    def combine(a: Any, b: Any) -> Any:
        return a + b * hkx.get_parameter("scale", [], init=jnp.ones)

    for length in (1, 2, 5):
        xs = jnp.arange(1.0, length + 1)
        model = hkx.transform(lambda xs: hkx.associative_scan(combine, xs))
        params = model.init(KEY, xs)
        assert list(params) == ["~"]
        assert_close(model.apply(params, None, xs), jnp.cumsum(xs))


@pytest.mark.parametrize("wrap", [hkx.jit, lambda f: hkx.remat(hkx.jit(f))], ids=["jit", "remat of jit"])
def test_a_function_that_hkx_compiles_can_be_transformed(wrap: Any) -> None:
    def f(x: Any) -> Any:
        return hkx.Linear(3)(x)

    x = jnp.ones([2, 4])
    params = hkx.transform(f).init(0, x)
    model = hkx.transform(wrap(f))
    assert_close(model.init(0, x), params)
    assert_close(model.apply(params, None, x), hkx.transform(f).apply(params, None, x))


def test_jit_of_a_module_is_compiled_once_and_static_arguments_pass() -> None:
    traced: list[int] = []

    def f(x: Any) -> Any:
        def block(x: Any, flip: bool) -> Any:
            traced.append(0)
            return noisy(x) * (-1 if flip else 1)

        return hkx.jit(block, static_argnames="flip")(x, flip=True)

    model, plain = hkx.transform(f), hkx.transform(lambda x: -noisy(x))
    params = model.init(KEY, X)
    assert_close(params, plain.init(KEY, X))
    traced.clear()
    assert_close(model.apply(params, KEY, X), plain.apply(params, KEY, X))
    assert len(traced) == 1


def test_map_and_stacks_outside_of_a_transform() -> None:
    assert_close(hkx.map(jnp.sin, X), jnp.sin(X))
    assert hkx.layer_stack(3)(lambda x: x + 1)(0) == 3


@pytest.mark.slow
@pytest.mark.parametrize("pred", [True, False])
def test_names_are_the_same_without_jit(pred: bool) -> None:
    def f(pred: Any, x: Any) -> Any:
        x = hkx.cond(pred, lambda x: hkx.Linear(2)(x), lambda x: hkx.Linear(2)(x) * 2, x)
        x = hkx.scan(lambda c, v: (c + hkx.Linear(2)(v), None), jnp.zeros(2), x)[0]
        x = hkx.while_loop(lambda v: v.sum() < 0, lambda v: hkx.Linear(2)(v) * 0, x * pred)
        x = hkx.fori_loop(0, 2 * pred, lambda i, v: hkx.Linear(2)(v), x)
        return hkx.remat(hkx.Linear(3))(x)

    model = hkx.transform(f)
    params = model.init(KEY, pred, X)
    with jax.disable_jit():
        assert_close(model.init(KEY, pred, X), params)
        eager = model.apply(params, None, pred, X)
    assert_close(eager, model.apply(params, None, pred, X))


class Around(hkx.Module):
    """A module whose parameters and state are made by a function that it lifts, or stacks."""

    def __init__(self, run: Callable[[Any], Any]):
        super().__init__()
        self.run = run

    def __call__(self, x: Any) -> Any:
        return self.run(x)


def lifted(x: Any) -> Any:
    inner = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, True))
    init, updater = hkx.lift_with_state(inner.init, name="inner")
    y, state = inner.apply(*init(hkx.next_rng_key() if hkx.running_init() else None, x), None, x)
    updater.update(state)
    return y


def test_a_module_owns_what_it_lifts_and_stacks() -> None:
    inner = hkx.transform(lambda x: hkx.Linear(2)(x))

    def lifts(x: Any) -> Any:
        return inner.apply(hkx.lift(inner.init)(hkx.next_rng_key() if hkx.running_init() else None, x), None, x)

    programs = [
        (lifts, {"around/lifted/linear/w", "around/lifted/linear/b"}),
        (lifted, {"around/inner/batch_norm/scale", "around/inner/batch_norm/offset"}),
        (lambda x: hkx.layer_stack(3)(lambda x: hkx.Linear(2)(x))(x), None),
    ]
    for run, expected in programs:
        owned: list[Any] = []

        def f(x: Any, run: Any = run, owned: Any = owned) -> Any:
            module = Around(run)
            y = module(x)
            owned.append((set(module.params_dict()), set(module.state_dict())))
            return y

        model = hkx.transform_with_state(f)
        params, state = model.init(KEY, X)
        model.apply(params, state, None, X)
        names = [{f"{b}/{n}" for b, entries in tree.items() for n in entries} for tree in (params, state)]
        assert expected is None or names[0] == expected
        assert [tuple(names)] * len(owned) == owned and len(owned) >= 2


@pytest.mark.parametrize("axes", ["some parameters", "states alone"])
def test_vmap_creates_what_is_shared_once_beside_what_is_not(axes: str) -> None:
    def member(x):
        hkx.set_state("n", hkx.get_state("n", [], init=jnp.zeros) + x.sum())
        return hkx.Linear(3, name="own")(hkx.Linear(3, name="shared")(x))

    options = {"state_axes": 0}
    if axes == "some parameters":
        options["param_axes"] = lambda module, name: 0 if module == "own" else None
    model = hkx.transform_with_state(lambda x: hkx.vmap(member, split_rng=True, **options)(x))
    x = jnp.arange(6.0).reshape(2, 3)
    params, state = model.init(jax.random.PRNGKey(0), x)
    assert params["shared"]["w"].shape == (3, 3)
    own = params["own"] if axes == "some parameters" else jax.tree.map(lambda a: jnp.stack([a, a]), params["own"])
    arrays = {"shared": params["shared"]["w"], **{str(i): a for i, a in enumerate(own["w"][: len(options)])}}
    assert len({a.tobytes() for a in map(np.asarray, arrays.values())}) == len(arrays)  # no two alike
    y, after = model.apply(params, state, None, x)
    for i in range(2):
        one = {"shared": params["shared"], "own": jax.tree.map(lambda a, i=i: a[i], own)}
        expected, _ = hkx.transform_with_state(member).apply(one, {"~": {"n": jnp.zeros([])}}, None, x[i])
        np.testing.assert_allclose(y[i], expected, rtol=1e-6)
    np.testing.assert_allclose(state["~"]["n"], [0, 0])
    np.testing.assert_allclose(after["~"]["n"], x.sum(1))


def ruled(f):
    custom = hkx.custom_vjp(f)
    custom.defvjp(lambda x: (f(x), None), lambda _, g: (g,))
    return custom


def jvp_ruled(f):
    custom = hkx.custom_jvp(f)
    custom.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return custom


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("wrapper", "operation"),
    [
        (hkx.remat, "remat2"),
        (hkx.jit, "jit"),
        (ruled, "custom_vjp_call"),
        (jvp_ruled, "custom_jvp_call"),
    ],
)
def test_a_block_takes_what_it_uses_and_not_the_whole_model(wrapper, operation, compiled):
    """n blocks that each take all parameters have n² operands."""

    def f(x):
        for _ in range(6):
            x = wrapper(lambda x: hkx.Linear(3)(x) + hkx.get_state("unused", [], init=jnp.zeros))(x)
        return x

    model = hkx.transform_with_state(f)
    x = jnp.ones([2, 3])
    params, state = model.init(0, x)
    apply = model.apply if not compiled else jax.jit(model.apply)
    program = jax.make_jaxpr(lambda p: apply(p, state, None, x)[0])(params).jaxpr
    if compiled:
        program = program.eqns[0].params["jaxpr"].jaxpr
    blocks = [eqn for eqn in program.eqns if eqn.primitive.name == operation]
    assert len(blocks) == 6
    assert {len(eqn.invars) for eqn in blocks} <= ({4} if operation != "jit" else {4, 5})  # w, b, x and the state


@pytest.mark.parametrize("wrapper", [ruled, jvp_ruled])
@pytest.mark.parametrize("mapped", [lambda f: hkx.vmap(f, split_rng=False), jax.vmap])
def test_mapped_functions_with_a_rule_share_keys_and_states(wrapper: Any, mapped: Any) -> None:
    def body(x: Any) -> Any:
        hkx.set_state("n", hkx.get_state("n", [], init=jnp.zeros) + 1)
        return noisy(x)

    def f(x: Any, map_: Any) -> Any:
        return map_(wrapper(body))(x), hkx.next_rng_key()

    model = hkx.transform_with_state(f)
    params, state = model.init(KEY, X, lambda g: hkx.vmap(g, split_rng=False))
    found = model.apply(params, state, KEY, X, mapped)
    expected = model.apply(params, state, KEY, X, lambda g: lambda x: g(x))
    np.testing.assert_array_equal(*(jax.random.key_data(out[0][1]) for out in (found, expected)))
    assert_close((found[0][0], found[1]), (expected[0][0], expected[1]))


@pytest.mark.parametrize("length", [-1, 1.5, "two", [2]])
def test_what_is_no_length_is_said(length: Any) -> None:
    """`jax.lax.scan` takes -1 for 0, and 1.5 for 1."""
    model = hkx.transform(lambda x: hkx.scan(lambda c, _: (c + 1.0, c), x, None, length=length))
    with pytest.raises(hkx.errors.InvalidSizeError, match="`length` must be an integer, at least 0, got"):
        model.init(None, 0.0)
    for number in (2.0, np.int64(2)):  # as `jax.lax.scan` takes them
        model = hkx.transform(lambda x, n=number: hkx.scan(lambda c, _: (c + 1.0, c), x, None, length=n))
        assert model.apply({}, None, 0.0)[0] == 2.0


@pytest.mark.parametrize("loop", [lambda f, x: hkx.scan(lambda h, row: (h, f(row)), 0.0, x)[1], hkx.map])
def test_a_loop_over_a_length_that_has_a_name_is_exported(loop: Any) -> None:
    model = hkx.without_apply_rng(hkx.transform(lambda x: loop(hkx.Linear(4), x)))
    params = model.init(KEY, X)
    (length,) = jax.export.symbolic_shape("length")
    exported = jax.export.export(jax.jit(model.apply))(params, jax.ShapeDtypeStruct((length, 2), jnp.float32))
    for rows in (X, X[:1]):
        expected = np.asarray(rows) @ np.asarray(params["linear"]["w"]) + np.asarray(params["linear"]["b"])
        assert_close(exported.call(params, rows), expected)
