"""Catch: a ball falls down a screen of 10 x 5 pixels, one row a step; the paddle on the bottom row has to be under it.

+1 for a catch, -1 for a miss, and the episode ends, after nine actions. bsuite's `catch` (Osband et al., "Behaviour
Suite for Reinforcement Learning", 2020).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, first


class State(NamedTuple):
    row: jax.Array  # [], of the ball
    column: jax.Array  # [], of the ball
    paddle: jax.Array  # [], its column


def reset(key: Key, *, rows: int = 10, columns: int = 5) -> tuple[State, TimeStep]:
    state = State(jnp.int32(0), (jax.random.uniform(key) * columns).astype(jnp.int32), jnp.int32(columns // 2))
    return state, first(screen(state, rows, columns))


def step(key: Key, state: State, action: jax.Array, *, rows: int = 10, columns: int = 5) -> tuple[State, TimeStep]:
    """Action 0 moves the paddle to the left, 1 leaves it, 2 moves it to the right."""
    del key  # nothing is random after the first timestep
    paddle = jnp.clip(state.paddle + action - 1, 0, columns - 1)
    state = State(state.row + 1, state.column, paddle)
    landed = state.row == rows - 1
    reward = jnp.where(landed, jnp.where(state.column == paddle, 1.0, -1.0), 0.0)
    return state, after(reward, screen(state, rows, columns), terminated=landed)


def screen(state: State, rows: int, columns: int) -> jax.Array:
    row, column = jnp.arange(rows)[:, None], jnp.arange(columns)
    ball = (row == state.row) & (column == state.column)
    paddle = (row == rows - 1) & (column == state.paddle)
    return (ball | paddle).astype(jnp.float32)


def observation_spec(*, rows: int = 10, columns: int = 5) -> specs.BoundedArray:
    return specs.BoundedArray((rows, columns), np.float32, 0, 1, "board")


def action_spec() -> specs.DiscreteArray:
    return specs.DiscreteArray(3, name="action")
