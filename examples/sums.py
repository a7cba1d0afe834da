"""A small decoder, trained from scratch, that learns to add two-digit numbers from reward alone, by GRPO; or by DPO.

    pip install '.[examples]' && python examples/sums.py
    python examples/sums.py --method dpo --output runs/sums_dpo

First it imitates a few sums, so few that it answers one question in ten correctly. After that, with GRPO (Shao et al.,
"DeepSeekMath", 2024, https://arxiv.org/abs/2402.03300), it answers each question several times, and the reward of an
answer is 1 if all of its digits are right. With DPO (Rafailov et al., 2023, https://arxiv.org/abs/2305.18290) it learns
from pairs, the right answer and a wrong one of its own. A tenth of all questions is for the test, and never learnt.
Answers are written from the lowest digit up: "37+58=590". The same command continues from the last checkpoint.
"""

import dataclasses
import json
import pathlib
import sys
from functools import partial
from typing import Any, Literal, NamedTuple

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import tyro
    from matplotlib.figure import Figure

    import hkx
    import rlx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")

TOKENS = "0123456789+="
ANSWER = len("590")
PART = 20  # updates between two tests
COLUMNS = "updates", "right_as_it_learns", "right_in_test"


@dataclasses.dataclass(frozen=True)
class Config:
    method: Literal["grpo", "dpo"] = "grpo"  # learn from rewards, or from pairs
    seed: int = 0
    pretraining: int = 120  # updates at the start, which imitate right answers
    updates: int = 900  # updates from rewards, or from pairs
    questions: int = 64  # different questions in an update from rewards
    group: int = 16  # answers to each of them
    pairs: int = 256  # pairs in an update with DPO; right answers in an imitating update
    passes: int = 2  # steps of Adam on the same answers
    kl: float = 0.001  # weight of the divergence from the pretrained model, with GRPO
    beta: float = 0.1  # the same with DPO
    layers: int = 2
    width: int = 64
    heads: int = 4
    learning_rate: float = 2e-3  # falls to a tenth
    output: str = "runs/sums"


class State(NamedTuple):
    params: Any
    reference: Any  # the pretrained model
    opt_state: Any


def all_sums() -> tuple[np.ndarray, np.ndarray]:
    """All questions, `int32[10_000, 6]`, and their answers, `int32[10_000, 3]`."""
    lines = [f"{a:02}+{b:02}=" + f"{a + b:03}"[::-1] for a in range(100) for b in range(100)]
    tokens = np.array([[TOKENS.index(character) for character in line] for line in lines], np.int32)
    return tokens[:, :-ANSWER], tokens[:, -ANSWER:]


class Learner:
    def __init__(self, c: Config):
        self.config, model = c, hkx.nets.DecoderConfig(len(TOKENS), c.width, c.layers, c.heads)
        rate = optax.linear_schedule(c.learning_rate, 0.1 * c.learning_rate, (c.pretraining + c.updates) * c.passes)
        self.optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.flatten(optax.adam(rate, b2=0.95)))
        questions, answers = all_sums()
        order = np.split(np.random.default_rng(c.seed).permutation(len(questions)), [len(questions) // 10])
        self.test, self.training = ((jnp.asarray(questions[part]), jnp.asarray(answers[part])) for part in order)

        def answer(questions: jax.Array, group: int) -> hkx.nets.Generated:
            def sample(key: jax.Array, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
                tokens = rlx.softmax().sample(key, logits)
                return tokens, rlx.softmax().logprob(tokens, logits)

            how: Any = {"sample": sample, "samples_per_prompt": group} if group else {}  # else the likeliest answer
            start = jnp.zeros(len(questions), jnp.int32)
            return hkx.nets.generate(hkx.nets.Decoder(model, stacked=False), questions, start, ANSWER, **how)

        def log_probs(questions: jax.Array, answers: jax.Array) -> jax.Array:
            decoder, start = hkx.nets.Decoder(model, stacked=False), jnp.zeros(len(questions), jnp.int32)
            logits = decoder.logits(hkx.nets.answer_hidden(decoder, questions, start, answers))
            return rlx.softmax().logprob(answers, logits)

        self.answer = hkx.transform(answer).apply
        self.init, self.log_probs = hkx.without_apply_rng(hkx.transform(log_probs))

    def begin(self) -> State:
        params = self.init(jax.random.key(self.config.seed), *(part[:1] for part in self.test))
        return State(params, params, self.optimizer.init(params))

    def ask(self, key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
        chosen = jax.random.randint(key, [count], 0, len(self.training[0]))
        return self.training[0][chosen], self.training[1][chosen]

    def pretrain(self, state: State, key: jax.Array) -> tuple[Any, jax.Array]:
        """A loss that imitates right answers. The model gives none here, so their share is unknown."""
        questions, right = self.ask(key, self.config.pairs)
        return lambda params: -jnp.mean(self.log_probs(params, questions, right)), jnp.float32(jnp.nan)

    def grpo(self, state: State, key: jax.Array) -> tuple[Any, jax.Array]:
        """A loss that makes the better ones of several answers to a question more likely."""
        c, (ask_key, key) = self.config, jax.random.split(key)
        questions, right = self.ask(ask_key, c.questions)
        answers, old, _ = self.answer(state.params, key, questions, c.group)
        groups = answers.reshape(c.questions, c.group, ANSWER)
        rewards = jnp.all(groups == right[:, None], axis=-1).astype(jnp.float32)
        advantages = rlx.batched(rlx.group_relative_advantages)(rewards).ravel()
        reference = self.log_probs(state.reference, questions, answers)

        def loss(params: Any) -> jax.Array:
            own, kl = self.log_probs(params, questions, answers), {"ref_log_probs_t": reference, "kl_weight": c.kl}
            return jnp.mean(rlx.batched(rlx.grpo_loss)(own, old, advantages, **kl))

        return loss, jnp.mean(rewards)

    def dpo(self, state: State, key: jax.Array) -> tuple[Any, jax.Array]:
        """A loss that prefers the right answer to one of the model's own; if that is right too, there is no pair."""
        c, (ask_key, key) = self.config, jax.random.split(key)
        questions, right = self.ask(ask_key, c.pairs)
        answers = self.answer(state.params, key, questions, 1).tokens
        wrong = jnp.any(answers != right, axis=-1)

        def pairs(params: Any) -> list[jax.Array]:
            return [self.log_probs(params, questions, of_each) for of_each in (right, answers)]

        reference = pairs(state.reference)

        def loss(params: Any) -> jax.Array:
            losses = rlx.batched(rlx.dpo_loss)(*pairs(params), *reference, beta=c.beta)
            return jnp.mean(jnp.where(wrong, losses, 0))

        return loss, 1 - jnp.mean(wrong)

    @partial(jax.jit, static_argnums=(0, 2, 4))
    def advance(self, state: State, method: str, step: Any, updates: int) -> tuple[State, jax.Array]:
        """Updates by one method after `step` others, then a test. Returns the shares of right answers in both."""

        def update(state: State, step: jax.Array) -> tuple[State, jax.Array]:
            loss, right = getattr(self, method)(state, jax.random.fold_in(jax.random.key(self.config.seed), step))

            def learn(state: State, _: None) -> tuple[State, None]:
                changes, opt_state = self.optimizer.update(jax.grad(loss)(state.params), state.opt_state)
                return State(optax.apply_updates(state.params, changes), state.reference, opt_state), None

            return jax.lax.scan(learn, state, length=self.config.passes)[0], right

        state, right = jax.lax.scan(update, state, step + jnp.arange(updates))
        exact = jnp.all(self.answer(state.params, None, self.test[0], 0).tokens == self.test[1], axis=-1)
        return state, jnp.stack([jnp.mean(right), jnp.mean(exact)])


def save(folder: pathlib.Path, c: Config, state: State, rows: list[list[float]]) -> None:
    leaves, table = {str(i): x for i, x in enumerate(jax.tree.leaves(state))}, np.array(rows)
    np.savez(folder / "unfinished.npz", settings=json.dumps(dataclasses.asdict(c)), table=table, **leaves)
    (folder / "unfinished.npz").replace(folder / "checkpoint.npz")
    np.savetxt(folder / "metrics.csv", table, "%.9g", ",", header=",".join(COLUMNS), comments="")
    axes = (figure := Figure(figsize=(7.5, 4), layout="constrained")).subplots()
    axes.plot(table[:, 0], table[:, 1], label="of its answers as it learns")
    axes.plot(table[:, 0], table[:, 2], "o-", label="in the test", markersize=3)
    axes.axvline(c.pretraining, color="gray", linestyle=":", label="end of the imitation")
    axes.set(title=f"Sums, by {c.method.upper()}", xlabel="updates", ylabel="share that is right")
    axes.legend(frameon=False)
    figure.savefig(folder / "curve.png", dpi=120)


def main(c: Config) -> None:
    folder, learner, total, table = pathlib.Path(c.output), Learner(c), c.pretraining + c.updates, []
    folder.mkdir(parents=True, exist_ok=True)
    state = jax.jit(learner.begin)()
    if (folder / "checkpoint.npz").exists():
        with np.load(folder / "checkpoint.npz") as file:
            if str(file["settings"]) != json.dumps(dataclasses.asdict(c)):
                sys.exit(f"{folder} holds a run with other settings: give another --output.")
            leaves, tree = jax.tree.flatten(state)
            state, table = tree.unflatten([file[str(i)] for i in range(len(leaves))]), file["table"].tolist()
    while (step := int(table[-1][0]) if table else 0) < total:
        alone = step >= c.pretraining
        if step == c.pretraining:
            state = state._replace(reference=state.params)
        updates = min(PART, (total if alone else c.pretraining) - step)
        state, right = learner.advance(state, c.method if alone else "pretrain", step, updates)
        table.append([step + updates, *np.asarray(right, float).tolist()])
        save(folder, c, state, table)
        print(f"{step + updates}: right {right[0]:.3f}, in the test {right[1]:.3f}", flush=True)
    print("accuracy before:", *(f"{row[2]:.3f}" for row in table if row[0] == c.pretraining))
    print(f"final accuracy: {table[-1][2]:.3f} over {len(learner.test[0])} questions")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
