"""What in RLax is not a function of arrays alone, against RLax: distributions, MPO, PopArt, memories, trees, noise."""

import functools
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    rlax = pytest.importorskip("rlax", reason="compares with RLax, which is not installed")

pytestmark = [
    pytest.mark.unoptimised,
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

SPEC = types.SimpleNamespace(minimum=np.array([-2.0, -1.0], np.float32), maximum=np.array([2.0, 3.0], np.float32))


@pytest.fixture(autouse=True)
def promotion():
    with jax.numpy_rank_promotion("allow"):  # RLax needs it
        yield


def slow(*cases):
    """Those whose values and gradients the tests of operators compare with an oracle by default."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def same(ours, theirs, tolerance=2e-5):
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "make",
    [
        lambda lib: lib.greedy(),
        lambda lib: lib.epsilon_greedy(0.3),
        lambda lib: lib.softmax(0.7),
        lambda lib: lib.clipped_entropy_softmax(0.7, 0.5),
    ],
    ids=["greedy", "epsilon_greedy", "softmax", "clipped_entropy_softmax"],
)
def test_discrete_policies(make):
    ours, theirs = make(rlx), make(rlax)
    logits, actions = jnp.round(normal(50, 4), 1), jnp.asarray(np.arange(50) % 4)
    key = jax.random.PRNGKey(3)
    np.testing.assert_array_equal(ours.sample(key, logits), theirs.sample(key, logits))
    same(ours.probs(logits), theirs.probs(logits))
    same(ours.logprob(actions, logits), theirs.logprob(actions, logits))
    same(ours.entropy(logits), theirs.entropy(logits))
    if theirs.kl is not None:
        same(ours.kl(logits, logits[::-1]), theirs.kl(logits, logits[::-1]))


def test_gaussian_policies():
    ours, theirs, key = rlx.gaussian_diagonal(), rlax.gaussian_diagonal(), jax.random.PRNGKey(1)
    mu, sigma, x = normal(5, 2), jnp.exp(normal(5, 2, seed=1)), normal(5, 2, seed=2)
    same(ours.sample(key, mu, sigma), theirs.sample(key, mu, sigma))
    for method in ("prob", "logprob"):
        same(getattr(ours, method)(x, mu, sigma), getattr(theirs, method)(x, mu, sigma))
    for method in ("entropy", "kl_to_standard_normal"):
        same(getattr(ours, method)(mu, sigma), getattr(theirs, method)(mu, sigma))
    same(ours.kl(mu, sigma, x, 2 * sigma), theirs.kl(mu, sigma, x, 2 * sigma))
    same(rlx.gaussian_diagonal(0.3).logprob(x, mu), rlax.gaussian_diagonal(0.3).logprob(x, mu))


def test_squashed_gaussian_policies():
    ours, theirs, key = rlx.squashed_gaussian(-1, 1), rlax.squashed_gaussian(-1, 1), jax.random.PRNGKey(1)
    mu, sigma = normal(5, 2), normal(5, 2, seed=1)
    actions = theirs.sample(key, mu, sigma, SPEC)
    same(ours.sample(key, mu, sigma, SPEC), actions)
    same(ours.logprob(0.5 * actions, mu, sigma, SPEC), theirs.logprob(0.5 * actions, mu, sigma, SPEC), 2e-4)
    same(ours.entropy(mu, sigma), theirs.entropy(mu, sigma))
    same(ours.kl(mu, sigma, mu + 1, sigma - 1), theirs.kl(mu, sigma, mu + 1, sigma - 1))
    assert np.all(np.isfinite(ours.logprob(jnp.asarray(SPEC.maximum), mu, sigma, SPEC)))  # RLax gives NaN


def test_policies_go_through_transforms():
    """They are trees: closed over, passed, mapped over and returned."""
    logits = normal(3, 4)
    made = jax.jit(rlx.softmax)(0.5)
    same(made.probs(logits), rlx.softmax(0.5).probs(logits))
    each = jax.vmap(rlx.epsilon_greedy)(jnp.array([0.0, 0.5, 1.0]))
    probs = jax.vmap(lambda policy, x: policy.probs(x))(each, logits)
    same(probs[2], jnp.full(4, 0.25))
    _, samples = jax.lax.scan(lambda p, k: (p, p.sample(k, logits[0])), made, jax.random.split(jax.random.key(0), 5))
    assert samples.shape == (5,)


def penalties(lib):
    scalar = lib.LagrangePenalty(jnp.float32(0.3), jnp.float32(0.2))
    each = lib.LagrangePenalty(jnp.array([0.3, 0.4, 0.5]), jnp.array(0.2), True)
    return lib.LagrangePenalty(jnp.float32(0.7), jnp.float32(0.1)), scalar, each


@pytest.mark.parametrize("stop, axis", [(True, 0), (True, 1), *slow((False, 0), (False, 1))])
def test_mpo(stop, axis):
    log_probs, q = -jnp.abs(normal(5, 2)), normal(5, 2, seed=1)
    kl, kl_each = jnp.abs(normal(2, seed=2)), jnp.abs(normal(2, 3, seed=3))
    if axis:
        log_probs, q = log_probs.T, q.T

    def both(lib):
        def loss(log_probs, q, kl, temperature):
            constraint, scalar, each = penalties(lib)
            constraint = constraint._replace(alpha=temperature)
            out, parts = lib.mpo_loss(
                log_probs, q, constraint, [(kl, scalar), (kl_each, each)], sample_axis=axis,
                policy_loss_weight=2.0, alpha_loss_weight=0.5, use_stop_gradient=stop,
            )  # fmt: skip
            return out.sum(), (out, tuple(parts))

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True))(log_probs, q, kl, jnp.float32(0.7))

    same(both(rlx), both(rlax))


@pytest.mark.parametrize("stop, fraction", [(True, 0.5), *slow((True, 1.0), (False, 0.5), (False, 1.0))])
def test_vmpo(stop, fraction):
    log_probs, advantages, kl = -jnp.abs(normal(6)), normal(6, seed=1), jnp.abs(normal(6, seed=2))
    restarting, importance = jnp.array([1.0, 1, 0, 1, 1, 1]), jnp.array([1.0, 0.5, 2, 1, 1, 0.3])

    def both(lib):
        def loss(log_probs, advantages, kl):
            temperature, scalar, _ = penalties(lib)
            out, parts = lib.vmpo_loss(
                log_probs, advantages, temperature, [(kl, scalar)], restarting_weights=restarting,
                importance_weights=importance, top_k_fraction=fraction, use_stop_gradient=stop,
            )  # fmt: skip
            return out.sum(), (out, tuple(parts))

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(log_probs, advantages, kl)

    same(both(rlx), both(rlax))


def test_vmpo_over_an_axis_is_vmpo_over_all():
    log_probs, advantages, kl = -jnp.abs(normal(6)), normal(6, seed=1), jnp.abs(normal(6, seed=2))
    temperature, scalar, _ = penalties(rlx)

    def loss(log_probs, advantages, kl, **more):
        return rlx.vmpo_loss(log_probs, advantages, temperature, [(kl, scalar)], **more)[0]

    @jax.jit
    def both(*whole):
        mapped = jax.vmap(functools.partial(loss, axis_name="i"), axis_name="i")
        return mapped(*(x.reshape(2, 3) for x in whole)).ravel(), loss(*whole)

    same(*both(log_probs, advantages, kl))


def test_mpo_without_constraints_and_bad_fractions():
    temperature, _, _ = penalties(rlx)
    loss, parts = jax.eval_shape(lambda x: rlx.mpo_loss(-x, x, temperature, []), jnp.ones([4, 2]))
    assert loss.shape == parts.kl_loss.shape == (2,)
    for fraction in (0.0, 1.5, 0.01):
        with pytest.raises(ValueError, match="top_k_fraction"):
            rlx.get_top_k_weights(fraction, jnp.ones(4), jnp.ones(4))


@pytest.mark.slow
def test_popart():
    targets, indices = 3 * normal(2, 5), jnp.asarray(np.random.default_rng(1).integers(0, 3, (2, 5)))
    params = {"w": normal(4, 3), "b": normal(3, seed=4)}

    def both(lib):
        initial, update = lib.popart(3, 0.1, 1e-2, 1e3)
        new, state = update(params, initial(), targets, indices)
        new, state = update(new, state, targets + 1, indices)
        mapped = jax.vmap(lambda t, i: lib.art(state, t, i, 0.1, 1e-2, 1e3, axis_name="i"), axis_name="i")
        linear = lib.unnormalize_linear(state, normal(2, 5, 3), indices)
        return new, tuple(state), tuple(mapped(targets, indices)), tuple(linear), lib.normalize(state, targets, indices)

    same(both(rlx), both(rlax))


def test_moving_averages():
    def both(lib):
        initial, update = lib.create_ema(0.9)
        state = initial({"a": normal(3), "b": jnp.float32(1)})
        moments, state = update({"a": normal(3), "b": jnp.float32(2)}, state)
        moments, state = update({"a": normal(3, seed=1), "b": jnp.float32(3)}, state)
        debiased = state.debiased_moments()
        return [
            dict(moments),
            dict(state),
            dict(debiased),
            state.replace(mu=1.0).mu,
            dict(initial(jnp.ones(2)).debiased_moments()),
        ]

    same(both(rlx), both(rlax))


def test_records_are_mappings_and_trees():
    target = rlx.PolicyTarget(actions=jnp.zeros(2, int), weights=jnp.ones(2))
    assert list(target.keys()) == ["actions", "weights"]
    assert target["weights"] is target.weights
    assert rlx.PolicyTarget.from_tuple(target.to_tuple()).weights is target.weights
    doubled = jax.jit(lambda t: jax.tree.map(lambda x: 2 * x, t))(target)
    assert isinstance(doubled, rlx.PolicyTarget) and float(doubled.weights[0]) == 2.0


@pytest.mark.parametrize("count", [1, 3, 8])
def test_episodic_memory(count):
    def both(lib):
        state, rewards = None, []
        for seed in range(4):
            reward, state = lib.episodic_memory_intrinsic_rewards(
                normal(count, 2, seed=seed), 2, 0.5, state, max_memory_size=8
            )
            rewards.append(reward)
        rest = [state.next_memory_index % 8, state.distance_sum, state.distance_count]
        return rewards, rest, state.memory

    (rewards, *state), (their_rewards, *their_state) = both(rlx), both(rlax)
    same(state, their_state, 2e-4)
    # RLax divides distances by d_m - c in place of d_m + c: that is 2 c / d_m of them, and the mean d_m is above 0.07.
    same(rewards, their_rewards, 0.03)
    same(*(dict(lib.knn_query(normal(6, 2), normal(3, 2, seed=1), 8)) for lib in (rlx, rlax)))


@pytest.mark.slow
def test_noise_and_samples():
    key = jax.random.PRNGKey(2)
    prior = jnp.full([2, 3], 1 / 3)
    for call in (
        lambda lib: lib.add_gaussian_noise(key, jnp.ones(3), 0.3),
        lambda lib: lib.add_gaussian_noise(key, normal(2, 3), np.array([0.1, 0.2, 0.3])),
        lambda lib: lib.add_gaussian_noise(key, normal(2, 3), np.full([2, 1], 0.1)),
        lambda lib: lib.add_ornstein_uhlenbeck_noise(key, jnp.ones(3), jnp.arange(3.0), 0.2, 0.3),
        lambda lib: lib.add_ornstein_uhlenbeck_noise(key, jnp.ones(3), jnp.ones(3), np.full(1, 0.2), np.ones(1)),
        lambda lib: lib.add_dirichlet_noise(key, prior, 0.3, 0.25),
        lambda lib: lib.sample_start_indices(key, 3, 2, 10),
        lambda lib: lib.categorical_sample(key, jnp.full([20, 3], 1 / 3)),
        lambda lib: lib.tree_split_key(key, {"a": 1, "b": {"c": 2}}),
        lambda lib: lib.extract_subsequences(jnp.arange(20).reshape(10, 2), jnp.array([[0, 3], [2, 9]]), 3),
        lambda lib: lib.fix_step_type_on_interruptions(jnp.array([1, 0, 0, 1, 2, 2, 0, 2, 1, 0])[:, None]),
        lambda lib: lib.transpose_last_axis_to_first({"a": normal(1, 2, 3)}),
        lambda lib: lib.transpose_first_axis_to_last({"a": normal(1, 2, 3)}),
        lambda lib: lib.tree_replace_masked({"a": normal(2, 3)}, {"a": -normal(2, 3)}, jnp.array([1, 0])),
        lambda lib: lib.tree_split_leaves({"a": np.arange(4).reshape(2, 2)}, axis=1, keepdim=True),
        lambda lib: [lib.feature_control_rewards(normal(4, 3), kind) for kind in ("feature", "increase", "decrease")],
        lambda lib: lib.unbiased_transform_pair(-10, 10, 21, lib.SIGNED_LOGP1_PAIR).apply_inv(jnp.eye(21)),
        lambda lib: lib.DISCOUNT_TRANSFORM_PAIR.apply(jnp.array([0.5, 0.99])),
    ):  # fmt: skip
        same(call(rlx), call(rlax))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["muzero_pair", "unbiased_transform_pair", "twohot_pair"])
def test_returns_of_values_that_are_bins(name):
    r_t, discount_t, c_t = normal(5), jnp.array([0.9, 0.9, 0, 0.9, 0.9]), jnp.full(5, 0.5)
    values, pi_t = jax.nn.softmax(normal(5, 2, 11)), jax.nn.softmax(normal(5, 2, seed=1))

    def returns(lib):
        pair = getattr(lib, name)(-3.0, 3.0, 11, *([] if name == "twohot_pair" else [lib.SIGNED_LOGP1_PAIR]))
        off_policy = lib.transformed_general_off_policy_returns_from_action_values
        return [
            lib.transformed_lambda_returns(pair, r_t, discount_t, values[:, 0], 0.7),
            lib.transformed_n_step_returns(pair, r_t, discount_t, values[:, 0], 2, np.full(1, 0.7)),
            off_policy(pair, values, jnp.array([0, 1, 0, 0, 1]), r_t, discount_t, c_t, pi_t),
        ]

    same(returns(rlx), returns(rlax))


@pytest.mark.slow
def test_returns_of_bins_in_cut_sequences_and_of_a_pair_that_keeps_the_bins():
    pair, values = rlx.twohot_pair(-4.0, 4.0, 9), jax.nn.softmax(normal(4, 9))
    rewards, discounts, ends = normal(4, seed=1), jnp.full(4, 0.5), jax.nn.softmax(normal(4, 9, seed=2))
    for returns in (rlx.transformed_lambda_returns, lambda *x, **cut: rlx.transformed_n_step_returns(*x, n=3, **cut)):
        cut = {"truncation_t": jnp.array([0, 1, 0, 0]), "truncation_value_t": ends}
        first = returns(pair, rewards[:2], discounts[:2], jnp.stack([values[0], ends[1]]))
        second = returns(pair, rewards[2:], discounts[2:], values[2:])
        same(returns(pair, rewards, discounts, values, **cut), jnp.concatenate([first, second]))
        with pytest.raises(rlx.ShapeError, match=r"argument `v_t` has shape \[4, 9\].* expected values of shape \[4\]"):
            returns(rlx.IDENTITY_PAIR, rewards, discounts, values)
    with pytest.raises(rlx.ShapeError, match=r"`q_t` has shape \[4, 9, 1\].* expected values of shape \[4, 9\]"):
        rlx.transformed_general_off_policy_returns_from_action_values(
            rlx.IDENTITY_PAIR, values[..., None], jnp.zeros(4, int), rewards, discounts, discounts, values
        )


def test_ornstein_uhlenbeck_noise_has_the_bits_of_rlax():
    values = np.random.default_rng(0).normal(size=(2, 100)).astype(np.float32)
    for seed in range(5):
        key = jax.random.key(seed)
        ours, theirs = (lib.add_ornstein_uhlenbeck_noise(key, *values, 0.15, 0.3) for lib in (rlx, rlax))
        np.testing.assert_array_equal(ours, theirs)


def test_distillation_takes_the_distributions_of_others():
    distrax = pytest.importorskip("distrax", reason="RLax's own distributions")
    policy, key = distrax.Categorical(normal(3, 4)), jax.random.PRNGKey(0)
    ours, theirs = (lib.constant_policy_targets(policy, key, 2, 0.5) for lib in (rlx, rlax))
    same(ours.to_tuple(), theirs.to_tuple())
    same(rlx.sampled_policy_distillation_loss(policy, ours), rlax.sampled_policy_distillation_loss(policy, theirs))
