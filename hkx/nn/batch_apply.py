"""Functions for arrays with one number of dimensions, applied to arrays with another."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx.arguments import Function, array_of, checked, checked_function, checked_integer, is_iterable
from hkx.nn.numerics import divided, parts_of


class BatchApply:
    """Merges the leading dimensions into one, applies a function, and splits this dimension of the results again.

    Args:
      f: a function or module.
      num_dims: the number of leading dimensions to merge, at least 1.

    Raises:
      InvalidSizeError: if `num_dims` is not a whole number, or less than 1.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.BatchApply(hkx.Conv2D(4, 3))(x))
      >>> x = jnp.ones([5, 2, 8, 8, 3])  # [T, B, H, W, C]
      >>> model.apply(model.init(jax.random.key(0), x), None, x).shape
      (5, 2, 8, 8, 4)
    """

    def __init__(self, f: Callable[..., Any], num_dims: int = 2):
        self._f = checked_function(f, "hkx.BatchApply", "f")
        self.num_dims = checked_integer(num_dims, "num_dims", 1)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Applies the function.

        Args:
          *args: trees of arrays; arrays with fewer dimensions than `num_dims` are passed on unchanged.
          **kwargs: likewise.

        Returns:
          The result of the function, with the leading dimension of every array split again.

        Raises:
          ValueError: if no argument has `num_dims` dimensions.
          TypeError: if the leading dimension of a result has changed.
        """
        n = self.num_dims
        example = next((x for x in jax.tree.leaves((args, kwargs)) if np.ndim(x) >= n), None)
        if example is None:
            raise ValueError(f"BatchApply merges {n} dimensions: it requires at least one input that has these.")
        leading, parts = np.shape(example)[:n], parts_of(example)[:n]
        args, kwargs = jax.tree.map(lambda x: _merged(x, n), (args, kwargs))
        return jax.tree.map(lambda x: _split(x, leading, parts), self._f(*args, **kwargs))


def _merged(x: Any, n: int) -> Any:
    shape = np.shape(x)
    if len(shape) < n:
        return x
    parts = parts_of(x)
    axes = tuple(axis for part in parts[:n] if part for axis in (part if isinstance(part, tuple) else (part,)))
    return divided(functools.partial(jnp.reshape, shape=(math.prod(shape[:n]), *shape[n:])), axes, *parts[n:])(x)


def _split(x: Any, leading: tuple[int, ...], parts: tuple[Any, ...]) -> Any:
    return divided(functools.partial(jnp.reshape, shape=leading + np.shape(x)[1:]), *parts, *parts_of(x)[1:])(x)


@checked
def expand_apply(f: Function, axis: int = 0) -> Callable[..., Any]:
    """Makes a function of batches work on single examples: adds a dimension, applies the function, and removes it.

    Args:
      f: a function or module.
      axis: the position of the added dimension of size 1: 0 or -1.

    Returns:
      A function of the same arguments.

    Raises:
      ValueError: if `axis` is neither 0 nor -1.
      InvalidInputError: when called, if an argument is no array.
      ValueError: when called, if the function does not preserve the added dimension.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> f = hkx.expand_apply(lambda xs: xs + jnp.arange(3.0)[None])
      >>> print(f(jnp.ones(3)))
      [1. 2. 3.]
    """
    if is_iterable(axis) or axis not in (0, -1):
        raise ValueError(f"`axis` of `hkx.expand_apply` is {axis}: it only supports axis=0 or axis=-1.")

    def expanded(x: Any) -> jax.Array:
        return jnp.expand_dims(array_of(x, "args", "expand_apply", keys=True), axis)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = jax.tree.map(expanded, (args, kwargs))
        return jax.tree.map(lambda x: jnp.squeeze(x, axis=axis), f(*args, **kwargs))

    return wrapped
