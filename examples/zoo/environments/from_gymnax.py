"""Wraps gymnax's environments: `CartPole-v1`, `Breakout-MinAtar` and two dozen others (Lange, "gymnax", 2022)."""

from typing import Any

import jax
import numpy as np
from dm_env import TimeStep, specs

from .environment import Environment, Key, UnknownEnvironment, after, first


def from_gymnax(name: str, **settings: Any) -> Environment:
    """The environment of that name, without gymnax's own automatic reset.

    The settings are fields of its `EnvParams`, such as `max_steps_in_episode=200`. The discount is 0 if the episode
    terminates, and 1 if it is truncated because the limit on steps is reached.
    """
    try:
        import gymnax  # imported here, because it takes seconds
    except ImportError as error:
        raise UnknownEnvironment(
            f"gymnax:{name} needs gymnax 1.0 or later ({error}): pip install 'gymnax>=1'"
        ) from error
    if name not in gymnax.registered_envs:
        raise UnknownEnvironment(f"gymnax has no environment {name!r}; it has {', '.join(gymnax.registered_envs)}")
    environment, params = gymnax.make(name)
    if not hasattr(environment, "is_truncated"):  # earlier versions treat the step limit as termination
        raise UnknownEnvironment(f"gymnax:{name} needs gymnax 1.0 or later: pip install --upgrade 'gymnax>=1'")
    if unknown := sorted(settings.keys() - vars(params).keys()):
        raise UnknownEnvironment(f"gymnax:{name} has no setting {unknown[0]!r}; it has {', '.join(vars(params))}")
    params = params.replace(**settings)

    def reset(key: Key) -> tuple[Any, TimeStep]:
        observation, state = environment.reset_env(key, params)
        return state, first(observation)

    def step(key: Key, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        observation, state, reward, terminated, _ = environment.step_env(key, state, action, params)
        return state, after(reward, observation, terminated, environment.is_truncated(state, params))

    def observation_spec() -> specs.Array:
        space = environment.observation_space(params)
        if hasattr(space, "n"):
            return specs.DiscreteArray(space.n, np.int32, "observation")
        # The observations of some environments do not match the bounds and dtype of their space.
        _, timestep = jax.eval_shape(reset, jax.random.key(0))
        return specs.Array(timestep.observation.shape, timestep.observation.dtype, "observation")

    def action_spec() -> specs.Array:
        space = environment.action_space(params)
        if hasattr(space, "n"):
            return specs.DiscreteArray(space.n, np.int32, "action")
        return specs.BoundedArray(space.shape, space.dtype, np.asarray(space.low), np.asarray(space.high), "action")

    return Environment(reset, step, observation_spec, action_spec)
