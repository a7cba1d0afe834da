"""Streaming Q(λ): learns from each step once, as it arrives, without a replay buffer or a target network.

Elsayed, Vasan and Mahmood, "Streaming Deep Reinforcement Learning Finally Works", 2024
(https://arxiv.org/abs/2410.14606): eligibility traces, updates that cannot overshoot, sparsely initialised and
normalised layers, and observations and rewards scaled by running statistics. Each of several environments is a stream
with its own trace, and the network moves by the mean of their updates.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from settings import Count, NotNegative, Settings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, flat, number_of_actions


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of the agent."""

    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    sparsity: Share = 0.5
    """share of a layer's weights that are initialised to zero; 0.9 in the paper, whose layers are wider"""
    learning_rate: NotNegative = 1.0
    """step size, unless the update would overshoot"""
    kappa: NotNegative = 2.0
    """factor by which an update is kept smaller than one that would overshoot"""
    discount: Share = 0.99
    """discount factor per step"""
    lambda_: Share = 0.8
    """decay factor λ of the traces"""
    epsilon: Share = 0.01
    """final probability of a random action"""
    exploration: Count = 20_000
    """steps over which it decreases from 1"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    trace: Any  # eligibility traces, [E, ...]
    seen: Any  # mean and variance of observations
    rewards: rlx.RewardScale
    steps: jax.Array  # [], of all environments


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions, observation = number_of_actions(action_spec), flat(blank(observation_spec))
    sparse = hkx.initializers.Sparse(config.sparsity)

    @hkx.without_apply_rng
    @hkx.transform
    def network(observation: jax.Array) -> jax.Array:
        """The values of all actions."""
        hidden = observation
        for size in config.hidden:
            layer = hkx.LayerNorm(-1, create_scale=False, create_offset=False)
            hidden = jax.nn.leaky_relu(layer(hkx.Linear(size, w_init=sparse)(hidden)))
        return hkx.Linear(num_actions, w_init=sparse)(hidden)

    values = jax.vmap(network.apply, in_axes=(None, 0))  # for observations [E, ...]
    optimizer = rlx.obgd(config.learning_rate, config.discount, config.lambda_, config.kappa)

    def scaled(seen: Any, observations: Any) -> jax.Array:
        return rlx.running_statistics.normalize(seen, jax.vmap(flat)(observations))

    def init(key: jax.Array, environments: int) -> State:
        params = network.init(key, observation)
        trace = jax.vmap(lambda _: optimizer.init(params))(jnp.arange(environments))
        seen, rewards = rlx.running_statistics.init(observation), rlx.initial_reward_scale([environments])
        return State(params, trace, seen, rewards, jnp.int32(0))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        q = values(state.params, scaled(state.seen, observations))
        epsilon = 0.0 if greedy else jnp.maximum(config.epsilon, 1 - state.steps / config.exploration)
        action = rlx.epsilon_greedy(epsilon).sample(key, q)
        return Choice(action, memory, extras=action == jnp.argmax(q, axis=-1))

    def value(params: hkx.Params, observation: jax.Array, action: jax.Array) -> jax.Array:
        return network.apply(params, observation)[action]

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        now = jax.tree.map(lambda x: x[0], steps)  # `unroll` is 1
        seen = rlx.running_statistics.update(state.seen, jax.vmap(flat)(now.next_observation))
        goes_on = config.discount * (1 - now.last)
        r_t, rewards = rlx.scale_rewards(state.rewards, now.reward, goes_on)

        gradients_of = jax.vmap(jax.value_and_grad(value), in_axes=(None, 0, 0))
        v_tm1, gradients = gradients_of(state.params, scaled(seen, now.observation), now.action)
        v_t = jnp.max(values(state.params, scaled(seen, now.next_observation)), axis=-1)
        errors = rlx.batched(rlx.td_learning)(v_tm1, r_t, config.discount * now.discount, v_t)

        def updates(gradient: Any, trace: Any, error: jax.Array, reset: jax.Array) -> Any:
            return optimizer.update(gradient, trace, td_error=error, reset=reset)

        exploring = ~now.extras
        changes, trace = jax.vmap(updates)(gradients, state.trace, errors, now.last | exploring)
        params = optax.apply_updates(state.params, jax.tree.map(lambda x: jnp.mean(x, axis=0), changes))
        metrics = {"td_error": jnp.mean(jnp.abs(errors))}
        return State(params, trace, seen, rewards, state.steps + errors.size), metrics

    return Agent(init, act, learn)
