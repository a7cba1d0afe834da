"""Agents that learn from a fixed data set: what they make of it, and what the program says of files that hold none."""

import sys
import types

import numpy as np
import pytest

pytest.importorskip("bsuite")
pytest.importorskip("tyro")

import jax
import offline
import run
from agents import agent, cql
from dm_env import specs
from environments import make

SPECS = specs.Array((1,), np.float32), specs.DiscreteArray(2)


def data_of_one_state(rewards: list[float]) -> agent.Step:
    """Each action once, with the reward that it brings and the end of its episode."""
    n = len(rewards)
    seen, ended = np.ones((n, 1), np.float32), np.ones(n, bool)
    zeros = np.zeros(n, np.float32)
    return agent.Step(seen, np.arange(n, dtype=np.int32), np.float32(rewards), zeros, ended, seen, ())


def player(made: agent.Agent, data: agent.Step, **settings) -> offline.FromData:
    config = offline.Config(batch_size=32, **settings)
    return offline.FromData(made, make("cartpole"), data, np.array([0.5]), config)


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "value"), [(0.0, 1.0), (1.0, 0.75262)])
def test_a_value_is_the_lower_the_greater_the_weight(weight, value):
    """Rewards 0 and 1, as often each: α (softmax(Q)_a - 1/2) + (Q_a - r_a) / 2 = 0 for both actions.

    So Q_0 = 1 - Q_1, and σ(2 Q_1 - 1) = 1 - Q_1 / 2 for α = 1: the root is 0.75262.
    """
    made = cql.make(cql.Config(hidden=(8,), conservative_weight=weight, learning_rate=0.01), *SPECS)
    learner = player(made, data_of_one_state([0.0, 1.0]))
    learner.advance(1_000)
    assert learner.advance(1_000).metrics["value"] == pytest.approx(value, abs=0.02)
    assert int(made.act(learner.state, (), np.ones((1, 1)), jax.random.key(0), greedy=True).action[0]) == 1


def test_episodes_of_the_data_are_not_counted_as_played():
    learner = types.SimpleNamespace(
        several=lambda carry, updates: (carry, {}), state=0, key=0, per_update=2, returns=np.array([0.5, 1.5])
    )
    record = run.Record()
    for _ in range(3):
        record.add(offline.FromData.advance(learner, 4), 0.0, 0.0)
    assert (record.steps, record.episodes, np.mean(record.returns)) == (24, 0, 1.0)


def test_an_agent_learns_from_a_batch():
    made = cql.make(cql.Config(), *SPECS)
    state = jax.eval_shape(lambda key: made.init(key, 1), jax.random.key(0))
    steps = jax.tree.map(lambda x: x[None], data_of_one_state([0.0, 1.0]))
    learned, metrics = jax.eval_shape(made.learn, state, steps)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), learned) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert all(value.shape == () for value in metrics.values())


def data_set(number, size):
    observations, numbers = np.zeros([number, size], np.float32), np.zeros(number, np.float32)
    steps = {"s_tm1": observations, "a_tm1": numbers.astype(int), "r_t": numbers, "discount_t": numbers}
    return steps | {"s_t": observations, "returns": np.zeros(2), "env": "cartpole"}


def test_a_data_set_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "data.npz"
    monkeypatch.setattr(sys, "argv", ["offline.py", "--data", str(path), "--output", str(tmp_path / "out")])
    assert run.main(offline.Config, offline.FILES, offline.make_player) == 2
    assert f"argument --data: cannot write into the folder {path.parent}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (
            dict.fromkeys(["s_tm1", "a_tm1", "r_t", "discount_t", "s_t", "returns"], 0) | {"env": "catch"},
            "is of the environment catch, not of cartpole",
        ),
        ({"env": "cartpole"}, "holds no data set of this program"),
        (None, "holds no data set of this program"),
        ({}, "holds no data set of this program"),
        (data_set(9, 3), "holds no transitions with observations of shape [4]"),
        (data_set(0, 4), "holds no transitions with observations of shape [4]"),
    ],
)
def test_a_file_without_the_data_is_one_line(contents, message, tmp_path, monkeypatch, capsys):
    path = tmp_path / "data.npz"
    path.write_text("nothing") if contents is None else np.savez(path, **contents)
    if contents == {}:  # half of a data set
        np.savez(path, s_tm1=np.zeros([9, 4]), env="cartpole")
        path.write_bytes(path.read_bytes()[:-100])
    monkeypatch.setattr(sys, "argv", ["offline.py", "--data", str(path), "--output", str(tmp_path / "out")])
    assert run.main(offline.Config, offline.FILES, offline.make_player) == 2
    printed = capsys.readouterr().err
    assert f"argument --data: {path} {message}" in printed
    assert printed.count("\n") == 1


@pytest.mark.slow
def test_a_run_that_stops_and_goes_on_learns_the_same(tmp_path):
    config = {"data": str(tmp_path / "data.npz"), "teacher_steps": 2_000, "batch_size": 8, "parts": 2}
    config |= {"evaluation_episodes": 2, "progress": False}
    small = cql.Config(hidden=(8,))
    for folder, steps, resume in ("whole", 160, False), ("parts", 80, False), ("parts", 160, True):
        settings = offline.Config(output=str(tmp_path / folder), steps=steps, resume=resume, **config)
        found = run.train(settings, small, offline.make_player)
    assert found["steps"] == 160
    one, other = (np.load(tmp_path / folder / "parameters.npz") for folder in ("whole", "parts"))
    for array in one:
        np.testing.assert_array_equal(one[array], other[array])


@pytest.mark.slow
def test_cql_does_better_than_the_data(tmp_path):
    config = offline.Config(data=str(tmp_path / "data.npz"), output=str(tmp_path / "out"), progress=False)
    final = run.train(config, cql.Config(), offline.make_player)["final_return"]
    assert final > 2 * np.load(tmp_path / "data.npz")["returns"].mean()
