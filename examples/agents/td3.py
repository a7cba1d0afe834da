"""TD3: a deterministic policy for bounded continuous actions.

Fujimoto, van Hoof and Meger, "Addressing Function Approximation Error in Actor-Critic Methods", 2018
(https://arxiv.org/abs/1802.09477): twin critics whose minimum is the target, a smoothed target action, and a policy
that is updated less often than the critics.
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
from agents.agent import Agent, Choice, Step, blank, flat, no_transition, transitions, unit_actions


@dataclasses.dataclass(frozen=True)
class Config(ReplaySettings):
    """The settings of the agent."""

    noise: NotNegative = 0.1
    """standard deviation of the noise added to an action, which is within [-1, 1]"""
    target_noise: NotNegative = 0.2
    """standard deviation of the noise added to the target action"""
    target_clip: NotNegative = 0.5
    """bound on that noise"""
    policy_period: Count = 2
    """updates of the critics per update of the policy and of the target networks"""
    capacity: Count = 100_000
    """capacity of the replay buffer, in transitions"""
    warmup: Count = 1_000
    """transitions before the first update; until then, actions are random"""
    batch_size: Count = 128
    """transitions per batch"""
    period: Count = 1
    """steps of each environment between updates"""
    tau: Share = 0.005
    """fraction by which the target networks move towards the networks in an update"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: dict[str, hkx.Params]  # of actor and critics (with a leading axis)
    target_params: dict[str, hkx.Params]
    opt_state: dict[str, optax.OptState]
    replay: Any  # of rlx.replay.Transition; actions are within [-1, 1]
    key: jax.Array
    updates: jax.Array  # []


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    observation, unit = blank(observation_spec), unit_actions(action_spec)

    @hkx.without_apply_rng
    @hkx.transform
    def actor(observation: Any) -> jax.Array:
        """The action within [-1, 1]."""
        return jnp.tanh(hkx.nets.MLP([*config.hidden, unit.size])(flat(observation)))

    @hkx.without_apply_rng
    @hkx.transform
    def critic(observation: Any, action: jax.Array) -> jax.Array:
        """The value of an action."""
        return hkx.nets.MLP([*config.hidden, 1])(jnp.concatenate([flat(observation), action]))[0]

    actions = jax.vmap(actor.apply, in_axes=(None, 0))  # for observations [B, ...]
    values = jax.vmap(jax.vmap(critic.apply, in_axes=(0, None, None)), in_axes=(None, 0, 0))  # [B, 2]
    optimizer = optax.flatten(optax.adam(config.learning_rate))  # one vector is faster than many small arrays
    replay = rlx.replay.n_step(rlx.replay.uniform(config.capacity), 1)

    def init(key: jax.Array, environments: int) -> State:
        actor_key, key, *keys = jax.random.split(key, 4)
        nothing = np.zeros(unit.size, np.float32)
        critics = jax.vmap(critic.init, in_axes=(0, None, None))(jnp.stack(keys), observation, nothing)
        params = {"actor": actor.init(actor_key, observation), "critics": critics}
        opt_state = {name: optimizer.init(each) for name, each in params.items()}
        held = replay.init(no_transition(observation, nothing, environments))
        return State(params, params, opt_state, held, key, jnp.int32(0))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        action = actions(state.params["actor"], observations)
        if not greedy:
            noise_key, random_key = jax.random.split(key)
            noisy = jnp.clip(action + config.noise * jax.random.normal(noise_key, action.shape), -1, 1)
            anything = jax.random.uniform(random_key, action.shape, minval=-1, maxval=1)
            action = jnp.where(replay.can_sample(state.replay, config.warmup), noisy, anything)
        return Choice(unit.to_spec(action), memory)

    def critic_loss(critics: hkx.Params, target_params: Any, batch: Any, keys: jax.Array) -> jax.Array:
        smoothed = rlx.batched(rlx.smoothed_target_action)
        a_t = smoothed(keys, actions(target_params["actor"], batch.s_t), config.target_noise, config.target_clip)
        q_tm1, q_t = values(critics, batch.s_tm1, batch.a_tm1), values(target_params["critics"], batch.s_t, a_t)
        errors = rlx.batched(rlx.clipped_double_q_learning)(q_tm1, batch.r_t, batch.discount_t, q_t)
        return jnp.mean(jnp.sum(rlx.l2_loss(errors), axis=1))

    def actor_loss(actor_params: hkx.Params, critics: hkx.Params, batch: Any) -> jax.Array:
        return -jnp.mean(values(critics, batch.s_tm1, actions(actor_params, batch.s_tm1))[:, 0])

    def update(state: State) -> tuple[State, jax.Array]:
        params, opt_state = dict(state.params), dict(state.opt_state)
        sample_key, key, *keys = jax.random.split(state.key, 2 + config.batch_size)
        batch = replay.sample(state.replay, sample_key, config.batch_size).items

        def improve(name: str, gradient: hkx.Params, now: Any) -> None:
            changes, changed = optimizer.update(gradient, opt_state[name])
            kept = params[name], opt_state[name]
            new = optax.apply_updates(params[name], changes), changed
            params[name], opt_state[name] = rlx.tree_select(now, new, kept)

        value, gradient = jax.value_and_grad(critic_loss)(
            params["critics"], state.target_params, batch, jnp.stack(keys)
        )
        improve("critics", gradient, jnp.array(True))
        gradient = jax.grad(actor_loss)(params["actor"], params["critics"], batch)
        now = state.updates % config.policy_period == 0
        improve("actor", gradient, now)
        moved = optax.incremental_update(params, state.target_params, config.tau)
        target_params = rlx.tree_select(now, moved, state.target_params)
        return State(params, target_params, opt_state, state.replay, key, state.updates + 1), value

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        experience = transitions(steps._replace(action=unit.from_spec(steps.action)), config.discount)
        state = state._replace(replay=replay.add_batch(state.replay, experience))
        ready = replay.can_sample(state.replay, config.warmup)
        state, value = jax.lax.cond(ready, update, lambda state: (state, jnp.float32(0)), state)
        return state, {"critic_loss": value}

    return Agent(init, act, learn, unroll=config.period)
