"""Online Q(λ): Q-learning on the most recent steps, with multi-step returns and without a replay buffer.

Watkins, "Learning from delayed rewards", 1989, and Peng and Williams, "Incremental multi-step Q-learning", 1994, whose
returns are not cut at exploratory actions. With many environments this is PQN, "Simplifying Deep Temporal Difference
Learning", Gallici et al. 2024 (https://arxiv.org/abs/2407.04811), whose layer normalisation it uses.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from settings import Count, NotNegative, Settings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, features, number_of_actions


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of the agent."""

    unroll: Count = 8
    """steps of each environment per update"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 3e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    lambda_: Share = 0.7
    """λ of the returns: 0 bootstraps after one step, 1 only at the end"""
    epsilon: Share = 0.05
    """probability of a random action"""
    gradient_norm: NotNegative = 10.0
    """maximum norm of the gradient; larger ones are scaled down"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    opt_state: optax.OptState


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions = number_of_actions(action_spec)

    @hkx.without_apply_rng
    @hkx.transform
    def network(observation: Any) -> jax.Array:
        """The values of all actions."""
        hidden = features(observation)
        for size in config.hidden:
            hidden = jax.nn.relu(hkx.LayerNorm(-1, True, True)(hkx.Linear(size)(hidden)))
        return hkx.Linear(num_actions)(hidden)

    values = jax.vmap(network.apply, in_axes=(None, 0))  # for observations [E, ...]
    optimizer = optax.chain(optax.clip_by_global_norm(config.gradient_norm), optax.adam(config.learning_rate))

    def init(key: jax.Array, environments: int) -> State:
        params = network.init(key, blank(observation_spec))
        return State(params, optimizer.init(params))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        epsilon = 0.0 if greedy else config.epsilon
        return Choice(rlx.epsilon_greedy(epsilon).sample(key, values(state.params, observations)), memory)

    def loss(params: hkx.Params, steps: Step) -> jax.Array:
        over_time = jax.vmap(values, in_axes=(None, 0))
        q_tm1, v_t = over_time(params, steps.observation), jnp.max(over_time(params, steps.next_observation), axis=-1)

        discount_t = config.discount * steps.discount
        returns_of = rlx.time_major(rlx.lambda_returns)
        returns = returns_of(steps.reward, discount_t, v_t, config.lambda_, truncation_t=steps.last)
        return jnp.mean(rlx.l2_loss(jax.lax.stop_gradient(returns) - rlx.batched_index(q_tm1, steps.action)))

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        value, gradient = jax.value_and_grad(loss)(state.params, steps)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        return State(optax.apply_updates(state.params, changes), opt_state), {"loss": value}

    return Agent(init, act, learn, unroll=config.unroll)
