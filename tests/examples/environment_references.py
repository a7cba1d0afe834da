"""The same environments by others, bsuite and Gymnasium, each of which can be put into a state of ours."""

import dm_env
import jax.numpy as jnp
import numpy as np
import pytest
from bsuite.environments import bandit, cartpole, catch, deep_sea, discounting_chain, memory_chain, mountain_car


class Reference:
    """The environment `env` by others. `settings` are ours, of the same names.

    `begin` puts it into our first state and returns its first timestep. `put` moves it into our state before each of
    its steps, where that is physics: float32's errors would grow from step to step. Its count of steps stays its own.
    `skilled` are actions that get far, which random ones do not: of one state, in JAX.
    """

    skilled = None

    def begin(self, state) -> dm_env.TimeStep:
        raise NotImplementedError

    def put(self, state) -> None:
        pass

    def step(self, action) -> dm_env.TimeStep:
        return self.env.step(action)


class Bsuite(Reference):
    def begin(self, state):
        self.env.reset()
        self.choose(state)
        return dm_env.restart(self.observe())

    def choose(self, state):
        """What is chosen at random as an episode begins."""
        self.put(state)

    def observe(self):
        return self.env._get_observation()


class Catch(Bsuite):
    def __init__(self, settings):
        self.env = catch.Catch(**settings._asdict())

    def choose(self, state):
        self.env._ball_x = int(state.column)

    def observe(self):
        return self.env._observation()

    def skilled(self, state):
        return 1 + jnp.sign(state.column - state.paddle)


class BsuiteCartpole(Bsuite):
    def __init__(self, settings):
        self.env = cartpole.Cartpole(**settings._asdict())

    def put(self, state):
        self.env._state = cartpole.CartpoleState(*state.motion, self.env._state.time_elapsed)

    def observe(self):
        return self.env.observation

    def skilled(self, state):
        return jnp.where(balance(state) > 0, 2, 0)


class MountainCar(Bsuite):
    def __init__(self, settings):
        self.env = mountain_car.MountainCar(**settings._asdict())

    def put(self, state):
        self.env._position, self.env._velocity = state.position, state.velocity

    def skilled(self, state):
        return jnp.where(state.velocity < 0, 0, 2)


class Bandit(Bsuite):
    def __init__(self, settings):
        self.env = bandit.SimpleBandit(**settings._asdict())


class DeepSea(Bsuite):
    def __init__(self, settings):
        self.env = deep_sea.DeepSea(**settings._asdict())

    def skilled(self, state):
        return jnp.asarray(self.env._action_mapping.astype(int))[state.row, state.column]


class MemoryChain(Bsuite):
    def __init__(self, settings):
        self.env = memory_chain.MemoryChain(**settings._asdict())

    def choose(self, state):
        self.env._context, self.env._query = np.array(state.context), int(state.query)

    def skilled(self, state):
        return state.context[state.query]


class DiscountingChain(Bsuite):
    def __init__(self, settings):
        self.env = discounting_chain.DiscountingChain(**settings._asdict())


class Gymnasium(Reference):
    name: str

    def __init__(self, settings):
        gymnasium = pytest.importorskip("gymnasium", reason="compares with Gymnasium: pip install '.[peers]'")
        self.env = gymnasium.make(self.name, disable_env_checker=True, max_episode_steps=settings.max_steps)

    def begin(self, state):
        self.env.reset()
        self.put(state)
        return dm_env.restart(self.observe())

    def step(self, action):
        observation, reward, terminated, truncated, _ = self.env.step(action)
        if terminated:
            return dm_env.termination(reward, observation)
        return dm_env.truncation(reward, observation) if truncated else dm_env.transition(reward, observation)


class Cartpole(Gymnasium):
    name = "CartPole-v1"

    def put(self, state):
        self.env.unwrapped.state = np.array(state.motion)

    def observe(self):
        return self.env.unwrapped.state.astype(np.float32)

    def skilled(self, state):
        return jnp.where(balance(state) > 0, 1, 0)


class Pendulum(Gymnasium):
    name = "Pendulum-v1"

    def put(self, state):
        self.env.unwrapped.state = np.array([state.angle, state.velocity])

    def observe(self):
        return self.env.unwrapped._get_obs()


def balance(state):
    """A linear policy that keeps the pole up for thousands of steps."""
    x, x_dot, angle, angle_dot = state.motion
    return angle + 0.3 * angle_dot + 0.02 * x + 0.05 * x_dot


REFERENCES = {
    "bandit": Bandit,
    "bsuite_cartpole": BsuiteCartpole,
    "cartpole": Cartpole,
    "catch": Catch,
    "deep_sea": DeepSea,
    "discounting_chain": DiscountingChain,
    "memory_chain": MemoryChain,
    "mountain_car": MountainCar,
    "pendulum": Pendulum,
}
