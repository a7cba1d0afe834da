"""MPO: maximum a posteriori policy optimisation, for bounded continuous actions.

Abdolmaleki et al., "Maximum a Posteriori Policy Optimisation", 2018 (https://arxiv.org/abs/1806.06920), with the
constraints of "Relative Entropy Regularized Policy Iteration", Abdolmaleki et al. 2018
(https://arxiv.org/abs/1812.02256): the policy moves towards the sampled actions that the critic values most. KL
constraints limit how far its mean and deviation may move from those of the target network, with learned multipliers.
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

    samples: Count = 20
    """actions to sample in each state"""
    epsilon: NotNegative = 0.1
    """bound on the KL divergence of the weights of sampled actions from uniform ones"""
    epsilon_mean: NotNegative = 0.01
    """bound on the KL divergence of each dimension due to the mean"""
    epsilon_deviation: NotNegative = 1e-4
    """bound on the KL divergence of each dimension due to the deviation"""
    dual_learning_rate: NotNegative = 1e-2
    """learning rate of Adam for the temperature and the multipliers of these bounds"""
    n_step: Count = 1
    """number of steps in an n-step transition"""
    capacity: Count = 100_000
    """capacity of the replay buffer, in transitions"""
    warmup: Count = 1_000
    """transitions before the first update; until then, actions are random"""
    batch_size: Count = 128
    """transitions per batch"""
    period: Count = 1
    """steps of each environment between updates"""
    target_period: Count = 100
    """updates between copies of the networks to the target networks"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: dict[str, Any]  # of actor, critic and duals (temperature, mean, deviation; before softplus)
    target_params: dict[str, Any]
    opt_state: optax.OptState
    replay: Any  # of rlx.replay.Transition; actions are within [-1, 1]
    key: jax.Array
    updates: jax.Array  # []


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    observation, unit = blank(observation_spec), unit_actions(action_spec)

    @hkx.without_apply_rng
    @hkx.transform
    def actor(observation: Any) -> tuple[jax.Array, jax.Array]:
        """Mean and deviation of the action, before it is clipped to [-1, 1]."""
        mean, deviation = jnp.split(hkx.nets.MLP([*config.hidden, 2 * unit.size])(flat(observation)), 2)
        return jnp.tanh(mean), 0.5 * jax.nn.softplus(deviation) / np.log(2) + 1e-4

    @hkx.without_apply_rng
    @hkx.transform
    def critic(observation: Any, action: jax.Array) -> jax.Array:
        """The value of an action."""
        inputs = jnp.concatenate([flat(observation), jnp.clip(action, -1, 1)])
        return hkx.nets.MLP([*config.hidden, 1])(inputs)[0]

    policies = jax.vmap(actor.apply, in_axes=(None, 0))  # for observations [B, ...]
    values = jax.vmap(critic.apply, in_axes=(None, 0, 0))
    values_of_samples = jax.vmap(values, in_axes=(None, None, 0))  # [samples, B]
    gaussian = rlx.gaussian_diagonal()
    optimizer = optax.partition(
        {"network": optax.adam(config.learning_rate), "dual": optax.adam(config.dual_learning_rate)},
        {"actor": "network", "critic": "network", "duals": "dual"},
    )
    replay = rlx.replay.n_step(rlx.replay.uniform(config.capacity), config.n_step)

    def kl(*gaussians: jax.Array) -> jax.Array:
        """The KL divergence of each dimension, [B, size]."""
        return rlx.multivariate_normal_kl_divergence(*(x[..., None] for x in gaussians))

    def init(key: jax.Array, environments: int) -> State:
        actor_key, critic_key, key = jax.random.split(key, 3)
        nothing = np.zeros(unit.size, np.float32)
        duals = {"temperature": jnp.float32(10), "mean": jnp.ones(unit.size), "deviation": 10 * jnp.ones(unit.size)}
        networks = {
            "actor": actor.init(actor_key, observation),
            "critic": critic.init(critic_key, observation, nothing),
        }
        params = networks | {"duals": duals}
        held = replay.init(no_transition(observation, nothing, environments))
        return State(params, networks, optimizer.init(params), held, key, jnp.int32(0))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        mean, deviation = policies(state.params["actor"], observations)
        if greedy:
            return Choice(unit.to_spec(mean), memory)
        draw_key, random_key = jax.random.split(key)
        action = jnp.clip(gaussian.sample(draw_key, mean, deviation), -1, 1)
        anything = jax.random.uniform(random_key, action.shape, minval=-1, maxval=1)
        action = jnp.where(replay.can_sample(state.replay, config.warmup), action, anything)
        return Choice(unit.to_spec(action), memory)

    def loss(params: Any, target_params: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        tm1_key, t_key = jax.random.split(key)
        target_actor, target_critic = target_params["actor"], target_params["critic"]

        a_t = gaussian.sample(t_key, *policies(target_actor, batch.s_t), sample_shape=config.samples)
        v_t = jnp.mean(values_of_samples(target_critic, batch.s_t, a_t), axis=0)
        q_tm1 = values(params["critic"], batch.s_tm1, batch.a_tm1)
        critic_loss = rlx.l2_loss(rlx.batched(rlx.td_learning)(q_tm1, batch.r_t, batch.discount_t, v_t))

        # Mean and deviation are each learned with the old value of the other, so that each has its own bound.
        old_mean, old_deviation = old = policies(target_actor, batch.s_tm1)
        mean, deviation = policies(params["actor"], batch.s_tm1)
        by_mean, by_deviation = (mean, old_deviation), (old_mean, deviation)
        samples = gaussian.sample(tm1_key, *old, sample_shape=config.samples)
        duals = params["duals"]
        bounds = [
            (kl(*old, *by_mean), rlx.LagrangePenalty(duals["mean"], config.epsilon_mean, per_dimension=True)),
            (kl(*old, *by_deviation), rlx.LagrangePenalty(duals["deviation"], config.epsilon_deviation, True)),
        ]
        actor_loss, parts = rlx.mpo_loss(
            gaussian.logprob(samples, *by_mean) + gaussian.logprob(samples, *by_deviation),
            values_of_samples(target_critic, batch.s_tm1, samples),
            rlx.LagrangePenalty(duals["temperature"], config.epsilon),
            bounds,
            jax.nn.softplus,
        )
        metrics = {"critic_loss": jnp.mean(critic_loss), "policy_loss": jnp.mean(parts.policy_loss)}
        metrics["temperature"] = jax.nn.softplus(duals["temperature"])
        return jnp.mean(critic_loss + actor_loss), metrics

    def update(state: State) -> tuple[State, dict[str, jax.Array]]:
        sample_key, loss_key, key = jax.random.split(state.key, 3)
        batch = replay.sample(state.replay, sample_key, config.batch_size).items
        gradient, metrics = jax.grad(loss, has_aux=True)(state.params, state.target_params, batch, loss_key)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        params, updates = optax.apply_updates(state.params, changes), state.updates + 1
        networks = {name: params[name] for name in state.target_params}
        target_params = rlx.periodic_update(networks, state.target_params, updates, config.target_period)
        return State(params, target_params, opt_state, state.replay, key, updates), metrics

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        experience = transitions(steps._replace(action=unit.from_spec(steps.action)), config.discount)
        state = state._replace(replay=replay.add_batch(state.replay, experience))

        def wait(state: State) -> tuple[State, dict[str, jax.Array]]:
            return state, dict.fromkeys(["critic_loss", "policy_loss", "temperature"], jnp.float32(0))

        return jax.lax.cond(replay.can_sample(state.replay, config.warmup), update, wait, state)

    return Agent(init, act, learn, unroll=config.period)
