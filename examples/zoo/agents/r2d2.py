"""R2D2: recurrent Q-learning, on sequences from a prioritised replay buffer.

Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning", 2019
(https://openreview.net/forum?id=r1lyTjAqYX). A sequence starts with the memory that the agent had there, which the
first steps only bring up to date (burn-in). Values are rescaled, so that rewards need no clipping.
"""

import dataclasses
import functools
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from settings import BadSetting, Between, Count, NotNegative, Settings, Share

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, features, number_of_actions, require_room, reset_where


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of the agent."""

    length: Count = 16
    """steps of a sequence to learn from"""
    burn_in: Annotated[int, Between(0)] = 4
    """burn-in steps before them, which only bring the memory up to date"""
    overlap: Annotated[int, Between(0)] = 10
    """steps that a sequence shares with the next one"""
    n_step: Count = 3
    """number of steps n of the n-step returns"""
    capacity: Count = 10_000
    """capacity of the replay buffer, in steps of all environments"""
    warmup: Count = 8
    """sequences before the first update"""
    batch_size: Count = 16
    """sequences per batch"""
    unroll: Count = 4
    """steps of each environment between updates"""
    target_period: Count = 50
    """updates between copies of the network to the target network"""
    hidden: Count = 64
    """size of the hidden layer and of the memory"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    epsilon: Share = 0.05
    """probability of a random action"""
    priority_of_greatest: Share = 0.9
    """weight of the maximum error of a sequence in its priority; the rest is the weight of the mean error"""

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self.burn_in + self.length
        if self.overlap >= steps:
            raise BadSetting(f"overlap must be less than the {steps} steps of a sequence, not {self.overlap}")


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    target_params: hkx.Params
    opt_state: optax.OptState
    replay: Any  # of sequences of Step, whose extras are the memory before the step
    key: jax.Array
    updates: jax.Array  # []


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions, observation = number_of_actions(action_spec), blank(observation_spec)

    @hkx.without_apply_rng
    @hkx.transform
    def network(observations: Any, memory: Any) -> tuple[jax.Array, Any]:
        """The rescaled values [E, actions], for one step of E environments."""
        hidden = jax.nn.relu(hkx.Linear(config.hidden)(hkx.vmap(features, split_rng=False)(observations)))
        hidden, memory = hkx.GRU(config.hidden)(hidden, memory)
        return hkx.Linear(num_actions)(hidden), memory

    def memory(environments: int) -> jax.Array:
        return jnp.zeros((environments, config.hidden))

    optimizer = optax.flatten(optax.adam(config.learning_rate))  # one vector is faster than many small arrays

    def replay_of(environments: int) -> rlx.replay.Replay:
        prioritised = functools.partial(rlx.replay.prioritised, exponent=0.9, beta=0.6)
        length = config.burn_in + config.length
        period = length - config.overlap
        each = max(config.capacity // environments, 2 * length, config.unroll)
        require_room(config.warmup, environments * ((each - length + 1) // period))
        return rlx.replay.sequences(each, length, period, prioritised)

    def init(key: jax.Array, environments: int) -> State:
        params_key, key = jax.random.split(key)
        params = network.init(params_key, jax.tree.map(lambda x: x[None], observation), memory(1))
        seen = jax.tree.map(lambda x: jnp.zeros((environments, *x.shape), x.dtype), observation)
        zeros = jnp.zeros(environments)
        nothing = Step(seen, zeros.astype(int), zeros, zeros, zeros.astype(bool), seen, memory(environments))
        held = replay_of(environments).init(nothing)
        return State(params, params, optimizer.init(params), held, key, jnp.int32(0))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        q, new = network.apply(state.params, observations, memory)
        return Choice(rlx.epsilon_greedy(0.0 if greedy else config.epsilon).sample(key, q), new, extras=memory)

    def over_time(params: hkx.Params, memory: Any, steps: Step) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        """The values [T, B, actions] before and after each step, with the memory carried along."""

        def step(memory: Any, now: Step) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            q_tm1, memory = network.apply(params, now.observation, memory)
            q_t, _ = network.apply(params, now.next_observation, memory)
            return reset_where(now.last, memory, jnp.zeros_like(memory)), (q_tm1, q_t)

        return jax.lax.scan(step, memory, steps)

    def loss(params: hkx.Params, target_params: hkx.Params, sample: rlx.replay.Sample) -> tuple[jax.Array, jax.Array]:
        in_time = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), sample.items)  # [T, B, ...]
        before, steps = (jax.tree.map(lambda x, s=s: x[s], in_time) for s in np.s_[: config.burn_in, config.burn_in :])

        def values(params: hkx.Params) -> tuple[jax.Array, jax.Array]:
            start = in_time.extras[0]
            start, _ = over_time(params, start, before)
            return over_time(params, jax.lax.stop_gradient(start), steps)[1]

        (q_tm1, selector), (_, target_q_t) = values(params), values(target_params)

        a_t, discount_t = jnp.argmax(selector, axis=-1), config.discount * steps.discount
        experience = steps.action, target_q_t, a_t, steps.reward, discount_t
        td_errors = rlx.time_major(rlx.transformed_n_step_q_learning)
        rescaled = rlx.SIGNED_HYPERBOLIC_PAIR
        errors = td_errors(q_tm1, *experience, config.n_step, True, rescaled, truncation_t=steps.last)
        return jnp.mean(sample.weights * jnp.mean(rlx.l2_loss(errors), axis=0)), jnp.abs(errors)

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        replay = replay_of(steps.reward.shape[1])
        state = state._replace(replay=replay.add_batch(state.replay, steps))

        def update(state: State) -> tuple[State, jax.Array]:
            sample_key, key = jax.random.split(state.key)
            sample = replay.sample(state.replay, sample_key, config.batch_size)
            gradient_of = jax.value_and_grad(loss, has_aux=True)
            (value, errors), gradient = gradient_of(state.params, state.target_params, sample)
            greatest, mean = jnp.max(errors, axis=0), jnp.mean(errors, axis=0)
            priorities = mean + config.priority_of_greatest * (greatest - mean)
            remembered = replay.update_priorities(state.replay, sample.indices, priorities)
            changes, opt_state = optimizer.update(gradient, state.opt_state)
            params, updates = optax.apply_updates(state.params, changes), state.updates + 1
            target_params = rlx.periodic_update(params, state.target_params, updates, config.target_period)
            return State(params, target_params, opt_state, remembered, key, updates), value

        ready = replay.can_sample(state.replay, config.warmup)
        state, value = jax.lax.cond(ready, update, lambda state: (state, jnp.float32(0)), state)
        return state, {"loss": value}

    return Agent(init, act, learn, memory, config.unroll)
