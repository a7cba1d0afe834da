"""Pendulum: swing it up and balance it, with a torque too weak to lift it directly. Gymnasium's `Pendulum-v1`.

The reward is -(angle² + 0.1 velocity² + 0.001 torque²), with the angle from upright before the action takes effect. The
observation is the cosine and the sine of the angle, and the velocity. The episode is truncated after 200 steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, between, first, words

GRAVITY = 10.0
SECONDS = 0.05  # per step
MAX_SPEED, MAX_TORQUE = 8.0, 2.0


class Settings(NamedTuple):
    max_steps: int = 200


DEFAULT = Settings()


class State(NamedTuple):
    angle: jax.Array  # [], between -π and π, 0 is upright
    velocity: jax.Array  # []
    steps: jax.Array  # [], since the episode began


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    del settings
    one, other = words(key, 2)
    state = State(between(one, -np.pi, np.pi), between(other, -1, 1), jnp.int32(0))
    return state, first(observe(state))


def step(key: Key, state: State, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    """The action is the torque, [1], which is clipped to its bounds."""
    del key  # nothing is random after the first timestep
    torque = jnp.clip(action[0], -MAX_TORQUE, MAX_TORQUE)
    reward = -(state.angle**2 + 0.1 * state.velocity**2 + 0.001 * torque**2)
    velocity = state.velocity + (1.5 * GRAVITY * jnp.sin(state.angle) + 3 * torque) * SECONDS
    velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
    angle = state.angle + velocity * SECONDS
    angle -= 2 * np.pi * jnp.round(angle / (2 * np.pi))
    state = State(angle, velocity, state.steps + 1)
    return state, after(reward, observe(state), truncated=state.steps >= settings.max_steps)


def observe(state: State) -> jax.Array:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.velocity])


def observation_spec(*, settings: Settings = DEFAULT) -> specs.BoundedArray:
    del settings
    most = np.array([1, 1, MAX_SPEED], np.float32)
    return specs.BoundedArray([3], np.float32, -most, most, "cos_sin_velocity")


def action_spec(*, settings: Settings = DEFAULT) -> specs.BoundedArray:
    del settings
    return specs.BoundedArray([1], np.float32, -MAX_TORQUE, MAX_TORQUE, "torque")
