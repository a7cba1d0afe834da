"""Environments: the automatic reset, how episodes begin, and what cannot be made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("dm_env", reason="the environments need it: pip install '.[examples]'")

from dm_env import specs
from environments import auto_reset, make
from environments.environment import Environment, after, between, first, one_of, words


def countdown(steps=3, truncated=False):
    """Begins at a random number, which is all that is seen and the reward, and counts down `steps` times."""

    def reset(key):
        start = jax.random.uniform(key)
        return (start, 0), first(start)

    def step(key, state, action):
        value, n = state[0] - action, state[1] + 1
        over = n == steps
        return (value, n), after(value, value, over & (not truncated), over & truncated)

    return Environment(reset, step, lambda: specs.Array([], np.float32), lambda: specs.Array([], np.float32))


def trajectory(environment, key, actions):
    """States after the reset and each action, and their timesteps."""
    state, timestep = environment.reset(key)
    both = [(state, timestep)]
    for i, action in enumerate(actions):
        both.append(environment.step(jax.random.fold_in(key, i), both[-1][0], action))
    return zip(*both, strict=True)


@pytest.mark.parametrize("truncated", [False, True])
def test_an_automatic_reset_keeps_the_last_observation(truncated):
    environment = auto_reset(countdown(truncated=truncated))
    states, timesteps = trajectory(environment, jax.random.key(0), [1.0] * 7)
    begins = [float(states[i].observation) for i in (0, 3, 6)]
    assert len(set(begins)) == 3
    assert all(0 < start < 1 for start in begins)
    expected = [begins[0] - n for n in (0, 1, 2, 3)] + [begins[1] - n for n in (1, 2, 3)] + [begins[2] - 1]
    np.testing.assert_allclose([t.observation for t in timesteps], expected, atol=1e-6)
    assert [int(t.step_type) for t in timesteps] == [0, 1, 1, 2, 1, 1, 2, 1]
    last = 1.0 if truncated else 0.0
    assert [float(t.discount) for t in timesteps] == [1, 1, 1, last, 1, 1, last, 1]
    seen = [begins[0], expected[1], expected[2], begins[1], expected[4], expected[5], begins[2], expected[7]]
    np.testing.assert_allclose([s.observation for s in states], seen, atol=1e-6)


def test_the_return_is_of_the_episode_so_far():
    states, timesteps = trajectory(auto_reset(countdown()), jax.random.key(1), [1.0] * 5)
    rewards = [float(t.reward) for t in timesteps]
    expected = [0, rewards[1], sum(rewards[1:3]), 0, rewards[4], sum(rewards[4:6])]
    np.testing.assert_allclose([s.episode_return for s in states], expected, atol=1e-6)


def test_what_a_step_draws_is_not_what_the_reset_draws():
    def step(key, state, action):
        return state, after(jax.random.uniform(key), 0.0, terminated=True)

    def reset(key):
        return jax.random.uniform(key), first(0.0)

    environment = auto_reset(Environment(reset, step, None, None))
    states, _ = jax.vmap(environment.reset)(jax.random.split(jax.random.key(2), 500))
    new, timesteps = jax.vmap(environment.step, (0, 0, None))(jax.random.split(jax.random.key(3), 500), states, 0)
    assert not set(np.asarray(new.state).tolist()) & set(np.asarray(states.state).tolist())
    assert abs(np.corrcoef(new.state, timesteps.reward)[0, 1]) < 4 / np.sqrt(500)  # four standard deviations


def test_an_episode_that_ends_in_both_ways_has_terminated():
    timestep = after(1.0, 0.0, terminated=True, truncated=True)
    assert timestep.last()
    assert timestep.discount == 0


def test_words_are_random_bits_and_what_is_made_of_them_is_uniform():
    keys = jax.vmap(jax.random.key)(jnp.arange(10_000))  # keys that are numbers one after the other
    drawn = np.stack(jax.jit(jax.vmap(lambda key: words(key, 3)))(keys), 1)
    assert (drawn.shape, drawn.dtype) == ((10_000, 3), np.uint32)
    ones = np.unpackbits(drawn.view(np.uint8), bitorder="little").reshape(10_000, 96)
    assert abs(ones.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(10_000)  # five standard deviations, of 96
    assert np.abs(np.corrcoef(ones.T) - np.eye(96)).max() < 5 / np.sqrt(10_000)
    counts = np.bincount(one_of(drawn[:, 0], 5), minlength=5)
    assert counts.shape == (5,)
    assert abs(counts - 2000).max() < 4 * np.sqrt(10_000 * 0.2 * 0.8)
    edges = np.array([0, 2**31, 2**32 - 1], np.uint32)
    np.testing.assert_allclose(between(edges, -3.0, 5.0), [-3, 1, 5], atol=1e-6)


def test_episodes_begin_differently_where_they_may():
    """The range and the mean of what is random at first, of each environment where something is."""
    for name, choose, low, high in [
        ("cartpole", lambda s: jnp.stack(s.motion), -0.05, 0.05),
        ("bsuite_cartpole", lambda s: jnp.stack(s.motion), -0.05, 0.05),
        ("mountain_car", lambda s: s.position, -0.6, -0.4),
        ("pendulum", lambda s: s.angle, -np.pi, np.pi),
        ("pendulum", lambda s: s.velocity, -1, 1),
    ]:
        states, _ = jax.vmap(make(name).reset)(jax.random.split(jax.random.key(4), 2000))
        drawn = np.asarray(jax.vmap(choose)(states)).reshape(2000, -1)
        assert low <= drawn.min()
        assert drawn.max() <= high
        width = (high - low) / np.sqrt(12)
        np.testing.assert_allclose(drawn.mean(0), (low + high) / 2, atol=4 * width / np.sqrt(2000))
        np.testing.assert_allclose(drawn.std(0), width, rtol=0.1)
        assert np.abs(np.corrcoef(drawn.T) - np.eye(drawn.shape[1])).max() < 4 / np.sqrt(2000)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("breakout", {}, r"there is no environment 'breakout'; there are bandit, .*, pendulum, and gymnax:NAME"),
        ("catch", {"colums": 3}, "catch has no setting 'colums'; it has rows, columns"),
        ("bsuite:catch", {}, "there is no environment 'bsuite:catch'"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_line(name, settings, message):
    with pytest.raises(ValueError, match=message) as error:
        make(name, **settings)
    assert "\n" not in str(error.value)
