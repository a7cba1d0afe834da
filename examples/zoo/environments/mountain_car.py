"""Mountain car: the engine is too weak for the hill on the right, so the car must build up momentum. bsuite's rules.

The reward is -1 per step. The episode terminates on the hill, or after 1,000 steps; the observation includes the time.
Moore, "Efficient memory-based learning for robot control", 1990; Osband et al., "Behaviour Suite for Reinforcement
Learning", 2020.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, between, first, words

MIN_POSITION, MAX_POSITION, GOAL = -1.2, 0.6, 0.5
MAX_SPEED = 0.07
FORCE = 0.001
GRAVITY = 0.0025


class Settings(NamedTuple):
    max_steps: int = 1000


DEFAULT = Settings()


class State(NamedTuple):
    position: jax.Array  # []
    velocity: jax.Array  # []
    steps: jax.Array  # [], since the episode began


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    position = between(*words(key, 1), -0.6, -0.4)
    state = State(position, jnp.float32(0), jnp.int32(0))
    return state, first(observe(state, settings))


def step(key: Key, state: State, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    """Action 0 accelerates to the left, 1 not at all, 2 to the right."""
    del key  # nothing is random after the first timestep
    velocity = state.velocity + (action - 1) * FORCE - GRAVITY * jnp.cos(3 * state.position)
    velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
    position = jnp.clip(state.position + velocity, MIN_POSITION, MAX_POSITION)
    velocity = jnp.where(position == MIN_POSITION, jnp.maximum(velocity, 0), velocity)  # the wall on the left stops it
    state = State(position, velocity, state.steps + 1)
    over = (position >= GOAL) | (state.steps >= settings.max_steps)
    return state, after(-1.0, observe(state, settings), terminated=over)


def observe(state: State, settings: Settings) -> jax.Array:
    return jnp.stack([state.position, state.velocity, state.steps / settings.max_steps])[None]


def observation_spec(*, settings: Settings = DEFAULT) -> specs.Array:
    del settings
    return specs.Array([1, 3], np.float32, "car")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    del settings
    return specs.DiscreteArray(3, name="action")
