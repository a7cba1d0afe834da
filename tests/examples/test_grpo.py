"""examples/grpo.py on a random decoder of two layers: resumed runs, and rewards by Python functions."""

import csv
import json
import pathlib
import random
import signal
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from children import environment

import hkx
from hkx.interop import huggingface

tokenizers = pytest.importorskip("tokenizers")

import grpo  # noqa: E402

pytestmark = [pytest.mark.long, pytest.mark.unoptimised]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = {word: i for i, word in enumerate(["<|im_end|>", "<|im_start|>", *letters])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>", "<|im_start|>"])
    model = hkx.nets.DecoderConfig(vocab_size=len(words), hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2)
    net = hkx.transform(lambda tokens: hkx.nets.Decoder(model)(tokens))
    huggingface.save(folder, model, net.init(jax.random.key(0), jnp.ones([1, 4], int)))
    tokenizer.save(str(folder / "tokenizer.json"))
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(about | {"eos_token_id": 0}))
    small = {"questions": 2, "group": 4, "tokens": 3, "test_questions": 4, "test_every": 2, "learning_rate": 0.01}
    return grpo.Config(model=str(folder), template="{question}", **small)


def run(config, output, **changes):
    grpo.main(grpo.dataclasses.replace(config, output=str(output), **changes))
    with open(output / "metrics.csv", newline="") as file:
        return [{name: x for name, x in row.items() if name != "cpu_seconds"} for row in csv.DictReader(file)]


def task_of(reward, monkeypatch):
    def question(rng: random.Random):
        number = rng.randrange(1000)
        return f"{number}?", reward

    monkeypatch.setitem(sys.modules, "a_task", types.SimpleNamespace(question=question))
    return "a_task:question"


def same(rows, expected):
    """All but accuracies: the last update of a run is tested on more questions."""
    return [x | {"accuracy": ""} for x in rows] == [x | {"accuracy": ""} for x in expected]


@pytest.mark.parametrize("exact", [False, True])
def test_a_run_in_two_parts_is_the_run_in_one(exact, config, tmp_path, capsys):
    options = {"method": "dapo", "micro_batches": 2, "random_rewards": True, "kl": 0.1, "exact": exact}
    whole = run(config, tmp_path / "whole", updates=4, **options)
    assert capsys.readouterr().out.splitlines()[-1] == "final accuracy: 0.00 over 4 questions"
    run(config, tmp_path / "parts", updates=2, **options)
    parts = run(config, tmp_path / "parts", updates=4, **options)
    assert same(parts, whole)
    assert all(float(row["mismatch"]) <= (0 if exact else 1e-4) for row in whole[1:]) and float(whole[4]["kl"]) > 0
    with pytest.raises(SystemExit, match="other settings"):
        run(config, tmp_path / "parts", updates=4)


def test_only_full_marks_of_reasoning_gym_count(monkeypatch):
    class Sums(list):
        def score_answer(self, reply, entry):
            return 1.0 if reply == entry["answer"] else 0.5 * (entry["answer"] in reply)

    sums = Sums({"question": f"{i} + 1 =", "answer": str(i + 1)} for i in range(5))
    module = types.SimpleNamespace(create_dataset=lambda task, seed, size, **options: sums)
    monkeypatch.setitem(sys.modules, "reasoning_gym", module)
    rewards = dict(grpo.all_questions("chain_sum", "{}"))
    assert [float(rewards["3 + 1 ="](reply)) for reply in (" 4.", "4", "-4", "14", "5")] == [1, 1, 0, 0, 0]


def lottery(reply):
    return float(sum(reply.encode()) % 7)


@pytest.mark.parametrize("method", ["rloo", "dpo"])
def test_a_reward_in_python_is_learned_from(method, config, tmp_path, monkeypatch):
    task = task_of(lambda reply: float(reply[:1] < "a"), monkeypatch)
    rows = run(config, tmp_path, task=task, lora=0, method=method, updates=4, questions=8, group=16)
    assert float(rows[4]["reward"]) > float(rows[1]["reward"])


FAILURES = {
    "raises": (lambda reply: 1 / 0, "failed: ZeroDivisionError: division by zero"),
    "NaN": (lambda reply: float("nan"), "failed: ValueError: array must not contain infs or NaNs"),
    "two": (lambda reply: [1.0, 0.0], "failed: TypeError: "),
    "interrupt": (
        lambda reply: signal.raise_signal(signal.SIGINT) or lottery(reply),
        "interrupted after update 3; the same command",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failing_reward_and_an_interrupt_are_one_line_and_lose_nothing(kind, config, tmp_path, monkeypatch):
    def reward(reply):
        calls.append(reply)
        return fail(reply) if len(calls) == 4 + 2 * 8 + 4 + 8 + 5 else lottery(reply)  # in update 4

    (fail, says), calls = FAILURES[kind], []
    task = task_of(lottery, monkeypatch)
    whole = run(config, tmp_path / "whole", task=task, updates=5)
    task_of(reward, monkeypatch)
    with pytest.raises(SystemExit, match=says) as stopped:
        run(config, tmp_path / "stopped", task=task, updates=5)
    assert "\n" not in str(stopped.value)
    assert len((tmp_path / "stopped/metrics.csv").read_text().splitlines()) == 1 + 1 + 3  # with titles and update 0
    task_of(lottery, monkeypatch)
    resumed = run(config, tmp_path / "stopped", task=task, updates=5)
    assert same(resumed, whole)


TASK = """
import os, random, signal
calls = []
def question(rng: random.Random):
    return f"{rng.randrange(1000)}?", reward
def reward(reply):
    calls.append(reply)
    if os.environ["KILL"] == str(len(calls)):
        os.kill(os.getpid(), signal.SIGKILL)
    return float(sum(reply.encode()) % 7)
"""


@pytest.mark.slow
def test_a_killed_run_continues_bit_for_bit(config, tmp_path):
    (tmp_path / "killed_task.py").write_text(TASK)
    flags = [f"--{name.replace('_', '-')}={x}" for name, x in vars(config).items() if x != getattr(grpo.Config, name)]
    command = [sys.executable, grpo.__file__, *flags, "--task=killed_task:question", "--updates=4"]
    root = str(pathlib.Path(grpo.__file__).parents[1])

    def program(output, kill):
        env = environment() | {"PYTHONPATH": root, "KILL": kill}
        return subprocess.run([*command, f"--output={output}"], cwd=tmp_path, env=env, capture_output=True).returncode

    def saved(output):
        with np.load(tmp_path / output / "checkpoint.npz") as file:
            return {name: x for name, x in file.items() if name not in ("table", "settings")}

    assert program("whole", "") == 0
    assert program("killed", "32") == -signal.SIGKILL  # in update 4, two after the last checkpoint
    assert program("killed", "") == 0
    whole, killed = saved("whole"), saved("killed")
    assert whole.keys() == killed.keys() == {"state"} and whole["state"].size > 1000
    assert all(x.tobytes() == killed[name].tobytes() for name, x in whole.items())
