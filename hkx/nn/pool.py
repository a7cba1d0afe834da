"""Pooling: the largest or the mean value in a sliding window."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module
from hkx.arguments import Index, Num, Rule, Sizes, checked
from hkx.errors import InvalidWindowError
from hkx.nn.numerics import check_dtype, narrowed, widened


def _padding(value: Any, argument: str, taker: str) -> str:
    if not isinstance(value, str) or value not in ("SAME", "VALID"):
        raise ValueError(f"Invalid padding {value!r}, must be 'SAME' or 'VALID': `{argument}` of `{taker}`.")
    return value


Padding = Annotated[Literal["SAME", "VALID"], Rule(_padding)]


def _full_shape(
    shape: tuple[int, ...], size: int | Sequence[int], channel_axis: int | None, argument: str
) -> tuple[int, ...]:
    """`size` for every dimension. A single number applies to all dimensions except for the batch and the channels."""
    if isinstance(size, Sequence):
        if len(size) > len(shape):
            raise InvalidWindowError(argument, size, shape)
        return (1,) * (len(shape) - len(size)) + tuple(size)
    if channel_axis is not None and not 0 <= abs(channel_axis) < len(shape):
        raise ValueError(f"Invalid channel axis {channel_axis} (`channel_axis`) for inputs of shape {shape}.")
    channel = None if channel_axis is None else channel_axis % len(shape)
    return (1,) + tuple(1 if d == channel else size for d in range(1, len(shape)))


def _window(
    shape: tuple[int, ...],
    window_shape: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    channel_axis: int | None,
) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]]]:
    window = _full_shape(shape, window_shape, channel_axis, "window_shape")
    strides = _full_shape(shape, strides, channel_axis, "strides")
    return window, strides, list(jax.lax.padtype_to_pads(shape, window, strides, padding))


@checked
def max_pool(
    value: Num[jax.Array, "... C"],
    window_shape: Sizes,
    strides: Sizes,
    padding: Padding,
    channel_axis: Index | None = -1,
) -> jax.Array:
    """The largest value in each window.

    Args:
      value: `[N, ..., C]`, or with the channels elsewhere; of any dtype with an order.
      window_shape: the size of the window. A single number applies to every dimension except the first and the
        channels; a sequence applies to the last dimensions, including the channels.
      strides: the step between windows, in the same form.
      padding: `"SAME"`, which gives `ceil(size / stride)` outputs, or `"VALID"`, which uses only windows that lie in
        the array.
      channel_axis: the axis of the channels, to which a single number does not apply; None if there are no channels.

    Returns:
      An array of the dtype of `value`.

    Raises:
      ValueError: if `padding` is none of these, or a single number is given and there is no dimension `channel_axis`.
      InvalidWindowError: if `window_shape` or `strides` has more entries than `value` has dimensions.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> print(hkx.max_pool(jnp.arange(4.0).reshape([1, 4, 1]), 2, 2, "VALID").ravel())
      [1. 3.]
    """
    window, strides, pads = _window(value.shape, window_shape, strides, padding, channel_axis)
    return jax.lax.reduce_window(value, _least(value.dtype), jax.lax.max, window, strides, pads)


def _least(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.bool_):
        return np.asarray(False)
    if jnp.issubdtype(dtype, jnp.integer):
        return np.asarray(jnp.iinfo(dtype).min, dtype)
    return np.asarray(-np.inf, dtype)


@checked
def avg_pool(
    value: Num[jax.Array, "... C"],
    window_shape: Sizes,
    strides: Sizes,
    padding: Padding,
    channel_axis: Index | None = -1,
) -> jax.Array:
    """The mean value in each window; padding does not count.

    Args:
      value: `[N, ..., C]`, or with the channels elsewhere; of any numeric dtype.
      window_shape: the size of the window. A single number applies to every dimension except the first and the
        channels; a sequence applies to the last dimensions, including the channels.
      strides: the step between windows, in the same form.
      padding: `"SAME"`, which gives `ceil(size / stride)` outputs, or `"VALID"`, which uses only windows that lie in
        the array.
      channel_axis: the axis of the channels, to which a single number does not apply; None if there are no channels.

    Returns:
      An array of the dtype of `value`, if that is a floating dtype.

    Raises:
      ValueError: if `padding` is none of these, or a single number is given and there is no dimension `channel_axis`.
      InvalidWindowError: if `window_shape` or `strides` has more entries than `value` has dimensions.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> print(hkx.avg_pool(jnp.arange(5.0).reshape([1, 5, 1]), 2, 2, "SAME").ravel())
      [0.5 2.5 4. ]
    """
    check_dtype(value.dtype != np.bool_, "avg_pool", "value", value.dtype, "a dtype of numbers")
    window, strides, pads = _window(value.shape, window_shape, strides, padding, channel_axis)
    wide = widened(value)
    total = jax.lax.reduce_window(wide, np.zeros((), wide.dtype), jax.lax.add, window, strides, pads)
    counts = np.prod(window) if padding == "VALID" else _counts(value.shape, window, strides, pads)
    return narrowed(total / counts.astype(total.dtype), value)


def _counts(shape: Sequence[int], window: Sequence[int], strides: Sequence[int], pads: Any) -> Any:
    """The number of array elements in each window. Dimensions along which the window has size 1 have size 1."""
    sizes = [1 if w == 1 else n for n, w in zip(shape, window, strict=True)]
    if not all(isinstance(n, int) for n in sizes):  # symbolic dimensions of `jax.export`
        return jax.lax.reduce_window(jnp.ones(sizes), 0.0, jax.lax.add, window, strides, pads)
    counts = []
    for size, w, stride, (before, after) in zip(sizes, window, strides, pads, strict=True):
        if w == 1:
            counts.append(np.ones(1))
            continue
        start = np.arange(0, size + before + after - w + 1, stride) - before
        counts.append(np.minimum(start + w, size) - np.maximum(start, 0))
    return functools.reduce(np.multiply, np.ix_(*counts))


class _Pool(Module):
    """The base of the two modules, with their arguments."""

    def __init__(
        self,
        window_shape: Sizes,
        strides: Sizes,
        padding: Padding,
        channel_axis: Index | None = -1,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.window_shape = window_shape
        self.strides = strides
        self.padding: Padding = padding
        self.channel_axis = channel_axis


class MaxPool(_Pool):
    """`hkx.max_pool` as a module.

    Args:
      window_shape: see `hkx.max_pool`.
      strides: see `hkx.max_pool`.
      padding: see `hkx.max_pool`.
      channel_axis: see `hkx.max_pool`.
      name: the module's name.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> f = hkx.transform(lambda x: hkx.MaxPool(2, strides=2, padding="SAME")(x))
      >>> f.apply({}, None, jnp.ones([1, 8, 8, 3])).shape
      (1, 4, 4, 3)
    """

    def __call__(self, value: Num[jax.Array, "... C"]) -> jax.Array:
        """Pools `value`; see `hkx.max_pool`."""
        return max_pool(value, self.window_shape, self.strides, self.padding, self.channel_axis)


class AvgPool(_Pool):
    """`hkx.avg_pool` as a module.

    Args:
      window_shape: see `hkx.avg_pool`.
      strides: see `hkx.avg_pool`.
      padding: see `hkx.avg_pool`.
      channel_axis: see `hkx.avg_pool`.
      name: the module's name.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> f = hkx.transform(lambda x: hkx.AvgPool(2, strides=2, padding="VALID")(x))
      >>> f.apply({}, None, jnp.ones([1, 8, 8, 3])).shape
      (1, 4, 4, 3)
    """

    def __call__(self, value: Num[jax.Array, "... C"]) -> jax.Array:
        """Pools `value`; see `hkx.avg_pool`."""
        return avg_pool(value, self.window_shape, self.strides, self.padding, self.channel_axis)
