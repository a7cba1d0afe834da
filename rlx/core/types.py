"""Aliases for the types in the signatures of operators, and the dtype of sums."""

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = jax.Array
"""A JAX array, concrete or traced."""

Key: TypeAlias = Annotated[jax.Array, "a key of jax.random"]
"""A single key of `jax.random`, typed or raw. Operators also accept an integer seed."""

AxisName: TypeAlias = Annotated[Any, "the name, or names, of mapped axes, or None"]
"""Axes of `jax.pmap`, `jax.vmap` or `jax.shard_map` over which data are split."""

Scalar: TypeAlias = bool | int | float | np.bool_ | np.number
"""A Python or NumPy number."""

ArrayLike: TypeAlias = jax.Array | np.ndarray | np.bool_ | np.number | bool | int | float
"""An array, as operators accept it: a JAX array, a NumPy array, or a number."""

PyTree: TypeAlias = Any
"""Any pytree: nested tuples, lists, dicts and registered nodes, with arrays as leaves."""

Projection: TypeAlias = Callable[[Array], Array]
"""A function that maps an array into some set, for instance the positive numbers."""


def to_jax(value: Any) -> jax.Array:
    """`jnp.asarray`, but 64-bit NumPy integers that would wrap around raise OverflowError, as Python's do.

    Example:
      >>> import numpy as np
      >>> from rlx.core.types import to_jax
      >>> to_jax(np.array([2**40]))
      Traceback (most recent call last):
        ...
      OverflowError: [1099511627776] does not fit into int32
    """
    array = jnp.asarray(value)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "iu" and value.dtype != array.dtype:
        limits = np.iinfo(array.dtype)
        if np.any(np.less(value, limits.min) | np.greater(value, limits.max)):
            raise OverflowError(f"{value} does not fit into {array.dtype}")
    return array


def in_one_dtype(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Converts arrays of floats to the dtype that JAX promotes them to, also where promotion is strict.

    This is for arrays whose dtypes the caller did not choose, such as half-precision values and a state of statistics.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.types import in_one_dtype
      >>> [x.dtype.name for x in in_one_dtype(jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.float32))]
      ['float32', 'float32']
    """
    floats = {np.dtype(x.dtype) for x in arrays if jnp.issubdtype(x.dtype, jnp.floating)}
    if len(floats) < 2:
        return arrays
    wide = wide_dtype(*floats)
    return tuple(x.astype(wide) if np.dtype(x.dtype) in floats else x for x in arrays)


def settings_in(dtype: Any, *settings: Any) -> tuple[Any, ...]:
    """Converts settings that are arrays to this dtype, also where promotion is strict. Python numbers stay unchanged.

    This is for settings in half precision of what is computed in a wider dtype.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.types import settings_in
      >>> number, array = settings_in(jnp.float32, 0.5, jnp.ones([], jnp.bfloat16))
      >>> number, array.dtype
      (0.5, dtype('float32'))
    """
    return tuple(x.astype(dtype) if isinstance(x, (jax.Array, np.ndarray, np.generic)) else x for x in settings)


def in_32_bits(numbers: jax.Array) -> jax.Array:
    """Indices and counts in 32 bits or more. Fewer may not count to the length of an axis, which JAX does not notice.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.types import in_32_bits
      >>> in_32_bits(jnp.ones(2, jnp.uint8)).dtype, in_32_bits(jnp.ones(2, jnp.float16)).dtype
      (dtype('int32'), dtype('float32'))
    """
    if numbers.dtype.itemsize >= 4 or numbers.dtype == bool:
        return numbers
    return numbers.astype(jnp.int32 if jnp.issubdtype(numbers.dtype, jnp.integer) else jnp.float32)


def wide_dtype(*dtypes: Any) -> Any:
    """The dtype in which sums are computed: float32, or the widest of the dtypes if that is wider.

    This is not `jnp.promote_types`, which raises an error for half precision if dtype promotion is strict.

    Example:
      >>> import jax.numpy as jnp
      >>> from rlx.core.types import wide_dtype
      >>> wide_dtype(jnp.bfloat16), wide_dtype(jnp.float32, jnp.float64)
      (dtype('float32'), dtype('float64'))
    """
    floats = [np.dtype(dtype) for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
    return max([np.dtype(np.float32), *floats], key=lambda dtype: dtype.itemsize)
