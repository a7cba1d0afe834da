"""Pooling to an output of a given size."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module
from hkx.arguments import Index, Num, checked_integer
from hkx.nn.numerics import dimension_of
from hkx.pad import per_dimension


class AdaptiveAvgPool(Module):
    """Averages over windows that divide the input as evenly as possible, for an output of a given size.

    Along a dimension of size n, output i of m is the mean of the inputs from `floor(i n / m)` to before
    `ceil((i + 1) n / m)`.

    Args:
      output_shape: the size of the output, one number or one for each spatial dimension. None keeps a dimension.
      channel_axis: the axis of the channels. All dimensions except this and the first are spatial.
      name: the module's name.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> f = hkx.transform(lambda x: hkx.AdaptiveAvgPool(2)(x))
      >>> print(f.apply({}, None, jnp.arange(3.0).reshape([1, 3, 1])).ravel())
      [0.5 1.5]
    """

    def __init__(self, output_shape: int | Sequence[int | None], channel_axis: Index = -1, name: str | None = None):
        super().__init__(name=name)
        self.output_shape = output_shape
        self.channel_axis = channel_axis

    def __call__(self, value: Num[jax.Array, "... C"]) -> jax.Array:
        """Pools `value`, `[N, *spatial, C]` or with the channels elsewhere, of any floating dtype.

        Raises:
          ScalarInputError: if `value` is a scalar.
          TypeError: if `output_shape` has neither one entry nor one for each spatial dimension, or one is no size.
          IndexError: if `value` has no dimension `channel_axis`.
        """
        rank = value.ndim
        channel = dimension_of(self.channel_axis, value.shape, "hkx.AdaptiveAvgPool", "channel_axis")
        spatial = [i for i in range(1, rank) if i != channel]
        for axis, size in zip(spatial, per_dimension(self.output_shape, len(spatial), "output_shape"), strict=True):
            if size is not None and checked_integer(size, "output_shape", 1) != value.shape[axis]:
                value = _averaged(value, axis, size)
        return value


def _averaged(value: jax.Array, axis: int, size: int) -> jax.Array:
    n = value.shape[axis]
    if n % size == 0:
        shape = (*value.shape[:axis], size, n // size, *value.shape[axis + 1 :])
        return jnp.mean(jnp.reshape(value, shape), axis=axis + 1)
    numbers = np if isinstance(n, int) and isinstance(size, int) else jnp  # symbolic sizes of `jax.export`: at run time
    index, outputs = numbers.arange(n)[None], numbers.arange(size)[:, None]
    inside = (index >= outputs * n // size) & (index < -(-(outputs + 1) * n // size))
    weights = jnp.asarray(inside / inside.sum(axis=1, keepdims=True), jnp.result_type(value, 1.0))
    return jnp.moveaxis(jnp.tensordot(value, weights, axes=[[axis], [1]], precision="highest"), -1, axis)
