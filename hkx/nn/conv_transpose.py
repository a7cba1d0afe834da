"""Transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hkx import transparent
from hkx.arguments import Flag, Num, Size, Sizes
from hkx.errors import InvalidPaddingError
from hkx.initializers import Initializer
from hkx.nn.spatial import (
    Convolution,
    Padding,
    divided_by_batch,
    finished,
    get_kernel,
    kernel_layout,
    resolved_padding,
    with_batch,
)
from hkx.nn.upsampled import transposed_convolution
from hkx.pad import per_dimension


class ConvNDTranspose(Convolution):
    """A transposed convolution over `num_spatial_dims` dimensions: the gradient of a strided one, or upsampling.

    The input is spread out with `stride - 1` zeros between its elements, padded, and convolved with the kernel. With
    padding `"SAME"`, the output is `stride` times as large as the input; with `"VALID"`, it has
    `max(kernel - stride, 0)` more elements. As in the other convolutions, the kernel is not flipped.

    Reference: Dumoulin & Visin (2016), "A guide to convolution arithmetic for deep learning", arXiv:1603.07285.

    Args:
      num_spatial_dims: the number of spatial dimensions, at least 1.
      output_channels: the number of output channels.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between the spread-out inputs, one number or one for each dimension.
      output_shape: the size of the output, one number or one for each dimension, if `"SAME"` or `"VALID"` allows
        several sizes: in a convolution with stride s, s input sizes give the same output size.
      padding: `"SAME"`, `"VALID"`, `"SAME_LOWER"` (which is `"SAME"`) if all strides are 1, or the padding of the
        spread-out input: a pair `(before, after)`, a sequence of pairs, a function of `hkx.pad`, or a sequence of
        functions.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, output_channels, input_channels]`; by default a normal
        distribution of standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: where the channels are; see `hkx.get_channel_index`.
      mask: an array with the shape of `w`, by which `w` is multiplied.
      name: the module's name.

    Raises:
      ValueError: if `num_spatial_dims` is not positive, `data_format` does not say where the channels are, or
        `output_shape` is given with another padding than `"SAME"` and `"VALID"`.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.ConvNDTranspose(2, 5, kernel_shape=3, stride=2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 4, 4, 2]))
      >>> params["conv_nd_transpose"]["w"].shape, model.apply(params, None, jnp.ones([1, 4, 4, 2])).shape
      ((3, 3, 5, 2), (1, 8, 8, 5))
    """

    def __init__(
        self,
        num_spatial_dims: int,
        output_channels: Size,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        output_shape: Sizes | None = None,
        padding: Padding = "SAME",
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        mask: Num[Any, "..."] | None = None,
        name: str | None = None,
    ):
        super().__init__(num_spatial_dims, kernel_shape, stride, with_bias, w_init, b_init, data_format, name)
        n = num_spatial_dims
        self.output_channels = output_channels
        self.output_shape = None if output_shape is None else per_dimension(output_shape, n, "output_shape")
        self.mask = mask
        self.padding = resolved_padding(padding, self.kernel_shape, (1,) * n, n)
        self.dimension_numbers = kernel_layout(n, self.channel_index, transposed=True)
        if self.padding == "SAME_LOWER":
            if any(s != 1 for s in self.stride):
                raise InvalidPaddingError(
                    padding,
                    f"A transposed convolution takes 'SAME_LOWER' with a stride of 1 only, got {self.stride}: pass "
                    "'SAME', 'VALID', or pairs (before, after).",
                )
            self.padding = "SAME"  # which puts the larger half of an odd total before
        if self.output_shape is not None and not isinstance(self.padding, str):
            raise ValueError(
                f"`output_shape` requires padding 'SAME' or 'VALID': with {padding!r}, the padding determines the size "
                "of the output."
            )

    def __call__(self, inputs: Num[jax.Array, "..."], *, precision: jax.lax.PrecisionLike = None) -> jax.Array:
        """Applies the transposed convolution.

        Args:
          inputs: `[N, *spatial, C]` or `[N, C, *spatial]`, by the data format; the batch dimension is optional.
            Any floating dtype; the parameters are created in this dtype.
          precision: the precision of the products; see `jax.lax.conv_general_dilated`.

        Returns:
          An array of the same layout, with `output_channels` channels.

        Raises:
          InvalidRankError: if `inputs` has a wrong number of dimensions.
          InputDTypeError: if the dtype of `inputs` is not that of the parameters.
          MaskShapeError: if the shape of the mask is not that of `w`.
          ValueError: if `output_shape` does not belong to an input of this size.
        """
        n = self.num_spatial_dims
        inputs, unbatched = with_batch(inputs, n, "ConvNDTranspose")
        channels = inputs.shape[self.channel_index]
        shape = (*self.kernel_shape, self.output_channels, channels)
        fan_in = int(np.prod(self.kernel_shape)) * channels
        w = get_kernel(shape, inputs.dtype, fan_in, self.w_init, self.mask, type(self).__name__)
        space = self.dimension_numbers.lhs_spec[2:]
        pads = self._pads([inputs.shape[d] for d in space])
        settings = (self.stride, pads, self.dimension_numbers, precision)
        convolved = divided_by_batch(lambda x, w: transposed_convolution(x, w, *settings), inputs)
        out = convolved(inputs, w)  # [N, *space, O], or with the channels first
        return finished(self, out, self.output_channels, w.dtype, unbatched)

    @transparent
    def _pads(self, sizes: Sequence[int]) -> Any:
        if not isinstance(self.padding, str):
            return self.padding
        if self.output_shape is None:
            return tuple(_pad(k, s, self.padding) for k, s in zip(self.kernel_shape, self.stride, strict=True))
        arguments = zip(self.output_shape, sizes, self.kernel_shape, self.stride, strict=True)
        return tuple(_pad_to(*a, self.padding) for a in arguments)


def _pad(kernel: int, stride: int, padding: str) -> tuple[int, int]:
    """The padding of the dilated input for an output of the usual size."""
    if padding == "SAME":
        total = kernel + stride - 2
        before = kernel - 1 if stride > kernel - 1 else -(-total // 2)
    else:
        total = kernel + stride - 2 + max(kernel - stride, 0)
        before = kernel - 1
    return (before, total - before)


def _pad_to(output: int, size: int, kernel: int, stride: int, padding: str) -> tuple[int, int]:
    """The padding of the dilated input for an output of the size `output`."""
    if padding == "VALID":
        expected, before = (output - kernel + stride) // stride, 0
    else:
        expected = (output + stride - 1) // stride
        before = max((size - 1) * stride + kernel - output, 0) // 2
    if size != expected:
        raise ValueError(
            f"`output_shape` {output} does not fit an input of size {size}: with a kernel of {kernel}, a stride of "
            f"{stride} and padding {padding!r}, it takes one of size {expected}."
        )
    before = kernel - 1 - before
    return (before, output - 1 - (size - 1) * stride + kernel - 1 - before)


class _OfRank(ConvNDTranspose):
    """Takes the number of spatial dimensions from a class attribute instead of an argument."""

    num_spatial_dims: int

    def __init__(
        self,
        output_channels: Size,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        output_shape: Sizes | None = None,
        padding: Padding = "SAME",
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        mask: Num[Any, "..."] | None = None,
        name: str | None = None,
    ):
        super().__init__(
            self.num_spatial_dims,
            output_channels,
            kernel_shape,
            stride,
            output_shape,
            padding,
            with_bias,
            w_init,
            b_init,
            data_format,
            mask,
            name,
        )


class Conv1DTranspose(_OfRank):
    """`hkx.ConvNDTranspose` over one dimension.

    The inputs are `[N, W, C]`, or `[N, C, W]` with `data_format="NCW"`; the batch dimension is optional.

    Args:
      output_channels: the number of output channels.
      kernel_shape: the size of the kernel, a number, or a sequence of one.
      stride: the step between the spread-out inputs, a number, or a sequence of one.
      output_shape: the size of the output, a number, or a sequence of one, if `"SAME"` or `"VALID"` allows several
        sizes: in a convolution with stride s, s input sizes give the same output size.
      padding: `"SAME"`, `"VALID"`, `"SAME_LOWER"` (which is `"SAME"`) if all strides are 1, or the padding of the
        spread-out input: a pair `(before, after)`, a sequence of pairs, a function of `hkx.pad`, or a sequence of
        functions.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, output_channels, input_channels]`; by default a normal
        distribution of standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NWC"` or `"NCW"`; see `hkx.get_channel_index`.
      mask: an array with the shape of `w`, by which `w` is multiplied.
      name: the module's name.

    Raises:
      ValueError: if `data_format` does not say where the channels are, or `output_shape` is given with another
        padding than `"SAME"` and `"VALID"`.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Conv1DTranspose(3, kernel_shape=2, stride=2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 2, 5]))
      >>> model.apply(params, None, jnp.ones([1, 2, 5])).shape
      (1, 4, 3)
    """

    num_spatial_dims = 1


class Conv2DTranspose(_OfRank):
    """`hkx.ConvNDTranspose` over two dimensions.

    The inputs are `[N, H, W, C]`, or `[N, C, H, W]` with `data_format="NCHW"`; the batch dimension is optional.

    Args:
      output_channels: the number of output channels.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between the spread-out inputs, one number or one for each dimension.
      output_shape: the size of the output, one number or one for each dimension, if `"SAME"` or `"VALID"` allows
        several sizes: in a convolution with stride s, s input sizes give the same output size.
      padding: `"SAME"`, `"VALID"`, `"SAME_LOWER"` (which is `"SAME"`) if all strides are 1, or the padding of the
        spread-out input: a pair `(before, after)`, a sequence of pairs, a function of `hkx.pad`, or a sequence of
        functions.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, output_channels, input_channels]`; by default a normal
        distribution of standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NHWC"` or `"NCHW"`; see `hkx.get_channel_index`.
      mask: an array with the shape of `w`, by which `w` is multiplied.
      name: the module's name.

    Raises:
      ValueError: if `data_format` does not say where the channels are, or `output_shape` is given with another
        padding than `"SAME"` and `"VALID"`.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Conv2DTranspose(3, kernel_shape=2, stride=2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 2, 2, 5]))
      >>> model.apply(params, None, jnp.ones([1, 2, 2, 5])).shape
      (1, 4, 4, 3)
    """

    num_spatial_dims = 2


class Conv3DTranspose(_OfRank):
    """`hkx.ConvNDTranspose` over three dimensions.

    The inputs are `[N, D, H, W, C]`, or `[N, C, D, H, W]` with `data_format="NCDHW"`; the batch dimension is
    optional.

    Args:
      output_channels: the number of output channels.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between the spread-out inputs, one number or one for each dimension.
      output_shape: the size of the output, one number or one for each dimension, if `"SAME"` or `"VALID"` allows
        several sizes: in a convolution with stride s, s input sizes give the same output size.
      padding: `"SAME"`, `"VALID"`, `"SAME_LOWER"` (which is `"SAME"`) if all strides are 1, or the padding of the
        spread-out input: a pair `(before, after)`, a sequence of pairs, a function of `hkx.pad`, or a sequence of
        functions.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, output_channels, input_channels]`; by default a normal
        distribution of standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NDHWC"` or `"NCDHW"`; see `hkx.get_channel_index`.
      mask: an array with the shape of `w`, by which `w` is multiplied.
      name: the module's name.

    Raises:
      ValueError: if `data_format` does not say where the channels are, or `output_shape` is given with another
        padding than `"SAME"` and `"VALID"`.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Conv3DTranspose(3, kernel_shape=2, stride=2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 2, 2, 2, 5]))
      >>> model.apply(params, None, jnp.ones([1, 2, 2, 2, 5])).shape
      (1, 4, 4, 4, 3)
    """

    num_spatial_dims = 3
