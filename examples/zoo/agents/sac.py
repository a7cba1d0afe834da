"""Soft actor-critic, for bounded continuous actions.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (https://arxiv.org/abs/1812.05905), with twin
critics and a learned temperature. With more critics, a random `--subset` for the target, and several updates per step,
this is REDQ, "Randomized Ensembled Double Q-Learning", Chen et al. 2021 (https://arxiv.org/abs/2101.05982); with
`--quantiles 25`, TQC, "Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
Critics", Kuznetsov et al. 2020 (https://arxiv.org/abs/2005.04269).
"""

import dataclasses
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from settings import BadSetting, Between, Count, NotNegative, ReplaySettings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, flat, no_transition, transitions, unit_actions


@dataclasses.dataclass(frozen=True)
class Config(ReplaySettings):
    """The settings of the agent."""

    critics: Count = 2
    """number of critic networks"""
    subset: Count = 2
    """critics, sampled anew each time, the minimum of which is the target"""
    quantiles: Count = 1
    """quantiles of the return that a critic outputs; with more than one, the target is that of TQC"""
    dropped: Annotated[int, Between(0)] = 2
    """highest quantiles that the target of TQC drops, per critic"""
    updates: Count = 1
    """updates per call of `learn`"""
    capacity: Count = 100_000
    """capacity of the replay buffer, in transitions"""
    warmup: Count = 1_000
    """transitions before the first update; until then, actions are random"""
    batch_size: Count = 128
    """transitions per batch"""
    period: Count = 1
    """steps of each environment between calls of `learn`"""
    tau: Share = 0.005
    """fraction by which the target networks move towards the critics in an update"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    entropy: float = -1.0
    """target entropy of the temperature, for each dimension of an action within [-1, 1]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset > self.critics:
            raise BadSetting(f"subset must be at most the number of critics, {self.critics}, not {self.subset}")
        if self.dropped >= self.quantiles > 1:
            raise BadSetting(f"dropped must be less than the number of quantiles, {self.quantiles}, not {self.dropped}")


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: dict[str, Any]  # of actor, critics (with a leading axis) and temperature
    target_params: hkx.Params  # of the critics
    opt_state: optax.OptState
    replay: Any  # of rlx.replay.Transition; actions are within [-1, 1]
    key: jax.Array


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    observation, unit = blank(observation_spec), unit_actions(action_spec)

    @hkx.without_apply_rng
    @hkx.transform
    def actor(observation: Any) -> tuple[jax.Array, jax.Array]:
        """Mean and deviation of the action before it is squashed."""
        mean, log_deviation = jnp.split(hkx.nets.MLP([*config.hidden, 2 * unit.size])(flat(observation)), 2)
        return mean, jnp.exp(jnp.clip(log_deviation, -5, 2))

    @hkx.without_apply_rng
    @hkx.transform
    def critic(observation: Any, action: jax.Array) -> jax.Array:
        """The value of an action, or its quantiles."""
        out = hkx.nets.MLP([*config.hidden, config.quantiles])(jnp.concatenate([flat(observation), action]))
        return out if config.quantiles > 1 else out[0]

    policies = jax.vmap(actor.apply, in_axes=(None, 0))  # for observations [B, ...]
    values = jax.vmap(jax.vmap(critic.apply, in_axes=(0, None, None)), in_axes=(None, 0, 0))
    truncated = partial(rlx.batched(rlx.tqc_critic_loss), num_dropped=config.dropped)
    critic_losses = truncated if config.quantiles > 1 else rlx.batched(rlx.sac_critic_loss)
    # The actor of SAC maximises the least value, those of REDQ and TQC the mean of all critics and quantiles.
    by_mean = config.subset < config.critics or config.quantiles > 1
    actor_losses = rlx.batched(rlx.redq_actor_loss if by_mean else rlx.sac_actor_loss)
    optimizer = optax.flatten(optax.adam(config.learning_rate))  # one vector is faster than many small arrays
    replay = rlx.replay.n_step(rlx.replay.uniform(config.capacity), 1)

    def draw(key: jax.Array, params: hkx.Params, observations: Any) -> tuple[jax.Array, jax.Array]:
        """Samples an action within [-1, 1] for each observation; also returns its log-density."""
        mean, deviation = policies(params, observations)
        before = mean + deviation * jax.random.normal(key, mean.shape)
        log_density = jax.scipy.stats.norm.logpdf(before, mean, deviation)
        squashing = 2 * (np.log(2) - before - jax.nn.softplus(-2 * before))  # log of 1 - tanh²
        return jnp.tanh(before), jnp.sum(log_density - squashing, axis=-1)

    def init(key: jax.Array, environments: int) -> State:
        actor_key, key, *keys = jax.random.split(key, 2 + config.critics)
        nothing = np.zeros(unit.size, np.float32)
        critics = jax.vmap(critic.init, in_axes=(0, None, None))(jnp.stack(keys), observation, nothing)
        params = {"actor": actor.init(actor_key, observation), "critics": critics, "temperature": {"log": 0.0}}
        params = jax.tree.map(jnp.asarray, params)
        held = replay.init(no_transition(observation, nothing, environments))
        return State(params, critics, optimizer.init(params), held, key)

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        if greedy:
            action = jnp.tanh(policies(state.params["actor"], observations)[0])
        else:
            draw_key, random_key = jax.random.split(key)
            action, _ = draw(draw_key, state.params["actor"], observations)
            anything = jax.random.uniform(random_key, action.shape, minval=-1, maxval=1)
            action = jnp.where(replay.can_sample(state.replay, config.warmup), action, anything)
        return Choice(unit.to_spec(action), memory)

    def loss(params: Any, target_params: hkx.Params, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        """The sum of the losses of critics, actor and temperature, each with the parameters of the others constant."""
        t_key, tm1_key, subset_key = jax.random.split(key, 3)
        held, temperature = jax.lax.stop_gradient(params), jnp.exp(params["temperature"]["log"])
        a_t, log_prob_t = draw(t_key, held["actor"], batch.s_t)
        chosen = jax.random.choice(subset_key, config.critics, [config.subset], replace=False)
        critic_loss = critic_losses(
            values(params["critics"], batch.s_tm1, batch.a_tm1),
            batch.r_t,
            batch.discount_t,
            values(target_params, batch.s_t, a_t)[:, chosen],
            log_prob_t,
            held_temperature := jax.lax.stop_gradient(temperature),
        )
        a_tm1, log_prob_tm1 = draw(tm1_key, params["actor"], batch.s_tm1)
        q_tm1 = values(held["critics"], batch.s_tm1, a_tm1).reshape(config.batch_size, -1)
        actor_loss = actor_losses(q_tm1, log_prob_tm1, held_temperature)
        wanted = config.entropy * unit.size
        temperature_loss = rlx.batched(rlx.sac_temperature_loss)(temperature, log_prob_tm1, wanted)
        metrics = {"critic_loss": jnp.mean(critic_loss), "temperature": temperature}
        return jnp.mean(critic_loss + actor_loss + temperature_loss), metrics

    def update(state: State, _: None) -> tuple[State, dict[str, jax.Array]]:
        sample_key, loss_key, key = jax.random.split(state.key, 3)
        batch = replay.sample(state.replay, sample_key, config.batch_size).items
        gradient, metrics = jax.grad(loss, has_aux=True)(state.params, state.target_params, batch, loss_key)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        params = optax.apply_updates(state.params, changes)
        target_params = optax.incremental_update(params["critics"], state.target_params, config.tau)
        return State(params, target_params, opt_state, state.replay, key), metrics

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        within = unit.from_spec(steps.action)
        experience = transitions(steps._replace(action=within), config.discount)
        state = state._replace(replay=replay.add_batch(state.replay, experience))

        def several(state: State) -> tuple[State, dict[str, jax.Array]]:
            state, metrics = jax.lax.scan(update, state, None, config.updates)
            return state, jax.tree.map(jnp.mean, metrics)

        def none(state: State) -> tuple[State, dict[str, jax.Array]]:
            return state, {"critic_loss": jnp.float32(0), "temperature": jnp.float32(1)}

        return jax.lax.cond(replay.can_sample(state.replay, config.warmup), several, none, state)

    return Agent(init, act, learn, unroll=config.period)
