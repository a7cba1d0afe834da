"""Names for the types that appear in the signatures of operators."""

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np

Array: TypeAlias = jax.Array
"""A JAX array, concrete or traced: what every operator returns."""

Key: TypeAlias = Annotated[jax.Array, "a key of jax.random"]
"""One key of `jax.random`, typed or raw. An operator takes the integer that seeds it as well."""

Scalar: TypeAlias = bool | int | float | np.bool_ | np.number
"""A Python or NumPy number."""

ArrayLike: TypeAlias = jax.Array | np.ndarray | np.bool_ | np.number | bool | int | float
"""What every operator accepts: a JAX array, a NumPy array, or a number."""

PyTree: TypeAlias = Any
"""Any nest of tuples, lists, dicts and registered nodes with arrays as leaves."""

Projection: TypeAlias = Callable[[Array], Array]
"""A function that maps an array into some set, for instance the positive numbers."""
