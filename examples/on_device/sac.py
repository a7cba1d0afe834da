"""Soft actor-critic that runs entirely on the device: environments, replay and learning in one compiled program.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (https://arxiv.org/abs/1812.05905): twin critics,
a stochastic policy within the bounds of its actions, and a learned temperature. The replay buffer is `rlx.replay`,
updated in place. It is filled before the first update, so that updates need not check whether there is enough data.

    python examples/on_device/sac.py                                          # the pendulum
    python examples/on_device/sac.py --agents 8 --learning-rate 0.001,0.003
    python examples/on_device/sac.py --env gymnax:Pendulum-v1 --gradient-steps 2
"""

import dataclasses
import math
import pathlib
import sys
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # examples/, where the environments are

from environments import Running, auto_reset
from on_device.training import (
    LITTLE_EFFORT,
    Each,
    Learner,
    RunSettings,
    Shares,
    bounds_of_actions,
    check_capacity,
    episodes,
    find_environment,
    train,
)
from program import start
from settings import Between, Count

import hkx
import rlx


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    """The settings of a run. Every field is a flag of the command line."""

    env: str = "pendulum"  # environment: a file of examples/environments, or gymnax:NAME
    steps: Count = 32_768  # environment steps per agent, in all its environments
    environments: Count = 8  # parallel environments per agent
    capacity: Count = 32_768  # capacity of the replay buffer, in transitions
    warmup: Count = 1_024  # transitions with random actions before the first update
    batch_size: Count = 128  # transitions per batch
    gradient_steps: Count = 1  # batches per step of the environments
    hidden: Count = 64  # size of each hidden layer
    layers: Count = 2  # number of hidden layers
    learning_rate: Shares = (0.003,)  # learning rate of Adam
    discount: Shares = (0.99,)  # discount factor per step
    target_step: Shares = (0.02,)  # fraction by which the target critics move towards the critics in an update
    entropy: Annotated[Each, Between(-math.inf)] = (-1.0,)
    """target entropy of the temperature, in nats per dimension of an action in [-1, 1]"""
    output: str = "runs/on_device_sac"  # folder for the metrics, the curve, the parameters and the checkpoint

    def __post_init__(self) -> None:
        super().__post_init__()
        check_capacity(self)


class State(NamedTuple):
    """The state of a learner, which updates change, and the settings that vary between agents."""

    params: hkx.Params  # of the actor, both critics and the temperature
    target_params: hkx.Params  # of both critics
    opt_state: optax.OptState
    running: Running  # [environments, ...]
    replay: Any  # of `Transition`
    key: jax.Array
    numbers: dict[str, jax.Array]  # settings that may differ between agents


class Transition(NamedTuple):
    """A transition."""

    observation_tm1: Any
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array  # 0 where the episode terminated
    observation_t: Any  # the last observation of the episode, if it ended


def make_learner(config: Config) -> Learner:
    episode = find_environment(config)
    environment, spec = auto_reset(episode), bounds_of_actions(config, episode)
    half_range = np.broadcast_to((spec.maximum - spec.minimum) / 2, spec.shape)
    total = max(1, round(config.steps / config.environments))
    replay = rlx.replay.uniform(config.capacity)
    policy = rlx.squashed_gaussian(sigma_min=-5, sigma_max=2, action_spec=spec)

    def actor(observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        sizes = [config.hidden] * config.layers + [2 * spec.shape[0]]
        x = hkx.nets.MLP(sizes, name="actor")(jnp.float32(observation).ravel())
        return tuple(jnp.split(x, 2))

    def critic(observation: jax.Array, a: jax.Array) -> jax.Array:
        x = jnp.concatenate([jnp.float32(observation).ravel(), (a - spec.minimum) / half_range - 1])
        return hkx.nets.MLP([config.hidden] * config.layers + [1], name="critic")(x)[0]

    actor, critic = (hkx.without_apply_rng(hkx.transform(network)) for network in (actor, critic))
    mu_sigma = jax.vmap(actor.apply, in_axes=(None, 0))  # for a batch of observations
    twins = jax.vmap(critic.apply, in_axes=(0, None, None))  # for parameters [2, ...]
    values = jax.vmap(twins, in_axes=(None, 0, 0))  # [B, 2]
    optimizer = optax.flatten(optax.scale_by_adam())  # one vector compiles faster than many small arrays

    def init(key: jax.Array, numbers: dict[str, jax.Array]) -> State:
        keys = jax.random.split(key, 5 + config.environments)
        running, timestep = jax.vmap(environment.reset)(keys[5:])
        first, no_action, zero = timestep.observation[0], jnp.zeros(spec.shape), jnp.float32(0)
        critics = jax.vmap(critic.init, in_axes=(0, None, None))(keys[:2], first, no_action)
        params = actor.init(keys[2], first) | critics | {"temperature": {"log": zero}}

        def warm_up(carry: Any, keys: jax.Array) -> tuple[Any, None]:
            share = jax.random.uniform(keys[0], [config.environments, *spec.shape])
            a_tm1 = jax.vmap(lambda share: spec.minimum + 2 * half_range * share)(share)
            return play(*carry, a_tm1, keys[1:])[:2], None

        empty = replay.init(Transition(first, no_action, zero, zero, first))
        warm_keys = jax.random.split(keys[3], (-(-config.warmup // config.environments), 1 + config.environments))
        (running, replay_state), _ = jax.lax.scan(warm_up, (running, empty), warm_keys)
        return State(params, critics, optimizer.init(params), running, replay_state, keys[4], numbers)

    def play(running: Running, replay_state: Any, a_tm1: jax.Array, keys: jax.Array) -> tuple[Running, Any, Any]:
        """Takes a step in each environment, and adds it to the replay buffer."""
        new, timestep = jax.vmap(environment.step)(keys, running, a_tm1)
        outcome = timestep.reward, timestep.discount, timestep.observation
        replay_state = replay.add_batch(replay_state, Transition(running.observation, a_tm1, *outcome))
        return new, replay_state, episodes(running.episode_return + timestep.reward, timestep.last())

    def update(state: State, _: None) -> tuple[State, dict[str, jax.Array]]:
        params, target_params, opt_state, running, replay_state, key, numbers = state
        keys = jax.random.split(key, 2 + 3 * config.gradient_steps + config.environments)
        a_tm1 = policy.sample(keys[1], *mu_sigma(params, running.observation))
        running, replay_state, metrics = play(running, replay_state, a_tm1, keys[-config.environments :])
        wanted = jnp.sum(numbers["entropy"] + np.log(half_range))  # the entropy grows with the range

        def loss(params: hkx.Params, target_params: hkx.Params, keys: jax.Array) -> tuple[jax.Array, Any]:
            """The sum of the losses of critics, actor and temperature, in each of which the others are constant."""
            batch = replay.sample(replay_state, keys[0], config.batch_size).items
            held = jax.lax.stop_gradient(params)
            temperature = jnp.exp(params["temperature"]["log"])
            mu_t, sigma_t = mu_sigma(held, batch.observation_t)
            a_t = policy.sample(keys[1], mu_t, sigma_t)
            critic_loss = rlx.batched(rlx.sac_critic_loss)(
                values(critics_of(params), batch.observation_tm1, batch.a_tm1),
                batch.r_t,
                numbers["discount"] * batch.discount_t,
                values(target_params, batch.observation_t, a_t),
                policy.logprob(a_t, mu_t, sigma_t),
                jax.lax.stop_gradient(temperature),
            )
            mu_tm1, sigma_tm1 = mu_sigma(params, batch.observation_tm1)
            a_tm1 = policy.sample(keys[2], mu_tm1, sigma_tm1)
            log_prob_tm1 = policy.logprob(a_tm1, mu_tm1, sigma_tm1)
            q_tm1 = values(critics_of(held), batch.observation_tm1, a_tm1)
            actor_loss = rlx.batched(rlx.sac_actor_loss)(q_tm1, log_prob_tm1, temperature)
            temperature_loss = rlx.batched(rlx.sac_temperature_loss)(temperature, log_prob_tm1, wanted)
            about = {"critic_loss": critic_loss, "actor_loss": actor_loss, "temperature": temperature}
            return jnp.mean(critic_loss + actor_loss + temperature_loss), about

        def learn(learned: Any, keys: jax.Array) -> tuple[Any, Any]:
            params, target_params, opt_state = learned
            gradient, about = jax.grad(loss, has_aux=True)(params, target_params, keys)
            directions, opt_state = optimizer.update(gradient, opt_state)
            params = jax.tree.map(lambda p, d: p - numbers["learning_rate"] * d, params, directions)
            target_params = optax.incremental_update(critics_of(params), target_params, numbers["target_step"])
            return (params, target_params, opt_state), about

        learn_keys = keys[2 : -config.environments].reshape(config.gradient_steps, 3)
        learned, about = jax.lax.scan(learn, (params, target_params, opt_state), learn_keys)
        return State(*learned, running, replay_state, keys[0], numbers), jax.tree.map(jnp.mean, about) | metrics

    def act(params: hkx.Params, observations: jax.Array, memory: tuple[()]) -> tuple[jax.Array, tuple[()]]:
        mu, _ = mu_sigma(params, observations)
        middle = jnp.tanh(jnp.tanh(mu))  # the mode of `rlx.squashed_gaussian`
        return jax.vmap(lambda x: spec.minimum + half_range * (x + 1))(middle), memory

    options = LITTLE_EFFORT if config.steps * config.agents <= 250_000 else None
    return Learner(init, update, act, lambda count: (), total, config.environments, options)


def critics_of(params: hkx.Params) -> hkx.Params:
    return {name: arrays for name, arrays in params.items() if name.startswith("critic")}


def main(config: Config) -> dict[str, Any]:
    return train(config, make_learner)


if __name__ == "__main__":
    start(Config, main, __doc__)
