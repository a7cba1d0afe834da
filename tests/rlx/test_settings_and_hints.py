"""Settings out of range, bins out of order, advice that works when it is followed, and what can be pickled."""

import copy
import functools
import inspect
import pickle
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_checks import assert_close, cast, draw
from operator_registry import CASES

import rlx

pytestmark = pytest.mark.unoptimised

NAN, INF = float("nan"), float("inf")
KEY = jax.random.key(0)
Q = jnp.array([1.0, 2.0, 3.0])
ONES = jnp.ones(3)
BY_NAME = {case.name: case for case in CASES}

# For each setting, by its name, numbers on either side that no paper gives it; NaN is out of range for all.
OUT_OF_RANGE = {
    "alpha": (-0.1, 1.1), "alpha_": (-0.1, 1.1), "lambda_": (-0.1, 1.1), "lambda_t": (-0.1, 1.1),
    "action_gap_scale": (-0.1, 1.1), "munchausen_scale": (-0.1, 1.1), "expectile": (-0.1, 1.1),
    "label_smoothing": (-0.1, 3.0), "dirichlet_fraction": (-0.1, 1.1), "damping": (-0.1, 1.1),
    "beta": (0.0, -1.0, INF), "tau": (0.0, -1.0, INF), "p": (0.0, -1.0), "dirichlet_alpha": (0.0, -1.0),
    "max_weight": (0.0, -1.0), "clip_value_min": (0.1,), "tolerance": (0.9,), "factor": (0.9,),
    "low": (-1.0, 101.0), "high": (-1.0, 101.0), "decay": (-0.1, 1.1), "max_ratio": (0.9,),
    "temperature_positive": (0.0, INF), "temperature_negative": (0.0, INF),
    "delta": (-1.0,), "huber_param": (-1.0, INF), "dqda_clipping": (-1.0,), "stddev": (-1.0, INF),
    **dict.fromkeys(("temperature", "epsilon", "epsilon_low", "epsilon_high", "clip_value", "clip_rho_threshold",
                     "clip_pg_rho_threshold", "conservative_weight", "initial_normalizer", "kl_weight", "noise_clip",
                     "value_weight", "odds_weight", "margin", "threshold", "desirable_weight", "logsumexp_weight",
                     "undesirable_weight", "target_kl", "eps"), (-1.0, -INF)),
}  # fmt: skip
OTHERWISE = {("discovered_policy_loss", "alpha")}  # (operator, setting) of such a name, with another range
SETTINGS = [
    (case.name, name)
    for case in CASES
    for name in inspect.signature(getattr(rlx, case.name)).parameters
    if name in OUT_OF_RANGE and (case.name, name) not in OTHERWISE
]


def run(name, **more):
    case = BY_NAME[name]
    given = {**cast(draw(case, 0), jnp.float32), **case.settings, **more}
    return getattr(rlx, name)(**given)


@pytest.mark.parametrize("name, setting", SETTINGS)
def test_an_operator_names_a_setting_out_of_range(name, setting):
    for wrong in (*OUT_OF_RANGE[setting], NAN):
        with pytest.raises(rlx.OptionError, match=f"^{name}: argument `{setting}` is {wrong}, expected a "):
            run(name, **{setting: wrong})


FORMS = [float, np.float32, np.float64, np.array, jnp.float32, jnp.array, lambda x: np.array(x, np.float16)]


@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_write_a_number_is_looked_at(form):
    for wrong in (1.5, NAN, -INF):
        with pytest.raises(rlx.OptionError, match=f"^epsilon_greedy: argument `epsilon` is {wrong}, expected a number"):
            rlx.epsilon_greedy(form(wrong))
        with pytest.raises(rlx.OptionError, match="argument `lambda_` is "):
            rlx.lambda_returns(ONES, ONES, ONES, form(wrong))
    assert rlx.epsilon_greedy(form(0.5)).probs(Q).tolist() == pytest.approx([1 / 6, 1 / 6, 2 / 3])


def test_what_is_traced_passes_and_computes_what_it_did():
    """Also where a value lies outside: nothing can be said of it when Python runs."""
    jitted = jax.jit(lambda e, t: (rlx.epsilon_greedy(e).probs(Q), rlx.softmax(t).probs(Q)))
    np.testing.assert_allclose(jitted(-1.0, -1.0)[0], [-1 / 3, -1 / 3, 5 / 3], rtol=1e-6)
    np.testing.assert_allclose(jitted(1.0, -1.0)[1], np.exp(-Q) / np.exp(-Q).sum(), rtol=1e-6)
    each = jax.vmap(lambda lambda_: rlx.lambda_returns(ONES, ONES, ONES, lambda_))(jnp.array([0.5, 2.0]))
    assert each.shape == (2, 3)
    bins = jax.jit(lambda low, high: rlx.twohot_pair(low, high, 3).apply(0.5))(0.0, 1.0)
    np.testing.assert_allclose(bins, [0, 1, 0], atol=1e-4)
    mean = jax.jit(lambda low, high: rlx.hl_gauss_pair(low, high, 2).apply_inv(jnp.array([0.5, 0.5])))(0.0, 1.0)
    np.testing.assert_allclose(mean, 0.5, rtol=1e-6)
    # A number is looked at under `jit` as well, where it is not traced.
    with pytest.raises(rlx.OptionError, match="argument `temperature` is 0"):
        jax.jit(lambda q: rlx.conservative_q_loss(q, 0, temperature=0.0))(Q)


def test_a_boolean_is_the_number_it_stands_for():
    assert rlx.epsilon_greedy(True).probs(Q).tolist() == pytest.approx([1 / 3] * 3)
    with pytest.raises(rlx.OptionError, match="argument `temperature` is False, expected a positive number"):
        rlx.softmax(False)


def test_the_ends_of_a_range_that_make_sense_are_in_it():
    np.testing.assert_allclose(rlx.softmax(INF).probs(Q), np.full(3, 1 / 3), rtol=1e-6)
    assert float(rlx.expectile_loss(1.0, 3.0, 1.0)) == 4.0  # RLax tests both ends
    assert float(rlx.clipped_surrogate_pg_loss(2 * ONES, ONES, INF)) == -2.0  # no clip
    assert float(rlx.clipped_surrogate_pg_loss(2 * ONES, ONES, 0.0)) == -1.0
    one = ONES[:1]
    assert rlx.vtrace(0 * one, 0 * one, one, one, 9 * one, clip_rho_threshold=INF).tolist() == [9.0]
    # A λ for every step may carry importance ratios, and is data: IEEE's rules.
    assert rlx.lambda_returns(ONES, ONES, ONES, 2 * ONES).shape == (3,)
    assert rlx.lambda_returns(one, one, one, np.array([NAN])).shape == (1,)


SPEC = types.SimpleNamespace(minimum=-1.0, maximum=1.0)
TEMPERATURE = rlx.LagrangePenalty(jnp.array(1.0), 0.5)
PENALTY = rlx.LagrangePenalty(jnp.array(1.0), -0.5)
STATE = rlx.popart(2, 0.5, 1e-3, 1e3)[0]()


@pytest.mark.parametrize("named, call", [
    ("epsilon` is 7,", lambda: rlx.epsilon_greedy().probs(Q, epsilon=7)),
    ("epsilon` is [0.1 2. ],", lambda: rlx.epsilon_greedy(np.array([0.1, 2.0]))),
    ("epsilon` is 7,", lambda: rlx.epsilon_greedy(0.5).sample(KEY, Q, 7)),
    ("temperature` is -1.0,", lambda: rlx.softmax(-1.0)),
    ("temperature` is nan,", lambda: rlx.clipped_entropy_softmax(NAN)),
    ("entropy_clip` is -1.0,", lambda: rlx.clipped_entropy_softmax(1.0, -1.0)),
    ("temperature` is -1,", lambda: rlx.categorical_kl_divergence(Q, Q, -1)),
    ("sigma` is -1.0,", lambda: rlx.gaussian_diagonal(-1.0)),
    ("sigma` is -1.0,", lambda: rlx.gaussian_diagonal().logprob(Q, Q, -1.0)),
    ("sigma_max` is -5.0, expected at least `sigma_min`, which is -4.", lambda: rlx.squashed_gaussian(-4, -5.0)),
    ("sigma_min` is nan,", lambda: rlx.squashed_gaussian(NAN)),
    ("action_spec.maximum` is -1.0, expected at least", lambda: rlx.squashed_gaussian().sample(
        KEY, Q, Q, types.SimpleNamespace(minimum=1.0, maximum=-1.0))),
    ("action_spec.maximum` is 1.0, expected more than", lambda: rlx.squashed_gaussian().logprob(
        Q, Q, Q, types.SimpleNamespace(minimum=1.0, maximum=1.0))),
    ("action_spec.maximum` is inf,", lambda: rlx.squashed_gaussian().sample(
        KEY, Q, Q, types.SimpleNamespace(minimum=np.float32(0), maximum=np.float32(INF)))),
    ("stddev` is -1.0,", lambda: rlx.add_gaussian_noise(KEY, Q, -1.0)),
    ("stddev` is -1.0,", lambda: rlx.add_ornstein_uhlenbeck_noise(KEY, Q, Q, 0.5, -1.0)),
    ("damping` is 1.5,", lambda: rlx.add_ornstein_uhlenbeck_noise(KEY, Q, Q, 1.5, 1.0)),
    ("dirichlet_fraction` is 2.0,", lambda: rlx.add_dirichlet_noise(KEY, Q, 1.0, 2.0)),
    ("dirichlet_alpha` is 0.0,", lambda: rlx.add_dirichlet_noise(KEY, Q, 0.0, 0.5)),
    ("noise_clip` is -1,", lambda: rlx.smoothed_target_action(KEY, Q, noise_clip=-1)),
    ("max_action` is 1.0, expected at least `min_action`, which is 2.", lambda: rlx.smoothed_target_action(
        KEY, Q, min_action=2.0)),
    ("gradient_max` is 0, expected at least `gradient_min`, which is 1.", lambda: rlx.clip_gradient(1.0, 1, 0)),
    ("dqda_clipping` is -1,", lambda: rlx.dpg_loss(Q, Q, -1)),
    ("discount_factor` is 1.1,", lambda: rlx.pixel_control_loss(
        jnp.ones([2, 1, 1, 1]), jnp.array([0]), jnp.ones([2, 1, 1, 1]), 1.1, 1)),
    ("discount` is -0.1,", lambda: rlx.feature_control_rewards(jnp.ones([2, 1]), "potential", -0.1)),
    ("update_period` is 0,", lambda: rlx.periodic_update(1.0, 2.0, 4, 0)),
    ("decay` is 1.5,", lambda: rlx.create_ema(1.5)),
    ("num_outputs` is 0,", lambda: rlx.popart(0, 0.5, 1e-3, 1e3)),
    ("step_size` is -1,", lambda: rlx.popart(1, -1, 1e-3, 1e3)),
    ("scale_lb` is -1,", lambda: rlx.popart(1, 0.5, -1, 1e3)),
    ("scale_ub` is 0.1, expected at least `scale_lb`, which is 1.", lambda: rlx.art(STATE, Q, 0, 0.5, 1.0, 0.1)),
    ("penalty.epsilon` is -0.5,", lambda: rlx.kl_constraint_loss(Q, PENALTY, lambda x: x)),
    ("temperature_constraint.epsilon` is -0.5,", lambda: rlx.mpo_loss(Q, Q, PENALTY, [])),
    ("temperature_constraint.epsilon` is -0.5,", lambda: rlx.vmpo_loss(Q, Q, PENALTY, [])),
    ("kl_loss_weight` is -1.0,", lambda: rlx.mpo_loss(Q, Q, TEMPERATURE, [], kl_loss_weight=-1.0)),
    ("policy_loss_weight` is nan,", lambda: rlx.vmpo_loss(Q, Q, TEMPERATURE, [], policy_loss_weight=NAN)),
    ("top_k_fraction` is 1.5,", lambda: rlx.get_top_k_weights(1.5, ONES, Q)),
    ("top_k_fraction` is nan,", lambda: rlx.vmpo_loss(Q, Q, TEMPERATURE, [], top_k_fraction=np.float32(NAN))),
    ("sample_axis` is 0.5,", lambda: rlx.mpo_loss(Q, Q, TEMPERATURE, [], sample_axis=0.5)),
    ("max_valid_start_idx` is -1,", lambda: rlx.sample_start_indices(KEY, 1, 0, -1)),
    ("batch_size` is -1,", lambda: rlx.sample_start_indices(KEY, -1, 1, 2)),
    ("max_valid_start_idx` is '1',", lambda: rlx.extract_subsequences(ONES[:, None], jnp.array([[0]]), 1, "1")),
    ("tau_src` is [0.5 1.5],", lambda: rlx.quantile_regression_loss(Q[:2], np.array([0.5, 1.5]), Q)),
    ("eps` is -1,", lambda: rlx.signed_parabolic(Q, -1)),
    ("epsilon` is 0.0,", lambda: rlx.episodic_memory_intrinsic_rewards(Q[None], 1, 1.0, epsilon=0.0)),
    ("epsilon` is -1.0,", lambda: rlx.group_relative_advantages(Q, epsilon=-1.0)),
    ("max_similarity` is nan,", lambda: rlx.episodic_memory_intrinsic_rewards(Q[None], 1, 1.0, max_similarity=NAN)),
    ("sigma` is 0,", lambda: rlx.hl_gauss_pair(0.0, 1.0, 3, 0)),
])  # fmt: skip
def test_other_settings_out_of_range(named, call):
    with pytest.raises(rlx.OptionError, match=re.escape(f"argument `{named}")):
        call()


# Bins and atoms in order.

TX = rlx.SIGNED_HYPERBOLIC_PAIR
BINNED = {
    "twohot_pair": lambda *bins: rlx.twohot_pair(*bins),
    "transform_to_2hot": lambda *bins: rlx.transform_to_2hot(0.0, *bins),
    "transform_from_2hot": lambda *bins: rlx.transform_from_2hot(jnp.ones(bins[2]), *bins),
    "muzero_pair": lambda *bins: rlx.muzero_pair(*bins, TX),
    "unbiased_transform_pair": lambda *bins: rlx.unbiased_transform_pair(*bins, TX),
    "hl_gauss_pair": lambda *bins: rlx.hl_gauss_pair(*bins),
    "transform_to_hl_gauss": lambda *bins: rlx.transform_to_hl_gauss(0.0, *bins),
    "transform_from_hl_gauss": lambda *bins: rlx.transform_from_hl_gauss(jnp.ones(bins[2]), *bins),
    "symlog_twohot_pair": lambda *bins: rlx.symlog_twohot_pair(*bins),
    "symexp_twohot_pair": lambda *bins: rlx.symexp_twohot_pair(*bins),
}


@pytest.mark.parametrize("name", BINNED)
def test_ends_out_of_order_are_named(name):
    for low, high in ((1.0, 1.0), (1.0, -1.0), (np.float32(2), jnp.array(1.0))):
        with pytest.raises(
            rlx.OptionError, match=f"^{name}: argument `max_value` is .*, expected more than `min_value"
        ):
            BINNED[name](low, high, 3)
    for low, high in ((0.0, INF), (NAN, 1.0)):
        with pytest.raises(rlx.OptionError, match=f"^{name}: argument `m.._value` is .*, expected a finite number"):
            BINNED[name](low, high, 3)
    with pytest.raises(rlx.OptionError, match=f"^{name}: argument `num_bins` is 0"):
        BINNED[name](0.0, 1.0, 0)


def projected_by_hand(z_p, probs, z_q):
    """Mass by mass: between two different atoms in proportion to nearness, on equal ones in equal parts."""
    masses = dict.fromkeys(sorted(set(z_q)), 0.0)
    places = list(masses)
    for z, p in zip(z_p, probs, strict=True):
        z = min(max(z, places[0]), places[-1])
        low = max(place for place in places if place <= z)
        high = min(place for place in places if place >= z)
        share = 1.0 if low == high else (high - z) / (high - low)
        masses[low] += p * share
        masses[high] += p * (1 - share)
    return [masses[z] / z_q.count(z) for z in z_q]


@pytest.mark.parametrize("z_q", [[-1.0, 0.5, 0.75, 3.0], [0.0, 1.0, 4.0]])
def test_a_projection_splits_mass_between_the_nearest_atoms(z_q):
    z_p, probs = [0.0, 1.0, 0.5, 0.6, -9.0, 9.0], [0.1, 0.2, 0.3, 0.1, 0.25, 0.05]
    project = functools.partial(rlx.categorical_l2_project, probs=jnp.array(probs), z_q=jnp.array(z_q))
    result, slope = jax.jit(lambda z: (project(z), jax.jacobian(project)(z)))(jnp.array(z_p))
    np.testing.assert_allclose(result, projected_by_hand(z_p, probs, z_q), atol=1e-6)
    assert np.all(np.isfinite(slope))


def test_atoms_out_of_order_are_named_where_they_are_known():
    two, wrong = (jnp.array([0.0, 1.0]), jnp.array([0.5, 0.5])), np.array([1.0, 0.0, 0.5])
    logits = jnp.zeros(3)
    many = jnp.zeros([2, 3])
    for name, call in {
        "z_q": lambda z: rlx.categorical_l2_project(*two, z),
        "v_atoms_tm1": lambda z: rlx.categorical_td_learning(z, logits, 0.0, 1.0, z, logits),
        "q_atoms_tm1": lambda z: rlx.categorical_q_learning(z, many, 0, 0.0, 1.0, z, many),
        "q_atoms_tm1` ": lambda z: rlx.categorical_double_q_learning(z, many, 0, 0.0, 1.0, z, many, jnp.ones(2)),
    }.items():
        for atoms in (wrong, jnp.array(wrong), np.array([0.0, NAN, 1.0]), np.array([0.0, 1.0, 1.0])):
            with pytest.raises(rlx.OptionError, match=f"argument `{name.rstrip('` ')}` is .* expected .* increasing"):
                call(atoms)
        with pytest.raises(rlx.OptionError, match="increasing"):
            jax.jit(lambda x, call=call: call(wrong) + x)(1.0)
    assert jax.jit(lambda z: rlx.categorical_l2_project(*two, z))(jnp.array(wrong)).shape == (3,)


@pytest.mark.slow
def test_unbiased_bins_that_coincide_or_fall():
    """A transform that squeezes bins into one number shares its mass; one that turns them round is named."""
    step = rlx.TxPair(jnp.floor, jnp.floor)  # bins 0, 0, 1, 1, 2, 2 of 0, 0.5, 1, 1.5, 2, 2.5
    pair = rlx.unbiased_transform_pair(0.0, 2.5, 6, step)
    result = pair.apply(jnp.array([0.0, 0.5, 2.0, 9.0]))
    np.testing.assert_allclose(result.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(pair.apply_inv(result), [0.0, 0.5, 2.0, 2.0], atol=1e-6)
    with pytest.raises(rlx.OptionError, match=r"^unbiased_transform_pair: argument `tx` is .* keeps the bins in order"):
        rlx.unbiased_transform_pair(0.0, 1.0, 3, rlx.TxPair(lambda x: -x, lambda x: -x))
    with pytest.raises(rlx.OptionError, match="in order"):  # 0, 2, 1: none is below the first
        rlx.unbiased_transform_pair(-1.0, 1.0, 3, rlx.TxPair(jnp.abs, lambda x: jnp.where(x < 0, 2 + 2 * x, 2 - x)))
    half = rlx.unbiased_transform_pair(-300.0, 300.0, 601, rlx.IDENTITY_PAIR).apply(jnp.bfloat16(300))
    assert half.dtype == jnp.bfloat16 and float(half[0, -1]) == 1.0  # neighbours of 300 are 298 and 302 in bfloat16


# Policies as the `distribution` of operators.

POLICIES = {
    "softmax": (lambda: rlx.softmax(0.5, logits=Q), lambda: rlx.softmax(0.5), (Q,)),
    "clipped": (lambda: rlx.clipped_entropy_softmax(0.5, 0.9, logits=Q), lambda: rlx.softmax(0.5), (Q,)),
    "greedy": (lambda: rlx.greedy(Q), rlx.greedy, (Q,)),
    "epsilon": (lambda: rlx.epsilon_greedy(0.3, Q), lambda: rlx.epsilon_greedy(0.3), (Q,)),
    "gaussian": (lambda: rlx.gaussian_diagonal(0.5, Q), lambda: rlx.gaussian_diagonal(0.5), (Q,)),
    "squashed": (lambda: rlx.squashed_gaussian(mu=Q, sigma=Q, action_spec=SPEC), rlx.squashed_gaussian, (Q, Q, SPEC)),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_a_distribution(name):
    made, plain, parameters = POLICIES[name]
    policy, event = made(), Q.shape if name in ("gaussian", "squashed") else ()
    samples = policy.sample(seed=KEY, sample_shape=(4,))
    assert samples.shape == (4, *event) and policy.batch_shape == ()
    assert policy.sample(seed=7, sample_shape=2).shape == (2, *event)
    np.testing.assert_array_equal(policy.sample(seed=KEY), plain().sample(KEY, *parameters))
    np.testing.assert_array_equal(policy.log_prob(samples), plain().logprob(samples, *parameters))
    with pytest.raises(rlx.OptionError, match="argument `seed` is"):
        policy.sample(KEY, seed=KEY)
    with pytest.raises(rlx.OptionError, match=r"argument `(logits|preferences|mu)` is None"):
        plain().sample(seed=KEY)

    @jax.jit
    def loss(policy, key):
        targets = rlx.constant_policy_targets(policy, key, 4, 0.5)
        nothing = rlx.zero_policy_targets(policy, key, 4)
        return targets, rlx.sampled_policy_distillation_loss(policy, targets) + 0 * jnp.sum(nothing.weights)

    targets, value = loss(policy, KEY)
    np.testing.assert_allclose(targets.actions, samples, rtol=1e-6)
    np.testing.assert_allclose(value, -0.5 * np.mean(plain().logprob(samples, *parameters)), rtol=1e-5)


@pytest.mark.slow
def test_samples_of_a_shape_are_those_of_distrax():
    distrax = pytest.importorskip("distrax")
    logits = jnp.arange(6.0).reshape(2, 3)
    for ours, theirs in (
        (rlx.softmax(0.5, logits), distrax.Softmax(logits, 0.5)),
        (rlx.epsilon_greedy(0.3, logits), distrax.EpsilonGreedy(logits, 0.3)),
        (rlx.gaussian_diagonal(0.5, logits), distrax.MultivariateNormalDiag(logits, 0.5 * jnp.ones_like(logits))),
    ):
        samples = ours.sample(seed=KEY, sample_shape=(5,))
        np.testing.assert_allclose(samples, theirs.sample(seed=KEY, sample_shape=(5,)), rtol=1e-6)
        np.testing.assert_allclose(ours.log_prob(samples), jax.vmap(theirs.log_prob)(samples), rtol=1e-5)
        assert ours.batch_shape == theirs.batch_shape


# Advice that works when it is followed.


def calls_in(error):
    return [line.strip() for line in str(error).splitlines() if line.startswith("  ")]


def follow(text, named):
    return eval(text, {"jax": jax, "jnp": jnp, "rlx": rlx, **named})


def stacked(rows, axis):
    return jax.tree.map(lambda *xs: np.stack(xs, min(axis, np.ndim(xs[0]))), *rows)


def check_advice(name, axis):
    """Of a batch along `axis`, the advice contains a call that gives what a loop gives, and all of it can be run."""
    case = BY_NAME[name]
    rows = [cast(draw(case, seed), jnp.float32) for seed in range(2)]
    batch = stacked(rows, axis)
    settings = {
        key: getattr(rlx, value.name) if hasattr(value, "name") else value for key, value in case.settings.items()
    }
    try:
        getattr(rlx, name)(**batch, **settings)
    except rlx.RankError as error:
        calls = calls_in(error)
    else:
        return  # it takes any leading axes
    assert calls, name

    @jax.jit  # one program compiles faster than its operations one by one
    def followed_and_looped(batch, rows):
        results = [follow(call, {**batch, **settings}) for call in calls]
        return results, [getattr(rlx, name)(**row, **settings) for row in rows]

    results, loop = followed_and_looped(batch, rows)
    expected = stacked(loop, axis)
    shapes = jax.tree.map(np.shape, expected)
    assert any(jax.tree.map(np.shape, result) == shapes and close(result, expected) for result in results), calls


def close(result, expected):
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True)
    return all(np.allclose(x, y, rtol=1e-5, atol=1e-5) for x, y in pairs)


SAMPLED = ("discounted_returns", "q_learning", "vtrace_td_error_and_advantage", "policy_gradient_loss")


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", [n for n in SAMPLED if n in BY_NAME])
def test_the_advice_for_a_batch_gives_what_a_loop_gives(name, axis):
    check_advice(name, axis)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", [n for n in BY_NAME if n not in SAMPLED and not BY_NAME[n].free])
def test_the_advice_of_every_operator_gives_what_a_loop_gives(name, axis):
    check_advice(name, axis)


RNG = np.random.default_rng(0)
R, D, V = (jnp.asarray(RNG.uniform(size=(5, 2)), jnp.float32) for _ in range(3))  # [T, B]
QS, ACTIONS = jnp.asarray(RNG.normal(size=(5, 2, 3)), jnp.float32), jnp.asarray(RNG.integers(0, 3, size=(5, 2)))
CUT = jnp.asarray(RNG.uniform(size=(5, 2)) < 0.3)


@pytest.mark.parametrize("name, args, more", [
    ("discounted_returns", (R, D, V[-1]), {}),
    ("discounted_returns", (R, D, 0.5), {}),
    ("discounted_returns", (R, 0.9, V), {}),
    ("discounted_returns", ((R > 0.5).astype(int), 0.9, V), {}),
    ("discounted_returns", (R,), {"v_t": V, "discount_t": D}),
    ("lambda_returns", (R, D, V, 0.7), {}),
    ("lambda_returns", (R, D, V, jnp.float32(0.7)), {}),
    ("lambda_returns", (np.asarray(R), np.asarray(D), np.asarray(V)), {"stop_target_gradients": True}),
    ("lambda_returns", (R, D, V), {"truncation_t": CUT, "truncation_value_t": V}),
    ("n_step_bootstrapped_returns", (R, D, V), {"n": 2}),
    ("transformed_lambda_returns", (TX, R, D, V), {"lambda_": 0.5}),
    ("transformed_n_step_q_learning", (QS, ACTIONS, QS, ACTIONS, R, D, 2), {"tx_pair": TX}),
    ("q_lambda", (QS, ACTIONS, R, D, QS, 0.5, False), {}),
    ("td_lambda", (V, R, D, V, 0.5), {}),
    ("grpo_loss", (-R, -D, V[0]), {"epsilon": 0.1, "ref_log_probs_t": -V}),
])  # fmt: skip
def test_advice_for_batches_beside_numbers_defaults_and_keywords(name, args, more):
    """Time comes first here, so of several calls the last is meant."""
    names = list(inspect.signature(getattr(rlx, name)).parameters)
    named = dict(zip(names, args, strict=False)) | more
    with pytest.raises(rlx.RankError) as caught:
        getattr(rlx, name)(*args, **more)
    call = calls_in(caught.value)[-1]

    def of_one(b):
        def row(name, x):
            if np.ndim(x) == 0 and name == "discount_t":
                return np.full(5, x, np.float32)
            return x[:, b] if np.ndim(x) > 1 else x[b] if np.ndim(x) == 1 else x

        rows = {name: x if x is TX else row(name, x) for name, x in named.items()}
        return getattr(rlx, name)(*[rows.pop("tx_pair")] if args[0] is TX else (), **rows)

    result, rows = jax.jit(lambda: (follow(call, named), [of_one(b) for b in range(2)]))()
    assert_close(result, stacked(rows, 1), rtol=1e-6, atol=1e-6)


def test_advice_for_one_number_or_one_step():
    with pytest.raises(
        rlx.RankError, match=r"rlx\.discounted_returns\(r_t, jnp\.full_like\(r_t, 0\.9\), v_t\)"
    ) as caught:
        rlx.discounted_returns(R[:, 0], 0.9, V[:, 0])
    result = follow(calls_in(caught.value)[0], {"r_t": R[:, 0], "v_t": V[:, 0]})
    assert_close(result, rlx.discounted_returns(R[:, 0], jnp.full(5, 0.9), V[:, 0]), rtol=1e-6)
    whole = jnp.arange(5)
    with pytest.raises(rlx.RankError) as caught:
        rlx.discounted_returns(whole, 0.9, V[:, 0])
    result = follow(calls_in(caught.value)[0], {"r_t": whole, "v_t": V[:, 0]})  # not 0, which 0.9 is as an integer
    assert_close(result, rlx.discounted_returns(whole, jnp.full(5, 0.9), V[:, 0]), rtol=1e-6)
    with pytest.raises(rlx.RankError) as caught:
        rlx.policy_gradient_loss(Q, 1, 2.0, jnp.array(1.0))
    result = follow(calls_in(caught.value)[0], {"logits_t": Q, "w_t": jnp.array(1.0)})
    assert_close(result, -2 * jax.nn.log_softmax(Q)[1], rtol=1e-6)


def test_advice_under_transforms_for_keys_and_where_nothing_fits():
    with pytest.raises(rlx.RankError, match=r"rlx\.batched\(rlx\.td_learning\)\(v_tm1, r_t, 0\.9, v_t\)"):
        jax.jit(lambda x: rlx.td_learning(x, x, 0.9, x))(ONES)
    with pytest.raises(rlx.RankError) as caught:
        rlx.smoothed_target_action(KEY, QS[:, 0])
    keys = jax.random.split(KEY, 5)
    expected = np.stack([rlx.smoothed_target_action(key, a) for key, a in zip(keys, QS[:, 0], strict=True)])
    assert_close(follow(calls_in(caught.value)[0], {"key": KEY, "a_t": QS[:, 0]}), expected, rtol=1e-6)
    with pytest.raises(
        rlx.RankError, match=r"write rlx\.batched\(rlx\.td_lambda\) and give each argument a batch axis"
    ) as caught:
        rlx.td_lambda(ONES, ONES, ONES, ONES, 0.5, truncation_t=jnp.ones([2, 2]))
    assert not calls_in(caught.value)
    with pytest.raises(rlx.DTypeError, match=r"jnp\.asarray\(v_t, jnp\.float32\)"):
        rlx.td_learning(1.0, 1.0, 1.0, 2)


BATCH, COLUMNS, SQUARE = jnp.ones(3), jnp.ones([5, 2]), jnp.ones([3, 3])
ADVICE = {  # the call, with the lines that follow what is wrong, or None for the general ones
    "td_learning(v_tm1, r_t, 0.9, v_t)": (
        lambda: rlx.td_learning(BATCH, BATCH, 0.9, BATCH),
        ["For a batch, write:", "  rlx.batched(rlx.td_learning)(v_tm1, r_t, 0.9, v_t)"],
    ),
    "td_learning(v_tm1, r_t, 0.9, v_t=v_t)": (
        lambda: rlx.td_learning(BATCH, BATCH, 0.9, v_t=BATCH),
        ["For a batch, write:", "  rlx.batched(rlx.td_learning)(v_tm1, r_t, 0.9, v_t=v_t)"],
    ),
    "the axis of 1 of a critic": (
        lambda: jax.vmap(rlx.td_learning)(BATCH[:, None], BATCH, BATCH, v_t=BATCH[:, None]),
        ["Give it the shape that is expected:", "  rlx.td_learning(v_tm1[..., 0], r_t, discount_t, v_t=v_t[..., 0])"],
    ),
    "a critic's axis of 1, and a batch": (
        lambda: rlx.lambda_returns(COLUMNS, 0.9 * COLUMNS, COLUMNS[..., None]),
        ["If axis 0 is the batch, write:",
         "  rlx.batched(rlx.lambda_returns)(r_t, discount_t, v_t[..., 0])",
         "If axis 1 is the batch, write:",
         "  rlx.time_major(rlx.lambda_returns)(r_t, discount_t, v_t[..., 0])"],
    ),
    "a batch of 1": (
        lambda: rlx.td_learning(BATCH[:1], BATCH[:1], 0.9, BATCH[:1]),
        ["For a batch, write:", "  rlx.batched(rlx.td_learning)(v_tm1, r_t, 0.9, v_t)"],
    ),
    "two axes too many": (lambda: rlx.td_learning(SQUARE, SQUARE, 0.9, SQUARE), None),
    "either axis": (
        lambda: rlx.discounted_returns(SQUARE, SQUARE, BATCH),
        ["If axis 0 is the batch, write:",
         "  rlx.batched(rlx.discounted_returns)(r_t, discount_t, v_t)",
         "If axis 1 is the batch, write:",
         "  rlx.time_major(rlx.discounted_returns)(r_t, discount_t, v_t)"],
    ),
    "results without the other axis": (
        lambda: rlx.grpo_loss(COLUMNS, COLUMNS, 1.0, epsilon=INF),
        ["If axis 0 is the batch, write:",
         "  rlx.batched(rlx.grpo_loss)(log_probs_t, old_log_probs_t, 1.0, epsilon=epsilon)",
         "If axis 1 is the batch, write:",
         "  rlx.time_major(rlx.grpo_loss)(log_probs_t, old_log_probs_t, 1.0, epsilon=epsilon)"],
    ),
    "a number for each step": (
        lambda: rlx.discounted_returns(BATCH, 0.9, 0.5),
        ["Give it the shape that is expected:", "  rlx.discounted_returns(r_t, jnp.full_like(r_t, 0.9), 0.5)"],
    ),
    "a fraction beside whole numbers": (
        lambda: rlx.discounted_returns(np.arange(3), 0.9, 0.5),
        ["Give it the shape that is expected:", "  rlx.discounted_returns(r_t, jnp.full(r_t.shape, 0.9), 0.5)"],
    ),
    "an array of no axes beside others": (
        lambda: rlx.discounted_returns(np.float32(1), BATCH, 0.5),
        ["Give it the shape that is expected:",
         "  rlx.discounted_returns(jnp.full_like(discount_t, r_t), discount_t, 0.5)"],
    ),
    "numbers alone": (
        lambda: rlx.discounted_returns(1.0, 0.9, 0.5),
        ["Give it the shape that is expected:",
         "  rlx.discounted_returns(jnp.asarray(1.0)[None], jnp.asarray(0.9)[None], 0.5)"],
    ),
    "an axis too few": (
        lambda: rlx.policy_gradient_loss(BATCH, jnp.array([0]), BATCH[:1], BATCH[:1]),
        ["Give it the shape that is expected:", "  rlx.policy_gradient_loss(logits_t[None], a_t, adv_t, w_t)"],
    ),
    "a key, and a batch": (
        lambda: rlx.smoothed_target_action(KEY, COLUMNS),
        ["If axis 0 is the batch, write:",
         "  rlx.batched(rlx.smoothed_target_action)(key, a_t)",
         "If axis 1 is the batch, write:",
         "  rlx.time_major(rlx.smoothed_target_action)(key, a_t)"],
    ),
    "a key, and a number": (
        lambda: rlx.smoothed_target_action(KEY, 1.0),
        ["Give it the shape that is expected:", "  rlx.smoothed_target_action(key, jnp.asarray(1.0)[None])"],
    ),
    "settings that are whole numbers": (
        lambda: rlx.pixel_control_loss(
            jnp.zeros([2, 2, 2, 2, 1]), jnp.zeros([2, 1], int), jnp.zeros([2, 2, 1, 1, 3]), 0.9, 2),
        ["For a batch, write:",
         "  rlx.batched(rlx.pixel_control_loss)(observations, actions, action_values, 0.9, 2)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ADVICE)
def test_the_lines_of_advice(what):
    call, lines = ADVICE[what]
    with pytest.raises(rlx.RankError) as raised:
        call()
    _, *advice = str(raised.value).splitlines()
    assert advice == (lines or [
        "For a batch, write rlx.batched(rlx.td_learning) and give each argument a batch axis; "
        "for one sequence or step, index first."
    ])  # fmt: skip


# PopArt.


@pytest.mark.parametrize("values, indices", [
    ((3,), ()), ((), (3,)), ((4, 3), (3,)), ((4, 1), (3,)), ((2, 3), (2, 3)),
])  # fmt: skip
def test_popart_indices_broadcast(values, indices):
    rng = np.random.default_rng(3)
    shift, scale = rng.normal(size=4), rng.uniform(1, 2, size=4)
    state = rlx.PopArtState(jnp.asarray(shift, jnp.float32), jnp.asarray(scale, jnp.float32), jnp.ones(4))
    x, i = np.asarray(rng.normal(size=values), np.float32), np.asarray(rng.integers(0, 4, size=indices))
    with jax.numpy_rank_promotion("raise"):
        normalized, unnormalized, moved = jax.jit(
            lambda: (rlx.normalize(state, x, i), rlx.unnormalize(state, x, i), rlx.art(state, x, i, 0.1, 1e-3, 1e3))
        )()
    np.testing.assert_allclose(normalized, (x - shift[i]) / scale[i], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(unnormalized, x * scale[i] + shift[i], rtol=1e-5, atol=1e-6)
    expected = np.array(shift)
    for target, index in zip(*(a.ravel() for a in np.broadcast_arrays(x, i)), strict=True):
        expected[index] += 0.1 * (target - shift[index])
    np.testing.assert_allclose(moved.shift, expected, rtol=1e-5, atol=1e-6)


def test_popart_selects_by_indices_that_broadcast_and_names_those_that_do_not():
    state = rlx.PopArtState(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]), jnp.ones(2))
    inputs = jnp.arange(6.0).reshape(3, 2)
    for indices in (1, jnp.array([1]), jnp.array([1, 1, 1])):
        output = rlx.unnormalize_linear(state, inputs, jnp.asarray(indices))
        assert output.normalized.tolist() == [1.0, 3.0, 5.0] and output.unnormalized.tolist() == [3.0, 7.0, 11.0]
    for call in (rlx.unnormalize_linear, lambda s, x, i: rlx.normalize(s, x[:, 0], i)):
        with pytest.raises(rlx.ShapeError, match="argument `indices` has shape"):
            call(state, inputs, jnp.array([0, 1]))


def test_popart_with_settings_for_each_output():  # as in RLax
    initial_state, update = rlx.popart(2, np.float32([0.5, 0.25]), np.float32([0.1, 3.0]), np.float32([9.0, 9.0]))
    layer = {"w": jnp.ones([1, 2]), "b": jnp.zeros(2)}
    _, state = update(layer, initial_state(), jnp.array([2.0, 4.0]), jnp.array([0, 1]))
    np.testing.assert_allclose(state.shift, [1.0, 1.0])
    np.testing.assert_allclose(state.second_moment, [2.5, 4.75])
    np.testing.assert_allclose(state.scale, [1.5**0.5, 3.0], rtol=1e-6)  # √3.75 is below the bound
    with pytest.raises(
        rlx.ShapeError, match=r"art: argument `step_size` has shape \[3\], .* with N = 2 from `state.sh"
    ):
        rlx.art(rlx.PopArtState(*jnp.ones([3, 2])), 1.0, 0, np.full(3, 0.5, np.float32), 0.1, 9.0)


@pytest.mark.parametrize("threshold", [0.5, np.array([0.5]), np.full(3, 0.5)])
def test_a_threshold_of_ratios_may_be_one_number_in_an_array(threshold):  # as in RLax
    v, rho = jnp.zeros(3), jnp.array([1.0, 2.0, 0.25])
    errors = rlx.vtrace(v, v, Q, jnp.zeros(3), rho, clip_rho_threshold=threshold)
    np.testing.assert_allclose(errors, np.minimum(rho, 0.5) * Q)
    parts = rlx.vtrace_td_error_and_advantage(v, v, Q, jnp.zeros(3), rho, 1.0, threshold, threshold)
    np.testing.assert_allclose(parts.pg_advantage, np.minimum(rho, 0.5) * Q)


@pytest.mark.parametrize("dtype", [np.int8, np.int32])
def test_targets_of_no_output_change_no_statistics(dtype):  # as in RLax
    state = rlx.PopArtState(jnp.zeros(200), jnp.ones(200), jnp.ones(200))
    new = rlx.art(state, jnp.array([5.0, 3.0, 7.0]), jnp.array([-1, 2, -100], dtype), 0.5, 1e-3, 1e3)
    np.testing.assert_array_equal(new.shift, np.where(np.arange(200) == 2, 1.5, 0.0))
    np.testing.assert_array_equal(new.second_moment, np.where(np.arange(200) == 2, 5.0, 1.0))


def test_popart_without_a_step_size_changes_nothing():  # as RLax's
    initial_state, update = rlx.popart(1, None, 1e-3, 1e3)
    params, state = {"w": ONES[:, None], "b": ONES[:1]}, initial_state()
    assert update(params, state, Q, jnp.zeros(3, int)) == (params, state)


# The calls of RLax's four published programs.


def q_values(params, obs):
    return jnp.ravel(obs) @ params["w"] + params["b"]


def linear(seed, inputs=4, outputs=3):
    rng = np.random.default_rng(seed)
    return {"w": jnp.asarray(rng.normal(size=(inputs, outputs)), jnp.float32), "b": jnp.zeros(outputs)}


def both(program):
    """What a program returns with rlx, and with RLax where that is installed."""
    ours = program(rlx)
    try:
        import rlax
    except ImportError:
        return ours
    assert_close(ours, program(rlax), rtol=1e-5, atol=1e-6)
    return ours


OBS = jnp.asarray(np.random.default_rng(1).normal(size=(6, 2, 2)), jnp.float32)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_the_calls_of_online_q_learning():
    def program(lib):
        @jax.jit
        def act(params, key, obs):
            q = q_values(params, obs)
            return q, lib.epsilon_greedy(epsilon=0.01).sample(key, q), lib.greedy().sample(key, q)

        @jax.jit
        def learn(params, a_tm1, r_t, discount_t, q_t):
            def loss(params):
                return lib.l2_loss(lib.q_learning(q_values(params, OBS[0]), a_tm1, r_t, discount_t, q_t))

            return jax.grad(loss)(params)

        _, a_tm1, _ = act(linear(0), KEY, OBS[0])
        q_t, a_t, greedy = act(linear(0), KEY, OBS[1])
        return a_t, greedy, learn(linear(0), a_tm1, 1.0, 0.99 * 1.0, q_t)

    both(program)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_the_calls_of_online_q_lambda():
    rng = np.random.default_rng(2)
    reward, actions = np.asarray(rng.normal(size=6)), np.asarray(rng.integers(0, 3, size=6))
    discount, step_type = np.array([0.0, 1.0, 0.0, 0.0, 1.0, 1.0]), np.array([0, 1, 2, 0, 1, 1])

    def program(lib):
        def loss(params):
            q = jax.vmap(q_values, in_axes=(None, 0))(params, OBS)
            mask = jnp.not_equal(step_type, 2)
            errors = lib.q_lambda(q[:-1], actions[1:], reward[1:], discount[1:] * mask[1:], q[1:], lambda_=0.9)
            return jnp.sum(lib.l2_loss(mask[:-1] * errors)) / jnp.sum(mask[:-1])

        return jax.jit(jax.grad(loss))(linear(0))

    both(program)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_the_calls_of_pop_art():
    def program(lib):
        initial_state, update = lib.popart(num_outputs=1, step_size=3e-3, scale_lb=1e-5, scale_ub=1e5)

        def loss(params, state, a_tm1, r_t, discount_t):
            indices = jnp.array(0)
            q_t = lib.unnormalize(state, q_values(params, OBS[1]), indices)
            target = r_t + discount_t * jnp.max(q_t)
            params, state = update(params=params, state=state, targets=target, indices=indices)
            normalized = jax.lax.stop_gradient(lib.normalize(state, target, indices))
            return lib.l2_loss(normalized - q_values(params, OBS[0])[a_tm1]), state

        return jax.jit(jax.grad(loss, has_aux=True))(linear(0), initial_state(), 1, 10000.0, 1.0)

    both(program)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_the_calls_of_simple_dqn():
    """It counts in float32, and its period is a float."""

    def program(lib):
        @jax.jit
        def learn(online, target, count, a_tm1, r_t, discount_t):
            target = lib.periodic_update(online, target, count, 50.0)

            def loss(online):
                q_tm1, q_t_select = (jax.vmap(q_values, (None, 0))(online, obs) for obs in (OBS[:3], OBS[3:]))
                q_t = jax.vmap(q_values, (None, 0))(target, OBS[3:])
                errors = jax.vmap(lib.double_q_learning)(q_tm1, a_tm1, r_t, discount_t, q_t, q_t_select)
                return jnp.mean(lib.l2_loss(errors))

            return target, jax.grad(loss)(online)

        def act(count, key):
            epsilon = 1.0 - 0.99 * jnp.minimum(count / 1000, 1)
            return lib.epsilon_greedy(epsilon).sample(key, Q)

        data = jnp.array([0, 2, 1]), np.array([1.0, 0.0, -1.0]), np.array([1.0, 0.0, 1.0]) * 0.99
        updates = [learn(linear(0), linear(1), jnp.float32(count), *data) for count in (49, 50)]
        assert not np.array_equal(updates[0][0]["w"], linear(0)["w"])
        assert np.array_equal(updates[1][0]["w"], linear(0)["w"])
        return updates, jax.jit(act)(jnp.float32(500), KEY)

    both(program)


# What can be pickled.

MADE = {
    "twohot_pair": lambda: rlx.twohot_pair(-1.0, 1.0, 3),
    "muzero_pair": lambda: rlx.muzero_pair(-5.0, 5.0, 11, TX),
    "unbiased_transform_pair": lambda: rlx.unbiased_transform_pair(-5.0, 5.0, 11, TX),
    "hl_gauss_pair": lambda: rlx.hl_gauss_pair(-5.0, 5.0, 11, 0.5),
    "symlog_twohot_pair": lambda: rlx.symlog_twohot_pair(num_bins=11),
    "symexp_twohot_pair": lambda: rlx.symexp_twohot_pair(num_bins=11),
    "composed": lambda: rlx.compose_tx(TX, rlx.compose_tx(rlx.IDENTITY_PAIR, rlx.hl_gauss_pair(-5.0, 5.0, 3))),
    **{name: lambda name=name: getattr(rlx, name) for name in dir(rlx) if name.endswith("_PAIR")},
}
WAYS = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "deepcopy": copy.deepcopy, "copy": copy.copy}


def ways():
    yield from WAYS.values()
    try:
        import cloudpickle
    except ImportError:
        return
    yield lambda x: pickle.loads(cloudpickle.dumps(x))


@pytest.mark.parametrize("name", MADE)
def test_pairs_can_be_pickled_and_copied(name):
    pair = MADE[name]()
    pairs = [pair, *(way(pair) for way in ways())]
    assert {type(p) for p in pairs} == {rlx.TxPair}
    there = jax.jit(lambda x: [p.apply(x) for p in pairs])(jnp.array([0.3, -0.7]))
    back = jax.jit(lambda x: [p.apply_inv(x) for p in pairs])(there[0])
    for results in (there, back):
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("name", POLICIES)
def test_policies_can_be_pickled_and_copied(name):
    made, plain, parameters = POLICIES[name]

    @jax.jit
    def samples(key):
        given = [way(plain()).sample(key, *parameters) for way in ways()]
        return [made().sample(seed=key), *(way(made()).sample(seed=key) for way in ways()), *given]

    first, *others = samples(KEY)
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.slow
def test_records_and_pairs_of_functions_can_be_pickled_and_copied():
    moments, state = rlx.create_ema(0.9)[1](Q, rlx.create_ema(0.9)[0](Q))
    memory = rlx.episodic_memory_intrinsic_rewards(Q[None], 1, 1.0, max_memory_size=2)[1]
    records = (
        moments, state, memory, rlx.knn_query(Q[None], Q[None], 1), rlx.PolicyTarget(Q, ONES), STATE, TEMPERATURE,
        rlx.unnormalize_linear(STATE, Q[:2], 0), rlx.mpo_loss(Q, Q, TEMPERATURE, [])[1],
        rlx.vtrace_td_error_and_advantage(Q, Q, Q, ONES, ONES),
    )  # fmt: skip
    functions = (rlx.create_ema(0.9), rlx.popart(2, 0.5, 1e-3, 1e3))
    for way in ways():
        for record in records:
            again = way(record)
            assert type(again) is type(record)
            assert_close(again, record)
        ema, popart = (way(pair) for pair in functions)
        assert_close(ema[1](Q, ema[0](Q)), (moments, state))
        params = {"w": jnp.ones([1, 2]), "b": jnp.ones(2)}
        given = params, popart[0](), Q, jnp.array([0, 1, 1])
        assert_close(popart[1](*given), functions[1][1](*given))
    assert way(rlx.AllSum())(Q) == 6


@pytest.mark.parametrize("number", [float, np.float32, np.float64])
def test_bounds_in_the_wrong_order_are_named_where_jax_is_tracing(number):
    low, high = number(-1), number(1)
    with pytest.raises(rlx.OptionError, match="clip_gradient: argument `gradient_max`"):
        jax.jit(lambda x: rlx.clip_gradient(x, high, low))(1.0)
    with pytest.raises(rlx.OptionError, match="transform_to_2hot: argument `max_value`"):
        jax.jit(lambda x: rlx.transform_to_2hot(x, high, low, 3))(1.0)


def test_a_number_or_a_sequence_is_asked_for_in_words():
    """RLax's text, which programs written for it may look for."""
    with pytest.raises(rlx.RankError, match="discount_factor must be a scalar or a tensor of rank 1"):
        rlx.pixel_control_loss(np.ones([3, 1, 1, 1]), np.zeros(2, int), np.ones([3, 1, 1, 1]), np.ones([2, 1]), 1)


VALUES_BY_THEMSELVES = {  # returns and advantages: who trains on one of them stops its gradient, or not
    *("discounted_returns", "lambda_returns", "n_step_bootstrapped_returns", "upgo_returns"),
    *("general_off_policy_returns_from_action_values", "general_off_policy_returns_from_q_and_v"),
    *("transformed_general_off_policy_returns_from_action_values", "transformed_lambda_returns"),
    *("transformed_n_step_returns", "truncated_generalized_advantage_estimation", "importance_corrected_td_errors"),
    *("group_relative_advantages", "leave_one_out_advantages"),
}


def test_targets_are_constants_by_default_in_all_losses_and_errors():
    functions = {name: f for name in dir(rlx) if callable(f := getattr(rlx, name)) and not inspect.isclass(f)}
    signatures = {name: inspect.signature(f).parameters for name, f in functions.items()}
    flag = "stop_target_gradients"
    defaults = {name: parameters[flag].default for name, parameters in signatures.items() if flag in parameters}
    assert len(defaults) > 70
    assert {name for name, default in defaults.items() if default is not True} == VALUES_BY_THEMSELVES
    assert {defaults[name] for name in VALUES_BY_THEMSELVES} == {False}


def test_what_transforms_values_takes_them_by_name_too():
    build = rlx.transform_values(rlx.lambda_returns, 2)
    pair = rlx.TxPair(lambda x: 2 * x, lambda x: x / 2)
    half = np.float32([0.5, 0.5])
    by_name = build(pair, ONES[:2], half, v_t=np.float32([4.0, 8.0]), lambda_=0.5)
    # Of values 2 and 4: 1 + ½ 4 = 3 at the end, 1 + ½ (½ 2 + ½ 3) = 2.25 before it; doubled.
    assert by_name.tolist() == build(pair, ONES[:2], half, np.float32([4.0, 8.0]), 0.5).tolist() == [4.5, 6.0]


def test_a_memory_of_other_embeddings_is_named():
    state = rlx.IntrinsicRewardState(jnp.zeros([4, 2]), 0, 0.0, 0)
    with pytest.raises(ValueError, match=r"`intrinsic_reward_state.memory` has shape \[4, 2\], expected .* with D = 3"):
        rlx.episodic_memory_intrinsic_rewards(Q[None], 1, 1.0, state)


@pytest.mark.slow
def test_one_start_and_one_sequence():
    starts = rlx.sample_start_indices(KEY, 1, 1, 0)
    assert starts.tolist() == [[0]]
    assert rlx.extract_subsequences(jnp.arange(3)[:, None], starts, 2, 0).tolist() == [[[0]], [[1]]]
    replay = rlx.replay.sequences(4, 2)
    state = replay.add_batch(replay.init(jnp.zeros([1])), jnp.zeros([2, 1]))
    assert replay.can_sample(state) and not replay.can_sample(state, 2)
