"""Convolutions."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

import jax
import numpy as np

from hkx import traced_once
from hkx.arguments import Flag, Num, PositiveSize, Rule, Size, Sizes
from hkx.initializers import Initializer
from hkx.nn.patches import convolved_patches
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


@functools.partial(
    traced_once,
    static_argnames=(
        "window_strides",
        "padding",
        "rhs_dilation",
        "dimension_numbers",
        "feature_group_count",
        "precision",
        "implementation",
    ),
)
def _convolved(inputs: Any, w: Any, *, implementation: str, **settings: Any) -> jax.Array:
    convolution = jax.lax.conv_general_dilated if implementation == "xla" else convolved_patches
    return divided_by_batch(functools.partial(convolution, **settings), inputs)(inputs, w)


def _implementation(value: Any, argument: str, taker: str) -> str:
    if not isinstance(value, str) or value not in ("xla", "dot"):
        raise ValueError(f"`{argument}` of `{taker}` must be 'xla' or 'dot', got {value!r}.")
    return value


Implementation = Annotated[Literal["xla", "dot"], Rule(_implementation)]


class ConvND(Convolution):
    """A convolution over `num_spatial_dims` dimensions.

    `y[n, i, o] = b[o] + sum_{k, c} x[n, stride * i + rate * k - before, c] w[k, c, o]`, where `i` and `k` run over all
    spatial dimensions. As usual in deep learning, the kernel is not flipped.

    Args:
      num_spatial_dims: the number of spatial dimensions, at least 1.
      output_channels: the number of output channels.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between outputs, one number or one for each dimension.
      rate: the step between elements of the kernel (dilation), one number or one for each dimension.
      padding: `"SAME"`, `"VALID"` or `"SAME_LOWER"`; a pair `(before, after)`; a sequence of pairs; a function of
        `hkx.pad` such as `hkx.pad.causal`; or a sequence of functions. A sequence has one entry for each dimension,
        or one for all.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, input_channels / feature_group_count, output_channels]`; by
        default a normal distribution with standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: where the channels are; see `hkx.get_channel_index`.
      mask: an array with the shape of `w`, by which `w` is multiplied.
      feature_group_count: the number of groups of channels; each group is convolved separately.
      name: the module's name.
      implementation: `"xla"`, XLA's convolution, or `"dot"`, one matrix product of patches with the kernel. The results
        differ by rounding only. On a CPU, XLA's convolution is many times slower inside `jax.lax.scan`, `cond` and
        `while_loop` than outside: take `"dot"` there. Patches take `prod(kernel_shape) / prod(stride)` times the memory
        of the inputs; elsewhere, and on GPUs and TPUs, `"xla"` is as fast or faster.

    Raises:
      ValueError: if `num_spatial_dims` is not positive, `data_format` does not say where the channels are, or
        `implementation` is neither.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.ConvND(2, 16, 3, feature_group_count=2)(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([1, 8, 8, 4])))
      {'conv_nd': {'b': (16,), 'w': (3, 3, 2, 16)}}
    """

    def __init__(
        self,
        num_spatial_dims: int,
        output_channels: Size,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        mask: Num[Any, "..."] | None = None,
        feature_group_count: PositiveSize = 1,
        name: str | None = None,
        *,
        implementation: Implementation = "xla",
    ):
        super().__init__(num_spatial_dims, kernel_shape, stride, with_bias, w_init, b_init, data_format, name)
        n = num_spatial_dims
        self.output_channels = output_channels
        self.mask = mask
        self.feature_group_count = feature_group_count
        self.implementation = implementation
        self.lhs_dilation = (1,) * n
        self.kernel_dilation = per_dimension(rate, n, "rate")
        self.dimension_numbers = kernel_layout(n, self.channel_index)
        self.padding = resolved_padding(padding, self.kernel_shape, self.kernel_dilation, n)

    def __call__(self, inputs: Num[jax.Array, "..."], *, precision: jax.lax.PrecisionLike = None) -> jax.Array:
        """Applies the convolution.

        Args:
          inputs: `[N, *spatial, C]` or `[N, C, *spatial]`, by the data format; the batch dimension is optional.
            Any floating dtype; the parameters are created in this dtype.
          precision: the precision of the products; see `jax.lax.conv_general_dilated`.

        Returns:
          An array of the same layout, with `output_channels` channels.

        Raises:
          InvalidRankError: if `inputs` has a wrong number of dimensions.
          InputDTypeError: if the dtype of `inputs` is not that of the parameters.
          ValueError: if the channels cannot be divided into equal groups.
          MaskShapeError: if the shape of the mask is not that of `w`.
        """
        name = type(self).__name__
        inputs, unbatched = with_batch(inputs, self.num_spatial_dims, "ConvND")
        channels = inputs.shape[self.channel_index]
        if channels % self.feature_group_count:
            raise ValueError(
                f"`feature_group_count` is {self.feature_group_count}, which does not divide the inputs' {channels} "
                "channels."
            )
        if self.output_channels % self.feature_group_count:
            raise ValueError(
                f"`feature_group_count` is {self.feature_group_count}, which does not divide `output_channels`, "
                f"{self.output_channels}."
            )
        shape = (*self.kernel_shape, channels // self.feature_group_count, self.output_channels)
        fan_in = int(np.prod(shape[:-1]))
        w = get_kernel(shape, inputs.dtype, fan_in, self.w_init, self.mask, name)  # [*kernel_shape, C / groups, O]
        out = _convolved(
            inputs,
            w,
            window_strides=self.stride,
            padding=self.padding,
            rhs_dilation=self.kernel_dilation,
            dimension_numbers=self.dimension_numbers,
            feature_group_count=self.feature_group_count,
            precision=precision,
            implementation=self.implementation,
        )  # [N, *space, O], or with the channels first
        return finished(self, out, self.output_channels, w.dtype, unbatched)


class _OfRank(ConvND):
    """Takes the number of spatial dimensions from a class attribute instead of an argument."""

    num_spatial_dims: int

    def __init__(
        self,
        output_channels: Size,
        kernel_shape: Sizes,
        stride: Sizes = 1,
        rate: Sizes = 1,
        padding: Padding = "SAME",
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        data_format: str = "channels_last",
        mask: Num[Any, "..."] | None = None,
        feature_group_count: PositiveSize = 1,
        name: str | None = None,
        *,
        implementation: Implementation = "xla",
    ):
        super().__init__(
            self.num_spatial_dims,
            output_channels,
            kernel_shape,
            stride,
            rate,
            padding,
            with_bias,
            w_init,
            b_init,
            data_format,
            mask,
            feature_group_count,
            name,
            implementation=implementation,
        )


class Conv1D(_OfRank):
    """`hkx.ConvND` over one dimension.

    The inputs are `[N, W, C]`, or `[N, C, W]` with `data_format="NCW"`; the batch dimension is optional.

    Args:
      output_channels: the number of output channels.
      kernel_shape: the size of the kernel, a number, or a sequence of one.
      stride: the step between outputs, a number, or a sequence of one.
      rate: the step between elements of the kernel (dilation), a number, or a sequence of one.
      padding: `"SAME"`, `"VALID"` or `"SAME_LOWER"`; a pair `(before, after)`; a sequence of pairs; a function of
        `hkx.pad` such as `hkx.pad.causal`; or a sequence of functions. A sequence has one entry for each dimension,
        or one for all.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, input_channels / feature_group_count, output_channels]`; by
        default a normal distribution with standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NWC"` or `"NCW"`; see `hkx.get_channel_index`.
      mask: an array with the shape of `w`, by which `w` is multiplied.
      feature_group_count: the number of groups of channels; each group is convolved separately.
      name: the module's name.
      implementation: `"xla"`, or `"dot"` for compiled loops on a CPU; see `hkx.ConvND`.

    Raises:
      ValueError: if `data_format` does not say where the channels are, or `implementation` is neither.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Conv1D(5, kernel_shape=3, rate=2, padding=hkx.pad.causal)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 8, 4]))
      >>> model.apply(params, None, jnp.ones([1, 8, 4])).shape
      (1, 8, 5)
    """

    num_spatial_dims = 1


class Conv2D(_OfRank):
    """`hkx.ConvND` over two dimensions.

    The inputs are `[N, H, W, C]`, or `[N, C, H, W]` with `data_format="NCHW"`; the batch dimension is optional.

    Args:
      output_channels: the number of output channels.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between outputs, one number or one for each dimension.
      rate: the step between elements of the kernel (dilation), one number or one for each dimension.
      padding: `"SAME"`, `"VALID"` or `"SAME_LOWER"`; a pair `(before, after)`; a sequence of pairs; a function of
        `hkx.pad` such as `hkx.pad.causal`; or a sequence of functions. A sequence has one entry for each dimension,
        or one for all.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, input_channels / feature_group_count, output_channels]`; by
        default a normal distribution with standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NHWC"` or `"NCHW"`; see `hkx.get_channel_index`.
      mask: an array with the shape of `w`, by which `w` is multiplied.
      feature_group_count: the number of groups of channels; each group is convolved separately.
      name: the module's name.
      implementation: `"xla"`, or `"dot"` for compiled loops on a CPU; see `hkx.ConvND`.

    Raises:
      ValueError: if `data_format` does not say where the channels are, or `implementation` is neither.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Conv2D(6, kernel_shape=3, stride=2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 8, 8, 4]))
      >>> jax.tree.map(jnp.shape, params)
      {'conv2_d': {'b': (6,), 'w': (3, 3, 4, 6)}}
    """

    num_spatial_dims = 2


class Conv3D(_OfRank):
    """`hkx.ConvND` over three dimensions.

    The inputs are `[N, D, H, W, C]`, or `[N, C, D, H, W]` with `data_format="NCDHW"`; the batch dimension is
    optional.

    Args:
      output_channels: the number of output channels.
      kernel_shape: the size of the kernel, one number or one for each dimension.
      stride: the step between outputs, one number or one for each dimension.
      rate: the step between elements of the kernel (dilation), one number or one for each dimension.
      padding: `"SAME"`, `"VALID"` or `"SAME_LOWER"`; a pair `(before, after)`; a sequence of pairs; a function of
        `hkx.pad` such as `hkx.pad.causal`; or a sequence of functions. A sequence has one entry for each dimension,
        or one for all.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[*kernel_shape, input_channels / feature_group_count, output_channels]`; by
        default a normal distribution with standard deviation `1 / sqrt(fan_in)`, truncated at two standard deviations.
      b_init: initializer of `b`; zeros by default.
      data_format: `"NDHWC"` or `"NCDHW"`; see `hkx.get_channel_index`.
      mask: an array with the shape of `w`, by which `w` is multiplied.
      feature_group_count: the number of groups of channels; each group is convolved separately.
      name: the module's name.
      implementation: `"xla"`, or `"dot"` for compiled loops on a CPU; see `hkx.ConvND`.

    Raises:
      ValueError: if `data_format` does not say where the channels are, or `implementation` is neither.
      TypeError: if a sequence has neither one entry nor one for each dimension.
      InvalidPaddingError: if `padding` is none of these.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Conv3D(6, kernel_shape=3, padding="VALID")(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 4, 4, 4, 2]))
      >>> model.apply(params, None, jnp.ones([1, 4, 4, 4, 2])).shape
      (1, 2, 2, 2, 6)
    """

    num_spatial_dims = 3
