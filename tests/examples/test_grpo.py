"""examples/grpo.py on a random decoder of two layers: resumed runs, and rewards by Python functions."""

import csv
import json
import random
import sys
import types

import jax
import jax.numpy as jnp
import pytest

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


def test_a_run_in_two_parts_is_the_run_in_one(config, tmp_path, capsys):
    options = {"method": "dapo", "micro_batches": 2, "random_rewards": True, "kl": 0.1}
    whole = run(config, tmp_path / "whole", updates=4, **options)
    assert capsys.readouterr().out.splitlines()[-1] == "final accuracy: 0.00 over 4 questions"
    run(config, tmp_path / "parts", updates=2, **options)
    parts = run(config, tmp_path / "parts", updates=4, **options)
    assert [row for row in parts if row["update"] != "2.0"] == [row for row in whole if row["update"] != "2.0"]
    assert float(whole[1]["mismatch"]) < 1e-4 and float(whole[4]["kl"]) > 0
    with pytest.raises(SystemExit, match="other settings"):
        run(config, tmp_path / "parts", updates=4)


def test_a_reward_in_python_is_learned_from_and_one_that_fails_is_named(config, tmp_path, monkeypatch):
    task = task_of(lambda reply: float(reply[:1] < "a"), monkeypatch)
    rows = run(config, tmp_path, task=task, lora=0, method="rloo", updates=4, questions=8, group=16)
    assert float(rows[4]["reward"]) > float(rows[1]["reward"])
    task = task_of(lambda reply: 1 / 0, monkeypatch)
    with pytest.raises(SystemExit, match="failed: ZeroDivisionError"):
        run(config, tmp_path / "fails", task=task, updates=1)
    task = task_of(lambda reply: float("nan"), monkeypatch)
    with pytest.raises(SystemExit, match="failed: ValueError: a reward must be a finite number"):
        run(config, tmp_path / "fails", task=task, updates=1)
