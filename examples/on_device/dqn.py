"""DQN that runs entirely on the device: environments, exploration, replay and learning in one compiled program.

Mnih et al., "Human-level control through deep reinforcement learning", 2015, with double Q-learning (van Hasselt et
al., 2016, https://arxiv.org/abs/1509.06461) and prioritised replay (Schaul et al., 2016,
https://arxiv.org/abs/1511.05952) as flags. The replay buffer is `rlx.replay`, updated in place. It is filled before
the first update, so that updates need not check whether there is enough data.

    python examples/on_device/dqn.py                              # cart-pole
    python examples/on_device/dqn.py --prioritised --agents 4
    python examples/on_device/dqn.py --env catch --steps 200000
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
    Learner,
    RunSettings,
    Shares,
    check_capacity,
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

    env: str = "cartpole"  # environment: a file of examples/environments, or gymnax:NAME
    steps: Count = 300_000  # environment steps per agent, in all its environments
    environments: Count = 16  # parallel environments per agent
    capacity: Count = 100_000  # capacity of the replay buffer, in transitions
    warmup: Count = 2_048  # transitions with random actions before the first update
    batch_size: Count = 128  # transitions per batch
    gradient_steps: Count = 1  # batches per step of the environments
    target_period: Count = 50  # updates between copies of the network to the target network
    double: bool = True  # double Q-learning: the network chooses the action that the target network evaluates
    prioritised: bool = False  # sample transitions by their last TD error
    hidden: Count = 64  # size of each hidden layer
    layers: Count = 2  # number of hidden layers
    learning_rate: Shares = (0.003,)  # initial learning rate of Adam, which decreases linearly to 0
    discount: Shares = (0.99,)  # discount factor per step
    epsilon_end: Shares = (0.05,)  # final probability of a random action, which decreases from 1
    exploration: Shares = (0.2,)  # share of the training over which that probability decreases
    output: str = "runs/on_device_dqn"  # folder for the metrics, the curve, the parameters and the checkpoint

    def __post_init__(self) -> None:
        super().__post_init__()
        check_capacity(self)


class State(NamedTuple):
    """The state of a learner, which updates change, and the settings that vary between agents."""

    params: hkx.Params
    target_params: hkx.Params
    opt_state: optax.OptState
    running: Running  # [environments, ...]
    replay: Any  # of `Transition`
    key: jax.Array
    updates: jax.Array  # []
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
    environment, num_actions = auto_reset(episode), number_of_actions(config, episode)
    total = max(1, round(config.steps / config.environments))
    replay = rlx.replay.uniform(config.capacity)
    if config.prioritised:
        replay = rlx.replay.prioritised(config.capacity, exponent=0.6, beta=0.4)

    def value_network(observation: jax.Array) -> jax.Array:
        return hkx.nets.MLP([config.hidden] * config.layers + [num_actions])(jnp.ravel(observation))

    network = hkx.without_apply_rng(hkx.transform(value_network))
    values = jax.vmap(network.apply, in_axes=(None, 0))  # for a batch of observations
    optimizer = optax.flatten(optax.scale_by_adam())  # one vector compiles faster than many small arrays

    def play(running: Running, replay_state: Any, a_tm1: jax.Array, keys: jax.Array) -> tuple[Running, Any, Any]:
        """Takes a step in each environment, and adds it to the replay buffer."""
        new, timestep = jax.vmap(environment.step)(keys, running, a_tm1)
        outcome = timestep.reward, timestep.discount, timestep.observation
        replay_state = replay.add_batch(replay_state, Transition(running.observation, a_tm1, *outcome))
        return new, replay_state, episodes(running.episode_return + timestep.reward, timestep.last())

    def init(key: jax.Array, numbers: dict[str, jax.Array]) -> State:
        keys = jax.random.split(key, 3 + config.environments)
        running, timestep = jax.vmap(environment.reset)(keys[3:])
        params = network.init(keys[0], timestep.observation[0])
        zero = jnp.float32(0)
        first = jax.tree.map(lambda x: x[0], running.observation)

        def warm_up(carry: Any, keys: jax.Array) -> tuple[Any, None]:
            a_tm1 = jax.random.randint(keys[0], [config.environments], 0, num_actions)
            return play(*carry, a_tm1, keys[1:])[:2], None

        warm_keys = jax.random.split(keys[1], (-(-config.warmup // config.environments), 1 + config.environments))
        empty = replay.init(Transition(first, jnp.int32(0), zero, zero, first))
        (running, replay_state), _ = jax.lax.scan(warm_up, (running, empty), warm_keys)
        return State(params, params, optimizer.init(params), running, replay_state, keys[2], jnp.int32(0), numbers)

    def update(state: State, _: None) -> tuple[State, dict[str, jax.Array]]:
        params, target_params, opt_state, running, replay_state, key, updates, numbers = state
        keys = jax.random.split(key, 2 + config.gradient_steps + config.environments)
        trained = updates / total
        exploring = exploration(numbers, trained)
        a_tm1 = rlx.epsilon_greedy(exploring).sample(keys[1], values(params, running.observation))
        running, replay_state, metrics = play(running, replay_state, a_tm1, keys[-config.environments :])

        def loss(params: hkx.Params, sample: rlx.replay.Sample) -> tuple[jax.Array, jax.Array]:
            batch = sample.items
            q_tm1, q_t = values(params, batch.observation_tm1), values(target_params, batch.observation_t)
            selector = values(jax.lax.stop_gradient(params), batch.observation_t) if config.double else q_t
            discount_t = numbers["discount"] * batch.discount_t
            td_errors = rlx.batched(rlx.double_q_learning)(q_tm1, batch.a_tm1, batch.r_t, discount_t, q_t, selector)
            return jnp.mean(sample.weights * rlx.l2_loss(td_errors)), td_errors

        def learn(learned: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            params, opt_state, replay_state = learned
            sample = replay.sample(replay_state, key, config.batch_size)
            (value, td_errors), gradient = jax.value_and_grad(loss, has_aux=True)(params, sample)
            if config.prioritised:
                replay_state = replay.update_priorities(replay_state, sample.indices, jnp.abs(td_errors))
            directions, opt_state = optimizer.update(gradient, opt_state)
            step_size = numbers["learning_rate"] * jnp.maximum(0, 1 - trained)
            params = jax.tree.map(lambda p, d: p - step_size * d, params, directions)
            return (params, opt_state, replay_state), value

        learned = params, opt_state, replay_state
        (params, opt_state, replay_state), losses = jax.lax.scan(learn, learned, keys[2 : 2 + config.gradient_steps])
        target_params = rlx.periodic_update(params, target_params, updates, config.target_period)
        new = State(params, target_params, opt_state, running, replay_state, keys[0], updates + 1, numbers)
        return new, {"loss": jnp.mean(losses), **metrics}

    def act(params: hkx.Params, observations: jax.Array, memory: tuple[()]) -> tuple[jax.Array, tuple[()]]:
        return jnp.argmax(values(params, observations), axis=-1), memory

    return Learner(init, update, act, lambda count: (), total, config.environments)


def main(config: Config) -> dict[str, Any]:
    return train(config, make_learner)


if __name__ == "__main__":
    start(Config, main, __doc__)
