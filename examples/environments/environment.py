"""What an environment is here: pure functions in the terms of dm_env, and an automatic reset around them.

    state, timestep = environment.reset(key)
    state, timestep = environment.step(key, state, action)

Both are for one environment: `jax.vmap` makes thousands of them, `jax.lax.scan` plays whole episodes. A timestep is
dm_env's: `step_type` says whether it is the FIRST of its episode, a MID or the LAST one; `reward` and `discount` came
of the action; the discount is 0 where the episode terminated and 1 where it was only truncated; `observation` is what
was seen after the action. The first timestep has reward 0 and discount 1, where dm_env says None.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType, TimeStep, specs

Key = jax.Array


class UnknownEnvironment(ValueError):
    """There is no such environment, or it has no such setting; the message says which there are, in one line."""


class Environment(NamedTuple):
    """An environment as a tuple of functions."""

    reset: Callable[[Key], tuple[Any, TimeStep]]
    step: Callable[[Key, Any, Any], tuple[Any, TimeStep]]
    observation_spec: Callable[[], specs.Array]
    action_spec: Callable[[], specs.Array]


def first(observation: Any) -> TimeStep:
    """The timestep that begins an episode."""
    return TimeStep(jnp.int32(StepType.FIRST), jnp.float32(0), jnp.float32(1), observation)


def after(reward: Any, observation: Any, terminated: Any = False, truncated: Any = False) -> TimeStep:
    """The timestep after an action. Where an episode terminates and is truncated at once, it has terminated."""
    last = jnp.logical_or(terminated, truncated)
    step_type = jnp.where(last, jnp.int32(StepType.LAST), jnp.int32(StepType.MID))
    return TimeStep(step_type, jnp.float32(reward), 1 - jnp.float32(terminated), observation)


def words(key: Key, n: int) -> list[jax.Array]:
    """n times 32 random bits: what keys are made of, two of them each.

    On a CPU and under `vmap`, numbers that are drawn one by one take a third of the time of `jax.random.uniform` of an
    array of a few, and compile sooner.
    """
    keys = [jax.random.fold_in(key, i) for i in range(-(-n // 2))]
    return [word for key in keys for word in jax.random.key_data(key)[:2]][:n]


def one_of(word: jax.Array, n: int) -> jax.Array:
    """A number from 0 to n - 1, n much smaller than 2**32."""
    return (word % np.uint32(n)).astype(jnp.int32)


def between(word: jax.Array, low: float, high: float) -> jax.Array:
    """A number from low to high."""
    return low + (high - low) * 2**-24 * (word >> 8).astype(jnp.float32)


class Running(NamedTuple):
    """The state of an environment that begins anew by itself."""

    state: Any
    observation: Any  # what the next action answers: that of a new episode, where the last one has just ended
    episode_return: jax.Array  # [], the rewards since the episode began


def auto_reset(environment: Environment) -> Environment:
    """Begins a new episode in the step in which one ends.

    The timestep stays that of the episode which ended, with its last observation; what the next action answers is
    `state.observation`. So no step is lost, and what a learner bootstraps from is never of another episode.
    """

    def reset(key: Key) -> tuple[Running, TimeStep]:
        state, timestep = environment.reset(key)
        return Running(state, timestep.observation, jnp.float32(0)), timestep

    def step(key: Key, running: Running, action: Any) -> tuple[Running, TimeStep]:
        # What a reset draws from the key is never this far on; and a step without chance costs no key at all.
        step_key = jax.random.fold_in(key, 2**32 - 1)
        state, timestep = environment.step(step_key, running.state, action)
        same = Running(state, timestep.observation, running.episode_return + timestep.reward)
        new, _ = reset(key)
        return jax.tree.map(lambda a, b: jnp.where(timestep.last(), a, b), new, same), timestep

    return environment._replace(reset=reset, step=step)
