"""Each environment beside bsuite's or Gymnasium's of the same rules: the same states and actions, every timestep."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("bsuite", reason="compares with bsuite: pip install '.[examples]'")

import dm_env
from environment_references import REFERENCES
from environments import FILES

# One step in float32 beside one in float64 from the same state: a dozen operations, each with a relative error of 6e-8,
# on numbers up to 16 (the terms of a pendulum's reward).
TOLERANCE = {"rtol": 1e-6, "atol": 2e-6}
ROUNDING = 1e-6  # of a state: so near to where an episode ends, float32 may end it in another step than float64

CASES = [  # name, settings, and the longest episode
    ("bandit", {}, 1),
    ("bsuite_cartpole", {}, 1001),
    ("cartpole", {}, 500),
    ("catch", {}, 9),
    ("deep_sea", {}, 10),
    ("discounting_chain", {}, 100),
    ("memory_chain", {}, 6),
    ("mountain_car", {}, 1000),
    ("pendulum", {}, 200),
]
WITH_SETTINGS = [
    ("bandit", {"mapping_seed": 7, "num_actions": 4}, 1),
    ("bsuite_cartpole", {"height_threshold": 0.95, "x_threshold": 0.4, "timescale": 0.03, "max_time": 1.5}, 51),
    ("cartpole", {"max_steps": 30}, 30),
    ("catch", {"rows": 4, "columns": 7}, 3),
    ("deep_sea", {"size": 5, "mapping_seed": 3, "unscaled_move_cost": 0.5}, 5),
    ("discounting_chain", {"mapping_seed": 8}, 100),
    ("memory_chain", {"memory_length": 3, "num_bits": 40}, 4),
    ("mountain_car", {"max_steps": 20}, 20),
    ("pendulum", {"max_steps": 10}, 10),
]


class Steps(NamedTuple):
    state: Any  # before the action
    action: Any
    timestep: Any


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def play(name, settings, length, episodes, key):
    """First timesteps [episodes], and `Steps` [length, episodes], which go on where an episode has ended."""
    file, reference = FILES[name], REFERENCES[name](settings)
    spec = file.action_spec(settings=settings)
    reset_key, skill_key, key = jax.random.split(key, 3)
    skill = jax.random.uniform(skill_key, [episodes])  # how often an episode's action is the skilled one

    def act(key, state):
        if np.issubdtype(spec.dtype, np.floating):  # beyond the bounds too: what is too much counts as the most
            return 1.5 * jax.random.uniform(key, [episodes, *spec.shape], minval=spec.minimum, maxval=spec.maximum)
        random = jax.random.randint(key, [episodes], 0, spec.num_values)
        if reference.skilled is None:
            return random
        return jnp.where(jax.random.uniform(key, [episodes]) < skill, jax.vmap(reference.skilled)(state), random)

    def step(state, key):
        act_key, key = jax.random.split(key)
        action = act(act_key, state)
        keys = jax.random.split(key, episodes)
        new, timestep = jax.vmap(functools.partial(file.step, settings=settings))(keys, state, action)
        return new, Steps(state, action, timestep)

    keys = jax.random.split(reset_key, episodes)
    state, first = jax.vmap(functools.partial(file.reset, settings=settings))(keys)
    return first, jax.lax.scan(step, state, jax.random.split(key, length))[1]


def replayed(reference, states, actions):
    """The reference's timesteps, from the first to where an episode ends."""
    timesteps = [reference.begin(states[0])]
    for state, action in zip(states, actions, strict=True):
        reference.put(state)
        timesteps.append(reference.step(action))
        if timesteps[-1].last():
            break
    return timesteps


def rows(tree, n):
    """The first n rows of a tree of arrays, as a list of trees of Python's numbers."""
    leaves, structure = jax.tree.flatten(tree)
    return [structure.unflatten(leaf) for leaf in zip(*(leaf[:n].tolist() for leaf in leaves), strict=True)] or [
        structure.unflatten(())
    ] * n


def agree(ours, theirs):
    """Whether the timesteps [steps] are the same, each."""
    close = functools.partial(np.isclose, **TOLERANCE)
    seen = close(ours.observation, theirs.observation).reshape(len(ours.reward), -1).all(1)
    same = (ours.step_type == theirs.step_type) & (ours.discount == theirs.discount)
    return same & close(ours.reward, theirs.reward) & seen


def stacked(timesteps):
    """dm_env's timesteps as one of arrays; the first has reward 0 and discount 1, as it is ours."""
    first, *others = timesteps
    return jax.tree.map(lambda *leaves: np.stack(leaves), first._replace(reward=0.0, discount=1.0), *others)


def decided_by_rounding(reference, states, actions, ours):
    """Whether the last timestep is ours where the reference's state before it is moved by a rounding error."""
    leaves, structure = jax.tree.flatten(states[-1])
    for i, leaf in enumerate(leaves):
        for moved in (leaf - ROUNDING, leaf + ROUNDING) if isinstance(leaf, float) else ():
            state = structure.unflatten([*leaves[:i], moved, *leaves[i + 1 :]])
            theirs = stacked(replayed(reference, [*states[:-1], state], actions))
            if len(theirs.reward) == len(ours.reward) and agree(ours, theirs)[-1]:
                return True
    return False


def assert_the_same(name, settings, length, episodes, seed):
    """Plays our episodes and the reference's; how many ended where rounding decides."""
    settings = FILES[name].Settings(**settings)
    reference = REFERENCES[name](settings)
    first, steps = jax.device_get(play(name, settings, length, episodes, jax.random.key(seed)))
    last = steps.timestep.step_type == dm_env.StepType.LAST
    assert last.any(0).all(), f"episodes are longer than {length} steps"
    by_rounding = 0
    for episode in range(episodes):
        n = last[:, episode].argmax() + 1
        own = jax.tree.map(lambda leaf: leaf[:n, episode], steps)  # noqa: B023
        timesteps = jax.tree.map(lambda a, b: np.append(a[episode][None], b, 0), first, own.timestep)  # noqa: B023
        states, actions = rows(own.state, n), own.action.tolist()
        theirs = stacked(replayed(reference, states, actions))
        same = agree(jax.tree.map(lambda leaf: leaf[: len(theirs.reward)], timesteps), theirs)  # noqa: B023
        for t in np.flatnonzero(~same):
            ours = jax.tree.map(lambda leaf: leaf[: t + 1], timesteps)  # noqa: B023
            what = f"episode {episode}, timestep {t}: {ours} beside {theirs}"
            assert t > 0 and decided_by_rounding(reference, states[:t], actions[:t], ours), what
            by_rounding += 1
        assert same[-1] < 1 or len(theirs.reward) == n + 1
    return by_rounding


@pytest.mark.parametrize(("name", "settings", "length"), CASES + WITH_SETTINGS)
def test_dozens_of_episodes_are_the_same(name, settings, length):
    assert assert_the_same(name, settings, length, episodes=24, seed=1) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings", "length"), CASES)
def test_ten_thousand_episodes_are_the_same(name, settings, length):
    by_rounding = sum(assert_the_same(name, settings, length, episodes=1000, seed=seed) for seed in range(10))
    assert by_rounding <= 3
