"""Shared code of convolutions and pooling: arguments for each dimension, the channel axis, kernels and biases."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module, get_parameter, initializers, pad, traced_once
from hkx.arguments import checked_integer
from hkx.errors import InvalidPaddingError, InvalidRankError, MaskShapeError
from hkx.initializers import Initializer
from hkx.nn.numerics import R, check_dtype, divided, parts_of
from hkx.pad import per_dimension

_STRING_PADDINGS = ("SAME", "VALID", "SAME_LOWER")


def get_channel_index(data_format: str) -> int:
    """Returns the axis of the channels: 1 or -1.

    Args:
      data_format: `"channels_first"`; `"channels_last"`; letters for the dimensions, with `N` for the batch and `C` for
        the channels (`"NCHW"`, `"NC..."`, `"NHWC"`); or letters with `B` and `T` first, and `D` for the channels last
        (`"BTD"`).

    Returns:
      1 if the channels come directly after the batch, -1 if they come last.

    Raises:
      ValueError: if it is none of these.

    Example:

      >>> import hkx
      >>> hkx.get_channel_index("NHWC"), hkx.get_channel_index("channels_first")
      (-1, 1)
    """
    if data_format == "channels_first" or _CHANNELS_FIRST.fullmatch(data_format):
        return 1
    if data_format == "channels_last" or _CHANNELS_LAST.fullmatch(data_format):
        return -1
    raise ValueError(
        f"Unable to extract channel information from {data_format!r}. Valid data formats (`data_format`) are "
        "`channels_first`, `channels_last`, letters with N first and C second (e.g. `NCHW`) or last (e.g. `NHWC`), and "
        "sequences with B and T first and D last (e.g. `BTHWD`)."
    )


_CHANNELS_FIRST = re.compile("NC[^C]*")
_CHANNELS_LAST = re.compile("N[^C]*C|(BT|TB)[^D]*D")


def kernel_layout(n: int, channel_index: int, transposed: bool = False) -> jax.lax.ConvDimensionNumbers:
    """The positions of batch, channel and spatial dimensions in the inputs, kernel and outputs of a convolution."""
    space = tuple(range(1, n + 1))
    data = (0, n + 1, *space) if channel_index == -1 else (0, 1, *(i + 1 for i in space))
    kernel = (n, n + 1) if transposed else (n + 1, n)
    return jax.lax.ConvDimensionNumbers(data, (*kernel, *range(n)), data)


def resolved_padding(padding: Any, kernel: Sequence[int], rate: Sequence[int], n: int) -> Any:
    """Converts a padding to a form that `jax.lax` accepts: an upper-case string, or a pair for each dimension.

    Raises:
      InvalidPaddingError: if `padding` is not in one of the accepted forms.
    """
    if isinstance(padding, str):
        if padding.upper() not in _STRING_PADDINGS:
            raise InvalidPaddingError(padding)
        return padding.upper()
    entries = padding if isinstance(padding, Sequence) else (padding,)
    if entries and all(map(callable, entries)):
        pairs = pad.create_from_padfn(padding, kernel, rate, n)
        if not all(map(_is_pair, pairs)):
            problem = (
                f"A function given as `padding` must return a pair (before, after) for a kernel's size, got {pairs!r}."
            )
            raise InvalidPaddingError(padding, problem)
        return tuple(map(tuple, pairs))
    if _is_pair(entries) or (entries and all(map(_is_pair, entries))):
        pairs = pad.create_from_tuple(padding, n)
        return tuple((checked_integer(a, "padding", None), checked_integer(b, "padding", None)) for a, b in pairs)
    raise InvalidPaddingError(padding)


def _is_pair(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_integer, value))


def _is_integer(value: Any) -> bool:
    array = isinstance(value, (jax.Array, np.ndarray)) and not value.ndim
    return isinstance(value, (int, np.integer)) or (array and jnp.issubdtype(value.dtype, jnp.integer))


class Convolution(Module):
    """The base class of convolutions, with their common arguments, which `hkx.ConvND` documents."""

    def __init__(
        self,
        num_spatial_dims: int,
        kernel_shape: int | Sequence[int],
        stride: int | Sequence[int],
        with_bias: bool,
        w_init: Initializer | None,
        b_init: Initializer | None,
        data_format: str,
        name: str | None,
    ):
        super().__init__(name=name)
        n = num_spatial_dims
        if not isinstance(n, (int, np.integer)) or n <= 0:
            raise ValueError(
                f"There are convolution operations for `num_spatial_dims` greater than 0, got {n}: for none, "
                "use `hkx.Linear`."
            )
        self.num_spatial_dims = n
        self.kernel_shape = per_dimension(kernel_shape, n, "kernel_shape")
        self.stride = per_dimension(stride, n, "stride")
        self.with_bias = with_bias
        self.w_init = w_init
        self.b_init = b_init or jnp.zeros
        self.data_format = data_format
        self.channel_index = get_channel_index(data_format)


def with_batch(inputs: jax.Array, n: int, module: str) -> tuple[jax.Array, bool]:
    """Adds a batch dimension if `inputs` has none; returns the array, and whether this was done.

    Raises:
      InvalidRankError: if its rank is neither `n + 1` nor `n + 2`.
    """
    if inputs.ndim not in (n + 1, n + 2):
        raise InvalidRankError(module, "inputs", inputs.shape, (n + 1, n + 2))
    if inputs.ndim == n + 2:
        return inputs, False
    return jnp.expand_dims(inputs, 0), True


def get_kernel(
    shape: Sequence[int], dtype: Any, fan_in: int, init: Initializer | None, mask: Any, module: str
) -> jax.Array:
    """The parameter `w`, multiplied by the mask if there is one.

    Raises:
      InvalidInputError: if the mask is not an array.
      MaskShapeError: if it has another shape.
      InputDTypeError: if the dtypes of parameter and inputs differ, because JAX only convolves arrays of equal dtype.
    """
    if mask is not None and mask.shape != tuple(shape):
        raise MaskShapeError(module, mask.shape, tuple(shape))
    if init is None:
        init = initializers.TruncatedNormal(stddev=1.0 / np.sqrt(max(fan_in, 1)))
    w = get_parameter("w", shape, dtype, init=init)
    check_dtype(w.dtype == dtype, module, "inputs", dtype, f"{w.dtype}, that of the parameter `w`")
    return w if mask is None else w * mask.astype(w.dtype)


def divided_by_batch(f: Callable[..., R], inputs: jax.Array) -> Callable[..., R]:
    """`f`, with a result like `inputs`, whose first dimension is the batch."""
    return divided(f, parts_of(inputs)[0], *(None for _ in inputs.shape[1:]))


def finished(layer: Convolution, out: jax.Array, channels: int, dtype: Any, unbatched: bool) -> jax.Array:
    """Adds the bias `b` to `out`, if the layer has one, and removes the batch dimension that `with_batch` added."""
    if layer.with_bias:
        shape = (channels,) if layer.channel_index == -1 else (channels,) + (1,) * layer.num_spatial_dims
        out = _biased(out, get_parameter("b", shape, dtype, init=layer.b_init))
    return jnp.squeeze(out, axis=0) if unbatched else out


@traced_once
def _biased(out: Any, b: Any) -> jax.Array:
    return out + jnp.broadcast_to(b, out.shape)


Padding = str | Sequence[tuple[int, int]] | tuple[int, int] | Callable[[int], tuple[int, int]] | Sequence[Any]
