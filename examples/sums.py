"""A small transformer that learns to add two-digit numbers from nothing but a reward: GRPO, or DPO on pairs.

It is first shown a few sums, so few that it answers hardly one in ten right: it knows what an answer looks like. Then
nobody shows it another. With GRPO it answers each question several times, and an answer is worth 1 where all of it is
right and 0 where not. With DPO it sees pairs: the right answer, and one of its own that is wrong. A tenth of all
questions are never asked in either phase; the share of these that it answers right is what counts.

Shao et al., "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", 2024
(https://arxiv.org/abs/2402.03300); Rafailov et al., "Direct Preference Optimization", 2023
(https://arxiv.org/abs/2305.18290). Asking, answering with a cache, judging and learning are one compiled program.

    python examples/sums.py
    python examples/sums.py --method dpo
"""

import dataclasses
import functools
import json
import pathlib
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from program import Between, Count, Seed, Settings, noticing_interrupts, output_folder, save_parameters, save_table
from program import start, whole_file
from tqdm import tqdm

import hkx
import rlx

TOKENS = "0123456789+="
QUESTION, ANSWER = len("37+58="), len("095")


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of a run. Every field is a flag of the command line."""

    method: Literal["grpo", "dpo"] = "grpo"  # what to learn from: rewards, or pairs of answers
    seed: Seed = 0  # seed of parameters, questions and answers
    pretraining: Annotated[int, Between(0)] = 300  # updates on right answers, before
    updates: Annotated[int, Between(0)] = 1_000  # updates by reward or by pairs
    questions: Count = 64  # questions at once
    group: Count = 16  # answers to each of them; with DPO, as many pairs
    passes: Count = 2  # gradient steps on the same answers
    kl_weight: Annotated[float, Between(0)] = 0.01  # what it costs to differ from the pretrained network; GRPO
    beta: Annotated[float, Between(1e-6)] = 0.1  # the same, of DPO
    layers: Count = 2  # layers of the transformer
    width: Count = 64  # numbers that stand for a token
    heads: Count = 4  # heads of attention
    learning_rate: Annotated[float, Between(0, 1)] = 1e-3  # step size of Adam
    output: str = "runs/sums"  # folder for metrics, curve, parameters and the checkpoint
    resume: bool = False  # go on from the checkpoint in --output, where there is one
    progress: bool = True  # show a progress bar


def all_sums() -> tuple[np.ndarray, np.ndarray]:
    """All questions `int32[10_000, 6]`, and their answers `int32[10_000, 3]`."""
    lines = [f"{a:02}+{b:02}=" + f"{a + b:03}"[::-1] for a in range(100) for b in range(100)]
    tokens = np.array([[TOKENS.index(character) for character in line] for line in lines], np.int32)
    return tokens[:, :QUESTION], tokens[:, QUESTION:]


class Transformer(hkx.Module):
    """Predicts the token after each one, from this and those before."""

    def __init__(self, config: Config):
        super().__init__(name="transformer")
        self.config, size = config, config.width // config.heads
        self.attention = [
            hkx.GroupedQueryAttention(config.heads, config.heads, size, rotary=hkx.RotaryEmbedding(), name=f"attention_{i}")
            for i in range(config.layers)
        ]

    def __call__(self, tokens: jax.Array, caches: list[hkx.KeyValueCache]) -> tuple[jax.Array, list[hkx.KeyValueCache]]:
        """Logits `[B, T, 12]` of what follows the tokens `int[B, T]`, which are added to the caches."""
        width = self.config.width
        x, new = hkx.Embed(len(TOKENS), width)(tokens), []
        for attention, cache in zip(self.attention, caches, strict=True):
            y, cache = attention(hkx.RMSNorm(axis=-1)(x), cache=cache)
            x += y
            x += hkx.nets.MLP([4 * width, width], activation=jax.nn.gelu)(hkx.RMSNorm(axis=-1)(x))
            new.append(cache)
        return hkx.Linear(len(TOKENS))(hkx.RMSNorm(axis=-1)(x)), new

    def empty_caches(self, batch: int) -> list[hkx.KeyValueCache]:
        return [attention.initial_cache(batch, QUESTION + ANSWER) for attention in self.attention]


class Functions(NamedTuple):
    """The pure functions of the network."""

    answer: Any  # (params, key, questions [B, 6], greedy) -> answers [B, 3]
    log_probs: Any  # (params, None, questions [B, 6], answers [B, 3]) -> [B, 3]


def make_network(config: Config) -> hkx.MultiTransformed:
    def network() -> tuple[Any, Functions]:
        transformer = Transformer(config)

        def log_probs(questions: jax.Array, answers: jax.Array) -> jax.Array:
            """The log-probabilities of the tokens of answers."""
            tokens = jnp.concatenate([questions, answers[:, :-1]], axis=1)
            logits, _ = transformer(tokens, transformer.empty_caches(len(tokens)))
            return -optax.softmax_cross_entropy_with_integer_labels(logits[:, QUESTION - 1 :], answers)

        def answer(questions: jax.Array, greedy: bool = False) -> jax.Array:
            """Answers, token by token."""
            logits, caches = transformer(questions, transformer.empty_caches(len(questions)))

            def step(carry: Any, _: None) -> Any:
                logits, caches = carry
                token = jnp.argmax(logits, -1) if greedy else jax.random.categorical(hkx.next_rng_key(), logits)
                logits, caches = transformer(token[:, None], caches)
                return (logits[:, -1], caches), token

            return hkx.scan(step, (logits[:, -1], caches), length=ANSWER)[1].T

        return log_probs, Functions(answer, log_probs)

    return hkx.multi_transform(network)


class State(NamedTuple):
    """What an update changes."""

    params: hkx.Params
    reference: hkx.Params  # the network as it was pretrained
    opt_state: optax.OptState
    key: jax.Array


class Program:
    """What is compiled: the beginning, some updates and the test after them."""

    def __init__(self, config: Config):
        self.config, self.network = config, make_network(config)
        self.optimizer = optax.flatten(optax.adam(config.learning_rate, b2=0.95))  # one vector: sooner than many small arrays
        questions, answers = all_sums()
        order = np.random.default_rng(config.seed).permutation(len(questions))
        self.test, self.training = ((questions[part], answers[part]) for part in np.split(order, [len(order) // 10]))

    def begin(self) -> State:
        key, params_key = jax.random.split(jax.random.key(self.config.seed))
        params = self.network.init(params_key, *(part[:1] for part in self.test))
        return State(params, params, self.optimizer.init(params), key)

    def taught(self, state: State) -> State:
        """Where the second phase begins: what has been learned is the reference from now on."""
        return state._replace(reference=state.params, opt_state=state.opt_state)

    def ask(self, key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
        """Questions [count, 6] from the training part, and their answers [count, 3]."""
        chosen = jax.random.randint(key, [count], 0, len(self.training[0]))
        return tuple(jnp.asarray(part)[chosen] for part in self.training)

    def descend(self, state: State, loss: Any, n: Any = None) -> State:
        """A few steps against the gradient of a loss of the parameters."""

        def step(learned: Any, _: None) -> Any:
            params, opt_state = learned
            changes, opt_state = self.optimizer.update(jax.grad(loss)(params), opt_state)
            return (optax.apply_updates(params, changes), opt_state), None

        (params, opt_state), _ = jax.lax.scan(step, (state.params, state.opt_state), length=n or self.config.passes)
        return state._replace(params=params, opt_state=opt_state)

    def pretrain(self, state: State, key: jax.Array) -> tuple[State, jax.Array]:
        """Imitates right answers."""
        question, answer = self.ask(key, self.config.questions * self.config.group)

        def loss(params: hkx.Params) -> jax.Array:
            return -jnp.mean(self.network.apply.log_probs(params, None, question, answer))

        return self.descend(state, loss, 1), loss(state.params)

    def grpo(self, state: State, key: jax.Array) -> tuple[State, jax.Array]:
        """Answers each question several times, and makes those answers more likely that are worth more."""
        config, log_probs = self.config, self.network.apply.log_probs
        ask_key, answer_key = jax.random.split(key)
        questions, right = (jnp.repeat(x, config.group, axis=0) for x in self.ask(ask_key, config.questions))
        answers = self.network.apply.answer(state.params, answer_key, questions)
        rewards = jnp.all(answers == right, axis=-1).astype(jnp.float32)
        groups = rewards.reshape(config.questions, config.group)
        advantages = jax.vmap(rlx.group_relative_advantages)(groups).ravel()
        old, reference = (log_probs(params, None, questions, answers) for params in (state.params, state.reference))

        @jax.vmap
        def losses(new: jax.Array, old: jax.Array, advantage: jax.Array, reference: jax.Array) -> jax.Array:
            return rlx.grpo_loss(new, old, advantage, ref_log_probs_t=reference, kl_weight=config.kl_weight)

        def loss(params: hkx.Params) -> jax.Array:
            return jnp.mean(losses(log_probs(params, None, questions, answers), old, advantages, reference))

        return self.descend(state, loss), jnp.mean(rewards)

    def dpo(self, state: State, key: jax.Array) -> tuple[State, jax.Array]:
        """Prefers the right answer to one of its own; where that was right too, there is no pair."""
        config, log_probs = self.config, self.network.apply.log_probs
        ask_key, answer_key = jax.random.split(key)
        questions, right = self.ask(ask_key, config.questions * config.group)
        answers = self.network.apply.answer(state.params, answer_key, questions)
        wrong = jnp.any(answers != right, axis=-1)
        reference = [log_probs(state.reference, None, questions, x) for x in (right, answers)]

        def loss(params: hkx.Params) -> jax.Array:
            now = [log_probs(params, None, questions, x) for x in (right, answers)]
            losses = jax.vmap(lambda *pair: rlx.dpo_loss(*pair, beta=config.beta))(*now, *reference)
            return jnp.sum(losses * wrong) / jnp.maximum(jnp.sum(wrong), 1)

        return self.descend(state, loss), 1 - jnp.mean(wrong)

    def exact(self, params: hkx.Params) -> jax.Array:
        """The share of the questions never asked that the likeliest answer is right for."""
        questions, right = self.test
        return jnp.mean(jnp.all(self.network.apply.answer(params, None, questions, greedy=True) == right, axis=-1))

    @functools.partial(jax.jit, static_argnums=(0, 2, 3))
    def advance(self, state: State, phase: str, updates: int) -> tuple[State, jax.Array, jax.Array]:
        """Learns so many times. Returns the new state, the mean of a number of each update, and the test."""
        update = getattr(self, phase)
        next_key, key = jax.random.split(state.key)
        state, numbers = jax.lax.scan(update, state, jax.random.split(key, updates))
        return state._replace(key=next_key), jnp.mean(numbers), self.exact(state.params)
