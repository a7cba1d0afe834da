"""The same program with only its import changed gives the same names, values, state, keys and outputs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

hk = pytest.importorskip("haiku", reason="dm-haiku is not installed")
pytestmark = pytest.mark.peer

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)


def mlp(lib, x):
    return lib.nets.MLP([5, 4, 2], activate_final=True)(x)


def mlp_with_dropout(lib, x):
    net = lib.nets.MLP([5, 4], w_init=lib.initializers.RandomUniform(-1, 1), b_init=lib.initializers.Constant(0.1))
    return net(x, 0.3, lib.next_rng_key())


def reversed_mlp(lib, x):
    net = lib.nets.MLP([5, 4, 2], name="up", with_bias=False)
    y = net(x)
    return net.reverse()(y) + net.reverse(activate_final=True, name="other")(y)


def shared(lib, x):
    layer = lib.Linear(3)
    return layer(layer(x)) + lib.Linear(3)(x) + lib.Linear(3, name="linear_7")(x) + lib.Linear(3)(x)


def layers(lib, x):
    x = lib.Sequential(
        [lib.Linear(6), jnp.tanh, lib.Bias(b_init=lib.initializers.RandomNormal()), lib.Reshape([2, -1])]
    )(x)
    x = lib.Bias(bias_dims=[-1], b_init=jnp.ones)(x, multiplier=0.5) + lib.Bias(bias_dims=[])(x)
    return lib.Flatten()(x) + lib.one_hot(jnp.arange(4), 6)


def keys(lib, x):
    a, b = lib.next_rng_key(), lib.next_rng_keys(2)
    lib.reserve_rng_keys(3)
    y = lib.Linear(2)(x)
    with lib.with_rng(lib.next_rng_key()):
        y += lib.Linear(2)(x)
    return y, lib.dropout(lib.next_rng_key(), 0.5, x), lib.dropout(a, 0.5, x, (0,)), b, lib.maybe_next_rng_key()


def state(lib, x):
    n = lib.get_state("n", [], jnp.int32, init=jnp.zeros)
    lib.set_state("n", n + 1)
    lib.set_state("last", {"x": x, "y": n})
    w = lib.get_state("w", x.shape[-1:], init=lib.initializers.RandomNormal())
    lib.set_state("w", w + x.mean(0))
    return lib.get_state("w"), lib.get_state("n"), lib.get_state("last")


def hooks(lib, x):
    def creator(next_creator, shape, dtype, init, context):
        return next_creator(shape, dtype, init) * (2 if context.name == "w" else 1)

    def getter(next_getter, value, context):
        return next_getter(value) + len(context.full_name)

    with lib.custom_creator(creator), lib.custom_getter(getter):
        return lib.nets.MLP([3, 2])(x) + lib.nets.MLP([2])(x)


def own_module(lib, x):
    class Attention(lib.Module):
        def __init__(self, size, name=None):
            super().__init__(name=name)
            self.size = size
            self.project = lib.Linear(size)

        def __call__(self, x):
            w = lib.get_parameter("w", [x.shape[-1], self.size], init=lib.initializers.Orthogonal())
            g = lib.get_parameter("g", [], init=lambda s, d: jax.random.normal(lib.next_rng_key(), s, d))
            return self.project(x) + g * self.inner(x @ w)

        def inner(self, x):
            return lib.Linear(self.size)(x)

    return Attention(3)(Attention(3)(x)) + Attention(3, name="last")(x)


def dataclass_module(lib, x):
    @dataclasses.dataclass
    class Net(lib.Module):
        size: int
        scale: float = 2.0

        def __call__(self, x):
            return lib.Linear(self.size)(x) * self.scale

    return Net(3)(Net(size=3, scale=1.0)(x))


def nested(lib, x):
    inner = lib.transform(lambda x: lib.Linear(2)(x))
    params = inner.init(lib.next_rng_key(), x)
    return inner.apply(params, None, x) + lib.Linear(2)(x)


def raw_vmap_and_grad(lib, x):
    layer = lib.Linear(2)
    return jax.vmap(layer)(x) + jax.grad(lambda x: lib.Linear(2)(x).sum())(x).sum()


def initializers(lib, x):
    table = [
        *(lib.initializers.RandomNormal(0.3), lib.initializers.RandomNormal(0.3, 2.0)),
        *(lib.initializers.TruncatedNormal(0.3), lib.initializers.TruncatedNormal(1.0, 0.5, -1.0, 0.5)),
        *(
            lib.initializers.RandomUniform(),
            lib.initializers.RandomUniform(-3, 2),
            lib.initializers.UniformScaling(1.5),
        ),
        *(lib.initializers.Orthogonal(), lib.initializers.Orthogonal(2.0, axis=0), lib.initializers.Identity(3.0)),
        *(lib.initializers.Constant(3), lib.initializers.Constant(np.arange(4.0, dtype=np.float32))),
        *(
            lib.initializers.VarianceScaling(s, m, d, a)
            for s, m, d, a in [
                (1.0, "fan_in", "truncated_normal", None),
                (2.0, "fan_out", "normal", None),
                (0.5, "fan_avg", "uniform", None),
                (1.0, "fan_in", "uniform", [0]),
                (1.0, "fan_out", "truncated_normal", [0]),
            ]
        ),
    ]
    for i, init in enumerate(table):
        for shape in [(3, 4), (4, 4), (2, 3, 4)]:
            lib.get_parameter(f"p{i} {shape}", shape, jnp.float32, init=init)
    lib.get_parameter("vector", [5], init=lib.initializers.VarianceScaling())
    return x


def transparent_constructor(lib, x):
    class Net(lib.Module):
        @lib.transparent
        def __init__(self, name=None):
            super().__init__(name=name)
            self.first = lib.Linear(3)

        def __call__(self, x):
            return lib.Linear(3)(self.first(x))

    class Pair(lib.Module):
        def __init__(self):
            super().__init__()
            self.nets = [Net(), Net("second")]

        def __call__(self, x):
            return self.nets[0](x) + self.nets[1](x) + Net()(x)

    heard = []

    def listen(next_method, args, kwargs, context):
        heard.append(f"{type(context.module).__name__}.{context.method_name}")
        return next_method(*args, **kwargs)

    with lib.intercept_methods(listen):
        y = Pair()(x)
    return y, {name: jnp.asarray(heard.count(name)) for name in heard}


PROGRAMS = [
    *(mlp, mlp_with_dropout, reversed_mlp, shared, layers, keys, state, hooks, own_module, dataclass_module, nested),
    *(raw_vmap_and_grad, initializers, transparent_constructor),
]


def bits(value):
    value = (
        jax.random.key_data(value)
        if hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        else value
    )
    return np.asarray(value).tobytes()


@pytest.mark.parametrize("reserve", [1, 3])
@pytest.mark.parametrize("seed", [0, 42])
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_program(program, seed, reserve):
    with (
        hkx.config.context(rng_reserve_size=reserve),
        hk.config.context(rng_reserve_size=reserve),
        jax.numpy_rank_promotion("allow"),  # the peer's Orthogonal needs it
    ):
        ours = hkx.transform_with_state(lambda x: program(hkx, x))
        theirs = hk.transform_with_state(lambda x: program(hk, x))
        key = jax.random.PRNGKey(seed)
        params, state = ours.init(key, X)
        expected = theirs.init(key, X)
        assert [(m, list(e)) for m, e in params.items()] == [(m, list(e)) for m, e in expected[0].items()]
        assert jax.tree.structure((params, state)) == jax.tree.structure(expected)
        assert jax.tree.map(bits, (params, state)) == jax.tree.map(bits, expected)

        out = ours.apply(params, state, key, X)
        expected_out = theirs.apply(params, state, key, X)
        assert jax.tree.structure(out) == jax.tree.structure(expected_out)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), out, expected_out)


@pytest.mark.parametrize("program", [mlp, mlp_with_dropout, own_module, hooks])
def test_same_gradients(program):
    ours = hkx.transform(lambda x: program(hkx, x))
    theirs = hk.transform(lambda x: program(hk, x))
    key = jax.random.PRNGKey(0)
    with jax.numpy_rank_promotion("allow"):
        params = ours.init(key, X)
    a, b = (jax.jit(jax.grad(lambda p, f=f: (f.apply(p, key, X) ** 2).sum()))(params) for f in (ours, theirs))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), a, b)


def test_checkpoints_move_both_ways():
    key = jax.random.PRNGKey(0)
    ours, theirs = (lib.transform(lambda x, lib=lib: lib.nets.MLP([5, 2])(x)) for lib in (hkx, hk))
    p, q = ours.init(key, X), theirs.init(key, X)
    np.testing.assert_allclose(ours.apply(q, None, X), theirs.apply(p, None, X), rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
@pytest.mark.parametrize(
    "kind", ["RandomNormal", "TruncatedNormal", "RandomUniform", "VarianceScaling", "UniformScaling"]
)
def test_same_initial_values_in_every_dtype(kind, dtype):
    def f(lib):
        for shape in [(3, 5), (70, 60)]:
            lib.get_parameter(str(shape), shape, dtype, init=getattr(lib.initializers, kind)())

    p, q = (lib.transform(lambda lib=lib: f(lib)).init(jax.random.PRNGKey(1)) for lib in (hkx, hk))
    assert jax.tree.map(bits, p) == jax.tree.map(bits, q)


@pytest.mark.parametrize("kind", ["RandomNormal", "TruncatedNormal"])
def test_same_complex_initial_values(kind):
    def values(lib):
        init = getattr(lib.initializers, kind)()
        model = lib.transform(lambda: lib.get_parameter("w", [3, 5], jnp.complex64, init=init))
        return jax.tree.map(bits, model.init(jax.random.PRNGKey(1)))

    assert values(hkx) == values(hk)


def test_the_keys_of_a_dict_in_the_state_keep_their_order_in_init():
    def f(lib, x):
        state = lib.get_state("s", [], init=lambda *_: {"z": x, "a": {"c": x, "b": x}, "t": ({"n": x, "m": x},)})
        lib.set_state("s", state)
        return list(state), list(state["a"]), list(state["t"][0])

    for lib in (hk, hkx):
        model = lib.transform_with_state(lambda x, lib=lib: f(lib, x))
        params, state = model.init(jax.random.PRNGKey(0), jnp.ones(2))
        assert model.apply(params, state, None, jnp.ones(2))[0] == (["z", "a", "t"], ["c", "b"], ["m", "n"])
