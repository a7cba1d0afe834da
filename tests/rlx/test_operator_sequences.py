"""Operators over sequences: cut ones, empty ones, masked ones, and integers in them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_checks import assert_close, cast, draw, everything_in_double_precision, gradients
from operator_registry import CASES, MULTI_STEP, NEW_RETURNS
from operator_registry import T as STEPS

import rlx

pytestmark = pytest.mark.unoptimised

multi_step_case = pytest.mark.parametrize("case", MULTI_STEP, ids=lambda case: case.name)
masked_case = pytest.mark.parametrize("case", [case for case in CASES if case.masks], ids=lambda case: case.name)
sequence_case = pytest.mark.parametrize("case", [case for case in CASES if case.sequence], ids=lambda case: case.name)
REWARDS = {"r_t", "rewards", "phi_t", "target_t", "adv", "adv_t"}


def piece(arguments, start, stop, end_value):
    """The arguments of steps start to stop alone; where it was cut, with the value of the state in which it ended."""
    steps, alone = len(arguments["r_t"]), {}
    for name, x in arguments.items():
        alone[name] = np.array(x[start : stop + len(x) - steps] if np.ndim(x) else x, x.dtype)
        holds_values = name in ("v_t", "values", "q", "q_t", "target_q_t") and (not np.ndim(x) or len(x) >= steps)
        if holds_values and end_value is not None:
            alone[name][-1 if np.ndim(x) else ()] = end_value  # all actions have it: the largest, the taken, the mean
    return alone


@functools.cache
def compiled_with_cuts(case):
    def run(arguments, truncation_t, values):
        with_values = case.run(arguments, truncation_t=truncation_t, truncation_value_t=values)
        return with_values, case.run(arguments, truncation_t=truncation_t.astype(jnp.int32))

    return jax.jit(run)


flags = st.lists(st.booleans(), min_size=STEPS, max_size=STEPS).map(np.array)


@pytest.mark.parametrize("case", MULTI_STEP + NEW_RETURNS, ids=lambda case: case.name)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cut_t=flags, terminated_t=flags)
def test_a_cut_sequence_gives_exactly_what_its_pieces_give(case, seed, cut_t, terminated_t):
    """The oracle is given the pieces one by one, and knows of no truncation."""
    arguments = draw(case, seed)
    arguments["discount_t"] = np.where(terminated_t, 0.0, arguments["discount_t"])
    values = np.random.default_rng(seed).normal(size=STEPS)
    with jax.enable_x64(True):
        both = compiled_with_cuts(case)(cast(arguments, jnp.float64), jnp.asarray(cut_t), jnp.asarray(values))
    edges = sorted({0, *(np.flatnonzero(cut_t) + 1), STEPS})
    for results, given_values in zip(both, (values, None), strict=True):
        pieces = [
            case.oracle(piece(arguments, a, b, values[b - 1] if cut_t[b - 1] and given_values is not None else None))
            for a, b in itertools.pairwise(edges)
        ]
        expected = jax.tree.map(lambda *x: np.concatenate(x), *pieces)
        assert_close(results, expected, rtol=1e-10, atol=1e-10)


@multi_step_case
def test_a_truncation_value_alone_is_an_error(case):
    arguments = cast(draw(case, 7), jnp.float32)
    with pytest.raises(rlx.ArgumentError, match=f"^{case.name}: argument `truncation_value_t`"):
        case.run(arguments, truncation_value_t=arguments["r_t"])
    with pytest.raises(rlx.ShapeError, match=f"^{case.name}: argument `truncation_t`"):
        case.run(arguments, truncation_t=jnp.zeros(arguments["r_t"].shape[0] + 1, bool))
    with pytest.raises(
        rlx.RankError, match=rf"^{case.name}: argument `truncation_t`[^$]*rlx\.batched\(rlx\.{case.name}\)"
    ):
        case.run(arguments, truncation_t=jnp.zeros([2, 2], bool))


@pytest.mark.parametrize("case", [case for case in CASES if REWARDS & set(case.learns + case.stopped)],
                         ids=lambda case: case.name)  # fmt: skip
def test_integer_rewards_and_boolean_discounts(case):
    arguments = draw(case, 3)
    for name in REWARDS & set(arguments):
        arguments[name] = np.rint(arguments[name]).astype(np.int32)
    if "discount_t" in arguments:
        arguments["discount_t"] = arguments["discount_t"] > 0.7
    results = jax.eval_shape(case.run, cast(arguments, jnp.bfloat16))
    without_floats = case.name.endswith("_advantages") and case.learns == ("rewards",)
    expected = jnp.float32 if without_floats else jnp.bfloat16
    assert all(x.dtype == expected for x in jax.tree.leaves(results))
    numbers = {name: x.astype(np.float64) if x.dtype == bool and name == "discount_t" else x
               for name, x in arguments.items()}  # fmt: skip
    assert_close(jax.jit(case.run)(cast(arguments, jnp.float32)), case.oracle(numbers), rtol=2e-5, atol=2e-5)


def shortened(case, steps):
    """The arguments of a multi-step operator, cut to their first steps."""
    arguments = draw(case, 4)
    full = arguments["r_t"].shape[0]
    return {
        name: value[: max(steps + value.shape[0] - full, 0)] if np.ndim(value) else value
        for name, value in arguments.items()
    }


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("case", [c for c in CASES if c.multi or c.sequence], ids=lambda case: case.name)
def test_no_step_and_one_step(case, steps):
    if steps == 0 and case.name in ("general_off_policy_returns_from_q_and_v", "retrace_continuous"):
        pytest.skip("T - 1 values do not exist for T = 0")
    arguments = draw(case, 4, steps) if case.sequence else shortened(case, steps)
    learns = case.learns if steps else ()  # the gradient of nothing is nothing
    both = jax.jit(lambda x: (case.run(x), gradients(case, x, learns)))
    results, slopes = both(cast(arguments, jnp.float32))
    if case.multi:
        assert all(x.shape == (steps,) for x in jax.tree.leaves(results))
    if steps or case.sequence:
        assert_close(results, case.oracle(arguments), rtol=2e-5, atol=2e-5)
    assert all(np.all(np.isfinite(slope)) for slope in slopes.values())


@multi_step_case
def test_a_discount_of_zero_divides_a_sequence_into_two(case):
    """What comes before it does not depend on what comes after."""
    arguments = draw(case, 6)
    steps = arguments["r_t"].shape[0]
    arguments["discount_t"] = np.full(steps, 0.9)
    arguments["discount_t"][2] = 0.0
    other = draw(case, 60)
    changed = {**arguments, "r_t": np.concatenate([arguments["r_t"][:3], other["r_t"][3:]])}
    for name in ("v_t", "q_t"):
        if name in arguments and np.ndim(arguments[name]):
            changed[name] = np.concatenate([arguments[name][:3], other[name][3:]])
    run = jax.jit(case.run)
    one, two = (jax.tree.leaves(run(cast(x, jnp.float32))) for x in (arguments, changed))
    for before, after in zip(one, two, strict=True):
        np.testing.assert_array_equal(before[:3], after[:3])
        assert not np.array_equal(before[3:], after[3:])


@sequence_case
def test_wrong_lengths_name_an_argument(case):
    arguments, longer = cast(draw(case, 0), jnp.float32), cast(draw(case, 0, 9), jnp.float32)
    names = [name for name in arguments if arguments[name].shape != longer[name].shape]
    for name in names if len(names) > 1 else ():
        with pytest.raises(rlx.ShapeError, match=f"{case.name}: argument `\\w+` has shape"):
            case.run({**arguments, name: longer[name]})


def with_anything_where_masked_out(case, arguments):
    poisoned = dict(arguments)
    for mask, shielded in case.masks.items():
        for name in shielded:
            missing = arguments[name].ndim - arguments[mask].ndim
            counts = arguments[mask].reshape(arguments[mask].shape + (1,) * missing)
            anything = np.resize([np.nan, np.finfo(float).max, -np.inf], arguments[name].shape)
            poisoned[name] = np.where(counts, arguments[name], anything)
    return poisoned


# They are not 0 where nothing counts: the log-ratio of an empty answer is 0, and the range of no returns is as before.
PREFERENCES = ("dpo", "ipo", "kto_loss", "simpo", "orpo", "slic_loss", "robust_dpo_loss", "apo_loss")
OF_NOTHING = (*PREFERENCES, "percentile_range")


@masked_case
def test_what_is_masked_out_reaches_nothing(case):
    """As one batch of four: as they are, and with what is no number or overflows; then the same with empty masks."""
    drawn = draw(case, 5)
    empty = drawn | {mask: np.zeros_like(drawn[mask]) for mask in case.masks}
    batch = [drawn, with_anything_where_masked_out(case, drawn), empty, with_anything_where_masked_out(case, empty)]
    everything = everything_in_double_precision(case, batch)
    clean, poisoned, nothing, poisoned_nothing = (jax.tree.map(lambda x: x[i], everything) for i in range(4))  # noqa: B023
    assert np.all(np.isfinite(clean[0]))
    jax.tree.map(np.testing.assert_array_equal, poisoned, clean)
    for result, slopes, _ in (nothing, poisoned_nothing):
        np.testing.assert_allclose(result, case.oracle(empty), rtol=1e-6)
        if not case.name.startswith(OF_NOTHING):
            assert not np.any(result)
        assert not any(np.any(slope) for slope in slopes.values())


LAMBDA_RETURNS = {
    "lambda_returns": rlx.lambda_returns,
    "n_step_bootstrapped_returns": lambda r_t, discount_t, v_t, lambda_t: rlx.n_step_bootstrapped_returns(
        r_t, discount_t, v_t, 3, lambda_t
    ),
    "truncated_generalized_advantage_estimation": lambda r_t, discount_t, v_t, lambda_: (
        jnp.append(0.0, v_t[:-1])
        + rlx.truncated_generalized_advantage_estimation(r_t, discount_t, lambda_, jnp.append(0.0, v_t))
    ),
}


@pytest.mark.parametrize("name", LAMBDA_RETURNS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_lambda_of_the_state_in_which_an_episode_ends_reaches_nothing(name, bad):
    """It may be a ratio of probabilities of a state that has no actions."""
    rng = np.random.default_rng(0)
    r_t, v_t, lambda_t = (rng.uniform(0.1, 0.9, 5) for _ in range(3))
    discount_t = np.array([0.9, 0.0, 0.8, 0.0, 0.7])
    expected, after = np.zeros(5), v_t[-1]
    for t in reversed(range(5)):
        after = expected[t] = r_t[t] + discount_t[t] * ((1 - lambda_t[t]) * v_t[t] + lambda_t[t] * after)
    with jax.enable_x64(True):
        slope = jax.jit(jax.grad(lambda *x: LAMBDA_RETURNS[name](*x).sum(), (0, 2)))
        given, clean = ((r_t, discount_t, v_t, np.where(discount_t == 0, x, lambda_t)) for x in (bad, 0.5))
        np.testing.assert_allclose(LAMBDA_RETURNS[name](*given), expected, rtol=1e-12)
        assert_close(slope(*given), slope(*clean), rtol=1e-12)
