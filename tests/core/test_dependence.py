"""What `init` leaves out where a loop or a branch computes keys and activations together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.init.create import run_initialising
from hkx.jaxprs import dependence
from hkx.jaxprs.dependence import needed, needed_inputs, understood

pytestmark = pytest.mark.unoptimised

HUGE = 10**9  # rows of eight numbers in float32: 32 GB


def layer(x):
    return hkx.dropout(hkx.next_rng_key(), 0.5, hkx.Linear(8)(x))


def counted(x):
    return hkx.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, layer(c[1])), (0, x))[1]


LOOPS = {
    "scan": lambda x: hkx.scan(lambda c, _: (layer(c), None), x, None, length=3)[0],
    "scan of two": lambda x: hkx.scan(lambda c, _: ((layer(c[1]), c[0]), c[0]), (x, x), None, length=3)[0][0],
    "nested": lambda x: hkx.scan(
        lambda c, _: (hkx.scan(lambda d, _: (layer(d), None), c, None, length=2)[0], None), x, None, length=2
    )[0],
    "while_loop": counted,
    "switch in scan": lambda x: hkx.scan(
        lambda c, i: (hkx.switch(i, [layer, lambda y: y], c), None), x, jnp.array([0, 1, 0])
    )[0],
    "remat of scan": lambda x: hkx.remat(LOOPS["scan"])(x),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_keys_after_a_loop_do_not_need_its_activations(loop):
    def f(x):
        return hkx.Linear(2)(loop(hkx.Linear(8)(x)))

    params = hkx.transform(f).init(7, jax.ShapeDtypeStruct([HUGE, 8], jnp.float32))
    x = jnp.ones([2, 8])
    expected = run_initialising(f, jax.random.PRNGKey(7), (x,))[0]
    jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_a_loop_that_ends_by_its_activations_needs_them():
    def f(x):
        x = hkx.while_loop(lambda c: c.sum() < 9, lambda c: layer(c) + 1, x)
        return hkx.Linear(2)(x)

    with pytest.raises(hkx.errors.AbstractInitError):
        hkx.transform(f).init(7, jax.ShapeDtypeStruct([2, 8], jnp.float32))
    x = jnp.ones([2, 8])
    params = hkx.transform(f).init(7, x)
    jax.tree.map(np.testing.assert_array_equal, params, run_initialising(f, jax.random.PRNGKey(7), (x,))[0])


def inputs_for(f, wanted, *args):
    """Which arguments the chosen outputs of a function's equations depend on."""
    program = jax.make_jaxpr(f)(*args).jaxpr
    outputs = [v for v, w in zip(program.outvars, wanted, strict=True) if w]
    asked = {v for _, inputs in needed_inputs(program.eqns, outputs) for v in inputs}
    return [v in asked for v in program.invars]


def chain(c, x):
    """Each part of the carry takes over the one before, so that the last one needs them all after three steps."""
    first, second, third = c
    return (first + x, first, second), third * x


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((True, False, False, False), (True, False, False, True)),
        ((False, True, False, False), (True, True, False, True)),
        ((False, False, True, False), (True, True, True, True)),
        ((False, False, False, True), (True, True, True, True)),
    ],
)
def test_scan_carries_dependence_from_step_to_step(wanted, expected):
    def f(a, b, c, xs):
        return jax.lax.scan(chain, (a, b, c), xs)

    assert tuple(inputs_for(f, wanted, 1.0, 1.0, 1.0, np.ones(5, np.float32))) == expected


def test_branches_need_what_any_of_them_needs():
    def f(i, a, b, c):
        return jax.lax.switch(i, [lambda a, b, c: (a, 2 * c), lambda a, b, c: (b, 3 * c)], a, b, c)

    assert inputs_for(f, (True, False), 1, 1.0, 2.0, 3.0) == [True, True, True, False]
    assert inputs_for(f, (False, True), 1, 1.0, 2.0, 3.0) == [True, False, False, True]


def test_a_while_loop_needs_what_ends_it():
    def f(i, a, b, bound):
        return jax.lax.while_loop(lambda c: c[0] < bound, lambda c: (c[0] + 1, c[1] * 2, c[2] + c[1]), (i, a, b))

    assert inputs_for(f, (True, False, False), 1, 1.0, 2.0, 3) == [True, False, False, True]
    assert inputs_for(f, (False, False, True), 1, 1.0, 2.0, 3) == [True, True, True, True]


def test_what_has_effects_is_kept_with_all_it_needs():
    def f(a, b):
        jax.debug.print("{}", b)
        return a * 2, b * 3

    program = jax.make_jaxpr(f)(1.0, 2.0).jaxpr
    kept = needed(program.eqns, program.outvars[:1])
    assert len(kept) == 2
    assert any(eqn.effects for eqn in kept)
    assert inputs_for(f, (True, False), 1.0, 2.0) == [True, True]


def custom(x):
    f = jax.custom_jvp(lambda x: 2 * x)
    f.defjvps(lambda tangent, out, x: 2 * tangent)
    g = jax.custom_vjp(lambda x: 3 * x)
    g.defvjp(lambda x: (g(x), None), lambda _, cotangent: (3 * cotangent,))
    return f(x) + g(x)


@pytest.mark.parametrize(
    ("f", "operations"),
    [
        (lambda x: jax.lax.scan(lambda c, y: (c, y), x, None, length=2)[0], {"scan"}),
        (lambda x: jax.lax.fori_loop(0, x.astype(int), lambda _, y: y, x), {"while"}),
        (lambda x: jax.lax.cond(x > 0, lambda x: x, lambda x: -x, x), {"cond"}),
        (jax.jit(lambda x: x + 1), {"jit"}),
        (jax.checkpoint(lambda x: jnp.sin(x)), {"remat2"}),
        (custom, {"custom_jvp_call", "custom_vjp_call"}),
    ],
)
def test_what_jax_calls_its_operations_is_what_is_known_here(f, operations):
    """Fails where another JAX says otherwise: results stay right, and `init` computes more than it needs."""
    equations = [e for e in jax.make_jaxpr(f)(1.0).eqns if understood(e)]
    assert {e.primitive.name for e in equations} == operations


def root_of_two(a, b):
    """In JAX 0.12, an operation of `jax.experimental.hijax`, which holds no program but has a method that does it."""
    solve = lambda f, start: (start[0] + 2 * a, start[1] + jnp.sum(b))  # noqa: E731
    return jax.lax.custom_root(lambda y: (y[0] - a, y[1] - b), (a, jnp.sum(b)), solve, lambda g, y: y)


def test_an_operation_that_is_a_class_of_jax_is_looked_into():
    assert inputs_for(root_of_two, (True, False), 1.0, 2.0) == [True, False]
    assert inputs_for(root_of_two, (False, True), 1.0, 2.0) == [False, True]

    def f(x):
        value, out = root_of_two(jnp.float32(3), x)
        return out * hkx.get_parameter("w", [], init=lambda shape, dtype: value)

    init = hkx.transform(f).init
    for x in (jnp.ones([4]), jax.ShapeDtypeStruct((HUGE, 8), jnp.float32)):
        assert init(jax.random.key(0), x)["~"]["w"] == 9


def test_what_is_not_understood_needs_all_its_inputs(monkeypatch):
    def f(a, b):
        return jax.lax.scan(lambda c, _: ((c[0] + 1, c[1] + 1), None), (a, b), None, length=2)[0]

    assert inputs_for(f, (True, False), 1.0, 1.0) == [True, False]
    monkeypatch.setitem(dependence._PARTS, "scan", ("a parameter that this JAX does not have",))
    assert inputs_for(f, (True, False), 1.0, 1.0) == [True, True]
