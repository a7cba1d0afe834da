"""The check of random keys, for all functions that draw random numbers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.arguments import shown
from rlx.core.errors import DTypeError, RankError
from rlx.core.types import Array

_EXPECTED = "a key of `jax.random`, as jax.random.key(0) makes one"


def as_key(argument: str, value: Any, function: str = "") -> Array:
    """Returns a single key of `jax.random`, typed or raw, unchanged; makes a key from an integer seed.

    Example:
      >>> import jax
      >>> from rlx.core.keys import as_key
      >>> as_key("key", 0) == as_key("key", jax.random.key(0))
      Array(True, dtype=bool)
      >>> as_key("key", 0.5, "sample")
      Traceback (most recent call last):
        ...
      rlx.core.errors.DTypeError: sample: argument `key` is 0.5, expected a key of `jax.random`, as jax.random.key(0) makes one.
    """  # noqa: E501
    says = f"{function}: argument `{argument}`" if function else f"argument `{argument}`"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        try:
            return jax.random.key(value)
        except OverflowError:
            raise DTypeError(f"{says} is {value}, too large a number, expected {_EXPECTED}.") from None
    if not isinstance(value, (jax.Array, np.ndarray)):
        raise DTypeError(f"{says} is {shown(value)}, expected {_EXPECTED}.")
    is_typed = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    implementation = jax.config.jax_default_prng_impl  # pyright: ignore[reportAttributeAccessIssue]
    own = () if is_typed else _shape_of_raw(implementation)
    if not is_typed and (value.dtype != np.uint32 or value.shape[-1:] != own):
        has = f"has dtype {value.dtype} and shape [{', '.join(map(str, value.shape))}]"
        raise DTypeError(f"{says} {has}, expected {_EXPECTED}.")
    if value.ndim != len(own):
        raise RankError(
            f"{says} holds {value.size // max(own, default=1)} keys, expected one.\n"
            "To use several, as from jax.random.split, map over them with jax.vmap."
        )
    return jnp.asarray(value)


@functools.cache
def _shape_of_raw(implementation: str) -> tuple[int, ...]:
    return jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=implementation))).shape
