"""Discounting chain: the first action chooses whether the reward comes after 1, 3, 10, 30 or 100 steps.

The reward is 1, or 1.1 in one of the five chains. The observation is the chosen chain (-1 at first) and the share of
the time that has passed. bsuite's `discounting_chain` (Osband et al., "Behaviour Suite for Reinforcement Learning",
2020).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, first

DELAYS = np.array([1, 3, 10, 30, 100])
STEPS = 100  # per episode


class Settings(NamedTuple):
    mapping_seed: int = 0  # modulo 5, the chain with a reward of 1.1


DEFAULT = Settings()


class State(NamedTuple):
    steps: jax.Array  # [], since the episode began
    chain: jax.Array  # [], -1 before it is chosen


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    del key, settings
    state = State(jnp.int32(0), jnp.int32(-1))
    return state, first(observe(state))


def step(key: Key, state: State, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    del key
    chain = jnp.where(state.steps == 0, action, state.chain)
    state = State(state.steps + 1, chain)
    pays = jnp.where(chain == settings.mapping_seed % len(DELAYS), 1.1, 1.0)
    reward = jnp.where(state.steps == jnp.asarray(DELAYS)[chain], pays, 0.0)
    return state, after(reward, observe(state), terminated=state.steps == STEPS)


def observe(state: State) -> jax.Array:
    return jnp.stack([state.chain.astype(jnp.float32), state.steps / STEPS])[None]


def observation_spec(*, settings: Settings = DEFAULT) -> specs.Array:
    del settings
    return specs.Array([1, 2], np.float32, "chain_and_time")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    del settings
    return specs.DiscreteArray(len(DELAYS), name="chain")
