"""Cart-pole by the rules of bsuite's `cartpole` (Osband et al., "Behaviour Suite for Reinforcement Learning", 2020).

A cart is pushed to the left, to the right or not at all, so that the pole on it stays up. Unlike Gymnasium's, a step is
0.01 seconds. The reward is +1 per step while the pole is upright and the cart within bounds. Otherwise, or after ten
seconds, the episode terminates. The observation includes the time. The equations of motion are Florian's, "Correct
equations for the dynamics of the cart-pole system", 2005.
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


class Settings(NamedTuple):
    height_threshold: float = 0.8  # for the cosine of the pole's angle
    x_threshold: float = 3.0
    timescale: float = 0.01  # seconds per step
    max_time: float = 10.0  # seconds
    init_range: float = 0.05


DEFAULT = Settings()


class State(NamedTuple):
    motion: tuple[jax.Array, jax.Array, jax.Array, jax.Array]  # [], x and its velocity, the angle and its velocity
    steps: jax.Array  # [], since the episode began


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    halves = [half for word in words(key, 2) for half in (word >> 16 << 16, word << 16)]  # 16 random bits each
    motion = tuple(between(half, -settings.init_range, settings.init_range) for half in halves)
    state = State(motion, jnp.int32(0))
    return state, first(observe(state, settings))


def step(key: Key, state: State, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    """Action 0 pushes the cart to the left, 1 does nothing, 2 pushes it to the right."""
    del key  # nothing is random after the first timestep
    motion = moved(state.motion, (action - 1) * FORCE, settings.timescale)
    state = State(motion, state.steps + 1)
    observation = observe(state, settings)
    balanced = (observation[0, 3] > settings.height_threshold) & (jnp.abs(motion[0]) < settings.x_threshold)
    over = state.steps >= steps_of_an_episode(settings)
    return state, after(balanced, observation, terminated=over | ~balanced)


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


def steps_of_an_episode(settings: Settings) -> int:
    """The first step at which the time exceeds `max_time`. By rounding in float64, it is 1,001 instead of 1,000."""
    time, steps = 0.0, 0
    while time <= settings.max_time:
        time, steps = time + settings.timescale, steps + 1
    return steps


def observe(state: State, settings: Settings) -> jax.Array:
    x, x_dot, angle, angle_dot = state.motion
    scaled = x / settings.x_threshold, x_dot / settings.x_threshold
    time = state.steps * (settings.timescale / settings.max_time)
    return jnp.stack([*scaled, jnp.sin(angle), jnp.cos(angle), angle_dot, time])[None]


def observation_spec(*, settings: Settings = DEFAULT) -> specs.Array:
    del settings
    return specs.Array([1, 6], np.float32, "motion")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    del settings
    return specs.DiscreteArray(3, name="action")
