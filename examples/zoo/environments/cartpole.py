"""Cart-pole: push a cart to the left or to the right, so that the pole on it stays up. Gymnasium's `CartPole-v1`.

The reward is +1 per step. The episode terminates when the pole leans more than 12 degrees or the cart is more than 2.4
from the centre, and is truncated after 500 steps. Barto, Sutton and Anderson, "Neuronlike adaptive elements that can
solve difficult learning control problems", 1983; the equations of motion are Florian's, "Correct equations for the
dynamics of the cart-pole system", 2005.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, between, first, words

GRAVITY = 9.8
CART, POLE = 1.0, 0.1  # masses
LENGTH = 0.5  # half the length of the pole
FORCE = 10.0
SECONDS = 0.02  # per step
MAX_X = 2.4
MAX_ANGLE = np.deg2rad(12)
MAX_START = 0.05


class Settings(NamedTuple):
    max_steps: int = 500


DEFAULT = Settings()


class State(NamedTuple):
    motion: tuple[jax.Array, jax.Array, jax.Array, jax.Array]  # [], x and its velocity, the angle and its velocity
    steps: jax.Array  # [], since the episode began


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    del settings
    motion = start(key, MAX_START)
    return State(motion, jnp.int32(0)), first(jnp.stack(motion))


def start(key: Key, most: float) -> tuple:
    """x, its velocity, the angle and its velocity, each between -most and most, from 16 random bits."""
    halves = [half for word in words(key, 2) for half in (word >> 16 << 16, word << 16)]
    return tuple(between(half, -most, most) for half in halves)


def step(key: Key, state: State, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    """Action 0 pushes the cart to the left, 1 to the right."""
    del key  # nothing is random after the first timestep
    motion = moved(state.motion, jnp.where(action == 1, FORCE, -FORCE), SECONDS)
    x, _, angle, _ = motion
    fell = (jnp.abs(x) > MAX_X) | (jnp.abs(angle) > MAX_ANGLE)
    steps = state.steps + 1
    return State(motion, steps), after(1.0, jnp.stack(motion), fell, truncated=steps >= settings.max_steps)


def moved(motion: tuple, force: jax.Array, seconds: float) -> tuple:
    """x, its velocity, the angle and its velocity after one Euler step."""
    x, x_dot, angle, angle_dot = motion
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    push = (force + POLE * LENGTH * angle_dot**2 * sin) / (CART + POLE)
    angle_dot_dot = (GRAVITY * sin - cos * push) / (LENGTH * (4 / 3 - POLE * cos**2 / (CART + POLE)))
    x_dot_dot = push - POLE * LENGTH * angle_dot_dot * cos / (CART + POLE)
    return (
        x + seconds * x_dot,
        x_dot + seconds * x_dot_dot,
        angle + seconds * angle_dot,
        angle_dot + seconds * angle_dot_dot,
    )


def observation_spec(*, settings: Settings = DEFAULT) -> specs.BoundedArray:
    del settings
    most = np.array([2 * MAX_X, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
    return specs.BoundedArray([4], np.float32, -most, most, "motion")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    del settings
    return specs.DiscreteArray(2, name="action")
