"""Advantage actor-critic, feed-forward or recurrent: A3C with a single learner.

Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", 2016 (https://arxiv.org/abs/1602.01783), with
λ-returns (Sutton and Barto 2018, chapter 12). With `--memory lstm` or `gru`, the network remembers earlier
observations of an episode, and gradients are propagated back to the first of the steps that it learns from.
"""

import dataclasses
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from settings import Count, MemorySettings, NotNegative, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, features, number_of_actions, reset_where


@dataclasses.dataclass(frozen=True)
class Config(MemorySettings):
    """The settings of the agent."""

    memory: Literal["none", "gru", "lstm"] = "none"
    """recurrent core that remembers earlier observations of the episode"""
    unroll: Count = 32
    """steps of each environment per update"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers; the memory has the size of the last one"""
    learning_rate: NotNegative = 3e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    lambda_: Share = 0.9
    """λ of the returns: 0 bootstraps after one step, 1 only at the end"""
    entropy: NotNegative = 0.01
    """weight of the entropy bonus"""
    value: NotNegative = 0.5
    """weight of the value loss"""
    gradient_norm: NotNegative = 0.5
    """maximum norm of the gradient; larger ones are scaled down"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    opt_state: optax.OptState


class Outputs(NamedTuple):
    """The outputs of the network for observations [E, ...]."""

    logits: jax.Array  # [E, A]
    value: jax.Array  # [E]


class Parts(NamedTuple):
    """The parts of the network, and one step of all of them, for E environments."""

    embed: Any  # (params, observations) -> hidden
    remember: Any  # (params, hidden, memory) -> hidden, memory
    decide: Any  # (params, hidden) -> Outputs
    one_step: Any  # (params, observations, memory) -> Outputs, memory


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions = number_of_actions(action_spec)

    def core() -> Any:
        kinds = {"none": hkx.IdentityCore, "gru": hkx.GRU, "lstm": hkx.LSTM}
        return kinds[config.memory](*([] if config.memory == "none" else [config.hidden[-1]]))

    def model() -> tuple[Any, Parts]:
        def embed(observations: Any) -> jax.Array:
            return hkx.nets.MLP(config.hidden, activate_final=True)(hkx.vmap(features, split_rng=False)(observations))

        def remember(hidden: jax.Array, memory: Any) -> tuple[jax.Array, Any]:
            return core()(hidden, memory)

        def decide(hidden: jax.Array) -> Outputs:
            value = hkx.Linear(1, name="value")(hidden)
            return Outputs(hkx.Linear(num_actions, name="policy")(hidden), value[..., 0])

        def one_step(observations: Any, memory: Any) -> tuple[Outputs, Any]:
            hidden, memory = remember(embed(observations), memory)
            return decide(hidden), memory

        return one_step, Parts(embed, remember, decide, one_step)

    network = hkx.without_apply_rng(hkx.multi_transform(model))

    def memory(environments: int) -> Any:
        if config.memory == "none":
            return ()
        start = hkx.without_apply_rng(hkx.transform(lambda: core().initial_state(environments)))
        return start.apply(start.init(None))

    optimizer = optax.chain(optax.clip_by_global_norm(config.gradient_norm), optax.adam(config.learning_rate))

    def init(key: jax.Array, environments: int) -> State:
        one = jax.tree.map(lambda x: x[None], blank(observation_spec))
        params = network.init(key, one, memory(1))
        return State(params, optimizer.init(params))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        outputs, new = network.apply.one_step(state.params, observations, memory)
        logits = outputs.logits
        action = jnp.argmax(logits, axis=-1) if greedy else jax.random.categorical(key, logits)
        return Choice(action, new, extras=memory)

    def over_time(params: hkx.Params, steps: Step) -> tuple[Outputs, jax.Array]:
        """The outputs [T, E], carrying the memory along, and the values of the observation after each step."""

        def step(memory: Any, now: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[jax.Array, Any]]:
            embedded, last = now
            hidden, memory = network.apply.remember(params, embedded, memory)
            first = jax.tree.map(jnp.zeros_like, memory)
            return reset_where(last, memory, first), (hidden, memory)

        # Only the memory needs one step after the other.
        over_steps = jax.vmap(partial(network.apply.embed, params))(steps.observation), steps.last
        begin = jax.tree.map(lambda x: x[0], steps.extras)
        _, (hidden, memories) = jax.lax.scan(step, begin, over_steps)
        outputs = network.apply.decide(params, hidden)
        after, _ = jax.vmap(partial(network.apply.one_step, params))(steps.next_observation, memories)
        return outputs, after.value

    def loss(params: hkx.Params, steps: Step) -> tuple[jax.Array, dict[str, jax.Array]]:
        outputs, v_t = over_time(params, steps)

        returns = rlx.time_major(rlx.lambda_returns)(
            steps.reward, config.discount * steps.discount, v_t, config.lambda_, truncation_t=steps.last
        )
        advantages = jax.lax.stop_gradient(returns - outputs.value)
        logits, actions = outputs.logits, steps.action
        weights = jnp.ones_like(advantages)
        policy_loss = jnp.mean(rlx.batched(rlx.policy_gradient_loss)(logits, actions, advantages, weights))
        entropy_loss = jnp.mean(rlx.batched(rlx.entropy_loss)(logits, weights))
        value_loss = jnp.mean(rlx.l2_loss(jax.lax.stop_gradient(returns) - outputs.value))
        total = policy_loss + config.entropy * entropy_loss + config.value * value_loss
        return total, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": -entropy_loss}

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        gradient, metrics = jax.grad(loss, has_aux=True)(state.params, steps)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        return State(optax.apply_updates(state.params, changes), opt_state), metrics

    return Agent(init, act, learn, memory, config.unroll)
