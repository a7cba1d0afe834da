"""Keys, states, trees, pairs and functions that are none: an error by name; what is nearly one is taken as meant."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx import running_statistics

pytestmark = pytest.mark.unoptimised

KEY = jax.random.key(0)
ONES = jnp.ones(3)
SPEC = types.SimpleNamespace(minimum=-2.0, maximum=2.0)
UNIFORM, PRIORITISED = rlx.replay.uniform(4), rlx.replay.prioritised(4, 0.6, 0.4)
HELD = UNIFORM.add(UNIFORM.init(0.0), 1.0)
POPART = rlx.PopArtState(jnp.zeros(2), jnp.ones(2), jnp.ones(2))

DRAWS = {
    "add_gaussian_noise": lambda key: rlx.add_gaussian_noise(key, ONES, 0.1),
    "add_ornstein_uhlenbeck_noise": lambda key: rlx.add_ornstein_uhlenbeck_noise(key, ONES, ONES, 0.1, 0.1),
    "add_dirichlet_noise": lambda key: rlx.add_dirichlet_noise(key, ONES / 3, 0.3, 0.25),
    "categorical_sample": lambda key: rlx.categorical_sample(key, ONES / 3),
    "smoothed_target_action": lambda key: rlx.smoothed_target_action(key, ONES),
    "sample_start_indices": lambda key: rlx.sample_start_indices(key, 2, 1, 3),
    "tree_split_key": lambda key: rlx.tree_split_key(key, {"a": 1})[1],
    "epsilon_greedy.sample": lambda key: rlx.epsilon_greedy(0.1).sample(key, ONES),
    "softmax.sample": lambda key: rlx.softmax().sample(key, ONES),
    "gaussian_diagonal.sample": lambda key: rlx.gaussian_diagonal(1.0).sample(key, ONES),
    "squashed_gaussian.sample": lambda key: rlx.squashed_gaussian().sample(key, ONES, ONES, SPEC),
    "replay.sample": lambda key: UNIFORM.sample(HELD, key, 2),
    "replay.init": lambda key: rlx.replay.reservoir(2).init(0.0, key),
}
NO_KEYS = [None, "0", 0.5, True, [0, 1], object(), np.ones(2, np.int32), jnp.ones(3, jnp.uint32), 10**40, ONES]
SEVERAL = [jax.random.split(KEY, 3), jax.random.key_data(jax.random.split(KEY, 3)), np.ones((1, 2), np.uint32)]


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_no_key_is_named_and_several_are_to_be_mapped_over(name):
    for key in NO_KEYS:
        with pytest.raises(rlx.ArgumentError, match=rf"^{name}: argument `\w*key`"):
            DRAWS[name](key)
    for keys in SEVERAL:
        with pytest.raises(rlx.RankError, match=rf"^{name}: argument `\w*key` holds {len(keys)} keys, expected one"):
            DRAWS[name](keys)


@pytest.mark.parametrize("name", DRAWS)
def test_one_key_typed_or_raw_traced_or_mapped_over_and_the_number_that_seeds_it_draw_alike(name):
    def plain(drawn):
        leaves = jax.tree.leaves(drawn)
        return [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]

    expected = plain(DRAWS[name](KEY))
    raw = jax.random.key_data(KEY)
    for key in (raw, np.asarray(raw), 0, np.int32(0)):
        jax.tree.map(np.testing.assert_array_equal, plain(DRAWS[name](key)), expected)
    mapped = jax.vmap(lambda key: plain(DRAWS[name](key)))(jnp.stack([KEY, KEY]))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[1], y), mapped, expected)


def test_shapes_of_samples():
    policy = rlx.softmax()
    for shape in (3, (3,), [3], np.array([3])):
        assert policy.sample(KEY, ONES, sample_shape=shape).shape == (3,)
    for wrong in (-1, "3", None, (2.0,), ((2,),)):
        with pytest.raises(rlx.OptionError, match=r"softmax.sample: argument `sample_shape`"):
            policy.sample(KEY, ONES, sample_shape=wrong)
    assert rlx.initial_reward_scale(3).discounted.shape == (3,)
    with pytest.raises(rlx.OptionError, match="initial_reward_scale: argument `shape`"):
        rlx.initial_reward_scale("all")


TREE = {"a": jnp.ones(2), "b": jnp.ones((2, 2))}
SELECTIONS = {
    "tree_select": ("on_true", "on_false", "pred", lambda x, y, p: rlx.tree_select(p, x, y)),
    "conditional_update": ("new_tensors", "old_tensors", "is_time", rlx.conditional_update),
    "periodic_update": ("new_tensors", "old_tensors", None, lambda x, y, p: rlx.periodic_update(x, y, 1, 2)),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_trees_of_which_one_is_selected_are_alike(name):
    first, second, mask, select = SELECTIONS[name]
    for other, error, text in [
        ({"a": jnp.ones(2)}, rlx.ArgumentError, f"`{second}` is the tree"),
        ({**TREE, "a": {"c": jnp.ones(2)}}, rlx.ArgumentError, f"`{second}` is the tree"),
        (list(TREE.values()), rlx.ArgumentError, f"`{second}` is the tree"),
        ({**TREE, "b": jnp.ones(2)}, rlx.ShapeError, rf"`{second}`\['b'\] has shape \[2\], expected shape \[2, 2\]"),
        ({**TREE, "a": jnp.ones(2, int)}, rlx.DTypeError, rf"`{second}`\['a'\] has dtype int32, expected float32"),
        ({**TREE, "a": "ones"}, rlx.DTypeError, rf"`{second}`\['a'\] is a str, expected an array"),
    ]:
        with pytest.raises(error, match=f"^{name}: argument {text}"):
            select(TREE, other, True)
    with pytest.raises(rlx.DTypeError, match=f"^{name}: argument `{first}` is a object"):
        select(object(), object(), True)
    if mask:
        with pytest.raises(rlx.ShapeError, match=rf"^{name}: argument `{mask}` has shape \[2\], .* `{first}`\['b'\]"):
            select(TREE, TREE, jnp.ones(2, bool))
    pair = {**TREE, "none": None}
    jax.tree.map(np.testing.assert_array_equal, select(pair, pair, True), pair)


def test_replacements_have_the_shape_of_what_they_replace():
    data = jnp.zeros((2, 3))
    np.testing.assert_array_equal(rlx.replace_masked(data, 1.0, np.array([True, False])), [[1, 1, 1], [0, 0, 0]])
    for wrong in (jnp.ones(2), jnp.ones((4, 2, 3)), jnp.ones((3, 2))):
        with pytest.raises(rlx.ShapeError, match="replace_masked: argument `replacement` has shape"):
            rlx.replace_masked(data, wrong, np.array([True, False]))
    with pytest.raises(rlx.ArgumentError, match="tree_replace_masked: argument `tree_replacement` is the tree"):
        rlx.tree_replace_masked({"a": data}, {"b": data}, True)
    with pytest.raises(rlx.DTypeError, match="tree_replace_masked: argument `tree_data` is a str"):
        rlx.tree_replace_masked("data", None, True)


def test_axes_of_trees():
    with pytest.raises(rlx.OptionError, match="tree_split_leaves: argument `axis` is 1, expected an axis"):
        rlx.tree_split_leaves({"a": np.ones((2, 2)), "b": np.ones(2)}, axis=1)
    assert len(rlx.tree_split_leaves({"a": np.ones((2, 3)), "b": np.ones(3)}, axis=-1)) == 3
    for move in (rlx.transpose_first_axis_to_last, rlx.transpose_last_axis_to_first):
        with pytest.raises(rlx.RankError, match=rf"{move.__name__}: argument `tree`\['a'\] has rank 0"):
            move({"a": 1.0})


UNUSUAL = {
    "gspo_loss: argument `epsilon_low` is 1000": lambda: rlx.gspo_loss(ONES, ONES, 1.0, epsilon_low=10**400),
    "one_hot: argument `num_classes` is 118": lambda: rlx.one_hot(0, 2**70),
    "softmax.sample: argument `sample_shape` is <class": lambda: rlx.softmax().sample(KEY, ONES, sample_shape=np.int32),
    "softmax.sample: argument `sample_shape` is 118": lambda: rlx.softmax().sample(KEY, ONES, sample_shape=2**70),
    "one_hot: argument `dtype` is 'str'": lambda: rlx.one_hot(0, 2, "str"),
    "tree_split_leaves: argument `keepdim`": lambda: rlx.tree_split_leaves([ONES], keepdim=ONES),
    "constant_policy_targets: argument `weights_scale` is None": lambda: rlx.constant_policy_targets(
        rlx.softmax(logits=ONES), KEY, 2, None
    ),
    r"constant_policy_targets: argument `weights_scale` has shape \[7\]": lambda: rlx.constant_policy_targets(
        rlx.softmax(logits=ONES), KEY, 2, jnp.ones(7)
    ),
    "squashed_gaussian.sample: argument `action_spec.minimum` is None": lambda: rlx.squashed_gaussian().sample(
        KEY, ONES, ONES, types.SimpleNamespace(minimum=None, maximum="a")
    ),
}


@pytest.mark.parametrize("named", UNUSUAL)
def test_unusual_settings_are_named(named):
    with pytest.raises(rlx.ArgumentError, match=f"^{named}"):
        UNUSUAL[named]()


STATES = {
    "art: argument `state`": lambda x: rlx.art(x, ONES, 0, 0.1, 0.1, 10.0),
    "normalize: argument `state`": lambda x: rlx.normalize(x, ONES, 0),
    "unnormalize: argument `state`": lambda x: rlx.unnormalize(x, ONES, 0),
    "unnormalize_linear: argument `state`": lambda x: rlx.unnormalize_linear(x, ONES, 0),
    "pop: argument `params`": lambda x: rlx.pop(x, POPART, POPART),
    "pop: argument `old`": lambda x: rlx.pop({"w": jnp.ones((3, 2)), "b": jnp.ones(2)}, x, POPART),
    "pop: argument `new`": lambda x: rlx.pop({"w": jnp.ones((3, 2)), "b": jnp.ones(2)}, POPART, x),
    "create_ema: argument `state`": lambda x: rlx.create_ema(0.9)[1](ONES, x),
    "obgd: argument `state`": lambda x: rlx.obgd().update({"w": ONES}, x, td_error=1.0),
    "scale_rewards: argument `state`": lambda x: rlx.scale_rewards(x, ONES, 0.9),
    "episodic_memory_intrinsic_rewards: argument `intrinsic_reward_state`": lambda x: (
        rlx.episodic_memory_intrinsic_rewards(jnp.ones((2, 2)), 1, 1.0, x)
    ),
    "running_statistics.update: argument `state`": lambda x: running_statistics.update(x, ONES),
    "running_statistics.normalize: argument `state`": lambda x: running_statistics.normalize(x, ONES),
    "running_statistics.merge: argument `other`": lambda x: running_statistics.merge(running_statistics.init(0.0), x),
    "replay.add: argument `state`": lambda x: UNIFORM.add(x, 0.0),
    "replay.sample: argument `state`": lambda x: PRIORITISED.sample(x, KEY, 2),
    "replay.can_sample: argument `state`": lambda x: UNIFORM.can_sample(x),
    "replay.update_priorities: argument `state`": lambda x: PRIORITISED.update_priorities(x, [0], [1.0]),
    "squashed_gaussian.sample: argument `action_spec`": lambda x: rlx.squashed_gaussian().sample(KEY, ONES, ONES, x),
    "squashed_gaussian: argument `action_spec`": lambda x: rlx.squashed_gaussian(action_spec=x),
    "sampled_policy_distillation_loss: argument `distribution`": lambda x: rlx.sampled_policy_distillation_loss(
        x, rlx.PolicyTarget(ONES, ONES)
    ),
    "sampled_policy_distillation_loss: argument `policy_targets`": lambda x: rlx.sampled_policy_distillation_loss(
        rlx.softmax(logits=ONES), x
    ),
    "constant_policy_targets: argument `distribution`": lambda x: rlx.constant_policy_targets(x, KEY, 2),
    "knn_query: argument `metric`": lambda x: rlx.knn_query(jnp.ones((2, 2)), jnp.ones((2, 2)), 1, x),
    "one_hot: argument `dtype`": lambda x: rlx.one_hot(0, 2, x),
    "tree_fn: argument `fn`": rlx.tree_fn,
    "tree_map_zipped: argument `fn`": lambda x: rlx.tree_map_zipped(x, [1, 2]),
    "transform_values: argument `build_targets`": lambda x: rlx.transform_values(x, 0),
    "lambda_returns: argument `tx_pair`": lambda x: rlx.transform_values(rlx.lambda_returns, 2)(x, ONES, ONES, ONES),
    "unbiased_transform_pair: argument `tx`": lambda x: rlx.unbiased_transform_pair(-1.0, 1.0, 5, x),
    r"compose_tx: argument `tx_list\[1\]`": lambda x: rlx.compose_tx(rlx.IDENTITY_PAIR, x),
}


@pytest.mark.parametrize("named", STATES)
def test_what_is_no_such_structure_or_function_is_named(named):
    for wrong in ({"a": 1}, [1.0], "state", 0.5):
        with pytest.raises(rlx.ArgumentError, match=f"^{named}"):
            STATES[named](wrong)


def test_statistics_of_other_shapes_are_named():
    layer = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    with pytest.raises(rlx.ShapeError, match=r"pop: argument `new.shift` has shape \[3\], expected shape \[2\]"):
        rlx.pop(layer, POPART, rlx.PopArtState(ONES, ONES, ONES))
    with pytest.raises(rlx.ShapeError, match=r"normalize: argument `state.scale` has shape \[3\]"):
        rlx.normalize(rlx.PopArtState(jnp.zeros(2), ONES, jnp.ones(2)), 1.0, 0)
    with pytest.raises(rlx.ArgumentError, match="create_ema: argument `tree` is the tree"):
        rlx.create_ema(0.9)[1]({"a": ONES}, rlx.create_ema(0.9)[0](ONES))
    with pytest.raises(rlx.DTypeError, match="create_ema: argument `template` is a str"):
        rlx.create_ema(0.9)[0]("template")
    with pytest.raises(rlx.DTypeError, match=f"create_ema: argument `tree` is {2**40}, too large a number"):
        rlx.create_ema(0.9)[1](2**40, rlx.create_ema(0.9)[0](0))
    optimizer = rlx.obgd()
    with pytest.raises(rlx.ArgumentError, match="obgd: argument `updates` is the tree"):
        optimizer.update({"v": ONES}, optimizer.init({"w": ONES}), td_error=1.0)


def test_two_of_a_kind_are_named_by_their_own_names():
    gaussian, squashed = rlx.gaussian_diagonal(1.0), rlx.squashed_gaussian()
    for name, call in {
        "gaussian_diagonal.kl: argument `mu_1`": lambda: gaussian.kl(ONES, ONES, None, ONES),
        "gaussian_diagonal.kl: argument `sigma_0`": lambda: gaussian.kl(ONES, "one", ONES, ONES),
        "squashed_gaussian.kl: argument `sigma_1`": lambda: squashed.kl(ONES, ONES, ONES, [1.0]),
        "squashed_gaussian.kl: argument `mu_0`": lambda: squashed.kl(1, ONES, ONES, ONES),
        "epsilon_greedy.kl: argument `q_preferences`": lambda: rlx.greedy().kl(ONES, None),
    }.items():
        with pytest.raises(rlx.ArgumentError, match=f"^{name}"):
            call()
    with pytest.raises(rlx.ShapeError, match=r"epsilon_greedy.kl: argument `q_preferences`"):
        rlx.greedy().kl(ONES, jnp.ones(4))


@pytest.mark.parametrize("name", ["gaussian_diagonal", "squashed_gaussian"])
def test_the_mean_of_a_gaussian_has_an_axis_of_events_in_every_method(name):
    policy, more = getattr(rlx, name)(), (SPEC,) if name == "squashed_gaussian" else ()
    for method, call in {
        "sample": lambda mu: policy.sample(KEY, mu, 1.0, *more),
        "logprob": lambda mu: policy.logprob(1.0, mu, 1.0, *more),
        "entropy": lambda mu: policy.entropy(mu, 1.0),
        "kl_to_standard_normal": lambda mu: policy.kl_to_standard_normal(mu, 1.0),
        "kl": lambda mu: policy.kl(mu, 1.0, ONES, 1.0),
    }.items():
        with pytest.raises(rlx.RankError, match=rf"^{name}\.{method}: argument `mu\w*` has rank 0 .* \[\*E, D\]"):
            call(1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: rlx.epsilon_greedy(x).probs(jnp.ones((3, 3))),
        lambda x: rlx.epsilon_greedy().sample(KEY, jnp.ones((3, 3)), x),
        lambda x: rlx.softmax(x).probs(jnp.ones((3, 3))),
        lambda x: rlx.softmax(x).kl(jnp.ones((3, 3)), jnp.ones((3, 3))),
        lambda x: rlx.categorical_kl_divergence(jnp.ones((3, 3)), jnp.ones((3, 3)), x),
    ],
)
def test_a_number_for_each_row_is_not_taken_for_one_for_each_action(call):
    """With as many rows as actions it would be silently so."""
    for wrong in (jnp.full(3, 0.5), jnp.full((3, 3), 0.5), jnp.full((2, 1), 0.5)):
        with pytest.raises(rlx.ShapeError, match=r"argument `(epsilon|temperature)` has shape .* for each row"):
            call(wrong)
    for right in (0.5, jnp.full((3, 1), 0.5), jnp.full((1, 1), 0.5)):
        call(right)


def test_a_row_with_an_epsilon_of_its_own():
    preferences, epsilon = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[0.0], [0.5]])
    np.testing.assert_allclose(rlx.epsilon_greedy(epsilon).probs(preferences), [[1, 0], [0.25, 0.75]])
    tempered = rlx.softmax(jnp.array([[1.0], [2.0]])).probs(preferences)
    np.testing.assert_allclose(tempered[1], np.exp([0, 0.5]) / np.exp([0, 0.5]).sum(), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (2, 1), (2, 3)])
def test_the_density_of_a_squashed_action_that_stands_for_all_dimensions(shape):
    policy, mu, sigma = rlx.squashed_gaussian(), jnp.array([0.1, -0.2, 0.3]), jnp.array([0.2, 0.1, -0.3])
    action = jnp.full(shape, 0.5)
    whole = jnp.broadcast_to(action, np.broadcast_shapes(shape, (3,)))
    with jax.numpy_rank_promotion("allow"):
        found = policy.logprob(action, mu, sigma, SPEC)
    np.testing.assert_allclose(found, policy.logprob(whole, mu, sigma, SPEC), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
def test_a_squashed_action_outside_of_its_bounds_has_no_density(dtype):
    """Such as one of an action space that was not passed; as rounding leaves it, it counts as just inside."""
    spec, zeros = types.SimpleNamespace(minimum=-0.3, maximum=0.3), jnp.zeros(2, dtype)
    policy = rlx.squashed_gaussian(action_spec=spec)
    rounded = jnp.asarray([0.3, -0.3], dtype)  # in bfloat16, 0.30078
    assert np.isfinite(policy.logprob(rounded, zeros, zeros))
    assert policy.logprob(jnp.asarray([0.1, 0.31], dtype), zeros, zeros) == -np.inf
    assert policy.prob(jnp.asarray([-2.0, 0.1], dtype), zeros, zeros) == 0
    assert np.isnan(policy.logprob(jnp.asarray([np.nan, 0.1], dtype), zeros, zeros))
    slope = jax.grad(lambda mu: jnp.sum(policy.logprob(jnp.full([1, 2], 0.5, dtype), mu, zeros)))(zeros)
    assert np.all(np.isfinite(slope))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float16, jnp.bfloat16])
def test_moving_averages_of_any_kind_of_number(dtype):
    """Squares of small integers wrap around, and an average in half precision does not get near what it averages."""
    values = np.array([100, 104, 108, 120])
    x = jnp.asarray(values, dtype)
    initial_state, update = rlx.create_ema(0.99)
    step = jax.jit(update)
    state = initial_state(x)
    mu = nu = 0.0
    for _ in range(50):
        moments, state = step(x, state)
        mu, nu = 0.99 * mu + 0.01 * values.mean(), 0.99 * nu + 0.01 * np.mean(values**2)
    weight = 1 - 0.99**50
    np.testing.assert_allclose(moments.mean, mu / weight, rtol=1e-4)
    np.testing.assert_allclose(moments.variance, nu / weight - (mu / weight) ** 2, rtol=1e-2)


def test_statistics_of_targets_in_half_precision_are_those_of_their_values():
    targets = np.array([100.0, 101.0, 99.0, 100.0])
    state = rlx.PopArtState(jnp.array([100.0]), jnp.ones(1), jnp.array([10000.0]))
    found = rlx.art(state, jnp.asarray(targets, jnp.bfloat16), jnp.zeros(4, int), 0.25, 1e-3, 1e3)
    np.testing.assert_allclose(found.second_moment, [np.mean(targets**2)], rtol=1e-7)
    np.testing.assert_allclose(found.scale, [np.std(targets)], rtol=1e-2)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_statistics_that_are_half_precision_themselves_take_large_batches(dtype):
    """The sum of 64 squares of 200 is no float16, and in bfloat16 that of 64 targets is 3 % too small."""
    state = rlx.PopArtState(*jnp.array([[0.0], [1.0], [1.0]], dtype))
    found = rlx.art(state, jnp.full(64, 200.0, dtype), jnp.zeros(64, int), 1 / 64, 1e-3, 1e3)
    assert {x.dtype for x in found} == {jnp.dtype(dtype)}
    expected = np.array([[200.0], [1e-3], [4e4]])
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=float(jnp.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32, jnp.int32])
def test_a_layer_keeps_its_floats_under_other_statistics_and_whole_numbers_become_some(dtype):
    layer = {"w": jnp.ones((3, 2), dtype), "b": jnp.ones(2, dtype)}
    made = jax.eval_shape(lambda: rlx.pop(layer, POPART, POPART))
    assert {x.dtype for x in made.values()} == {np.dtype(jnp.float32 if dtype == jnp.int32 else dtype)}


def test_transformed_functions_take_arguments_as_the_functions_do():
    r_t, discount_t, v_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([4.0, 8.0])
    pair = rlx.SIGNED_HYPERBOLIC_PAIR
    expected = rlx.transformed_lambda_returns(pair, r_t, discount_t, v_t, 0.5)

    def of_any(*args):
        return rlx.lambda_returns(*args)

    half = functools.partial(rlx.lambda_returns, lambda_=0.5)
    for build, at, args in [
        (rlx.lambda_returns, 2, (r_t, discount_t, v_t, 0.5)),
        (of_any, 2, (r_t, discount_t, v_t, 0.5)),
        (of_any, -2, (r_t, discount_t, v_t, 0.5)),
        (half, -1, (r_t, discount_t, v_t)),
    ]:
        np.testing.assert_allclose(rlx.transform_values(build, at)(pair, *args), expected, rtol=1e-6)
    named = rlx.transform_values(rlx.lambda_returns, 2)(pair, r_t, discount_t, v_t=v_t, lambda_=0.5)
    np.testing.assert_allclose(named, expected, rtol=1e-6)
    with pytest.raises(TypeError):  # and does not leave out what is too many
        rlx.transform_values(lambda x, y: x, 0)(pair, r_t, r_t, r_t)


def test_a_projection_may_return_a_plain_number():
    penalty = rlx.LagrangePenalty(1.0, 0.1)
    kl_loss, alpha_loss, alpha = rlx.kl_constraint_loss(jnp.array([0.5]), penalty, lambda _: 2.0)
    np.testing.assert_allclose([kl_loss[0], alpha_loss[0], alpha], [1.0, 2.0 * (0.1 - 0.5), 2.0], rtol=1e-6)
    _, weights, _ = rlx.mpo_compute_weights_and_temperature_loss(jnp.array([0.0, 2.0]), penalty, lambda _: 2.0)
    np.testing.assert_allclose(weights, np.exp([0, 1]) / np.exp([0, 1]).sum(), rtol=1e-6)


MAPPED = {
    "percentile_range": lambda name: rlx.percentile_range(0.0, ONES, axis_name=name),
    "normalized_advantages": lambda name: rlx.normalized_advantages(ONES, axis_name=name),
    "get_top_k_weights": lambda name: rlx.get_top_k_weights(0.5, ONES, ONES, axis_name=name),
    "scale_rewards": lambda name: rlx.scale_rewards(rlx.initial_reward_scale([3]), ONES, ONES, axis_name=name)[0],
    "vmpo_loss": lambda name: rlx.vmpo_loss(ONES, ONES, rlx.LagrangePenalty(1.0, 0.5), [], axis_name=name)[0],
    "art": lambda name: rlx.art(POPART, ONES, jnp.array([0, 1, 0]), 0.5, 0.1, 9.0, axis_name=name)[0],
    "AllSum": lambda name: rlx.AllSum(name)(ONES),
    "running_statistics.update": lambda name: running_statistics.update(running_statistics.init(0.0), ONES, None, name),
    "create_ema": lambda name: rlx.create_ema(0.9, name)[1](ONES, rlx.create_ema()[0](ONES))[0].mean,
}


@pytest.mark.parametrize("name", MAPPED)
def test_an_axis_that_is_not_mapped_is_named(name):
    for wrong in ("i", ("i", "j"), ["other"], 0, True, 1.5, object(), np.ones(2), {}, {"i"}):
        with pytest.raises(
            rlx.OptionError, match=rf"^{name}: argument `\w*axis_name` is .*, expected the `axis_name` of"
        ):
            MAPPED[name](wrong)
    for right in ("i", ("i",), ["i"]):
        jax.eval_shape(jax.vmap(lambda _: MAPPED[name](right), axis_name="i"), jnp.ones(2))  # noqa: B023
    jax.eval_shape(lambda: MAPPED[name](None))
