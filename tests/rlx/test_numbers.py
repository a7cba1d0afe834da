"""The rule of masks and numbers: what has no weight has no influence; and differences keep their digits."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_checks import SEEDS, cast, draw, everything_in_double_precision, weighted_sum
from operator_registry import CASES

import rlx
from rlx.core import recurrence
from rlx.core.masking import weighted

pytestmark = pytest.mark.unoptimised

STEP = 2  # of a sequence, where the weight is zero

# Weights, each with the arguments that a weight of zero leaves out, where an operator has both.
OF_THE_NEXT_STATE = (
    "v_t", "q_t", "q_t_value", "q_t_selector", "target_q_t", "dist_q_t", "dist_q_t_selector", "psi_t", "v_logits_t",
    "v_atoms_t", "q_logits_t", "q_atoms_t", "log_prob_t", "probs_a_t", "pi_t", "mu_t", "c_t", "log_rhos", "values", "q",
)  # fmt: skip
WEIGHTS = {
    "discount_t": OF_THE_NEXT_STATE,
    "pi_t": ("q_t",),
    "probs_a_t": ("q_t", "dist_q_t"),
    "probs": ("z_p",),
    "w_t": ("logits_t", "adv_t"),
    "kl_weight": ("kl_t", "prior_logits_t", "q_adv_t"),
    "munchausen_scale": ("target_q_tm1",),
}
OF_SOME = {  # weights of some operators, whose name others have for something else
    "policy_gradient_loss": {"adv_t": ("logits_t",)},
    "sequence_policy_gradient_loss": {"adv_t": ("log_probs_t",)},
    "kl_penalty_pg_loss": {"adv_t": ("prob_ratios_t",)},
    "simple_policy_optimization_loss": {"adv_t": ("prob_ratios_t",)},
    "general_off_policy_returns_from_q_and_v": {"c_t": ("q_t",)},
    "sac_critic_loss": {"temperature": ("log_prob_t",)},
    "sac_actor_loss": {"temperature": ("log_prob_t",)},
    "generalized_policy_improvement": {"w": ("psi_t",)},
}
COUNTS_OTHERWISE = {  # (operator, weight, argument): the argument says something even so
    ("quantile_expected_sarsa", "discount_t", "probs_a_t"),  # how the losses are weighed, whose targets are all r_t
}


def left_out(case):
    """(weight or mask, arguments that it leaves out) of one operator."""
    arguments = draw(case, 0)
    pairs = {**WEIGHTS, **OF_SOME.get(case.name, {}), **case.masks}
    for weight in pairs.keys() & arguments.keys():
        names = [n for n in pairs[weight] if n in arguments and (case.name, weight, n) not in COUNTS_OTHERWISE]
        if names:
            yield weight, names


def where_left_out(weight, shape, name, value):
    """(index of the entry of the weight, of this shape, that is to be zero; index of what it then leaves out)."""
    if not shape:
        return ..., ...
    if weight in ("w", "probs_a_t"):  # of the last axis of what they weigh
        return -1, (..., -1)
    if not value.ndim or name in ("values", "q"):  # of the last state only
        return -1, -1 if value.ndim else ...
    if len(shape) == 1:
        return STEP, STEP
    return (STEP, -1) if shape[0] > STEP else (-1, -1), None


def poisoned(x, places, kind):
    """`x` that holds NaN, minus infinity, or all that is no number in turn, at these places."""
    x = x.copy()
    size = x[places].size
    x[places] = np.resize(
        {"nan": [np.nan], "-inf": [-np.inf], "all": [np.inf, 0.5, np.nan, -np.inf]}[kind], size
    ).reshape(x[places].shape)
    return x


SCENARIOS = [(case, *pair) for case in CASES for pair in sorted(left_out(case))]


@pytest.mark.parametrize("case, weight, names", SCENARIOS, ids=lambda x: getattr(x, "name", None))
def test_what_has_no_weight_has_no_influence(case, weight, names):
    """Neither on values nor on gradients, whatever it holds, and no gradient of it is anything but zero."""
    arguments = draw(case, 1)
    if "a_t" in arguments and weight == "pi_t":
        arguments["a_t"] = np.zeros_like(arguments["a_t"])  # an action with a probability
    arguments = {name: np.array(value) for name, value in arguments.items()}
    places = {}
    for name in names:
        zero, out = where_left_out(weight, arguments[weight].shape, name, arguments[name])
        places[name] = zero if out is None else out
        arguments[weight][zero] = 0
    batch = [arguments]
    for kind in ("nan", "-inf", "all"):
        batch.append({**arguments, **{name: poisoned(arguments[name], places[name], kind) for name in names}})
    assert len(batch) == len(SEEDS)  # one program for all tests of an operator
    results, *slopes = everything_in_double_precision(case, batch)
    for x in jax.tree.leaves(results):
        assert np.all(np.isfinite(x[0]))
        np.testing.assert_allclose(x[1:], np.broadcast_to(x[:1], x[1:].shape), rtol=1e-12, atol=1e-12)
    for found in slopes:
        for name, x in found.items():
            assert np.all(np.isfinite(x)), name
            if name != weight:  # whose slope is what it leaves out
                np.testing.assert_allclose(
                    x[1:], np.broadcast_to(x[:1], x[1:].shape), rtol=1e-9, atol=1e-12, err_msg=name
                )
            if name in names:
                np.testing.assert_allclose(x[(slice(None), *np.index_exp[places[name]])], 0, atol=1e-12, err_msg=name)


# What follows the end of an episode in one array with it is another's: nothing of it reaches the steps before.
AFTER_AN_END = {
    "lambda_returns": ("r_t", "v_t"),
    "n_step_bootstrapped_returns": ("r_t", "v_t"),
    "truncated_generalized_advantage_estimation": ("r_t",),
    "general_off_policy_returns_from_q_and_v": ("r_t", "v_t", "q_t"),
    "vtrace_td_error_and_advantage": ("r_t", "v_t"),
    "upgo_returns": ("r_t", "v_t"),
}


@pytest.mark.parametrize("name", AFTER_AN_END)
def test_nothing_of_the_next_episode_reaches_the_one_before(name):
    case = next(case for case in CASES if case.name == name)
    arguments = cast(draw(case, 3), jnp.float32)
    arguments["discount_t"] = arguments["discount_t"].at[STEP].set(0.0)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=({x: 0 if x in AFTER_AN_END[name] else None for x in arguments},))
    @jax.value_and_grad
    def total(arguments):
        return weighted_sum(jax.tree.map(lambda x: x[: STEP + 1], case.run(arguments)))

    batch = dict(arguments)
    for x in AFTER_AN_END[name]:
        batch[x] = jnp.stack([arguments[x]] * 3).at[1:, STEP + 1 :].set(jnp.array([[jnp.nan], [jnp.inf]]))
    results, slopes = total(batch)
    assert np.isfinite(results[0]) and np.ptp(results) == 0
    for x in AFTER_AN_END[name]:
        np.testing.assert_array_equal(slopes[x][1:], np.stack([slopes[x][0]] * 2), err_msg=x)


LOG = jnp.array([-1.0, -0.5, -2.0])
NEVER = LOG.at[1].set(-jnp.inf)  # log-probabilities, one of an answer that is impossible
ONE, NAN = jnp.ones(3), jnp.full(3, jnp.nan)
LIMITS = {
    "dpo: the rejected answer is impossible": (lambda x: rlx.dpo_loss(LOG, NEVER, LOG, LOG, beta=x), 0.0),
    "kto: a bad answer is impossible": (lambda x: rlx.kto_loss(NEVER, LOG, False, 0.0, x), 0.0),
    "kto: good answers weigh nothing": (lambda x: rlx.kto_loss(NAN, LOG, True, x, desirable_weight=0.0), 0.0),
    "grpo: no penalty": (lambda x: rlx.grpo_loss(LOG, LOG, x, ref_log_probs_t=NAN, kl_weight=0.0), -1.0),
    "ppo: a ratio that is cut off": (lambda x: rlx.clipped_surrogate_pg_loss(jnp.inf * ONE, x * ONE, 0.5), -1.5),
    "CQL: no penalty": (lambda x: rlx.conservative_q_learning(NAN.at[0].set(x), 0, 1.0, 1.0, LOG, 0.0), 0.125),
    "AWR: no advantage at all": (lambda x: rlx.advantage_weighted_loss(LOG, jnp.array([0, -jnp.inf, -jnp.inf]), x,
                                                                     stop_target_gradients=False), 1 / 3),
    "retrace: a ratio too large for float32": (lambda x: rlx.retrace_continuous(
        0 * ONE, ONE[1:], ONE, ONE, ONE, 100 * x * ONE[1:], x, False)[0], 4.0),
    "leaky V-trace: nothing leaks": (lambda x: rlx.leaky_vtrace(0 * ONE, ONE, x * ONE, 0 * ONE, jnp.inf * ONE)[0], 1.0),
    "λ of 1 looks at the last value only": (lambda x: rlx.lambda_returns(x * ONE, ONE, NAN.at[-1].set(1.0))[0], 4.0),
    "SAC: of no temperature": (lambda x: rlx.sac_temperature_loss(0.0, -jnp.inf, x), 0.0),
    "Huber of no limit": (lambda x: rlx.huber_loss(3.0 * x, jnp.inf), 4.5),
    "Huber is linear from 1 on, by default": (lambda x: rlx.huber_loss(3.0 * x), 2.5),
    "huber of 0": (lambda x: rlx.huber_loss(x + jnp.inf, 0.0), 0.0),
    "CMPO: an impossible action": (lambda x: rlx.cmpo_policy(jnp.array([x, x, -jnp.inf]), NAN.at[:2].set(x))[0], 0.5),
    "regret: an impossible action": (lambda x: rlx.rm_loss(jnp.array([[0.0, 0.0, -jnp.inf]]),
                                                           jnp.array([[2.0, -2.0, -jnp.inf]]) * x), -1.0),
    "GPI: a policy that never takes an action": (lambda x: rlx.generalized_policy_improvement(
        jnp.array([[[-jnp.inf, 0.0]], [[2.0, 0.5]]]), x * ONE[:2])[0], 2.5),
    "noise that is damped out": (
        lambda x: rlx.add_ornstein_uhlenbeck_noise(jax.random.key(0), x, jnp.nan, 1.0, 0.0), 1.0),
}  # fmt: skip


@functools.cache
def at_their_limits():
    """Values and slopes of all of them, as one program."""
    return jax.jit(lambda x: {name: jax.value_and_grad(function)(x) for name, (function, _) in LIMITS.items()})(1.0)


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_numbers_and_so_are_their_slopes(name):
    (result, slope), (_, expected) = at_their_limits()[name], LIMITS[name]
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)
    assert np.isfinite(slope)


def test_slopes_at_the_ends_of_likelihoods_and_transforms():
    """d/dt pᵗ (1 - p)¹⁻ᵗ = likelihood · log(p / (1 - p)), for targets of 0 and 1 too."""
    p, t = np.array([0.1, 0.3, 0.8, 0.1, 0.3, 0.8]), np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    slopes = jax.grad(lambda t: rlx.likelihood(p, t).sum())(t)
    np.testing.assert_allclose(slopes, np.where(t == 1, p, 1 - p) * np.log(p / (1 - p)), rtol=1e-5)
    t = np.array([0.0, 1.0, 1.0, 0.0])
    certain = jax.grad(lambda p: rlx.likelihood(p, t).sum())(np.array([0.0, 0.0, 1.0, 1.0]))
    np.testing.assert_array_equal(certain, [-1, 1, 1, -1])
    x = np.array([np.inf, -np.inf, 3e38, 0.0])
    slopes = jax.grad(lambda x: rlx.signed_hyperbolic(x, 0.5).sum())(x)
    np.testing.assert_allclose(slopes, [0.5, 0.5, 0.5, 1.0], rtol=1e-6)


def test_actions_of_no_weight_teach_nothing():
    """A distillation target of weight 0 may be an impossible action, or no number at all."""

    def loss(mean, weights, bad):
        policy = types.SimpleNamespace(log_prob=lambda a: rlx.gaussian_diagonal(1.0).logprob(a, mean * jnp.ones(2)))
        return rlx.sampled_policy_distillation_loss(
            policy, rlx.PolicyTarget(jnp.array([[0.5, 1.0], [bad, 0.0]]), weights)
        )

    for bad in (np.nan, np.inf):
        result, slope = jax.value_and_grad(loss)(0.0, jnp.array([2.0, 0.0]), bad)
        np.testing.assert_allclose(result, 0.5 * (0.25 + 1.0) + np.log(2 * np.pi), rtol=1e-6)
        np.testing.assert_allclose(slope, -1.5, rtol=1e-6)
    impossible = types.SimpleNamespace(log_prob=lambda a: jnp.array([-1.0, -jnp.inf])[a])
    target = rlx.PolicyTarget(jnp.arange(2), jnp.array([1.0, 0.0]))
    assert float(rlx.sampled_policy_distillation_loss(impossible, target)) == 0.5


def test_distillation_targets_are_constants():
    def loss(actions, weights, stop):
        normal = types.SimpleNamespace(log_prob=lambda a: -jnp.square(a))
        return rlx.sampled_policy_distillation_loss(normal, rlx.PolicyTarget(actions, weights), stop)

    by_default, flowing = (jax.grad(loss, (0, 1))(jnp.ones(2), jnp.ones(2), stop) for stop in (True, False))
    assert not np.any(by_default) and np.all(flowing)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_constant_weights_have_a_dtype_of_their_own(dtype):
    coin = types.SimpleNamespace(
        sample=lambda seed, sample_shape: jnp.zeros(sample_shape, int), log_prob=lambda a: jnp.zeros(a.shape, dtype)
    )
    weights = rlx.constant_policy_targets(coin, jax.random.key(0), 3, 0.1).weights
    assert weights.dtype == jnp.float32 and weights.tolist() == [np.float32(0.1)] * 3
    assert rlx.zero_policy_targets(coin, jax.random.key(0), 3).weights.dtype == jnp.float32


GROUPS = np.float32([
    np.full(7, 3.3), np.full(7, 0.1), np.full(7, 1e8), 1e8 + 8.0 * np.array([0, 1, 2, 1, 0, 5, 3]),
    -4e7 + 4.0 * np.arange(7), [1, 0, 0, 1, 1, 0, 1], 1e15 * np.arange(7), 1e-15 * np.arange(7),
    [-2, 1e-3, 5, 0, 1, 2, 3],
])  # fmt: skip


@pytest.mark.parametrize("places", [slice(7), slice(1, 14, 2)], ids=["all", "masked"])
def test_group_advantages_keep_the_digits_of_differences(places):
    """Noise for equal rewards, or digits lost to large ones, would be taught as if they were differences."""
    gain = np.float64(GROUPS) - np.float64(GROUPS).mean(1, keepdims=True)
    std = np.sqrt(np.mean(gain**2, axis=1, keepdims=True))
    rewards = np.full([len(GROUPS), places.stop], np.nan, np.float32)
    rewards[:, places] = GROUPS
    mask = ~np.isnan(rewards)
    given = () if mask.all() else (mask,)

    @jax.jit
    @jax.vmap
    def found(rewards, *mask):
        settings = {"mask": mask[0]} if mask else {}
        relative = rlx.group_relative_advantages(rewards, epsilon=0.0, **settings)
        return relative, rlx.leave_one_out_advantages(rewards, **settings)

    relative, one_out = (np.asarray(x) for x in found(rewards, *given))
    assert not np.any(relative[~mask]) and not np.any(one_out[~mask])
    relative, one_out = relative[:, places], one_out[:, places]
    constant = std[:, 0] == 0
    assert constant.sum() == 3 and not np.any(relative[constant]) and not np.any(one_out[constant])
    np.testing.assert_allclose(relative[~constant], (gain / np.where(std, std, 1))[~constant], rtol=1e-5, atol=1e-6)
    expected = gain[~constant] * 7 / 6
    np.testing.assert_allclose(
        one_out[~constant] / np.abs(expected).max(1, keepdims=True),
        expected / np.abs(expected).max(1, keepdims=True),
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_group_of_one_and_of_none():
    assert rlx.group_relative_advantages(jnp.array([1e8])).tolist() == [0.0]
    assert rlx.leave_one_out_advantages(jnp.array([3.3])).tolist() == [np.float32(3.3)]
    assert rlx.leave_one_out_advantages(jnp.zeros(0)).shape == rlx.group_relative_advantages(jnp.zeros(0)).shape == (0,)


def test_equal_rewards_have_finite_slopes():
    for epsilon in (0.0, 0.5):
        slopes = jax.jit(jax.jacobian(functools.partial(rlx.group_relative_advantages, epsilon=epsilon)))(
            jnp.full(4, 3.3)
        )
        # Near equal rewards the standard deviation is of second order beside ε.
        np.testing.assert_allclose(slopes, (np.eye(4) - 1 / 4) / (epsilon or 1), atol=1e-6)


def test_conservative_losses_of_large_values_are_exact():
    """A soft maximum minus a value."""
    q, zero = np.array([1e7, 1e7 + 1, 1e7 + 3], np.float32), jnp.zeros(3)
    found = rlx.conservative_q_loss(q, 1), rlx.sampled_conservative_q_loss(q, zero, q[1])
    soft = np.log(np.exp(q - 1e7).sum())
    np.testing.assert_allclose(found, (soft - 1, soft - np.log(3) - 1), rtol=1e-5)


def bonus(distances, total, count, scale=1.0, c=1e-3, epsilon=1e-4, xi=8e-3, largest=8.0):
    """The episodic bonus of Never Give Up (its appendix, algorithm 1), where the mean distance has c added to it."""
    mean = total / count
    similarity = np.sqrt(np.sum(epsilon / (np.maximum(distances / (mean + c) - xi, 0) + epsilon))) + c
    return 0.0 if similarity > largest else scale / similarity


def test_the_episodic_bonus_is_its_equation():
    """Where the mean distance is small too: RLax has d_m - c, and finds no state new where d_m is below c."""
    settings = {"static_argnums": 1, "static_argnames": "max_memory_size"}
    call = functools.partial(jax.jit(rlx.episodic_memory_intrinsic_rewards, **settings), max_memory_size=8)
    np.testing.assert_allclose(call(jnp.array([[0.02, 0.0]]), 1, 1.0)[0], [bonus(np.array([4e-4]), 4e-4, 1)], rtol=1e-5)
    rng, state, memory, total, count = np.random.default_rng(0), None, [np.zeros(2)] * 2, 0.0, 0
    for size in (0.01, 0.03, 1.0):
        points = np.float32(size * rng.normal(size=(2, 2)))
        rewards, state = call(points, 2, 0.5, state)
        near = [np.sort([np.sum((p - np.float64(m)) ** 2) for m in memory])[:2] for p in points]
        total, count = total + np.sum(near), count + 4
        memory = [*memory, *points] if count > 4 else [*points]  # the stand-ins at the origin are overwritten
        np.testing.assert_allclose(rewards, [bonus(d, total, count, 0.5) for d in near], rtol=2e-4)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_the_episodic_bonus_of_half_precision_over_many_calls(dtype):
    """The sum of all distances so far, about 2 · 10⁵, is more than float16 holds, and stalls in bfloat16."""
    points, state = np.random.default_rng(0).normal(scale=16.0, size=(60, 10, 2)), None
    call = jax.jit(rlx.episodic_memory_intrinsic_rewards, static_argnums=1, static_argnames="max_memory_size")
    for new in points:
        rewards, state = call(jnp.asarray(new, dtype), 3, 1.0, state, max_memory_size=10)
    total, count, memory = 0.0, 0, np.zeros([3, 2])
    for new in points:
        near = np.sort(np.sum((new[:, None] - memory) ** 2, axis=-1), axis=-1)[:, :3]
        total, count, memory = total + near.sum(), count + near.size, new
    assert rewards.dtype == dtype and total > 2**17
    np.testing.assert_allclose(np.float32(rewards), [bonus(d, total, count) for d in near], rtol=0.1)
    np.testing.assert_allclose(state.distance_sum, -total, rtol=0.01)
    half = state.replace(distance_sum=jnp.zeros([], dtype))  # as the carry of a loop keeps it
    assert call(jnp.asarray(points[0], dtype), 3, 1.0, half)[1].distance_sum.dtype == dtype


def test_the_episodic_bonus_at_its_edges():
    settings = {"static_argnames": ("num_neighbors", "max_memory_size")}
    call = jax.jit(rlx.episodic_memory_intrinsic_rewards, **settings)
    call = functools.partial(call, num_neighbors=1, max_memory_size=4)
    seen = jnp.zeros([1, 2])  # similarity 1 + c
    assert call(seen, reward_scale=3.0, constant=1.0, max_similarity=2.0)[0].tolist() == [1.5]
    assert call(seen, reward_scale=3.0, constant=1.0, max_similarity=1.99)[0].tolist() == [0.0]
    slope = jax.grad(lambda x: call(x, reward_scale=1.0)[0].sum())(jnp.array([[0.5, 1.0]]))
    assert np.all(np.isfinite(slope))


def test_going_as_expected_is_upgoing():
    """1 + ½ 8 = 5 is enough to look further, where ahead is 1 + ½ (1 + ½ 20); to stop at 8 would give 1 + ½ 5."""
    returns = rlx.upgo_returns(jnp.ones(3), jnp.full(3, 0.5), jnp.array([5.0, 8.0, 20.0]))
    assert returns.tolist() == [4.25, 6.5, 11.0]


@pytest.mark.parametrize(("low", "high", "num_bins"), [(1.257302210933933, 1.997724861377215, 6), (0.0, 0.3, 46)])
def test_the_top_bin_of_two_hot_pairs(low, high, num_bins):
    """Rounding takes the position of the largest value beyond the last bin of the first pair, not of the second."""
    pair, top = rlx.twohot_pair(low, high, num_bins), np.arange(num_bins) == num_bins - 1
    for value in (high, high + 1, np.inf):
        np.testing.assert_allclose(pair.apply(value), top, atol=1e-6)
    np.testing.assert_allclose(pair.apply_inv(pair.apply(high)), [high], rtol=1e-6)
    np.testing.assert_array_equal(jax.jacrev(pair.apply)(np.float32(high + 1)), np.zeros(num_bins))


def test_the_top_bin_of_unbiased_pairs():
    for pair in (rlx.IDENTITY_PAIR, rlx.SIGNED_HYPERBOLIC_PAIR):
        both = rlx.unbiased_transform_pair(-2.0, 2.0, 5, pair)
        for x, place in ((1e3, -1), (float(pair.apply_inv(jnp.array(2.0))), -1), (-1e3, 0)):
            np.testing.assert_allclose(both.apply(x), np.eye(5)[place][None], atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_transformed_values_of_half_precision_whose_returns_overflow_it(dtype):
    """h⁻¹(352) is 7.6 · 10⁴, more than float16 holds, though the transformed return fits."""

    def h(x):
        return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x

    def inverse(y):
        return np.sign(y) * (((np.sqrt(1 + 4e-3 * (abs(y) + 1 + 1e-3)) - 1) / 2e-3) ** 2 - 1)

    def half(*x):
        return jnp.asarray(x, dtype)

    r, discount, v, one = half(1.0, 2.0), half(0.5, 0.5), half(352.0, 384.0), half(1.0, 1.0)
    last = 2 + 0.5 * inverse(384)
    returns = [h(1 + 0.5 * last), h(last)]
    pair, zeros, q = rlx.SIGNED_HYPERBOLIC_PAIR, jnp.zeros(2, jnp.int32), v[:, None]
    for name, found in {
        "lambda": rlx.transformed_lambda_returns(pair, r, discount, v),
        "n-step": rlx.transformed_n_step_returns(pair, r, discount, v, 2),
        "off-policy": rlx.transformed_general_off_policy_returns_from_action_values(
            pair, q, zeros, r, discount, one, jnp.ones([2, 1], dtype)
        ),
    }.items():
        assert found.dtype == dtype
        np.testing.assert_allclose(np.float32(found), returns, rtol=5e-3, err_msg=name)
    cut = rlx.transformed_lambda_returns(pair, r, discount, v, truncation_t=jnp.array([True, False]))
    np.testing.assert_allclose(np.float32(cut), [h(1 + 0.5 * inverse(352)), h(last)], rtol=5e-3)


def test_two_hot_encodings_keep_the_guard_of_rlax():
    """The lower bin's share is divided by the width of a bin plus 1e-5, which shows where bins are narrow."""
    found = rlx.transform_to_2hot(0.25e-3, 0.0, 2e-3, 3)
    low = 0.75 * 1e-3 / (1e-3 + 1e-5)
    np.testing.assert_allclose(found, [low, 1 - low, 0], rtol=1e-5, atol=1e-6)


def test_an_index_past_the_end():
    """As in RLax, if it is traced: NaN in sequences, and in operators of one step the last entry."""
    q, past = jnp.array([[1.0, 2.0, 3.0]]), jnp.array([7])
    assert np.isnan(rlx.batched_index(q, past)).all()
    zero = jnp.zeros(1)
    assert np.isnan(jax.jit(lambda a: rlx.sarsa_lambda(q, a, zero, zero + 0.5, q, a, 1.0))(past)).all()
    assert float(jax.jit(lambda a: rlx.sarsa(q[0], a, 0.0, 0.5, q[0], a))(7)) == -1.5


def test_k3_of_an_impossible_action_is_not_negative():
    assert float(rlx.kl_k3(jnp.array(-jnp.inf), jnp.array(-1.0))) > 1e30


def test_the_mean_distance_of_an_episode_does_not_wrap_around():
    """Its count is an int32."""
    most = np.iinfo(np.int32).max
    state = rlx.IntrinsicRewardState(jnp.zeros([4, 2]), jnp.int32(0), jnp.float32(-most), jnp.int32(most))
    rewards, after = rlx.episodic_memory_intrinsic_rewards(jnp.ones([1, 2]), 2, 1.0, state)
    assert after.distance_count == most // 2 + 2
    np.testing.assert_allclose(after.distance_sum / after.distance_count, -1, rtol=1e-6)
    kernel = 1e-4 / (2 / (1 + 1e-3) - 8e-3 + 1e-4)  # squared distances of 2, their mean 1
    np.testing.assert_allclose(rewards, 1 / (np.sqrt(2 * kernel) + 1e-3), rtol=1e-5)


@pytest.mark.slow
def test_the_mean_distance_of_many_calls_follows_the_distances():
    """Of 1.8 · 10⁷ calls with distances of 1, then of 4: from 2²⁴ ones on, a sum of float32 no longer changes."""
    one = rlx.episodic_memory_intrinsic_rewards.kernel

    @jax.jit
    def mean_after(calls, embedding, state):
        # The memory is one point, which is always replaced by the origin.
        def call(_, state):
            after = one(embedding[None], 1, 1.0, state)[1]
            return rlx.IntrinsicRewardState(state.memory, state.next_memory_index, *after.to_tuple()[2:])

        return jax.lax.fori_loop(0, calls, call, state)

    state = rlx.IntrinsicRewardState(jnp.zeros([1, 1]), jnp.int32(0), jnp.float32(0), jnp.int32(0))
    state = mean_after(2**24 + 2**20, jnp.ones(1), state)
    np.testing.assert_allclose(state.distance_sum / state.distance_count, -1, rtol=1e-6)
    assert state.distance_count == 2**23 + 2**20
    before = float(state.distance_sum)
    state = mean_after(1000, jnp.full(1, 2.0), state)
    np.testing.assert_allclose(state.distance_sum - before, -4000, rtol=1e-6)


@pytest.mark.parametrize("operator", [rlx.q_lambda, rlx.transformed_q_lambda])
def test_action_values_of_a_terminal_state_that_are_infinite_have_no_slope(operator):
    q_t = jnp.array([[1.0, 2.0], [-jnp.inf, -jnp.inf], [1.0, 4.0]])
    rest = jnp.zeros(3, int), jnp.ones(3), jnp.array([0.9, 0.0, 0.9])

    def total(q_t):
        return jnp.sum(operator(jnp.ones([3, 2]), *rest, q_t, 0.5, stop_target_gradients=False))

    # γ (1 - λ) where a later step is looked at too, and γ at the end, for the larger action value.
    np.testing.assert_allclose(jax.grad(total)(q_t), [[0, 0.45], [0, 0], [0, 0.9]], rtol=1e-6)


def test_errors_whose_targets_are_constants_have_the_value_of_the_equation():
    """Two steps by hand: Δ_1 = 2 + 2 - 2 = 2, Δ_0 = 1 + 1 - 1 + ½ ½ 2 Δ_1 = 2, times ρ = 1, 2."""
    half, values = jnp.array([0.5, 0.5]), jnp.array([1.0, 2.0, 4.0])
    rewards, rho = jnp.array([1.0, 2.0]), jnp.array([1.0, 2.0])

    def errors(v):
        return rlx.importance_corrected_td_errors(rewards, half, rho, half, v, stop_target_gradients=True)

    assert errors(values).tolist() == [2, 4]
    assert jax.jacobian(errors)(values).tolist() == [[-1, 0, 0], [0, -1, 0]]


@pytest.mark.parametrize("actions", [1, 2, 32, 33, 100])  # short rows are added up in another way than long ones
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_sum_over_actions_leaves_out_what_is_impossible_in_rows_of_any_length(actions, dtype):
    rng = np.random.default_rng(actions)
    q, probs = rng.normal(size=actions), rng.dirichlet(np.ones(actions))
    q, probs = (np.asarray(jnp.asarray(x, dtype), np.float64) for x in (q, probs))
    worthless = np.where(np.arange(actions) % 3 == 1, [np.nan, np.inf, -np.inf][actions % 3], q)
    never = np.where(np.isfinite(worthless), probs, 0)

    def target(q_t, probs):
        return rlx.expected_sarsa(jnp.zeros(actions, dtype), 0, 1.0, 0.5, q_t, probs, False).astype(jnp.float32)

    arguments = jnp.asarray(worthless, dtype), jnp.asarray(never, dtype)
    value, (slope_q, slope_probs) = jax.jit(jax.value_and_grad(target, argnums=(0, 1)))(*arguments)
    places = [a for a in range(actions) if never[a]]
    tolerance = 1e-6 if dtype == jnp.float32 else 2.0**-7
    np.testing.assert_allclose(value, 1 + 0.5 * sum(q[a] * never[a] for a in places), rtol=tolerance)
    np.testing.assert_allclose(slope_q.astype(np.float32), 0.5 * never, rtol=tolerance)
    expected = [0.5 * q[a] if a in places else 0.0 for a in range(actions)]
    np.testing.assert_allclose(slope_probs.astype(np.float32), expected, rtol=tolerance)


def test_a_sum_over_any_number_of_actions_can_be_exported():
    def target(q_t, probs):
        return jax.vmap(lambda q, p: rlx.expected_sarsa(q, 0, 1.0, 0.5, q, p))(q_t, probs)

    shapes = [jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, a"), jnp.float32)] * 2
    exported = jax.export.export(jax.jit(target))(*shapes)
    for actions in (2, 40):
        q, probs = np.random.default_rng(actions).uniform(size=[2, 3, actions]).astype(np.float32)
        np.testing.assert_allclose(exported.call(q, probs), 1 + 0.5 * np.sum(q * probs, -1) - q[:, 0], rtol=1e-5)


SEQUENCES_OF_ANY_LENGTH = {  # operator, arguments by the axes behind time (and what their length is beside T)
    "lambda_returns": (lambda r, g, v: rlx.lambda_returns(r, g, v, 0.9), [()] * 3, [0, 0, 0]),
    "vtrace_td_error_and_advantage": (lambda *x: rlx.vtrace_td_error_and_advantage(*x)[1], [()] * 5, [0] * 5),
    "retrace_continuous": (lambda *x: rlx.retrace_continuous(*x, 0.9), [()] * 6, [0, -1, 0, 0, 0, -1]),
    "q_lambda": (
        lambda q, r, g, p: rlx.q_lambda(q, jnp.argmax(q, -1), r, g, p, 0.9),
        [(4,), (), (), (4,)],
        [0, 0, 0, 0],
    ),
}


@pytest.mark.parametrize("name", SEQUENCES_OF_ANY_LENGTH)
def test_sequences_of_any_length_can_be_exported(name):
    operator, axes, more = SEQUENCES_OF_ANY_LENGTH[name]
    (steps,) = jax.export.symbolic_shape("t")
    shapes = [jax.ShapeDtypeStruct((steps + n, *rest), jnp.float32) for n, rest in zip(more, axes, strict=True)]
    exported = jax.export.export(jax.jit(operator))(*shapes)
    for length in (3, 300):
        rng = np.random.default_rng(length)
        arguments = [jnp.float32(rng.uniform(size=(length + n, *rest))) for n, rest in zip(more, axes, strict=True)]
        np.testing.assert_allclose(exported.call(*arguments), operator(*arguments), rtol=1e-5, atol=1e-6)


KEY, PENALTY = jax.random.key(0), rlx.LagrangePenalty(alpha=jnp.array(0.7), epsilon=0.1)
BATCHES_OF_ANY_SIZE = {
    "softmax": lambda x: (rlx.softmax().probs(x), rlx.softmax().sample(KEY, x), rlx.softmax().kl(x, x[::-1])),
    "clipped_entropy_softmax": lambda x: rlx.clipped_entropy_softmax().entropy(x),
    "epsilon_greedy": lambda x: (rlx.epsilon_greedy().probs(x, x[:, :1]), rlx.greedy().sample(KEY, x)),
    "gaussian_diagonal": lambda x: (rlx.gaussian_diagonal().sample(KEY, x, x), rlx.gaussian_diagonal().kl(x, x, x, x)),
    "squashed_gaussian": lambda x: rlx.squashed_gaussian().logprob(x, x[:, ::-1], x),
    "add_gaussian_noise": lambda x: rlx.add_gaussian_noise(KEY, x, 0.1),
    "l2_loss": lambda x: (rlx.l2_loss(x, x[::-1]), rlx.expectile_loss(x, x[::-1], 0.3)),
    "mpo_loss": lambda x: rlx.mpo_loss(x.T, x.T, PENALTY, [(x[:, 0], PENALTY)])[0],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BATCHES_OF_ANY_SIZE)
def test_batches_of_any_size_can_be_exported(name):
    function, (batch,) = BATCHES_OF_ANY_SIZE[name], jax.export.symbolic_shape("b")
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((batch, 3), jnp.float32))
    x = np.random.default_rng(0).uniform(0.1, 0.9, size=(4, 3)).astype(np.float32)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), exported.call(x), function(x))


WRONG_SIZES = {
    r"td_learning: argument `v_tm1` has rank 1 \(shape \[b\]\)": lambda b, c: rlx.td_learning(b, b, b, b),
    r"discounted_returns: argument `discount_t` has shape \[c\], .* T = b from": lambda b, c: rlx.discounted_returns(
        b, c, 1.0
    ),
    r"l2_loss: argument `targets` has shape \[c\], .* against \[b\]": lambda b, c: rlx.l2_loss(b, c),
    r"replay.add_batch: argument `items` has shape \[b\], expected \[B, 2\]": lambda b, c: (
        replay := rlx.replay.uniform(4)
    ).add_batch(replay.init(jnp.zeros(2)), b),
}


@pytest.mark.parametrize("message", WRONG_SIZES)
def test_an_error_shows_lengths_that_have_symbolic_names(message):
    one, other = (jax.ShapeDtypeStruct((n,), jnp.float32) for n in jax.export.symbolic_shape("b, c"))
    with pytest.raises(rlx.ArgumentError, match=message):
        jax.export.export(jax.jit(WRONG_SIZES[message]))(one, other)


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("solve", [recurrence.scan, recurrence.doubling])
def test_a_weight_of_0_has_its_slope_in_the_gradient_too(solve, outer):
    """With G_1 = r_1 + γ_1 v and G_0 = r_0 + γ_0 G_1, the gradient of ½ (G_0² + G_1²) in r is (G_0, γ_0 G_0 + G_1)."""
    r_t, discount_t, v = jnp.array([0.3, 0.5]), jnp.array([0.0, 0.0]), jnp.array(2.0)

    def half_of_squares(r_t, discount_t):
        g_t = solve(lambda g_t, r_t, discount_t: r_t + weighted(discount_t, g_t), (r_t, discount_t), v)
        return jnp.sum(g_t**2) / 2

    slopes = jax.jit(outer(jax.grad(half_of_squares), argnums=1))(r_t, discount_t)
    np.testing.assert_allclose(slopes, [[0.5, 0.0], [0.3, 2.0]], rtol=1e-6)  # [∂G_0 / ∂γ; G_0 ∂γ_0 / ∂γ + ∂G_1 / ∂γ]


def test_second_derivatives_of_returns_at_an_end():
    """∂² ½ Σ G² / ∂r ∂γ of λ-returns and of advantages where an episode ends, beside differences of a loop in NumPy."""
    steps, lambda_, h = 4, 0.65, 1e-3
    r, v = np.random.default_rng(0).normal(size=[2, steps])
    discounts = np.array([0.0, 0.9, 0.0, 0.7])

    def lambda_returns(r, discounts):
        g, returns = v[-1], []
        for t in reversed(range(steps)):
            g = r[t] + discounts[t] * ((1 - lambda_) * v[t] + lambda_ * g)
            returns.insert(0, g)
        return np.array(returns)

    state_values = np.append(0.3, v)
    for name, numbers, found in (
        ("λ-returns", lambda_returns, lambda r, d: rlx.lambda_returns(r, d, v.astype(r.dtype), lambda_)),
        (
            "n-step returns",
            lambda_returns,
            lambda r, d: rlx.n_step_bootstrapped_returns(r, d, v.astype(r.dtype), steps, lambda_),
        ),
        (
            "advantages",
            lambda r, d: lambda_returns(r, d) - state_values[:-1],
            lambda r, d: rlx.truncated_generalized_advantage_estimation(r, d, lambda_, state_values.astype(r.dtype)),
        ),
    ):

        def half(r, d, numbers=numbers):
            return np.sum(numbers(r, d) ** 2) / 2

        along = h * np.eye(steps)
        signs = [(one, other) for one in (1, -1) for other in (1, -1)]
        expected = [
            [sum(s * z * half(r + s * x, discounts + z * y) for s, z in signs) / (4 * h**2) for y in along]
            for x in along
        ]
        slopes = jax.jit(jax.jacrev(jax.grad(lambda r, d, f=found: jnp.sum(f(r, d) ** 2) / 2), argnums=1))
        slopes = slopes(jnp.float32(r), jnp.float32(discounts))
        np.testing.assert_allclose(slopes, expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_what_an_example_that_counts_for_nothing_would_teach():
    """Learning to reweight examples (Ren et al., 2018) asks for the slope of a gradient in weights of 0."""
    logits, actions = jnp.array([[0.0, 0.0], [0.0, 0.0]]), jnp.array([0, 1])

    def loss(logits, weights):
        return rlx.policy_gradient_loss(logits, actions, jnp.array([2.0, 4.0]), weights)

    slopes = jax.jacrev(jax.grad(loss), argnums=1)(logits, jnp.zeros(2))
    half = np.array([0.5, 0.5])  # softmax
    expected = np.zeros([2, 2, 2])
    for t, (action, advantage) in enumerate([(0, 2.0), (1, 4.0)]):
        expected[t, :, t] = -advantage * (np.eye(2)[action] - half) / 2  # the mean of two
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e18])
def test_advantages_of_any_size(size):
    adv = np.array([1.0, -1.0, 0.5, np.nan])
    expected = (adv - np.mean(adv[:3])) / np.std(adv[:3])
    found = rlx.normalized_advantages(jnp.float32(size) * jnp.float32(adv), mask=jnp.array([1, 1, 1, 0]))
    np.testing.assert_allclose(found, [*expected[:3], 0], rtol=1e-6)


def test_half_squares_of_numbers_whose_squares_overflow_float16():
    x = 300.0
    error, zero = jnp.asarray([x], jnp.float16), jnp.zeros(1, jnp.float16)
    found = {
        "l2": rlx.l2_loss(error)[0],
        "huber": rlx.huber_loss(error, 2 * x)[0],
        "k2": rlx.kl_k2(error, zero)[0],
        "dpg": rlx.dpg_loss(zero, error)[0],
    }
    for name, half in found.items():
        np.testing.assert_allclose(np.float64(half), 0.5 * x**2, rtol=2e-3, err_msg=name)


@pytest.mark.slow
def test_losses_of_half_precision_whose_terms_overflow_it():
    """Terms of about 9 · 10⁴, which cancel each other: most losses are 0."""
    half = functools.partial(jnp.asarray, dtype=jnp.float16)
    zeros, one, two, nought = jnp.zeros(2, jnp.int32), half([1.0, 1.0]), half([300.0, -300.0]), half([0.0, 0.0])
    logs, ratios, far = -half([300.0, 300.0]), half([300.0, 300.0]), half([[0.0, 300.0], [0.0, 300.0]])
    logits, values, up = half([[0.0, 2.0]]), half([[6e4, -6e4]]), half([5.7, 5.7])
    found = {
        "policy gradient": rlx.policy_gradient_loss(far, zeros, two, one),
        "entropy": rlx.entropy_loss(half(np.zeros([2, 8])), half([6e4, -6e4])),
        "qpg": rlx.qpg_loss(logits, values),
        "rm": rlx.rm_loss(logits, values),
        "sequence": rlx.sequence_policy_gradient_loss(logs, two),
        "grpo": rlx.grpo_loss(up, nought, two, epsilon=jnp.inf),
        "dr_grpo": rlx.dr_grpo_loss(up, nought, two, epsilon=jnp.inf),
        "dapo": rlx.dapo_loss(up[None], nought[None], two[None], None, jnp.inf, jnp.inf),
        "cispo": rlx.cispo_loss(logs[None], logs[None], two[None]),
        "rloo": rlx.rloo_loss(logs[:, None], two),
        "gspo": rlx.gspo_loss(half([6e4, -6e4]), half([-6e4, 6e4]), half(-1.0)),
        "ppo": rlx.clipped_surrogate_pg_loss(ratios, two, jnp.inf),
        "dual": rlx.dual_clipped_surrogate_pg_loss(ratios, two, jnp.inf, jnp.inf, jnp.inf),
        "penalty": rlx.kl_penalty_pg_loss(ratios, two, nought, 1.0),
        "values": rlx.clipped_value_loss(two, two, nought, jnp.inf),
        "simple": rlx.simple_policy_optimization_loss(ratios, two, 1000.0),
        "soft": rlx.sapo_loss(up, nought, half([6e4, -6e4]), temperature_negative=1.0),
        "weighted": rlx.advantage_weighted_loss(two, half([9.0, 9.0]), max_weight=300.0),
        "discovered": rlx.discovered_policy_loss(half([300.0, 1.0]), half([-300.0, 1.0])),
        "learnt": rlx.learnt_policy_loss(ratios, two, nought, threshold=0.0),
        "successor": rlx.generalized_policy_improvement(half([[[300.0, -300.0]]]), ratios)[0],
        "sampled": rlx.sampled_cmpo_loss(half([6e4, -6e4]), one, initial_normalizer=0.1),
        "muesli": rlx.muesli_policy_loss(far, zeros, two, ratios, far, far * 0, 0.0, clip_rho_threshold=jnp.inf),
        "novelty": rlx.rnd_intrinsic_rewards(far, far * 0)[0],
        "latents": rlx.latent_consistency_loss(far, far * 0, rho=0.0),
        "cloning": rlx.td3_bc_actor_loss(nought, far, far * 0),
        "expectile": rlx.expectile_loss(half(0.0), half(-300.0), half(0.5)),
        "expectile value": rlx.expectile_value_loss(half(0.0), half(300.0), expectile=0.5),
    }
    pi = 1 / (1 + np.exp(2))
    others = {"rm": -pi * (1 - pi) * 1.2e5, "gspo": 1.0, "simple": 300 * 299**2 / 2000}
    others.update(dict.fromkeys(("values", "novelty", "latents", "cloning", "expectile", "expectile value"), 4.5e4))
    others["discovered"] = (9e4 - 1) / 2  # without drift
    assert all(x.dtype == jnp.float16 for x in found.values())
    for name, x in found.items():
        np.testing.assert_allclose(np.float32(x), others.get(name, 0.0), rtol=1e-2, atol=1.0, err_msg=name)


def test_errors_that_are_small_beside_the_values():
    """Of one step, ρ (r + γ v_t - v_tm1) = ρ (7 + ½ 100 - 50) = 7 ρ; of two, with λ = 0, the same for each."""
    rho = np.float32([1e-6, 1e-12])
    v = jnp.array([50.0, 50.0]), jnp.array([100.0, 100.0])
    constants = jnp.full(2, 7.0), jnp.full(2, 0.5), rho

    def last(v_tm1, stop):
        return rlx.vtrace(v_tm1, v[1], *constants, 0.0, stop_target_gradients=stop)[1]

    for stop in (True, False):
        errors, slopes = jax.value_and_grad(last)(v[0], stop)
        np.testing.assert_allclose(errors, 7e-12, rtol=1e-6)
        np.testing.assert_allclose(slopes, [0, -1 if stop else -1e-12], rtol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e-3, 1e18])
@pytest.mark.parametrize("action", [0.5, 1e4])
def test_a_policy_learns_from_slopes_of_any_size(size, action):
    """Of loss ½ c² and slope -c, where c is the slope of the critic, cut off at a length of ten or not at all."""
    dqda, a = np.float32([3 * size, -2 * size, 2 * size]), jnp.full(3, action)
    for limit in (None, 10.0):
        c = np.float64(dqda)
        c = c if limit is None else c * min(1, limit / np.linalg.norm(c))
        loss = functools.partial(rlx.dpg_loss, dqda_t=dqda, dqda_clipping=limit)
        np.testing.assert_allclose(jax.grad(lambda a, loss=loss: loss(a).sum())(a), -c, rtol=1e-6)
        if 1e-15 < np.abs(c).max() < 1e15:
            np.testing.assert_allclose(loss(a), c**2 / 2, rtol=1e-6)


@pytest.mark.parametrize(
    "q, samples", [(1e7, [1.0, 2.0, 0.5]), (1.0, [1e7, 1e7 + 1, 1e7 - 3]), (0.0, [-9e9, -9e9, -9e9])]
)
def test_conservative_penalties_of_values_far_from_the_samples(q, samples):
    log_probs = np.array([-0.3, -1.0, 0.2])
    scores = np.array(samples) - log_probs
    shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    expected = scores.max() + np.log(np.mean(np.exp(scores - scores.max()))) - q
    loss, slopes = jax.value_and_grad(rlx.sampled_conservative_q_loss, (0, 2))(
        np.float32(samples), np.float32(log_probs), jnp.float32(q)
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    np.testing.assert_allclose(slopes[0], shares, rtol=1e-5)
    assert slopes[1] == -1


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1e-9, 1e-3])
def test_slopes_of_temperatures_that_are_small_beside_the_values(temperature):
    """∂/∂η [η ε + η log mean_s exp(q_s / η)] = ε + log mean_s exp(q_s / η) - Σ_s w_s q_s / η, which is a divergence."""
    gaps = np.array([0.0, -1.0, -2.0, -3.0]) * np.array([[1.0], [1e6]])  # the second row: one action is all that counts
    gaps = np.float32(8 + gaps * temperature)
    scaled = (np.float64(gaps) - np.float64(gaps).max(1, keepdims=True)) / np.float64(np.float32(temperature))
    log_mean = np.log(np.mean(np.exp(scaled), axis=1))
    weights = np.exp(scaled) / np.exp(scaled).sum(1, keepdims=True)
    expected = 0.1 + log_mean - np.sum(weights * scaled, axis=1)

    def of_mpo(eta, q):
        return rlx.mpo_compute_weights_and_temperature_loss(q, rlx.LagrangePenalty(eta, 0.1), lambda x: x)[0]

    def of_vmpo(eta, q):  # with an example that does not count
        q, counts, penalty = jnp.append(q, 99.0), jnp.append(jnp.ones(4), 0.0), rlx.LagrangePenalty(eta, 0.1)
        return rlx.vmpo_compute_weights_and_temperature_loss(q, counts, None, penalty, lambda x: x, 0.8)[0]

    for loss in (of_mpo, of_vmpo):
        losses, slopes = jax.vmap(jax.value_and_grad(loss), (None, 0))(jnp.float32(temperature), gaps)
        np.testing.assert_allclose(losses, 8 + temperature * (0.1 + log_mean), rtol=1e-6)
        np.testing.assert_allclose(slopes, expected, rtol=1e-4, atol=1e-6)


def test_temperatures_of_single_examples():
    """exp(A_i / η_i) of each, as in RLax: the largest advantage may not be subtracted from all then."""
    advantages, eta = np.array([3.0, 2.5, 4.0]), np.array([1.0, 0.5, 2.0])
    weights = np.exp(advantages / eta) / np.exp(advantages / eta).sum()
    found = rlx.vmpo_compute_weights_and_temperature_loss(
        jnp.float32(advantages), None, None, rlx.LagrangePenalty(jnp.float32(eta), 0.1), lambda x: x, 1.0
    )
    np.testing.assert_allclose(found[1], weights, rtol=1e-5)
    np.testing.assert_allclose(found[0], eta * (0.1 + np.log(np.mean(np.exp(advantages / eta)))), rtol=1e-5)


def test_divergences_of_gaussians_that_are_nearly_the_same():
    """MPO bounds that of deviations by 1e-6, of which the difference of numbers around ½ keeps one digit."""
    sigma_0 = np.float32([[0.3, 0.5, 2.0], [1e-20, 1e-20, 5.0], [1e4, 1e-4, 0.7], [0.6, 1.4, 1.6]])
    sigma_1 = np.float32(sigma_0 * [[1.001, 0.9995, 1.0002], [1.0, 1.01, 1.0], [1e3, 1e3, 1e-3], [1.0, 1.0, 1.0]])
    mu_0, mu_1 = np.zeros([4, 3], np.float32), np.float32(sigma_1 * 1e-4)
    r = np.longdouble(sigma_0) / np.longdouble(sigma_1)
    expected = np.sum((r**2 - 1) / 2 - np.log(r) + np.square(np.longdouble(mu_1) / sigma_1) / 2, axis=1)
    slopes = (r**2 - 1) / np.longdouble(sigma_0)
    for sign in (1, -1):
        found = jax.jit(rlx.multivariate_normal_kl_divergence)(mu_0, sigma_0, mu_1, sign * sigma_1)
        np.testing.assert_allclose(found, np.float64(expected), rtol=2e-4)
    of_sigma_0 = jax.grad(lambda x: rlx.gaussian_diagonal().kl(mu_0, x, mu_1, sigma_1).sum())(sigma_0)
    np.testing.assert_allclose(of_sigma_0 * sigma_0, np.float64(slopes) * sigma_0, rtol=1e-3, atol=2e-7)


@pytest.mark.parametrize("p", [0.01, 0.5, 2.0, 3.0])
def test_powers_of_small_values_keep_their_digits(p):
    x = np.float32([0.0, 1e-30, -1e-8, 1e-4, -0.3, 2.0, -50.0, 1e6])
    size = np.abs(x).astype(np.longdouble) / np.sqrt(np.longdouble(p))
    expected = np.sign(x) * np.expm1(p * np.log1p(size)) / np.sqrt(np.longdouble(p))
    slopes = (1 + size) ** np.longdouble(p - 1)
    for exponent in (p, np.float32(p)):  # a number, for which squares and roots have forms of their own, and an array
        found = jax.vmap(jax.value_and_grad(lambda x, exponent=exponent: rlx.power(x, exponent)))(x)
        np.testing.assert_allclose(found[0], np.float64(expected), rtol=3e-6)
        np.testing.assert_allclose(found[1], np.float64(slopes), rtol=3e-6)
        assert rlx.power(np.float32(-np.inf), exponent) == -np.inf


@pytest.mark.parametrize("delta", [0.0, 0.5, np.inf])
def test_slopes_of_the_huber_loss(delta):
    """Min(|x|, δ) with the sign of x; in δ, by how far |x| is beyond it. The second one in x is 1 within δ, else 0."""
    x = np.float32([-3.0, -0.25, 0.125, 2.0])
    d = np.full(4, delta, np.float32)
    in_x, in_delta = jax.vmap(jax.grad(rlx.huber_loss, (0, 1)))(x, d)
    np.testing.assert_allclose(in_x, np.sign(x) * np.minimum(np.abs(x), delta), rtol=1e-6)
    np.testing.assert_allclose(in_delta, np.maximum(np.abs(x) - delta, 0), rtol=1e-6)
    second = jax.vmap(jax.grad(jax.grad(rlx.huber_loss)))(x, d)
    np.testing.assert_allclose(second, np.abs(x) < delta)
