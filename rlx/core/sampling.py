"""Shared code of distributions: draws, parameters of a method or the policy, names of keys, shapes of samples."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rlx.core.arguments import require, whole
from rlx.core.keys import as_key
from rlx.core.types import Array, wide_dtype


def categorical(key: Array, logits: Array, shape: tuple[int, ...] | None = None) -> Array:
    """`jax.random.categorical` in at least float32.

    It takes the largest of perturbed logits. In half precision many of these are equal, and then the first action is
    taken: the last of 18 equally likely ones a fifth less often than the first, and rare ones half as often.
    """
    return jax.random.categorical(key, logits.astype(wide_dtype(logits.dtype)), shape=shape)


def normal(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """`jax.random.normal` in at least float32, rounded: of bfloat16 it is never above 2.6, and its mean is not 0."""
    return jax.random.normal(key, shape, wide_dtype(dtype)).astype(dtype)


def either(function: str, argument: str, given: Any, field: Any) -> Any:
    """The argument of a method, or else the field of the policy."""
    value = field if given is None else given
    expected = "a value, here or when the policy is created (`sample` takes a key first)"
    require(value is not None, argument, None, expected, function)
    return value


def key_and_shape(
    function: str, key: Array | int | None, seed: Array | int | None, sample_shape: Sequence[int] | int
) -> tuple[Array, tuple[int, ...]]:
    """The key, passed under either name and possibly as an integer seed, and the shape of a sample's new axes."""
    require(key is None or seed is None, "seed", seed, "nothing beside `key`, which is the same", function)
    given: Any = seed if key is None else key
    require(given is not None, "key", None, "a random key or an integer seed", function)
    return as_key("key" if seed is None else "seed", given, function), as_shape("sample_shape", sample_shape, function)


def as_shape(argument: str, lengths: Sequence[int] | int, function: str = "") -> tuple[int, ...]:
    """The lengths of axes, as a tuple; a single length may be given as an integer.

    Example:
      >>> from rlx.core.sampling import as_shape
      >>> as_shape("sample_shape", 3), as_shape("sample_shape", [2, 3])
      ((3,), (2, 3))
    """
    is_array = isinstance(lengths, (np.ndarray, jax.Array)) and lengths.ndim > 0
    several: Any = lengths if is_array or isinstance(lengths, (list, tuple)) else (lengths,)
    return tuple(whole(argument, n, "whole numbers of at least 0", function, 0) for n in several)
