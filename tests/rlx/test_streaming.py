"""ObGD against a NumPy loop from the paper, in a chain of Optax's, and learning from a stream."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.key(0)


def numpy_obgd(gradients, td_errors, resets, alpha, gamma, lambda_, kappa):
    """Algorithm 3 of Elsayed, Vasan and Mahmood (2024), one step after the other; returns each step's change."""
    z, changes = np.zeros(gradients.shape[1]), []
    for gradient, delta, reset in zip(gradients, td_errors, resets, strict=True):
        z = gamma * lambda_ * z + gradient
        bound = alpha * kappa * max(abs(delta), 1) * sum(abs(z))
        changes.append((alpha / bound if bound > 1 else alpha) * delta * z)
        if reset:
            z = 0 * z
    return np.array(changes)


def test_each_step_is_the_papers():
    """With bounds that hold and bounds that do not, and an episode's end, as one compiled loop."""
    random = np.random.default_rng(0)
    gradients = random.normal(size=(12, 5)) * np.geomspace(0.01, 10, 12)[:, None]
    td_errors, resets = 3 * random.normal(size=12), np.arange(12) == 7
    settings = {"alpha": 0.7, "gamma": 0.9, "lambda_": 0.8, "kappa": 2.5}
    optimizer = rlx.obgd(0.7, 0.9, 0.8, 2.5)

    def step(state, inputs):
        gradient, td_error, reset = inputs
        tree = {"w": gradient[:3], "b": gradient[3:]}
        updates, state = optimizer.update(tree, state, td_error=td_error, reset=reset)
        return state, jnp.concatenate([updates["w"], updates["b"]])

    start = optimizer.init({"w": jnp.zeros(3), "b": jnp.zeros(2)})
    inputs = jnp.float32(gradients), jnp.float32(td_errors), jnp.asarray(resets)
    found = jax.jit(lambda: jax.lax.scan(step, start, inputs)[1])()
    expected = numpy_obgd(gradients, td_errors, resets, **settings)
    assert 2 < np.sum(np.abs(expected).sum(1) < 0.39 * np.abs(td_errors)) < 12  # some steps are not bounded
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-7)


def test_half_precision_stays_and_the_length_of_the_trace_does_not_overflow():
    optimizer = rlx.obgd()
    params = jnp.zeros(1000, jnp.float16)
    updates, state = optimizer.update(params + 100, optimizer.init(params), td_error=2.0)
    assert updates.dtype == state.trace.dtype == jnp.float16
    np.testing.assert_allclose(updates, 100 * 2 / (2 * 2 * 100_000), rtol=2e-3)


def test_what_can_go_wrong():
    optimizer = pickle.loads(pickle.dumps(rlx.obgd()))
    state = optimizer.init(jnp.zeros(2))
    with pytest.raises(rlx.ArgumentError, match="`td_error` is missing"):
        optimizer.update(jnp.ones(2), state)
    with pytest.raises(rlx.RankError, match="argument `td_error` has rank 1"):
        optimizer.update(jnp.ones(2), state, td_error=jnp.ones(2))
    for name, value in {"learning_rate": 0.0, "discount": 1.5, "lambda_": -0.1, "kappa": 0.0}.items():
        with pytest.raises(rlx.OptionError, match=f"obgd: argument `{name}` is {value}"):
            rlx.obgd(**{name: value})


@pytest.mark.peer
def test_a_chain_of_optax():
    optax = pytest.importorskip("optax")
    params, gradient = {"w": jnp.zeros(2)}, {"w": jnp.array([3.0, -4.0])}
    chain = optax.chain(optax.clip(2.0), optax.GradientTransformationExtraArgs(*rlx.obgd()), optax.scale(10.0))
    updates, state = chain.update(gradient, chain.init(params), params, td_error=jnp.float32(0.5), reset=True)
    np.testing.assert_allclose(optax.apply_updates(params, updates)["w"], [10 / 8, -10 / 8], rtol=1e-6)
    assert not np.any(state[1].trace["w"])
    bare = optax.chain(rlx.obgd(), optax.scale(1.0))
    with pytest.raises(rlx.ArgumentError, match=r"GradientTransformationExtraArgs\(\*rlx\.obgd"):
        bare.update(gradient, bare.init(params), params, td_error=0.5)


def test_it_learns_from_a_stream_what_the_equation_of_bellman_says():
    """A ring of five states with a reward in one of them: v = (I - γP)⁻¹ r."""
    states, gamma = 5, 0.8
    optimizer = rlx.obgd(1.0, gamma, 0.5)

    def step(carry, t):
        w, state = carry
        s_tm1, s_t = t % states, (t + 1) % states
        td_error = rlx.td_learning(w[s_tm1], jnp.float32(s_t == 0), gamma, w[s_t])
        updates, state = optimizer.update(jax.nn.one_hot(s_tm1, states), state, td_error=td_error)
        return (w + updates, state), None

    start = jnp.zeros(states), optimizer.init(jnp.zeros(states))
    (w, _), _ = jax.jit(lambda: jax.lax.scan(step, start, jnp.arange(1000)))()
    follow = np.roll(np.eye(states), 1, axis=1)
    expected = np.linalg.solve(np.eye(states) - gamma * follow, np.eye(states)[-1])
    np.testing.assert_allclose(w, expected, atol=1e-3)
