"""Depthwise convolutions: each channel separately."""

from __future__ import annotations

import functools

import jax
import numpy as np

from hkx import Module
from hkx.arguments import Flag, Num, Size, Sizes
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
from hkx.pad import per_dimension


class DepthwiseConvND(Convolution):
    """A convolution of each channel separately, over `num_spatial_dims` dimensions.

    `y[n, i, c * m + j] = b[c * m + j] + sum_k x[n, stride * i + rate * k - before, c] w[k, 0, c * m + j]`, where m is
    the channel multiplier.

    Args:
      num_spatial_dims: the number of spatial dimensions, at least 1.
      channel_multiplier: the number of outputs for each channel.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between outputs, one number or one for each dimension.
      rate: the step between elements of the kernel (dilation), one number or one for each dimension.
      padding: as for `hkx.ConvND`.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, 1, channel_multiplier * input_channels]`; by default a normal
        distribution of standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: where the channels are; see `hkx.get_channel_index`.
      name: the module's name.

    Raises:
      ValueError: if `data_format` does not say where the channels are.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> from hkx.nn.depthwise_conv import DepthwiseConvND
      >>> model = hkx.transform(lambda x: DepthwiseConvND(2, channel_multiplier=2, kernel_shape=3)(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([1, 8, 8, 4])))
      {'depthwise_conv_nd': {'b': (8,), 'w': (3, 3, 1, 8)}}
    """

    def __init__(
        self,
        num_spatial_dims: int,
        channel_multiplier: Size,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        super().__init__(num_spatial_dims, kernel_shape, stride, with_bias, w_init, b_init, data_format, name)
        n = num_spatial_dims
        self.channel_multiplier = channel_multiplier
        self.lhs_dilation = (1,) * n
        self.rhs_dilation = per_dimension(rate, n, "rate")
        self.padding = resolved_padding(padding, self.kernel_shape, self.rhs_dilation, n)
        self.dn = kernel_layout(n, self.channel_index)  # the dimension numbers; subclasses know them by Haiku's name

    def __call__(self, inputs: Num[jax.Array, "..."]) -> jax.Array:
        """Applies the convolution.

        Args:
          inputs: `[N, *spatial, C]` or `[N, C, *spatial]`, by the data format; the batch dimension is optional.
            Any floating dtype; the parameters are created in this dtype.

        Returns:
          An array of the same layout, with `channel_multiplier * C` channels.

        Raises:
          InvalidRankError: if `inputs` has a wrong number of dimensions.
          InputDTypeError: if the dtype of `inputs` is not that of the parameters.
          ValueError: if there are no channels.
        """
        name, n = type(self).__name__, self.num_spatial_dims
        inputs, unbatched = with_batch(inputs, n, name)
        channels = inputs.shape[self.channel_index]
        if channels == 0:
            raise ValueError(f"`inputs` of `{name}` has shape {inputs.shape}, without channels: it needs at least one.")
        shape = (*self.kernel_shape, 1, self.channel_multiplier * channels)
        w = get_kernel(shape, inputs.dtype, int(np.prod(shape[:-1])), self.w_init, None, name)
        convolved = functools.partial(
            jax.lax.conv_general_dilated,
            window_strides=self.stride,
            padding=self.padding,
            lhs_dilation=self.lhs_dilation,
            rhs_dilation=self.rhs_dilation,
            dimension_numbers=self.dn,
            feature_group_count=channels,
        )
        out = divided_by_batch(convolved, inputs)(inputs, w)  # [N, *space, C * channel_multiplier]
        return finished(self, out, shape[-1], w.dtype, unbatched)


class _OfRank(DepthwiseConvND):
    """Takes the number of spatial dimensions from a class attribute instead of an argument."""

    num_spatial_dims: int

    def __init__(
        self,
        channel_multiplier: Size,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        super().__init__(
            self.num_spatial_dims,
            channel_multiplier,
            kernel_shape,
            stride,
            rate,
            padding,
            with_bias,
            w_init,
            b_init,
            data_format,
            name,
        )


class DepthwiseConv1D(_OfRank):
    """A convolution of each channel separately, over one dimension.

    The inputs are `[N, W, C]`, or `[N, C, W]` with `data_format="NCW"`; the batch dimension is optional.

    Args:
      channel_multiplier: the number of outputs for each channel.
      kernel_shape: the size of the kernel, a number, or a sequence of one.
      stride: the step between outputs, a number, or a sequence of one.
      rate: the step between elements of the kernel (dilation), a number, or a sequence of one.
      padding: as for `hkx.ConvND`.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, 1, channel_multiplier * input_channels]`; by default a normal
        distribution of standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NWC"` or `"NCW"`; see `hkx.get_channel_index`.
      name: the module's name.

    Raises:
      ValueError: if `data_format` does not say where the channels are.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.DepthwiseConv1D(channel_multiplier=2, kernel_shape=3)(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([1, 4, 5])))
      {'depthwise_conv1_d': {'b': (10,), 'w': (3, 1, 10)}}
    """

    num_spatial_dims = 1


class DepthwiseConv2D(_OfRank):
    """A convolution of each channel separately, over two dimensions.

    The inputs are `[N, H, W, C]`, or `[N, C, H, W]` with `data_format="NCHW"`; the batch dimension is optional.

    Args:
      channel_multiplier: the number of outputs for each channel.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between outputs, one number or one for each dimension.
      rate: the step between elements of the kernel (dilation), one number or one for each dimension.
      padding: as for `hkx.ConvND`.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, 1, channel_multiplier * input_channels]`; by default a normal
        distribution of standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NHWC"` or `"NCHW"`; see `hkx.get_channel_index`.
      name: the module's name.

    Raises:
      ValueError: if `data_format` does not say where the channels are.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.DepthwiseConv2D(channel_multiplier=2, kernel_shape=3)(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([1, 4, 4, 5])))
      {'depthwise_conv2_d': {'b': (10,), 'w': (3, 3, 1, 10)}}
    """

    num_spatial_dims = 2


class DepthwiseConv3D(_OfRank):
    """A convolution of each channel separately, over three dimensions.

    The inputs are `[N, D, H, W, C]`, or `[N, C, D, H, W]` with `data_format="NCDHW"`; the batch dimension is
    optional.

    Args:
      channel_multiplier: the number of outputs for each channel.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between outputs, one number or one for each dimension.
      rate: the step between elements of the kernel (dilation), one number or one for each dimension.
      padding: as for `hkx.ConvND`.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, 1, channel_multiplier * input_channels]`; by default a normal
        distribution of standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NDHWC"` or `"NCDHW"`; see `hkx.get_channel_index`.
      name: the module's name.

    Raises:
      ValueError: if `data_format` does not say where the channels are.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.DepthwiseConv3D(channel_multiplier=2, kernel_shape=3)(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([1, 4, 4, 4, 5])))
      {'depthwise_conv3_d': {'b': (10,), 'w': (3, 3, 3, 1, 10)}}
    """

    num_spatial_dims = 3


class SeparableDepthwiseConv2D(Module):
    """A depthwise convolution whose kernel is the product of a column and a row: `[kernel, 1]`, then `[1, kernel]`.

    Only the first convolution has the stride, and only the second has a bias.

    Args:
      channel_multiplier: the number of outputs for each channel.
      kernel_shape: the size of the kernel, one number or two.
      stride: the step between outputs, one number or two.
      padding: as for `hkx.ConvND`; used for both.
      with_bias: whether a bias is added.
      w_init: initializer of both kernels, as for `hkx.DepthwiseConv2D`.
      b_init: initializer of the bias; zeros by default.
      data_format: `"NHWC"` or `"NCHW"`.
      name: the module's name.

    Raises:
      the same as `hkx.DepthwiseConv2D`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.SeparableDepthwiseConv2D(1, kernel_shape=3)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 8, 8, 4]))
      >>> [entries["w"].shape for entries in params.values()]
      [(3, 1, 1, 4), (1, 3, 1, 4)]
    """

    def __init__(
        self,
        channel_multiplier: Size,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "NHWC",
        name: str | None = None,
    ):
        super().__init__(name=name)
        rows, columns = per_dimension(kernel_shape, 2, "kernel_shape")
        self._column = DepthwiseConv2D(
            channel_multiplier,
            kernel_shape=(rows, 1),
            stride=stride,
            padding=padding,
            with_bias=False,
            w_init=w_init,
            data_format=data_format,
        )
        self._row = DepthwiseConv2D(
            1,
            kernel_shape=(1, columns),
            padding=padding,
            with_bias=with_bias,
            w_init=w_init,
            b_init=b_init,
            data_format=data_format,
        )

    def __call__(self, inputs: Num[jax.Array, "..."]) -> jax.Array:
        """Applies both convolutions to `inputs`, `[N, H, W, C]` or `[N, C, H, W]`, by the data format."""
        return self._row(self._column(inputs))
