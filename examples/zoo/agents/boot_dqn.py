"""Bootstrapped DQN with randomised priors: an ensemble whose members disagree on what has rarely been tried.

Osband et al., "Deep Exploration via Bootstrapped DQN", 2016 (https://arxiv.org/abs/1602.04621), and "Randomized Prior
Functions for Deep Reinforcement Learning", 2018 (https://arxiv.org/abs/1806.03335). In each episode, one member of the
ensemble chooses the actions. Each member adds to its values those of a random network that is never trained, and learns
from all steps, or from its own `share` of them.
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

    members: Count = 20
    """networks in the ensemble"""
    prior_scale: NotNegative = 3.0
    """weight of the random networks"""
    share: Share = 1.0
    """probability that a member learns from a step; below 1, members also differ in what they have seen"""
    noise: NotNegative = 0.0
    """standard deviation of the noise added to each member's rewards"""
    capacity: Count = 10_000
    """capacity of the replay buffer, in transitions"""
    warmup: Count = 128
    """transitions before the first update"""
    batch_size: Count = 128
    """transitions per batch"""
    period: Count = 1
    """steps of each environment between updates"""
    target_period: Count = 4
    """updates between copies of the networks to the target networks"""
    hidden: Sizes = (50, 50)
    """units of the hidden layers of a member"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates. Parameters have a leading axis of members."""

    params: hkx.Params
    target_params: hkx.Params
    prior_params: hkx.Params  # never trained
    opt_state: optax.OptState
    replay: Any  # of rlx.replay.Transition; s_tm1 also contains which members learn from it
    key: jax.Array
    updates: jax.Array  # []


class Memory(NamedTuple):
    """The member that chooses the actions in each environment during an episode."""

    member: jax.Array  # int32 [E]; -1 at the beginning of an episode


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions, observation = number_of_actions(action_spec), blank(observation_spec)

    @hkx.without_apply_rng
    @hkx.transform
    def network(observation: Any) -> jax.Array:
        """The values of all actions, by one member."""
        return hkx.nets.MLP([*config.hidden, num_actions])(features(observation))

    def of_member(params: hkx.Params, prior_params: hkx.Params, observations: Any) -> jax.Array:
        values = jax.vmap(network.apply, in_axes=(None, 0))
        return values(params, observations) + config.prior_scale * values(prior_params, observations)

    values = jax.vmap(of_member, in_axes=(0, 0, None))  # [members, batch, actions]
    optimizer = optax.adam(config.learning_rate)
    replay = rlx.replay.uniform(config.capacity)
    replay = rlx.replay.n_step(replay, 1)

    def remembered(seen: Any, mask: jax.Array, noise: jax.Array) -> dict[str, Any]:
        return {"observation": seen, "mask": mask, "noise": noise}

    def init(key: jax.Array, environments: int) -> State:
        params_key, prior_key, key = jax.random.split(key, 3)
        many = jax.vmap(network.init, in_axes=(0, None))
        params = many(jax.random.split(params_key, config.members), observation)
        prior_params = many(jax.random.split(prior_key, config.members), observation)
        nothing = no_transition(observation, np.int32(0), environments)
        nobody = jnp.zeros((environments, config.members))
        nothing = nothing._replace(s_tm1=remembered(nothing.s_tm1, nobody, nobody))
        held = replay.init(nothing)
        return State(params, params, prior_params, optimizer.init(params), held, key, jnp.int32(0))

    def act(state: State, memory: Memory, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        q = values(state.params, state.prior_params, observations)  # [members, E, actions]
        chosen = jax.random.randint(key, memory.member.shape, 0, config.members)
        member = jnp.where(memory.member < 0, chosen, memory.member)
        deciding = jnp.mean(q, axis=0) if greedy else q[member, jnp.arange(member.size)]
        return Choice(jnp.argmax(deciding, axis=-1), Memory(member))

    def loss(params: hkx.Params, target_params: hkx.Params, prior_params: hkx.Params, batch: Any) -> jax.Array:
        q_tm1 = values(params, prior_params, batch.s_tm1["observation"])
        q_t = values(target_params, prior_params, batch.s_t)
        over_batch = rlx.batched(rlx.q_learning)
        of_members = jax.vmap(over_batch, in_axes=(0, None, 0, None, 0))
        r_t = batch.r_t[None] + config.noise * batch.s_tm1["noise"].T
        errors = of_members(q_tm1, batch.a_tm1, r_t, batch.discount_t, q_t)
        return jnp.sum(jnp.mean(batch.s_tm1["mask"].T * rlx.l2_loss(errors), axis=1))

    def update(state: State) -> tuple[State, jax.Array]:
        sample_key, key = jax.random.split(state.key)
        batch = replay.sample(state.replay, sample_key, config.batch_size).items
        frozen = state.target_params, state.prior_params, batch
        value, gradient = jax.value_and_grad(loss)(state.params, *frozen)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        params, updates = optax.apply_updates(state.params, changes), state.updates + 1
        target_params = rlx.periodic_update(params, state.target_params, updates, config.target_period)
        return State(params, target_params, state.prior_params, opt_state, state.replay, key, updates), value

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        mask_key, noise_key, key = jax.random.split(state.key, 3)
        shape = (*steps.reward.shape, config.members)
        mask = jax.random.bernoulli(mask_key, float(config.share), shape).astype(jnp.float32)
        experience = transitions(steps, config.discount)
        experience = experience._replace(s_tm1=remembered(experience.s_tm1, mask, jax.random.normal(noise_key, shape)))
        state = state._replace(replay=replay.add_batch(state.replay, experience), key=key)
        ready = replay.can_sample(state.replay, config.warmup)
        state, value = jax.lax.cond(ready, update, lambda state: (state, jnp.float32(0)), state)
        return state, {"loss": value}

    def memory(environments: int) -> Memory:
        return Memory(jnp.full(environments, -1))

    return Agent(init, act, learn, memory, config.period)
