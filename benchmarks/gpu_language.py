"""Language models on a GPU, in bfloat16: `python -m benchmarks.gpu_language --output FOLDER --limit 150`.

Weights are random. Each part is a process of its own, which writes a figure to FOLDER/figures.jsonl as soon as there is
one; no part begins after `--limit` seconds, and one that runs then is ended. `--small` tries all parts on a CPU.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import NO_GPU, ROOT

BANDWIDTH = 4.8e12  # bytes a second of an H200, by its data sheet
QWEN3 = {"vocab_size": 151936, "num_kv_heads": 8, "head_dim": 128}
SIZES = {
    "4B": QWEN3 | {"hidden_size": 2560, "num_layers": 36, "num_heads": 32, "intermediate_size": 9728},
    "8B": QWEN3 | {"hidden_size": 4096, "num_layers": 36, "num_heads": 32, "intermediate_size": 12288,
                   "tied_embeddings": False},
    "0.6B": QWEN3 | {"hidden_size": 1024, "num_layers": 28, "num_heads": 16, "intermediate_size": 3072},
    "small": {"vocab_size": 512, "num_kv_heads": 2, "head_dim": 16, "hidden_size": 64, "num_layers": 2, "num_heads": 4,
              "intermediate_size": 128},
}  # fmt: skip
Record = Callable[..., None]


def seconds(run: Callable[[], Any], repeats: int = 3) -> float:
    """The least of several runs, after one more."""
    import jax

    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - began)
    return min(times[1:])


def model(size: str, layers: int, stacked: bool = False, dtype: str = "bfloat16", scale: float = 0.02) -> Any:
    """The configuration, and random parameters of this scale: those of `init` would take long to compile."""
    import jax
    import jax.numpy as jnp

    import hkx

    if size != "small" and jax.default_backend() != "gpu":
        sys.exit(NO_GPU)
    sizes = SIZES[size] | ({"num_layers": layers} if layers else {})
    qwen3: dict[str, Any] = {"family": "qwen3", "query_key_norm": "head", "rope_theta": 1e6, "tied_embeddings": True}
    config = hkx.nets.DecoderConfig(**(qwen3 | sizes))
    net = hkx.transform(lambda tokens: hkx.nets.Decoder(config, stacked=stacked)(tokens))
    shapes = jax.eval_shape(net.init, jax.random.key(0), np.ones([1, 1], np.int32))
    random = functools.partial(jax.random.normal, dtype=dtype)
    normal = jax.jit(lambda key, shape: jnp.asarray(scale, dtype) * random(key, shape), static_argnums=1)
    keys = iter(jax.random.split(jax.random.key(0, impl="rbg"), len(jax.tree.leaves(shapes))))

    def filled(path: Any, x: Any) -> Any:
        norm = "scale" in jax.tree_util.keystr(path)
        return jnp.ones(x.shape, dtype) if norm else normal(next(keys), x.shape)

    return config, jax.tree_util.tree_map_with_path(filled, shapes)


def size_of(tree: Any) -> int:
    import jax

    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def compiled(programs: dict[Any, tuple[Any, tuple[Any, ...]]], record: Record) -> dict[Any, Any]:
    """Programs for arguments, compiled at the same time; without those that fail."""
    import jax

    began = time.perf_counter()
    lowered = {key: jax.jit(f).lower(*arguments) for key, (f, arguments) in programs.items()}
    traced = time.perf_counter() - began
    with ThreadPoolExecutor(8) as pool:
        running = {key: pool.submit(x.compile) for key, x in lowered.items()}
    record(figure="seconds of tracing", value=traced, programs=len(programs))
    record(figure="seconds of compilation", value=time.perf_counter() - began - traced, programs=len(programs))
    for key, future in running.items():
        if future.exception():
            record(figure="failed", key=str(key), error=str(future.exception())[:500])
    return {key: future.result() for key, future in running.items() if not future.exception()}


def decoding(
    options: argparse.Namespace,
    record: Record,
    size: str = "4B",
    cases: Sequence[int] = (1, 16, 4, 32),
) -> None:
    """The time of a step, that of `new` tokens less that of one, beside reading the weights and the cache."""
    import jax
    import jax.numpy as jnp

    import hkx

    prompt, new = (31, 65) if not options.small else (4, 9)
    config, params = model(options.small or size, options.layers)
    stop = config.vocab_size - 1
    weights = size_of(params) - (0 if config.tied_embeddings else size_of(params["decoder/embed"]))

    def answer(prompts: Any, start: Any, at_once: Any) -> Any:
        def greedy(key: Any, logits: Any) -> Any:  # one program for one token and for all
            return jnp.where(at_once, stop, jnp.argmax(logits[:, :stop], axis=-1)), jnp.zeros(len(logits))

        decoder = hkx.nets.Decoder(config, stacked=False, dtype=jnp.bfloat16)
        return hkx.nets.generate(decoder, prompts, start, new, sample=greedy, stop_tokens=[stop])

    def arguments(rows: int, at_once: bool) -> tuple[Any, ...]:
        prompts, start = np.ones([rows, prompt], np.int32), np.zeros(rows, np.int32)
        return params, jax.random.key(0), prompts, start, np.bool_(at_once)

    def measured(rows: int, program: Any) -> None:
        every, first = arguments(rows, False), arguments(rows, True)
        assert int(program(*every).lengths.min()) == new and int(program(*first).lengths.max()) == 1
        step = (seconds(lambda: program(*every), 5) - seconds(lambda: program(*first), 5)) / (new - 1)
        cache = 2 * 2 * rows * config.num_layers * config.num_kv_heads * (prompt + new) * config.head_dim
        read = weights + cache
        shares = {"of a copy": read / step / copy, "of 4.8 TB/s": read / step / BANDWIDTH,
                  "of 4.8 TB/s, weights only": weights / step / BANDWIDTH}  # fmt: skip
        about = {"rows": rows, "tokens a second": rows / step, "share": shares}
        record(figure="ms a step", value=1e3 * step, model=size, **about)

    ones, added = jnp.ones(2**20 if options.small else 2**31, jnp.bfloat16), jax.jit(lambda x: x + 1)
    copy = 2 * ones.nbytes / seconds(functools.partial(added, ones), 10)
    record(figure="bandwidth of a copy, read and written, TB/s", value=copy / 1e12)
    apply = hkx.transform(answer).apply
    for rows in cases:  # one by one: XLA chooses kernels by measuring them
        for program in compiled({rows: (apply, arguments(rows, True))}, record).values():
            measured(rows, program)
    total = jax.jit(lambda p: sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(p)))
    rate = size_of(params) / seconds(functools.partial(total, params), 10)
    record(figure="bandwidth of reading the weights, TB/s", value=rate / 1e12, gigabytes=weights / 1e9)


def decoding_8b(options: argparse.Namespace, record: Record) -> None:
    decoding(options, record, "8B", (1, 16))


def throughput(options: argparse.Namespace, record: Record) -> None:
    """New tokens a second with many rows, prompts read and log-probabilities included."""
    import jax
    import jax.numpy as jnp

    import hkx
    import rlx

    rows, new = (2048, 50) if not options.small else (8, 5)
    config, params = model(options.small or "0.6B", options.layers)

    def sample(key: Any, logits: Any) -> Any:
        tokens = rlx.softmax().sample(key, logits)
        return tokens, rlx.softmax().logprob(tokens, logits)

    def answer(prompts: Any, start: Any) -> Any:
        decoder = hkx.nets.Decoder(config, stacked=False, dtype=jnp.bfloat16)
        return hkx.nets.generate(decoder, prompts, start, new, sample=sample)

    for prompt in (14, 15):  # a cache of 64 slots, and of 65, which XLA may copy to pad it
        prompts = np.random.default_rng(0).integers(config.vocab_size, size=[rows, prompt]).astype(np.int32)
        arguments = params, jax.random.key(0), prompts, np.zeros(rows, np.int32)
        ready = compiled({prompt: (hkx.transform(answer).apply, arguments)}, record)
        if prompt not in ready:
            continue
        run = functools.partial(ready[prompt], *arguments)
        took = seconds(run)
        record(figure="new tokens a second", value=rows * new / took, prompt=prompt, rows=rows, new=new, seconds=took)


def bits(options: argparse.Namespace, record: Record) -> None:
    """Log-probabilities of the same tokens by the sampler and by the learner: equal bits, and what exactness costs."""
    import jax
    import jax.numpy as jnp

    import hkx
    import rlx

    new, prompt = (64, 12) if not options.small else (6, 4)
    groups = [  # dtype, exact, rows
        [("bfloat16", True, 64), ("bfloat16", False, 64)],
        [("bfloat16", True, 13), ("bfloat16", True, 1)],
        [("float32", True, 64), ("float32", False, 64)],
    ]

    def three_times(dtype: str) -> tuple[Any, Any]:  # whose logits differ about as much as those of a trained model
        return model(options.small or "0.6B", options.layers or 6, True, dtype, 0.06)

    models = {dtype: three_times(dtype) for dtype in ("bfloat16", "float32")}

    def programs(dtype: str, exact: bool) -> tuple[Any, Any]:
        config = models[dtype][0]
        tiles = hkx.nets.in_tiles if exact else lambda f, *rows: f(*rows)
        settings: Any = {"dtype": jnp.dtype(dtype), "exact": exact}

        def log_prob(logits: Any, tokens: Any) -> Any:
            return rlx.softmax().logprob(tokens, logits)

        def sample(key: Any, logits: Any) -> Any:
            tokens = rlx.softmax().sample(key, logits)
            return tokens, tiles(log_prob, logits, tokens)

        def sampler(prompts: Any, start: Any) -> Any:
            decoder = hkx.nets.Decoder(config, stacked=False, **settings)
            return hkx.nets.generate(decoder, prompts, start, new, sample=sample)

        def learner(prompts: Any, start: Any, answers: Any) -> Any:
            decoder = hkx.nets.Decoder(config, **settings)
            hidden = hkx.nets.answer_hidden(decoder, prompts, start, answers).reshape(-1, config.hidden_size)
            of_rows = tiles(lambda x, y: log_prob(decoder.logits(x), y), hidden, answers.ravel())
            return of_rows.reshape(answers.shape)

        return hkx.transform(sampler).apply, hkx.transform(learner).apply

    for cases in groups:
        samplers, learners, given = {}, {}, {}
        for i, (dtype, exact, rows) in enumerate(cases):
            config, params = models[dtype]
            rng = np.random.default_rng(rows)
            prompts = rng.integers(config.vocab_size, size=[rows, prompt]).astype(np.int32)
            questions = prompts, rng.integers(prompt, size=rows).astype(np.int32)
            given[i] = (hkx.unstack_params(params, "decoder/layers"), jax.random.key(rows), *questions)
            sampler, learner = programs(dtype, exact)
            samplers[i] = sampler, given[i]
            learners[i] = learner, (params, None, *questions, np.zeros([rows, new], np.int32))
        samplers = compiled(samplers, record)
        learners = compiled(learners, record)  # by then XLA has chosen the kernels of a tile
        for i, (dtype, exact, rows) in enumerate(cases):
            if i not in samplers or i not in learners:
                continue
            sample, learn, (_, _, *questions) = samplers[i], learners[i], given[i]
            answers = sample(*given[i])
            again = functools.partial(learn, models[dtype][1], None, *questions, answers.tokens)
            a, b = np.asarray(answers.log_probs), np.asarray(again())
            about = {"dtype": dtype, "exact": exact, "rows": rows, "tokens": a.size}
            apart = {"largest difference": float(np.abs(a - b).max()), "mean difference": float(np.abs(a - b).mean())}
            sampling, learning = seconds(functools.partial(sample, *given[i]), 2), seconds(again, 2)
            times = {"seconds of sampling": sampling, "seconds of learning": learning}
            equal = float(np.mean(a.view(np.int32) == b.view(np.int32)))
            record(figure="share of equal bits", value=equal, **about, **apart, **times)


def transformers(options: argparse.Namespace, record: Record) -> None:
    """The same steps by transformers' `generate`."""
    import torch
    import transformers

    prompt, new, device = (32, 33, "cuda") if not options.small else (4, 5, "cpu")
    sizes = SIZES[options.small or "4B"] | ({"num_layers": options.layers} if options.layers else {})
    names: dict[str, Any] = {n.replace("num_heads", "num_attention_heads").replace("num_layers", "num_hidden_layers")
             .replace("num_kv_heads", "num_key_value_heads"): x for n, x in sizes.items()}  # fmt: skip
    config = transformers.Qwen3Config(**names, tie_word_embeddings=True, eos_token_id=None, pad_token_id=0)
    with torch.device(device):
        network = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().to(device)
    weights = sum(x.numel() * x.element_size() for x in network.parameters())

    def least(prompts: Any, n: int, repeats: int) -> float:
        times = []
        for _ in range(repeats + 1):
            began = time.perf_counter()
            network.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=n, do_sample=False)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        return min(times[1:])

    for rows in (1, 16):
        prompts = torch.ones([rows, prompt], dtype=torch.long, device=device)
        step = (least(prompts, new, 2) - least(prompts, 1, 2)) / (new - 1)
        shares = {"weights only": weights / step / BANDWIDTH}
        about = {"rows": rows, "tokens a second": rows / step, "share": shares}
        record(figure="ms a step", value=1e3 * step, gigabytes=weights / 1e9, **about)


PARTS: dict[str, tuple[Callable[[argparse.Namespace, Record], None], float]] = {  # with the longest that each may take
    "decoding": (decoding, 90),
    "throughput": (throughput, 60),
    "bits": (bits, 75),
    "transformers": (transformers, 35),
    "decoding_8b": (decoding_8b, 75),
}


def part(options: argparse.Namespace, name: str) -> None:
    """Runs one part in this process."""
    began = time.monotonic()

    def record(**row: Any) -> None:
        line = json.dumps({"part": name, "at": round(time.monotonic() - began, 1), **row})
        print(line if len(line) < 2000 else f"{line[:2000]}…", flush=True)
        with open(options.output / "figures.jsonl", "a") as file:
            file.write(line + "\n")

    PARTS[name][0](options, record)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_language", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="a folder for figures.jsonl and log.txt")
    parser.add_argument("--limit", type=float, default=150, help="seconds for all parts together (default: 150)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--layers", type=int, default=0, help="instead of the models' own number")
    parser.add_argument("--small", action="store_const", const="small", help="a tiny model, to try all parts on a CPU")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.part:
        part(options, options.part)
        return
    began = time.monotonic()
    same = ["--output", str(options.output), "--layers", str(options.layers), *["--small"] * bool(options.small)]
    for name in options.only:
        left = options.limit - (time.monotonic() - began)
        if left < 5:
            print(f"{name} is left out: {options.limit:.0f} s are over", flush=True)
            continue
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu_language", "--part", name, *same]
        status = run(command, options.output / "log.txt", left if options.small else min(left, PARTS[name][1]))
        print(f"{name}: {status}, {time.monotonic() - began:.0f} s since the beginning", flush=True)


def run(command: Sequence[str], log: Path, limit: float) -> str:
    """Runs a process, with its errors in a file, and ends it after `limit` seconds; says how it ended."""
    tuned = {"JAX_COMPILATION_CACHE_DIR": f"/tmp/{os.getuid()}-gpu-language"}  # XLA's choices of kernels, once for all
    with open(log, "a+") as errors:
        errors.write(f"{' '.join(command)}\n")
        errors.flush()
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | tuned, stderr=errors, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"ended after {limit:.0f} s"
    return f"status {status}{f', {log.read_text().strip()[-1500:]}' if status else ''}"


if __name__ == "__main__":
    main()
