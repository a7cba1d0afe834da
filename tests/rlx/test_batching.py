"""`rlx.batched` and `rlx.time_major` against `jax.vmap` written by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

T, B = 5, 5  # equally many, so that no shape reveals a transposed argument
KEY = jax.random.key(0)
R, D, V = (jax.random.uniform(jax.random.fold_in(KEY, i), (T, B)) for i in range(3))
CUT = jax.random.bernoulli(KEY, 0.3, (T, B))
Q, ACTIONS = jax.random.uniform(KEY, (T, B, 3)), jnp.zeros((T, B), jnp.int32)
RAGGED = {"r_t": R[:4], "discount_t": D[:4], "v_t": V[:4]}  # [4, B]


def by_hand(r_t, discount_t, v_t, truncation_t):
    def one(r_t, discount_t, v_t, truncation_t):
        return rlx.lambda_returns(r_t, discount_t, v_t, 0.9, truncation_t=truncation_t)

    return jax.vmap(one, in_axes=1, out_axes=1)(r_t, discount_t, v_t, truncation_t)


def column_by_column(operator, *arguments, **keywords):
    columns = range(arguments[0].shape[1])
    return np.stack(
        [operator(*(x[:, b] for x in arguments), **{k: x[:, b] for k, x in keywords.items()}) for b in columns], 1
    )


def test_keywords_are_mapped_like_positions():
    want = column_by_column(lambda *x, truncation_t: rlx.lambda_returns(*x, 0.9, truncation_t=truncation_t), R, D, V,
                            truncation_t=CUT)  # fmt: skip
    got = rlx.time_major(rlx.lambda_returns)(R, D, V, 0.9, truncation_t=CUT)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    got = rlx.batched(rlx.lambda_returns)(r_t=R.T, discount_t=D.T, v_t=V.T, lambda_=0.9, truncation_t=CUT.T)
    np.testing.assert_allclose(got.T, want, rtol=1e-6)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_a_keyword_that_jax_would_map_over_another_axis_is_an_error(transform):
    with pytest.raises(rlx.ShapeError, match=r"argument `truncation_t` was passed by keyword.*\n.*rlx.time_major"):
        transform(jax.vmap(rlx.lambda_returns, in_axes=1, out_axes=1))(R, D, V, truncation_t=CUT)
    jax.vmap(rlx.lambda_returns)(R, D, V, truncation_t=CUT)  # axis 0 is the one that JAX takes
    by_hand(R, D, V, CUT)


@pytest.mark.slow
def test_an_array_of_a_rank_that_the_operator_takes_is_shared_and_results_of_any_rank_are_in_place():
    a_t, q, w = jnp.zeros([T, B], int), jnp.ones([T, B, 3]), jnp.ones([T, B])
    assert rlx.time_major(rlx.q_lambda)(q, a_t, R, D, q, 0.9).shape == (T, B)
    assert rlx.time_major(rlx.policy_gradient_loss)(q, a_t, R, w).shape == (B,)
    assert {x.shape for x in rlx.time_major(rlx.vtrace_td_error_and_advantage)(V, V, R, D, D)} == {(T, B)}
    assert rlx.batched(rlx.q_learning)(q[0], a_t[0], R[0], 0.9, q[1]).shape == (B,)
    assert rlx.batched(rlx.grpo_loss)(jnp.ones([4, 7]), jnp.ones([4, 7]), jnp.ones(4)).shape == (4,)
    x = jnp.ones([2, B, T])
    assert rlx.batched(rlx.lambda_returns, (0, 1))(x, x, x, 0.9).shape == (2, B, T)
    assert rlx.td_learning(1.0, 1.0, 0.0, 1.0) == rlx.batched(rlx.td_learning)(1.0, 1.0, 0.0, 1.0)  # no batch at all


def test_several_axes_are_nested():
    x = jax.random.uniform(KEY, [T, 2, 3])
    got = rlx.batched(rlx.lambda_returns, (1, 2))(x, x, x, jnp.array([[0.1, 0.5, 0.9], [0.2, 0.6, 1.0]]))
    want = rlx.lambda_returns(x[:, 1, 0], x[:, 1, 0], x[:, 1, 0], 0.2)
    np.testing.assert_allclose(got[:, 1, 0], want, rtol=1e-6)


def test_an_array_that_can_be_read_in_two_ways_is_an_error_that_prints_both():
    lambda_ = jnp.linspace(0, 1, T)
    with pytest.raises(rlx.RankError) as raised:
        rlx.time_major(rlx.lambda_returns)(R, D, V, lambda_)
    assert str(raised.value).endswith(
        "Say which: rlx.batched(rlx.lambda_returns, 1, lambda_=0) or rlx.batched(rlx.lambda_returns, 1, lambda_=None)."
    )
    shared = rlx.time_major(rlx.lambda_returns, lambda_=None)(R, D, V, lambda_)
    each = rlx.time_major(rlx.lambda_returns, lambda_=0)(R, D, V, lambda_)
    np.testing.assert_allclose(shared[:, 1], rlx.lambda_returns(R[:, 1], D[:, 1], V[:, 1], lambda_), rtol=1e-6)
    np.testing.assert_allclose(each[:, 1], rlx.lambda_returns(R[:, 1], D[:, 1], V[:, 1], lambda_[1]), rtol=1e-6)


def test_the_lengths_of_the_others_say_how_an_array_is_read():
    per_column, per_step = jnp.linspace(0, 1, B), jnp.linspace(0, 1, 4)
    got = rlx.time_major(rlx.lambda_returns)(*RAGGED.values(), per_column)
    want = rlx.lambda_returns(R[:4, 2], D[:4, 2], V[:4, 2], per_column[2])
    np.testing.assert_allclose(got[:, 2], want, rtol=1e-6)
    got = rlx.time_major(rlx.lambda_returns)(*RAGGED.values(), per_step)
    want = rlx.lambda_returns(R[:4, 2], D[:4, 2], V[:4, 2], per_step)
    np.testing.assert_allclose(got[:, 2], want, rtol=1e-6)
    bootstrap = rlx.time_major(rlx.discounted_returns)(R[:4], D[:4], V[0])
    want = rlx.discounted_returns(R[:4, 2], D[:4, 2], V[0, 2])
    np.testing.assert_allclose(bootstrap[:, 2], want, rtol=1e-6)


def test_a_length_that_no_other_argument_has_is_not_guessed():
    got = rlx.time_major(rlx.transformed_lambda_returns)(rlx.SIGNED_HYPERBOLIC_PAIR, R, D, V, 0.9)
    want = rlx.transformed_lambda_returns(rlx.SIGNED_HYPERBOLIC_PAIR, R[:, 1], D[:, 1], V[:, 1], 0.9)
    np.testing.assert_allclose(got[:, 1], want, rtol=1e-6)


def test_each_row_has_its_own_key():
    def noisy(seed, /, **axes):
        return rlx.batched(rlx.smoothed_target_action, **axes)(seed, jnp.zeros([3, 2]), 0.2, 0.5, -1.0, 1.0)

    keys = jax.random.split(KEY, 3)
    assert len(np.unique(noisy(KEY))) == 6
    np.testing.assert_array_equal(noisy(KEY), noisy(keys))
    np.testing.assert_array_equal(noisy(KEY), noisy(jax.random.key_data(keys)))
    assert noisy(0).shape == (3, 2)
    assert len(np.unique(noisy(KEY, key=None))) == 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: rlx.time_major(rlx.vtrace)(R, R, R[:, :4], D, D),
            "`r_t` has shape .* batch is 4, expected 5 as in `v_tm1`",
        ),
        (lambda: rlx.batched(rlx.vtrace)(R[None, None], R, R, D, D), "`v_tm1` has rank 4"),
        (lambda: rlx.batched(rlx.huber_loss), "with any leading axes.\nCall it on the batch itself"),
        (lambda: rlx.batched(max), "expected an operator of rlx"),
        (lambda: rlx.batched(rlx.vtrace, epsilon=0), "unexpected keyword argument 'epsilon'"),
        (lambda: rlx.batched(rlx.vtrace, (1, 1)), "expected different batch axes"),
        (lambda: rlx.batched(rlx.vtrace, -1), "argument `axis` is -1, expected a batch axis of at least 0"),
        (lambda: rlx.batched(rlx.vtrace)(R, R), "vtrace: missing a required argument: 'r_t'"),
        (lambda: rlx.batched(rlx.lambda_returns, lambda_=1)(R, D, V, R[0]), "`lambda_` has rank 1 .* the batch axis 1"),
    ],
)
def test_errors_name_the_argument(call, text):
    with pytest.raises(rlx.ArgumentError, match=text):
        call()


def test_it_is_the_same_function_each_time_and_gradients_pass():
    assert rlx.time_major(rlx.vtrace) is rlx.time_major(rlx.vtrace)
    gradient = jax.jit(jax.grad(lambda v: jnp.sum(rlx.time_major(rlx.lambda_returns)(R, D, v, 0.9))))(V)
    np.testing.assert_allclose(gradient, jax.grad(lambda v: jnp.sum(by_hand(R, D, v, CUT & False)))(V), rtol=1e-6)


def test_the_program_is_that_of_a_vmap_by_hand():
    def program(function):
        return jax.jit(lambda *x: function(*x)).lower(R, D, V, CUT).as_text()

    ours = program(lambda r, d, v, c: rlx.time_major(rlx.lambda_returns)(r, d, v, 0.9, truncation_t=c))
    assert ours == program(by_hand)


def time_major_calls(steps):
    """(operator, arguments, keywords); the values do not matter."""
    x, q, actions = jnp.zeros([steps, B]), jnp.zeros([steps, B, 3]), jnp.zeros([steps, B], int)
    cut, ends = {"truncation_t": x > 0}, {"truncation_t": x > 0, "truncation_value_t": x}
    yield rlx.lambda_returns, (x, x, x, 0.9), cut
    yield rlx.truncated_generalized_advantage_estimation, (x, x, 0.9, jnp.zeros([steps + 1, B])), ends
    yield rlx.vtrace, (x, x, x, x, x), cut
    yield rlx.leaky_vtrace, (x, x, x, x, x, 0.9), cut
    yield rlx.vtrace_td_error_and_advantage, (x, x, x, x, x), {}
    yield rlx.retrace, (q, q, actions, actions, x, x, q, x, 0.9), ends
    yield rlx.retrace_continuous, (x, x[:-1], x, x, x, x[:-1], 0.9), cut


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="jax.vmap transposes a choice between two algorithms")
@pytest.mark.parametrize("steps", [5, 300])
def test_time_major_sequences_are_not_transposed(steps):
    """JAX moves a batch axis to the front where a batch meets a constant array; a program then takes twice as long.

    n-step returns are not among them: they concatenate, which JAX transposes for, and are faster so.
    """
    for operator, arguments, keywords in time_major_calls(steps):
        call = functools.partial(rlx.time_major(operator), *arguments, **keywords)
        program = str(jax.make_jaxpr(call)())
        assert "transpose[" not in program, operator.__name__
