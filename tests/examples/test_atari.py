"""`examples/dqn_atari.py` and `ppo_atari.py`: the wrapper equals Stable-Baselines3's, batches are of one episode."""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.peer
pytest.importorskip("gymnasium")
pytest.importorskip("cv2")

PATH = pathlib.Path(__file__).parents[2] / "examples" / "dqn_atari.py"
PLAIN = {"episodic_life": False, "clip_rewards": False, "noops": 0}


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("dqn_atari", PATH)
    module = sys.modules["dqn_atari"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["dqn_atari"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("game", "settings"),
    [("Pong", {}), ("Breakout", {}), ("SpaceInvaders", {"sticky": 0.25}), ("Breakout", PLAIN)],
)
def test_observations_rewards_and_ends_of_1000_steps(program, game, settings):
    pytest.importorskip("ale_py")
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    config = program.Config(env=f"ALE/{game}-v5", **settings)
    ours = program.make_env(config).env
    expected = wrappers.AtariWrapper(
        ours.unwrapped.spec.make(),
        noop_max=config.noops,
        terminal_on_life_loss=config.episodic_life,
        clip_reward=config.clip_rewards,
    )
    np.testing.assert_array_equal(ours.reset(seed=3)[0], expected.reset(seed=3)[0][..., 0])
    ended = 0
    for action in np.random.default_rng(0).integers(ours.action_space.n, size=1000).tolist():
        picture, *outcome, _ = ours.step(action)
        expected_picture, *expected_outcome, _ = expected.step(action)
        np.testing.assert_array_equal(picture, expected_picture[..., 0])
        assert outcome == expected_outcome
        if outcome[1] or outcome[2]:
            ended += 1
            np.testing.assert_array_equal(ours.reset()[0], expected.reset()[0][..., 0])
    assert ended


def test_batches_show_pictures_of_one_episode(program):
    config = program.Config(capacity=40, batch_size=200, discount=0.5)
    row = [("picture", np.uint8, (84, 84)), ("action", "i4"), ("reward", "f4"), ("ends", bool), ("last", bool)]
    replay, last = np.zeros(40, row), np.random.default_rng(0).random(60) < 0.2
    for n in range(60):  # pictures show their number, and the last 40 are in the replay
        ends = not last[n] and n < 59 and last[n + 1] and n % 2 == 0
        replay[n % 40] = np.full([84, 84], n), n, n, ends, last[n]
    pictures, actions, rewards, discounts = program.draw(config, replay, 60, np.random.default_rng(1))
    assert pictures.shape == (200, 5, 84, 84) and set(actions) == set(range(23, 59)) - set(np.flatnonzero(last))
    np.testing.assert_array_equal(rewards, actions)
    for picture, n, discount in zip(pictures[..., 0, 0].tolist(), actions.tolist(), discounts.tolist(), strict=True):
        begin = max([i + 1 for i in range(n) if last[i]], default=0)
        assert picture == [i if i >= begin else 0 for i in range(n - 3, n + 2)]
        assert discount == (0.0 if last[n + 1] and n % 2 == 0 else 0.5)


@pytest.mark.slow
def test_a_short_run_ends_with_its_return(tmp_path):
    pytest.importorskip("ale_py")
    from test_single_files import run

    short = ["--steps", "400", "--warmup", "200", "--capacity", "300", "--evaluation-episodes", "1"]
    done = run(tmp_path, "dqn_atari", "--env", "ALE/Breakout-v5", *short)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" over 1 episodes")
    assert (tmp_path / "runs/dqn_atari/curve.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--envpool"]])
def test_ppo_on_two_games_ends_with_its_return(flags, tmp_path):
    pytest.importorskip("ale_py")
    if flags:
        pytest.importorskip("envpool")
    from test_single_files import run

    short = ["--steps", "64", "--environments", "2", "--rollout", "16", "--epochs", "1", "--evaluation-episodes", "2"]
    done = run(tmp_path, "ppo_atari", "--env", "ALE/Breakout-v5", *flags, *short)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" over 2 episodes")
    assert len((tmp_path / "runs/ppo_atari/metrics.csv").read_text().splitlines()) == 3
    done = run(tmp_path, "ppo_atari", "--env", "ALE/Tetriz-v5", *flags)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("--env: ")
    assert ("Tetriz-v5 is not supported" if flags else "Did you mean: `Tetris`") in done.stderr.splitlines()[-1]
