"""An update by GRPO beside TRL's and Tunix's, with equal sizes: CPU seconds, memory, imports, lines.

    python -m benchmarks.grpo_peers --trl-python trl/bin/python --tunix-python tunix/bin/python
    python -m benchmarks.grpo_peers --tunix-python tunix/bin/python --rope     # logits beside those of transformers

Peers may need other versions of JAX or transformers, so each has its own Python (`pip install trl peft` in one,
`google-tunix` in the other). Runs are processes of their own and take turns. A model has random weights, the same for
all, so that no answer ends early: 8 prompts of 36 tokens, 8 answers of 5 to each, LoRA of rank 16 on all linear layers,
one step of the optimizer in one batch, float32, no divergence, a reward in Python. The side of hkx and rlx is
examples/grpo.py; its first update includes its test of the untrained model.
"""

import argparse
import csv
import importlib
import inspect
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import language

ROOT = pathlib.Path(__file__).parents[1]
SIZES = {
    "0.1M": {"vocab_size": 512, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
             "intermediate_size": 128},
    "135M": language.SIZES["135M"],
}  # fmt: skip
PROMPTS, GROUP, PROMPT, ANSWER, RANK = 8, 8, 36, 5, 16
LEARNED = "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
IMPORTS = {
    "hkx and rlx": "import jax, optax, tokenizers, hkx, rlx; from hkx.interop import huggingface",
    "trl": "from trl import GRPOConfig, GRPOTrainer; from peft import LoraConfig; from datasets import Dataset",
    "tunix": "import jax, optax, qwix, transformers; from tunix.models.llama3 import model, params; "
    "from tunix.rl import rl_cluster; from tunix.rl.grpo import grpo_learner",
}


def prompt(rng: random.Random) -> str:
    return " ".join(str(rng.randrange(500)) for _ in range(PROMPT))


def reward(reply: str) -> float:
    """Of no use, but seldom equal for a whole group; prints when sampling had ended."""
    print(f"reward {time.process_time()}")
    return len(reply) % 2


def question(rng: random.Random) -> tuple[str, Any]:
    """A task of examples/grpo.py."""
    return prompt(rng), reward


def updated() -> None:
    print(f"updated {time.process_time()}")


def trl(folder: pathlib.Path, updates: int) -> None:
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    def rewards(completions: list[str], **_: Any) -> list[float]:
        return [reward(reply) for reply in completions]

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            updated()

    rng = random.Random(0)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
        processing_class=AutoTokenizer.from_pretrained(folder, padding_side="left"),
        reward_funcs=rewards,
        train_dataset=Dataset.from_list([{"prompt": prompt(rng)} for _ in range(PROMPTS * updates)]),
        peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=list(LEARNED), task_type="CAUSAL_LM"),
        callbacks=[Clock()],
        args=GRPOConfig(
            output_dir=str(folder / "trl"),
            learning_rate=7e-4,
            max_steps=updates,
            per_device_train_batch_size=PROMPTS * GROUP,
            num_generations=GROUP,
            max_completion_length=ANSWER,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()


def tunix_model(folder: pathlib.Path) -> Any:
    import jax

    about = json.loads((folder / "config.json").read_text())
    family = {"llama": "llama3", "qwen3": "qwen3"}[about["model_type"]]
    params = importlib.import_module(f"tunix.models.{family}.params")
    config = importlib.import_module(f"tunix.models.{family}.model").ModelConfig(
        num_layers=about["num_hidden_layers"],
        vocab_size=about["vocab_size"],
        embed_dim=about["hidden_size"],
        hidden_dim=about["intermediate_size"],
        num_heads=about["num_attention_heads"],
        head_dim=about["head_dim"],
        num_kv_heads=about["num_key_value_heads"],
        rope_theta=(about.get("rope_parameters") or about)["rope_theta"],
        norm_eps=about["rms_norm_eps"],
        **{"use_tied_embedding" if family == "qwen3" else "weight_tying": about["tie_word_embeddings"]},
    )
    mesh = jax.make_mesh((1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return mesh, params.create_model_from_safe_tensors(str(folder), config, mesh, dtype=jax.numpy.float32)


def tunix(folder: pathlib.Path, updates: int) -> None:
    import optax
    import qwix
    from transformers import AutoTokenizer
    from tunix.rl import rl_cluster
    from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
    from tunix.rl.rollout.base_rollout import RolloutConfig
    from tunix.sft.hooks import TrainingHooks

    def rewards(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [reward(reply) for reply in completions]

    mesh, base = tunix_model(folder)
    provider = qwix.LoraProvider(module_path=f".*({'|'.join(LEARNED)})", rank=RANK, alpha=2.0 * RANK)
    actor = qwix.apply_lora_to_model(base, provider, **base.get_model_input())
    roles = rl_cluster.Role
    cluster = rl_cluster.RLCluster(
        actor=actor,
        reference=base,
        tokenizer=AutoTokenizer.from_pretrained(folder),
        cluster_config=rl_cluster.ClusterConfig(
            role_to_mesh={roles.ACTOR: mesh, roles.REFERENCE: mesh, roles.ROLLOUT: mesh},
            training_config=rl_cluster.RLTrainingConfig(
                actor_optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.adam(7e-4, b2=0.95)),
                eval_every_n_steps=10**9,
                max_steps=updates,
                mini_batch_size=PROMPTS,
            ),
            rollout_config=RolloutConfig(
                max_tokens_to_generate=ANSWER,
                max_prompt_length=PROMPT,
                kv_cache_size=PROMPT + ANSWER + 1,
                temperature=1.0,
            ),
        ),
    )

    clock = dict.fromkeys(TrainingHooks.__abstractmethods__, lambda *_: None)
    clock |= {"on_train_end": lambda *_: updated()}  # after each update, when it has been computed
    cluster.actor_trainer.with_training_hooks(type("Clock", (TrainingHooks,), clock)())
    rng = random.Random(0)
    data = [{"prompts": np.array([prompt(rng) for _ in range(PROMPTS)])} for _ in range(updates)]
    learner = GRPOLearner(cluster, GRPOConfig(num_generations=GROUP, beta=0.0), rewards)
    with mesh:
        learner.train(data)


def ours(folder: pathlib.Path, updates: int) -> list[str]:
    """The options of examples/grpo.py."""
    options = {
        "model": folder, "task": "benchmarks.grpo_peers:question", "template": "{question}", "lora": RANK,
        "updates": updates, "questions": PROMPTS, "group": GROUP, "tokens": ANSWER, "micro-batches": 1,
        "test-questions": 1, "test-every": 10**9, "output": folder / "ours",
    }  # fmt: skip
    return [str(x) for name, value in options.items() for x in (f"--{name}", value)]


def write_model(folder: pathlib.Path, sizes: dict[str, Any], length: int = PROMPT) -> None:
    """Random weights, a tokenizer whose words are numbers, and tokens to compare logits on."""
    import jax
    import tokenizers

    import hkx
    from hkx.interop import huggingface

    config = hkx.nets.DecoderConfig(**{"rope_theta": 1e6, "tied_embeddings": True, **sizes})
    net = hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens))
    huggingface.save(folder, config, jax.jit(net.init)(jax.random.key(0), np.zeros([1, 1], np.int32)))
    np.save(folder / "tokens.npy", np.random.default_rng(0).integers(config.vocab_size - 2, size=[2, length]))
    special = {"<end>": config.vocab_size - 2, "<pad>": config.vocab_size - 1}
    about = json.loads((folder / "config.json").read_text())
    ids = {"eos_token_id": special["<end>"], "pad_token_id": special["<pad>"], "bos_token_id": None}
    (folder / "config.json").write_text(json.dumps(about | ids))
    words = {str(i): i for i in range(config.vocab_size - 2)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words | special, unk_token="<pad>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def write_logits(side: str, folder: pathlib.Path) -> None:
    """The logits of one pass over the tokens in `folder`."""
    tokens = np.load(folder / "tokens.npy")
    if side == "trl":
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        logits = model(input_ids=torch.from_numpy(tokens)).logits.detach().numpy()
    elif side == "tunix":
        rows, length = tokens.shape
        mask = np.broadcast_to(np.tril(np.ones([length, length], bool)), [rows, length, length])
        logits, _ = tunix_model(folder)[1](tokens, np.broadcast_to(np.arange(length), tokens.shape), None, mask)
    else:
        import hkx
        from hkx.interop import huggingface

        config, params = huggingface.load(folder)
        logits = hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens)).apply(params, None, tokens)
    np.save(folder / f"{side}.npy", logits)


def run(python: str, *command: str) -> tuple[str, float, float]:
    """Returns what a process prints, its CPU seconds and its largest memory in GB."""
    some = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    variables = os.environ | some  # one thread of torch takes less CPU time than several
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        command = (python, "-W", "ignore", *command)
        process = subprocess.Popen(command, stdout=out, stderr=errors, cwd=ROOT, env=variables)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), errors.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: status {process.returncode}, {errors.read().strip()[-2000:]}")
        return out.read(), used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def measured(side: str, python: str, folder: pathlib.Path, updates: int) -> dict[str, float]:
    """CPU seconds up to the end of the first update, and of the median later one, its sampling and learning."""
    if side == "hkx and rlx":
        printed, _, memory = run(python, "examples/grpo.py", *ours(folder, updates + 1))  # the last has a test more
        with open(folder / "ours" / "metrics.csv", newline="") as file:
            ends = [float(row["cpu_seconds"]) for row in csv.DictReader(file)][1:-1]
        for file in (folder / "ours").iterdir():
            file.unlink()
    else:
        printed, _, memory = run(python, "-m", "benchmarks.grpo_peers", "--side", side, "--model", str(folder),
                                 "--updates", str(updates))  # fmt: skip
        ends = [float(line.split()[1]) for line in printed.splitlines() if line.startswith("updated ")]
    rewards = [float(line.split()[1]) for line in printed.splitlines() if line.startswith("reward ")]
    steps = [(a, min(t for t in rewards if t > a), b) for a, b in itertools.pairwise(ends)]
    return {
        "first update, with import, loading and compilation, CPU s": ends[0],
        "later updates, CPU s": statistics.median(end - start for start, _, end in steps),
        "of these, sampling": statistics.median(sampled - start for start, sampled, _ in steps),
        "of these, learning": statistics.median(end - sampled for _, sampled, end in steps),
        "peak memory, GB": memory,
    }


def lines(side: str) -> int:
    """Lines of the program, without those that measure."""
    if side == "hkx and rlx":
        text = (ROOT / "examples" / "grpo.py").read_text()
    else:
        text = "".join(map(inspect.getsource, {"trl": [trl], "tunix": [tunix_model, tunix]}[side]))
    own = ("updated", "Clock", "clock", "on_step_end", "TrainingHooks")
    return sum(bool(line.strip()) and not any(word in line for word in own) for line in text.splitlines())


def differences(pythons: dict[str, str], sizes: dict[str, Any], length: int = PROMPT) -> dict[str, float]:
    """The largest difference of logits from those of transformers, which is TRL's model, over their deviation."""
    with tempfile.TemporaryDirectory() as name:
        call = f"import pathlib, benchmarks.grpo_peers as b; f = pathlib.Path({name!r}); "
        run(sys.executable, "-c", f"{call} b.write_model(f, {sizes}, {length})")
        for side, python in pythons.items():
            run(python, "-c", f"{call} b.write_logits({side!r}, f)")
        logits = {side: np.load(pathlib.Path(name) / f"{side}.npy") for side in pythons}
    return {side: float(np.abs(x - logits["trl"]).max() / logits["trl"].std()) for side, x in logits.items()}


def rope(pythons: dict[str, str]) -> None:
    sizes = {"vocab_size": 256, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}  # fmt: skip
    qwen3 = {"family": "qwen3", "query_key_norm": "head"}
    print("| rotary positions, 256 tokens | " + " | ".join(pythons) + " |\n" + "|---" * (len(pythons) + 1) + "|")
    for name, settings in {
        "Llama 3, base 1,000,000": {},
        "Llama 3, base 500,000": {"rope_theta": 5e5},
        'Llama 3, base 500,000, scaling "llama3"': {"rope_theta": 5e5, "rope_scaling": scaling},
        "Qwen 3, base 1,000,000": qwen3,
        "Qwen 3, base 5,000,000": {"rope_theta": 5e6, **qwen3},
    }.items():
        found = differences(pythons, sizes | settings, 256)
        print(f"| {name} | " + " | ".join(f"{x:.2g}" for x in found.values()) + " |", flush=True)


def rows(pythons: dict[str, str], size: str, layers: int, updates: int, rounds: int) -> Iterator[tuple[str, list[Any]]]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sizes = SIZES[size] | ({"num_layers": layers} if layers else {})
        call = f"import pathlib, benchmarks.grpo_peers as b; b.write_model(pathlib.Path({name!r}), {sizes})"
        run(sys.executable, "-c", call)  # in another process, whose memory does not count as that of those it starts
        found: dict[str, list[dict[str, float]]] = {side: [] for side in pythons}
        for _, side in itertools.product(range(rounds), pythons):
            try:
                found[side].append(measured(side, pythons[side], folder, updates))
                print(f"{size}, {side}: {found[side][-1]}", file=sys.stderr, flush=True)
            except RuntimeError as error:  # such as too little memory
                print(error, file=sys.stderr, flush=True)
    for figure in next(filter(None, found.values()))[0]:
        yield figure, [statistics.median(r[figure] for r in found[side] or [{figure: np.nan}]) for side in pythons]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", help="the Python in which TRL is installed")
    parser.add_argument("--tunix-python", help="the Python in which Tunix is installed")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--layers", type=int, default=0, help="instead of the model's own number")
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1, help="times that all take their turn")
    parser.add_argument("--rope", action="store_true", help="compare logits of Tunix with transformers'")
    parser.add_argument("--side", choices=("trl", "tunix"), help=argparse.SUPPRESS)  # in a process of its own
    parser.add_argument("--model", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        {"trl": trl, "tunix": tunix}[options.side](options.model, options.updates)
        return
    given = {"hkx and rlx": sys.executable, "trl": options.trl_python, "tunix": options.tunix_python}
    pythons = {side: python for side, python in given.items() if python}
    for side in given.keys() - pythons.keys():
        print(f"{side}: not installed (give --{side}-python)")
    if options.rope:
        rope(pythons)
        return
    run_twice = {side: [run(python, "-c", IMPORTS[side])[1] for _ in range(2)] for side, python in pythons.items()}
    print("\n| | " + " | ".join(pythons) + " |\n" + "|---" * (len(pythons) + 1) + "|")
    print("| import, CPU s | " + " | ".join(f"{min(x):.1f}" for x in run_twice.values()) + " |")
    print("| lines of the program | " + " | ".join(str(lines(side)) for side in pythons) + " |")
    for size in options.size:
        print(f"\n| {size} | " + " | ".join(pythons) + " |\n" + "|---" * (len(pythons) + 1) + "|")
        for figure, values in rows(pythons, size, options.layers, options.updates, options.rounds):
            cells = [f"{x:.3g}" + (f" ({values[0] / x:.2f})" if i else "") for i, x in enumerate(values)]
            print(f"| {figure} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
