"""An action that is not possible (probability 0, value or logit minus infinity) is as good as not there.

Which arguments have an entry for each action, and on which axis, is read from what each operator declares: one that is
new in the registry is looked at here without being named.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_checks import SEEDS, assert_close, draw, drawn_in_double_precision, everything_in_double_precision
from operator_registry import CASES

import rlx

pytestmark = pytest.mark.unoptimised

FEATURES = ("psi_tm1", "psi_t")  # of an action; they do not say whether it is possible


def action_axes(case):
    """{argument: axis} for the arguments that have an entry for each action."""
    declared, axes = getattr(rlx, case.name).contract.arrays, {}
    for name in draw(case, 0).keys() & declared.keys() - {*case.inside, *FEATURES}:
        dims = declared[name].words[0].split()
        if "A" in dims:
            axes[name] = dims.index("A") - len(dims)
    return axes


def with_one_more(case, arguments):
    """The arguments with one more action, the last one, that is impossible."""
    more = dict(arguments)
    for name, axis in action_axes(case).items():
        x = np.moveaxis(arguments[name], axis, -1)
        nothing = np.full_like(x[..., :1], 0.0 if are_probabilities(x) else -np.inf)
        if name.startswith("q_logits_"):  # of the atoms of its value, which is the least for certain
            nothing[0] = 0.0
        more[name] = np.moveaxis(np.concatenate([x, nothing], -1), -1, axis)
    return more


def are_probabilities(x):
    return np.allclose(x.sum(-1), 1) and np.all(x >= 0)


@pytest.mark.parametrize("case", [case for case in CASES if action_axes(case)], ids=lambda case: case.name)
def test_an_impossible_action_is_as_good_as_not_there(case):
    """Neither the value nor a gradient notices it, although 0 · ∞ is NaN."""
    batch = [draw(case, seed) for seed in SEEDS]
    expected, *expected_slopes = drawn_in_double_precision(case)
    results, *slopes = everything_in_double_precision(case, [with_one_more(case, item) for item in batch])
    if jax.tree.leaves(results)[0].shape != jax.tree.leaves(expected)[0].shape:  # one number for each action
        results, impossible = results[..., :-1], results[..., -1]
        assert not np.any(np.isnan(impossible))
    assert_close(results, expected, rtol=1e-12, atol=1e-12)
    for found, wanted in zip(slopes, expected_slopes, strict=True):
        for name in found:
            axis = action_axes(case).get(name)
            x = found[name] if axis is None else np.moveaxis(found[name], axis, -1)
            y = wanted[name] if axis is None else np.moveaxis(wanted[name], axis, -1)
            assert np.all(np.isfinite(x)), name
            np.testing.assert_allclose(x[..., : y.shape[-1]] if axis is not None else x, y, rtol=1e-9, atol=1e-12)


def values_of_the_last_state(case):
    if "discount_t" not in draw(case, 0):
        return []
    return [name for name in action_axes(case) if re.fullmatch(r"(target_|dist_)?q(_t)?(_value|_selector)?", name)]


@pytest.mark.parametrize("case", [case for case in CASES if values_of_the_last_state(case)], ids=lambda case: case.name)
def test_a_terminal_state_may_have_no_possible_action(case):
    """Its values, all minus infinity, are multiplied with a discount of 0."""

    def at_the_end(arguments, values):
        arguments = jax.tree.map(np.array, arguments)
        arguments["discount_t"][... if arguments["discount_t"].ndim == 0 else -1] = 0.0
        for name in values_of_the_last_state(case):
            # A row for each step or goal, and the last one is the last; or all are of the one state.
            whole = arguments["discount_t"].ndim == 0
            arguments[name][... if whole else -1] += values
        for name in {"pi_t", "probs_a_t"} & set(arguments):  # nor has any a probability
            arguments[name][... if arguments[name].ndim == 1 else -1] = 0.0
        return arguments

    batch = [draw(case, seed) for seed in SEEDS]
    expected, finite = (everything_in_double_precision(case, [at_the_end(x, v) for x in batch]) for v in (0.0, -np.inf))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(finite))
    for slopes in (*expected[1:], *finite[1:]):
        slopes.pop("discount_t", None)
    assert_close(finite, expected, rtol=1e-12, atol=1e-12)


def test_all_operators_with_actions_are_found():
    found = {case.name for case in CASES if action_axes(case)}
    assert {"q_learning", "expected_sarsa", "retrace", "quantile_expected_sarsa", "qpg_loss", "cmpo_policy"} <= found


def temperature_of(alpha):
    return rlx.LagrangePenalty(alpha=alpha, epsilon=0.5)


def vmpo_of_the_best_two(advantages, log_probs, temperature):
    n = len(advantages)
    _, parts = rlx.vmpo_loss(log_probs, advantages, temperature_of(temperature), [], top_k_fraction=2 / n)
    return parts.temperature_loss + jnp.sum(parts.policy_loss) / n


WITH_TEMPERATURE = {
    "probs": lambda x, _, t: jnp.sum(jnp.sin(rlx.softmax(t).probs(x))),
    "entropy": lambda x, _, t: rlx.softmax(t).entropy(x),
    "logprob": lambda x, _, t: rlx.softmax(t).logprob(0, x),
    "kl": lambda x, y, t: rlx.softmax(t).kl(x, y),
    "conservative_q_loss": lambda x, _, t: rlx.conservative_q_loss(x, 0, t),
    "munchausen_q_learning": lambda x, y, t: rlx.munchausen_q_learning(x, 0, 1.0, 0.9, x, y, t, 0.9, -9.0, False),
    # The mean over samples counts the impossible one too.
    "mpo_loss": lambda x, y, t: rlx.mpo_loss(y, x, temperature_of(t), [])[0] + t * jnp.log(len(x) / 3),
    "vmpo_loss": vmpo_of_the_best_two,
}


@pytest.mark.parametrize("name", WITH_TEMPERATURE)
def test_an_impossible_action_adds_nothing_to_the_gradient_of_a_temperature(name):
    function = jax.jit(jax.value_and_grad(WITH_TEMPERATURE[name], (0, 1, 2)))  # as it is, it compiles each primitive
    x, y = np.float32([1.0, 0.5, 2.0]), np.float32([-1.0, -0.3, -2.0])
    expected, slopes = function(x, y, 0.7)
    result, found = function(np.append(x, -np.inf), np.append(y, -np.inf), 0.7)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    for one, other in zip(found, slopes, strict=True):
        np.testing.assert_allclose(one, other if other.ndim == 0 else np.append(other, 0.0), rtol=1e-5, atol=1e-7)


LEAST = {
    "entropy_loss": lambda x, y: rlx.entropy_loss(x[None], 3 * jnp.ones(1)),
    "entropy": lambda x, y: 3 * rlx.softmax().entropy(x),
    "kl": lambda x, y: 3 * rlx.softmax().kl(x, 0.5 * y),
    "reverse kl": lambda x, y: 3 * rlx.softmax().kl(y, 0.5 * x),
    "sac_discrete_actor_loss": lambda x, y: 3 * rlx.sac_discrete_actor_loss(0 * x[None], x, 1.0),
    "generalized_jensen_shannon_divergence": lambda x, y: 3 * rlx.generalized_jensen_shannon_divergence(x, y),
    "cmpo_loss": lambda x, y: 3 * rlx.cmpo_loss(0.5 * y, x, 0 * x, stop_target_gradients=False),
}


@pytest.mark.parametrize("name", LEAST)
def test_an_action_of_the_least_finite_logit_adds_nothing_however_large_the_slope_of_the_result(name):
    """Many mask actions by it; three times this number is infinite, and 0 · ∞ is NaN."""
    function = jax.jit(jax.value_and_grad(LEAST[name], (0, 1)))
    x, y, least = np.float32([1.0, 0.5, 2.0]), np.float32([-1.0, -0.3, -2.0]), np.finfo(np.float32).min
    expected, slopes = function(x, y)
    result, found = function(np.append(x, least), np.append(y, least))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    for one, other in zip(found, slopes, strict=True):
        np.testing.assert_allclose(one, np.append(other, 0.0), rtol=1e-5, atol=1e-7)


def test_examples_that_restart_may_hold_anything_in_vmpo():
    def loss(log_probs, advantages, temperature):
        restarting = jnp.array([1.0, 0.0, 1.0])
        settings = {
            "restarting_weights": restarting,
            "importance_weights": jnp.where(restarting > 0, 0.5, advantages[1]),
            "top_k_fraction": 0.7,
        }
        _, parts = rlx.vmpo_loss(log_probs, advantages, temperature_of(temperature), [], **settings)
        return parts.temperature_loss + jnp.sum(parts.policy_loss)

    values = [
        jax.value_and_grad(loss, (0, 1, 2))(jnp.array([-1.0, bad, -2.0]), jnp.array([1.0, bad, 2.0]), 0.7)
        for bad in (0.5, -jnp.inf, jnp.nan)
    ]
    assert np.isfinite(values[0][0])
    for other in values[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, values[0])


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_edges_of_epsilon_have_finite_gradients(epsilon):
    preferences = jnp.array([1.0, 2.0, 2.0])
    for function in (
        lambda e: rlx.epsilon_greedy(e).entropy(preferences),
        lambda e: rlx.epsilon_greedy(e).logprob(1, preferences),
        lambda e: rlx.epsilon_greedy(e).kl(preferences, preferences),
    ):
        assert np.isfinite(jax.grad(function)(epsilon))
    closed = {0.0: (1 / 3 - 1 / 2) / (1 / 2), 1.0: (1 / 3 - 1 / 2) / (1 / 3)}
    slope = jax.grad(lambda e: rlx.epsilon_greedy(e).logprob(1, preferences))(epsilon)
    np.testing.assert_allclose(slope, closed[epsilon], rtol=1e-6)


def test_a_softmax_of_temperature_zero_is_named():
    for make in (rlx.softmax, rlx.clipped_entropy_softmax):
        with pytest.raises(rlx.OptionError, match="argument `temperature` is 0, expected a positive number"):
            make(0)


def test_an_advantage_of_zero_for_an_impossible_action_counts_nothing():
    logits, one = jnp.array([[0.5, -jnp.inf]]), jnp.ones(1)
    for adv, w in ((0 * one, one), (one, 0 * one)):
        assert float(rlx.policy_gradient_loss(logits, jnp.array([1]), adv, w)) == 0


@pytest.mark.parametrize("none", [-1, 3, -5])
def test_what_is_no_action_has_probability_0(none):  # as in RLax
    logits, a, inf = jnp.array([0.0, 1.0, 2.0]), jnp.array(none, jnp.int8), np.inf
    for policy in (rlx.softmax(), rlx.greedy(), rlx.epsilon_greedy(0.5), rlx.clipped_entropy_softmax()):
        assert policy.logprob(a, logits) == -inf
    assert np.isnan(jax.jit(rlx.categorical_importance_sampling_ratios)(logits, logits, a))  # 0 / 0

    def loss(logits, weights):
        rows, actions = jnp.stack([logits, logits]), jnp.stack([jnp.int8(1), a])
        return rlx.policy_gradient_loss(rows, actions, jnp.ones(2), weights)

    assert jax.jit(jax.vmap(loss, in_axes=(None, 0)))(logits, jnp.ones([1, 2])) == inf
    value, slope = jax.value_and_grad(loss)(logits, jnp.array([1.0, 0.0]))  # padded steps may hold anything
    pi = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    np.testing.assert_allclose(value, -0.5 * np.log(pi[1]), rtol=1e-6)
    np.testing.assert_allclose(slope, 0.5 * (pi - [0, 1, 0]), rtol=1e-5)


@pytest.mark.parametrize("place", [3, -4])
def test_an_index_past_either_end_gives_nan(place):  # as in RLax
    q, one, a = jnp.array([[0.0, 1.0, 2.0]]), jnp.ones(1), jnp.array([place])
    assert np.isnan(rlx.batched_index(q, a)).all()
    assert np.isnan(jax.jit(rlx.q_lambda)(q, a, one, one, q, 0.5)).all()
    assert rlx.batched_index(q, jnp.array([-1])).tolist() == [2.0]
