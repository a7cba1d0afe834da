"""Wraps an environment of this folder as a `dm_env.Environment`, for agents in Python and for bsuite's scores."""

from typing import Any

import dm_env
import jax
import numpy as np

from .environment import Environment


class DmEnv(dm_env.Environment):
    """Steps one environment in a compiled program, and returns NumPy arrays.

    With `bsuite_num_episodes` and `bsuite_info`, it also has the interface of bsuite's environments, which computes the
    data for scores from the episodes' returns. `optimal_return` is 1 in bsuite's bandit, catch and memory chain, and
    0.99 in its deep sea.
    """

    def __init__(
        self, environment: Environment, seed: int = 0, bsuite_num_episodes: int = 10_000, optimal_return: float = 1.0
    ):
        def reset(key: jax.Array) -> tuple:
            key, now = jax.random.split(key)
            return key, *environment.reset(now)

        def step(key: jax.Array, state: Any, action: jax.Array) -> tuple:
            key, now = jax.random.split(key)
            return key, *environment.step(now, state, action)

        self._reset, self._step = jax.jit(reset), jax.jit(step)
        self._specs = environment.observation_spec(), environment.action_spec()
        self._key = jax.random.key(seed)
        self._state = None  # None between episodes
        self.bsuite_num_episodes = bsuite_num_episodes
        self._optimal_return = optimal_return
        self._returns = [0.0]  # the returns of the episodes; the last one has not ended

    def reset(self) -> dm_env.TimeStep:
        self._returns[-1] = 0.0
        self._key, self._state, timestep = self._reset(self._key)
        return dm_env.restart(np.array(timestep.observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._state is None:
            return self.reset()
        spec = self.action_spec()
        action = spec.validate(np.asarray(action).astype(spec.dtype, casting="same_kind"))
        self._key, self._state, timestep = self._step(self._key, self._state, action)
        step_type, reward, discount, observation = jax.device_get(timestep)
        self._returns[-1] += float(reward)
        if step_type == dm_env.StepType.LAST:
            self._returns.append(0.0)
            self._state = None
        return dm_env.TimeStep(dm_env.StepType(int(step_type)), float(reward), float(discount), np.array(observation))

    def observation_spec(self) -> dm_env.specs.Array:
        return self._specs[0]

    def action_spec(self) -> dm_env.specs.Array:
        return self._specs[1]

    def bsuite_info(self) -> dict[str, float]:
        returns = np.array(self._returns[:-1])
        perfect = returns > self._optimal_return - 1e-3
        return {
            "raw_return": returns.sum(),
            "best_episode": returns.max(initial=0.0),
            "total_regret": (self._optimal_return - returns).sum(),
            "total_perfect": perfect.sum(),
            "total_bad_episodes": (~perfect).sum(),
        }
