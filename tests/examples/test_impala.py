"""Actors and learner apart: a run and what it leaves behind, actors that die, and devices that share the learning."""

import csv
import json
import pathlib
import signal
import subprocess
import sys

import dm_env
import jax
import numpy as np
import pytest

pytest.importorskip("tyro")
pytest.importorskip("orbax.checkpoint")

import impala
import run
from agents import impala as algorithm
from agents.agent import Step
from children import environment
from dm_env import specs
from environments import on_host
from program import BadFlag

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "zoo"
SMALL = algorithm.Config(hidden=(8,), unroll=4)


class Copying(dm_env.Environment):
    """Episodes of two steps, whose reward is 1 for the action that is shown. It breaks after `lasts` steps."""

    def __init__(self, lasts: float):
        self.lasts, self.random, self.steps = lasts, np.random.default_rng(0), 0

    def look(self) -> np.ndarray:
        self.shown = self.random.integers(2)
        return np.eye(2, dtype=np.float32)[self.shown]

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(self.look())

    def step(self, action: int) -> dm_env.TimeStep:
        self.steps += 1
        if self.steps > self.lasts:
            raise OSError("the emulator is gone")
        reward = float(action == self.shown)
        return (
            dm_env.termination(reward, self.look()) if self.steps % 2 == 0 else dm_env.transition(reward, self.look())
        )

    def observation_spec(self) -> specs.Array:
        return specs.Array((2,), np.float32)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2)


@pytest.fixture
def environments(monkeypatch):
    """Lets environments be made that last so many steps each: first those for the evaluation, then those of actors."""

    def let(*lasts: float):
        lifetimes = iter([np.inf, *lasts])

        def make(name: str, seed: int = 0, count: int = 1):
            life = next(lifetimes, np.inf)
            return on_host.of_dm_env([Copying(life) for _ in range(count)])

        monkeypatch.setattr(impala.on_host, "make", make)

    return let


def train(folder: pathlib.Path, agent=SMALL, **settings):
    settings = {"devices": 1, "environments": 2, "parts": 2, "evaluation_episodes": 2} | settings
    return run.train(impala.Config(output=str(folder), progress=False, **settings), agent, impala.make_player)


@pytest.mark.slow
def test_actors_that_die_are_begun_anew_once(environments, tmp_path, monkeypatch, capsys):
    environments(8, 4)  # both have whole unrolls of four steps before they break
    flags = "--devices 1 --environments 2 --steps 1000 --threads 1 --hidden 8 --unroll 4 --no-progress --output"
    monkeypatch.setattr(sys, "argv", ["impala.py", *flags.split(), str(tmp_path)])
    assert run.main(impala.Config, make_player=impala.make_player) == 1
    said = capsys.readouterr().err
    assert "actor 0 has died: OSError('the emulator is gone')" in said
    assert "OSError: the emulator is gone\nimpala.py: a checkpoint is written" in said
    assert (tmp_path / "checkpoints" / "24").is_dir()  # three unrolls of 2 · 4

    environments(8)
    metrics = train(tmp_path, steps=48, parts=2, threads=1, resume=True)
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    assert "failure" not in metrics
    with open(tmp_path / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["steps"], row["threads"], row["deaths"]) for row in rows] == [("48", "1", "1")]
    assert 0 <= float(rows[0]["lag"]) <= 3  # what the queue and the actor hold
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_devices_learn_together_what_one_does():
    environment = Copying(np.inf)
    settings = algorithm.Config(hidden=(8,), unroll=4, popart=0.1)
    agent = algorithm.make(settings, environment.observation_spec(), environment.action_spec())
    random = np.random.default_rng(5)
    shape = 4, 8
    seen, after = random.normal(size=(2, *shape, 2)).astype(np.float32)
    last = random.random(shape) < 0.3
    rewards = random.normal(size=shape).astype(np.float32)
    extras = np.log(random.uniform(0.2, 0.8, shape)).astype(np.float32), ()
    discounts = np.float32(1) - (last & (random.random(shape) < 0.5))
    steps = Step(seen, random.integers(0, 2, shape), rewards, discounts, last, after, extras)
    states = []
    for devices in jax.devices()[:1], jax.devices()[:8]:
        learn, whole = impala.compiled_learner(agent, devices)
        state = jax.device_put(agent.init(jax.random.key(0), 8), whole)
        for _ in range(3):
            state, _ = learn(state, steps)
        compiled = learn.lower(state, steps).compile().as_text()
        exchanges = {"all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter"}
        found = {name for name in exchanges if f" {name}(" in compiled or f" {name}-start(" in compiled}
        assert found <= {"all-reduce"}  # sums alone: each device keeps its share
        states.append(jax.device_get((state.params, state.scale)))
    jax.tree.map(lambda one, eight: np.testing.assert_allclose(eight, one, rtol=1e-4, atol=1e-6), *states)  # rounding


def test_devices_have_to_divide_the_environments():
    with pytest.raises(BadFlag, match="must be a multiple of the 8 devices that learn, not 12"):
        impala.Config(environments=12, devices=8)


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)])
def test_actors_and_a_learner_learn_catch(seed, tmp_path):
    settings = {"env": "catch", "environments": 8, "steps": 100_000, "seed": seed, "evaluation_episodes": 20}
    assert train(tmp_path, algorithm.Config(), **settings)["final_return"] >= 0.9


@pytest.mark.slow
def test_popart_learns_rewards_of_another_scale(tmp_path):
    pytest.importorskip("bsuite")
    settings = {"env": "bsuite:catch_scale/16", "environments": 8, "steps": 50_000, "evaluation_episodes": 20}
    assert train(tmp_path, algorithm.Config(popart=0.1), **settings)["final_return"] >= 900  # of 1000


@pytest.mark.slow
def test_a_run_that_is_interrupted_goes_on(tmp_path):
    command = [sys.executable, str(EXAMPLES / "impala.py"), "--env", "catch", "--no-progress"]
    command += ["--checkpoint-every", "1000", "--output", str(tmp_path), "--steps"]
    process = subprocess.Popen([*command, "1000000"], env=environment())
    while not list((tmp_path / "checkpoints").glob("[0-9]*")):
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    stopped = json.loads((tmp_path / "metrics.json").read_text())
    assert stopped["interrupted"]
    assert stopped["steps"] < 1_000_000
    goal = stopped["steps"] + 2_000
    subprocess.run([*command, str(goal), "--resume"], env=environment(), check=True, timeout=300)
    ended = json.loads((tmp_path / "metrics.json").read_text())
    assert goal <= ended["steps"] < 1_000_000
