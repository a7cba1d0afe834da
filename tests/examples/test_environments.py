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
    """The states after the reset and after each action, [1 + T], and their timesteps."""

    @jax.jit
    def run(key, actions):
        first = environment.reset(key)

        def step(state, now):
            state, timestep = environment.step(now[0], state, now[1])
            return state, (state, timestep)

        keys = jax.random.split(jax.random.fold_in(key, 1), len(actions))
        others = jax.lax.scan(step, first[0], (keys, actions))[1]
        return jax.tree.map(lambda a, b: jnp.concatenate([jnp.asarray(a, b.dtype)[None], b]), first, others)

    return jax.device_get(run(key, np.array(actions, np.float32)))


@pytest.mark.parametrize("truncated", [False, True])
def test_an_automatic_reset_keeps_the_last_observation(truncated):
    environment = auto_reset(countdown(truncated=truncated))
    states, timesteps = trajectory(environment, jax.random.key(0), [1.0] * 7)
    begins = [float(states.observation[i]) for i in (0, 3, 6)]
    assert len(set(begins)) == 3
    assert all(0 < start < 1 for start in begins)
    expected = [begins[0] - n for n in (0, 1, 2, 3)] + [begins[1] - n for n in (1, 2, 3)] + [begins[2] - 1]
    np.testing.assert_allclose(timesteps.observation, expected, atol=1e-6)
    assert timesteps.step_type.tolist() == [0, 1, 1, 2, 1, 1, 2, 1]
    last = 1 if truncated else 0
    assert timesteps.discount.tolist() == [1, 1, 1, last, 1, 1, last, 1]
    seen = [begins[0], expected[1], expected[2], begins[1], expected[4], expected[5], begins[2], expected[7]]
    np.testing.assert_allclose(states.observation, seen, atol=1e-6)


def test_the_return_is_of_the_episode_so_far():
    states, timesteps = trajectory(auto_reset(countdown()), jax.random.key(1), [1.0] * 5)
    _, a, b, _, c, d = timesteps.reward.tolist()
    np.testing.assert_allclose(states.episode_return, [0, a, a + b, 0, c, c + d], atol=1e-6)


def test_what_a_step_draws_is_not_what_the_reset_draws():
    def step(key, state, action):
        return state, after(jax.random.uniform(key), 0.0, terminated=True)

    def reset(key):
        return jax.random.uniform(key), first(0.0)

    environment = auto_reset(Environment(reset, step, None, None))

    @jax.jit
    @jax.vmap
    def run(key):
        state, _ = environment.reset(key)
        return environment.step(jax.random.fold_in(key, 1), state, 0)

    new, timesteps = run(jax.random.split(jax.random.key(2), 500))
    assert not set(new.state.tolist()) & set(timesteps.reward.tolist())
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


@pytest.mark.parametrize(
    ("name", "settings", "drawn", "values"),
    [
        ("bsuite_cartpole", {"init_range": 0.2}, lambda s: jnp.stack(s.motion), (-0.2, 0.2)),
        ("mountain_car", {}, lambda s: s.position[None], (-0.6, -0.4)),
        ("catch", {}, lambda s: s.column[None], range(5)),
        ("memory_chain", {"num_bits": 40}, lambda s: s.context, range(2)),
        ("memory_chain", {"num_bits": 40}, lambda s: s.query[None], range(40)),
    ],
)
def test_what_is_drawn_as_an_episode_begins_is_uniform(name, settings, drawn, values):
    """Between two values, or over a range of whole numbers: what the least, the most, the mean and the spread are."""
    reset = jax.jit(jax.vmap(lambda seed: drawn(make(name, **settings).reset(jax.random.key(seed))[0])))
    numbers = np.asarray(reset(np.arange(2000)), float)  # [2000, n]
    low, high = min(values), max(values)
    steps = len(values) - 1 if isinstance(values, range) else np.inf
    spread = (high - low) * np.sqrt((1 + 2 / steps) / 12)
    assert low <= numbers.min() <= low + 0.01 * (high - low)
    assert high >= numbers.max() >= high - 0.01 * (high - low)
    assert abs(numbers.mean(0) - (low + high) / 2).max() < 5 * spread / np.sqrt(2000)
    np.testing.assert_allclose(numbers.std(0), spread, rtol=0.08)
    correlations = np.corrcoef(numbers.T) - np.eye(numbers.shape[1])
    assert abs(correlations).max() < 5 / np.sqrt(2000)  # five standard deviations, of up to 780


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("breakout", {}, r"there is no environment 'breakout'; there are bandit, .*, pendulum, and gymnax:NAME"),
        ("catch", {"colums": 3}, "catch has no setting 'colums'; it has rows, columns"),
        ("bandit", {"mapping_seed": None}, "bandit: mapping_seed must be a number, and is None"),
        ("catch", {"rows": 1}, "catch: rows must be a whole number, at least 2, and is 1"),
        ("memory_chain", {"memory_length": 2.5}, "memory_chain: memory_length must be a whole number, at least 1"),
        ("deep_sea", {"unscaled_move_cost": float("nan")}, "must be a finite number, at least 0, and is nan"),
        ("deep_sea", {"deterministic": "no"}, "deep_sea: deterministic must be True or False, and is 'no'"),
        ("bsuite:catch", {}, "there is no environment 'bsuite:catch'"),
        ("catch,columns", {}, "a setting is written NAME=NUMBER, and this is 'columns'"),
        ("catch,rows=1", {}, "catch: rows must be a whole number, at least 2, and is 1"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_line(name, settings, message):
    with pytest.raises(ValueError, match=message) as error:
        make(name, **settings)
    assert "\n" not in str(error.value)


def test_settings_may_stand_behind_the_name():
    assert make("catch,columns=7,rows=3").observation_spec().shape == (3, 7)
