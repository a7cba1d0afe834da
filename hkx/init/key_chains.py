"""The keys of a recorded program: chains of splits are computed together, and so are the draws from them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Literal

from hkx.base.draws import Draw, sample
from hkx.base.key_arrays import for_each_key, key_batch, split_chain
from hkx.base.keys import is_typed_key
from hkx.base.types import Array
from hkx.init.blocks import sample_all
from hkx.init.devices import placed
from hkx.init.recording import split_p


class Taken(NamedTuple):
    """One key of an array of keys, extracted only if it is needed on its own."""

    keys: Any  # [n, k] keys: traced, typed, or raw in a NumPy array
    place: tuple[int, int]
    like: Any  # the key from which all of them were split

    def array(self) -> Array:
        """The key, on the device of `like`."""
        key = self.keys[self.place]
        return placed(key, self.like) if isinstance(key, np.ndarray) else key


def _key_data(keys: Sequence[Any]) -> Any:
    """uint32[n, 2]: the data of keys and arrays of keys, concatenated; a NumPy array, unless one of them is traced."""
    first = keys[0]
    if isinstance(first, Taken) and all(isinstance(k, Taken) and k.keys is first.keys for k in keys):
        data = jax.random.key_data(first.keys)
        data = data if isinstance(data, jax.core.Tracer) else np.asarray(data)
        return data[tuple(np.array([k.place for k in keys]).T)]
    data = [jax.random.key_data(k.array() if isinstance(k, Taken) else k) for k in keys]
    data = [k.reshape(-1, k.shape[-1]) for k in data]
    traced = any(isinstance(k, jax.core.Tracer) for k in data)
    return jnp.concatenate(data) if traced else np.concatenate([np.asarray(k) for k in data])


def drawn(draws: list[Draw], keys: list[Any], like: Any) -> list[Array]:
    """Draws from one key each, or from an array of keys, on the devices of the key `like`."""
    divided = [isinstance(k, jax.core.Tracer) and any(jax.typeof(k).sharding.spec) for k in keys]
    if any(divided):  # between devices, along explicit axes of a mesh: JAX does not join them with other keys
        whole = [i for i, d in enumerate(divided) if not d]
        others = iter(drawn([draws[i] for i in whole], [keys[i] for i in whole], like) if whole else ())
        alone = (functools.partial(for_each_key, functools.partial(sample, draw)) for draw in draws)
        return [draw(key) if d else next(others) for draw, key, d in zip(alone, keys, divided, strict=True)]
    batches = [() if isinstance(k, Taken) else key_batch(k) for k in keys]
    data = _key_data(keys)
    return sample_all(draws, batches, data, like)


def split_chains(pending: list[JaxprEqn], env: dict[Any, Any]) -> None:
    """Runs a chain of splits, starting from a known key, as one program, and removes it from `pending`."""
    by_key = {eqn.invars[0]: eqn for eqn in pending if eqn.primitive is split_p and not key_batch(eqn.invars[0].aval)}
    start = next((v for v in by_key if isinstance(v, Literal) or v in env), None)
    if start is None:
        return
    chain = [by_key[start]]
    while chain[-1].outvars[0] in by_key and by_key[chain[-1].outvars[0]].params == chain[0].params:
        chain.append(by_key[chain[-1].outvars[0]])
    if len(chain) < 4:  # not worth compiling
        return
    capacity = 1 << (len(chain) - 1).bit_length()
    keys = split_chain(env[start], capacity, chain[0].params["num"])
    if not isinstance(keys, jax.core.Tracer) and not is_typed_key(keys):
        keys = np.asarray(keys)
    for i, eqn in enumerate(chain):
        env.update((v, Taken(keys, (i, j), env[start])) for j, v in enumerate(eqn.outvars))
    done = set(map(id, chain))
    pending[:] = [eqn for eqn in pending if id(eqn) not in done]
