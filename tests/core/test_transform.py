"""The pair of pure functions: what may be done with it, and what it leaves behind (nothing)."""

import functools
import gc
import inspect
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import hkx

pytestmark = pytest.mark.unoptimised

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)


def network(x):
    hkx.set_state("calls", hkx.get_state("calls", [], init=jnp.zeros) + 1)
    return hkx.nets.MLP([4, 2])(x) + hkx.dropout(hkx.next_rng_key(), 0.5, x).sum()


MODEL = hkx.transform_with_state(network)
PLAIN = hkx.without_apply_rng(hkx.transform(lambda x: hkx.nets.MLP([4, 2])(x)))


def by_hand(params, x):
    params = jax.tree.map(np.asarray, params)
    hidden = np.maximum(x @ params["mlp/~/linear_0"]["w"] + params["mlp/~/linear_0"]["b"], 0)
    return hidden @ params["mlp/~/linear_1"]["w"] + params["mlp/~/linear_1"]["b"]


@pytest.fixture(scope="module")
def params():
    return PLAIN.init(jax.random.key(0), X)


def test_apply_is_the_program_written_by_hand(params):
    np.testing.assert_allclose(PLAIN.apply(params, X), by_hand(params, X), rtol=1e-5, atol=1e-6)


def test_calls_do_not_change_what_comes_next(params):
    key = jax.random.key(1)
    p, s = MODEL.init(key, X)
    before = jax.tree.map(np.array, (p, s))
    a, s1 = MODEL.apply(p, s, key, X)
    b, s2 = MODEL.apply(p, s, key, X)
    assert (np.asarray(a) == np.asarray(b)).all() and s1 == s2 and float(s1["~"]["calls"]) == 1
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), (p, s), before))
    assert (PLAIN.apply(params, X) == PLAIN.apply(params, X)).all()


TRANSFORMS = {
    "jit": (lambda f: jax.jit(f), lambda y: y),
    "vmap": (lambda f: jax.vmap(f, in_axes=(None, 0)), lambda y: y),
    "checkpoint": (lambda f: jax.checkpoint(f), lambda y: y),
    "pmap": (lambda f: lambda p, x: jax.pmap(f, in_axes=(None, 0))(p, x[:, None])[:, 0], lambda y: y),
    "shard_map": (
        lambda f: jax.shard_map(
            f,
            mesh=jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,)),
            in_specs=(P(), P("i")),
            out_specs=P("i"),
        ),
        lambda y: y,
    ),
    "grad": (lambda f: jax.grad(lambda p, x: f(p, x).sum()), None),
    "jacrev of jit": (lambda f: jax.jacrev(jax.jit(lambda p, x: f(p, x).sum())), None),
    "linearize": (lambda f: lambda p, x: jax.linearize(lambda q: f(q, x), p)[0], lambda y: y),
    "eval_shape": (lambda f: lambda p, x: jax.eval_shape(f, p, x), None),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.eight_devices] if n in ("pmap", "shard_map") else []) for n in TRANSFORMS],
)
def test_jax_transforms_of_apply(name, params):
    wrap, undo = TRANSFORMS[name]
    out = wrap(PLAIN.apply)(params, X)
    if undo is not None:
        np.testing.assert_allclose(undo(out), by_hand(params, X), rtol=1e-5, atol=1e-6)
    elif name == "eval_shape":
        assert out.shape == (8, 2)
    else:
        expected = jax.grad(lambda p: program(p).sum())(params)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), out, expected)


def program(p):
    hidden = jnp.maximum(X @ p["mlp/~/linear_0"]["w"] + p["mlp/~/linear_0"]["b"][None], 0)
    return hidden @ p["mlp/~/linear_1"]["w"] + p["mlp/~/linear_1"]["b"][None]


def test_training_with_donated_buffers(params):
    optimizer = optax.sgd(0.05)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(p, o, x, y):
        loss, grads = jax.value_and_grad(lambda p: ((PLAIN.apply(p, x) - y) ** 2).mean())(p)
        updates, o = optimizer.update(grads, o)
        return optax.apply_updates(p, updates), o, loss

    p = jax.tree.map(jnp.array, params)
    first = jax.tree.leaves(p)
    state, losses = optimizer.init(p), []
    for _ in range(30):
        p, state, loss = step(p, state, X, X[:, :2] * 3)
        losses.append(float(loss))
    assert losses[-1] < 0.3 * losses[0]
    assert all(leaf.is_deleted() for leaf in first)


def test_first_release_way_of_writing():
    model = hkx.transform(lambda x: hkx.nets.MLP([4, 2])(x), apply_rng=False)
    params = model.init(jax.random.key(0), X)
    np.testing.assert_array_equal(model.apply(params, X), PLAIN.apply(params, X))
    with pytest.raises(hkx.errors.MissingRNGError):
        hkx.transform(hkx.next_rng_key, apply_rng=False).apply({})
    assert callable(hkx.transform(lambda: 1, apply_rng=True).apply)


def test_kinds_of_pairs():
    assert isinstance(hkx.without_state(hkx.transform_with_state(lambda: 1)), hkx.Transformed)
    assert hkx.without_state(hkx.transform_with_state(lambda: 1)).apply({}, None) == 1
    with_state = hkx.with_empty_state(hkx.transform(lambda x: x))
    assert isinstance(with_state, hkx.TransformedWithState) and with_state.apply({}, {}, None, 3) == (3, {})
    assert with_state.apply({}, {"other": {"n": 1}}, None, 3) == (3, {})  # a state of the whole program
    bare = hkx.without_apply_rng(hkx.transform_with_state(lambda x: x))
    assert bare.apply({}, {}, 3) == (3, {})
    init, apply = hkx.transform(lambda x: x)
    assert init(None, 1) == {} and apply({}, None, 1) == 1
    own = hkx.without_apply_rng(hkx.Transformed(lambda rng: {}, lambda params, rng, x: x + 1))
    assert own.apply({}, 1) == 2


def arguments(function):
    """The signature without what it says about the arguments that the transform adds, and about the result."""
    given = inspect.signature(function).parameters.values()
    plain = [p.replace(annotation=p.empty) if p.name in ("rng", "params", "state") else p for p in given]
    return str(inspect.Signature(plain))


def test_signatures_and_names_are_the_users():
    def forward(x, *, is_training: bool = True):
        return x

    model = hkx.transform_with_state(forward)
    assert arguments(model.init) == "(rng, x, *, is_training: bool = True)"
    assert arguments(model.apply) == "(params, state, rng, x, *, is_training: bool = True)"
    assert "forward" in model.apply.__qualname__
    assert arguments(hkx.transform(forward).apply) == "(params, rng, x, *, is_training: bool = True)"
    bare = hkx.without_apply_rng(model)
    assert arguments(bare.apply) == "(params, state, x, *, is_training: bool = True)"
    bare = hkx.without_apply_rng(hkx.without_state(model))
    assert arguments(bare.apply) == "(params, x, *, is_training: bool = True)"
    assert arguments(bare.init) == arguments(model.init)
    again = hkx.with_empty_state(hkx.without_state(model))
    assert arguments(again.apply) == arguments(model.apply)
    several = hkx.without_apply_rng(hkx.multi_transform(lambda: (forward, (forward, lambda y: y))))
    assert [arguments(f) for f in (several.init, *several.apply)] == [
        "(rng, x, *, is_training: bool = True)",
        "(params, x, *, is_training: bool = True)",
        "(params, y)",
    ]
    own = hkx.without_apply_rng(hkx.Transformed(lambda key: {}, lambda *args: args))
    assert str(inspect.signature(own.apply)) == "(*args)"
    clash = hkx.transform(lambda params, rng: params + rng)
    assert clash.apply({}, None, 1, 2) == 3


def test_signatures_say_what_is_returned():
    def forward(x) -> int:
        return 2

    def types(function):
        signature = inspect.signature(function)
        return {k: p.annotation for k, p in signature.parameters.items() if k != "x"}, signature.return_annotation

    rng, params, state = jax.Array | int | None, hkx.Params | None, hkx.State | None
    stateful = hkx.transform_with_state(forward)
    assert types(stateful.init) == ({"rng": rng}, tuple[hkx.Params, hkx.State])
    assert types(stateful.apply) == ({"params": params, "state": state, "rng": rng}, tuple[int, hkx.State])
    plain = hkx.transform(forward)
    for model in (plain, hkx.without_state(stateful), hkx.multi_transform(lambda: (forward, forward))):
        assert types(model.init) == ({"rng": rng}, hkx.Params)
        assert types(model.apply) == ({"params": params, "rng": rng}, int)
        assert types(hkx.without_apply_rng(model).apply) == ({"params": params}, int)
    assert types(hkx.with_empty_state(plain).init) == types(stateful.init)
    assert types(hkx.with_empty_state(plain).apply)[1] == types(stateful.apply)[1]
    assert types(hkx.transform(lambda x: x).apply)[1] is Any


def test_arguments_of_any_kind():
    def f(a, /, b, *rest, flag, **more):
        return a, b, rest, flag, more

    model = hkx.transform(f)
    assert model.init(None, 1, 2, 3, flag="x", z=None) == {}
    assert model.apply({}, None, 1, 2, 3, flag="x", z=None) == (1, 2, (3,), "x", {"z": None})


def test_params_of_other_mapping_types_are_taken(params):
    from types import MappingProxyType

    frozen = MappingProxyType({k: MappingProxyType(v) for k, v in params.items()})
    np.testing.assert_array_equal(PLAIN.apply(frozen, X), PLAIN.apply(params, X))
    assert hkx.transform(lambda: 1).apply(None, None) == 1


def test_nested_transforms():
    inner = hkx.transform_with_state(network)

    def outer(x):
        p, s = inner.init(hkx.next_rng_key(), x)
        out, s = inner.apply(p, s, hkx.next_rng_key(), x)
        with pytest.raises(hkx.errors.NonEmptyStateError):
            hkx.transform(network).init(hkx.next_rng_key(), x)
        return hkx.Linear(1)(out) + s["~"]["calls"]

    model = hkx.transform(outer)
    params = model.init(0, X)
    assert list(params) == ["linear"]
    assert jax.jit(model.apply)(params, 1, X).shape == (8, 1)


def test_module_made_once_and_used_in_init_and_apply():
    made = []

    def f(x):
        if not made:
            made.append(hkx.Linear(2))
        return made[0](x)

    model = hkx.transform(f)
    params = model.init(0, X)
    np.testing.assert_allclose(model.apply(params, None, X), X @ params["linear"]["w"], rtol=1e-5)
    assert len(made) == 1


def test_threads_run_side_by_side():
    results, failures = {}, []
    barrier = threading.Barrier(4)

    def work(i):
        def f(x):
            for _ in range(5):
                with hkx.name_scope(f"thread{i}"):
                    barrier.wait(timeout=60)
                    x = hkx.Linear(2)(x)
            return x

        try:
            results[i] = list(hkx.transform(f).init(i, X))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    for i in range(4):
        assert results[i] == [f"thread{i}/linear", *(f"thread{i}_{n}/linear" for n in range(1, 5))]


def test_new_context():
    with hkx.new_context(rng=0) as context:
        y = hkx.Linear(2)(X)
        hkx.set_state("n", 1)
        assert hkx.running_init()
    params = context.collect_params()
    assert context.collect_initial_state() == context.collect_state() == {"~": {"n": 1}}
    with hkx.new_context(params=params, state={"~": {"n": 1}}) as context:
        np.testing.assert_array_equal(hkx.Linear(2)(X), y)
        hkx.set_state("n", 2)
        assert not hkx.running_init()
    assert context.collect_state() == {"~": {"n": 2}} and context.collect_initial_state() == {"~": {"n": 1}}
    with pytest.raises(hkx.errors.NotInTransformError):
        hkx.Linear(1)


def test_state_is_carried():
    p, s = MODEL.init(0, X)
    assert float(s["~"]["calls"]) == 0
    for n in range(1, 4):
        _, s = MODEL.apply(p, s, n, X)
        assert float(s["~"]["calls"]) == n


def test_an_object_that_holds_the_transform_of_its_own_method_is_collected():
    class Agent:
        def __init__(self):
            self.network = hkx.transform(self._forward)

        def _forward(self, x):
            return hkx.Linear(2)(x)

    agent = Agent()
    agent.network.apply(agent.network.init(0, X), None, X)
    seen = weakref.ref(agent)
    del agent
    gc.collect()
    assert seen() is None
