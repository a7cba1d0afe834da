"""Checks and conversion of random keys."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx.base.types import PRNGKey
from hkx.errors.core import InvalidRNGError, described


@functools.cache
def _raw_key_shape(implementation: str) -> tuple[int, ...]:
    del implementation  # only the cache key: JAX reads this setting itself
    return jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape


def is_typed_key(value: Any) -> Any:
    """True if `value` is an array of typed keys."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def has_custom_implementation(key: Any) -> bool:
    """True if the key's PRNG implementation is not one of JAX's own (`jax.extend.random.define_prng_impl`)."""
    return is_typed_key(key) and jax.random.key_impl(key) not in ("threefry2x32", "rbg", "unsafe_rbg")


def _of_seed(seed: Any) -> Any:
    """The raw key of a seed, as in Haiku, or the typed one with the same bits, if JAX is set to refuse raw keys."""
    raw_keys = getattr(jax.config, "jax_legacy_prng_key", None)
    return jax.random.key(seed) if getattr(raw_keys, "value", raw_keys) == "error" else jax.random.PRNGKey(seed)


def as_key(value: PRNGKey, where: str = "`hkx.as_key`") -> Any:
    """Converts `value` to a key, for functions that accept a key in any of its forms.

    Args:
      value: a typed key (`jax.random.key`), a raw `uint32` key (`jax.random.PRNGKey`), or an int seed, which gives the
        raw key of `jax.random.PRNGKey(seed)`, or a typed one if `jax_legacy_prng_key` is set to refuse raw keys.
      where: the beginning of the error's text, which names the function and the argument.

    Returns:
      The key, for `jax.random`.

    Raises:
      InvalidRNGError: if it is anything else, an array of keys for example.

    Example:

      >>> import hkx, jax
      >>> jax.random.bits(hkx.as_key(7)) == jax.random.bits(jax.random.PRNGKey(7))
      Array(True, dtype=bool)
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
        try:
            return _of_seed(value)
        except OverflowError:
            problem = f"the seed {value} does not fit into 64 bits"
    elif is_typed_key(value):
        shape = np.shape(value)
        if shape == ():
            return value
        problem = f"the key did not have expected shape and/or dtype: it is an array of keys of shape {shape}"
    elif isinstance(value, (jax.Array, np.ndarray)):
        if value.shape == () and jnp.issubdtype(value.dtype, jnp.integer):  # a seed that went through jax.jit
            return _of_seed(value)
        expected = _raw_key_shape(str(jax.config.jax_default_prng_impl))  # type: ignore[attr-defined]
        if value.shape == expected and value.dtype == np.uint32:
            return value
        problem = (
            f"the key did not have expected shape and/or dtype: shape {value.shape} and dtype {value.dtype} instead "
            f"of {expected} and uint32"
        )
    else:
        problem = f"{described(value)} is not a JAX PRNGKey"
    raise InvalidRNGError(
        f"{where}: {problem}.\n"
        "A key is one of: `jax.random.key(seed)`, `jax.random.PRNGKey(seed)`, or an int seed. From an array of keys, "
        "pass one: `keys[0]`. Pass None to `apply` if the function draws no random numbers."
    )
