"""Brax's environments: `pip install brax`, then `python ppo.py --env brax_adapter:hopper`, or another name of Brax."""

import functools
import types

import jax
from brax import envs  # pip install brax


class Brax:
    def __init__(self, name):
        self.env, self.default_params = envs.get_environment(name), None
        self.action_space = lambda params: types.SimpleNamespace(shape=(self.env.action_size,), low=-1, high=1)

    def reset(self, key):
        return (state := self.env.reset(key)).obs, (state, state, jax.numpy.int32(0))

    def step(self, key, env_state, action):  # as in Brax, each episode of an environment begins as its first one did
        _, first, n = env_state
        ends, cut = (state := self.env.step(env_state[0], action)).done > 0, n + 1 >= 1000
        new, n = jax.tree.map(lambda x, y: jax.numpy.where(ends | cut, x, y), (first, 0), (state, n + 1))
        return new.obs, (new, first, n), state.reward, ends, cut, {"final_observation": state.obs}


__getattr__ = functools.partial(functools.partial, Brax)  # brax_adapter:hopper is Brax("hopper"), to be called
