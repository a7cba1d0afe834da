"""What programs seldom ask for, and find when they do."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.core.recurrence import backward, backward_in_windows

pytestmark = pytest.mark.unoptimised

FEATURES = np.array([[1.0, -2.0], [3.0, 1.0], [-1.0, 4.0]], np.float32)


def test_rewards_of_features():
    before, after = FEATURES[:-1], FEATURES[1:]
    expected = {
        "feature": after,
        "absolute_change": np.abs(after - before),
        "increase": after - before,
        "decrease": before - after,
    }
    for kind, rewards in expected.items():
        np.testing.assert_allclose(rlx.feature_control_rewards(FEATURES, kind), rewards)
    np.testing.assert_allclose(rlx.feature_control_rewards(FEATURES), expected["absolute_change"])
    for discount in (0.5, np.array([0.5, 0.25], np.float32), np.array([[0.5, 0.25], [1.0, 0.0]], np.float32)):
        found = rlx.feature_control_rewards(FEATURES, "potential", discount)
        np.testing.assert_allclose(found, discount * after - before)
    with pytest.raises(rlx.OptionError, match="`discount` is None"):
        rlx.feature_control_rewards(FEATURES, "potential")


def test_a_loss_of_pixels_with_values_of_other_cells():
    with pytest.raises(rlx.ShapeError, match=r"`action_values` has \[2, 1\] cells, expected \[1, 1\]"):
        rlx.pixel_control_loss(jnp.zeros([2, 2, 2, 1]), jnp.array([0]), jnp.zeros([2, 2, 1, 3]), 0.9, 2)


def test_rewards_of_features_with_a_discount_for_each_step():
    features, discount = np.arange(6.0).reshape(3, 2), np.array([[0.5], [0.25]])
    found = rlx.feature_control_rewards(features, "potential", discount)
    np.testing.assert_allclose(found, [[0.5 * 2 - 0, 0.5 * 3 - 1], [0.25 * 4 - 2, 0.25 * 5 - 3]])


def test_subsequences_that_start_before_the_end():
    found = rlx.extract_subsequences(jnp.arange(5)[:, None], jnp.array([[-3, 4]]), 2)
    assert found[:, 0].tolist() == [[2, 4], [3, 4]]


def test_subsequences_that_start_too_late():
    with pytest.raises(rlx.ShapeError, match=r"has length 5\. Expected len >= 6"):
        rlx.extract_subsequences(jnp.arange(5)[:, None], jnp.array([[0]]), 3, max_valid_start_idx=3)
    assert rlx.extract_subsequences(jnp.arange(5)[:, None], jnp.array([[2]]), 3, max_valid_start_idx=2).tolist() == [
        [[2]],
        [[3]],
        [[4]],
    ]


def test_trees_that_do_not_go_together():
    assert rlx.tree_map_zipped(lambda x, y: x + y, []) == rlx.tree_split_leaves([]) == []
    with pytest.raises(rlx.ArgumentError, match=r"nests\[1\] is .* expected .* as in nests\[0\]"):
        rlx.tree_map_zipped(lambda x, y: x, [{"a": 1}, {"b": 1}])
    with pytest.raises(rlx.ArgumentError, match=r"leaves of lengths \[2, 3\] along axis 0"):
        list(rlx.tree_split_leaves({"a": np.ones(2), "b": np.ones(3)}))


def test_a_record_has_no_other_fields():
    state = rlx.create_ema(0.9)[0](jnp.zeros(()))
    assert dict(state) and state["mu"] == 0
    with pytest.raises(KeyError):
        state["nothing"]


def test_averages_over_devices():
    start, update = rlx.create_ema(0.5, pmean_axis_name="i")
    x = jnp.array([[1.0, 3.0], [5.0, 7.0]])
    moments, _ = jax.vmap(lambda x: update(x, start(x)), axis_name="i")(x)
    np.testing.assert_allclose(moments.mean, [4.0, 4.0])  # of both, not 2 and 6


@pytest.mark.parametrize(("certain", "slope"), [(0.0, 1.0), (1.0, -1.0)])
def test_a_certain_and_right_prediction_costs_nothing(certain, slope):
    """-(t log p + (1 - t) log(1 - p)), of which the term that t switches off is dropped, its slope 1/(1-p) or -1/p."""
    value, gradient = jax.value_and_grad(rlx.log_loss)(certain, certain)
    assert value == 0 and gradient == slope
    assert rlx.log_loss(1 - certain, certain) == np.inf
    second = jax.grad(jax.grad(rlx.log_loss))(certain, certain)
    assert second == 1.0  # 1/(1-p)² or 1/p²


def test_a_name_that_is_nearly_one():
    with pytest.raises(AttributeError, match=r"no attribute 'q_learnin'. Did you mean: 'q_learning'") as error:
        _ = rlx.q_learnin
    assert error.value.obj is None
    with pytest.raises(AttributeError, match=r"no attribute '_q_learning'$") as error:
        _ = rlx._q_learning
    assert error.value.obj is rlx


def test_the_loss_of_a_prediction_and_a_target_of_0_has_no_slope_in_the_target():
    assert jax.grad(rlx.log_loss, argnums=1)(0.0, 0.0) == 0


def test_the_divergence_to_the_mixture_is_by_default_that_of_equal_shares():
    p, q = np.array([0.2, 0.8]), np.array([0.6, 0.4])
    m = (p + q) / 2
    expected = (np.sum(p * np.log(p / m)) + np.sum(q * np.log(q / m))) / 2
    found = rlx.generalized_jensen_shannon_divergence(jnp.log(p), jnp.log(q))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_density_of_a_gaussian_is_over_the_last_axis_whatever_comes_before():
    rng = np.random.default_rng(5)
    sample, mean, deviation = rng.normal(size=[4, 2, 3]), rng.normal(size=[4, 2, 3]), rng.uniform(1, 2, [4, 2, 3])
    densities = np.exp(-(((sample - mean) / deviation) ** 2) / 2) / (deviation * np.sqrt(2 * np.pi))
    arrays = [jnp.float32(x) for x in (sample, mean, deviation)]
    found = rlx.gaussian_diagonal().logprob(*arrays)
    np.testing.assert_allclose(found, np.log(densities).sum(-1), rtol=1e-4)
    np.testing.assert_allclose(rlx.gaussian_diagonal().logprob(*(x[0, 0] for x in arrays)), found[0, 0], rtol=1e-6)


def test_the_sign_of_a_deviation_does_not_count():
    mean, deviation, sample = jnp.array([[0.5, -1.0]]), jnp.array([[-0.5, 2.0]]), jnp.array([[0.1, 0.2]])
    policy, parameters = rlx.gaussian_diagonal(), ((mean, deviation), (mean, jnp.abs(deviation)))
    for call in (
        lambda mu, sigma: policy.logprob(sample, mu, sigma),
        policy.entropy,
        policy.kl_to_standard_normal,
        lambda mu, sigma: policy.kl(mu, sigma, mu, -sigma),
        lambda mu, sigma: rlx.multivariate_normal_kl_divergence(mu, sigma, 2 * mu, sigma),
    ):
        either, positive = (call(*x) for x in parameters)
        np.testing.assert_allclose(either, positive, rtol=1e-6)
    slopes = [jax.grad(lambda mu, sigma: policy.logprob(sample, mu, sigma).sum(), 1)(*x) for x in parameters]
    np.testing.assert_allclose(slopes[0], np.sign(deviation) * slopes[1], rtol=1e-6)


def test_actions_without_a_specification_are_between_minus_one_and_one():
    spec = types.SimpleNamespace(minimum=-np.ones(2), maximum=np.ones(2))
    mu, sigma, action = jnp.array([0.3, 2.0]), jnp.zeros(2), jnp.array([0.5, -0.25])
    for policy in (rlx.squashed_gaussian(), rlx.squashed_gaussian(mu=mu, sigma=sigma)):
        sampled, wanted = (policy.sample(jax.random.key(0), mu, sigma, x) for x in (None, spec))
        np.testing.assert_allclose(sampled, wanted, rtol=1e-6)
        np.testing.assert_allclose(policy.logprob(action, mu, sigma), policy.logprob(action, mu, sigma, spec), 1e-6)


def test_the_gradient_of_a_tree_is_clipped_leaf_by_leaf():
    def loss(tree):
        return sum(jnp.sum(x * x) for x in jax.tree.leaves(rlx.clip_gradient(tree, -1.0, jnp.array([1.0, 2.0]))))

    grads = jax.grad(loss)({"a": jnp.array([3.0, 0.25]), "b": (jnp.array([[-3.0, 3.0]]),)})
    assert jax.tree.map(np.ndarray.tolist, jax.tree.map(np.asarray, grads)) == {"a": [1.0, 0.5], "b": ([[-1.0, 2.0]],)}
    for wrong, what in (({"a": 1}, r"`x\['a'\]` has dtype int32"), ((1.0, None), r"`x\[1\]` is None")):
        with pytest.raises(rlx.DTypeError, match=rf"^clip_gradient: argument {what}"):
            rlx.clip_gradient(wrong, -1.0, 1.0)


def test_several_layers_keep_their_outputs_when_statistics_change():
    rng = np.random.default_rng(3)
    w, b = rng.normal(size=[5, 4, 2]), rng.normal(size=[5, 1, 2])
    old, new = (rlx.PopArtState(*rng.uniform(1, 2, [3, 2])) for _ in range(2))
    x = rng.normal(size=[5, 3, 4])
    changed = rlx.pop({"w": w, "b": b}, old, new)
    after = (x @ np.asarray(changed["w"]) + np.asarray(changed["b"])) * new.scale + new.shift
    np.testing.assert_allclose(after, (x @ w + b) * old.scale + old.shift, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale, dtype", [
    (2, np.float32), (np.array(2), np.float32), (jnp.bfloat16(2), jnp.bfloat16), (np.full([3, 1], 2.0), np.float32),
])  # fmt: skip
def test_weights_of_targets_have_the_dtype_of_their_scale(scale, dtype):
    found = rlx.constant_policy_targets(rlx.softmax(logits=jnp.zeros([2, 4])), jax.random.key(0), 3, scale).weights
    np.testing.assert_array_equal(found, np.full([3, 2], 2.0))
    assert found.dtype == dtype


def test_targets_of_a_policy_may_be_anything_with_actions_and_weights():
    policy = rlx.softmax(logits=jnp.array([[0.0, 1.0], [2.0, 0.0]]))
    parts = {"actions": np.array([[0, 1]]), "weights": np.array([[1.0, 0.5]])}
    kinds = (types.SimpleNamespace, rlx.PolicyTarget)
    np.testing.assert_array_equal(*(rlx.sampled_policy_distillation_loss(policy, kind(**parts)) for kind in kinds))


@pytest.mark.parametrize("replay, key", [
    (rlx.replay.uniform(4), ()),
    (rlx.replay.prioritised(4, exponent=0.6, beta=0.4), ()),
    (rlx.replay.reservoir(4), (0,)),
])  # fmt: skip
def test_one_item_is_enough_for_one(replay, key):
    state = replay.add(replay.init(0.0, *map(jax.random.key, key)), 1.0)
    assert replay.can_sample(state) and not replay.can_sample(state, 2)


def test_a_function_of_trees_is_one_of_their_leaves():
    scaled = rlx.tree_fn(lambda x, y, scale: scale * (x + y), scale=10)
    assert scaled({"a": 1, "b": (2,)}, {"a": 3, "b": (4,)}) == {"a": 40, "b": (60,)}


TOO_FLAT = {
    "categorical_sample: argument `probs` has rank 0": lambda: rlx.categorical_sample(jax.random.key(0), 0.5),
    "kl_constraint_loss: argument `kl` has rank 0": lambda: rlx.kl_constraint_loss(
        0.5, rlx.LagrangePenalty(alpha=jnp.ones([]), epsilon=0.5, per_dimension=True), abs
    ),
    "embed_oar: argument `num_actions` is 0": lambda: rlx.embed_oar(FEATURES, np.zeros(3, int), np.zeros(3), 0),
}


@pytest.mark.parametrize("text", TOO_FLAT)
def test_what_has_no_axis_of_actions_or_dimensions(text):
    with pytest.raises(rlx.ArgumentError, match=f"^{text}"):
        TOO_FLAT[text]()


def test_discounts_are_stretched_by_a_logarithm_and_back():
    x = np.array([0.1, 0.9, 0.99])
    stretched = rlx.DISCOUNT_TRANSFORM_PAIR.apply(x)
    np.testing.assert_allclose(stretched, -np.log(1 - x), rtol=1e-5)
    np.testing.assert_allclose(rlx.DISCOUNT_TRANSFORM_PAIR.apply_inv(stretched), x, rtol=1e-5)


def test_a_density_is_that_of_its_logarithm():
    spec = types.SimpleNamespace(minimum=np.float32(-2), maximum=np.float32(2))
    for policy in (rlx.gaussian_diagonal(), rlx.squashed_gaussian(action_spec=spec)):
        given = np.array([0.5, -0.25]), np.array([0.1, 0.2]), np.array([0.5, 0.25])
        np.testing.assert_allclose(policy.prob(*given), np.exp(policy.logprob(*given)), rtol=1e-6)


def test_nothing_was_counted_before_a_memory_is_used():
    _, *counted = rlx.IntrinsicRewardState(np.zeros([4, 2])).__dict__.values()
    assert counted == [0, 0, 0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint32, np.float16, jnp.bfloat16])
def test_an_index_of_few_bits_is_one_class_of_many(dtype):
    index = jnp.asarray(3, dtype)
    np.testing.assert_array_equal(np.flatnonzero(rlx.one_hot(index, 3000)), [3])
    if jnp.issubdtype(dtype, np.integer):
        joined = rlx.embed_oar(jnp.zeros((1, 2)), index[None], jnp.zeros(1), 300)
        np.testing.assert_array_equal(np.flatnonzero(joined), [2 + 3])
    else:
        np.testing.assert_array_equal(np.flatnonzero(rlx.one_hot(jnp.asarray(2048, dtype), 3000)), [2048])


def test_an_entropy_is_clipped_by_default_at_that_of_a_uniform_policy():
    logits = jnp.array([1.0, 0.0, -1.0])
    probs = np.exp([1.0, 0.0, -1.0]) / np.exp([1.0, 0.0, -1.0]).sum()
    policy = rlx.clipped_entropy_softmax()
    np.testing.assert_allclose(policy.probs(logits), probs, rtol=1e-6)
    np.testing.assert_allclose(policy.entropy(logits), -np.sum(probs * np.log(probs)), rtol=1e-6)
    np.testing.assert_allclose(policy.entropy(jnp.zeros(3)), np.log(3), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_dirichlet_noise_on_one_policy_and_on_several(shape):
    key, prior = jax.random.key(0), np.broadcast_to(np.array([0.5, 0.3, 0.2], np.float32), (*shape, 3))
    noise = jax.random.dirichlet(key, np.full(3, 0.3, np.float32), shape)
    np.testing.assert_allclose(rlx.add_dirichlet_noise(key, prior, 0.3, 0.25), 0.75 * prior + 0.25 * noise, rtol=1e-6)


@pytest.mark.parametrize("alpha", [np.array([0.1, 1.0, 3.0]), np.array([0.3])])
def test_dirichlet_noise_of_unlike_actions(alpha):
    key, prior = jax.random.key(0), jnp.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    noise = jax.random.dirichlet(key, jnp.broadcast_to(jnp.float32(alpha), [3]), [2])
    np.testing.assert_allclose(rlx.add_dirichlet_noise(key, prior, alpha, 1.0), noise, rtol=1e-6)


def test_a_multiplier_that_is_a_whole_number_takes_the_dtype_of_what_it_multiplies():
    x, constraint = jnp.ones([2], jnp.bfloat16), rlx.LagrangePenalty(1, 0.5)
    losses = [rlx.mpo_loss(-x, x, constraint, [])[0], rlx.vmpo_loss(-x, x, constraint, [])[0]]
    losses += rlx.kl_constraint_loss(x, constraint, abs)
    assert [loss.dtype for loss in losses] == [jnp.bfloat16] * 5


def test_an_example_that_restarts_does_not_overflow_beside_very_bad_ones():
    advantages, restarting = np.array([7.0, -1000.0, -1001.0]), np.array([0.0, 1.0, 1.0])
    constraint = rlx.LagrangePenalty(1.0, 0.1)
    loss, weights, number = rlx.vmpo_compute_weights_and_temperature_loss(
        jnp.asarray(advantages), restarting, None, constraint, lambda x: x, 1.0
    )
    expected = np.exp([0.0, -1.0]) / np.exp([0.0, -1.0]).sum()
    np.testing.assert_allclose(weights, [0, *expected], rtol=1e-6)
    assert number == 2
    np.testing.assert_allclose(loss, 0.1 + np.log(np.mean(np.exp([0.0, -1.0]))) - 1000, rtol=1e-6)


@pytest.mark.parametrize("names", [("i", "j"), ["j", "i"], ()])
def test_the_best_of_examples_that_are_split_over_several_axes(names):
    """The half above the median over all named axes is that of the whole; without a name, that of each part."""
    advantages = np.random.default_rng(5).permutation(24).astype(np.float32).reshape(2, 3, 4)
    constraint = rlx.LagrangePenalty(1.0, 0.1)

    def weights_of(advantages):
        return rlx.vmpo_loss(-advantages, advantages, constraint, [], axis_name=names)[1].normalized_weights

    found = jax.vmap(jax.vmap(weights_of, axis_name="j"), axis_name="i")(advantages)
    axes = (0, 1, 2) if names else -1
    expected = np.where(advantages >= np.median(advantages, axis=axes, keepdims=True), np.exp(advantages), 0)
    np.testing.assert_allclose(found, expected / expected.sum(axis=axes, keepdims=True), rtol=1e-5)


def test_the_normalizer_of_a_single_sampled_action_is_the_initial_one():
    loss = rlx.sampled_cmpo_loss(jnp.array([-1.5]), jnp.array([0.5]), initial_normalizer=2.0)
    np.testing.assert_allclose(loss, 1.5 * np.exp(0.5) / 2, rtol=1e-6)


def test_targets_of_a_policy_weigh_one_or_nothing_by_default():
    policy = rlx.softmax(logits=jnp.zeros(3))
    for make, scale in ((rlx.constant_policy_targets, 1), (rlx.zero_policy_targets, 0)):
        assert make(policy, 0, 2).weights.tolist() == [scale] * 2
        assert make(policy, 0, 2, weights_scale=0.5).weights.tolist() == [0.5] * 2
        assert make(policy, 0, 0).weights.shape == (0,)


@pytest.mark.parametrize("cell_size", [0, -2, 3, 4])  # of an image of 4 by 6, which each side alone would allow
def test_cells_cover_an_image(cell_size):
    with pytest.raises(ValueError, match=r"`cell_size`.* height 4 and the width 6"):
        rlx.pixel_control_rewards(jnp.zeros([3, 4, 6, 1]), cell_size)
    assert rlx.pixel_control_rewards(jnp.zeros([3, 4, 6, 1]), 2).shape == (2, 2, 3)


@pytest.mark.parametrize("shape", [(3,), (2, 4, 3)])
def test_a_bound_for_each_dimension_is_over_the_last_axis_whatever_comes_before(shape):
    kl, alpha = np.random.default_rng(6).uniform(size=shape).astype(np.float32), np.float32([1, 2, 3])
    penalty = rlx.LagrangePenalty(alpha, 0.5, per_dimension=True)
    loss, dual, _ = rlx.kl_constraint_loss(kl, penalty, lambda x: x)
    np.testing.assert_allclose(loss, (alpha * kl).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(dual, (alpha * (0.5 - kl)).sum(-1), rtol=1e-5, atol=1e-6)


def test_the_entropy_and_divergence_of_mostly_greedy_policies():
    p, q = np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.1, 0.7, 0.1, 0.1])  # ε = 0.4: 0.6 + 0.1, and 0.1 for the others
    policy, preferences = rlx.epsilon_greedy(0.4), jnp.eye(4)
    np.testing.assert_allclose(policy.entropy(preferences[0]), -np.sum(p * np.log(p)), rtol=1e-5)
    np.testing.assert_allclose(policy.kl(preferences[0], preferences[1]), np.sum(p * np.log(p / q)), rtol=1e-5)
    np.testing.assert_allclose(rlx.greedy().entropy(jnp.array([1.0, 1.0, 0.0])), np.log(2), rtol=1e-6)


def test_statistics_of_other_items_are_not_merged():
    one, several = rlx.running_statistics.init(0.0), rlx.running_statistics.init(jnp.zeros(3))
    with pytest.raises(rlx.ShapeError, match=r"merge: argument `other` has axes in front"):
        rlx.running_statistics.merge(one, several)


def test_small_traces_are_followed_by_the_whole_step_that_is_the_default():
    optimizer = rlx.obgd()
    params = {"w": jnp.array([0.01, -0.02])}
    updates, _ = optimizer.update(params, optimizer.init(params), td_error=2.0)
    np.testing.assert_allclose(updates["w"], [0.02, -0.04], rtol=1e-6)  # ‖z‖₁ = 0.03 < 1 / (κ |δ|) = 0.25


def test_a_recurrence_of_several_columns_with_cuts_is_that_of_each():
    r_t, end = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    continues_t = np.array([True, False, True, True, False])

    def found(r_t, end):
        return backward(_halved, (r_t, 0.5), end=end, continues_t=jnp.asarray(continues_t))

    expected = np.zeros_like(r_t)
    for t in reversed(range(5)):
        expected[t] = r_t[t] + 0.5 * (expected[t + 1] if continues_t[t] else end[t])
    np.testing.assert_allclose(found(r_t, end), expected, rtol=1e-6, atol=1e-7)  # one is nearly 0, rounded as its terms


@pytest.mark.parametrize("n", [1, 2, 35, 260, 300])
def test_windows_look_so_many_steps_ahead(n):
    r_t, end = np.random.default_rng(1).normal(size=(2, 260)).astype(np.float32)
    continues_t = np.arange(260) % 37 != 36
    w_t = np.where(continues_t, np.float32(0.5), np.float32(0))
    found = jax.jit(lambda *x: backward_in_windows(*x, n))(np.where(continues_t, r_t, r_t + end / 2), w_t, end)
    expected = np.zeros(260)
    for t in range(260):
        last = next(k for k in range(t, 260) if not continues_t[k] or k == t + n - 1 or k == 259)
        expected[t] = end[last]
        for k in reversed(range(t, last + 1)):
            expected[t] = r_t[k] + 0.5 * expected[t]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _halved(g_t, r_t, discount_t):
    return r_t + discount_t * g_t


NUMBER, EACH_STEP = 0.3, jnp.full([3], 0.3)


@pytest.mark.parametrize(
    ("call", "same"),
    [
        (lambda x: rlx.add_ornstein_uhlenbeck_noise(jax.random.key(0), jnp.ones(3), jnp.arange(3.0), x, 0.2), NUMBER),
        (lambda x: rlx.add_ornstein_uhlenbeck_noise(jax.random.key(0), jnp.ones(3), jnp.arange(3.0), 0.2, x), NUMBER),
        (lambda x: rlx.n_step_bootstrapped_returns(jnp.ones(3), jnp.ones(3), jnp.arange(3.0), 2, x), NUMBER),
        (lambda x: rlx.n_step_bootstrapped_returns(jnp.ones(2), jnp.ones(2), jnp.arange(2.0), 2, x), NUMBER),
        (lambda x: rlx.policy_gradient_loss(FEATURES, jnp.array([0, 1, 0]), jnp.arange(3.0), x), EACH_STEP),
        (lambda x: rlx.entropy_loss(FEATURES, x), EACH_STEP),
        (lambda x: rlx.feature_control_rewards(FEATURES, "potential", x), NUMBER),
    ],
)
def test_one_number_for_all_may_have_one_axis(call, same):
    one = jnp.full([1], 0.3)
    np.testing.assert_array_equal(call(one), call(same))
    assert jax.grad(lambda x: jnp.sum(call(x)))(one).shape == (1,)


@pytest.mark.parametrize("stop", [True, False])
def test_weights_that_mpo_returns_are_as_constant_as_those_in_its_loss(stop):
    """As in RLax: a program may weigh other losses with them."""
    constraint, x = rlx.LagrangePenalty(jnp.array(0.5), 0.1), jnp.array([1.0, 0.5, -0.3])
    more = {"use_stop_gradient": stop}
    p = jax.nn.softmax(x / 0.5)
    slopes = np.zeros([3, 3]) if stop else (jnp.diag(p) - jnp.outer(p, p)) / 0.5
    for weights in (
        lambda q: rlx.mpo_loss(-x, q, constraint, [], **more)[1].normalized_weights,
        lambda q: rlx.vmpo_loss(-x, q, constraint, [], top_k_fraction=1.0, **more)[1].normalized_weights,
        lambda q: rlx.vmpo_compute_weights_and_temperature_loss(q, None, None, constraint, abs, 1.0, **more)[1],
    ):
        np.testing.assert_allclose(jax.jacrev(weights)(x), slopes, rtol=1e-5, atol=1e-6)
