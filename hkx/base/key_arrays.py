"""Arrays of random keys, and what is done for each of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from hkx.base.keys import is_typed_key
from hkx.base.types import Array

THREEFRY = "threefry2x32"


def is_partitionable(key: Any) -> bool:
    """True if element i of what `jax.random` draws depends only on the key and on i: partitionable Threefry."""
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        return False
    if is_typed_key(key):
        return str(jax.random.key_impl(key)) == "fry" or jax.random.key_impl(key) == THREEFRY
    return jax.config.jax_default_prng_impl == THREEFRY  # type: ignore[attr-defined]


def key_batch(keys: Any) -> tuple[int, ...]:
    """The shape of an array of keys; () for a single key."""
    return keys.shape if is_typed_key(keys) else keys.shape[:-1]


def for_each_key(f: Callable[[Array], Any], keys: Array) -> Any:
    """Applies `f` to each key of an array, with the same bits as for a single key. The array's axes come first."""
    batch = key_batch(keys)
    if not batch:
        return f(keys)
    each = keys.reshape(-1, *keys.shape[len(batch) :])
    # Under `vmap`, keys of other implementations draw other bits.
    out = jax.vmap(f)(each) if is_partitionable(keys) and each.shape[0] else jax.lax.map(f, each)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), out)


def checks_reuse() -> bool:
    """Returns whether JAX is set to raise an error where a typed key is used twice (`jax.debug_key_reuse`)."""
    return bool(jax.config.jax_debug_key_reuse)  # type: ignore[attr-defined]


def for_another_use(keys: Any) -> Any:
    """The keys of a tree, where they are meant to give the same numbers again, or JAX cannot know that they are new."""
    return jax.tree.map(lambda x: jax.random.clone(x) if is_typed_key(x) else x, keys) if checks_reuse() else keys


@functools.partial(jax.jit, static_argnums=(1, 2))
def split_chain(key: Array, count: int, num: int) -> Array:
    """[count, num, …]: the keys of `count` splits, each of the first key of the split before."""

    def step(key: Array, _: None) -> tuple[Array, Array]:
        keys = jax.random.split(key, num)
        return keys[0], keys

    return jax.lax.scan(step, key, None, length=count)[1]
