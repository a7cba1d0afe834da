"""The edges: shapes that documentation promises, masks that hold NaN, long sums in half precision, closed forms."""

import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import same_but_for_rounding
from dm_env import specs

import rlx
from rlx.core import recurrence
from rlx.core.arrays import expected_value

pytestmark = pytest.mark.unoptimised

T = 7


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return {
        "r_t": jnp.asarray(rng.normal(size=T), jnp.float32),
        "discount_t": jnp.asarray(rng.uniform(0.5, 1.0, size=T), jnp.float32),
        "v_t": jnp.asarray(rng.normal(size=T), jnp.float32),
    }


def test_lambda_zero_is_one_step_and_lambda_one_is_the_discounted_return(data):
    one_step = data["r_t"] + data["discount_t"] * data["v_t"]
    np.testing.assert_allclose(rlx.lambda_returns(**data, lambda_=0.0), one_step, rtol=1e-6)
    whole = rlx.discounted_returns(data["r_t"], data["discount_t"], data["v_t"][-1])
    np.testing.assert_allclose(rlx.lambda_returns(**data, lambda_=1.0), whole, rtol=1e-5)
    weights = np.cumprod(np.concatenate([[1.0], data["discount_t"]]))
    closed = np.dot(weights[:-1], data["r_t"]) + weights[-1] * float(data["v_t"][-1])
    np.testing.assert_allclose(whole[0], closed, rtol=1e-5)


def test_the_meta_gradient_at_lambda_zero_is_that_of_a_loop_in_python(data):
    """Of the size of the gradient in the values: a weight of 0 has second derivatives too."""
    r_t, discount_t, v_t = data.values()

    def by_hand(v_t, lambda_):
        g, returns = v_t[-1], []
        for r, discount, v in zip(r_t[::-1], discount_t[::-1], v_t[::-1], strict=True):
            g = r + discount * ((1 - lambda_) * v + lambda_ * g)
            returns.append(g)
        return jnp.stack(returns[::-1])

    def meta_gradient(returns):
        gradient = jax.grad(lambda v_t, lambda_: jnp.sum(returns(v_t, lambda_) ** 2))
        return jax.grad(lambda lambda_: jnp.sum(gradient(v_t, lambda_) ** 2))(0.0)

    ours = meta_gradient(lambda v_t, lambda_: rlx.lambda_returns(r_t, discount_t, v_t, lambda_))
    np.testing.assert_allclose(ours, meta_gradient(by_hand), rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 50])
def test_n_step_returns_for_every_n(data, n):
    r, d, v = (np.asarray(x, np.float64) for x in data.values())
    expected = []
    for t in range(T):
        end = min(t + n, T)
        g = v[end - 1]
        for k in reversed(range(t, end)):
            g = r[k] + d[k] * g
        expected.append(g)
    np.testing.assert_allclose(rlx.n_step_bootstrapped_returns(**data, n=n), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_n_step_returns_take_one_lambda_less_than_steps(data, n):
    lambda_t = jnp.linspace(0.1, 0.9, T)
    full = rlx.n_step_bootstrapped_returns(**data, n=n, lambda_t=lambda_t)
    np.testing.assert_array_equal(rlx.n_step_bootstrapped_returns(**data, n=n, lambda_t=lambda_t[:-1]), full)
    same = rlx.n_step_bootstrapped_returns(**data, n=n, lambda_t=lambda_t.at[-1].set(123.0))
    np.testing.assert_array_equal(same, full)


def test_n_steps_beyond_the_end_are_lambda_returns(data):
    np.testing.assert_allclose(
        rlx.n_step_bootstrapped_returns(**data, n=T + 5, lambda_t=0.6),
        rlx.lambda_returns(**data, lambda_=0.6),
        rtol=1e-6,
        atol=1e-6,
    )


def test_values_of_the_wrong_length_are_an_error_for_gae(data):
    for length in (T - 1, T, T + 2):
        with pytest.raises(
            rlx.ShapeError, match=r"argument `values` has shape \[\d+\], expected shape \[T\+1\] with T = 7"
        ):
            rlx.truncated_generalized_advantage_estimation(data["r_t"], data["discount_t"], 0.9, jnp.ones(length))


def pieces(length, cuts):
    edges = [0, *[cut + 1 for cut in cuts], length]
    return [slice(a, b) for a, b in itertools.pairwise(edges) if a < b]


@pytest.mark.slow
@pytest.mark.unoptimised(False)  # differently compiled
@pytest.mark.parametrize("cuts", [[2, 3], [6], [0, 1, 2, 3, 4, 5, 6]])  # others are drawn in test_operator_sequences
def test_pieces_one_by_one_are_bit_for_bit_the_cut_sequence(data, cuts):
    rng = np.random.default_rng(1)
    mask = jnp.zeros(T, bool).at[jnp.array(cuts, int)].set(True)
    ends = jnp.asarray(rng.normal(size=T), jnp.float32)  # values of the states in which pieces end
    v_t = jnp.where(mask, ends, data["v_t"])
    rho = jnp.asarray(rng.uniform(0.5, 1.5, size=T), jnp.float32)
    v_tm1 = jnp.asarray(rng.normal(size=T), jnp.float32)
    values = jnp.concatenate([v_tm1, data["v_t"][-1:]])
    given = {"truncation_t": mask, "truncation_value_t": ends}
    r_t, discount_t = data["r_t"], data["discount_t"]
    whole = {
        "lambda": rlx.lambda_returns(**data, lambda_=0.7, **given),
        "n_step": rlx.n_step_bootstrapped_returns(**data, n=3, lambda_t=0.7, **given),
        "discounted": rlx.discounted_returns(**data, **given),
        "gae": rlx.truncated_generalized_advantage_estimation(r_t, discount_t, 0.7, values, **given),
        "vtrace": rlx.vtrace(v_tm1, data["v_t"], r_t, discount_t, rho, 0.7, stop_target_gradients=False, **given),
        "pg": rlx.vtrace_td_error_and_advantage(v_tm1, data["v_t"], r_t, discount_t, rho, 0.7, **given).pg_advantage,
    }
    for where in pieces(T, cuts):
        r, d, v, v0, rh = r_t[where], discount_t[where], v_t[where], v_tm1[where], rho[where]
        last = v_t[-1:] if where.stop == T and T - 1 not in cuts else v[-1:]
        bootstrap = jnp.concatenate([v0, last])
        alone = {
            "lambda": rlx.lambda_returns(r, d, v, 0.7),
            "n_step": rlx.n_step_bootstrapped_returns(r, d, v, 3, 0.7),
            "discounted": rlx.discounted_returns(r, d, v),
            "vtrace": rlx.vtrace(v0, v, r, d, rh, 0.7, stop_target_gradients=False),
            "pg": rlx.vtrace_td_error_and_advantage(v0, v, r, d, rh, 0.7).pg_advantage,
        }
        for name, value in alone.items():
            if name == "n_step":  # the last return of a piece is r + γ(1-λ)v + γλv, and r + γv where it is cut
                np.testing.assert_allclose(whole[name][where], value, rtol=1e-6, atol=1e-6)
            else:
                same_but_for_rounding({name: whole[name][where]}, {name: value})
        # Between the values of a piece no state is missing but the last; the others are those of v_tm1 itself.
        inner = jnp.concatenate([v0[1:], bootstrap[-1:]])
        delta = r + d * inner - v0
        expected, acc = [], 0.0
        for t in reversed(range(len(r))):
            acc = float(delta[t]) + (0.7 * float(d[t]) * acc if t + 1 < len(r) else 0.0)
            expected.append(acc)
        np.testing.assert_allclose(whole["gae"][where], expected[::-1], rtol=1e-5, atol=1e-6)


def test_masked_nan_reaches_neither_vtrace_nor_its_gradients(data):
    rng = np.random.default_rng(2)
    mask = jnp.array([True, False, True, True, False, True, True])
    v_tm1 = jnp.asarray(rng.normal(size=T), jnp.float32)
    rho = jnp.asarray(rng.uniform(0.5, 1.5, size=T), jnp.float32)

    def loss(v_tm1, v_t, r_t, rho, bad):
        poison = jnp.where(mask, 0.0, bad)
        errors = rlx.vtrace(
            v_tm1 + poison, v_t + poison, r_t + poison, data["discount_t"], rho + poison, 0.9,
            stop_target_gradients=False, sample_mask=mask,
        )  # fmt: skip
        return jnp.sum(jnp.where(mask, jnp.square(errors), 0.0))

    arguments = (v_tm1, data["v_t"], data["r_t"], rho)
    found = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))
    clean, dirty = found(*arguments, 0.0), found(*arguments, np.nan)
    for one, other in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", ["policy_gradient", "entropy"])
def test_unweighted_nan_reaches_neither_policy_losses_nor_their_gradients(loss):
    w_t = jnp.array([1.0, 0.0, 2.0])

    def total(logits_t, bad):
        logits_t = logits_t.at[1].set(bad)
        if loss == "entropy":
            return rlx.entropy_loss(logits_t, w_t)
        return rlx.policy_gradient_loss(logits_t, jnp.array([0, 1, 1]), jnp.array([1.0, bad, 3.0]), w_t)

    logits = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
    found = jax.jit(jax.value_and_grad(total))
    clean, dirty = found(logits, 0.5), found(logits, np.nan)
    np.testing.assert_array_equal(clean[0], dirty[0])
    np.testing.assert_array_equal(clean[1], dirty[1])


def test_truncated_values_that_are_nan_do_not_matter(data):
    """Where the value of the cut-off state is given, that of the next episode's first state is not looked at."""
    mask = jnp.zeros(T, bool).at[2].set(True)
    ends = jnp.full(T, jnp.nan).at[2].set(1.5)

    def total(v_t):
        return jnp.sum(rlx.lambda_returns(**{**data, "v_t": v_t}, truncation_t=mask, truncation_value_t=ends))

    gradient = jax.grad(total)(data["v_t"].at[2].set(jnp.nan))
    assert np.all(np.isfinite(gradient))
    assert gradient[2] == 0


def test_long_sums_in_half_precision_do_not_stall():
    """Adding ones in bfloat16 stops at 256, where one is below half a unit in the last place."""
    ones = jnp.ones(2000, jnp.bfloat16)
    assert float(rlx.discounted_returns(ones, ones, jnp.bfloat16(0))[0]) == 2000.0
    returns = jax.jit(lambda x: rlx.n_step_bootstrapped_returns(x, x, 0 * x, n=1000))(ones)
    assert float(returns[0]) == 1000.0


@pytest.mark.eight_devices
def test_actions_are_safe_under_every_transform(data):
    def error(q_tm1, a_tm1, r_t, discount_t, q_t):
        return rlx.q_learning(q_tm1, a_tm1, r_t, discount_t, q_t)

    q = jnp.ones([8, 3])
    a, r = jnp.zeros(8, int), jnp.ones(8)
    mapped = jax.vmap(error)(q, a, r, r, q)
    np.testing.assert_array_equal(jax.pmap(error)(q, a, r, r, q), mapped)
    with pytest.raises(rlx.RankError, match="argument `q_tm1` has rank 2"):
        jax.pmap(error)(q[:, None], a, r, r, q)
    with pytest.raises(rlx.RankError, match=r"rlx\.batched\(rlx\.q_learning\)"):
        jax.grad(lambda q: error(q, a, r, r, q).sum())(q)


def test_the_largest_advantage_counts_fully_in_the_gradient_of_vmpo():
    """The temperature loss is η log Σ_s exp(A_s / η) and a constant: its gradient is a softmax."""
    advantages = jnp.array([3.0, 1.0, 2.5])
    temperature = rlx.LagrangePenalty(alpha=jnp.array(0.5), epsilon=0.1)

    def loss(advantages):
        return rlx.vmpo_compute_weights_and_temperature_loss(advantages, None, None, temperature, lambda x: x, 1.0)[0]

    weights = np.exp(np.array([3.0, 1.0, 2.5]) / 0.5 - 6.0)
    np.testing.assert_allclose(jax.grad(loss)(advantages), weights / weights.sum(), rtol=1e-5)


@pytest.mark.parametrize("probs", [[1.0, 2.0, np.nan], [0.0, 0.0, 0.0], [1.0, np.inf, 0.0], [-1.0, 3.0, 1.0]])
def test_what_is_no_distribution_has_no_sample(probs):
    rows = jnp.array([probs, [0.0, 1.0, 0.0]])
    assert rlx.categorical_sample(jax.random.key(0), rows).tolist() == [-1, 1]


def test_weights_whose_sum_overflows_are_a_distribution():
    """Half 3e38 and half 3e38, whose sum is no float32."""
    rows = jnp.tile(jnp.array([3e38, 3e38, 0.0]), [400, 1])
    shares = np.bincount(rlx.categorical_sample(jax.random.key(0), rows) + 1, minlength=4) / 400
    np.testing.assert_allclose(shares, [0.0, 0.5, 0.5, 0.0], atol=0.1)


@pytest.mark.parametrize("logits", [[1.0, 2.0, np.nan], [-np.inf, -np.inf, -np.inf], [1.0, np.inf, 0.0]])
def test_logits_of_no_distribution_have_no_sample(logits):
    rows = jnp.array([logits, [-np.inf, 0.0, -np.inf]])
    for policy in (rlx.softmax(), rlx.clipped_entropy_softmax()):
        assert policy.sample(jax.random.key(0), rows, sample_shape=2).tolist() == [[-1, 1], [-1, 1]]


def test_there_is_a_best_action_where_its_value_is_computed_anew_and_rounded_otherwise():
    """As in XLA: a product is rounded before it is added where the maximum is computed, not where it is sought."""

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def probs(x, w, b):
        return rlx.epsilon_greedy(0.2).probs(x * w + b)

    x, w, b = (np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in ([64, 1], [1, 4], [1, 4]))
    q = np.float64(x) * w + b
    np.testing.assert_allclose(probs(x, w, b), 0.05 + 0.8 * (q == q.max(axis=1, keepdims=True)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_actions_of_half_precision_are_taken_as_often_as_their_probability_says(dtype):
    """Perturbed in half precision, many of the logits are equal, and the first action was taken."""
    key, shares = jax.random.key(0), np.array([4, 1, 32, 7, 20, *[8] * 16]) / 192  # exact in half precision

    def chosen(policy, argument):
        return policy.sample(key, jnp.asarray(argument, dtype), sample_shape=20_000)

    @jax.jit
    def draws():
        rows = jnp.broadcast_to(jnp.asarray(192 * shares, dtype), [20_000, 21])
        return {
            "softmax": chosen(rlx.softmax(), np.log(shares)),
            "categorical_sample": rlx.categorical_sample(key, rows),
            "epsilon_greedy": chosen(rlx.epsilon_greedy(1.0), np.zeros(21)),
        }

    for name, actions in draws().items():
        expected = 20_000 * (np.full(21, 1 / 21) if name == "epsilon_greedy" else shares)
        counts = np.bincount(actions, minlength=21)
        assert np.sum((counts - expected) ** 2 / expected) < 55, name  # χ² of 20 degrees of freedom, 1 in 20,000


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_noise_of_half_precision_is_that_of_single_rounded(dtype):
    key, zeros, one = jax.random.key(0), jnp.zeros(1000, dtype), jnp.ones([], dtype)
    noise = {
        "gaussian_diagonal": rlx.gaussian_diagonal(one).sample(key, zeros),
        "add_gaussian_noise": rlx.add_gaussian_noise(key, zeros, one),
        "add_ornstein_uhlenbeck_noise": rlx.add_ornstein_uhlenbeck_noise(key, zeros, zeros, one, one),
        "smoothed_target_action": rlx.smoothed_target_action(key, zeros, 1.0, 9.0, -9.0, 9.0),
    }
    for name, drawn in noise.items():
        assert drawn.dtype == dtype
        np.testing.assert_array_equal(drawn, jax.random.normal(key, [1000]).astype(dtype), err_msg=name)


def test_two_hot_shows_a_nan_and_keeps_the_shapes_of_rlax():
    pair = rlx.twohot_pair(-1.0, 1.0, 3)
    assert np.all(np.isnan(pair.apply(jnp.array([jnp.nan]))))
    unbiased = rlx.unbiased_transform_pair(-1.0, 1.0, 3, rlx.SIGNED_LOGP1_PAIR)
    assert jax.eval_shape(pair.apply, 0.5).shape == (3,)
    assert jax.eval_shape(unbiased.apply, 0.5).shape == (1, 3)
    for each in (pair, unbiased):
        assert jax.eval_shape(each.apply_inv, jnp.ones(3)).shape == (1,)
        assert jax.eval_shape(lambda x: each.apply_inv(each.apply(x)), jnp.ones([2, 4])).shape == (2, 4)  # noqa: B023


def test_a_gradient_of_no_length_is_clipped_to_none():
    assert np.isnan(rlx.dpg_loss(jnp.zeros(2), jnp.array([jnp.nan, 1.0]), dqda_clipping=0.5)).all()


def test_labels_are_counted_in_proportion():
    logits = jnp.array([0.3, -0.7, 1.0])
    counts = jnp.array([6, 0, 2])
    expected = -np.dot([0.75, 0.0, 0.25], np.asarray(jax.nn.log_softmax(logits)))
    np.testing.assert_allclose(rlx.categorical_cross_entropy(counts, logits), expected, rtol=1e-6)
    assert float(rlx.categorical_cross_entropy(0 * counts, logits)) == 0


def test_one_number_for_all_steps_may_have_an_axis(data):
    """RLax broadcasts a λ, or a last value, of shape [1]."""
    one, same = jnp.array([0.5]), functools.partial(np.testing.assert_allclose, rtol=1e-5)  # another order of sums
    same(rlx.lambda_returns(**data, lambda_=one), rlx.lambda_returns(**data, lambda_=0.5))
    r_t, discount_t, v_t = data.values()
    for v in (one, 0.5):
        same(rlx.discounted_returns(r_t, discount_t, v), rlx.discounted_returns(r_t, discount_t, jnp.full(T, 0.5)))
    values = jnp.concatenate([v_t, one])
    same(*(rlx.truncated_generalized_advantage_estimation(r_t, discount_t, x, values) for x in (one, 0.5)))
    more = (v_t, v_t[:-1], v_t, r_t, discount_t, 0 * v_t[:-1])
    same(*(rlx.retrace_continuous(*more, x) for x in (one, 0.5)))


ONES, ROWS = np.ones(2, np.float32), np.ones([2, 3], np.float32)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: rlx.q_learning(ROWS[0], 3, 0.0, 0.5, ROWS[0]),
            "`a_tm1` is 3, expected an index from 0 to 2, with A = 3",
        ),
        (lambda: rlx.q_learning(ROWS[0], -1, 0.0, 0.5, ROWS[0]), "`a_tm1` is -1, expected an index from 0 to 2"),
        (
            lambda: rlx.policy_gradient_loss(ROWS, np.array([0, 9]), ONES, ONES),
            "`a_t` is 9 at [1], expected an index from 0 to 2, or -1 for none, with A = 3 from `logits_t`.",
        ),
        (
            lambda: jax.grad(lambda q: jnp.sum(rlx.q_lambda(q, jnp.array([-2, 0]), ONES, ONES, ROWS, 0.9)))(ROWS),
            "`a_tm1` is -2 at [0]",
        ),
        (lambda: rlx.embed_oar(ROWS, np.array([4, 0]), ONES, 4), "`action` is 4 at [0], expected an index from 0 to 3"),
    ],
)
def test_a_known_action_out_of_range_is_named(call, says):
    with pytest.raises(rlx.OptionError, match=re.escape(says)):
        call()


def test_actions_of_padding_pass():
    """-1 stands for no action; where a mask is false or a weight 0, an action may be any number."""
    padded = np.array([1, 99])
    assert np.isfinite(rlx.policy_gradient_loss(ROWS, padded, ONES, np.array([1, 0])))
    assert np.isfinite(rlx.muesli_policy_loss(ROWS, padded, ONES, ONES, ROWS, ROWS, mask_t=np.array([True, False])))
    assert np.isfinite(rlx.sarsa_lambda(ROWS, np.array([1, -1]), ONES, ONES, ROWS, np.array([-1, -1]), 0.9)[0])


def test_an_action_that_is_never_taken_may_be_worth_minus_infinity():
    """Of a masked-out action neither the value nor the gradient is NaN, although 0 · ∞ is."""
    logits, q = jnp.array([[0.5, -jnp.inf, 1.0]]), jnp.array([[1.0, -jnp.inf, 3.0]])
    allowed = np.array([0, 2])
    for function, full, part in (
        (lambda q: rlx.expected_sarsa(q, 0, 1.0, 0.9, q, jax.nn.softmax(q), False), q[0], q[0][allowed]),
        (lambda x: rlx.qpg_loss(x, q if x.shape[1] == 3 else q[:, allowed]), logits, logits[:, allowed]),
        (lambda x: rlx.rpg_loss(x, q if x.shape[1] == 3 else q[:, allowed]), logits, logits[:, allowed]),
    ):
        (value, slope), (expected, expected_slope) = (jax.jit(jax.value_and_grad(function))(x) for x in (full, part))
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-7)  # qpg_loss: what rounding leaves of 0
        np.testing.assert_allclose(slope[..., allowed], expected_slope, rtol=1e-5, atol=1e-7)
        assert np.all(np.isfinite(slope))


def test_a_possible_action_worth_minus_infinity_is_avoided_at_every_step():
    """The values of several steps are added up, so each must stay far below an overflow."""
    logits, q = jnp.zeros([5, 2]), jnp.array([[-jnp.inf, 1.0]] * 5)
    for loss in (rlx.qpg_loss, rlx.rm_loss, rlx.rpg_loss):
        value, slope = jax.value_and_grad(loss)(logits, q)
        assert np.isfinite(value) and np.all(np.isfinite(slope))
    slope = jax.grad(rlx.qpg_loss)(logits, q)
    assert np.all(slope[:, 0] > 0) and np.all(slope[:, 1] < 0)


def test_the_slope_of_log_odds_is_infinite_at_both_ends():
    assert [float(jax.grad(rlx.logit)(x)) for x in (0.0, 0.5, 1.0)] == [np.inf, 4.0, np.inf]


def test_strings_of_numbers_are_not_numbers(data):
    for bad in ("1.0", None, [1.0], (1.0,), {"a": 1.0}):
        with pytest.raises(rlx.DTypeError, match="argument `r_t`"):
            rlx.td_learning(1.0, bad, 0.9, 1.0)


def test_numpy_python_and_jax_numbers_agree():
    expected = 0.5 + 0.9 * 2.0 - 1.0
    for number in (float, np.float32, jnp.float32, np.asarray):
        assert float(rlx.td_learning(*map(number, (1.0, 0.5, 0.9, 2.0)))) == pytest.approx(expected, rel=1e-6)


def affine(after, delta, w):
    return delta + w * after


@pytest.mark.parametrize("length", [0, 1, 2, 5, 40])
def test_both_algorithms_of_the_recurrence_agree(length, monkeypatch):
    """Tests run on a CPU, where the sequential one is chosen; the other one must give the same."""
    rng = np.random.default_rng(length)
    delta, w = (jnp.asarray(rng.normal(size=(length, 2)), jnp.float32) for _ in range(2))
    init = jnp.asarray(rng.normal(size=2), jnp.float32)
    expected, acc = np.zeros((length, 2)), np.asarray(init, np.float64)
    for t in reversed(range(length)):
        acc = np.asarray(delta[t], np.float64) + np.asarray(w[t], np.float64) * acc
        expected[t] = acc
    for function in (recurrence.scan, recurrence.doubling):
        solved = jax.jit(lambda *x: function(affine, x, init))(delta, w)  # noqa: B023
        np.testing.assert_allclose(solved, expected, rtol=2e-5, atol=2e-5)
    ends = jnp.broadcast_to(init, delta.shape)
    np.testing.assert_allclose(recurrence.backward(affine, (delta, w), end=ends), expected, rtol=2e-5, atol=2e-5)


def test_weights_that_overflow_do_not_reach_past_a_zero():
    """A product of weights may overflow although no sum does, where there is nothing to multiply."""
    steps = jnp.arange(300)
    w = jnp.where(steps > 150, 10.0, jnp.where(steps == 150, 0.0, 0.5))
    delta = jnp.where(steps > 150, 0.0, 1.0)
    both = jax.jit(lambda *x: [f(affine, x, jnp.float32(0)) for f in (recurrence.scan, recurrence.doubling)])
    expected, solved = both(delta, w)
    assert np.all(np.isfinite(expected))
    np.testing.assert_allclose(solved, expected, rtol=1e-6)


def test_derivatives_of_both_algorithms_of_the_recurrence_agree():
    """First and second ones, in both modes, of batches, against the recurrence unrolled in Python."""
    rng = np.random.default_rng(0)
    delta, w = (jnp.asarray(rng.normal(size=(2, 5))) for _ in range(2))

    def unrolled(_, sequences, init):
        acc, out = init, []
        for step in reversed(range(5)):
            acc = sequences[0][step] + sequences[1][step] * acc
            out.append(acc)
        return jnp.stack(out[::-1])

    def derivatives(function):
        def total(delta, w):
            solved = jax.vmap(lambda *x: function(affine, x, jnp.float32(0.5)))(delta, w)
            return jnp.sum(jnp.sin(solved))

        def along_ones(*x):
            return jax.jvp(jax.grad(total, (0, 1)), x, (jnp.ones_like(delta), jnp.ones_like(w)))

        return jax.jit(lambda *x: (along_ones(*x), jax.grad(lambda *y: jnp.sum(jax.grad(total, 1)(*y)))(*x)))(delta, w)

    expected = derivatives(unrolled)
    for function in (recurrence.scan, recurrence.doubling):
        for one, other in zip(jax.tree.leaves(derivatives(function)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_sequences_choose_their_algorithm_where_they_are_lowered(monkeypatch):
    """In programs that are traced where the default device is an accelerator."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    sequence, loops = jnp.ones(3), {}
    equation = functools.partial(affine)  # a new one, since traces are cached by it
    for platforms in (("cpu",), ("cuda",), ("tpu",), ("cpu", "cuda")):
        solve = jax.jit(lambda *sequences: recurrence.backward(equation, sequences))
        module = jax.export.export(solve, platforms=platforms)(sequence, sequence).mlir_module()
        loops[platforms] = module.count("stablehlo.while")
    assert loops == {("cpu",): 1, ("cuda",): 0, ("tpu",): 0, ("cpu", "cuda"): 1}


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_short_sequences_have_the_same_solution_on_an_accelerator(steps, monkeypatch):
    """Solved by doubling, beside the equation in NumPy, as are their gradients beside those of the scan."""
    delta, w = np.random.default_rng(0).normal(size=[2, steps, 3]).astype(np.float32)
    end = np.float32(0.3)
    expected, after = [], np.full(3, end)
    for t in reversed(range(steps)):
        after = delta[t] + w[t] * after
        expected.append(after)

    def slopes_of(equation):
        def total(delta, w, end):
            return jnp.sum(jnp.sin(recurrence.backward(equation, (delta, w), end=end)))

        return jax.grad(total, (0, 1, 2))(delta, w, end)

    slopes = slopes_of(affine)
    # `platform_dependent` takes the branch of the CPU here: the test sees to it that it is the accelerators'.
    monkeypatch.setattr(recurrence, "scan", recurrence.doubling)
    equation = functools.partial(affine)  # a new one, since traces are cached by it
    found = recurrence.backward(equation, (delta, w), end=end)
    np.testing.assert_allclose(found, expected[::-1], rtol=1e-5, atol=1e-6)
    for one, other in zip(slopes_of(equation), slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("call", [
    lambda none: rlx.q_learning(none, 0, 1.0, 0.9, none),
    lambda none: rlx.qv_max(1.0, 1.0, 0.9, none),
    lambda none: rlx.qv_learning(none, 0, 1.0, 0.9, 1.0),
    lambda none: rlx.categorical_l2_project(jnp.ones(2), jnp.ones(2), none),
    lambda none: rlx.quantile_regression_loss(none, none, jnp.ones(2), 1.0),
    lambda none: rlx.sac_actor_loss(none, 0.0, 1.0),
])  # fmt: skip
def test_no_action_no_atom_no_critic_is_an_error(call):
    with pytest.raises(
        rlx.ShapeError, match=r"argument `\w+` has shape \[0\], expected shape \[\w\] with \w at least 1"
    ):
        call(jnp.ones(0))


def test_the_slope_of_n_step_returns_in_a_discount_of_zero():
    r_t, discount_t, v_t = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 0.0, 0.5]), jnp.array([4.0, 5.0, 6.0])
    slope = jax.grad(lambda d: jnp.sum(rlx.n_step_bootstrapped_returns(r_t, d, v_t, 2)))(discount_t)
    # G_0 = r_1 + γ_1 (r_2 + γ_2 v_2), G_1 = r_2 + γ_2 (r_3 + γ_3 v_3), G_2 = r_3 + γ_3 v_3
    np.testing.assert_allclose(slope, [2 + 0 * 5, 0.5 * 5 + 3 + 0.5 * 6, 0 * 6 + 6], rtol=1e-6)


def test_the_inverse_of_the_signed_square_root_of_a_large_number_is_finite():
    y = np.array([1e4, -1e20, 1e30, -1e34], np.float32)
    wide = np.abs(y.astype(np.float64))
    expected = np.sign(y) * (((np.sqrt(1 + 4e-3 * (wide + 1 + 1e-3)) - 1) / 2e-3) ** 2 - 1)
    np.testing.assert_allclose(rlx.signed_parabolic(y), expected, rtol=1e-5)
    slopes = jax.vmap(jax.grad(rlx.signed_parabolic))(y[1:])
    np.testing.assert_allclose(slopes, [1e3, 1e3, 1e3], rtol=1e-5)


def test_gradients_of_the_inverse_of_the_signed_square_root():
    # f solves ε z² + (1 + 2 ε) z = |x|, f = z (z + 2), so that f' = 2 (z + 1) / s and ∂f/∂ε = -2 (z + 1) f / s, where s
    # is 2 ε z + 1 + 2 ε. Near 0, f is x times its slope there.
    for x, eps in [(3.0, 1e-3), (-40.0, 0.25), (1e-6, 1e-3), (5.0, 0.0)]:
        roots = np.roots([eps, 1 + 2 * eps, -abs(x)])
        z, sign = float(max(roots)), np.sign(x)
        s = 2 * eps * z + 1 + 2 * eps
        expected = sign * z * (z + 2), 2 * (z + 1) / s, -sign * 2 * (z + 1) * z * (z + 2) / s
        slopes = jax.grad(rlx.signed_parabolic, (0, 1))(jnp.float32(x), jnp.float32(eps))
        np.testing.assert_allclose([rlx.signed_parabolic(jnp.float32(x), eps), *slopes], expected, rtol=2e-6)


@pytest.mark.parametrize("transform", [rlx.signed_hyperbolic, rlx.signed_parabolic])
def test_signed_roots_take_constants_of_64_bits(transform):
    x = np.array([-2.0, 3.0])
    constants = jax.jit(lambda: jax.vmap(transform)(x))()
    np.testing.assert_allclose(constants, transform(jnp.asarray(x, jnp.float32)), rtol=1e-6)


def test_second_derivatives_in_a_weight_of_0_of_what_is_not_finite():
    td = jax.grad(jax.grad(lambda discount: rlx.td_learning(0.0, 1.0, discount, jnp.nan, False)))
    assert td(0.0) == 0
    q_t, zeros = jnp.array([-jnp.inf, 3.0]), jnp.zeros(2)
    sarsa = jax.hessian(lambda probs: rlx.expected_sarsa(zeros, 0, 0.0, 1.0, q_t, probs, False) ** 2)
    np.testing.assert_allclose(sarsa(jnp.array([0.0, 1.0])), [[0, 0], [0, 2 * 3**2]], rtol=1e-6)


@pytest.mark.parametrize("actions", [1, 4, 20, 21])
def test_expected_values_and_their_gradients(actions):
    rng = np.random.default_rng(actions)
    probs, q = rng.uniform(size=[3, actions]), rng.normal(size=[3, actions])
    probs[0, 0], probs[1, 0], q[1, 0] = 0.0, 0.0, -np.inf  # both finite and infinite values of probability 0
    finite = np.where(np.isfinite(q), q, 0)
    arguments = jnp.asarray(probs, jnp.float32), jnp.asarray(q, jnp.float32)
    np.testing.assert_allclose(expected_value(*arguments), np.sum(probs * finite, axis=-1), rtol=1e-5, atol=1e-6)
    slopes = jax.grad(lambda p, x: jnp.sum(expected_value(p, x)), (0, 1))(*arguments)
    np.testing.assert_allclose(slopes[0], finite, rtol=1e-6)
    np.testing.assert_allclose(slopes[1], probs, rtol=1e-6)
    constants = jax.jit(lambda: jax.vmap(expected_value)(probs, q))()
    np.testing.assert_allclose(constants, expected_value(*arguments), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stddev", [np.array([0.0, 1.0, 2.0]), np.array([[0.5], [3.0]]), np.ones([2, 3]), 2])
def test_noise_is_as_wide_as_each_entry_of_a_batch_of_actions_wants(stddev):
    actions, key = jnp.arange(6.0).reshape(2, 3), jax.random.key(0)
    noisy = rlx.add_gaussian_noise(key, actions, stddev)
    assert noisy.dtype == actions.dtype
    np.testing.assert_allclose(noisy - actions, stddev * np.asarray(jax.random.normal(key, [2, 3])), atol=1e-5)


@pytest.mark.slow
def test_bounds_of_each_dimension_count_for_a_batch():
    spec = specs.BoundedArray((2,), np.float32, [-2.0, 0.0], [2.0, 6.0])
    policy = rlx.squashed_gaussian(sigma_min=-1, sigma_max=1, action_spec=spec)
    mu, sigma = jnp.zeros([4, 2]), jnp.zeros([4, 2])
    # In the middle, tanh has slope 1, and the density of the standard normal is divided by half the range of each.
    expected = -2 * 0.5 * np.log(2 * np.pi) - np.log(2) - np.log(3)
    np.testing.assert_allclose(policy.log_prob(jnp.tile(jnp.array([0.0, 3.0]), [4, 1]), mu, sigma), expected, rtol=1e-6)


@pytest.mark.eight_devices
def test_the_slope_of_spread_values_where_each_device_has_its_own():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:8])
    values, bins = np.linspace(-0.9, 1.9, 8), np.arange(5.0)

    def mean(value):  # of the numbers of the bins
        edges = (np.linspace(-1, 2, 6) - value) / 0.45 / np.sqrt(2)
        mass = np.diff([math.erf(edge) for edge in edges])
        return np.dot(mass / mass.sum(), bins)

    slope = jax.grad(lambda x: jnp.sum(rlx.transform_to_hl_gauss(x, -1.0, 2.0, 5) @ jnp.asarray(bins, jnp.float32)))
    on_devices = jax.shard_map(slope, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data"))
    expected = [(mean(value + 1e-6) - mean(value - 1e-6)) / 2e-6 for value in values]
    np.testing.assert_allclose(jax.jit(on_devices)(jnp.asarray(values, jnp.float32)), expected, rtol=1e-5)


@pytest.mark.eight_devices
def test_large_advantages_of_a_batch_that_is_divided_along_an_explicit_axis():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,), devices=jax.devices()[:8])
    adv = np.random.default_rng(0).normal(size=(8, 5)) * np.logspace(0, 18, 8)[:, None]
    expected = (adv - adv.mean(1, keepdims=True)) / adv.std(1, keepdims=True)
    with jax.set_mesh(mesh):
        given = jax.device_put(adv.astype(np.float32), jax.P("data"))
        found = jax.jit(jax.vmap(functools.partial(rlx.normalized_advantages, epsilon=0.0)))(given)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
