"""A module with one parameter, and the names of all parameters that a function makes."""

import jax.numpy as jnp

import hkx


class Leaf(hkx.Module):
    def __call__(self):
        return hkx.get_parameter("w", [1], init=jnp.zeros)


def names(f):
    params = hkx.transform(f).init(None)
    return [f"{module}:{name}" for module, entries in params.items() for name in entries]
