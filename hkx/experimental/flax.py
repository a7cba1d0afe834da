"""Flax Linen modules inside hkx, and hkx functions inside Flax; see `hkx.interop.flax`. Needs the package `flax`."""

from hkx.interop.flax import Module as Module
from hkx.interop.flax import flatten_flax_to_haiku as flatten_flax_to_haiku
from hkx.interop.flax import lift as lift

__all__ = ["Module", "flatten_flax_to_haiku", "lift"]
