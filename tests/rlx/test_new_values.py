"""Values and policies beyond RLax's: the equalities that tie them to what is known, and their edges."""

import functools
import itertools

import beyond_rlax_oracles as oracles
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.unoptimised

same = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)  # float32


def equalities(body):
    """A test of the pairs (result, expected) that `body` returns, all compiled as one program."""

    @functools.wraps(body)
    def test():
        for i, (result, expected) in enumerate(jax.jit(body)()):
            same(result, expected, err_msg=f"pair {i}")

    return test


def array(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def value_and_slope(function, x):
    """What two functions that are tied share: the value, and the gradient of its entries' sum of cosines."""
    return function(x), jax.grad(lambda x: jnp.sum(jnp.cos(function(x))))(x)


def tied(one, other, x):
    return list(zip(value_and_slope(one, x), value_and_slope(other, x), strict=True))


# Values.


@equalities
def test_munchausen_without_bonus_and_temperature_is_q_learning():
    q_tm1, q_t, target = array(0, 4), array(1, 4), array(2, 4)
    soft = functools.partial(rlx.munchausen_q_learning, q_tm1, 2, 0.3, 0.9, q_t, target, munchausen_scale=0.0)
    # The bonus is held at its bound for an action that the target policy would hardly take.
    clipped = rlx.munchausen_q_learning(q_tm1, 2, 0.3, 0.0, q_t, jnp.array([0.0, 0.0, -900.0, 0.0]))
    return [
        (soft(temperature=1e-4), rlx.q_learning(q_tm1, 2, 0.3, 0.9, q_t)),
        (soft(temperature=0.5), 0.3 + 0.9 * 0.5 * jax.nn.logsumexp(q_t / 0.5) - q_tm1[2]),  # soft Q-learning
        (clipped, 0.3 - 0.9 - q_tm1[2]),
        *tied(
            lambda q: rlx.munchausen_q_learning(q_tm1, 2, 0.3, 0.9, q, target, 0.5, 0.0, -1.0, False),
            lambda q: 0.3 + 0.9 * 0.5 * jax.nn.logsumexp(q / 0.5) - q_tm1[2],
            q_t,
        ),
    ]


def test_munchausen_leaves_out_actions_that_do_not_exist():
    q_t = jnp.array([1.0, -jnp.inf, 0.5])
    q_tm1 = jnp.array([0.0, -jnp.inf, 0.2])
    run = jax.jit(
        jax.value_and_grad(rlx.munchausen_q_learning, argnums=(0, 4)), static_argnames="stop_target_gradients"
    )
    error, gradients = run(q_tm1, 0, 1.0, 0.9, q_t, q_tm1, stop_target_gradients=False)
    kept = jnp.array([0, 2])
    same(error, rlx.munchausen_q_learning(q_tm1[kept], 0, 1.0, 0.9, q_t[kept], q_tm1[kept]))
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_munchausen_of_large_values_in_half_precision():
    """q / τ overflows, and the policy is greedy: the error is r + α l₀ + γ max q - q[a]."""
    q = jnp.array([3000.0, 2000.0, -3000.0], jnp.float16)
    found, slope = jax.value_and_grad(rlx.munchausen_q_learning, 4)(q, 1, 8.0, 0.5, q, -q, stop_target_gradients=False)
    np.testing.assert_allclose(found, 8 - 0.9 + 1500 - 2000, rtol=1e-3)
    np.testing.assert_allclose(slope, [0.5, 0, 0], atol=1e-3)


@equalities
def test_iqn_is_quantile_q_learning_divided_by_kappa():
    arguments = array(3, 4, 3), jnp.array([0.1, 0.3, 0.6, 0.9]), 1, 0.5, 0.9, array(4, 6, 3), array(5, 2, 3)
    iqn, quantile = (
        functools.partial(f, *arguments) for f in (rlx.implicit_quantile_q_learning, rlx.quantile_q_learning)
    )
    return [
        (iqn(), quantile(huber_param=1.0)),
        (iqn(huber_param=0.5), quantile(huber_param=0.5) / 0.5),
        (iqn(huber_param=0.0), quantile(huber_param=0.0)),
        (iqn(huber_param=1e-6), quantile(huber_param=0.0)),
    ]


@equalities
def test_one_median_is_half_the_absolute_error_of_q_learning():
    """And with κ, half the Huber loss of it over κ; N equal quantiles at τ are N of them."""
    q_tm1, q_t, median = array(40, 3), array(41, 3), jnp.array([0.5])

    def iqn(q, kappa):
        return rlx.implicit_quantile_q_learning(q[None], median, 1, 0.5, 0.9, q_t[None], q_t[None], kappa)

    def error(q):
        return rlx.q_learning(q, 1, 0.5, 0.9, q_t)

    return [
        *tied(lambda q: iqn(q, 0.0), lambda q: 0.5 * jnp.abs(error(q)), q_tm1),
        *tied(lambda q: iqn(q, 0.3), lambda q: 0.5 * rlx.huber_loss(error(q), 0.3) / 0.3, q_tm1),
    ]


@equalities
def test_the_conservative_penalty_is_the_likelihood_of_a_softmax_and_both_forms_agree():
    q, uniform = array(6, 5), jnp.full(5, -jnp.log(5.0))
    return [
        (rlx.conservative_q_loss(q, 3), -jax.nn.log_softmax(q)[3]),
        (jax.grad(rlx.conservative_q_loss)(q, 3), jax.nn.softmax(q) - jax.nn.one_hot(3, 5)),
        (rlx.sampled_conservative_q_loss(q, uniform, q[3]), rlx.conservative_q_loss(q, 3)),
        (rlx.conservative_q_loss(jnp.array([900.0, -900.0]), 1), 1800.0),
    ]


@equalities
def test_the_expectile_of_one_half_is_l2_and_others_rest_at_the_expectile():
    def loss(v, tau):
        return rlx.expectile_value_loss(v, 0.0, tau) + rlx.expectile_value_loss(v, 1.0, tau)

    halves = [
        (rlx.expectile_value_loss(v, q, expectile=0.5), rlx.l2_loss(v, q))
        for v, q in itertools.product((0.3, -1.2), (0.9, -2.0))
    ]
    return halves + [(jax.grad(loss)(tau, tau), 0.0) for tau in (0.1, 0.7, 0.99)]  # of 0 and 1 the τ-expectile is τ


@equalities
def test_twin_critics_and_soft_critics_reduce_to_td():
    q_tm1, q_t = array(7, 2), array(8, 2)
    errors = rlx.clipped_double_q_learning(q_tm1, 0.2, 0.9, q_t)
    each = [jax.vmap(rlx.td_learning, in_axes=(0, None, None, None))(q_tm1, 0.2, 0.9, v) for v in (q_t[0], q_t[1])]
    return [
        (rlx.clipped_double_q_learning(q_tm1[:1], 0.2, 0.9, q_t[:1]), each[0][:1]),
        (errors, jnp.minimum(*each)),
        (rlx.sac_critic_loss(q_tm1, 0.2, 0.9, q_t, -1.5, 0.0), 0.5 * jnp.sum(errors**2)),
        # Two critics that are equal are one.
        *tied(
            lambda q: rlx.clipped_double_q_learning(jnp.stack([q, q]), 0.2, 0.9, jnp.stack([q, q]), False),
            lambda q: jnp.full(2, rlx.td_learning(q, 0.2, 0.9, q, False)),
            q_tm1[0],
        ),
        *tied(
            lambda q: rlx.sac_critic_loss(jnp.stack([q, q]), 0.2, 0.9, q_t, -1.5, 0.4),
            lambda q: 2 * rlx.l2_loss(rlx.td_learning(q, 0.2, 0.9, jnp.min(q_t) + 0.4 * 1.5)),
            q_tm1[0],
        ),
        *tied(lambda q: rlx.sac_actor_loss(q, -1.5, 0.0), lambda q: -jnp.min(q), q_t),
    ]


def test_the_temperature_rises_while_the_entropy_is_too_low():
    gradient = jax.grad(rlx.sac_temperature_loss)
    assert float(gradient(0.5, log_prob_t=-1.0, target_entropy=2.0)) == -1.0  # descent raises it
    assert float(gradient(0.5, log_prob_t=-3.0, target_entropy=2.0)) == 1.0


def test_target_smoothing_is_clipped_noise():
    keys = jax.random.split(jax.random.key(0), 2000)
    a_t = jnp.array([0.0, 0.9])
    samples = np.asarray(jax.jit(jax.vmap(rlx.smoothed_target_action, in_axes=(0, None)))(keys, a_t))
    assert np.all(np.abs(samples[:, 0]) <= 0.5) and np.any(np.abs(samples[:, 0]) == 0.5)
    assert np.max(samples[:, 1]) == 1.0
    # Four standard errors of 2000 samples of standard deviation 0.2.
    np.testing.assert_allclose(samples[:, 0].mean(), 0, atol=4 * 0.2 / np.sqrt(2000))
    np.testing.assert_allclose(samples[:, 0].std(), 0.2, atol=4 * 0.2 / np.sqrt(4000))
    raw = jax.random.PRNGKey(0)
    for dtype in (jnp.bfloat16, jnp.float16):
        assert jax.eval_shape(rlx.smoothed_target_action, raw, a_t.astype(dtype)).dtype == dtype
    bounds = jax.jit(rlx.smoothed_target_action)(raw, a_t, 0.0, 0.5, jnp.array([0.5, -1]), jnp.array([1.0, 0.25]))
    same(bounds, [0.5, 0.25])
    with pytest.raises(rlx.RankError, match="argument `a_t` has rank 2"):
        rlx.smoothed_target_action(raw, a_t[None])


@equalities
def test_pqn_is_q_lambda_of_one_network_q_learning_for_lambda_zero_and_a_return_for_one():
    q, a_tm1, r_t, discount_t = (
        array(9, 6, 3),
        jnp.array([0, 2, 1, 1, 0]),
        array(10, 5),
        jnp.array([0.9, 0.9, 0.0, 0.9, 0.9]),
    )
    errors = rlx.pqn_q_lambda(q, a_tm1, r_t, discount_t, 0.7)
    one_step = jax.vmap(rlx.q_learning)(q[:-1], a_tm1, r_t, discount_t, q[1:])
    gradient = jax.grad(lambda q: jnp.sum(rlx.l2_loss(rlx.pqn_q_lambda(q, a_tm1, r_t, discount_t, 0.7))))(q)
    return [
        (errors, rlx.q_lambda(q[:-1], a_tm1, r_t, discount_t, q[1:], 0.7)),
        (rlx.pqn_q_lambda(q, a_tm1, r_t, discount_t, 0.0), one_step),
        # λ = 1 is the discounted return, which bootstraps from the last state alone.
        *tied(
            lambda q: rlx.pqn_q_lambda(q, a_tm1, r_t, discount_t, 1.0, False),
            lambda q: rlx.discounted_returns(r_t, discount_t, jnp.max(q[-1])) - q[jnp.arange(5), a_tm1],
            q,
        ),
        # The targets are constants, though they come from the network that learns.
        (gradient, jnp.zeros([6, 3]).at[jnp.arange(5), a_tm1].set(-errors)),
    ]


@equalities
def test_upgo_follows_good_news_only():
    ones = jnp.ones(4)
    rising, falling = jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([4.0, 3.0, 2.0, 1.0])
    return [
        (rlx.upgo_returns(0 * ones, ones, rising), rlx.discounted_returns(0 * ones, ones, rising)),
        (rlx.upgo_returns(0 * ones, ones, falling), falling),
        *tied(
            lambda v: rlx.upgo_returns(0 * ones, 0.9 * ones, v),
            lambda v: rlx.lambda_returns(0 * ones, 0.9 * ones, v, jnp.array([1.0, 0.0, 1.0, 0.0])),
            jnp.array([1.0, 2.0, 1.5, 3.0]),
        ),
    ]


@equalities
def test_goals_are_many_problems_at_once():
    q_tm1, q_t, r_t, discount_t = array(13, 5, 3), array(14, 5, 3), array(15, 5), jnp.linspace(0, 1, 5)
    each = jax.vmap(rlx.q_learning, in_axes=(0, None, 0, 0, 0))(q_tm1, 2, r_t, discount_t, q_t)
    values = jax.vmap(rlx.td_learning)(q_tm1[:, 0], r_t, discount_t, q_t[:, 0])
    return [
        (rlx.uvfa_q_learning(q_tm1, 2, r_t, discount_t, q_t), each),
        (rlx.uvfa_td_learning(q_tm1[:, 0], r_t, discount_t, q_t[:, 0]), values),
        (rlx.uvfa_q_learning(q_tm1, 2, r_t, 0.9, q_t), rlx.uvfa_q_learning(q_tm1, 2, r_t, jnp.full(5, 0.9), q_t)),
    ]


@equalities
def test_successor_features_times_the_task_are_q_values():
    psi_tm1, psi_t, phi_t, w = array(16, 3, 4), array(17, 3, 4), array(18, 4), array(19, 4)
    errors = rlx.successor_feature_q_learning(psi_tm1, 1, phi_t, 0.9, psi_t, w)
    improved = rlx.generalized_policy_improvement(jnp.stack([psi_tm1, psi_t]), w)
    return [
        (errors @ w, rlx.q_learning(psi_tm1 @ w, 1, phi_t @ w, 0.9, psi_t @ w)),
        (improved, jnp.maximum(psi_tm1 @ w, psi_t @ w)),
    ]


# Values as classes.


def test_hl_gauss_equals_the_integral_of_its_gaussian_and_leads_back():
    bins = {"min_value": -4.0, "max_value": 6.0, "num_bins": 10}
    x = np.array([[-4.0, -0.3, 0.5], [1.0, 5.9, 6.0]])
    probs = rlx.transform_to_hl_gauss(jnp.asarray(x, jnp.float32), **bins, sigma=0.8)
    assert probs.shape == (2, 3, 10)
    same(probs, [[oracles.hl_gauss(value, -4.0, 6.0, 10, 0.8) for value in row] for row in x])
    same(jnp.sum(probs, -1), 1)
    pair = rlx.hl_gauss_pair(**bins)
    inside = jnp.linspace(-1.0, 3.0, 17)  # four widths of the Gaussian from the ends
    np.testing.assert_allclose(pair.apply_inv(pair.apply(inside)), inside, atol=1e-3)
    narrow = rlx.transform_to_hl_gauss(0.5, **bins, sigma=1e-3)
    assert int(jnp.argmax(narrow)) == 4 and float(narrow[4]) == 1.0


def test_hl_gauss_outside_its_bins_is_that_of_the_end():
    for dtype in (jnp.float32, jnp.bfloat16):
        pair = rlx.hl_gauss_pair(-1.0, 1.0, 5)
        far = pair.apply(jnp.array([-1e6, 1e6], dtype))
        assert far.dtype == dtype and np.all(np.isfinite(far))
        np.testing.assert_array_equal(far, pair.apply(jnp.array([-1.0, 1.0], dtype)))
    assert pair.apply(3).shape == (5,)  # an integer is a value too


@pytest.mark.parametrize("squash_first", [True, False], ids=["symlog", "symexp"])
def test_two_hot_pairs_of_dreamer(squash_first):
    settings = {"min_value": -3.0, "max_value": 3.0, "num_bins": 7}
    pair = (rlx.symlog_twohot_pair if squash_first else rlx.symexp_twohot_pair)(**settings)
    positions = np.linspace(-3.0, 3.0, 7)
    bins = positions if squash_first else [oracles.symexp(b) for b in positions]
    values = [-30.0, -2.0, 0.0, 0.4, 7.5, 1.0]
    probs, back = jax.jit(lambda x: (pair.apply(x), pair.apply_inv(pair.apply(x))))(jnp.array(values))
    expected = [oracles.two_hot(oracles.symlog(x) if squash_first else x, bins) for x in values]
    # 1e-5: the guard of the two-hot encoding, 1e-5 over the width of a bin.
    np.testing.assert_allclose(probs, expected, atol=1.1e-5 if squash_first else 2e-6)
    end = oracles.symexp(3.0)
    np.testing.assert_allclose(back, np.clip(values, -end, end), rtol=2e-4, atol=1e-4)


@equalities
def test_classes_of_two_bins_are_categorical_td_learning_of_a_certain_target():
    # Wide bins: RLax's guard of the two-hot encoding, 1e-5 over the width of a bin, does not show.
    atoms, logits = jnp.linspace(-2e3, 2e3, 5), array(42, 5)
    pair = rlx.twohot_pair(-2e3, 2e3, 5)
    return [
        pair_of
        for target in (250.0, -1000.0, 5000.0)
        for pair_of in tied(
            lambda x: rlx.classification_value_loss(x, target, pair),  # noqa: B023
            lambda x: rlx.categorical_td_learning(atoms, x, target, 0.0, jnp.zeros(1), jnp.zeros(1)),  # noqa: B023
            logits,
        )
    ]


def test_symexp_bins_average_values_and_symlog_bins_average_their_logarithms():
    x = jnp.array([0.0, 100.0])
    for pair, mean in ((rlx.symexp_twohot_pair(), 50.0), (rlx.symlog_twohot_pair(), np.sqrt(101.0) - 1)):
        average = jax.jit(lambda x: pair.apply_inv(jnp.mean(pair.apply(x), axis=0)))(x)  # noqa: B023
        np.testing.assert_allclose(average, mean, rtol=1e-3)


@pytest.mark.parametrize("num_bins", [254, 255])
def test_a_uniform_prediction_over_symexp_bins_is_exactly_zero(num_bins):
    uniform = jnp.full([2, num_bins], 1 / num_bins)
    assert rlx.symexp_twohot_pair(num_bins=num_bins).apply_inv(uniform).tolist() == [0.0, 0.0]
    centered = rlx.transform_from_hl_gauss(uniform, -1e6, 1e6, num_bins)
    assert centered.tolist() == [0.0, 0.0]


@pytest.mark.slow
def test_classification_learns_the_value():
    pair, target = rlx.symexp_twohot_pair(-5.0, 5.0, 21), 12.5
    step = jax.jit(jax.grad(lambda logits: rlx.classification_value_loss(logits, target, pair)))
    logits = jnp.zeros(21)
    for _ in range(300):
        logits = logits - 2.0 * step(logits)
    np.testing.assert_allclose(pair.apply_inv(jax.nn.softmax(logits)), target, rtol=0.02)
    same(step(jnp.zeros(21)), 1 / 21 - pair.apply(target))


def test_settings_and_pairs_are_checked():
    pair = rlx.hl_gauss_pair(-1.0, 1.0, 4)
    wrong = r"argument `tx_pair` has shape \[4\], expected shape \[K\] with K = 3"
    with pytest.raises(rlx.ShapeError, match=f"classification_value_loss: {wrong}"):
        rlx.classification_value_loss(jnp.zeros(3), 0.0, pair)
    with pytest.raises(rlx.ShapeError, match=f"classification_q_learning: {wrong}"):
        rlx.classification_q_learning(jnp.zeros([2, 3]), 0, 0.0, 0.9, jnp.zeros([2, 3]), pair)
    with pytest.raises(rlx.OptionError, match="argument `num_bins` is 0"):
        rlx.transform_to_hl_gauss(0.0, -1.0, 1.0, 0)
    with pytest.raises(rlx.OptionError, match=r"argument `max_value` is -1\.0"):
        rlx.transform_to_hl_gauss(0.0, 1.0, -1.0, 4)
    with pytest.raises(rlx.OptionError, match="argument `num_bins` is 1"):
        rlx.symexp_twohot_pair(num_bins=1)


# Policies.


@equalities
def test_a_wide_clip_of_values_is_no_clip():
    v, old, target = array(20, 8), array(21, 8), array(22, 8)
    gradient = jax.grad(rlx.clipped_value_loss)(jnp.array([1.0, -1.0]), jnp.zeros(2), jnp.full(2, 2.0), 0.5)
    return [
        (rlx.clipped_value_loss(v, old, target, 1e6), jnp.mean(rlx.l2_loss(v, target))),
        # A value that has moved further than ε towards its target does not learn; one that moved away does.
        (gradient, jnp.array([0.0, -1.5])),
    ]


@equalities
def test_the_penalty_adapts_by_the_table_of_the_paper():
    table = ((0.019, 1.5), (0.021, 3.0), (0.029, 3.0), (0.044, 3.0), (0.046, 6.0))
    ratio, adv = jnp.exp(array(23, 6)), array(24, 6)
    # A penalised surrogate without penalty is the surrogate that PPO clips.
    surrogates = tied(
        lambda x: rlx.kl_penalty_pg_loss(x, adv, jnp.ones(6), 0.0),
        lambda x: rlx.clipped_surrogate_pg_loss(x, adv, 1e6),
        ratio,
    )
    return [(rlx.adaptive_kl_weight(3.0, kl, 0.03), expected) for kl, expected in table] + surrogates


@equalities
def test_advantage_weighting_at_its_limits():
    log_probs, adv = -jnp.abs(array(25, 6)), array(26, 6)
    loss = functools.partial(rlx.advantage_weighted_loss, temperature=0.1, stop_target_gradients=False)
    value, gradient = jax.value_and_grad(loss, argnums=(0, 1))(log_probs, jnp.full(6, 1e4))
    impossible = jnp.array([-jnp.inf, -1.0])  # an action that the policy cannot take, and whose weight underflows
    return [
        (rlx.advantage_weighted_loss(log_probs, adv, temperature=1e9), -jnp.mean(log_probs)),  # behavioural cloning
        (value, -20 * jnp.mean(log_probs)),
        (gradient[0], jnp.full(6, -20 / 6)),
        (gradient[1], jnp.zeros(6)),
        (rlx.advantage_weighted_loss(impossible, jnp.array([-1e9, 0.0])), 0.5),
    ]


@equalities
def test_cmpo_is_mpo_within_its_clip_and_bounded_beyond():
    prior, adv = array(27, 5), array(28, 5)
    prior_probs, without = jax.nn.softmax(prior), jnp.array([0.0, -jnp.inf, 1.0])
    factors = rlx.cmpo_policy(prior, 1e6 * jnp.array([1.0, 1, 1, 1, -1])) / prior_probs
    return [
        (rlx.cmpo_policy(prior, adv, 1e6), jax.nn.softmax(prior + adv)),
        (factors[:4] / factors[4], jnp.full(4, jnp.exp(2.0))),
        (jax.grad(rlx.cmpo_loss)(prior, prior, adv), prior_probs - rlx.cmpo_policy(prior, adv)),
        (rlx.cmpo_policy(without, jnp.ones(3))[1], 0.0),
        (rlx.cmpo_loss(without, without, jnp.zeros(3)), 0.0),
    ]


def test_the_sampled_cmpo_loss_tends_to_the_exact_one():
    """With every action sampled in proportion to its prior probability the gradients agree as the samples grow."""
    logits, adv = array(29, 4), array(30, 4)
    counts = np.array([1, 2, 3, 4]) * 500
    samples, prior = np.repeat(np.arange(4), counts), jnp.log(jnp.asarray(counts / counts.sum(), jnp.float32))

    def sampled(logits):
        return rlx.sampled_cmpo_loss(jax.nn.log_softmax(logits)[samples], adv[samples])

    exact = jax.jit(jax.grad(rlx.cmpo_loss))(logits, prior, adv)
    np.testing.assert_allclose(jax.jit(jax.grad(sampled))(logits), exact, atol=1e-3)


@equalities
def test_muesli_without_regulariser_is_a_policy_gradient_and_without_advantage_cmpo():
    logits, prior, q_adv, adv = array(31, 5, 3), array(32, 5, 3), array(33, 5, 3), array(34, 5)
    a_t, ones = jnp.array([0, 1, 2, 1, 0]), jnp.ones(5)
    muesli = functools.partial(rlx.muesli_policy_loss, logits, a_t)
    policy_gradient = rlx.policy_gradient_loss(logits, a_t, adv, ones)
    gradients = tied(
        lambda x: rlx.muesli_policy_loss(x, a_t, adv, ones, prior, q_adv),
        lambda x: rlx.policy_gradient_loss(x, a_t, adv, ones) + jnp.mean(jax.vmap(rlx.cmpo_loss)(x, prior, q_adv)),
        logits,
    )
    return [
        *gradients,
        (muesli(adv, ones, prior, q_adv, kl_weight=0.0), policy_gradient),
        (muesli(adv, 3 * ones, prior, q_adv, 0.0), policy_gradient),  # a ratio above the threshold
        (muesli(0 * ones, ones, prior, q_adv), jnp.mean(jax.vmap(rlx.cmpo_loss)(logits, prior, q_adv))),
    ]


def test_the_losses_of_a_whole_actor_critic_step_compile_together():
    """Under vmap, jit and grad at once, as a learner calls them."""

    def loss(q_tm1, r_t, discount_t, q_t, log_prob_t, temperature):
        critic = rlx.sac_critic_loss(q_tm1, r_t, discount_t, q_t, log_prob_t, temperature)
        actor = rlx.sac_actor_loss(q_t, log_prob_t, temperature)
        return critic + actor + rlx.sac_temperature_loss(temperature, log_prob_t, -2.0)

    batch = array(35, 6, 2), array(36, 6), jnp.ones(6), array(37, 6, 2), array(38, 6), jnp.full(6, 0.3)
    gradients = jax.jit(jax.grad(lambda *args: jnp.mean(jax.vmap(loss)(*args)), argnums=(0, 3, 4, 5)))(*batch)
    least = jnp.argmin(batch[3], axis=1)
    same(gradients[1], -jax.nn.one_hot(least, 2) / 6)  # the least value is raised by the actor, not by the critic
    same(gradients[3], -(batch[4] - 2.0) / 6)
