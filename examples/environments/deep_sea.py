"""Deep sea: dive from the top left of a sea, a row a step; the treasure lies at the bottom right.

Only he who goes to the right in every step finds it, +1, and each of those steps costs a little: what looks best at
first is to stay on the left. Which of the two actions is "right" differs from cell to cell. Where the sea is not
deterministic, a step to the right fails once in `size` times, and there is normal noise on what the two lowest corners
pay. bsuite's `deep_sea` (Osband et al., "Behaviour Suite for Reinforcement Learning", 2020).
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
    unscaled_move_cost: float = 0.01  # of the `size` steps to the treasure together
    randomize_actions: bool = True  # else action 1 is "right" everywhere
    mapping_seed: int = 42  # of what is "right" where, the same as bsuite's of that seed


DEFAULT = Settings()


class State(NamedTuple):
    row: jax.Array  # []
    column: jax.Array  # []


def rights(settings: Settings) -> np.ndarray:
    """[size, size], the action that goes to the right"""
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
    """[size, size], 1 where the diver is; all 0 once he is below the lowest row"""
    cells = jnp.arange(settings.size**2).reshape(settings.size, settings.size)
    return (cells == state.row * settings.size + state.column).astype(jnp.float32)


def observation_spec(*, settings: Settings = DEFAULT) -> specs.BoundedArray:
    return specs.BoundedArray([settings.size, settings.size], np.float32, 0, 1, "sea")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    del settings
    return specs.DiscreteArray(2, name="action")
