"""Flax modules inside hkx, and hkx functions inside Flax: the same values either way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

nn = pytest.importorskip("flax.linen", reason="compares with flax")

from flax import errors, nnx  # noqa: E402

import hkx  # noqa: E402
import hkx.experimental.flax as hf  # noqa: E402
from hkx.errors import (  # noqa: E402
    MissingParameterError,
    NotInTransformError,
    StateInInnerTraceError,
    WeightMismatchError,
)
from hkx.interop.flax import NNXModule  # noqa: E402

pytestmark = [pytest.mark.peer, pytest.mark.unoptimised]
X = np.random.RandomState(0).standard_normal((4, 3)).astype(np.float32)
KEY = jax.random.key(0)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, training=True):
        x = nn.BatchNorm(use_running_average=not training, momentum=0.9)(nn.Dense(2)(x))
        return nn.Dense(3)(x)


def test_linen_module_with_state():
    model = hkx.transform_with_state(lambda x, training: hf.lift(Net(), name="net")(x, training))
    params, state = model.init(KEY, X, True)
    assert jax.tree.map(jnp.shape, params) == {
        "net/Dense_0": {"kernel": (3, 2), "bias": (2,)},
        "net/BatchNorm_0": {"scale": (2,), "bias": (2,)},
        "net/Dense_1": {"kernel": (2, 3), "bias": (3,)},
    }
    assert jax.tree.map(jnp.shape, state) == {"net/batch_stats/BatchNorm_0": {"mean": (2,), "var": (2,)}}
    theirs = Net().init(hkx.PRNGSequence(KEY).next(), X)
    jax.tree.map(
        np.testing.assert_array_equal,
        hf.flatten_flax_to_haiku(theirs["params"]),
        {k.removeprefix("net/"): v for k, v in params.items()},
    )
    (expected, changed) = Net().apply(theirs, X, mutable=["batch_stats"])
    out, new_state = jax.jit(model.apply, static_argnums=4)(params, state, None, X, True)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    mean = changed["batch_stats"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(new_state["net/batch_stats/BatchNorm_0"]["mean"], mean, rtol=1e-6)
    assert np.any(mean != state["net/batch_stats/BatchNorm_0"]["mean"])


def test_linen_module_alone_shared_and_twice():
    def f(x):
        one = hf.lift(nn.Dense(3), name="d")
        return one(one(x)) + hf.lift(nn.Dense(3), name="d")(x)

    params = hkx.transform(f).init(KEY, X)
    assert sorted(params) == ["d/~", "d_1/~"]
    a, b = (params[k] for k in ("d/~", "d_1/~"))
    expected = (X @ a["kernel"]) @ a["kernel"] + X @ b["kernel"]
    np.testing.assert_allclose(hkx.transform(f).apply(params, None, X), expected, rtol=1e-5, atol=1e-6)


def test_linen_module_that_draws_keys():
    class Noisy(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5, deterministic=False)(nn.Dense(64)(x))

    model = hkx.transform(lambda x: (hf.lift(Noisy(), name="n")(x), hkx.maybe_next_rng_key()))
    params = model.init(KEY, X)
    a, b, c = (model.apply(params, jax.random.key(i), X)[0] for i in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    assert 0.3 < np.mean(np.asarray(a) == 0) < 0.7
    with pytest.raises(errors.InvalidRngError):
        model.apply(params, None, X)
    quiet = hkx.transform(lambda x: (hf.lift(nn.Dense(2), name="d")(x), hkx.next_rng_key()))
    drawn = quiet.apply(quiet.init(KEY, X), KEY, X)[1]
    assert drawn == hkx.PRNGSequence(KEY).next()  # a module that draws none costs none


def test_hooks_and_checks_reach_a_lifted_module():
    def half(next_getter, value, context):
        return next_getter(value * 0.5)

    def f(x):
        with hkx.custom_getter(half):
            return hf.lift(nn.Dense(2, use_bias=False), name="d")(x)

    params = {"d/~": {"kernel": np.ones((3, 2), np.float32)}}
    np.testing.assert_allclose(hkx.transform(f).apply(params, None, X), X @ params["d/~"]["kernel"] / 2, rtol=1e-6)
    with pytest.raises(NotInTransformError):
        hf.lift(nn.Dense(2), name="d")
    model = hkx.transform_with_state(lambda x: jax.jit(lambda x: hf.lift(Net(), name="n")(x))(x))
    variables = hkx.transform_with_state(lambda x: hf.lift(Net(), name="n")(x)).init(KEY, X)
    with pytest.raises(StateInInnerTraceError):
        model.apply(*variables, None, X)
    with pytest.raises(TypeError, match="Linen or NNX"):
        hkx.transform(lambda: hf.lift(3, name="d")).apply({}, None)


class Small(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


@pytest.mark.parametrize("from_object", [False, True])
def test_nnx_module_inside_hkx(from_object):
    given = Small(nnx.Rngs(0)) if from_object else Small
    model = hkx.transform_with_state(lambda x: hf.lift(given, name="small")(x))
    params, state = model.init(KEY, X)
    assert sorted(params) == ["small/layers/0", "small/layers/1", "small/norm"]
    assert sorted(state["small/norm"]) == ["mean", "var"]
    theirs = Small(nnx.Rngs(0) if from_object else nnx.Rngs(hkx.PRNGSequence(KEY).next()))
    np.testing.assert_array_equal(params["small/layers/1"]["kernel"], theirs.layers[1].kernel[...])
    out, new_state = model.apply(params, state, None, X)
    np.testing.assert_allclose(out, theirs(jnp.asarray(X)), rtol=1e-5)
    np.testing.assert_allclose(new_state["small/norm"]["mean"], theirs.norm.mean[...], rtol=1e-5)
    gradients = jax.grad(lambda p: model.apply(p, state, None, X)[0].var())(params)
    assert np.any(gradients["small/norm"]["scale"] != 0)


def norm_net(x):
    return hkx.Linear(2)(hkx.BatchNorm(True, True, 0.9)(x, is_training=True))


def test_hkx_function_as_linen_module():
    ours = hkx.transform_with_state(norm_net)
    module = hf.Module(ours)
    variables = module.init(KEY, X)
    assert jax.tree.map(jnp.shape, variables["params"]) == {
        "batch_norm": {"offset": (1, 3), "scale": (1, 3)},
        "linear": {"b": (2,), "w": (3, 2)},
    }
    params, state = (hf.flatten_flax_to_haiku(variables[c]) for c in ("params", "state"))
    expected, new_state = ours.apply(params, state, None, X)
    out, changed = module.apply(variables, X, mutable=["state"])
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, hf.flatten_flax_to_haiku(changed["state"]), dict(new_state))
    with pytest.raises(errors.ModifyScopeVariableError):
        module.apply(variables, X)

    class Outer(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(hf.Module.create(hkx.nets.MLP, [4, 5])(x))

    variables = Outer().init(KEY, X)
    assert variables["params"]["Module_0"]["mlp"]["~"]["linear_1"]["w"].shape == (4, 5)
    assert Outer().apply(variables, X).shape == (4, 1)


def test_hkx_function_that_draws_keys_as_linen_module():
    ours = hkx.transform(lambda x: hkx.dropout(hkx.next_rng_key(), 0.5, hkx.Linear(64)(x)))
    module = hf.Module(ours)
    variables = module.init({"params": KEY, "apply": KEY}, X)
    a, b, c = (module.apply(variables, X, rngs={"apply": jax.random.key(i)}) for i in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, c)


def test_hkx_function_as_nnx_module():
    module = NNXModule(hkx.transform_with_state(norm_net), X, rngs=nnx.Rngs(0))
    params, state = module.params.get_value(), module.state.get_value()
    expected, new_state = hkx.transform_with_state(norm_net).apply(params, state, None, X)
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(module, X), expected, rtol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), dict(module.state.get_value()), dict(new_state)
    )
    gradients = nnx.grad(lambda m: (m(X) ** 2).sum())(module)
    assert np.any(jax.tree.leaves(gradients)[0] != 0)


@pytest.mark.parametrize("make", [lambda: nn.Dense(2), lambda: lambda rngs: nnx.Linear(3, 2, rngs=rngs)])
def test_missing_parameters_are_an_error(make):
    with pytest.raises(MissingParameterError, match="'d/"):
        hkx.transform(lambda x: hf.lift(make(), name="d")(x)).apply({}, None, X)


def test_what_is_no_module_is_named():
    for lifted, got in ((3, "int"), (nn.Dense, "a function that returned Dense"), (lambda rngs: 3, "a .*returned int")):
        with pytest.raises(TypeError, match=f"`lift` takes a Flax module .* got {got}"):
            hkx.transform(lambda x, lifted=lifted: hf.lift(lifted, name="d")(x)).init(0, X)


class Noisy(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(x) + jax.random.uniform(self.make_rng("noise"))


@pytest.mark.parametrize("with_params", [False, True])
def test_a_linen_module_takes_keys_of_its_own(with_params):
    def f(x):
        rngs = {"noise": jax.random.key(3)} | ({"params": jax.random.key(4)} if with_params else {})
        return hkx.experimental.flax.lift(Noisy(), name="noisy")(x, rngs=rngs)

    model = hkx.transform(f)
    x = jnp.ones([1, 3])
    params = model.init(None if with_params else jax.random.key(0), x)
    variables = {"params": {"Dense_0": params["noisy/Dense_0"]}}
    expected = Noisy().apply(variables, x, rngs={"noise": jax.random.key(3)})
    np.testing.assert_array_equal(model.apply(params, None, x), expected)
    if with_params:
        given = Noisy().init({"noise": jax.random.key(3), "params": jax.random.key(4)}, x)["params"]["Dense_0"]
        np.testing.assert_array_equal(params["noisy/Dense_0"]["kernel"], given["kernel"])


def test_a_module_owns_the_flax_modules_in_it():
    class Outer(hkx.Module):
        def __call__(self, x):
            return hf.lift(Net(), name="net")(x)

    owned = []

    def f(x):
        outer = Outer()
        y = outer(x)
        owned.append((set(outer.params_dict()), set(outer.state_dict())))
        return y

    model = hkx.transform_with_state(f)
    params, state = model.init(KEY, X)
    model.apply(params, state, None, X)
    names = tuple({f"{m}/{n}" for m, entries in tree.items() for n in entries} for tree in (params, state))
    assert len(names[0]) == 6 and len(names[1]) == 2
    assert owned == [names] * len(owned)


def test_linen_modules_inside_of_loops():
    def f(x):
        x = hkx.layer_stack(3, name="stack")(lambda x: hf.lift(nn.Dense(3), name="d")(x))(x)
        shared = hf.lift(nn.Dense(3), name="shared")
        return hkx.scan(lambda c, _: (hkx.remat(shared)(c), None), x, None, length=2)[0]

    model = hkx.transform(f)
    params = model.init(KEY, X)
    y = X
    for i in range(3):
        y = y @ params["stack/d/~"]["kernel"][i]
    for _ in range(2):
        y = y @ params["shared/~"]["kernel"]
    np.testing.assert_allclose(jax.jit(model.apply)(params, None, X), y, rtol=1e-5, atol=1e-6)


def test_nnx_module_without_a_stream_of_keys_for_calls():
    module = NNXModule(hkx.transform(lambda x: hkx.Linear(2)(x)), X, rngs=nnx.Rngs(params=0))
    w = module.params.get_value()["linear"]["w"]
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(module, X), X @ np.asarray(w), rtol=1e-5)
    noisy = hkx.transform(lambda x: hkx.dropout(hkx.next_rng_key(), 0.5, x))
    with pytest.raises(ValueError, match="next_rng_key"):
        NNXModule(noisy, X, rngs=nnx.Rngs(params=0))(X)


def test_nnx_module_that_draws_keys_inside_hkx():
    class Dropped(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(3, 64, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.dropout(self.linear(x))

    model = hkx.transform_with_state(lambda x: hf.lift(Dropped, name="d")(x))
    params, state = model.init(KEY, X)
    apply = jax.jit(model.apply)
    (a, after), (again, _) = apply(params, state, None, X), apply(params, state, None, X)
    b, _ = apply(params, after, None, X)
    assert np.array_equal(a, again) and not np.array_equal(a, b)  # the stream of keys is state
    assert 0.3 < np.mean(np.asarray(a) == 0) < 0.7


def test_flattening_loses_no_array():
    flatten = hkx.experimental.flax.flatten_flax_to_haiku
    for nested in ({"a/b": {"w": 1}, "a": {"b": {"w": 2}}}, {"~": {"w": 1}, "w": 2}, {"a": {0: 1, "0": 2}}):
        with pytest.raises(WeightMismatchError, match=r"Two arrays have the same full name:\n  (a/b/w|~/w|a/0)"):
            flatten(nested)
    with pytest.raises(WeightMismatchError, match="`collection` must be nested dicts of arrays, got float"):
        flatten(1.0)


def test_an_array_and_a_module_of_one_name_are_an_error():
    class Both(hkx.Module):
        def __call__(self, x):
            return hkx.get_parameter("linear", [1, 3], init=jnp.ones) * hkx.Linear(3)(x)

    with pytest.raises(WeightMismatchError, match="both/linear"):
        hf.Module(hkx.transform(lambda x: Both()(x))).init(KEY, X)


def test_a_state_that_is_a_dict_is_named():
    def f():
        hkx.set_state("last", {"x": jnp.ones(2)})

    with pytest.raises(WeightMismatchError, match=r"is a dict.*\n  ~/last\n.* of a tuple"):
        hf.Module(hkx.transform_with_state(f)).init(KEY)


class TwoWays(nn.Module):
    def setup(self):
        self.first, self.second = nn.Dense(3), nn.Dense(3)
        self.norm = nn.BatchNorm(use_running_average=False)

    def __call__(self, x):
        return self.norm(self.second(self.first(x)))

    def encode(self, x):
        return self.first(x)


class Remembering(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.sow("losses", "sum", x.sum())
        steps = self.variable("numbers", "steps", lambda: 0)
        steps.value = steps.value + 1
        carry = self.variable("numbers", "carry", lambda: (jnp.zeros(2), jnp.ones(2)))
        h = nn.tanh(nn.Dense(2)(x) + carry.value[0][None])
        carry.value = (h[0], carry.value[1] + h[0])
        return h


def called_twice(lib, lift, x):
    dense = lift(nn.Dense(3), name="dense")
    return lib.Linear(2)(dense(dense(x)))


def called_in_two_ways(lib, lift, x):
    module = lift(TwoWays(), name="two")
    return module(x, method="encode"), lib.Linear(2)(module(x)), module(x)


def called_in_loops(lib, lift, x):
    dense, two = lift(nn.Dense(3), name="dense"), lift(TwoWays(), name="two")
    x, _ = lib.scan(lambda c, _: (two(c), None), dense(x), None, length=2)
    return lib.Linear(2)(dense(x))


def variables_that_are_no_arrays(lib, lift, x):
    return lib.Linear(2)(lift(Remembering(), name="memory")(x))


@pytest.mark.parametrize("program", [called_twice, called_in_two_ways, called_in_loops, variables_that_are_no_arrays])
def test_linen_modules_as_in_haiku(program):
    haiku = pytest.importorskip("haiku", reason="compares with dm-haiku")
    import haiku.experimental.flax as theirs

    key = jax.random.PRNGKey(0)
    model = hkx.transform_with_state(lambda x: program(hkx, hf.lift, x))
    other = haiku.transform_with_state(lambda x: program(haiku, theirs.lift, x))
    (params, state), expected = model.init(key, X), other.init(key, X)
    assert [(m, list(e)) for m, e in params.items()] == [(m, list(e)) for m, e in expected[0].items()]
    jax.tree.map(np.testing.assert_array_equal, params, dict(expected[0]))
    assert jax.tree.structure(state) == jax.tree.structure(expected[1])
    for _ in range(2):
        (out, state), expected = model.apply(params, state, None, X), other.apply(params, state, None, X)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), (out, state), expected)
