"""Q-learning that runs entirely on the device: environments, exploration, returns and learning in one compiled program.

This is PQN (Gallici et al., "Simplifying Deep Temporal Difference Learning", 2024, https://arxiv.org/abs/2407.04811):
many environments instead of a replay buffer, layer normalisation instead of a target network, and λ-returns. The loss
is `rlx.q_lambda`.

    python examples/on_device/q_learning.py                                   # Catch, in seconds
    python examples/on_device/q_learning.py --agents 64 --learning-rate 0.001,0.002,0.005,0.01
    python examples/on_device/q_learning.py --env gymnax:Breakout-MinAtar --steps 10000000
"""

import dataclasses
import pathlib
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # examples/, where the environments are

from environments import Running, auto_reset
from on_device.training import (
    LEAST_EFFORT,
    LITTLE_EFFORT,
    Learner,
    RunSettings,
    Shares,
    check_minibatches,
    episodes,
    exploration,
    find_environment,
    number_of_actions,
    train,
)
from program import start
from settings import Count

import hkx
import rlx


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    """The settings of a run. Every field is a flag of the command line."""

    rollout: Count = 9  # steps of each environment per update
    minibatches: Count = 1  # parts into which the environments are divided for learning
    epochs: Count = 1  # passes over the steps of each update
    hidden: Count = 32  # size of each hidden layer
    layers: Count = 1  # number of hidden layers
    learning_rate: Shares = (0.005,)  # initial learning rate of Adam, which decreases linearly to 0
    discount: Shares = (0.99,)  # discount factor per step
    lambda_: Shares = (0.9,)  # λ of the returns: 0 bootstraps after one step, 1 only at the end
    epsilon_end: Shares = (0.02,)  # final probability of a random action, which decreases from 1
    exploration: Shares = (0.7,)  # share of the training over which that probability decreases
    output: str = "runs/on_device_q_learning"  # folder for the metrics, the curve, the parameters and the checkpoint

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minibatches(self)


class State(NamedTuple):
    """The state of a learner, which updates change, and the settings that vary between agents."""

    params: hkx.Params
    opt_state: optax.OptState
    running: Running  # [environments, ...]
    key: jax.Array
    updates: jax.Array  # []
    numbers: dict[str, jax.Array]  # settings that may differ between agents


class Transition(NamedTuple):
    """Transitions, [time, environments, ...]."""

    observation_tm1: Any
    a_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array  # 0 where the episode terminated
    observation_t: Any  # the last observation of the episode, if it ended
    last_t: jax.Array


def make_learner(config: Config) -> Learner:
    episode = find_environment(config)
    environment, num_actions = auto_reset(episode), number_of_actions(config, episode)
    steps_per_update = config.environments * config.rollout
    total = max(1, round(config.steps / steps_per_update))

    def value_network(observation: jax.Array) -> jax.Array:
        x = jnp.ravel(observation)
        for _ in range(config.layers):
            x = jax.nn.relu(hkx.LayerNorm(-1, True, True)(hkx.Linear(config.hidden)(x)))
        return hkx.Linear(num_actions)(x)

    network = hkx.without_apply_rng(hkx.transform(value_network))
    values = jax.vmap(network.apply, in_axes=(None, 0))  # for a batch of observations
    optimizer = optax.flatten(optax.scale_by_adam())  # one vector compiles faster than many small arrays

    def init(key: jax.Array, numbers: dict[str, jax.Array]) -> State:
        keys = jax.random.split(key, 2 + config.environments)
        running, timestep = jax.vmap(environment.reset)(keys[2:])
        params = network.init(keys[0], timestep.observation[0])
        return State(params, optimizer.init(params), running, keys[1], jnp.int32(0), numbers)

    def update(state: State, _: None) -> tuple[State, dict[str, jax.Array]]:
        params, opt_state, running, key, updates, numbers = state
        # A single split for all keys: separate ones would take longer to compile than the network.
        keys = jax.random.split(key, config.rollout * (1 + config.environments) + 1)
        key, keys = keys[-1], keys[:-1].reshape(config.rollout, 1 + config.environments)
        trained = updates / total
        exploring = exploration(numbers, trained)

        def step(running: Running, keys: jax.Array) -> tuple[Running, tuple[Transition, jax.Array]]:
            q_tm1 = values(params, running.observation)
            a_tm1 = rlx.epsilon_greedy(exploring).sample(keys[0], q_tm1)
            new, timestep = jax.vmap(environment.step)(keys[1:], running, a_tm1)
            discount_t = numbers["discount"] * timestep.discount
            outcome = timestep.reward, discount_t, timestep.observation, timestep.last()
            returned = running.episode_return + timestep.reward
            return new, (Transition(running.observation, a_tm1, *outcome), returned)

        running, (steps, returned) = jax.lax.scan(step, running, keys)

        def loss(params: hkx.Params, steps: Transition) -> jax.Array:
            q_tm1 = jax.vmap(values, in_axes=(None, 0))(params, steps.observation_tm1)
            q_t = jax.vmap(values, in_axes=(None, 0))(params, steps.observation_t)
            td_errors = rlx.time_major(rlx.q_lambda)(
                q_tm1, steps.a_tm1, steps.r_t, steps.discount_t, q_t, numbers["lambda_"], truncation_t=steps.last_t
            )
            return jnp.mean(rlx.l2_loss(td_errors))

        def learn(learned: Any, batch: Transition) -> tuple[Any, jax.Array]:
            params, opt_state = learned
            value, gradient = jax.value_and_grad(loss)(params, batch)
            directions, opt_state = optimizer.update(gradient, opt_state)
            step_size = numbers["learning_rate"] * jnp.maximum(0, 1 - trained)
            return (jax.tree.map(lambda p, d: p - step_size * d, params, directions), opt_state), value

        (params, opt_state), values_of_loss = jax.lax.scan(learn, (params, opt_state), minibatches(config, steps))
        metrics = {"loss": jnp.mean(values_of_loss), **episodes(returned, steps.last_t)}
        return State(params, opt_state, running, key, updates + 1, numbers), metrics

    def act(params: hkx.Params, observations: jax.Array, memory: tuple[()]) -> tuple[jax.Array, tuple[()]]:
        return jnp.argmax(values(params, observations), axis=-1), memory

    # For few steps, compiling a faster program would take longer than it saves.
    options = LEAST_EFFORT if config.steps * config.agents <= 300_000 else LITTLE_EFFORT
    return Learner(init, update, act, lambda count: (), total, steps_per_update, options)


def minibatches(config: Config, steps: Transition) -> Transition:
    """Divides the environments into minibatches, each once per epoch: [epochs * minibatches, time, part, ...]."""

    def divide(x: jax.Array) -> jax.Array:
        parts = jnp.moveaxis(x.reshape(config.rollout, config.minibatches, -1, *x.shape[2:]), 1, 0)
        return jnp.tile(parts, (config.epochs, *[1] * (parts.ndim - 1)))

    return jax.tree.map(divide, steps)


def main(config: Config) -> dict[str, Any]:
    return train(config, make_learner)


if __name__ == "__main__":
    start(Config, main, __doc__)
