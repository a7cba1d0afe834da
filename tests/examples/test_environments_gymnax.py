"""gymnax's environments as ours: beside gymnax's own steps, and what is said where something is missing."""

import pathlib
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

pytest.importorskip("dm_env", reason="the environments need it: pip install '.[examples]'")

from dm_env import StepType, specs
from environments import auto_reset, from_gymnax, make

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "zoo"


@pytest.fixture
def gymnax():
    return pytest.importorskip("gymnax", reason="compares with gymnax: pip install '.[peers]'")


@pytest.mark.peer
@pytest.mark.parametrize(
    ("name", "settings", "steps"),
    [
        ("CartPole-v1", {"max_steps_in_episode": 12}, 60),  # terminates or is truncated
        # gymnax's space has another dtype than what it returns.
        pytest.param("Catch-bsuite", {}, 30, marks=pytest.mark.slow),
        pytest.param("Breakout-MinAtar", {}, 60, marks=pytest.mark.slow),
        pytest.param("FrozenLake-misc", {}, 60, marks=pytest.mark.slow),  # the observation is a number
        pytest.param("MountainCarContinuous-v0", {"max_steps_in_episode": 20}, 45, marks=pytest.mark.slow),
    ],
)
def test_its_steps_are_gymnaxs(gymnax, name, settings, steps):
    theirs, params = gymnax.make(name)
    params = params.replace(**settings)
    ours = from_gymnax(name, **settings)
    keys = jax.random.split(jax.random.key(0), steps)
    actions = jax.vmap(theirs.action_space(params).sample)(keys)

    def step(state, now):
        key, action = now
        mine = ours.step(jax.random.split(key)[0], state, action)  # the key that gymnax's own reset leaves to its step
        observation, state, *others = theirs.step(key, state, action, params)
        return state, (mine, observation, state, others)

    @jax.jit
    def run(key):
        first, (observation, state) = ours.reset(key), theirs.reset(key, params)
        return first, (observation, state), jax.lax.scan(step, state, (keys, actions))[1]

    first, start, ((states, timesteps), _, their_states, others) = jax.device_get(run(jax.random.key(1)))
    jax.tree.map(np.testing.assert_array_equal, (first[1].observation, first[0]), start)
    assert (first[1].step_type, first[1].reward, first[1].discount) == (StepType.FIRST, 0, 1)
    reward, terminated, truncated, info = others
    last = terminated | truncated
    assert last.any()
    assert not last.all()
    np.testing.assert_array_equal(timesteps.step_type, np.where(last, StepType.LAST, StepType.MID))
    np.testing.assert_array_equal(timesteps.reward, reward)
    np.testing.assert_array_equal(timesteps.discount, np.where(terminated, 0, 1))
    np.testing.assert_array_equal(timesteps.observation, info["final_observation"])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[~last], b[~last]), states, their_states)
    for observation in timesteps.observation:
        ours.observation_spec().validate(observation)
    for action in np.asarray(actions):
        ours.action_spec().validate(action)


@pytest.mark.peer
def test_the_limit_of_steps_truncates_and_does_not_terminate(gymnax):
    environment = auto_reset(make("pendulum", max_steps_in_episode=3))
    assert environment.action_spec() == specs.BoundedArray([1], np.float32, -2, 2, "action")

    def step(running, key):
        running, timestep = environment.step(key, running, np.zeros(1, np.float32))
        return running, (timestep, running.observation)

    running, _ = environment.reset(jax.random.key(0))
    _, (timesteps, seen) = jax.lax.scan(step, running, jax.random.split(jax.random.key(1), 6))
    assert timesteps.step_type.tolist() == [1, 1, 2, 1, 1, 2]
    assert timesteps.discount.tolist() == [1] * 6
    same = (seen == timesteps.observation).all(1)
    assert same.tolist() == [True, True, False, True, True, False]  # the last observation is not that of a new episode


@pytest.mark.peer
def test_unknown_names_and_settings_are_said_in_one_line(gymnax):
    with pytest.raises(ValueError, match=r"gymnax has no environment 'Breakout'; it has CartPole-v1, .*Pong"):
        make("gymnax:Breakout")
    with pytest.raises(ValueError, match=r"gymnax:Breakout-MinAtar has no setting 'ramp'; it has max_steps_in_episode"):
        make("gymnax:Breakout-MinAtar", ramp=True)


@pytest.mark.slow
def test_gymnax_is_only_imported_when_it_is_asked_for():
    code = "import sys, environments; environments.make('catch'); sys.exit('gymnax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, timeout=60).returncode == 0


def test_where_gymnax_is_missing_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)  # what makes an import fail
    with pytest.raises(ValueError, match=r"^gymnax:CartPole-v1 needs gymnax 1.0 or later.*pip install 'gymnax>=1'$"):
        make("gymnax:CartPole-v1")


def test_where_gymnax_does_not_tell_truncation_apart_the_error_says_so(monkeypatch):
    old = types.SimpleNamespace(registered_envs=["CartPole-v1"], make=lambda name: (object(), object()))
    monkeypatch.setitem(sys.modules, "gymnax", old)
    with pytest.raises(ValueError, match=r"^gymnax:CartPole-v1 needs gymnax 1.0 or later: pip install --upgrade"):
        make("gymnax:CartPole-v1")
