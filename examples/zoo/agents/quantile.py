"""Distributional DQN with quantiles: QR-DQN, or implicit quantiles with `--implicit`.

Dabney et al., "Distributional Reinforcement Learning with Quantile Regression", 2018
(https://arxiv.org/abs/1710.10044), and "Implicit Quantile Networks for Distributional Reinforcement Learning", 2018
(https://arxiv.org/abs/1806.06923). The network outputs quantiles of each action's return, at fixed levels, or at
levels that are sampled anew each time and are an input of the network.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from settings import Count, NotNegative, ReplaySettings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, features, no_transition, number_of_actions, transitions


@dataclasses.dataclass(frozen=True)
class Config(ReplaySettings):
    """The settings of the agent."""

    implicit: bool = False
    """implicit quantile network: levels are sampled, and are an input of the network"""
    quantiles: Count = 32
    """quantiles of each action"""
    cosines: Count = 32
    """number of cosines that encode a sampled level"""
    huber: NotNegative = 1.0
    """error beyond which the Huber loss is linear"""
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
    middles = (np.arange(config.quantiles, dtype=np.float32) + 0.5) / config.quantiles

    @hkx.without_apply_rng
    @hkx.transform
    def network(observation: Any, levels: jax.Array) -> jax.Array:
        """The quantiles [levels, actions]."""
        hidden = hkx.nets.MLP(config.hidden, activate_final=True)(features(observation))
        if not config.implicit:
            return hkx.Linear(config.quantiles * num_actions)(hidden).reshape(config.quantiles, num_actions)
        waves = jnp.cos(jnp.pi * levels[:, None] * np.arange(config.cosines, dtype=np.float32))
        told = jax.nn.relu(hkx.Linear(hidden.shape[-1], name="levels")(waves))
        return hkx.Linear(num_actions)(hidden[None] * told)

    quantiles = jax.vmap(network.apply, in_axes=(None, 0, 0))  # of observations [B, ...] at levels [B, quantiles]
    optimizer = optax.flatten(optax.adam(config.learning_rate))  # one vector is faster than many small arrays
    replay = rlx.replay.n_step(rlx.replay.uniform(config.capacity), 1)

    def levels(key: jax.Array, batch: int) -> jax.Array:
        shape = batch, config.quantiles
        return jax.random.uniform(key, shape) if config.implicit else jnp.broadcast_to(middles, shape)

    def init(key: jax.Array, environments: int) -> State:
        params_key, key = jax.random.split(key)
        params = network.init(params_key, observation, middles)
        held = replay.init(no_transition(observation, np.int32(0), environments))
        return State(params, params, optimizer.init(params), held, key, jnp.int32(0))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        batch = jax.tree.leaves(observations)[0].shape[0]
        q = jnp.mean(
            quantiles(state.params, observations, jnp.broadcast_to(middles, (batch, config.quantiles))), axis=1
        )
        return Choice(rlx.epsilon_greedy(0.0 if greedy else config.epsilon).sample(key, q), memory)

    def loss(params: hkx.Params, target_params: hkx.Params, batch: Any, key: jax.Array) -> jax.Array:
        tm1_key, t_key = jax.random.split(key)
        tau_q_tm1 = levels(tm1_key, config.batch_size)
        dist_q_tm1 = quantiles(params, batch.s_tm1, tau_q_tm1)
        dist_q_t = quantiles(target_params, batch.s_t, levels(t_key, config.batch_size))
        losses = rlx.batched(rlx.quantile_q_learning)
        # The target network both chooses the action, by the mean of its quantiles, and evaluates it.
        return jnp.mean(
            losses(
                dist_q_tm1,
                tau_q_tm1,
                batch.a_tm1,
                batch.r_t,
                batch.discount_t,
                dist_q_t,
                dist_q_t,
                config.huber,
            )
        )

    def update(state: State) -> tuple[State, jax.Array]:
        sample_key, loss_key, key = jax.random.split(state.key, 3)
        batch = replay.sample(state.replay, sample_key, config.batch_size).items
        value, gradient = jax.value_and_grad(loss)(state.params, state.target_params, batch, loss_key)
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
