"""Craftax: `pip install craftax`, then `python ppo.py --env craftax_adapter:Symbolic`, or Classic, which is smaller."""

import jax
import jax.numpy as jnp
from craftax.craftax_env import make_craftax_env_from_name


class Symbolic:
    name, default_params = "Craftax-Symbolic-v1", None

    def __init__(self):
        self.env = make_craftax_env_from_name(self.name, auto_reset=False)
        self.action_space, self.reset = self.env.action_space, self.env.reset

    def step(self, key, env_state, action):
        observation_t, state_t, r_t, done, _ = self.env.step(key, env_state, action)
        cut = done & (state_t.timestep >= self.env.default_params.max_timesteps)
        first, state_t = self.reset(jax.random.fold_in(key, 1)), (observation_t, state_t)
        new = jax.tree.map(lambda x, y: jnp.where(done, x, y), first, state_t)
        return *new, r_t, done & ~cut, cut, {"final_observation": observation_t}


class Classic(Symbolic):
    name = "Craftax-Classic-Symbolic-v1"
