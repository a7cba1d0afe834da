"""What programs seldom ask for, and find when they do."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

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


def test_subsequences_that_start_too_late():
    with pytest.raises(rlx.ShapeError, match=r"has length 5\. Expected len >= 6"):
        rlx.extract_subsequences(jnp.arange(5)[:, None], jnp.array([[0]]), 3, max_valid_start_idx=3)
    assert rlx.extract_subsequences(jnp.arange(5)[:, None], jnp.array([[2]]), 3, max_valid_start_idx=2).tolist() == [
        [[2]],
        [[3]],
        [[4]],
    ]


def test_trees_that_do_not_go_together():
    assert rlx.tree_map_zipped(lambda x, y: x + y, []) == []
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
