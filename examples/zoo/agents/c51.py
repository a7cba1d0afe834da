"""Categorical distributional DQN: C51, with double Q-learning.

Bellemare, Dabney and Munos, "A Distributional Perspective on Reinforcement Learning", 2017
(https://arxiv.org/abs/1707.06887). For each action, the network outputs the probabilities of a fixed set of returns.
"""

import dataclasses
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from settings import BadSetting, Between, Count, NotNegative, ReplaySettings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, features, no_transition, number_of_actions, transitions


@dataclasses.dataclass(frozen=True)
class Config(ReplaySettings):
    """The settings of the agent."""

    atoms: Annotated[int, Between(2)] = 51
    """number of atoms, the returns that have a probability"""
    least: float = -1.0
    """the lowest atom"""
    greatest: float = 1.0
    """the highest atom"""
    n_step: Count = 1
    """number of steps in an n-step transition"""
    capacity: Count = 10_000
    """capacity of the replay buffer, in transitions"""
    warmup: Count = 128
    """transitions before the first update"""
    batch_size: Count = 32
    """transitions per batch"""
    period: Count = 1
    """steps of each environment between updates"""
    target_period: Count = 4
    """updates between copies of the network to the target network"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    epsilon: Share = 0.05
    """probability of a random action"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -np.inf < self.least < self.greatest < np.inf:
            raise BadSetting(f"least must be less than greatest, {self.greatest}, not {self.least}")


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    target_params: hkx.Params
    opt_state: optax.OptState
    replay: Any  # of rlx.replay.Transition
    key: jax.Array
    updates: jax.Array  # []


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions, observation = number_of_actions(action_spec), blank(observation_spec)
    atoms = np.linspace(config.least, config.greatest, config.atoms, dtype=np.float32)

    @hkx.without_apply_rng
    @hkx.transform
    def network(observation: Any) -> jax.Array:
        """The logits [actions, atoms]."""
        sizes = [*config.hidden, num_actions * config.atoms]
        return hkx.nets.MLP(sizes)(features(observation)).reshape(num_actions, config.atoms)

    logits = jax.vmap(network.apply, in_axes=(None, 0))  # for observations [B, ...]
    optimizer = optax.flatten(optax.adam(config.learning_rate))  # one vector is faster than many small arrays
    replay = rlx.replay.n_step(rlx.replay.uniform(config.capacity), config.n_step)

    def init(key: jax.Array, environments: int) -> State:
        params_key, key = jax.random.split(key)
        params = network.init(params_key, observation)
        held = replay.init(no_transition(observation, np.int32(0), environments))
        return State(params, params, optimizer.init(params), held, key, jnp.int32(0))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        q = jax.nn.softmax(logits(state.params, observations)) @ atoms
        return Choice(rlx.epsilon_greedy(0.0 if greedy else config.epsilon).sample(key, q), memory)

    def loss(params: hkx.Params, target_params: hkx.Params, batch: rlx.replay.Transition) -> jax.Array:
        selector = jax.nn.softmax(logits(params, batch.s_t)) @ atoms
        losses = rlx.batched(rlx.categorical_double_q_learning)
        of_target, of_params = logits(target_params, batch.s_t), logits(params, batch.s_tm1)
        experience = batch.a_tm1, batch.r_t, batch.discount_t
        return jnp.mean(losses(atoms, of_params, *experience, atoms, of_target, selector))

    def update(state: State) -> tuple[State, jax.Array]:
        sample_key, key = jax.random.split(state.key)
        batch = replay.sample(state.replay, sample_key, config.batch_size).items
        value, gradient = jax.value_and_grad(loss)(state.params, state.target_params, batch)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        params, updates = optax.apply_updates(state.params, changes), state.updates + 1
        target_params = rlx.periodic_update(params, state.target_params, updates, config.target_period)
        return State(params, target_params, opt_state, state.replay, key, updates), value

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        state = state._replace(replay=replay.add_batch(state.replay, transitions(steps, config.discount)))
        ready = replay.can_sample(state.replay, config.warmup)
        state, value = jax.lax.cond(ready, update, lambda state: (state, jnp.float32(0)), state)
        return state, {"loss": value}

    return Agent(init, act, learn, unroll=config.period)
