"""Conservative Q-learning, from a fixed data set: low values for actions that are not in the data.

Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning", 2020 (https://arxiv.org/abs/2006.04779), for
discrete actions. With `--conservative-weight 0`, this is Q-learning, which overestimates actions not in the data.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from settings import NotNegative, Settings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, flat, number_of_actions, transitions


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of the agent."""

    conservative_weight: NotNegative = 1.0
    """weight of the penalty on the values of actions that are not in the data"""
    tau: Share = 0.005
    """fraction by which the target network moves towards the network in an update"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    target_params: hkx.Params
    opt_state: optax.OptState


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions, observation = number_of_actions(action_spec), blank(observation_spec)

    @hkx.without_apply_rng
    @hkx.transform
    def network(observation: Any) -> jax.Array:
        """The values of all actions."""
        return hkx.nets.MLP([*config.hidden, num_actions])(flat(observation))

    values = jax.vmap(network.apply, in_axes=(None, 0))
    optimizer = optax.flatten(optax.adam(config.learning_rate))  # one vector is faster than many small arrays

    def init(key: jax.Array, environments: int) -> State:
        params = network.init(key, observation)
        return State(params, params, optimizer.init(params))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        return Choice(jnp.argmax(values(state.params, observations), axis=-1), memory)

    def loss(params: hkx.Params, target_params: hkx.Params, batch: rlx.replay.Transition) -> tuple[jax.Array, Any]:
        q_tm1, q_t = values(params, batch.s_tm1), values(target_params, batch.s_t)
        losses = rlx.batched(rlx.conservative_q_learning)(
            q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t, config.conservative_weight
        )
        return jnp.mean(losses), {"loss": jnp.mean(losses), "value": jnp.mean(jnp.max(q_tm1, axis=-1))}

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        """Learns from a batch of B steps, [1, B, ...], which need not be consecutive."""
        batch = jax.tree.map(lambda x: x[0], transitions(steps, config.discount))
        gradient, metrics = jax.grad(loss, has_aux=True)(state.params, state.target_params, batch)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        params = optax.apply_updates(state.params, changes)
        return State(params, optax.incremental_update(params, state.target_params, config.tau), opt_state), metrics

    return Agent(init, act, learn)
