"""Our environments as dm_env's: by dm_env's own conformance test, and in bsuite's logging and scores."""

import jax
import numpy as np
import pytest

pytest.importorskip("bsuite", reason="compares with bsuite: pip install '.[examples]'")

import dm_env
import pandas as pd
from absl.testing import absltest
from bsuite.environments.catch import Catch
from bsuite.experiments.catch import analysis
from bsuite.logging import csv_logging
from dm_env import test_utils
from environments import DmEnv, make


class ConformanceTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
    def make_object_under_test(self):
        return DmEnv(make("catch"), seed=0)

    def make_action_sequence(self):
        yield from np.random.default_rng(0).integers(3, size=30, dtype=np.int32)


def test_a_truncated_episode_is_not_over_for_a_learner():
    pytest.importorskip("gymnax")
    environment = DmEnv(make("pendulum", max_steps_in_episode=4))
    environment.reset()
    steps = [environment.step(np.ones(1)) for _ in range(6)]
    assert [step.step_type.name for step in steps] == ["MID", "MID", "MID", "LAST", "FIRST", "MID"]
    assert [step.discount for step in steps] == [1, 1, 1, 1, None, 1]
    environment.observation_spec().validate(steps[-1].observation)


def play(environment, seed, steps):
    generator = np.random.default_rng(seed)
    return [environment.step(generator.integers(3)) for _ in range(steps)]


def test_a_seed_is_one_course_of_events():
    one, same, other = (play(DmEnv(make("catch"), seed), 0, 60) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, one, same)
    assert any((a.observation != b.observation).any() for a, b in zip(one, other, strict=True))


def test_what_is_returned_may_be_written_to():
    environment = DmEnv(make("catch"))
    timesteps = [environment.reset(), environment.step(1)]
    for timestep in timesteps:
        assert type(timestep.observation) is np.ndarray
        timestep.observation[:] = 0
    assert type(timesteps[1].reward) is float
    assert environment.step(1).observation.sum() == 2


@pytest.mark.parametrize("action", [3, -1, [1], 0.5])
def test_an_action_beyond_the_spec_is_an_error(action):
    environment = DmEnv(make("catch"))
    environment.reset()
    with pytest.raises((ValueError, TypeError), match=r"action|Cannot cast"):
        environment.step(action)


def logged(environment, path, policy, episodes=30):
    environment = csv_logging.wrap_environment(environment, "catch/0", str(path))
    balls = []
    for _ in range(episodes):
        timestep = environment.reset()
        balls.append(int(timestep.observation[0].argmax()))
        while not timestep.last():
            timestep = environment.step(policy(timestep.observation))
    return pd.read_csv(path / "bsuite_id_-_catch-0.csv"), balls


class SameBalls(Catch):
    """bsuite's Catch with given balls."""

    def __init__(self, balls):
        super().__init__()
        self.balls = iter(balls)

    def _reset(self):
        super()._reset()
        self._ball_x = next(self.balls)
        return dm_env.restart(self._observation())


def skilled(observation):
    return 1 + np.sign(observation[:-1].argmax() % 5 - observation[-1].argmax()) * (observation[:-1].sum() > 0)


@pytest.mark.parametrize(("policy", "score"), [(skilled, 1.0), (lambda observation: 0, None)])
def test_bsuites_log_and_score_are_those_of_its_own_environment(tmp_path, policy, score):
    ours, balls = logged(DmEnv(make("catch"), seed=3), tmp_path / "ours", policy)
    theirs, _ = logged(SameBalls(balls), tmp_path / "theirs", policy)
    assert len(ours) > 10
    pd.testing.assert_frame_equal(ours[theirs.columns], theirs)
    assert analysis.score(ours) == analysis.score(theirs)
    assert score is None or analysis.score(ours) == score
    assert DmEnv(make("catch")).bsuite_num_episodes == Catch().bsuite_num_episodes


def test_what_bsuites_other_scores_read_is_logged():
    environment = DmEnv(make("deep_sea", size=4, randomize_actions=False), optimal_return=0.99)
    unfinished = [environment.reset(), environment.step(1)]
    assert not unfinished[-1].last()
    for action in (1, 0):  # to the treasure, and along the coast
        timestep = environment.reset()
        while not timestep.last():
            timestep = environment.step(action)
    environment.reset()
    environment.step(1)
    info = environment.bsuite_info()
    assert info["total_bad_episodes"] == 1
    assert info["total_perfect"] == 1
    np.testing.assert_allclose([info["raw_return"], info["best_episode"], info["total_regret"]], [0.99, 0.99, 0.99])
