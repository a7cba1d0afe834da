"""capture_intermediates: what modules return, also inside of loops and transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.errors import IntermediateInInnerTraceError

pytestmark = pytest.mark.unoptimised

KEY = jax.random.key(0)
X = jnp.asarray(np.random.RandomState(0).standard_normal((4, 3)), jnp.float32)
MLP = hkx.transform(lambda x: hkx.nets.MLP([5, 2])(x))
PARAMS = MLP.init(KEY, X)


def test_intermediates_of_a_transformed_function():
    captured = hkx.capture_intermediates(MLP)
    assert jax.tree.map(jnp.shape, captured.init(KEY, X)) == jax.tree.map(jnp.shape, PARAMS)
    out, values = jax.jit(captured.apply)(PARAMS, None, X)
    hidden = X @ PARAMS["mlp/~/linear_0"]["w"]
    np.testing.assert_allclose(values["mlp/~/linear_0"]["__call__"][0], hidden, rtol=1e-5)
    np.testing.assert_array_equal(values["mlp"]["__call__"][0], out)
    np.testing.assert_allclose(out, MLP.apply(PARAMS, None, X), rtol=1e-5)
    assert sorted(values) == ["mlp", "mlp/~/linear_0", "mlp/~/linear_1"]
    only = hkx.capture_intermediates(MLP, filter=lambda m, method: isinstance(m, hkx.Linear) and m.name == "linear_1")
    assert list(only.apply(PARAMS, None, X)[1]) == ["mlp/~/linear_1"]


def test_intermediates_of_plain_functions_with_state_and_repeated_calls():
    class Twice(hkx.Module):
        def __call__(self, x):
            return self.half(x) + self.half(x + 1)

        def half(self, x):
            hkx.set_state("last", x)
            return x / 2

    f = hkx.capture_intermediates(lambda x: Twice()(x), filter=lambda module, method: method != "__init__")
    (out, values), state = hkx.transform_with_state(f).apply({}, {}, None, 2.0)
    assert (out, values) == (2.5, {"twice": {"half": (1.0, 1.5), "__call__": (2.5,)}})
    model = hkx.capture_intermediates(hkx.transform_with_state(lambda x: Twice()(x)))
    (out, values), state = model.apply({}, {}, None, 2.0)
    assert values == {"twice": {"__call__": (2.5,)}} and state == {"twice": {"last": 3.0}}


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def dense(x):
    return jnp.tanh(hkx.Linear(3, name="dense")(x))


def energy(x):
    return dense(x).sum()


# Programs with one of hkx's transforms, and which of the loops in `unrolled` they are.
PROGRAMS = {
    "scan": (lambda x: hkx.scan(lambda c, x_t: (dense(c + x_t), c), jnp.zeros(3), x)[0], "carried"),
    "scan reverse": (
        lambda x: hkx.scan(lambda c, x_t: (dense(c + x_t), c), jnp.zeros(3), x, reverse=True)[0],
        "carried in reverse",
    ),
    "map": (lambda x: hkx.map(dense, x), "rows"),
    "vmap": (lambda x: hkx.vmap(dense, split_rng=False)(x), "rows"),
    "vmap split": (lambda x: hkx.vmap(dense, in_axes=1, split_rng=True)(x.T), "rows"),
    "jit of remat": (lambda x: hkx.jit(hkx.remat(dense))(x), "once"),
    "grad": (lambda x: hkx.grad(energy)(x), "once"),
    "jvp of value_and_grad": (lambda x: hkx.jvp(hkx.value_and_grad(energy), (x,), (x,))[0], "once"),
    "vjp": (lambda x: hkx.vjp(dense, x)[0], "once"),
    "map of scan": (
        lambda x: hkx.map(lambda row: hkx.scan(lambda c, _: (dense(c), None), row, None, length=2)[0], x),
        "rows twice",
    ),
    "scan of own": (
        lambda x: hkx.scan(lambda c, x_t: (dense(c + x_t), c), jnp.zeros(3), x, param_axes=0)[0],
        "carried with own",
    ),
    "vmap of own": (lambda x: hkx.vmap(dense, split_rng=False, param_axes=0)(x), "rows with own"),
}


FEW = ("scan reverse", "vmap", "grad", "map of scan", "scan of own")


def unrolled(kind, x, w, b):
    """What the Linear inside of `dense` returns, in NumPy."""
    x, w, b = (np.asarray(a) for a in (x, w, b))
    if kind == "once":
        return x @ w + b
    if kind == "rows":
        return np.stack([row @ w + b for row in x])
    if kind == "rows with own":
        return np.stack([x[i] @ w[i] + b[i] for i in range(4)])
    if kind == "rows twice":
        first = x @ w + b
        return np.stack([first, np.tanh(first) @ w + b], axis=1)
    out, carry = {}, np.zeros(3, np.float32)
    for i in reversed(range(4)) if "reverse" in kind else range(4):
        w_i, b_i = (w[i], b[i]) if "own" in kind else (w, b)
        out[i] = (carry + x[i]) @ w_i + b_i
        carry = np.tanh(out[i])
    return np.stack([out[i] for i in range(4)])


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in FEW)) for n in PROGRAMS])
def test_intermediates_come_out_of_transforms(name):
    f, kind = PROGRAMS[name]
    model = hkx.transform(f)
    params = jax.tree.map(lambda a: a + 0.1, model.init(KEY, X))
    with jax.checking_leaks():
        out, values = jax.jit(hkx.capture_intermediates(model).apply)(params, KEY, X)
    same(out, model.apply(params, KEY, X))
    expected = unrolled(kind, X, **params["dense"])
    same(values, {"dense": {"__call__": (expected,)}})

    inside = hkx.transform(hkx.capture_intermediates(f))  # the same where it is a part of the model, also in init
    jax.tree.map(np.testing.assert_array_equal, inside.init(KEY, X), model.init(KEY, X))
    same(inside.apply(params, KEY, X)[1], values)


@pytest.mark.slow
def test_intermediates_of_a_layer_stack():
    def block(x):
        y = hkx.Linear(3, with_bias=False)(jnp.tanh(x))
        return x + hkx.dropout(hkx.next_rng_key(), 0.5, y)

    model = hkx.transform(lambda x: hkx.layer_stack(3, name="blocks")(block)(x))
    params = model.init(KEY, X)
    capture = hkx.capture_intermediates(model).apply
    out, values = jax.jit(capture)(params, KEY, X)
    np.testing.assert_array_equal(out, jax.jit(model.apply)(params, KEY, X))  # the same keys
    x, (inner,) = np.asarray(X), values["blocks/linear"]["__call__"]
    same(inner[0], np.tanh(x) @ np.asarray(params["blocks/linear"]["w"][0]))
    same(values["blocks"]["__call__"], (out,))

    def deterministic(x):
        return x + hkx.Linear(3, with_bias=False)(jnp.tanh(x))

    def last(params, x, i=2):
        return hkx.capture_intermediates(stack).apply(params, None, x)[1]["blocks/linear"]["__call__"][0][i]

    stack = hkx.transform(lambda x: hkx.layer_stack(3, name="blocks", remat=True)(deterministic)(x))
    params = stack.init(KEY, X)

    def loop(params, x, i=2):
        for layer in range(i + 1):
            y = jnp.tanh(x) @ params["blocks/linear"]["w"][layer]
            x = x + y
        return y

    for i in range(3):
        same(last(params, X, i), loop(params, X, i))
    same(jax.jit(jax.vmap(last, (None, 0)))(params, X), jax.vmap(loop, (None, 0))(params, X))
    same(*(jax.grad(lambda p, f=f: (f(p, X) ** 2).sum())(params) for f in (last, loop)))


class Numbered(hkx.LayerStackTransparencyMapping):
    def stacked_to_flat(self, stacked_module_name, scan_idx):
        return f"layer_{scan_idx}/{stacked_module_name}"

    def flat_to_stacked(self, unstacked_module_name):
        layer, _, name = unstacked_module_name.partition("/")
        return (name, int(layer[6:])) if layer.startswith("layer_") else None


def test_intermediates_of_a_transparent_stack_in_reverse_order():
    def f(x):
        layer = hkx.layer_stack(2, transparent=True, transparency_map=Numbered())(dense)
        return layer(x, reverse=True)

    params = jax.tree.map(lambda a: a + 0.1, hkx.transform(f).init(KEY, X))
    values = hkx.capture_intermediates(hkx.transform(f)).apply(params, None, X)[1]
    last = unrolled("once", X, **params["layer_1/dense"])
    first = unrolled("once", np.tanh(last), **params["layer_0/dense"])
    same(values, {"layer_0/dense": {"__call__": (first,)}, "layer_1/dense": {"__call__": (last,)}})


def test_intermediates_of_repeated_calls_in_a_loop_and_of_a_part_of_it():
    class Pair(hkx.Module):
        def __call__(self, x):
            return {"twice": 2 * x, "none": None}

    def body(carry, x):
        pair = Pair()
        (_, inner) = hkx.capture_intermediates(lambda: hkx.vmap(pair, split_rng=False)(jnp.stack([x, x + 1])))()
        return carry, (pair(10 * x), inner["pair"]["__call__"][0]["twice"])

    def f(x):
        return hkx.scan(body, 0.0, x)[1][1]

    inner, values = hkx.transform(hkx.capture_intermediates(f)).apply({}, None, X[:, 0])
    x = np.asarray(X[:, 0])
    both = 2 * np.stack([x, x + 1], axis=1)
    same(inner, both)
    same(values, {"pair": {"__call__": ({"twice": both, "none": None}, {"twice": 20 * x, "none": None})}})


def test_intermediates_of_a_lifted_function_and_of_several_functions():
    inner = hkx.transform(dense)

    def f(x):
        params = hkx.lift(inner.init, name="in_loop")(hkx.next_rng_key() if hkx.running_init() else None, x[0])
        return hkx.scan(lambda c, x_t: (c, inner.apply(params, None, x_t)), 0.0, x)[1]

    model = hkx.transform(f)
    params = model.init(KEY, X)
    values = hkx.capture_intermediates(model).apply(params, None, X)[1]
    same(values, {"dense": {"__call__": (unrolled("rows", X, **params["in_loop/dense"]),)}})

    def several():
        layer = hkx.Linear(2)
        return layer, (layer, lambda x: 2 * layer(x))

    multi = hkx.multi_transform(several)
    params = multi.init(KEY, X)
    _, (_, double) = hkx.capture_intermediates(multi)
    out, values = double(params, None, X)
    same(values, {"linear": {"__call__": (out / 2,)}})
    (out, values), _ = hkx.capture_intermediates(hkx.multi_transform_with_state(several)).apply[1](params, {}, None, X)
    same(values, {"linear": {"__call__": (out / 2,)}})


def test_intermediates_of_a_purified_function():
    def f(x):
        pure = hkx.purify(dense)
        carry = pure.start(x)
        for _ in range(2):
            x, carry = pure(carry, x)
        return x

    params = hkx.transform(f).init(KEY, X)
    values = hkx.capture_intermediates(hkx.transform(f)).apply(params, None, X)[1]
    first = unrolled("once", X, **params["dense"])
    same(values["dense"]["__call__"], (first, unrolled("once", np.tanh(first), **params["dense"])))

    def traced(x):
        pure = hkx.purify(dense)
        return jax.vmap(lambda carry, row: pure(carry, row)[0], (None, 0))(pure.start(x[0]), x)

    with pytest.raises(IntermediateInInnerTraceError, match="cannot be captured: it is computed inside a JAX trans"):
        hkx.capture_intermediates(hkx.transform(traced)).apply(params, None, X)


def with_rule(x):
    function = hkx.custom_vjp(dense)
    function.defvjp(lambda x: (dense(x), None), lambda _, g: (g,))
    return function(x)


MESH = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
SPEC = jax.sharding.PartitionSpec("i")


@pytest.mark.parametrize(
    ("where", "advice", "f"),
    [
        ("hkx.cond", "jnp.where", lambda x: hkx.cond(x.sum() > 0, dense, dense, x)),
        ("hkx.switch", "select_n", lambda x: hkx.switch(0, [dense, dense], x)),
        ("hkx.while_loop", "hkx.scan", lambda x: hkx.while_loop(lambda y: y.sum() > 9, dense, x)),
        ("hkx.while_loop", "hkx.scan", lambda x: hkx.while_loop(lambda y: dense(y).sum() > 9, lambda y: y, x)),
        ("hkx.fori_loop", "hkx.scan", lambda x: hkx.fori_loop(0, 2, lambda i, y: dense(y), x)),
        ("hkx.shard_map", "out_specs", lambda x: hkx.shard_map(dense, mesh=MESH, in_specs=(SPEC,), out_specs=SPEC)(x)),
        ("a function with a custom derivative", "outside", with_rule),
        ("a JAX transform", "hkx.scan", lambda x: hkx.scan(lambda c, r: (c, jax.vmap(dense)(r[None])), 0.0, x)[1]),
        ("a JAX transform", "hkx.vmap", lambda x: jax.lax.map(dense, x)),
    ],
)
def test_where_there_is_nothing_to_capture_the_error_says_what_to_do(where, advice, f):
    params = {"dense": {"w": jnp.eye(3), "b": jnp.zeros(3)}}
    with pytest.raises(IntermediateInInnerTraceError, match=f"module 'dense'.* inside {where}(.|\n)*{advice}"):
        hkx.capture_intermediates(hkx.transform(f)).apply(params, None, X)
    out, values = hkx.capture_intermediates(hkx.transform(f), filter=lambda m, _: False).apply(params, None, X)
    assert values == {}
    same(out, hkx.transform(f).apply(params, None, X))


def test_only_arrays_come_out_of_a_loop():
    class Named(hkx.Module):
        def __call__(self, x):
            return "a name"

    def f(x):
        return hkx.scan(lambda c, r: (c, len(Named()(r))), 0.0, x)[1]

    with pytest.raises(IntermediateInInnerTraceError, match="it holds 'a name' of type str, and only arrays"):
        hkx.capture_intermediates(hkx.transform(f)).apply({}, None, X)


def test_a_loop_without_iterations():
    model = hkx.transform(hkx.capture_intermediates(lambda x: hkx.map(dense, x)))
    params = model.init(KEY, X[:0])
    assert model.apply(params, None, X[:0])[1]["dense"]["__call__"][0].shape == (0, 3)
    with jax.disable_jit():
        values = model.apply(params, None, X)[1]
    same(values, {"dense": {"__call__": (unrolled("rows", X, **params["dense"]),)}})
