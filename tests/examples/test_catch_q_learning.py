"""The Catch example: what it returns, prints and saves, how it ends when interrupted, and that it learns."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import jax
import numpy as np
import program
import pytest
import tyro
from children import line_of
from PIL import Image, ImageSequence

pytest.importorskip("bsuite", reason="the example plays bsuite's Catch: pip install '.[examples]'")

import catch_q_learning as catch
from fuzzing import SEEDS

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "catch_q_learning.py"
FILES = {"parameters.npz", "metrics.csv", "learning_curve.png", "play.gif"}
LAST_LINE = re.compile(r"final return: -?\d\.\d\d over (\d+) episodes")


SHORT = {"episodes": 5, "evaluate_every": 2, "evaluation_episodes": 3, "hidden": 8, "progress": False}


def short(output, **changes):
    return catch.Config(**(SHORT | changes), output=str(output))


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    output = tmp_path_factory.mktemp("run")
    return output, catch.main(short(output))


def test_main_returns_every_episode_and_every_evaluation(short_run):
    _, metrics = short_run
    assert len(metrics["returns"]) == 5
    assert set(metrics["returns"]) <= {-1.0, 1.0}
    assert list(metrics["evaluations"]) == [2, 4, 5]  # every second episode, and the end
    assert metrics["final_return"] == metrics["evaluations"][5]
    assert not metrics["interrupted"]


def test_the_metrics_file_holds_what_main_returned(short_run):
    output, metrics = short_run
    header, *rows = [line.split(",") for line in (output / "metrics.csv").read_text().splitlines()]
    assert header == ["episode", "training_return", "evaluation_return"]
    assert [int(n) for n, _, _ in rows] == [1, 2, 3, 4, 5]
    assert [float(value) for _, value, _ in rows] == metrics["returns"]
    assert {int(n): float(value) for n, _, value in rows if value} == metrics["evaluations"]


def test_whole_files_are_saved_and_no_other(short_run):
    output, _ = short_run
    assert {path.name for path in output.iterdir()} == FILES
    assert (output / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "play.gif").read_bytes().startswith(b"GIF89a")
    with np.load(output / "parameters.npz") as file:
        assert {name: array.shape for name, array in file.items()} == {
            "mlp/~/linear_0/w": (50, 8),
            "mlp/~/linear_0/b": (8,),
            "mlp/~/linear_1/w": (8, 3),
            "mlp/~/linear_1/b": (3,),
        }


def test_saved_parameters_go_on_from_where_they_were(short_run, tmp_path):
    saved = short_run[0] / "parameters.npz"
    catch.main(short(tmp_path, parameters=str(saved), learning_rate=0.0, seed=1))
    with np.load(saved) as before, np.load(tmp_path / "parameters.npz") as after:
        for name in before:
            np.testing.assert_array_equal(after[name], before[name])


def test_training_changes_the_parameters(short_run):
    start = catch.Agent(short(""), (10, 5), 3, total_steps=45).initial_params()
    with np.load(short_run[0] / "parameters.npz") as trained:
        for module, arrays in start.items():
            for name, array in arrays.items():
                assert not np.array_equal(trained[f"{module}/{name}"], array), f"{module}/{name} is as it was"


def test_no_episodes_only_evaluates(short_run, tmp_path, capsys):
    output = tmp_path / "new"
    metrics = catch.main(short(output, episodes=0, parameters=str(short_run[0] / "parameters.npz")))
    assert LAST_LINE.fullmatch(capsys.readouterr().out.splitlines()[-1]).group(1) == "3"
    assert list(metrics["evaluations"]) == [0]
    assert not output.exists()


def transition(number):
    screen = np.full((10, 5), number, np.float32)
    return catch.Transition(screen, np.int32(number), np.float32(number), np.float32(1), screen + 1)


def test_learning_takes_over_the_buffers_of_the_learner():
    agent = catch.Agent(short(""), (10, 5), 3, total_steps=9)
    learner = agent.create(agent.initial_params())
    old = jax.tree.leaves(learner)
    batch = catch.Memory(4, transition(0)).batch(2, np.random.default_rng(0))
    learner, action = agent.learn_and_act(learner, batch, np.zeros((10, 5), np.float32))
    assert all(leaf.is_deleted() for leaf in old)
    assert 0 <= int(action) < 3
    assert int(learner.steps) == 1


def test_a_batch_begins_with_the_last_step_and_draws_on_the_latest():
    memory, random = catch.Memory(4, transition(0)), np.random.default_rng(0)
    for number in range(1, 7):
        memory.add(transition(number))
        batches = [memory.batch(3, random) for _ in range(40)]
        assert {int(batch.action_tm1[0]) for batch in batches} == {number}
        drawn = {int(action) for batch in batches for action in batch.action_tm1}
        assert drawn == set(range(max(0, number - 3), number + 1))
    for column, one in zip(batches[0], transition(6), strict=True):
        np.testing.assert_array_equal(column[0], one)
        assert column.dtype == one.dtype


class Scripted:
    """Stands in for an agent: plays a policy that is written here, in NumPy."""

    def __init__(self, policy):
        self.policy = policy

    def act_greedily(self, params, screens):
        return np.array([self.policy(screen) for screen in screens])


def follow_the_ball(screen):
    ball = np.argwhere(screen[:-1])[0, 1] if screen[:-1].any() else 2
    return 1 + np.sign(ball - np.argmax(screen[-1]))


@pytest.mark.parametrize(("policy", "caught"), [(follow_the_ball, range(5)), (lambda screen: 1, [2])])
def test_evaluate_plays_each_episode_to_its_end(policy, caught):
    environments = [catch.Catch(seed=seed) for seed in range(20)]
    balls = [np.argmax(catch.Catch(seed=seed).reset().observation[0]) for seed in range(20)]
    expected = np.mean([1.0 if ball in caught else -1.0 for ball in balls])
    assert catch.evaluate(Scripted(policy), {}, environments) == pytest.approx(expected)


@pytest.mark.parametrize(("policy", "ends"), [(follow_the_ball, {"caught"}), (lambda screen: 0, {"caught", "missed"})])
def test_the_animation_shows_three_rounds_and_how_they_end(policy, ends, tmp_path):
    colors = {"ball": (0xF0, 0x88, 0x3E), "paddle": (0x58, 0xA6, 0xFF), "caught": (0x3F, 0xB9, 0x50)}
    colors["missed"] = (0xF8, 0x51, 0x49)
    environments = [catch.Catch(seed=seed) for seed in range(7)]
    catch.save_play(tmp_path / "play.gif", Scripted(policy), {}, environments)
    with Image.open(tmp_path / "play.gif") as file:
        frames = [np.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(file)]
    shown = [{name for name, color in colors.items() if (frame == color).all(axis=-1).any()} for frame in frames]
    assert len(frames) == 3 * 10
    assert all(names == {"ball", "paddle"} for n, names in enumerate(shown) if n % 10 < 9)
    assert set().union(*shown[9::10]) - {"ball", "paddle"} == ends
    assert frames[0].shape == (10 * 12 + 12, 6 * (5 * 12 + 12), 3), "the seventh game is not shown"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--episodes many", "Error parsing --episodes: invalid literal for int() with base 10: 'many'"),
        ("--episode 3", "Unrecognized options: --episode, 3"),
        ("--seed", "Missing value for argument '--seed'. Expected 1 values."),
    ],
)
def test_a_bad_flag_is_named(arguments, message, refusal):
    assert message in refusal(catch.Config, arguments)


def test_every_setting_is_a_flag():
    flags = ["--seed", "3", "--episodes", "7", "--epsilon-end", "0.5", "--output", "there", "--no-progress"]
    expected = catch.Config(seed=3, episodes=7, epsilon_end=0.5, output="there", progress=False)
    assert tyro.cli(catch.Config, args=flags) == expected
    assert tyro.cli(catch.Config, args=[]) == catch.Config()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"", "it holds none"),
        (b"PK\x03\x04 but no archive", "it holds none"),
        (b"weights", "it holds none"),
    ],
)
def test_a_file_without_parameters_is_refused(tmp_path, content, message):
    path = tmp_path / "given.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(program.BadFlag, match=f"cannot read saved parameters from {path}: {message}$"):
        program.load_parameters(str(path), like={})


def test_parameters_of_another_network_are_refused(short_run):
    like = {"mlp/~/linear_0": {"w": np.zeros((50, 9))}}
    with pytest.raises(program.BadFlag, match=re.escape("(50, 8) for mlp/~/linear_0/w, and the network needs (50, 9)")):
        program.load_parameters(str(short_run[0] / "parameters.npz"), like)
    with pytest.raises(program.BadFlag, match="has nothing for conv/w, and the network needs"):
        program.load_parameters(str(short_run[0] / "parameters.npz"), {"conv": {"w": np.zeros(3)}})


def test_parameters_of_another_network_are_refused_by_the_program(short_run):
    saved = short_run[0] / "parameters.npz"
    with pytest.raises(SystemExit, match=f"{saved} has other shapes; was it saved with another --hidden"):
        catch.main(short("", episodes=0, hidden=9, parameters=str(saved)))


def start(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, PROGRAM, *map(str, arguments)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_ctrl_c_saves_what_was_learned(tmp_path):
    process = start("--episodes", 1_000_000, "--evaluate-every", 5, "--evaluation-episodes", 4, "--output", tmp_path)
    line_of(process, "episode 5: greedy return")  # training is under way
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert LAST_LINE.fullmatch(output.splitlines()[-1]).group(1) == "4"
    episodes = int(re.search(r"interrupted after (\d+) of 1000000 episodes", output).group(1))
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 1 + episodes
    assert {path.name for path in tmp_path.iterdir()} == FILES


@pytest.mark.slow
def test_the_command_answers_a_bad_flag_with_one_line(tmp_path):
    process = start("--parameters", tmp_path / "none.npz", "--output", tmp_path)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.startswith(f"--parameters: cannot read {tmp_path / 'none.npz'}: [Errno 2] No such file or directory")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_default_settings_learn_and_stay_there(tmp_path, seed):
    metrics = catch.main(catch.Config(seed=seed, output=str(tmp_path), progress=False))
    assert list(metrics["evaluations"]) == list(range(50, 501, 50))
    assert min(list(metrics["evaluations"].values())[-3:]) >= 0.95
    assert metrics["final_return"] >= 0.95
