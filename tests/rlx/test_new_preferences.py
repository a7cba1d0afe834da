"""Losses of sequence policies: the equalities that tie them to what is known, and their edges."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.unoptimised

G, T, A = 4, 5, 3
same = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)  # float32


def array(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def token_log_probs(logits, tokens):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)[..., 0]


TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, A, size=(G, T)))
MASK = jnp.arange(T)[None, :] < jnp.array([5, 3, 1, 4])[:, None]


def test_grpo_in_its_first_epoch_is_a_policy_gradient():
    logits, rewards = array(1, G, T, A), jnp.array([1, 0, 0, 1])
    adv = rlx.group_relative_advantages(rewards)

    def grpo(logits):
        log_probs = token_log_probs(logits, TOKENS)
        return jnp.mean(jax.vmap(rlx.grpo_loss)(log_probs, jax.lax.stop_gradient(log_probs), adv))

    def policy_gradient(logits):
        adv_t = jnp.repeat(adv, T)
        return rlx.policy_gradient_loss(logits.reshape(G * T, A), TOKENS.reshape(-1), adv_t, jnp.ones(G * T))

    gradient = jax.jit(jax.grad(policy_gradient))(logits)
    assert float(jnp.max(jnp.abs(gradient))) > 0.01
    same(jax.jit(jax.grad(grpo))(logits), gradient)


def test_grpo_and_ppo_agree_on_every_ratio():
    old, adv = -jnp.abs(array(2, T)), array(3, T)
    log_probs = old + array(4, T)
    ppo = rlx.clipped_surrogate_pg_loss(jnp.exp(log_probs - old), adv, 0.2)
    same(rlx.grpo_loss(log_probs, old, adv), ppo)


def test_gspo_on_sequences_of_one_token_is_ppo():
    logits, old, adv = array(5, 64, A), array(6, 64, A), array(7, 64)
    tokens = jnp.asarray(np.random.default_rng(8).integers(0, A, size=64))

    def gspo(logits):
        of_one = functools.partial(rlx.gspo_loss, epsilon_low=0.2, epsilon_high=0.2)
        pairs = token_log_probs(logits, tokens)[:, None], token_log_probs(old, tokens)[:, None]
        return jnp.mean(jax.vmap(of_one)(*pairs, adv))

    def ppo(logits):
        return rlx.clipped_surrogate_pg_loss(rlx.categorical_importance_sampling_ratios(logits, old, tokens), adv, 0.2)

    loss, gradient = jax.jit(jax.value_and_grad(gspo))(logits)
    expected, expected_gradient = jax.jit(jax.value_and_grad(ppo))(logits)
    same(loss, expected)
    same(gradient, expected_gradient)
    assert 0 < np.count_nonzero(np.any(gradient, axis=-1)) < 64  # some ratios are clipped, some are not


def test_rloo_is_reinforce_with_the_mean_of_the_others_as_its_baseline():
    logits, rewards = array(9, G, T, A), jnp.array([3.0, 0.0, -1.0, 2.0])
    baselines = jnp.array([(0 - 1 + 2) / 3, (3 - 1 + 2) / 3, (3 + 0 + 2) / 3, (3 + 0 - 1) / 3])

    def reinforce(logits):
        answers = jnp.sum(jnp.where(MASK, token_log_probs(logits, TOKENS), 0), axis=1)
        return -jnp.mean((rewards - baselines) * answers)

    def rloo(logits):
        return rlx.rloo_loss(token_log_probs(logits, TOKENS), rewards, MASK)

    same(jax.jit(jax.grad(rloo))(logits), jax.jit(jax.grad(reinforce))(logits))
    unscaled = rlx.group_relative_advantages(rewards, scale_by_std=False)
    same(rlx.leave_one_out_advantages(rewards), unscaled * G / (G - 1))


@pytest.mark.slow
def test_on_answers_of_one_length_grpo_dr_grpo_and_dapo_are_one():
    old, adv = -jnp.abs(array(10, G, T)), array(11, G)
    log_probs = old + 0.5 * array(12, G, T)
    grpo = jnp.mean(jax.vmap(rlx.grpo_loss)(log_probs, old, adv))
    same(jnp.mean(jax.vmap(rlx.dr_grpo_loss)(log_probs, old, adv)), grpo)
    same(rlx.dapo_loss(log_probs, old, adv, epsilon_low=0.2, epsilon_high=0.2), grpo)
    slopes = [
        jax.jit(jax.grad(loss))(log_probs)
        for loss in (
            lambda x: rlx.clipped_surrogate_pg_loss(jnp.exp(x - old).ravel(), jnp.repeat(adv, T), 0.2),
            lambda x: jnp.mean(jax.vmap(rlx.grpo_loss)(x, old, adv)),
            lambda x: jnp.mean(jax.vmap(rlx.dr_grpo_loss)(x, old, adv)),
            lambda x: rlx.dapo_loss(x, old, adv, epsilon_low=0.2, epsilon_high=0.2),
        )
    ]
    for slope in slopes[1:]:
        same(slope, slopes[0])
    lengths = np.asarray(MASK).sum(axis=1)
    each = jax.vmap(rlx.grpo_loss)(log_probs, old, adv, MASK)
    # GRPO weighs answers equally, DAPO tokens, and Dr. GRPO divides by one constant.
    same(rlx.dapo_loss(log_probs, old, adv, MASK, 0.2, 0.2), np.sum(each * lengths) / lengths.sum())
    dr_grpo = functools.partial(rlx.dr_grpo_loss, max_length=7)
    same(jax.vmap(dr_grpo)(log_probs, old, adv, MASK), each * lengths / 7)


def test_cispo_at_a_ratio_of_one_is_reinforce():
    log_probs, adv = -jnp.abs(array(20, G, T)), array(21, G)

    def reinforce(x):
        each = jax.vmap(rlx.sequence_policy_gradient_loss)(x, adv, MASK)
        return jnp.sum(each) / jnp.sum(MASK)

    value, slope = jax.jit(jax.value_and_grad(lambda x: rlx.cispo_loss(x, log_probs, adv, MASK)))(log_probs)
    expected, expected_slope = jax.jit(jax.value_and_grad(reinforce))(log_probs)
    same(value, expected)
    same(slope, expected_slope)
    # So is DAPO's gradient there, and GSPO's of one answer, whose tokens share the ratio of the whole.
    same(jax.grad(lambda x: rlx.dapo_loss(x, log_probs, adv, MASK))(log_probs), expected_slope)
    whole = jax.grad(lambda x: rlx.gspo_loss(x, log_probs[0], 0.7))(log_probs[0])
    same(whole, np.full(T, -0.7 / T))


def test_where_ppo_drops_a_token_cispo_keeps_it():
    old, adv = -jnp.ones([2, 1]), jnp.array([1.0, 1.0])
    log_probs = old + jnp.log(jnp.array([[1.1], [2.0]]))
    assert jax.grad(rlx.dapo_loss)(log_probs, old, adv).ravel().tolist() == pytest.approx([-1.1 / 2, 0.0])
    assert jax.grad(rlx.cispo_loss)(log_probs, old, adv).ravel().tolist() == pytest.approx([-1.1 / 2, -1.28 / 2])


def test_a_ratio_too_large_for_its_dtype_gives_no_nan():
    for dtype in (jnp.float16, jnp.float32):
        old, log_probs = jnp.array([-200.0, -1.0], dtype), jnp.array([0.0, -1.0], dtype)
        for loss in (rlx.grpo_loss, rlx.dr_grpo_loss, rlx.gspo_loss):
            value, gradient = jax.jit(jax.value_and_grad(loss))(log_probs, old, 1.0)
            assert np.isfinite(value), loss
            assert np.all(np.isfinite(gradient)), loss
        for loss in (rlx.dapo_loss, rlx.cispo_loss):
            value, gradient = jax.jit(jax.value_and_grad(loss))(log_probs[None], old[None], jnp.ones(1, dtype))
            assert np.isfinite(value), loss
            assert np.all(np.isfinite(gradient)), loss
    assert np.all(np.isfinite(rlx.kl_k3(jnp.array([-200.0, -1.0]), jnp.array([0.0, -1.0]))))


def test_expectations_of_the_kl_estimators():
    """Sums over all actions: k1 and k3 are unbiased, and each has the expected gradient that its docstring states."""
    with jax.enable_x64(True):
        logits, ref_logits = jnp.array([0.3, -1.0, 0.8]), jnp.array([-0.2, 0.1, 0.5])
        log_ref = jax.nn.log_softmax(ref_logits)
        probs = jax.nn.softmax(logits)

        def kl(logits):
            log_pi = jax.nn.log_softmax(logits)
            return jnp.sum(jnp.exp(log_pi) * (log_pi - log_ref))

        def reverse_kl(logits):
            return jnp.sum(jnp.exp(log_ref) * (log_ref - jax.nn.log_softmax(logits)))

        def expected(estimator):
            return lambda logits: jnp.sum(probs * estimator(jax.nn.log_softmax(logits), log_ref))

        exact = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14)

        @jax.jit
        def values_and_slopes(logits):
            functions = kl, reverse_kl, *map(expected, (rlx.kl_k1, rlx.kl_k2, rlx.kl_k3))
            return [jax.value_and_grad(function)(logits) for function in functions]

        of_kl, of_reverse, k1, k2, k3 = values_and_slopes(logits)
        exact(k1[0], of_kl[0])
        exact(k3[0], of_kl[0])
        exact(k1[1], 0)
        exact(k2[1], of_kl[1])
        exact(k3[1], of_reverse[1])
        # The bias of k2 is of third order: a tenth of the distance has about a thousandth of the bias.
        biases = []
        for step in (0.1, 0.01):
            log_pi = jax.nn.log_softmax(ref_logits + step * (logits - ref_logits))
            estimate = jnp.sum(jnp.exp(log_pi) * rlx.kl_k2(log_pi, log_ref))
            biases.append(float(estimate - jnp.sum(jnp.exp(log_pi) * (log_pi - log_ref))))
        assert 500 < biases[0] / biases[1] < 2000


def test_k3_keeps_its_digits_near_zero_and_never_is_negative():
    log_ratio = jnp.array([1e-3, -1e-3, 1e-4, 0.0])
    estimates = rlx.kl_k3(jnp.zeros(4), log_ratio)
    exact = np.expm1(np.asarray(log_ratio, np.float64)) - np.asarray(log_ratio, np.float64)
    # Two units in the last place of the numbers whose difference it is.
    np.testing.assert_allclose(estimates, exact, rtol=0, atol=2 * np.spacing(np.float32(1e-3)))
    assert np.all(rlx.kl_k3(jnp.zeros(1000), array(13, 1000)) >= 0)


def test_a_masked_kl_estimate_is_zero():
    with_nan = jnp.array([-1.0, jnp.nan])
    for estimator in (rlx.kl_k1, rlx.kl_k2, rlx.kl_k3):
        estimates = estimator(with_nan, jnp.array([-2.0, jnp.nan]), jnp.array([1, 0]))
        assert np.isfinite(estimates[0]) and estimates[0] != 0 and estimates[1] == 0
        total = jax.grad(lambda x: jnp.sum(estimator(x, -2 * jnp.ones(2), jnp.array([1, 0]))))  # noqa: B023
        gradient = jax.jit(total)(with_nan)
        assert np.isfinite(gradient[0]) and gradient[1] == 0


@pytest.mark.slow
def test_groups_without_contrast_and_without_company():
    for rewards in (jnp.array([2.0, 2.0, 2.0]), jnp.array([5.0])):
        assert not np.any(rlx.group_relative_advantages(rewards))
        gradient = jax.jit(jax.grad(lambda r: rlx.group_relative_advantages(r)[0]))(rewards)
        assert np.all(np.isfinite(gradient))
    assert rlx.leave_one_out_advantages(jnp.array([5.0])).tolist() == [5.0]
    assert (
        rlx.leave_one_out_advantages(jnp.zeros([0])).shape
        == rlx.group_relative_advantages(jnp.zeros([0])).shape
        == (0,)
    )


@pytest.mark.parametrize("advantages", [rlx.group_relative_advantages, rlx.leave_one_out_advantages])
def test_a_masked_group_is_the_smaller_group(advantages):
    rewards, mask = jnp.array([1.0, jnp.nan, 4.0, 2.0]), jnp.array([True, False, True, True])
    alone = advantages(jnp.array([1.0, 4.0, 2.0]))
    same(advantages(rewards, mask=mask), jnp.array([alone[0], 0.0, alone[1], alone[2]]))
    assert not np.any(advantages(jnp.full(4, jnp.nan), mask=jnp.zeros(4)))


def test_the_gradient_of_dpo_is_the_paper_s():
    """-β σ(-β h) for each token of the preferred answer, plus that for each of the other (equation 7)."""
    chosen, rejected = -jnp.abs(array(14, 2)), -jnp.abs(array(15, 3))
    ref_chosen, ref_rejected = -jnp.abs(array(16, 2)), -jnp.abs(array(17, 3))
    margin = float(jnp.sum(chosen - ref_chosen) - jnp.sum(rejected - ref_rejected))
    up, down = jax.grad(rlx.dpo_loss, argnums=(0, 1))(chosen, rejected, ref_chosen, ref_rejected, 0.5)
    expected = 0.5 / (1 + np.exp(0.5 * margin))
    same(up, np.full(2, -expected))
    same(down, np.full(3, expected))


def test_ipo_rests_at_its_goal_and_kto_at_its_reference_point():
    one = jnp.array([-1.0])
    at_goal = rlx.ipo_loss(one + 1 / (2 * 0.25), one, one, one, tau=0.25)
    assert float(at_goal) == 0.0
    for desirable, weight in ((True, 3.0), (False, 5.0)):
        loss = rlx.kto_loss(one + 0.25, one, desirable, 0.25, desirable_weight=3.0, undesirable_weight=5.0)
        assert float(loss) == weight / 2
    # Certain preferences satisfy DPO, but never fully: log σ keeps its slope, and large margins stay finite.
    for sign, expected in ((1.0, 0.0), (-1.0, 1e4)):
        assert float(rlx.dpo_loss(one + sign * 1e5, one, one, one)) == pytest.approx(expected)


def test_dpo_ipo_and_kto_are_functions_of_one_margin():
    """And so tied to each other: their limits, and the gradient with respect to the margin."""
    chosen, rejected = -jnp.abs(array(22, 2)), -jnp.abs(array(23, 3))
    references = chosen - 0.3 * array(24, 2), rejected - 0.2 * array(25, 3)
    answers = (chosen, rejected)
    margin = float(jnp.sum(chosen - references[0]) - jnp.sum(rejected - references[1]))

    def value_and_slopes(loss):
        return jax.value_and_grad(loss, (0, 1))(*answers)

    # A small β: log 2 - ½ β h, so that the gradient is that of a linear margin.
    value, (up, down) = value_and_slopes(lambda x, y: (rlx.dpo_loss(x, y, *references, 1e-3) - np.log(2)) / 1e-3)
    np.testing.assert_allclose(value, -margin / 2, rtol=2e-3, atol=2e-4)  # float32's digits of log 2, over β
    np.testing.assert_allclose(np.append(up, down), [-0.5] * 2 + [0.5] * 3, rtol=2e-3)
    # A weak reference, τ → ∞: h². At h = 0 IPO pushes with 1 / τ, DPO with β / 2.
    value, (up, down) = value_and_slopes(lambda x, y: rlx.ipo_loss(x, y, *references, 1e9))
    same(value, margin**2)
    same(np.append(up, down), 2 * margin * np.array([1, 1, -1, -1, -1]))
    at_rest = jax.grad(lambda x: rlx.ipo_loss(x, rejected, chosen, rejected, 0.4))(chosen)
    same(at_rest, np.full(2, -1 / 0.4))
    # Certain that labels are wrong half of the time DPO learns nothing from a margin of 0, and half of each otherwise.
    half = rlx.dpo_loss(*answers, *references, 0.5, label_smoothing=0.5)
    same(
        half,
        0.5 * sum(rlx.dpo_loss(*x, *y, 0.5) for x, y in ((answers, references), (answers[::-1], references[::-1]))),
    )
    # KTO compares with the reference point where DPO compares with the other answer: 1 - σ, and -log σ.
    point = float(jnp.sum(rejected - references[1]))
    kto, slope = jax.value_and_grad(lambda x: rlx.kto_loss(x, references[0], True, point, 0.5))(chosen)
    expected, expected_slope = jax.value_and_grad(lambda x: 1 - jnp.exp(-rlx.dpo_loss(x, rejected, *references, 0.5)))(
        chosen
    )
    same(kto, expected)
    same(slope, expected_slope)
    other = rlx.kto_loss(chosen, references[0], False, point, 0.5)
    same(other, 1 - kto)


def test_the_reference_point_of_kto_is_never_negative():
    worse = -jnp.ones([2, 3])
    assert float(rlx.kto_reference_point(2 * worse, worse)) == 0.0
    assert float(rlx.kto_reference_point(worse, 2 * worse)) == 3.0
    assert float(rlx.kto_reference_point(worse, 2 * worse, jnp.array([[1, 0, 0], [1, 1, 0]]))) == 1.5


def test_settings_are_checked():
    with pytest.raises(rlx.OptionError, match="argument `max_length` is 0"):
        rlx.dr_grpo_loss(jnp.zeros(2), jnp.zeros(2), 1.0, max_length=0)


def test_each_penalty_and_mask_may_be_left_out():
    log_probs, old = -jnp.abs(array(18, T)), -jnp.abs(array(19, T))
    everything = jnp.ones(T, bool)
    for loss in (rlx.grpo_loss, rlx.dr_grpo_loss, rlx.gspo_loss):
        assert float(loss(log_probs, old, 0.7)) == float(loss(log_probs, old, 0.7, everything))
    with_penalty = rlx.grpo_loss(log_probs, old, 0.7, ref_log_probs_t=old, kl_weight=0.5)
    same(with_penalty, rlx.grpo_loss(log_probs, old, 0.7) + 0.5 * jnp.mean(rlx.kl_k3(log_probs, old)))
