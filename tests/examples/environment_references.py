"""The same environments by bsuite, each of which can be put into a state of ours."""

import dm_env
import jax.numpy as jnp
import numpy as np
from bsuite.environments import bandit, cartpole, catch, deep_sea, discounting_chain, memory_chain, mountain_car


class Reference:
    """The environment `env` by bsuite. `settings` are ours, of the same names.

    `begin` puts it into our first state and returns its first timestep. `put` moves it into our state before each of
    its steps, where that is physics: float32's errors would grow from step to step. Its count of steps stays its own.
    `skilled` are actions that get far, which random ones do not: of one state, in JAX.
    """

    skilled = None

    def begin(self, state) -> dm_env.TimeStep:
        self.env.reset()
        self.choose(state)
        return dm_env.restart(self.observe())

    def put(self, state) -> None:
        pass

    def choose(self, state) -> None:
        """Sets what is random at the start of an episode."""
        self.put(state)

    def observe(self):
        return self.env._get_observation()

    def step(self, action) -> dm_env.TimeStep:
        return self.env.step(action)


class Catch(Reference):
    def __init__(self, settings):
        self.env = catch.Catch(**settings._asdict())

    def choose(self, state):
        self.env._ball_x = int(state.column)

    def observe(self):
        return self.env._observation()

    def skilled(self, state):
        return 1 + jnp.sign(state.column - state.paddle)


class BsuiteCartpole(Reference):
    def __init__(self, settings):
        self.env = cartpole.Cartpole(**settings._asdict())

    def put(self, state):
        self.env._state = cartpole.CartpoleState(*state.motion, self.env._state.time_elapsed)

    def observe(self):
        return self.env.observation

    def skilled(self, state):
        x, x_dot, angle, angle_dot = state.motion  # a linear policy keeps the pole up for thousands of steps
        return jnp.where(angle + 0.3 * angle_dot + 0.02 * x + 0.05 * x_dot > 0, 2, 0)


class MountainCar(Reference):
    def __init__(self, settings):
        self.env = mountain_car.MountainCar(**settings._asdict())

    def put(self, state):
        self.env._position, self.env._velocity = state.position, state.velocity

    def skilled(self, state):
        return jnp.where(state.velocity < 0, 0, 2)


class Bandit(Reference):
    def __init__(self, settings):
        self.env = bandit.SimpleBandit(**settings._asdict())


class DeepSea(Reference):
    def __init__(self, settings):
        self.env = deep_sea.DeepSea(**settings._asdict())

    def skilled(self, state):
        return jnp.asarray(self.env._action_mapping.astype(int))[state.row, state.column]


class MemoryChain(Reference):
    def __init__(self, settings):
        self.env = memory_chain.MemoryChain(**settings._asdict())

    def choose(self, state):
        self.env._context, self.env._query = np.array(state.context), int(state.query)

    def skilled(self, state):
        return state.context[state.query]


class DiscountingChain(Reference):
    def __init__(self, settings):
        self.env = discounting_chain.DiscountingChain(**settings._asdict())


REFERENCES = {
    "bandit": Bandit,
    "bsuite_cartpole": BsuiteCartpole,
    "catch": Catch,
    "deep_sea": DeepSea,
    "discounting_chain": DiscountingChain,
    "memory_chain": MemoryChain,
    "mountain_car": MountainCar,
}
