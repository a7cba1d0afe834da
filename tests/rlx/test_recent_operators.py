"""Operators of recent papers: the equalities that tie them to what is known, and their edges."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.unoptimised

same = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)  # float32


def array(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def test_discovered_policy_optimisation_begins_as_a_policy_gradient_and_levels_off():
    @jax.jit
    def found(ratios, adv_t, levels):
        one_by_one = jax.vmap(jax.value_and_grad(lambda r, a: rlx.discovered_policy_loss(r[None], a[None])))
        unclipped = jax.grad(lambda r: -jnp.mean(r * adv_t))(ratios)
        at_one = jax.grad(rlx.discovered_policy_loss)(ratios, adv_t)
        return at_one, unclipped, one_by_one(levels, jnp.ones(4)), one_by_one(levels, -jnp.ones(4))

    levels = jnp.array([0.0, 0.05, 1e4, 1e30])
    at_one, unclipped, good, bad = found(jnp.ones(6), array(0, 6), levels)
    same(at_one, unclipped)
    same(good[0], [0, -0.05, -3, -3])  # A + α; below a ratio of one as it is
    same(good[1], [-1, -1, 0, 0])
    # At 0.05 the way back: d/dρ of -(ρ A - |log ρ| + 0.6 tanh(|log ρ| / 0.6)).
    x = -np.log(0.05)
    least = -np.log(np.finfo(np.float32).tiny)  # a ratio of 0 counts as the smallest normal number
    same(bad[0], [least - 0.6, 0.05 + x - 0.6 * np.tanh(x / 0.6), 1e4, 1e30])
    same(bad[1][1:], [1 - np.tanh(x / 0.6) ** 2 / 0.05, 1, 1])
    assert bad[1][1] < 0


@pytest.mark.slow
def test_what_has_no_advantage_has_no_part():
    found = jax.jit(jax.value_and_grad(rlx.discovered_policy_loss))
    for ratio in (0.0, jnp.inf, jnp.nan):
        value, slope = found(jnp.array([2.0, ratio]), jnp.array([1.0, 0.0]))
        same(value, -(1 + 2 * np.tanh(0.5)) / 2)
        assert np.all(np.isfinite(slope)) and slope[1] == 0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_an_underflown_ratio_has_a_finite_loss_gradient_and_drift(dtype):
    """max(0, log(ρ) A - β tanh(log(ρ) A / β)) of a probability that exp makes 0, with log(ρ) at its least."""
    log_ratios, adv_t = jnp.array([-200.0, -200.0, 0.0], dtype), jnp.array([-2.0, 0.0, 1.0], dtype)
    value, slopes = jax.value_and_grad(lambda x: rlx.discovered_policy_loss(jnp.exp(x), adv_t))(log_ratios)
    least = float(np.log(np.finfo(np.float32).tiny))  # bfloat16 has the same range
    np.testing.assert_allclose(float(value), (-2 * least - 0.6 - 1) / 3, rtol=1e-2)
    np.testing.assert_allclose(np.asarray(slopes, np.float32), [0, 0, -1 / 3], rtol=1e-2)
    found = np.asarray(rlx.learnt_drift_inputs(jnp.exp(log_ratios), adv_t), np.float32)
    row = np.array([-1, 1, least, least**2])
    np.testing.assert_allclose(found[:2], [[*row, *-2 * row], [*row, *0 * row]], rtol=1e-2)
    assert np.all(np.isnan(rlx.learnt_drift_inputs(jnp.array([-0.5]), jnp.ones(1))[:, 2]))  # not a ratio


def test_a_learnt_drift():
    """One that writes PPO's clip is PPO; and what is masked does not reach the network's parameters."""
    ratios, adv_t = jnp.array([0.5, 1.1, 3.0, 1.5]), jnp.array([-1.0, 2.0, 1.0, -1.0])

    @jax.jit
    def found(ratios, adv_t, params, mask):
        def clip_as_drift(r):
            return rlx.learnt_policy_loss(r, adv_t, (r - jnp.clip(r, 0.8, 1.2)) * adv_t, threshold=0.0)

        def learnt(params, r, mask):
            hidden = jnp.tanh(rlx.learnt_drift_inputs(r, adv_t, mask_t=mask) @ params[0])
            return rlx.learnt_policy_loss(r, adv_t, (hidden @ params[1])[:, 0], mask_t=mask)

        clip, ppo = (jax.value_and_grad(f)(ratios) for f in (
            clip_as_drift, lambda r: rlx.clipped_surrogate_pg_loss(r, adv_t, 0.2)))  # fmt: skip
        holes = jnp.where(mask, ratios, 0.0), jnp.where(mask, ratios, jnp.nan)
        masked = [jax.value_and_grad(learnt)(params, r, mask) for r in holes]
        return clip, ppo, masked, jax.grad(learnt, 1)(params, jnp.ones(4), None)

    params = array(24, 8, 5), array(25, 5, 1)
    mask = jnp.array([True, False, True, True])
    clip, ppo, masked, at_one = found(ratios, adv_t, params, mask)
    jax.tree.map(same, clip, ppo)
    jax.tree.map(np.testing.assert_array_equal, *masked)
    assert all(np.all(np.isfinite(x)) and np.any(x) for x in jax.tree.leaves(masked))
    same(at_one, -adv_t / 4)  # a policy gradient: the threshold keeps the drift's slope away


def test_dqn_reg_without_its_weight_is_the_squared_error():
    q_tm1, q_t = array(1, 3), array(2, 3)
    error = 0.5 + 0.9 * np.max(q_t) - q_tm1[1]
    value, slope = jax.jit(jax.value_and_grad(rlx.dqn_reg_loss))(q_tm1, 1, 0.5, 0.9, q_t, 0.0)
    same(value, error**2)
    same(slope, [0, -2 * error, 0])
    slope = jax.jit(jax.grad(rlx.dqn_reg_loss))(q_tm1, 1, 0.5, 0.9, q_t)
    same(slope, [0, 0.1 - 2 * error, 0])


@pytest.mark.slow
def test_d4pg_of_one_step_is_categorical_td_and_of_more_its_n_step_return():
    atoms, logits_tm1, logits_t = jnp.linspace(-3, 3, 5), array(3, 5), array(4, 5)
    d4pg, td = jax.jit(rlx.d4pg_critic_loss), jax.jit(rlx.categorical_td_learning)
    one = d4pg(atoms, logits_tm1, jnp.array([0.3]), jnp.array([0.7]), atoms, logits_t)
    same(one, td(atoms, logits_tm1, 0.3, 0.7, atoms, logits_t))
    r_t, discount_t = array(5, 4), jnp.array([0.9, 0.8, 0.7, 0.6])
    n_step = np.dot(r_t, [1, 0.9, 0.72, 0.504])
    more = d4pg(atoms, logits_tm1, r_t, discount_t, atoms, logits_t)
    same(more, td(atoms, logits_tm1, n_step, np.prod(discount_t), atoms, logits_t))
    # What follows an episode's end is of another one.
    ended = discount_t.at[1].set(0.0)
    values = [
        d4pg(atoms, logits_tm1, r_t.at[2:].set(anything), ended.at[2].set(anything), atoms, anything * logits_t)
        for anything in (0.0, 1e30, jnp.nan)
    ]
    same(values, [td(atoms, logits_tm1, r_t[0] + 0.9 * r_t[1], 0.0, atoms, logits_t)] * 3)
    slope = jax.grad(rlx.d4pg_actor_loss, 1)(atoms, logits_t)
    probs = np.asarray(jax.nn.softmax(logits_t))
    same(slope, -probs * (atoms - probs @ atoms))


def test_tqc_that_drops_nothing_of_one_critic_is_quantile_regression():
    dist_q_tm1, dist_q_t, tau = array(6, 1, 5), array(7, 1, 5), (jnp.arange(5) + 0.5) / 5
    target = 0.4 + 0.9 * (dist_q_t[0] + 0.2 * 1.5)
    loss = jax.jit(rlx.tqc_critic_loss, static_argnames="num_dropped")(
        dist_q_tm1, 0.4, 0.9, dist_q_t, -1.5, 0.2, num_dropped=0
    )
    same(loss, jax.jit(rlx.quantile_regression_loss)(dist_q_tm1[0], tau, target, 1.0) / 5)


def test_how_many_quantiles_are_dropped():
    assert rlx.truncated_quantiles(jnp.array([[3.0], [1.0]]), 0).tolist() == [1, 3]
    several = array(8, 3, 4)
    assert rlx.truncated_quantiles(several, 3).tolist() == sorted(several.ravel().tolist())[:3]
    for num_dropped in (-1, 4):
        with pytest.raises(rlx.OptionError, match=f"truncated_quantiles: argument `num_dropped` is {num_dropped}, exp"):
            rlx.truncated_quantiles(several, num_dropped)
    with pytest.raises(rlx.OptionError, match="tqc_critic_loss: argument `num_dropped` is 5"):
        rlx.tqc_critic_loss(several, 0.4, 0.9, jnp.ones([2, 5]), -1.5, 0.2, num_dropped=5)


@pytest.mark.slow
def test_redq_with_all_critics_is_sac():
    q_tm1, q_t = np.asarray(array(9, 4)), np.asarray(array(10, 4))
    redq, sac = jax.jit(rlx.redq_critic_loss), jax.jit(rlx.sac_critic_loss)
    same(redq(q_tm1, 0.3, 0.9, q_t, -1.0, 0.2, np.arange(4)), sac(q_tm1, 0.3, 0.9, q_t, -1.0, 0.2))
    of_two = redq(q_tm1, 0.3, 0.9, q_t, -1.0, 0.2, np.array([3, 1]))
    same(of_two, sac(q_tm1, 0.3, 0.9, q_t[[1, 3]], -1.0, 0.2))
    poisoned = redq(q_tm1, 0.3, 0.9, np.where(np.arange(4) == 0, np.nan, q_t), -1.0, 0.2, np.array([3, 1]))
    assert poisoned == of_two
    same(rlx.redq_actor_loss(q_t[:1], -1.0, 0.2), rlx.sac_actor_loss(q_t[:1], -1.0, 0.2))
    same(jax.grad(rlx.redq_actor_loss)(q_t, -1.0, 0.2), np.full(4, -0.25))


@pytest.mark.slow
def test_discrete_sac_is_the_mean_over_actions_of_sac():
    q_t, logits, temperature = array(11, 2, 3), array(12, 3), 0.3
    probs, log_probs = np.asarray(jax.nn.softmax(logits)), np.asarray(jax.nn.log_softmax(logits))
    actor, slope = jax.jit(jax.value_and_grad(rlx.sac_discrete_actor_loss, 1))(q_t, logits, temperature)
    one_by_one = jax.jit(jax.vmap(rlx.sac_actor_loss, (1, 0, None)))(q_t, log_probs, temperature)
    same(actor, probs @ one_by_one)
    same(slope, probs * (one_by_one - probs @ one_by_one))
    critic = jax.jit(rlx.sac_discrete_critic_loss)(q_t, 1, 0.5, 0.9, q_t, logits, temperature)
    same(critic, np.sum(0.5 * (0.5 - 0.9 * actor - q_t[:, 1]) ** 2))
    # At the softmax of the values over the temperature nothing is left to learn: the loss is minus the soft maximum.
    one = q_t[:1]
    best, slope = jax.value_and_grad(rlx.sac_discrete_actor_loss, 1)(one, one[0] / temperature, temperature)
    same(best, -temperature * np.log(np.sum(np.exp(one[0] / temperature))))
    same(slope, np.zeros(3))


def test_td3_bc_does_not_know_the_scale_of_values():
    q_t, a_t, data_a_t = array(13, 5) + 1, array(14, 5, 2), array(15, 5, 2)
    found = jax.jit(jax.value_and_grad(rlx.td3_bc_actor_loss, (0, 1)))
    value, (of_q, of_a) = found(q_t, a_t, data_a_t)
    same(of_q, np.full(5, -2.5 / np.mean(np.abs(q_t)) / 5))
    same(of_a, (a_t - data_a_t) / 5)  # of a mean over ten squares
    larger, (of_larger, _) = found(100 * q_t, a_t, data_a_t)
    same(larger, value)
    same(100 * of_larger, of_q)
    nothing, slopes = found(0 * q_t, a_t, data_a_t)
    same(nothing, np.mean((a_t - data_a_t) ** 2))
    assert all(map(np.all, map(np.isfinite, slopes)))
    small = jnp.array([3e-5, 2e-5], jnp.float16)  # α / mean|q| is larger than any half-precision number
    same(rlx.td3_bc_actor_loss(small, jnp.zeros([2, 1], jnp.float16), jnp.ones([2, 1], jnp.float16)), 1 - 2.5)


@pytest.mark.slow
def test_fast_td3_learns_from_the_critic_that_expects_the_less():
    atoms, logits_tm1, logits_t = jnp.linspace(-2, 2, 5), array(16, 2, 5), array(17, 2, 5)
    td = jax.jit(rlx.categorical_td_learning)
    lower = int(np.argmin(jax.nn.softmax(logits_t) @ atoms))
    expected = sum(td(atoms, logits, 0.3, 0.7, atoms, logits_t[lower]) for logits in logits_tm1)
    same(jax.jit(rlx.fast_td3_critic_loss)(atoms, logits_tm1, 0.3, 0.7, atoms, logits_t), expected)


def test_normalized_advantages():
    adv, mask = np.float32(np.random.default_rng(18).normal(1e4, 1.0, size=(4, 6))), np.arange(24).reshape(4, 6) % 4 > 0
    holes = np.where(mask, adv, np.nan)
    chosen = np.float64(adv[mask])
    expected = np.where(mask, (np.float64(adv) - chosen.mean()) / chosen.std(), 0)
    of_devices = functools.partial(rlx.normalized_advantages, axis_name="i")
    together = jax.jit(jax.vmap(lambda x, m: of_devices(x, mask=m), axis_name="i"))
    for found in (jax.jit(rlx.normalized_advantages)(holes, mask=mask), together(holes, mask)):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)  # the mean of numbers near 1e4 in float32
    assert rlx.normalized_advantages(jnp.full(3, 7.0)).tolist() == [0, 0, 0]


def test_sapo_is_a_policy_gradient_at_first_and_then_closes_slowly():
    old, adv_t = -jnp.ones(3), jnp.array([1.0, -2.0, 0.5])
    slopes = jax.jit(jax.grad(rlx.sapo_loss))
    same(slopes(old, old, adv_t), -adv_t / 3)
    log_ratio = jnp.log(jnp.array([1.5, 1.5, 4.0]))

    def gate(ratio, tau):  # the slope of 4/τ σ(τ (ρ - 1)) in log ρ
        sigma = 1 / (1 + np.exp(-tau * (ratio - 1)))
        return 4 * sigma * (1 - sigma) * ratio

    expected = [-gate(1.5, 1.0) / 3, 2 * gate(1.5, 1.05) / 3, -0.5 * gate(4.0, 1.0) / 3]
    same(slopes(old + log_ratio, old, adv_t), expected)
    assert np.all(np.isfinite(slopes(jnp.zeros(3), -jnp.array([1.0, 1e3, 1e3]), adv_t)))


def test_an_answer_of_probability_one_has_a_finite_gradient_in_orpo():
    """With p the preferred answer's probability: log(1 + odds(q) (1 - p) / p) - log p, at log p = 0."""
    loss, (slope, _) = jax.value_and_grad(rlx.orpo_loss, (0, 1))(jnp.zeros(2), jnp.array([-1.0]), 1.0)
    assert float(loss) == 0
    np.testing.assert_allclose(slope, np.full(2, -(1 + 1 / (np.e - 1)) / 2), rtol=1e-6)
    loss, slopes = jax.value_and_grad(rlx.orpo_loss, (0, 1))(jnp.zeros(2), jnp.zeros(1), 1.0)
    np.testing.assert_allclose(loss, np.log(2), rtol=1e-6)  # -log σ(0): as for any other two of the same odds
    np.testing.assert_array_equal(np.concatenate(slopes), [-0.5, -0.5, 0])  # of -log p alone


def test_losses_of_pairs_without_a_reference():
    chosen, rejected = -jnp.abs(array(19, 3)) - 0.1, -jnp.abs(array(20, 2)) - 0.1
    mean_chosen, mean_rejected = float(jnp.mean(chosen)), float(jnp.mean(rejected))
    value, slopes = jax.jit(jax.value_and_grad(rlx.simpo_loss, (0, 1)))(chosen, rejected)
    x = 2 * (mean_chosen - mean_rejected) - 0.5
    same(value, np.log1p(np.exp(-x)))
    weight = 2 / (1 + np.exp(x))
    same(np.append(*slopes), [-weight / 3] * 3 + [weight / 2] * 2)
    # Without its margin, and a reference of zeros, it is DPO of answers of one token.
    zeros = jnp.zeros(1)
    same(rlx.simpo_loss(chosen[:1], rejected[:1], 0.7, 0.0), rlx.dpo_loss(chosen[:1], rejected[:1], zeros, zeros, 0.7))
    found = jax.jit(jax.value_and_grad(rlx.orpo_loss, (0, 1)))
    value, slopes = found(chosen, rejected, 0.0)
    same(value, -mean_chosen)
    same(np.append(*slopes), [-1 / 3] * 3 + [0] * 2)
    # The paper's gradient: δ(d) h(d), with δ = odds_l / (odds_w + odds_l) and h = ∇log p / (1 - p).
    value, slopes = found(chosen, rejected, 1.0)
    p, q = np.exp(mean_chosen), np.exp(mean_rejected)
    delta = 1 / (1 + (p / (1 - p)) / (q / (1 - q)))
    same(value, -mean_chosen - np.log(1 - delta))
    same(np.append(*slopes), [-1 / 3 - delta / (1 - p) / 3] * 3 + [delta / (1 - q) / 2] * 2)
    near_certain = found(jnp.array([-1e-6]), rejected, 1.0)
    assert np.isfinite(near_certain[0]) and all(map(np.all, map(np.isfinite, near_certain[1])))


@pytest.mark.slow
def test_weights_of_what_another_program_sampled():
    learner, sampler = -jnp.array([1.0, 1.0, 300.0, 1.0]), -jnp.array([2.0, 1.2, 1.0, 300.0])
    weights = rlx.truncated_importance_weights(learner, sampler)
    same(weights, [2, np.exp(0.2), 0, 2])
    assert not np.any(jax.grad(lambda x: rlx.truncated_importance_weights(x, sampler).sum())(learner))
    # They multiply advantages, of each token: of a group too.
    old, adv = -jnp.abs(array(21, 2, 4)), jnp.array([1.0, -0.5])
    log_probs, mask = old + 0.4 * array(22, 2, 4), jnp.array([[1, 1, 1, 0], [1, 1, 0, 0]])
    for loss in (jax.jit(rlx.dapo_loss), jax.jit(rlx.cispo_loss)):
        same(loss(log_probs, old, jnp.repeat(adv[:, None], 4, 1), mask), loss(log_probs, old, adv, mask))
        tokens = weights[None] * adv[:, None]
        by_hand = sum(
            loss(log_probs[i : i + 1, t : t + 1], old[i : i + 1, t : t + 1], tokens[i, t : t + 1])
            for i, t in np.argwhere(mask)
        )
        same(loss(log_probs, old, tokens, mask), by_hand / 5)


def test_the_dual_clip_bounds_what_a_bad_action_can_do():
    ratios, adv_t = jnp.array([0.5, 1.1, 9.0, jnp.inf]), jnp.array([-1.0, -2.0, -1.0, -3.0])
    dual = jax.jit(jax.value_and_grad(rlx.dual_clipped_surrogate_pg_loss))
    value, slope = dual(ratios, adv_t)
    same(value, (0.8 + 2.2 + 3 + 9) / 4)
    same(slope, [0, 0.5, 0, 0])
    ratios = jnp.array([0.5, 1.1, 9.0, 2.0])
    without = rlx.dual_clipped_surrogate_pg_loss(ratios, -adv_t, 0.2, 0.2, 1.0)  # good actions do not know of it
    same(without, rlx.clipped_surrogate_pg_loss(ratios, -adv_t, 0.2))
    unbounded = rlx.dual_clipped_surrogate_pg_loss(ratios, adv_t, max_ratio=jnp.inf)
    same(unbounded, rlx.clipped_surrogate_pg_loss(ratios, adv_t, 0.2))


def test_between_two_divergences():
    with jax.enable_x64(True):
        p, q = np.random.default_rng(23).normal(size=(2, 4))
        jsd, kl = jax.jit(rlx.generalized_jensen_shannon_divergence), jax.jit(rlx.categorical_kl_divergence)
        same(jsd(p, q, 0.5), jsd(q, p, 0.5))
        np.testing.assert_allclose(jsd(p, q, 1e-6) / 1e-6, kl(p, q), rtol=1e-4)
        np.testing.assert_allclose(jsd(p, q, 1 - 1e-6) / 1e-6, kl(q, p), rtol=1e-4)


def test_settings_are_checked():
    one = jnp.ones(1)
    for alpha in (0.0, -1.0, jnp.inf):
        with pytest.raises(rlx.OptionError, match="discovered_policy_loss: argument `alpha` is "):
            rlx.discovered_policy_loss(one, one, alpha)
    with pytest.raises(
        rlx.OptionError, match=r"overlong_penalty: argument `max_length` is 10\.0, expected at least `buffer`"
    ):
        rlx.overlong_penalty(5, 10, 20)


@pytest.mark.slow
def test_info_nce_of_those_that_count():
    """As rows and as columns: what remains is the loss of the smaller batch, whatever the others hold."""
    logits, mask = array(26, 5, 5), np.array([1, 0, 1, 1, 0], bool)
    holes = jnp.where(mask[:, None] & mask[None, :], logits, jnp.nan)
    found = jax.jit(jax.value_and_grad(functools.partial(rlx.info_nce_loss, logsumexp_weight=0.1)))
    expected, expected_slope = found(logits[mask][:, mask])
    value, slope = found(holes, mask=mask)
    same(value, expected)
    same(slope[mask][:, mask], expected_slope)
    assert np.all(np.isfinite(slope)) and not np.any(slope[~mask]) and not np.any(slope[:, ~mask])
    labels = jax.vmap(rlx.categorical_cross_entropy)(jnp.eye(5), logits)
    same(rlx.info_nce_loss(logits), jnp.mean(labels))
