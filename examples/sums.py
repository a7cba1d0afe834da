"""A small transformer that learns to add two-digit numbers from reward alone, with GRPO; or from pairs, with DPO.

First it imitates a few sums, so few that it answers hardly one question in ten correctly. After that it is not shown
correct answers any more. With GRPO it answers each question several times, and the reward of an answer is 1 if all of
its digits are right, and 0 otherwise. With DPO it learns from pairs of answers, a right one and a wrong one of its own.
The test measures the share of right answers to questions that are never used for learning, a tenth of all. Answers are
written from the lowest digit up, as in addition by hand: "37+58=590".

Shao et al., "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", 2024
(https://arxiv.org/abs/2402.03300); Rafailov et al., "Direct Preference Optimization: Your Language Model is Secretly a
Reward Model", 2023 (https://arxiv.org/abs/2305.18290). Asking, answering (with a cache of keys and values), judging and
learning are one compiled program. The same command, run again, continues from the last checkpoint in --output.

    pip install '.[examples]' && python examples/sums.py
    python examples/sums.py --method dpo --output runs/sums_dpo
"""

import dataclasses
import pathlib
import sys
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

sys.path.append(str(pathlib.Path(__file__).parent / "zoo"))  # for program.py and settings.py

import jax
import jax.numpy as jnp
import long_run
import numpy as np
import optax
import program
from settings import BadSetting, Between, Count, Seed, Settings
from tqdm import tqdm

import hkx
import rlx

TOKENS = "0123456789+="
QUESTION, ANSWER = len("37+58="), len("590")
PART = 20  # updates between two tests
COLUMNS = "updates", "right_as_it_learns", "right_in_test"


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of a run. Every field is a flag of the command line."""

    method: Literal["grpo", "dpo"] = "grpo"  # what to learn from: rewards, or pairs of answers
    seed: Seed = 0  # seed of parameters, questions and answers
    pretraining: Annotated[int, Between(0)] = 120  # updates at the start, which imitate right answers
    updates: Annotated[int, Between(0)] = 900  # updates from rewards, or from pairs
    questions: Count = 64  # different questions in an update from rewards
    group: Count = 16  # answers to each of them
    batch_size: Count = 256  # right answers per imitating update; pairs per update with DPO
    passes: Count = 2  # steps of Adam on the same answers
    kl_weight: Annotated[float, Between(0)] = 0.001  # weight of the divergence from the pretrained network, with GRPO
    beta: Annotated[float, Between(1e-6)] = 0.1  # the same with DPO
    layers: Count = 2  # layers of the transformer
    width: Count = 64  # size of the vector that represents a token
    heads: Count = 4  # attention heads
    learning_rate: Annotated[float, Between(0, 1)] = 1e-3  # step size of Adam; it falls to a tenth
    keep_checkpoints: Count = 2  # how many of the latest checkpoints to keep
    output: str = "runs/sums"  # folder for metrics, curve, parameters and checkpoints
    progress: bool = True  # show a progress bar

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % (2 * self.heads):  # each head rotates pairs of numbers
            raise BadSetting(f"width must be a multiple of {2 * self.heads}, twice the heads, not {self.width}")


def all_sums() -> tuple[np.ndarray, np.ndarray]:
    """All questions, `int32[10_000, 6]`, and their answers, `int32[10_000, 3]`."""
    lines = [f"{a:02}+{b:02}=" + f"{a + b:03}"[::-1] for a in range(100) for b in range(100)]
    tokens = np.array([[TOKENS.index(character) for character in line] for line in lines], np.int32)
    return tokens[:, :QUESTION], tokens[:, QUESTION:]


class Transformer(hkx.Module):
    """Predicts each next token from the tokens so far."""

    def __init__(self, config: Config):
        super().__init__(name="transformer")
        self.width, size = config.width, config.width // config.heads
        attention = partial(hkx.GroupedQueryAttention, config.heads, config.heads, size, rotary=hkx.RotaryEmbedding())
        self.attention = [attention(name=f"attention_{i}") for i in range(config.layers)]

    def __call__(self, tokens: jax.Array, caches: list[hkx.KeyValueCache]) -> tuple[jax.Array, list[hkx.KeyValueCache]]:
        """Logits `[B, T, 12]` of the next tokens after `int[B, T]`, which are added to the caches."""
        x, new = hkx.Embed(len(TOKENS), self.width)(tokens), []
        for attention, cache in zip(self.attention, caches, strict=True):
            y, cache = attention(hkx.RMSNorm(axis=-1)(x), cache=cache)
            x += y
            x += hkx.nets.MLP([4 * self.width, self.width], activation=jax.nn.gelu)(hkx.RMSNorm(axis=-1)(x))
            new.append(cache)
        return hkx.Linear(len(TOKENS))(hkx.RMSNorm(axis=-1)(x)), new

    def empty_caches(self, batch: int) -> list[hkx.KeyValueCache]:
        return [attention.initial_cache(batch, QUESTION + ANSWER) for attention in self.attention]


def make_network(config: Config) -> hkx.MultiTransformed:
    """The pure functions: N answers to questions [B, 6], and the log-probabilities [N, 3] of answers."""

    def network() -> tuple[Any, tuple[Any, Any]]:
        transformer = Transformer(config)

        def read(questions: jax.Array, answers: int) -> tuple[jax.Array, list[hkx.KeyValueCache]]:
            """Logits and caches from which answers begin; a question is read only once for all of its answers."""
            logits, caches = transformer(questions, transformer.empty_caches(len(questions)))
            times = answers // len(questions)
            caches = [hkx.KeyValueCache(*(jnp.repeat(x, times, axis=0) for x in c[:2]), c.length) for c in caches]
            return jnp.repeat(logits[:, -1:], times, axis=0), caches

        def log_probs(questions: jax.Array, answers: jax.Array) -> jax.Array:
            first, caches = read(questions, len(answers))
            logits = jnp.concatenate([first, transformer(answers[:, :-1], caches)[0]], axis=1)
            return -optax.softmax_cross_entropy_with_integer_labels(logits, answers)

        def answer(questions: jax.Array, answers: int, greedy: bool = False) -> jax.Array:
            def step(carry: Any, _: None) -> Any:
                logits, caches = carry
                token = jnp.argmax(logits, -1) if greedy else jax.random.categorical(hkx.next_rng_key(), logits)
                return transformer(token, caches), token[:, 0]

            return hkx.scan(step, read(questions, answers), length=ANSWER)[1].T

        return log_probs, (answer, log_probs)

    return hkx.multi_transform(network)


class State(NamedTuple):
    """Everything that a run changes and a checkpoint contains."""

    params: hkx.Params
    reference: hkx.Params  # the pretrained network
    opt_state: optax.OptState
    key: jax.Array
    history: jax.Array  # [parts, 3], the `COLUMNS` after each finished part, else nan


class Learner:
    """The compiled functions: the start of a run, and one part of it."""

    def __init__(self, config: Config):
        self.config, network = config, make_network(config)
        self.init, (self.answer, self.log_probs) = network
        steps = (config.pretraining + config.updates) * config.passes
        rate = optax.linear_schedule(config.learning_rate, 0.1 * config.learning_rate, steps)
        self.optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.flatten(optax.adam(rate, b2=0.95)))
        questions, answers = all_sums()
        order = np.random.default_rng(config.seed).permutation(len(questions))
        self.test, self.training = ((questions[part], answers[part]) for part in np.split(order, [len(order) // 10]))

    def begin(self) -> State:
        key, params_key = jax.random.split(jax.random.key(self.config.seed))
        params = self.init(params_key, *(part[:1] for part in self.test))
        parts = -(-self.config.pretraining // PART) - (-self.config.updates // PART)
        return State(params, params, self.optimizer.init(params), key, jnp.full([parts, 3], jnp.nan))

    def ask(self, key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
        """Random training questions, [count, 6], and their answers, [count, 3]."""
        chosen = jax.random.randint(key, [count], 0, len(self.training[0]))
        return tuple(jnp.asarray(x)[chosen] for x in self.training)

    def pretrain(self, state: State, key: jax.Array) -> tuple[Any, Any]:
        """A loss that imitates right answers. The network gives none here, so their share is unknown."""
        questions, right = self.ask(key, self.config.batch_size)
        return lambda params: -jnp.mean(self.log_probs(params, None, questions, right)), jnp.nan

    def grpo(self, state: State, key: jax.Array) -> tuple[Any, jax.Array]:
        """Answers each question several times. Returns a loss that makes the better answers more likely."""
        config, (ask_key, answer_key) = self.config, jax.random.split(key)
        questions, right = self.ask(ask_key, config.questions)
        answers = self.answer(state.params, answer_key, questions, config.questions * config.group)
        groups = answers.reshape(config.questions, config.group, ANSWER)
        rewards = jnp.all(groups == right[:, None], axis=-1).astype(jnp.float32)
        advantages = rlx.batched(rlx.group_relative_advantages)(rewards).ravel()
        old, reference = (self.log_probs(p, None, questions, answers) for p in (state.params, state.reference))

        def loss(params: hkx.Params) -> jax.Array:
            log_probs = self.log_probs(params, None, questions, answers)
            losses = rlx.batched(rlx.grpo_loss)(
                log_probs, old, advantages, ref_log_probs_t=reference, kl_weight=config.kl_weight
            )
            return jnp.mean(losses)

        return loss, jnp.mean(rewards)

    def dpo(self, state: State, key: jax.Array) -> tuple[Any, jax.Array]:
        """A loss that prefers the right answer to one of the network's own; if that is right too, there is no pair."""
        config, (ask_key, answer_key) = self.config, jax.random.split(key)
        questions, right = self.ask(ask_key, config.batch_size)
        answers = self.answer(state.params, answer_key, questions, config.batch_size)
        wrong = jnp.any(answers != right, axis=-1)

        def pairs(params: hkx.Params) -> list[jax.Array]:
            return [self.log_probs(params, None, questions, of_each) for of_each in (right, answers)]

        reference = pairs(state.reference)

        def loss(params: hkx.Params) -> jax.Array:
            losses = rlx.batched(rlx.dpo_loss)(*pairs(params), *reference, beta=config.beta)
            return jnp.mean(jnp.where(wrong, losses, 0))

        return loss, 1 - jnp.mean(wrong)

    def exact(self, params: hkx.Params) -> jax.Array:
        """The share of right answers to the test questions. Each answer is decoded greedily."""
        questions, right = self.test
        return jnp.mean(jnp.all(self.answer(params, None, questions, len(questions), greedy=True) == right, axis=-1))

    @partial(jax.jit, static_argnums=(0, 2, 3))
    def advance(self, state: State, method: str, updates: int) -> tuple[State, jax.Array]:
        """Updates by one method, then a test. Returns the shares of right answers in both."""

        def update(state: State, key: jax.Array) -> tuple[State, jax.Array]:
            loss, right = getattr(self, method)(state, key)

            def step(learned: Any, _: None) -> tuple[Any, None]:
                params, opt_state = learned
                changes, opt_state = self.optimizer.update(jax.grad(loss)(params), opt_state)
                return (optax.apply_updates(params, changes), opt_state), None

            (params, opt_state), _ = jax.lax.scan(step, (state.params, state.opt_state), length=self.config.passes)
            return state._replace(params=params, opt_state=opt_state), jnp.asarray(right)

        key, *keys = jax.random.split(state.key, 1 + updates)
        state, right = jax.lax.scan(update, state._replace(key=key), jnp.stack(keys))
        return state, jnp.stack([jnp.mean(right), self.exact(state.params)])


def save_curve(path: pathlib.Path, config: Config, history: np.ndarray) -> None:
    from matplotlib.figure import Figure  # imported here because nothing before the end of training needs it

    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(history[:, 0], history[:, 1], color="tab:blue", label="of its answers as it learns")
    axes.plot(history[:, 0], history[:, 2], "o-", color="tab:orange", label="in the test", markersize=3)
    axes.axvline(config.pretraining, color="gray", linestyle=":", label="end of the imitation")
    axes.set(title=f"Sums, by {config.method.upper()}", xlabel="updates", ylabel="share that is right")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    with program.whole_file(path) as unfinished:
        figure.savefig(unfinished, dpi=120)


def main(config: Config) -> dict[str, Any]:
    """Trains, tests and saves. Returns the shares of right answers before and after."""
    output, learner, total = program.output_folder(config.output), Learner(config), config.pretraining + config.updates
    checkpoints = long_run.Checkpoints(config, output / "checkpoints")
    with program.noticing_interrupts() as interrupted, checkpoints:
        step, state = checkpoints.restore(jax.eval_shape(learner.begin))
        if step == 0:
            state = jax.jit(learner.begin)()
        bar = tqdm(total=total, initial=step, unit=" updates", disable=not config.progress)
        while step < total and not interrupted.is_set():
            alone = step >= config.pretraining
            if step == config.pretraining:
                state = state._replace(reference=state.params)
            updates = min(PART, (total if alone else config.pretraining) - step)
            state, right = learner.advance(state, config.method if alone else "pretrain", updates)
            step += updates
            row = np.isfinite(state.history[:, 0]).sum()
            state = state._replace(history=state.history.at[row].set(jnp.array([step, *right])))
            bar.set_postfix_str(f"right {right[1]:.3f}", refresh=False)
            bar.update(updates)
            checkpoints.save(step, state)
        bar.close()
    history = np.round(np.asarray(state.history, float), 6)[np.isfinite(state.history[:, 0])]
    tests = dict(history[:, [0, 2]].tolist())
    before, after = tests.get(config.pretraining), tests.get(step)
    table = {name: np.where(np.isnan(x), None, x) for name, x in zip(COLUMNS, history.T, strict=True)}
    program.save_table(output / "metrics.csv", table)
    save_curve(output / "curve.png", config, history)
    program.save_parameters(output / "parameters.npz", state.params)
    print(f"share of right answers in the test: {before} before, {after} after {step} updates; all is in {output}")
    return {"before": before, "after": after, "updates": step, "interrupted": interrupted.is_set()}


if __name__ == "__main__":
    program.start(Config, main, __doc__)
