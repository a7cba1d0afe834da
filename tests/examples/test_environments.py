"""Environments: the automatic reset, that all of them keep to their specs, under vmap too, and what cannot be made."""

import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("dm_env", reason="the environments need it: pip install '.[examples]'")

from dm_env import StepType, specs
from environments import FILES, auto_reset, make
from environments.environment import Environment, after, first, one_of

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


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
    keys = jax.random.split(jax.random.key(2), 500)
    states, _ = jax.vmap(environment.reset)(keys)
    new, timesteps = jax.vmap(environment.step, (0, 0, None))(keys, states, 0)
    assert not set(np.asarray(new.state).tolist()) & set(np.asarray(states.state).tolist())
    assert abs(np.corrcoef(new.state, timesteps.reward)[0, 1]) < 4 / np.sqrt(500)  # four standard deviations


def test_an_episode_that_ends_in_both_ways_has_terminated():
    timestep = after(1.0, 0.0, terminated=True, truncated=True)
    assert timestep.last()
    assert timestep.discount == 0


def test_each_of_n_is_as_likely():
    draws = jax.vmap(lambda key: one_of(key, 5))(jax.random.split(jax.random.key(3), 10_000))
    assert draws.dtype == jnp.int32
    counts = np.bincount(draws, minlength=5)
    assert counts.shape == (5,)
    assert abs(counts - 2000).max() < 4 * np.sqrt(10_000 * 0.2 * 0.8)  # four standard deviations


def random_actions(spec, n, seed=0):
    generator = np.random.default_rng(seed)
    if isinstance(spec, specs.DiscreteArray):
        return generator.integers(spec.num_values, size=n).astype(np.int32)
    return generator.uniform(spec.minimum, spec.maximum, [n, *spec.shape]).astype(spec.dtype)


@pytest.mark.parametrize("name", FILES)
def test_what_is_seen_keeps_to_the_spec_and_vmap_is_a_loop(name):
    environment = make(name)
    seen, actions = environment.observation_spec(), random_actions(environment.action_spec(), 30)
    for action in actions:
        environment.action_spec().validate(action)

    def run(key, actions):
        state, timestep = environment.reset(key)
        keys = jax.random.split(key, 10)
        return timestep, jax.lax.scan(lambda s, x: environment.step(*x[:1], s, x[1]), state, (keys, actions))

    keys = jax.random.split(jax.random.key(0), 3)
    actions = actions.reshape(3, 10, *actions.shape[1:])
    batched = jax.device_get(jax.jit(jax.vmap(run))(keys, actions))
    firsts, (states, timesteps) = batched
    for observation in [*firsts.observation, *timesteps.observation.reshape(30, *seen.shape)]:
        seen.validate(observation)
    assert states.observation.shape[1:] == seen.shape
    assert (firsts.step_type == StepType.FIRST).all()
    assert (firsts.reward == 0).all()
    assert (firsts.discount == 1).all()
    single = jax.jit(run)
    looped = jax.tree.map(lambda *leaves: np.stack(leaves), *[single(k, a) for k, a in zip(keys, actions, strict=True)])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), batched, looped)


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
        drawn = np.asarray(jax.vmap(choose)(states.state)).reshape(2000, -1)
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


def test_gymnax_is_only_imported_when_it_is_asked_for(monkeypatch):
    code = "import sys, environments; environments.make('catch'); sys.exit('gymnax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, timeout=60).returncode == 0


def test_where_gymnax_is_missing_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)  # what makes an import fail
    with pytest.raises(ValueError, match=r"gymnax:CartPole-v1 needs gymnax 1.0 or later.*pip install 'gymnax>=1'$"):
        make("gymnax:CartPole-v1")
