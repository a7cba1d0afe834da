"""Each environment beside bsuite's of the same rules: the same states and actions, every timestep."""

import functools
import itertools
import math
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("bsuite", reason="compares with bsuite: pip install '.[examples]'")

import dm_env
from environment_references import REFERENCES
from environments import FILES, auto_reset, make

# One step in float32 beside one in float64 from the same state: a dozen operations, each with a relative error of 6e-8,
# on numbers up to 10 (the force on a cart).
TOLERANCE = {"rtol": 1e-6, "atol": 2e-6}
ROUNDING = 1e-6  # of a state: so near to where an episode ends, float32 may end it in another step than float64

CASES = [  # name, settings, and the longest episode
    ("bandit", {}, 1),
    ("bsuite_cartpole", {}, 1001),
    ("catch", {}, 9),
    ("deep_sea", {}, 10),
    ("discounting_chain", {}, 100),
    ("memory_chain", {}, 6),
    ("mountain_car", {}, 1000),
]
WITH_SETTINGS = [
    ("bandit", {"mapping_seed": 7, "num_actions": 4}, 1),
    ("deep_sea", {"size": 5, "mapping_seed": 3, "unscaled_move_cost": 0.5}, 5),
    ("discounting_chain", {"mapping_seed": 8}, 100),
]
WITH_SETTINGS_TOO = [
    ("bsuite_cartpole", {"height_threshold": 0.95, "x_threshold": 0.4, "timescale": 1 / 32, "max_time": 1.5}, 49),
    ("catch", {"rows": 4, "columns": 7}, 3),
    ("memory_chain", {"memory_length": 3, "num_bits": 40}, 4),
    ("mountain_car", {"max_steps": 20}, 20),
]


class Step(NamedTuple):
    running: Any  # before the action
    action: Any
    timestep: Any


def reference_of(name, settings):
    return REFERENCES[name](FILES[name].Settings(**settings))


@functools.cache
def player(name, settings):
    """A compiled function that plays for ever: (keys [1 + T, n], actions [T, n], skilled [T, n]) -> Step [T, n]."""
    environment, reference = auto_reset(make(name, **dict(settings))), reference_of(name, dict(settings))

    def step(running, now):
        key, action, skilled = now
        if reference.skilled is not None:
            action = jnp.where(skilled, jax.vmap(reference.skilled)(running.state), action)
        new, timestep = jax.vmap(environment.step)(key, running, action)
        return new, Step(running, action, timestep)

    def play(keys, *others):
        running, _ = jax.vmap(environment.reset)(keys[0])
        return jax.lax.scan(step, running, (keys[1:], *others))[1]

    return jax.jit(play)


def play(name, settings, steps, n, seed):
    """Steps [steps, n] of n environments, in which one plays at random and another with skill, or with some."""
    generator, number = np.random.default_rng(seed), make(name, **settings).action_spec().num_values
    keys = jax.random.wrap_key_data(generator.integers(2**32, size=[1 + steps, n, 2], dtype=np.uint32))
    actions = generator.integers(number, size=[steps, n], dtype=np.int32)
    skilled = generator.random([steps, n]) < generator.random(n)
    return jax.device_get(player(name, tuple(settings.items()))(keys, actions, skilled))


def episodes_of(steps):
    """Each environment's steps, cut after each LAST: episodes, of which an environment's last one has no end."""
    last = steps.timestep.step_type == dm_env.StepType.LAST
    for i in range(last.shape[1]):
        ends = [0, *(np.flatnonzero(last[:, i]) + 1), len(last)]
        for begin, end in itertools.pairwise(ends):
            if begin < end:
                yield jax.tree.map(lambda leaf: leaf[begin:end, i], steps)  # noqa: B023


def replayed(reference, states, actions):
    """The reference's timesteps from these states, up to where its episode ends; of its first, reward 0, discount 1."""
    timesteps = [reference.begin(states[0])._replace(reward=0.0, discount=1.0)]
    for state, action in zip(states, actions, strict=True):
        reference.put(state)
        timesteps.append(reference.step(action))
        if timesteps[-1].last():
            break
    return jax.tree.map(lambda *leaves: np.stack(leaves), *timesteps)


def timesteps_of(episode):
    """Ours, and before them the first one, whose observation is in the state that begins the episode."""
    begin = dm_env.TimeStep(np.int32(0), np.float32(0), np.float32(1), episode.running.observation[0])
    return jax.tree.map(lambda a, b: np.concatenate([a[None], b]), begin, episode.timestep)


def agree(ours, theirs):
    """Whether each timestep is the same, of as many as the reference has."""
    ours = jax.tree.map(lambda leaf: leaf[: len(theirs.reward)], ours)
    close = functools.partial(np.isclose, **TOLERANCE)
    seen = close(ours.observation, theirs.observation).reshape(len(theirs.reward), -1).all(1)
    same = (ours.step_type == theirs.step_type) & (ours.discount == theirs.discount)
    return same & close(ours.reward, theirs.reward) & seen


def decided_by_rounding(reference, states, actions, ours):
    """Whether the reference does as we do after a state that is moved by a rounding error."""
    leaves, structure = jax.tree.flatten(states[-1])
    for i, leaf in enumerate(leaves):
        for moved in (leaf - ROUNDING, leaf + ROUNDING) if isinstance(leaf, float) else ():
            state = structure.unflatten([*leaves[:i], moved, *leaves[i + 1 :]])
            if agree(ours, replayed(reference, [*states[:-1], state], actions))[-1]:
                return True
    return False


def assert_the_same(reference, steps):
    """Lets the reference play the same; returns the number of whole episodes, and of those that rounding ended."""
    whole = by_rounding = 0
    for episode in episodes_of(steps):
        leaves, structure = jax.tree.flatten(episode.running.state)
        columns = [leaf.tolist() for leaf in leaves]  # Python's numbers, in float64
        states = [structure.unflatten(column[t] for column in columns) for t in range(len(episode.action))]
        actions, ours = episode.action.tolist(), timesteps_of(episode)
        theirs = replayed(reference, states, actions)
        same = agree(ours, theirs)
        if not same.all():
            (t,) = np.flatnonzero(~same)  # where an episode's end is one's and not the other's, it is this one alone
            story = "\n".join(str(jax.tree.map(lambda leaf: leaf[t], timesteps)) for timesteps in (ours, theirs))  # noqa: B023
            assert t, f"the first timesteps differ:\n{story}"
            assert decided_by_rounding(reference, states[:t], actions[:t], ours), f"timesteps {t} differ:\n{story}"
            by_rounding += 1
        else:
            assert len(theirs.reward) == len(ours.reward)
        whole += ours.step_type[-1] == dm_env.StepType.LAST
    return whole, by_rounding


DOZENS = [*CASES, *WITH_SETTINGS, *(pytest.param(*case, marks=pytest.mark.slow) for case in WITH_SETTINGS_TOO)]


@functools.cache
def dozens_of_episodes(name, settings, longest):
    return play(name, dict(settings), longest, n=24, seed=1)


@pytest.mark.parametrize(("name", "settings", "longest"), DOZENS)
def test_dozens_of_episodes_are_the_same(name, settings, longest):
    steps = dozens_of_episodes(name, tuple(settings.items()), longest)
    assert (steps.timestep.step_type == dm_env.StepType.LAST).any(0).all()  # no episode is longer
    whole, by_rounding = assert_the_same(reference_of(name, settings), steps)
    assert whole >= 24
    assert by_rounding == 0


@pytest.mark.parametrize(("name", "settings", "longest"), DOZENS)
def test_what_is_seen_keeps_to_the_spec(name, settings, longest):
    steps = dozens_of_episodes(name, tuple(settings.items()), longest)
    environment = auto_reset(make(name, **settings))
    spec = environment.observation_spec()
    for seen in (steps.running.observation, steps.timestep.observation):
        assert seen.shape[2:] == spec.shape
        spec.replace(shape=seen.shape).validate(seen)
    action = environment.action_spec().generate_value()
    assert (action.shape, action.dtype) == (steps.action.shape[2:], steps.action.dtype)


@pytest.mark.long
@pytest.mark.parametrize(("name", "settings", "longest"), CASES)
def test_thousands_of_episodes_are_the_same(name, settings, longest):
    """Ten thousand, or a quarter of a million steps, unless EPISODES=all: each step is compared by itself."""
    most = math.inf if os.environ.get("EPISODES") == "all" else 250_000
    reference, whole, by_rounding, plays = reference_of(name, settings), 0, 0, 0
    while whole < 10_000 and plays * 500 * longest < most:
        counts = assert_the_same(reference, play(name, settings, longest, n=500, seed=2 + plays))
        whole, by_rounding, plays = whole + counts[0], by_rounding + counts[1], plays + 1
    print(f"{name}: {whole} episodes, {by_rounding} ended by rounding")
    assert by_rounding <= whole // 1000


class Chance:
    """What bsuite's deep sea draws: the wind, which is ours, and no noise."""

    def rand(self):
        return 1.0 if self.moves else 0.0

    def randn(self):
        self.noisy = True
        return 0.0


def test_the_wind_and_the_noise_of_a_deep_sea_that_is_not_deterministic():
    size, settings = 3, {"size": 3, "deterministic": False}
    reference = reference_of("deep_sea", settings)
    reference.env._rng = chance = Chance()
    noise, moved = [], []
    for episode in episodes_of(play("deep_sea", settings, steps=9, n=300, seed=3)):
        ours, (rows, columns) = timesteps_of(episode), episode.running.state
        theirs = [reference.begin(None)._replace(reward=0.0, discount=1.0)]
        for t, action in enumerate(episode.action.tolist()):
            chance.moves = t == size - 1 or columns[t + 1] == columns[t] + 1  # below the lowest row there is no column
            chance.noisy = False
            right = action == reference.env._action_mapping[t, columns[t]]
            theirs.append(reference.step(action))
            if right and t < size - 1:
                moved.append(chance.moves)
            if chance.noisy:
                noise.append(ours.reward[t + 1] - theirs[-1].reward)
                theirs[-1] = theirs[-1]._replace(reward=ours.reward[t + 1])
        assert rows.tolist() == list(range(size))
        assert agree(ours, jax.tree.map(lambda *leaves: np.stack(leaves), *theirs)).all()
    assert min(len(moved), len(noise)) > 500
    share, wind = np.mean(moved), 1 - 1 / size
    assert abs(share - wind) < 4 * np.sqrt(wind / size / len(moved))  # four standard deviations, here and below
    for k, probability in [(1, 0.6827), (2, 0.9545)]:
        deviation = np.sqrt(probability * (1 - probability) / len(noise))
        assert abs(np.mean(np.abs(noise) < k) - probability) < 4 * deviation
    assert abs(np.mean(noise)) < 4 / np.sqrt(len(noise))
