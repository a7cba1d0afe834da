"""Learning on the device: what a run writes, how it is interrupted and resumed, many agents, and that it learns."""

import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import program
import pytest
from children import environment

pytest.importorskip("dm_env", reason="the environments speak dm_env: pip install '.[examples]'")

from on_device import dqn, q_learning, sac, training
from settings import BadSetting

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "on_device" / "q_learning.py"
FILES = {"metrics.json", "curve.png", "parameters.npz", "checkpoint.npz"}
SMALL = {"steps": 4 * 9 * 24, "environments": 4, "hidden": 8, "evaluation_episodes": 5, "progress": False}

RATES = (0.005, 0.001, 0.003)


def small(output, module=q_learning, **changes):
    return module.Config(**(SMALL | changes), output=str(output))


def arrays(folder, name="parameters.npz"):
    with np.load(folder / name) as file:
        return dict(file)


def assert_same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    output = tmp_path_factory.mktemp("one")
    return output, q_learning.main(small(output, seed=4))


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    output = tmp_path_factory.mktemp("eight")
    return output, q_learning.main(small(output, seed=3, agents=8, learning_rate=RATES))


def test_what_a_run_writes(one):
    output, metrics = one
    assert {path.name for path in output.iterdir()} == FILES
    assert json.loads((output / "metrics.json").read_text()) == json.loads(json.dumps(metrics))
    assert (output / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert arrays(output)["linear/w"].shape == (50, 8)
    assert -1 <= metrics["final_return"] <= 1
    assert metrics["agents"] == 1
    assert metrics["environment_steps"] == 4 * 9 * 24
    assert metrics["seconds_to_compile"] > 0
    assert metrics["steps_per_second"] == pytest.approx(metrics["environment_steps"] / metrics["seconds_to_run"])


def test_the_curve_is_of_returns_that_the_game_can_have(one):
    # An episode of Catch has nine steps, and so has a rollout: four end in each update, with +1 or -1.
    curve = one[1]["curve"]
    assert curve["environment_steps"] == [36 * (n + 1) for n in range(24)]
    assert {(np.array(row) * 4 % 2).item() for row in curve["return"]} == {0.0}
    assert np.ptp(curve["return"]) > 0


@pytest.mark.slow
def test_agents_learn_as_each_would_alone(eight, tmp_path):
    output, metrics = eight
    assert len(metrics["final_return"]) == 8
    together = arrays(output)
    for agent, rate in (0, 0.005), (7, 0.001):
        alone = tmp_path / str(agent)
        metrics_alone = q_learning.main(small(alone, seed=3 + agent, learning_rate=(rate,)))
        assert metrics_alone["final_return"] == pytest.approx(metrics["final_return"][agent])
        for name, array in arrays(alone).items():
            # Sums in another order differ by rounding, and Adam divides by small numbers.
            np.testing.assert_allclose(together[name][agent], array, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
@pytest.mark.slow
def test_agents_on_devices_of_their_own_learn_the_same(eight, tmp_path):
    q_learning.main(small(tmp_path, seed=3, agents=8, devices=8, learning_rate=RATES))
    for name, array in arrays(tmp_path).items():
        np.testing.assert_allclose(array, arrays(eight[0])[name], rtol=1e-3, atol=1e-5, err_msg=name)


class InterruptingBar:
    """In place of tqdm: Ctrl-C after three chunks."""

    calls = 0

    def __init__(self, **_):
        pass

    def update(self, _):
        InterruptingBar.calls += 1
        if InterruptingBar.calls == 3:
            os.kill(os.getpid(), signal.SIGINT)

    def set_postfix_str(self, *_, **__):
        pass

    def close(self):
        pass


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_parameters(one, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "tqdm", InterruptingBar)
    InterruptingBar.calls = 0
    metrics = q_learning.main(small(tmp_path, seed=4))
    assert metrics["interrupted"]
    assert metrics["environment_steps"] == 3 * 36
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert "interrupted after 108 of 864 steps" in capsys.readouterr().out
    with pytest.raises(program.BadFlag, match=r"^argument --output: .* was interrupted; --resume continues it"):
        q_learning.main(small(tmp_path, seed=4))
    metrics = q_learning.main(small(tmp_path, seed=4, resume=True))
    assert not metrics["interrupted"]
    assert metrics["final_return"] == one[1]["final_return"]
    assert metrics["curve"] == one[1]["curve"]
    assert_same_arrays(arrays(tmp_path), arrays(one[0]))


def test_what_is_not_the_runs_own_checkpoint_is_refused_in_one_line(one, tmp_path):
    with pytest.raises(program.BadFlag, match=r"^argument --resume: .* --hidden was 8 there, and is 16 now$"):
        q_learning.main(small(one[0], seed=4, hidden=16, resume=True))
    whole = (one[0] / "checkpoint.npz").read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"PK" + bytes(100)):
        (tmp_path / "checkpoint.npz").write_bytes(damaged)
        with pytest.raises(program.BadFlag, match=r"^argument --resume: .* does not hold a checkpoint$"):
            q_learning.main(small(tmp_path, seed=4, resume=True))
    missing = arrays(one[0], "checkpoint.npz")
    missing.pop(".updates")
    np.savez(tmp_path / "checkpoint.npz", **missing)
    with pytest.raises(program.BadFlag, match="holds the arrays of another learner"):
        q_learning.main(small(tmp_path, seed=4, resume=True))


def test_a_disk_that_is_full_for_a_while_stops_no_learning(one, tmp_path, monkeypatch, capsys):
    full, savez = iter([True, True]), np.savez

    def savez_where_there_is_room(path, **arrays):
        if "checkpoint" in str(path) and next(full, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        savez(path, **arrays)

    monkeypatch.setattr(np, "savez", savez_where_there_is_room)
    monkeypatch.setattr(training.time, "perf_counter", iter(range(10**6)).__next__)  # every chunk takes a second
    q_learning.main(small(tmp_path, seed=4))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("checkpoint.npz: No space left on device; the previous checkpoint is intact" in line for line in said)
    assert_same_arrays(arrays(tmp_path), arrays(one[0]))


def test_a_disk_that_stays_full_loses_no_result(tmp_path, monkeypatch, capsys):
    def savez(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(program.BadFlag, match=r"parameters.npz: No space left on device$"):
        q_learning.main(small(tmp_path))
    assert "final return: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env": "tetris"}, "argument --env: there is no environment 'tetris'; there are bandit, "),
        ({"env": "pendulum"}, "argument --env: the actions of pendulum are continuous, not discrete"),
        ({"agents": 3, "devices": 2}, "argument --devices: 3 agents cannot be divided among 2 devices"),
        ({"agents": 10_000, "devices": 10_000}, "argument --devices: 10000 are asked for, and there are "),
        ({"learning_rate": (0.1, 2)}, "learning_rate must be between 0 and 1, not 2.0"),
        ({"minibatches": 3}, "argument --minibatches: 4 environments cannot be divided into 3 minibatches"),
        ({"steps": 0}, "steps must be 1 or more, not 0"),
    ],
)
def test_a_bad_flag_is_said_in_one_line(tmp_path, changes, said):
    with pytest.raises(BadSetting) as error:
        q_learning.main(small(tmp_path, **changes))
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("updates", [1, 2, 19, 20, 21, 47, 100, 1009, 12345, 10**6 + 3])
@pytest.mark.parametrize("steps_per_update", [1, 1152, 2**22])
def test_chunks_hold_all_updates_and_hardly_more(updates, steps_per_update):
    chunks, each = training.chunks_of(updates, steps_per_update)
    assert updates <= chunks * each <= updates * 1.05
    assert chunks >= min(updates, 20)
    assert each == 1 or each * steps_per_update <= 2**22


@pytest.mark.parametrize("program_", [dqn, sac])
def test_a_replay_without_room_for_a_step_of_all_environments_is_refused(program_):
    message = "argument --capacity: must be at least the number of environments, 16, not 15"
    with pytest.raises(BadSetting, match=f"^{message}$"):
        program_.Config(environments=16, capacity=15)


def test_exploration_decreases_in_its_share_of_the_training_which_may_be_none():
    numbers = {"epsilon_end": np.float32(0.25), "exploration": np.array([0.0, 0.5, 1.0], np.float32)}
    for trained, expected in (0.0, [0.25, 1, 1]), (0.25, [0.25, 0.5, 0.75]), (0.75, [0.25, 0.25, 0.25]):
        np.testing.assert_array_equal(training.exploration(numbers, np.float32(trained)), expected)


@pytest.mark.slow
def test_dqn_learns_from_the_transitions_that_it_remembers(tmp_path):
    """The first update, beside the same made by NumPy from the replay's own transitions."""
    config = small(tmp_path, dqn, env="catch", capacity=64, warmup=32, batch_size=6, layers=1, double=False)
    learner = dqn.make_learner(config)
    numbers = {"learning_rate": 0.01, "discount": 0.9, "epsilon_end": 0.1, "exploration": 0.5}
    before = jax.jit(learner.init)(jax.random.key(0), {k: np.float32(v) for k, v in numbers.items()})
    after, metrics = jax.jit(learner.update)(before, None)
    assert int(after.replay.size) == 32 + 4
    key = jax.random.split(before.key, 2 + 1 + 4)[2]
    replay = dqn.rlx.replay.uniform(64)
    batch = jax.tree.map(np.float64, replay.sample(after.replay, key, 6).items)

    def values(screens):
        first, second = before.params["mlp/~/linear_0"], before.params["mlp/~/linear_1"]
        hidden = np.maximum(0, screens.reshape(6, 50) @ np.float64(first["w"]) + np.float64(first["b"]))
        return hidden @ np.float64(second["w"]) + np.float64(second["b"])

    target = batch.r_t + 0.9 * batch.discount_t * values(batch.observation_t).max(axis=1)
    error = target - values(batch.observation_tm1)[np.arange(6), np.int32(batch.a_tm1)]
    np.testing.assert_allclose(metrics["loss"], np.mean(error**2) / 2, rtol=1e-5)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before.params, after.params)
    assert max(jax.tree.leaves(moved)) == pytest.approx(0.01, rel=1e-3)  # Adam's first step


@pytest.mark.slow
def test_catch_is_learned_by_every_one_of_twenty(tmp_path):
    metrics = q_learning.main(q_learning.Config(agents=20, seed=100, progress=False, output=str(tmp_path)))
    assert min(metrics["final_return"]) >= 0.95


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_parameters(tmp_path):
    flags = ["--steps", "1500000", "--no-progress", "--output"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    variables = environment(tmp_path / "compiled", unoptimised=False)  # by the first run, which is not killed
    subprocess.run([sys.executable, PROGRAM, *flags, whole], env=variables, check=True)
    process = subprocess.Popen([sys.executable, PROGRAM, *flags, killed], env=variables)
    while not (killed / "checkpoint.npz").exists() and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert {path.name for path in killed.iterdir()} <= {"checkpoint.npz", "checkpoint-unfinished.npz"}
    subprocess.run([sys.executable, PROGRAM, *flags, killed, "--resume"], env=variables, check=True)
    assert_same_arrays(arrays(killed), arrays(whole))
