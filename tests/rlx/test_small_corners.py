"""What a second reading of the operators found: NaN that counts, impossible actions, small squares, odd dtypes."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.unoptimised

NAN, INF = jnp.nan, jnp.inf
ONES = jnp.ones(2)


def temperature():
    return rlx.LagrangePenalty(alpha=jnp.float32(1.0), epsilon=jnp.float32(0.5))


def after_a_nan(value):
    _, state = rlx.scale_rewards(rlx.initial_reward_scale(2), jnp.array([1.0, NAN]), 0.9 * ONES)
    return rlx.scale_rewards(state, value * ONES, 0.9 * ONES)[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: rlx.percentile_range(0.0, jnp.append(jnp.arange(100.0), NAN)),
        lambda: rlx.percentile_range(0.0, jnp.array([1.0, NAN, 3.0]), mask=jnp.array([1, 1, 0])),
        lambda: rlx.truncated_quantiles(jnp.array([[1.0, 2.0, NAN, 4.0]]), 2),
        lambda: rlx.tqc_critic_loss(jnp.ones([1, 2]), 0.0, 1.0, jnp.array([[1.0, NAN]]), jnp.array(0.0), 0.1, 1),
        lambda: rlx.vmpo_loss(-jnp.ones(4), jnp.array([NAN, 3.0, 2.0, 1.0]), temperature(), [])[0],
        lambda: rlx.vmpo_loss(-jnp.ones(4), jnp.array([NAN, 3.0, 2.0, 1.0]), temperature(), [], top_k_fraction=0.25)[0],
        lambda: rlx.adaptive_kl_weight(1.0, NAN, 0.01),
        lambda: after_a_nan(1.0),
    ],
)
def test_a_nan_that_counts_is_seen(call):
    """Also where numbers are sorted or compared, which leaves it last, or as neither larger nor smaller."""
    assert np.all(np.isnan(call()))


def test_a_nan_that_does_not_count_is_not_seen():
    masked = rlx.percentile_range(0.0, jnp.array([1.0, NAN, 3.0]), 0.0, 0.0, 100.0, mask=jnp.array([1, 0, 1]))
    assert float(masked) == 2.0
    ended = rlx.tqc_critic_loss(jnp.ones([1, 2]), 0.0, 0.0, jnp.array([[1.0, NAN]]), jnp.array(0.0), 0.1, 1)
    assert np.isfinite(ended)
    advantages, restarting = jnp.array([NAN, 3.0, 2.0, 1.0]), jnp.array([0, 1, 1, 1])
    loss, _ = rlx.vmpo_loss(-jnp.ones(4), advantages, temperature(), [], restarting_weights=restarting)
    assert np.all(np.isfinite(loss))


@pytest.mark.slow
def test_no_policy_takes_an_impossible_action():
    """Its value or logit is minus infinity, and it does not count among the actions."""
    values, possible = jnp.array([1.0, -INF, 0.0, 1.0]), jnp.array([1.0, 0.0, 1.0])
    policy = rlx.epsilon_greedy(0.3)
    np.testing.assert_allclose(policy.probs(values)[jnp.array([0, 2, 3])], policy.probs(possible), rtol=1e-6)
    assert policy.probs(values)[1] == 0
    np.testing.assert_allclose(policy.entropy(values), policy.entropy(possible), rtol=1e-6)
    assert 1 not in policy.sample(jax.random.key(0), values, 1.0, sample_shape=100)
    np.testing.assert_allclose(rlx.greedy().probs(jnp.full(4, -INF)), 0.25)  # where none is possible, all are alike
    np.testing.assert_allclose(policy.probs(jnp.full([2, 4], -INF)), 0.25)
    clipped = rlx.clipped_entropy_softmax(entropy_clip=0.5)
    np.testing.assert_allclose(clipped.entropy(jnp.array([0.0, 0.0, -INF, -INF])), 0.5 * np.log(2), rtol=1e-6)


@pytest.mark.parametrize("dtype, small", [(jnp.float16, 1e-4), (jnp.float32, 1e-21)])
def test_the_square_of_a_small_deviation_does_not_vanish(dtype, small):
    """log(σ₁ / σ₀) + (σ₀² + (μ₀ - μ₁)²) / (2 σ₁²) - ½ with σ₁ = 2 σ₀ and μ₁ - μ₀ = σ₀."""
    arguments = [jnp.array([x], dtype) for x in (0.0, small, small, 2 * small)]
    expected = np.log(2) + 2 / 8 - 0.5
    tolerance = 2e-2 if dtype == jnp.float16 else 1e-5
    np.testing.assert_allclose(rlx.multivariate_normal_kl_divergence(*arguments), expected, rtol=tolerance)
    np.testing.assert_allclose(rlx.gaussian_diagonal().kl(*arguments), expected, rtol=tolerance)


def test_a_long_gradient_of_half_precision_is_clipped_to_its_length():
    loss = rlx.dpg_loss(jnp.zeros(2, jnp.float16), jnp.array([300.0, -400.0], jnp.float16), 5.0)
    np.testing.assert_allclose(loss, [4.5, 8.0], rtol=2e-3)  # ½ 3² and ½ 4²


def test_fewer_memories_than_neighbours():
    """Those that are not there are no neighbours: they are neither alike nor count in the mean distance."""
    call = jax.jit(rlx.episodic_memory_intrinsic_rewards.kernel, static_argnums=1)
    memory = np.full([4, 1], np.inf, np.float32)
    memory[0] = 1.0
    reward, state = call(3 * jnp.ones([1, 1]), 3, 1.0, rlx.IntrinsicRewardState(memory, 1, -2.0, 1))
    mean = (2.0 + 4.0) / 2
    similarity = np.sqrt(1e-4 / (4 / (mean + 1e-3) - 8e-3 + 1e-4)) + 1e-3
    np.testing.assert_allclose(reward, [1 / similarity], rtol=1e-4)
    assert (float(state.distance_sum), int(state.distance_count)) == (-6.0, 2)
    empty = rlx.IntrinsicRewardState(np.full([4, 1], np.inf, np.float32), 0, 0.0, 0)
    slope = jax.grad(lambda x: call(x, 3, 1.0, empty)[0].sum())(jnp.ones([1, 1]))
    assert np.all(np.isfinite(slope))


HALF = jnp.ones(2, jnp.bfloat16)
F32 = jnp.ones(2, jnp.float32)
POPART = rlx.PopArtState(F32, F32, F32)
SPEC = types.SimpleNamespace(minimum=np.float64(-1.0), maximum=np.float32(1.0))
STEP = rlx.replay.Transition(F32, F32, jnp.ones(2, jnp.int32), jnp.ones(2, bool), F32)
NUMBERS = rlx.LagrangePenalty(1.0, 0.5)
HALF_AND_SETTINGS = {
    "popart": lambda: rlx.normalize(POPART, HALF, 0),
    "popart_linear": lambda: rlx.unnormalize_linear(POPART, HALF, 0).normalized,
    "softmax": lambda: rlx.softmax(np.float32(0.5)).kl(HALF, HALF),
    "entropy": lambda: rlx.clipped_entropy_softmax(np.float32(0.5), np.float32(0.5)).entropy(HALF),
    "squashed": lambda: rlx.squashed_gaussian(np.float32(-4), np.float32(0)).sample(0, HALF, HALF, SPEC),
    "dirichlet": lambda: rlx.add_dirichlet_noise(0, 0.5 * HALF, np.float32(0.3), np.float32(0.25)),
    "distillation": lambda: rlx.sampled_policy_distillation_loss(
        rlx.softmax(logits=HALF), rlx.constant_policy_targets(rlx.softmax(logits=HALF), 0, 3)
    ),
    "statistics": lambda: rlx.running_statistics.normalize(
        rlx.running_statistics.init(HALF), HALF, np.float32(1e-8), np.float16(10.0)
    ),
    "vmpo": lambda: rlx.vmpo_loss(-HALF, HALF, rlx.LagrangePenalty(HALF[0], HALF[0]), [])[0],
    "vmpo of numbers": lambda: rlx.vmpo_loss(-HALF, HALF, NUMBERS, [(HALF, NUMBERS)])[0],
    "mpo of numbers": lambda: rlx.mpo_loss(-HALF, HALF, NUMBERS, [(HALF[0], NUMBERS)])[0],
}
DOUBLE_ALLOWED = {
    "percentiles": lambda: rlx.percentile_range(F32[0], F32),
    "hl_gauss": lambda: rlx.classification_value_loss(F32, F32[0], rlx.hl_gauss_pair(-1.0, 1.0, 2)),
    "vmpo": lambda: rlx.vmpo_loss(-F32, F32, rlx.LagrangePenalty(F32[0], F32[0]), [])[0],
    "ema": lambda: rlx.EmaState(F32[0], F32[0], jnp.zeros(())).debiased_moments().mean,
    "popart": lambda: rlx.normalize(rlx.popart(2, 0.1, 1e-3, 1e3)[0](), F32, 0),
    "memory": lambda: rlx.episodic_memory_intrinsic_rewards(F32[None], 1, 1.0, max_memory_size=2)[0],
    "subsequences": lambda: rlx.extract_subsequences(F32[None], jnp.zeros([2, 1], jnp.int32), 2),
    "n_step": lambda: rlx.replay.n_step(rlx.replay.uniform(4), 2).init(STEP).replay.items.s_t,
    "n_step_add": lambda: _added(rlx.replay.n_step(rlx.replay.uniform(4), 2)),
    "squashed": lambda: rlx.squashed_gaussian(np.float64(-4), np.float64(0)).sample(0, F32, F32, SPEC),
}


def _added(replay):
    return replay.add(replay.init(STEP), STEP).replay.items.s_t


@pytest.mark.parametrize("name", HALF_AND_SETTINGS)
def test_half_precision_with_statistics_and_settings_of_single(name):
    """Where JAX does not promote too; what is not a setting, such as the state of PopArt, is promoted."""
    with jax.numpy_dtype_promotion("strict"):
        dtype = jax.eval_shape(HALF_AND_SETTINGS[name]).dtype
    assert dtype == (jnp.float32 if name in ("popart", "distillation") else jnp.bfloat16)


BFLOAT = functools.partial(jnp.asarray, dtype=jnp.bfloat16)
SETTINGS_IN_HALF = {  # by a function that is given a way to make settings, exact in half precision
    "two_hot": lambda of: rlx.transform_to_2hot(HALF / 4, of(-2.0), of(2.0), 5),
    "hl_gauss": lambda of: rlx.transform_to_hl_gauss(HALF / 4, of(-2.0), of(2.0), 5, of(0.5)),
    "art": lambda of: rlx.art(POPART, 3 * HALF, jnp.array([0, 1]), of(0.5), of(0.25), of(0.5)),
    "ema": lambda of: rlx.create_ema(of(0.5))[1](HALF, rlx.create_ema(of(0.5))[0](HALF)),
    "classes": lambda of: rlx.classification_value_loss(BFLOAT(np.arange(5)), of(1.5), rlx.hl_gauss_pair(-2.0, 2.0, 5)),
}


@pytest.mark.parametrize("name", SETTINGS_IN_HALF)
def test_settings_in_half_precision_are_as_numbers(name):
    """What is computed in single precision takes them where JAX does not promote too, and returns the same dtypes."""
    with jax.numpy_dtype_promotion("strict"):
        found, expected = (SETTINGS_IN_HALF[name](of) for of in (BFLOAT, float))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", DOUBLE_ALLOWED)
def test_single_precision_where_double_is_the_default(name):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        dtype = jax.eval_shape(DOUBLE_ALLOWED[name]).dtype
    assert dtype == (jnp.float64 if name == "popart" else jnp.float32)


def test_slopes_of_off_policy_returns_mapped_over_another_axis():
    """JAX fits a derivative rule into a map by the axes of its value, which have to be those that the rule returns."""
    rng = np.random.default_rng(0)
    q_t, pi_t = (rng.uniform(size=(3, 2, 4)).astype(np.float32) for _ in range(2))
    a_t, r_t = np.array([[0, 1], [2, 3], [1, 0]]), rng.uniform(size=(3, 2)).astype(np.float32)

    def total(q_t, pi_t, axis):
        function = jax.vmap(rlx.general_off_policy_returns_from_action_values, in_axes=axis)
        others = (np.moveaxis(x, 1, axis) for x in (a_t, r_t, 0.9 * r_t, r_t))
        return jnp.sum(jnp.square(function(jnp.moveaxis(q_t, 1, axis), *others, jnp.moveaxis(pi_t, 1, axis))))

    slopes = [jax.grad(total, (0, 1))(q_t, pi_t, axis) for axis in (0, 1)]
    for found, expected in zip(*slopes, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda: rlx.softmax().logprob(jnp.array([0, 1]), jnp.ones([3, 4])), "softmax.logprob: argument `sample`"),
        (lambda: rlx.epsilon_greedy(0.1).logprob(jnp.array([0, 1]), jnp.ones([3, 4])), "argument `sample`"),
        (lambda: rlx.clipped_entropy_softmax(1.0, jnp.ones(3)).entropy(jnp.ones([2, 4])), "argument `entropy_clip`"),
        (lambda: rlx.obgd().update(ONES, rlx.obgd().init(jnp.ones(3)), td_error=1.0), "obgd: argument `updates`"),
        (lambda: _distilled(jnp.ones(3)), "argument `policy_targets.weights`"),
        (lambda: _distilled(None), "argument `policy_targets.weights` is None"),
    ],
)
def test_shapes_that_do_not_go_together_are_named(call, named):
    with pytest.raises(rlx.ArgumentError, match=named):
        call()


def _distilled(weights):
    target = rlx.PolicyTarget(actions=jnp.array([0, 1]), weights=weights)
    return rlx.sampled_policy_distillation_loss(rlx.softmax(logits=ONES), target)


@pytest.mark.parametrize(
    "call",
    [
        lambda state, x: rlx.running_statistics.update(state, x),
        lambda state, x: rlx.running_statistics.merge(state, state),
        lambda state, x: rlx.running_statistics.normalize(state, x),
        lambda state, x: rlx.running_statistics.unnormalize(state, x),
    ],
)
def test_running_statistics_that_were_loaded_as_numbers(call):
    state = rlx.running_statistics.RunningStatistics(2.0, 1.0, 4.0)
    loaded = jax.eval_shape(lambda: call(state, 3.0))
    own = jax.eval_shape(call, jax.tree.map(jnp.asarray, state), 3.0)
    assert jax.tree.map(lambda x: x.shape, loaded) == jax.tree.map(lambda x: x.shape, own)


def test_quotients_of_logits_that_overflow_in_half_precision():
    """60000 / 0.01 and 59000 / 0.01 are both infinite in float16, in which operators do not compute."""
    logits = jnp.array([60000.0, 59000.0, -60000.0], jnp.float16)
    np.testing.assert_array_equal(rlx.categorical_kl_divergence(logits, logits, 0.01), 0.0)
    penalty = rlx.LagrangePenalty(jnp.array(0.01, jnp.float16), 0.0)
    _, weights, _ = rlx.mpo_compute_weights_and_temperature_loss(logits, penalty, lambda x: x)
    np.testing.assert_array_equal(weights, [1.0, 0.0, 0.0])
    loss, weights, _ = rlx.vmpo_compute_weights_and_temperature_loss(logits, None, None, penalty, lambda x: x, 1.0)
    np.testing.assert_array_equal(weights, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(loss, 60000.0, rtol=1e-3)


def test_soft_actor_critic_of_numbers_keeps_half_precision():
    q = jnp.ones(2, jnp.bfloat16)
    for temperature in (0.0, 0.5):
        assert rlx.sac_actor_loss(q, -1.0, temperature).dtype == jnp.bfloat16


def test_obgd_of_half_precision_settings_where_promotion_is_strict():
    half = jnp.array(0.5, jnp.bfloat16)
    with jax.numpy_dtype_promotion("strict"):
        optimizer = rlx.obgd(half, half, half, half)
        gradient = {"w": jnp.ones(2)}
        updates, _ = optimizer.update(gradient, optimizer.init(gradient), td_error=jnp.array(1.0))
    np.testing.assert_allclose(updates["w"], 0.5)  # 0.5 / max(0.5 * 0.5 * 1 * 2, 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_small_integers_are_actions_among_many(dtype):
    """Of 300 actions, which these dtypes cannot count: JAX's own gradients of what they pick are 0, or crash."""
    action, rng = np.array(90, dtype), np.random.default_rng(0)
    logits, (r, discount) = rng.normal(size=300).astype(np.float32), (np.float32(0.5), np.float32(0.9))
    one = np.arange(300) == 90
    np.testing.assert_array_equal(
        jax.grad(lambda q: rlx.q_learning(q, action, r, discount, logits))(logits), -1.0 * one
    )
    np.testing.assert_array_equal(jax.grad(lambda x: rlx.batched_index(x, action))(logits), one)
    gradient = jax.grad(lambda x: rlx.policy_gradient_loss(x[None], action[None], np.ones(1, np.float32), np.ones(1)))
    softmax = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(gradient(logits), softmax - one, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(rlx.softmax().logprob(action, logits), np.log(softmax[90]), rtol=1e-5)
    assert rlx.fix_step_type_on_interruptions(np.array([0, 1, 0], dtype)).dtype == dtype
    assert rlx.periodic_update(1.0, 0.0, steps=np.array(44, dtype), update_period=300) == 0  # 300 % 256 is 44
