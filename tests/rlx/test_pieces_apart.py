"""What is no number in one piece of a cut sequence stays there, in results and in derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_checks import assert_close, draw, weighted_sum
from operator_registry import MULTI_STEP, NEW_RETURNS
from operator_registry import T as STEPS

import rlx
from rlx.core import recurrence

pytestmark = pytest.mark.unoptimised

CUT = 2  # the first piece has the steps up to this one
WINDOWS = ("n_step_bootstrapped_returns", "transformed_n_step_q_learning")
FEW = ("lambda_returns", "n_step_bootstrapped_returns")  # by default; the others are slow tests


@pytest.fixture(scope="module", params=["by steps", "by doubling"], autouse=True)
def way(request):
    """Both algorithms: that of a CPU, and that of an accelerator, run on a CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "by doubling":
            patch.setattr(recurrence, "scan", recurrence.doubling)
        jax.clear_caches()
        yield
    jax.clear_caches()


def piece_of(is_first, length):
    """The entries of one piece: T states or actions, T + 1 states, or T - 1, without that of the last step."""
    first = slice(0, CUT + (length >= STEPS))
    return first if is_first else slice(CUT + 1, length)


def without_numbers(arguments, is_first):
    """The arguments with NaN instead of all numbers of one piece."""
    broken = {name: x.copy() for name, x in arguments.items()}
    for x in broken.values():
        if x.ndim:
            x[piece_of(is_first, len(x))] = np.nan
    return broken


def everything_of(run):
    """Values, slopes along ones, the gradient, and the slope of the gradient along ones."""

    def everything(arguments):
        ones = jax.tree.map(jnp.ones_like, arguments)
        value, slope = jax.jvp(run, (arguments,), (ones,))
        gradient = jax.grad(lambda x: weighted_sum(jax.tree.map(jnp.square, run(x))))
        return value, slope, *jax.jvp(gradient, (arguments,), (ones,))

    return everything


@pytest.mark.parametrize("case", [
    pytest.param(case, id=case.name, marks=() if case.name in FEW else pytest.mark.slow)
    for case in MULTI_STEP + NEW_RETURNS
])  # fmt: skip
def test_no_derivative_takes_nan_from_one_piece_to_another(case):
    arguments = {**draw(case, 1), "truncation_value_t": np.random.default_rng(1).normal(size=STEPS)}
    numbers = {name: x for name, x in arguments.items() if np.issubdtype(x.dtype, np.floating)}
    flag = {"stop_target_gradients": False}

    def run(numbers):
        return case.run({**arguments, **numbers}, truncation_t=jnp.arange(STEPS) == CUT, **flag)

    with jax.enable_x64(True):
        given = [numbers, without_numbers(numbers, is_first=False), without_numbers(numbers, is_first=True)]
        every = jax.jit(jax.vmap(everything_of(run)))(jax.tree.map(lambda *x: np.stack(x), *given))
    if case.name in WINDOWS:  # derivatives take NaN from products that are unread
        every = every[0]
    for whole, *broken in map(np.asarray, jax.tree.leaves(every)):
        if whole.ndim:  # not the gradient of one λ for all pieces
            for x, is_first in zip(broken, (True, False), strict=True):
                kept = piece_of(is_first, len(whole))
                np.testing.assert_allclose(x[kept], whole[kept], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n", [3, 40])
def test_no_window_takes_nan_from_one_piece_to_another(n):
    """Values only: an unread product of the other piece is NaN in the gradient."""
    steps, cut = n + 9, 4
    r_t, discount_t, v_t = np.random.default_rng(n).uniform(0.5, 0.9, size=(3, steps))
    before, after = np.arange(steps) <= cut, np.arange(steps) > cut
    broken = [discount_t, np.where(after, np.nan, discount_t), np.where(before, np.nan, discount_t)]
    with jax.enable_x64(True):
        returns = rlx.batched(rlx.n_step_bootstrapped_returns, truncation_t=None)
        whole, first, second = returns(r_t, np.stack(broken), v_t, n, truncation_t=jnp.arange(steps) == cut)
    np.testing.assert_allclose(first[before], whole[before], rtol=1e-8)
    np.testing.assert_allclose(second[after], whole[after], rtol=1e-8)


def test_a_ratio_that_overflows_does_not_reach_back_past_a_cut():
    """Δ_0 = δ_0, and the error is ρ_0 δ_0, in a piece of one step, whatever the ratio in the next piece."""
    values, rho_tm1 = jnp.array([1.0, 2.0, 4.0]), jnp.array([3.0, jnp.inf])
    errors = rlx.importance_corrected_td_errors(
        jnp.ones(2), jnp.full(2, 0.5), rho_tm1, 0.9, values, truncation_t=jnp.array([True, False])
    )
    assert_close(errors[0], 3 * (1 + 0.5 * 2 - 1), rtol=1e-6)
