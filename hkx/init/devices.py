"""Initial values are placed where their key is."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.base.types import Array
from hkx.jaxprs.traces import recording

SMALL = 2**16  # elements of a constant that is not worth a program of its own on an accelerator


def is_on_cpu(key: Any) -> bool:
    """True if what is made from a key is placed on a CPU."""
    place = _place(key)
    sharding = place if isinstance(place, jax.sharding.Sharding) else jax.device_put(np.uint32(0), place).sharding
    return all(device.platform == "cpu" for device in sharding.device_set)


def placed(values: Any, key: Array) -> Array:
    """An array, or its values, in the place of what is made from `key`."""
    return jax.device_put(values, _place(key))


def constant(shape: tuple[int, ...], dtype: Any, value: Any, like: Any) -> Array:
    """An array filled with one number, in the place of what is made from `like`."""
    if like is None or isinstance(like, jax.core.Tracer):
        return jnp.full(shape, value, dtype)
    if math.prod(shape) <= SMALL or is_on_cpu(like):  # nothing has to be compiled
        return placed(np.full(shape, value, dtype), like)
    place = _place(like)
    return jnp.full(shape, value, dtype, device=place if isinstance(place, jax.sharding.Sharding) else None)


def _place(key: Any) -> Any:
    """The devices of arrays made from a key: those of the key if it is committed to devices; otherwise, as JAX does it,
    whole on the mesh of `jax.set_mesh`, or on the default device."""
    if not isinstance(key, jax.core.Tracer) and getattr(key, "committed", False):
        return key.sharding
    return None if jax.sharding.get_abstract_mesh().empty or recording() else jax.P()
