"""Craftax: `pip install craftax`, then `python ppo.py --env craftax_adapter:Symbolic`."""

import jax
import jax.numpy as jnp
from craftax.craftax_env import make_craftax_env_from_name  # pip install craftax


class Symbolic:
    def __init__(self, name="Craftax-Symbolic-v1"):
        self.env, self.default_params = make_craftax_env_from_name(name, auto_reset=False), None
        self.action_space, self.reset = self.env.action_space, self.env.reset
        self.next_world = jax.custom_batching.custom_vmap(lambda key: self.reset(key))
        self.next_world.def_vmap(self.share)

    def share(self, count, _, keys):  # a new world takes the time of 17 steps, so 16 environments have one between them
        worlds = jax.lax.optimization_barrier(jax.vmap(self.reset)(keys[::16]))
        return jax.tree.map(lambda x: jnp.repeat(x, 16, axis=0)[:count], worlds), jax.tree.map(lambda x: True, worlds)

    def step(self, key, env_state, action):
        observation_t, state_t, r_t, done, _ = self.env.step(key, env_state, action)
        cut, world = done & (state_t.timestep >= self.env.default_params.max_timesteps), (observation_t, state_t)
        new = jax.tree.map(lambda x, y: jnp.where(done, x, y), self.next_world(jax.random.fold_in(key, 1)), world)
        return *new, r_t, done & ~cut, cut, {"final_observation": observation_t}
