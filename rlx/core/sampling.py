"""What distributions share: parameters given to a method or to the policy, keys by two names, shapes of samples."""

import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rlx.core.arguments import require
from rlx.core.types import Array


def either(function: str, argument: str, given: Any, field: Any) -> Any:
    """What a method is given, or else what the policy was made with."""
    value = field if given is None else given
    expected = "a value, here or when the policy is made (`sample` takes a key first)"
    require(value is not None, argument, None, expected, function)
    return value


def key_and_shape(
    function: str, key: Array | int | None, seed: Array | int | None, sample_shape: Sequence[int] | int
) -> tuple[Array, tuple[int, ...]]:
    """The key under either name, made of an integer where one is given, and the shape of a sample's new axes."""
    require(key is None or seed is None, "seed", seed, "nothing beside `key`, which is the same", function)
    given: Any = seed if key is None else key
    require(given is not None, "key", None, "a random key or an integer seed", function)
    made = jax.random.key(given) if isinstance(given, (int, np.integer)) else given
    lengths = (sample_shape,) if isinstance(sample_shape, (int, np.integer)) else sample_shape
    return made, tuple(operator.index(n) for n in lengths)
