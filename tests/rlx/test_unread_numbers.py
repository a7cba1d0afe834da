"""Numbers that nothing reads: one argument at a time is no number where a weight is 0, or where no window ends."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_checks import cast
from operator_registry import CASES

import rlx

pytestmark = pytest.mark.unoptimised


@functools.cache
def value_and_slopes(case):
    """One program, of what is learnt and the rest."""
    flag = {getattr(rlx, case.name).contract.flag[0]: False}
    return jax.jit(jax.value_and_grad(lambda learnable, rest: jnp.sum(case.run({**rest, **learnable}, **flag))))


WEIGHED = [case for case in CASES if {"discount_t", "q_t", "pi_t"} <= set(case.make(np.random.default_rng(0)))]


@pytest.mark.parametrize("no_number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("broken", ["q_t", "pi_t"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in WEIGHED])
def test_action_values_or_probabilities_alone_of_a_terminal_state_have_no_slope(case, broken, no_number):
    """The slope of either is the other times 0."""
    arguments = {name: np.array(x) for name, x in cast(case.make(np.random.default_rng(0)), jnp.float32).items()}
    arguments["discount_t"][2] = 0
    learnable = {name: x for name, x in arguments.items() if np.issubdtype(x.dtype, np.floating)}
    rest = {name: x for name, x in arguments.items() if name not in learnable}
    whole, expected = value_and_slopes(case)(learnable, rest)
    unread = learnable[broken].copy()
    unread[2, 0] = no_number
    value, found = value_and_slopes(case)({**learnable, broken: unread}, rest)
    np.testing.assert_allclose(value, whole, rtol=1e-6)
    for name, gradient in expected.items():
        mended = np.where(np.isfinite(found[name]), found[name], np.inf)
        # A weight of 0 has its slope in what it weighs, which is unknown there.
        gradient, mended = (np.delete(x, 2, axis=0) if name == "discount_t" else x for x in (gradient, mended))
        np.testing.assert_allclose(mended, gradient, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("no_number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("n", "steps"), [(3, 6), (40, 50)])
def test_values_that_no_window_ends_with_have_no_slope(n, steps, no_number):
    r_t, discount_t, v_t = np.random.default_rng(0).uniform(0.5, 0.9, size=(3, steps)).astype(np.float32)
    truncation_t = np.arange(steps) == 1

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 2))
    def total(r_t, discount_t, v_t, **cut):
        return jnp.sum(rlx.n_step_bootstrapped_returns(r_t, discount_t, v_t, n, **cut))

    unread = v_t.copy()
    unread[: n - 1] = no_number
    for cut, holds in [({}, unread), ({"truncation_t": truncation_t}, np.where(truncation_t, v_t, unread))]:
        expected = total(r_t, discount_t, v_t, **cut)
        found = total(r_t, discount_t, holds, **cut)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found, expected)
