"""The interface of environments: pure functions that return the timesteps of dm_env, and an automatic reset.

    state, timestep = environment.reset(key)
    state, timestep = environment.step(key, state, action)

Both are for a single environment: `jax.vmap` runs thousands of them, and `jax.lax.scan` plays whole episodes. As in
dm_env, the `step_type` of a timestep is FIRST, MID or LAST in its episode; `reward`, `discount` and `observation` are
the result of the action. The discount is 0 if the episode terminated, but 1 if it was truncated. The first timestep has
reward 0 and discount 1, where dm_env has None.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType, TimeStep, specs

Key = jax.Array


class UnknownEnvironment(ValueError):
    """There is no such environment or setting. The message, of one line, lists those that exist."""


class Environment(NamedTuple):
    """An environment as a tuple of functions."""

    reset: Callable[[Key], tuple[Any, TimeStep]]
    step: Callable[[Key, Any, Any], tuple[Any, TimeStep]]
    observation_spec: Callable[[], specs.Array]
    action_spec: Callable[[], specs.Array]


def first(observation: Any) -> TimeStep:
    """The first timestep of an episode."""
    return TimeStep(jnp.int32(StepType.FIRST), jnp.float32(0), jnp.float32(1), observation)


def after(reward: Any, observation: Any, terminated: Any = False, truncated: Any = False) -> TimeStep:
    """The timestep after an action. If it both terminates and is truncated, the episode has terminated."""
    last = jnp.logical_or(terminated, truncated)
    step_type = jnp.where(last, jnp.int32(StepType.LAST), jnp.int32(StepType.MID))
    return TimeStep(step_type, jnp.float32(reward), 1 - jnp.float32(terminated), observation)


def words(key: Key, n: int) -> list[jax.Array]:
    """n words of 32 random bits, which are the raw data of keys.

    On a CPU and under `vmap`, drawing single numbers in this way takes a third of the time of `jax.random.uniform` for
    a small array, and compiles faster.
    """
    keys = [jax.random.fold_in(key, i) for i in range(-(-n // 2))]
    return [word for key in keys for word in jax.random.key_data(key)[:2]][:n]


def one_of(word: jax.Array, n: int) -> jax.Array:
    """A random integer from 0 to n - 1, from a random word; n must be much smaller than 2**32."""
    return (word % np.uint32(n)).astype(jnp.int32)


def between(word: jax.Array, low: float, high: float) -> jax.Array:
    """A random number between low and high, from a random word."""
    return low + (high - low) * 2**-24 * (word >> 8).astype(jnp.float32)


class Running(NamedTuple):
    """The state of an environment with automatic reset."""

    state: Any
    observation: Any  # before the next action: of the new episode, if one has just ended
    episode_return: jax.Array  # [], the sum of rewards in the episode so far


def auto_reset(environment: Environment) -> Environment:
    """Begins a new episode in the same step in which one ends.

    The timestep is that of the episode that ended, with its last observation; the observation for the next action is
    `state.observation`. So no step is lost, and a learner never bootstraps from another episode.
    """

    def reset(key: Key) -> tuple[Running, TimeStep]:
        state, timestep = environment.reset(key)
        return Running(state, timestep.observation, jnp.float32(0)), timestep

    def step(key: Key, running: Running, action: Any) -> tuple[Running, TimeStep]:
        # A reset never folds in such a large number. If a step is deterministic, the compiler removes this.
        step_key = jax.random.fold_in(key, 2**32 - 1)
        state, timestep = environment.step(step_key, running.state, action)
        same = Running(state, timestep.observation, running.episode_return + timestep.reward)
        new, _ = reset(key)
        return jax.tree.map(lambda a, b: jnp.where(timestep.last(), a, b), new, same), timestep

    return environment._replace(reset=reset, step=step)
