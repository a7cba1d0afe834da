"""DQN, with most of Rainbow (double, dueling, n-step, prioritised) and Munchausen as settings.

Mnih et al., "Human-level control through deep reinforcement learning", 2015. The settings are those of
"Deep Reinforcement Learning with Double Q-learning" (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461),
"Dueling Network Architectures" (Wang et al. 2016, https://arxiv.org/abs/1511.06581), "Prioritized Experience Replay"
(Schaul et al. 2016, https://arxiv.org/abs/1511.05952), "Rainbow" (Hessel et al. 2018,
https://arxiv.org/abs/1710.02298) and "Munchausen Reinforcement Learning" (Vieillard et al. 2020,
https://arxiv.org/abs/2007.14430).
"""

import dataclasses
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from settings import Between, Count, NotNegative, ReplaySettings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, features, no_transition, number_of_actions, transitions


@dataclasses.dataclass(frozen=True)
class Config(ReplaySettings):
    """The settings of the agent."""

    double: bool = False
    """double Q-learning: the network chooses the action that the target network evaluates"""
    dueling: bool = False
    """dueling network: values are the sum of a state's value and the actions' advantages"""
    prioritised: bool = False
    """prioritised replay: sample transitions by their last TD error"""
    munchausen: bool = False
    """Munchausen DQN: soft values, and the action's log-probability is added to its reward; ignores `double`"""
    n_step: Count = 1
    """number of steps in an n-step transition"""
    capacity: Count = 10_000
    """capacity of the replay buffer, in transitions"""
    warmup: Count = 128
    """transitions before the first update"""
    batch_size: Count = 64
    """transitions per batch"""
    period: Count = 2
    """steps of each environment between updates"""
    target_period: Count = 2
    """updates between copies of the network to the target network"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 1.5e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    epsilon: Share = 0.01
    """final probability of a random action"""
    epsilon_updates: Annotated[int, Between(0)] = 250
    """updates over which it decreases from 1; 0 keeps it constant"""


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

    @hkx.without_apply_rng
    @hkx.transform
    def network(observation: Any) -> jax.Array:
        """The values of all actions."""
        hidden = hkx.nets.MLP(config.hidden, activate_final=True)(features(observation))
        if not config.dueling:
            return hkx.Linear(num_actions, name="values")(hidden)
        advantages = hkx.Linear(num_actions, name="advantages")(hidden)
        return hkx.Linear(1, name="value")(hidden) + advantages - jnp.mean(advantages)

    values = jax.vmap(network.apply, in_axes=(None, 0))
    optimizer = optax.flatten(optax.adam(config.learning_rate))  # one vector is faster than many small arrays
    replay = rlx.replay.uniform(config.capacity)
    if config.prioritised:
        replay = rlx.replay.prioritised(config.capacity, exponent=0.6, beta=0.4)
    replay = rlx.replay.n_step(replay, config.n_step)

    def init(key: jax.Array, environments: int) -> State:
        params_key, key = jax.random.split(key)
        params = network.init(params_key, observation)
        return State(
            params,
            params,
            optimizer.init(params),
            replay.init(no_transition(observation, np.int32(0), environments)),
            key,
            jnp.int32(0),
        )

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        epsilon = 0.0 if greedy else config.epsilon
        if config.epsilon_updates and not greedy:
            epsilon = jnp.maximum(epsilon, 1 - state.updates / config.epsilon_updates)
        return Choice(rlx.epsilon_greedy(epsilon).sample(key, values(state.params, observations)), memory)

    def td_errors(params: hkx.Params, target_params: hkx.Params, batch: rlx.replay.Transition) -> jax.Array:
        q_tm1, q_t = values(params, batch.s_tm1), values(target_params, batch.s_t)
        if config.munchausen:
            target_q_tm1 = values(target_params, batch.s_tm1)
            errors = rlx.batched(rlx.munchausen_q_learning)
            return errors(q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t, target_q_tm1)
        selector = values(params, batch.s_t) if config.double else q_t
        return rlx.batched(rlx.double_q_learning)(q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t, selector)

    def loss(params: hkx.Params, target_params: hkx.Params, sample: rlx.replay.Sample) -> tuple[jax.Array, jax.Array]:
        errors = td_errors(params, target_params, sample.items)
        return jnp.mean(sample.weights * rlx.l2_loss(errors)), errors

    def update(state: State) -> tuple[State, jax.Array]:
        sample_key, key = jax.random.split(state.key)
        sample = replay.sample(state.replay, sample_key, config.batch_size)
        (value, errors), gradient = jax.value_and_grad(loss, has_aux=True)(state.params, state.target_params, sample)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        params, updates = optax.apply_updates(state.params, changes), state.updates + 1
        target_params = rlx.periodic_update(params, state.target_params, updates, config.target_period)
        remembered = state.replay
        if config.prioritised:
            remembered = replay.update_priorities(remembered, sample.indices, jnp.abs(errors))
        return State(params, target_params, opt_state, remembered, key, updates), value

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        state = state._replace(replay=replay.add_batch(state.replay, transitions(steps, config.discount)))
        ready = replay.can_sample(state.replay, config.warmup)
        state, value = jax.lax.cond(ready, update, lambda state: (state, jnp.float32(0)), state)
        return state, {"loss": value}

    return Agent(init, act, learn, unroll=config.period)
