"""What `init` leaves of a loop's first iteration, of its condition, of branches and of pure functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx import errors


def counted(x):
    hkx.set_state("n", hkx.get_state("n", [], jnp.int32, jnp.zeros) + 1)
    return x + hkx.Linear(2, w_init=jnp.ones)(x)


@pytest.mark.parametrize("limit, times", [(0.0, 0), (9.0, 2), (30.0, 3)])
@pytest.mark.parametrize("compile_init", [False, True])
def test_what_goes_on_from_a_loop_is_what_it_gives(limit, times, compile_init):
    """A condition whose value `init` cannot see decides all the same: 0 iterations leave nothing but parameters."""

    def f(x, limit):
        out = hkx.while_loop(lambda y: y.sum() < limit, counted, x)
        hkx.set_state("out", out)
        return out

    init = hkx.transform_with_state(f).init
    _, state = (jax.jit(init) if compile_init else init)(0, jnp.ones(2), limit)
    np.testing.assert_array_equal(state["~"]["out"], np.full(2, 3.0**times))
    assert state["~"]["n"] == 0  # `init` gives what a state began with


def test_parameters_of_a_condition_and_of_a_body_are_drawn_with_keys_of_their_own():
    def looped(x):
        weigh, grow = hkx.Linear(2, name="condition"), hkx.Linear(2, name="body")
        return hkx.while_loop(lambda y: weigh(y).sum() < 0, grow, x)

    def straight(x):
        hkx.Linear(2, name="condition")(x)
        return hkx.Linear(2, name="body")(x)

    key = jax.random.key(3)
    params = hkx.transform(looped).init(key, jnp.ones(2))
    jax.tree.map(np.testing.assert_array_equal, params, hkx.transform(straight).init(key, jnp.ones(2)))


@pytest.mark.parametrize("body", [lambda x: x.astype(jnp.int32), lambda x: x[None], lambda x: (x, x)])
def test_a_loops_body_is_told_in_apply_that_it_returns_something_else(body):
    def f(x):
        if hkx.running_init():
            return x
        return hkx.while_loop(lambda x: jnp.sum(x) < 3, body, x)

    with pytest.raises(errors.CarryMismatchError, match=r"hkx.while_loop.*\n?.*float32\[\]"):
        hkx.transform(f).apply({}, None, jnp.float32(1))


@pytest.mark.parametrize("shape", [(0, 3), (0, 4, 3), (0, 5, 4, 3)])
def test_a_scan_over_nothing_makes_the_parameters_of_its_slices(shape):
    def f(xs):
        return hkx.scan(lambda c, x: (c, hkx.Linear(2)(x)), 0, xs)[1]

    model = hkx.transform(f)
    params = model.init(0, jnp.zeros(shape))
    assert jax.tree.map(jnp.shape, params) == {"linear": {"w": (3, 2), "b": (2,)}}
    assert model.apply(params, None, jnp.zeros(shape)).shape == (*shape[:-1], 2)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_begins_with_the_slice_that_it_reads_first(reverse):
    def f(xs):
        def body(c, x):
            return c + hkx.get_state("first", [], init=lambda *_: x), x

        return hkx.scan(body, 0.0, xs, reverse=reverse)

    _, state = hkx.transform_with_state(f).init(None, jnp.arange(1.0, 5.0))
    assert state["~"]["first"] == (4 if reverse else 1)


def test_the_body_of_a_loop_that_does_not_run_may_ask_for_values():
    def f(x):
        def body(i, y):
            return y * hkx.get_parameter("w", [], init=hkx.initializers.Constant(3 if y.sum() > 0 else 2))

        return hkx.fori_loop(0, 0, body, x)

    params = hkx.transform(f).init(None, jnp.ones(2))
    assert params["~"]["w"] == 3


@pytest.mark.parametrize("init", ["traced", "eager", "check"])
def test_a_pure_function_runs_once_in_init_as_far_as_the_state_knows(init):
    def f(x):
        pure = hkx.purify(counted)
        hkx.set_state("before", 0)
        carry = pure.start(x)
        assert carry.state["~"]["n"] == 0
        out, carry = jax.jit(pure)(carry, x)
        pure.finish(carry)
        hkx.set_state("seen", hkx.get_state("n"))
        return out

    model = hkx.transform_with_state(f, init=init)
    params, state = model.init(0, jnp.ones(2))
    assert state["~"] == {"before": 0, "n": 0, "seen": 1}
    _, state = model.apply(params, state, None, jnp.ones(2))
    assert state["~"] == {"before": 0, "n": 1, "seen": 1}


@pytest.mark.parametrize("start", [0, 0.5, jnp.int16(1)])
def test_a_number_that_a_loop_begins_with_has_the_dtype_that_it_becomes(start):
    def body(i, x):
        return x + jnp.float32(i)

    if isinstance(start, jax.Array):  # it has a dtype of its own
        with pytest.raises(errors.CarryMismatchError, match=r"given int16\[\], returned float32\[\]"):
            hkx.transform(lambda: hkx.fori_loop(0, 3, body, start)).apply({}, None)
    else:
        out = hkx.transform(lambda: hkx.fori_loop(0, 3, body, start)).apply({}, None)
        assert out == jax.lax.fori_loop(0, 3, body, start) == start + 3 and out.dtype == jnp.float32


@pytest.mark.parametrize("rounds", [-1, 0, 1, 3])
@pytest.mark.parametrize("init", ["traced", "eager"])
def test_that_dtype_is_the_same_in_init_and_apply_however_often_the_loop_runs(rounds, init):
    def f():
        half, one = jnp.float16(1), jnp.ones([], jnp.int32)
        hkx.set_state("for", hkx.fori_loop(0, rounds, lambda i, x: x + half, 2))
        hkx.set_state("while", hkx.while_loop(lambda x: x < 2 + rounds, lambda x: x + one, 2))

    model = hkx.transform_with_state(f, init=init)
    _, given = model.init(None)
    _, left = model.apply({}, given, None)
    assert jax.tree.map(jax.typeof, given) == jax.tree.map(jax.typeof, left)
    assert given["~"]["for"].dtype == jnp.float16 and given["~"]["for"] == 2 + max(rounds, 0)
