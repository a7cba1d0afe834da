"""Decoding with language models of 38 and 135 million parameters, float32, one and sixteen rows: hkx and its peers.

Prompts have 32 tokens, weights are random. A figure is the time of a step: that of 65 new tokens less that of one, over
64; in CPU seconds on a CPU. The reference reads all weights once, which no decoder of one row can be faster than.
"""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import clock

REFERENCE = "reading the weights"
SIZES = {
    "38M": {"vocab_size": 16000, "hidden_size": 512, "num_layers": 10, "num_heads": 8, "num_kv_heads": 4,
            "intermediate_size": 1408},
    "135M": {"vocab_size": 49152, "hidden_size": 576, "num_layers": 30, "num_heads": 9, "num_kv_heads": 3,
             "intermediate_size": 1536},
}  # fmt: skip
CASES = [("38M", 1), ("38M", 16), ("135M", 1), ("135M", 16)]
PROMPT, NEW = 32, 64


def step_time(run: Callable[[int], Any], repeats: int = 3) -> float:
    """Milliseconds of a step: `run(n)` draws n tokens and waits for them."""
    tick = clock()

    def least(n: int) -> float:
        run(n)
        times = []
        for _ in range(repeats):
            began = tick()
            run(n)
            times.append(tick() - began)
        return min(times)

    return 1e3 * (least(NEW + 1) - least(1)) / NEW


def each_case(step: Callable[[str, int], float]) -> dict[str, float]:
    return {f"{size}, {rows} row{'s' * (rows > 1)}: ms a step": step(size, rows) for size, rows in CASES}


def parameters(size: str) -> tuple[Any, Any]:
    import jax

    import hkx

    config = hkx.nets.DecoderConfig(**SIZES[size], tied_embeddings=True)
    net = hkx.transform(lambda tokens: hkx.nets.Decoder(config, stacked=False)(tokens))
    return config, jax.jit(net.init)(jax.random.key(0), np.ones([1, 1], np.int32))


def reading() -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    total = jax.jit(lambda params: sum(jnp.sum(x) for x in jax.tree.leaves(params)))

    @functools.cache
    def step(size: str) -> float:
        _, params = parameters(size)
        total(params)
        times = []
        for _ in range(10):
            began = clock()()
            total(params).block_until_ready()
            times.append(clock()() - began)
        return 1e3 * min(times)

    return each_case(lambda size, rows: step(size))


def decoding() -> dict[str, float]:
    import jax

    import hkx

    def step(size: str, rows: int) -> float:
        config, params = parameters(size)
        prompts, start = np.ones([rows, PROMPT], np.int32), np.zeros(rows, np.int32)

        def program(n: int) -> Any:
            def answer(prompts: Any, start: Any) -> Any:
                return hkx.nets.generate(hkx.nets.Decoder(config, stacked=False), prompts, start, n)

            return jax.jit(hkx.transform(answer).apply)

        programs = {n: program(n) for n in (1, NEW + 1)}
        return step_time(lambda n: jax.block_until_ready(programs[n](params, None, prompts, start)))

    return each_case(step)


def transformers() -> dict[str, float]:
    import torch
    import transformers

    torch.set_num_threads(1)

    def step(size: str, rows: int) -> float:
        names = {n.replace("num_heads", "num_attention_heads").replace("num_layers", "num_hidden_layers")
                 .replace("num_kv_heads", "num_key_value_heads"): x for n, x in SIZES[size].items()}  # fmt: skip
        config = transformers.LlamaConfig(**names, tie_word_embeddings=True, eos_token_id=None, pad_token_id=0)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        prompts = torch.ones([rows, PROMPT], dtype=torch.long)
        same = {"attention_mask": torch.ones_like(prompts), "do_sample": False}
        return step_time(lambda n: model.generate(prompts, max_new_tokens=n, **same), 2)

    return each_case(step)


def llama_cpp() -> dict[str, float]:
    """F16 weights, with which its products are; requests of all rows at once."""
    import xllamacpp

    def step(size: str, rows: int) -> float:
        params = xllamacpp.CommonParams()
        with tempfile.TemporaryDirectory() as folder:
            params.model.path = str(written(size, Path(folder) / "model.gguf"))
            params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 256 * rows, rows, 1
            params.cpuparams_batch.n_threads = 1
            params.warmup = False
            server = xllamacpp.Server(params)

            def one(n: int, row: int) -> None:
                prompt = [3 + row] * PROMPT
                server.handle_completions({"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True})

            def run(n: int) -> None:
                threads = [threading.Thread(target=one, args=(n, row)) for row in range(rows)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            return step_time(run, 2)

    return each_case(step)


def written(size: str, file: Path) -> Path:
    """A model with random weights in F16, for llama.cpp."""
    import gguf

    s, half, rng = SIZES[size], gguf.GGMLQuantizationType.F16, np.random.default_rng(0)
    writer, width, head = gguf.GGUFWriter(file, "llama"), s["hidden_size"], s["hidden_size"] // s["num_heads"]
    writer.add_block_count(s["num_layers"])
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(s["intermediate_size"])
    writer.add_head_count(s["num_heads"])
    writer.add_head_count_kv(s["num_kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"<{i}>" for i in range(s["vocab_size"])])
    writer.add_token_types([gguf.TokenType.NORMAL] * s["vocab_size"])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    shapes = {"token_embd": (s["vocab_size"], width)}
    for i in range(s["num_layers"]):
        keys, hidden = s["num_kv_heads"] * head, s["intermediate_size"]
        shapes |= {f"blk.{i}.attn_{n}": (width, width) for n in ("q", "output")}
        shapes |= {f"blk.{i}.attn_{n}": (keys, width) for n in ("k", "v")}
        shapes |= {f"blk.{i}.ffn_gate": (hidden, width), f"blk.{i}.ffn_up": (hidden, width)}
        shapes |= {f"blk.{i}.ffn_down": (width, hidden)}
        for n in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{n}.weight", np.ones(width, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.02, shape).astype(np.float16), raw_dtype=half)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


SIDES = {REFERENCE: reading, "hkx": decoding, "transformers": transformers, "llama.cpp, F16": llama_cpp}
