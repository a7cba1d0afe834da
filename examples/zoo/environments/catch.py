"""Catch: a ball falls down a screen of 10 x 5 pixels, one row per step; catch it with the paddle on the bottom row.

The reward is +1 for a catch and -1 for a miss. The episode ends after nine actions. bsuite's `catch` (Osband et al.,
"Behaviour Suite for Reinforcement Learning", 2020).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, first, one_of, words


class Settings(NamedTuple):
    rows: int = 10
    columns: int = 5


DEFAULT = Settings()
LEAST = {"rows": 2}  # the ball has to fall


class State(NamedTuple):
    row: jax.Array  # [], of the ball
    column: jax.Array  # [], of the ball
    paddle: jax.Array  # [], its column


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    state = State(jnp.int32(0), one_of(*words(key, 1), settings.columns), jnp.int32(settings.columns // 2))
    return state, first(screen(state, settings))


def step(key: Key, state: State, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    """Action 0 moves the paddle to the left, 1 does not move it, 2 moves it to the right."""
    del key  # nothing is random after the first timestep
    paddle = jnp.clip(state.paddle + action - 1, 0, settings.columns - 1)
    state = State(state.row + 1, state.column, paddle)
    landed = state.row == settings.rows - 1
    reward = jnp.where(landed, jnp.where(state.column == paddle, 1.0, -1.0), 0.0)
    return state, after(reward, screen(state, settings), terminated=landed)


def screen(state: State, settings: Settings) -> jax.Array:
    rows, columns = settings
    pixels = jnp.arange(rows * columns).reshape(rows, columns)
    lit = (pixels == state.row * columns + state.column) | (pixels == (rows - 1) * columns + state.paddle)
    return lit.astype(jnp.float32)


def observation_spec(*, settings: Settings = DEFAULT) -> specs.BoundedArray:
    return specs.BoundedArray([settings.rows, settings.columns], np.float32, 0, 1, "board")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    del settings
    return specs.DiscreteArray(3, name="action")
