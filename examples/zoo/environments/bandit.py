"""A bandit with eleven arms, with deterministic rewards of 0, 0.1, ... 1 in an unknown order.

Every episode is one action. bsuite's `bandit` (Osband et al., "Behaviour Suite for Reinforcement Learning", 2020).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, first


class Settings(NamedTuple):
    mapping_seed: int = 0  # seed of the order of the arms, which is the same as in bsuite
    num_actions: int = 11


DEFAULT = Settings()


def rewards_of_arms(settings: Settings) -> np.ndarray:
    """[num_actions]"""
    generator = np.random.RandomState(settings.mapping_seed)
    order = generator.choice(range(settings.num_actions), size=settings.num_actions, replace=False)
    return np.linspace(0, 1, settings.num_actions, dtype=np.float32)[order]


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[tuple, TimeStep]:
    del key, settings
    return (), first(jnp.ones([1, 1]))


def step(key: Key, state: tuple, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[tuple, TimeStep]:
    del key
    reward = jnp.asarray(rewards_of_arms(settings))[action]
    return state, after(reward, jnp.ones([1, 1]), terminated=True)


def observation_spec(*, settings: Settings = DEFAULT) -> specs.Array:
    del settings
    return specs.Array([1, 1], np.float32, "nothing")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    return specs.DiscreteArray(settings.num_actions, name="arm")
