"""Checks of the name, shape and dtype with which a parameter or state is requested."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.errors.arguments import InvalidDTypeError, InvalidEntryNameError, InvalidShapeError

_LARGEST = 2**63 - 1
_CONSTANTS: dict[Any, int] = {jnp.zeros: 0, jnp.ones: 1}


def path_of(bundle: str, name: Any, kind: type = str) -> str:
    """The full name of an entry, whose `name` must be of type `kind`."""
    if not isinstance(name, kind):
        raise InvalidEntryNameError(bundle, name)
    return f"{bundle}/" + (name if isinstance(name, str) else str(name))  # of an enum, an f-string shows no value


def path_of_state(bundle: str, name: Any) -> str:
    """The full name of a state. Its name may be anything hashable, as in Haiku."""
    return path_of(bundle, name, Hashable)


def sequence(path: str, shape: Any) -> Any:
    """Returns `shape` if it is a sequence; a JAX array as a list, because under a trace its elements are tracers."""
    if isinstance(shape, (tuple, list)):
        return shape
    if isinstance(shape, jax.Array) and not isinstance(shape, jax.core.Tracer) and shape.ndim == 1:
        return shape.tolist()
    if isinstance(shape, (str, bytes, dict, set)) or not hasattr(shape, "__len__") or np.ndim(shape) != 1:
        raise InvalidShapeError(path, shape)
    return shape


def checked(path: str, shape: Any, dtype: Any) -> Any:
    """Returns `shape` if it and `dtype` are valid for an array. Lengths that are JAX arrays become ints."""
    if not all(map(_is_length, shape)):
        raise InvalidShapeError(path, shape)
    if dtype is not None and not _is_dtype(dtype):
        raise InvalidDTypeError(path, dtype)
    known = any(isinstance(n, jax.Array) and not isinstance(n, jax.core.Tracer) for n in shape)
    return [operator.index(n) if isinstance(n, jax.Array) else n for n in shape] if known else shape


def constant_of(init: Any) -> int | None:
    """The number that an initializer fills arrays with, if it is `jnp.zeros` or `jnp.ones`."""
    try:
        return _CONSTANTS.get(init)
    except TypeError:  # an initializer that cannot be hashed
        return None


def of_state(path: str, shape: Any, dtype: Any, init: Any) -> Any:
    """Checks the shape of a state if its initializer is `jnp.zeros` or `jnp.ones`, which also accept a single length.

    For any other initializer, `shape` is whatever that accepts.
    """
    if constant_of(init) is None:
        return shape
    alone = np.ndim(shape) == 0 and hasattr(shape, "__index__")
    return checked(path, [shape] if alone else sequence(path, shape), dtype)


def _is_length(n: Any) -> bool:
    if type(n) is int or isinstance(n, np.integer):
        return 0 <= int(n) <= _LARGEST
    if isinstance(n, jax.core.Tracer) or jax.export.is_symbolic_dim(n):  # JAX raises its own error for a tracer
        return True
    try:
        return not isinstance(n, (bool, np.bool_)) and 0 <= int(operator.index(n)) <= _LARGEST
    except TypeError:
        return False


def _is_dtype(dtype: Any) -> bool:
    try:
        hash(dtype)  # an array, [] or {}: NumPy takes the latter for structures without fields
        return bool(jnp.issubdtype(dtype, jax.dtypes.extended)) or np.dtype(dtype).kind not in "OUSMm"
    except (TypeError, ValueError):
        return False


def is_array(value: Any) -> bool:
    """True if `value` has a shape, and is not a NumPy array of bytes, text or objects, which JAX arrays cannot hold."""
    unknown = isinstance(value, np.ndarray) and issubclass(value.dtype.type, (np.flexible, np.object_))
    return not unknown and getattr(value, "shape", None) is not None
