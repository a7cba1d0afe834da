"""`hkx.traced_once`: the same programs and gradients, for which Python runs once."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
W = np.linspace(0.5, 2, 3, dtype=np.float32)


def normalised(x, scale, offset=None, *, power=1):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    out = (x - mean) * jax.lax.rsqrt(jnp.var(x, axis=-1, keepdims=True) + np.float32(1e-5))
    out = out * jnp.broadcast_to(scale, x.shape) ** power
    return out if offset is None else out + jnp.broadcast_to(offset, x.shape)


def counting(function, **options):
    """The function made so that it is traced once, and a list that grows whenever Python runs it."""
    runs = []

    def counted(*arrays, **static):
        runs.append(arrays)
        return function(*arrays, **static)

    return hkx.traced_once(counted, **options), runs


def operations(jaxpr):
    """The primitives of a program in order, each with what it gives; those of a `jit` in it stand in its place."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("jit", "pjit"):  # newer JAX inlines it later
            found += operations(eqn.params["jaxpr"].jaxpr)
        else:
            found.append((eqn.primitive.name, *(str(v.aval) for v in eqn.outvars)))
            for inner in jax.tree.leaves(dict(eqn.params), is_leaf=lambda x: hasattr(x, "eqns")):
                found += operations(inner) if hasattr(inner, "eqns") else []
    return found


USES = {
    "jit": lambda f: f(X, W, W, power=2),
    "without": lambda f: f(X, W, None, power=2),
    "vmap": lambda f: jax.vmap(lambda x: f(x, W))(X),
    "scan": lambda f: jax.lax.scan(lambda c, x: (f(c + x, W), None), X, jnp.ones(3))[0],
    "remat": lambda f: jax.checkpoint(lambda x: f(f(x, W), W))(X),
    "numbers of NumPy": lambda f: f(jnp.asarray(X), np.float32(2)),
    "a Python number": lambda f: f(jnp.asarray(X), 2.0),
    "bfloat16": lambda f: f(X.astype(jnp.bfloat16), W.astype(jnp.bfloat16), W),
    "twice": lambda f: f(X, W) + f(X, W + 1) + f(X[:2], W).sum(),
}


@pytest.mark.parametrize("use", USES)
def test_the_program_is_that_of_the_function(use):
    once = hkx.traced_once(normalised, static_argnames="power")
    ours, plain = (operations(jax.make_jaxpr(lambda f=f: USES[use](f))().jaxpr) for f in (once, normalised))
    assert len(ours) >= 9
    assert ours == plain


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_are_those_of_the_function(order):
    def loss(f):
        def scalar(x, scale, offset):
            return jnp.sum(jnp.sin(f(x, scale, offset, power=2)))

        return scalar if order == 1 else lambda *a: sum(jnp.sum(g**2) for g in jax.grad(scalar, (0, 1, 2))(*a))

    once = hkx.traced_once(normalised, static_argnames="power")
    ours, plain = (jax.jit(jax.grad(loss(f), (0, 1, 2)))(X, W, W) for f in (once, normalised))
    for a, b in zip(ours, plain, strict=True):  # newer JAX leaves another order of additions to XLA
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_python_runs_once_for_each_shape_dtype_and_setting():
    once, runs = counting(normalised, static_argnames="power")

    def f(x, y):
        total = once(x, W) + once(x, 2 * W) + once(x + 1, W)  # one
        total += once(x, W, power=2)  # two
        total += once(x, W, W)  # three
        return jnp.sum(total) + jnp.sum(once(y, W))  # four

    jax.jit(f)(X, X[:2])
    assert len(runs) == 4
    jax.jit(jax.grad(f))(X, X[:2])
    jax.jit(lambda x, y: f(2 * x, y))(X, X[:2])
    assert len(runs) == 4
    with jax.default_matmul_precision("tensorfloat32"):
        jax.jit(lambda x: once(x, W))(X)
    assert len(runs) == 5


def test_where_operations_run_one_by_one_so_does_the_function():
    once, runs = counting(normalised)
    np.testing.assert_array_equal(once(X, W), normalised(X, W))
    jax.grad(lambda x: jnp.sum(once(x, W)))(X)
    jax.vmap(lambda x: once(x, W))(X)
    assert len(runs) == 3
    assert not isinstance(runs[0][0], jax.core.Tracer)


def test_where_something_else_is_done_with_each_operation_so_does_the_function():
    """`jet` has no rule for a power of an integer that it knows; in a program of JAX's it would not know it."""
    jet = pytest.importorskip("jax.experimental.jet").jet
    once = hkx.traced_once(lambda x, decay, count: x / (1 - jax.lax.pow(decay, count)))
    half, two = np.float32(0.5), np.int32(2)
    (y, (slope,)) = jet(lambda x: once(x, half, two), (np.float32(3),), ((np.float32(1),),))
    assert (y, slope) == pytest.approx((3 / 0.75, 1 / 0.75))


def test_what_is_no_array_is_handed_on_as_it_is():
    once, runs = counting(lambda x, options: x * options["scale"])
    assert jax.jit(lambda x: once(x, {"scale": 3.0}))(jnp.ones(())) == 3
    assert len(runs) == 1
    assert isinstance(runs[0][1], dict)


def test_a_setting_that_is_a_list_is_handed_on_as_it_is():
    class Padded(hkx.Conv2D):
        def __init__(self):
            super().__init__(1, 2)
            self.padding = [(0, 0), (1, 1)]

    model = hkx.without_apply_rng(hkx.transform(lambda x: Padded()(x)))
    x = jnp.ones([1, 3, 3, 1])
    assert jax.jit(model.apply)(model.init(jax.random.PRNGKey(0), x), x).shape == (1, 2, 4, 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda: hkx.get_parameter("w", [], init=jnp.ones),
        lambda: hkx.get_state("s", [], init=jnp.ones),
        hkx.next_rng_key,
    ],
)
def test_what_is_read_of_the_transform_is_no_constant_of_other_calls(read):
    once = hkx.traced_once(lambda x: x + jnp.sum(read()))
    model = hkx.transform_with_state(lambda x: once(x))
    with pytest.raises(hkx.errors.NotInTransformError) as raised:
        jax.jit(lambda x: model.apply({"~": {"w": x}}, {"~": {"s": x}}, jax.random.PRNGKey(0), x))(1.0)
    assert any("as arguments" in note for note in raised.value.__notes__)
    value, _ = hkx.transform_with_state(lambda: hkx.get_parameter("w", [], init=jnp.ones)).apply(
        {"~": {"w": W[0]}}, {}, None
    )
    assert value == W[0]  # transforms go on


def test_settings_of_jax_hold_inside():
    once = hkx.traced_once(lambda x, y: x + y)
    jax.jit(once)(jnp.ones(3), jnp.ones(3, jnp.bfloat16))
    with jax.numpy_dtype_promotion("strict"), pytest.raises(ValueError, match="promotion"):
        jax.jit(lambda x, y: once(x, y))(jnp.ones(3), jnp.ones(3, jnp.bfloat16))


def test_it_looks_like_the_function():
    once = functools.partial(hkx.traced_once, static_argnames="power")(normalised)
    assert once.__name__ == "normalised"
    assert once.__wrapped__ is normalised


def test_names_of_modules_are_in_the_program_at_each_call():
    """What is traced at the first layer does not carry its name into the second."""

    def f(x):
        return hkx.Linear(3, name="second")(hkx.Linear(3, name="first")(x))

    model = hkx.without_apply_rng(hkx.transform(f))
    params = model.init(jax.random.PRNGKey(0), X)
    for program in (model.apply, jax.grad(lambda p, x: model.apply(p, x).sum())):
        text = jax.jit(program).lower(params, X).as_text(debug_info=True)
        for name in ("first", "second"):
            assert re.search(rf"[/(]{name}\)*/(jit\(\w+\)/)?(dot_general|reduce_sum)", text), name
        assert not re.search("first.?/.*second|second.?/.*first", "\n".join(re.findall('loc."(.*)"', text)))
