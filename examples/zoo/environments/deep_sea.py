"""Deep sea: dive from the top left of a grid, one row per step, to the treasure at the bottom right.

Only going right in every step reaches the treasure, which pays +1, but each of these steps has a small cost, so that
going left looks better at first. Which of the two actions goes right differs between cells. In the stochastic version,
a step to the right fails with probability 1 / `size`, and there is normal noise on the rewards in the two bottom
corners. bsuite's `deep_sea` (Osband et al., "Behaviour Suite for Reinforcement Learning", 2020).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, first


class Settings(NamedTuple):
    size: int = 10
    deterministic: bool = True
    unscaled_move_cost: float = 0.01  # total cost of the `size` steps to the treasure
    randomize_actions: bool = True  # otherwise action 1 goes right everywhere
    mapping_seed: int = 42  # seed of which action goes right in which cell, the same as in bsuite


DEFAULT = Settings()


class State(NamedTuple):
    row: jax.Array  # []
    column: jax.Array  # []


def rights(settings: Settings) -> np.ndarray:
    """[size, size], the action that goes right in each cell"""
    shape = (settings.size, settings.size)
    if not settings.randomize_actions:
        return np.ones(shape, np.int32)
    return np.random.RandomState(settings.mapping_seed).binomial(1, 0.5, shape).astype(np.int32)


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    del key
    state = State(jnp.int32(0), jnp.int32(0))
    return state, first(observe(state, settings))


def step(key: Key, state: State, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    size = settings.size
    right = action == jnp.asarray(rights(settings))[state.row, state.column]
    at_the_end = state.column == size - 1
    reward = jnp.where(right, at_the_end - settings.unscaled_move_cost / size, 0.0)
    moves = right
    if not settings.deterministic:
        wind_key, noise_key = jax.random.split(key)
        corner = (state.row == size - 1) & ((state.column == 0) | at_the_end)
        reward += jnp.where(corner, jax.random.normal(noise_key), 0.0)
        moves = right & (jax.random.uniform(wind_key) > 1 / size)
    column = jnp.where(right, state.column + moves, state.column - 1)
    state = State(state.row + 1, jnp.clip(column, 0, size - 1))
    return state, after(reward, observe(state, settings), terminated=state.row == size)


def observe(state: State, settings: Settings) -> jax.Array:
    """[size, size], 1 at the diver's position; all 0 below the bottom row"""
    cells = jnp.arange(settings.size**2).reshape(settings.size, settings.size)
    return (cells == state.row * settings.size + state.column).astype(jnp.float32)


def observation_spec(*, settings: Settings = DEFAULT) -> specs.BoundedArray:
    return specs.BoundedArray([settings.size, settings.size], np.float32, 0, 1, "sea")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    del settings
    return specs.DiscreteArray(2, name="action")
