"""A small image network of depthwise separable convolutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hkx import BatchNorm, Conv2D, DepthwiseConv2D, Flatten, Linear, Module
from hkx.arguments import Flag, Items, Num, Size, Sizes


def _norm() -> BatchNorm:
    return BatchNorm(create_scale=True, create_offset=True, decay_rate=0.999)


class MobileNetV1Block(Module):
    """A depthwise 3×3 convolution, then a pointwise 1×1 convolution.

    Each is followed by optional batch normalisation and a ReLU.

    Args:
      channels: the number of output channels.
      stride: the stride of the first convolution.
      use_bn: whether to use batch normalisation; without it the convolutions have biases.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> from hkx.nets.mobilenet import MobileNetV1Block
      >>> model = hkx.transform(lambda x: MobileNetV1Block(8, 2, use_bn=False)(x, is_training=True))
      >>> x = jnp.ones([1, 6, 6, 3])
      >>> model.apply(model.init(jax.random.key(0), x), None, x).shape
      (1, 3, 3, 8)
    """

    def __init__(self, channels: Size, stride: Sizes, use_bn: Flag = True, name: str | None = None):
        super().__init__(name=name)
        self.channels = channels
        self.stride = stride
        self.use_bn = use_bn
        self.with_bias = not use_bn

    def __call__(self, inputs: jax.Array, is_training: Flag) -> jax.Array:
        """Applies the block to `inputs`, shape `[N, H, W, C]`; `is_training` is as in `hkx.BatchNorm`."""
        depthwise = DepthwiseConv2D(
            channel_multiplier=1,
            kernel_shape=3,
            stride=self.stride,
            padding=((1, 1), (1, 1)),
            with_bias=self.with_bias,
            name="depthwise_conv",
        )
        pointwise = Conv2D(
            output_channels=self.channels,
            kernel_shape=(1, 1),
            stride=1,
            padding="VALID",
            with_bias=self.with_bias,
            name="pointwise_conv",
        )
        out = inputs
        for convolution in (depthwise, pointwise):
            out = convolution(out)
            if self.use_bn:
                out = _norm()(out, is_training)
            out = jax.nn.relu(out)
        return out


class MobileNetV1(Module):
    """An efficient network for image classification.

    Reference: Howard et al. (2017), "MobileNets: efficient convolutional neural networks for mobile vision
    applications", arXiv:1704.04861.

    Args:
      strides: the stride of each block.
      channels: the number of output channels of each block.
      num_classes: the number of logits.
      use_bn: whether to use batch normalisation; without it the convolutions have biases.
      name: the module's name.

    Raises:
      ValueError: if `strides` and `channels` have different lengths.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     return hkx.nets.MobileNetV1(strides=(1, 2), channels=(8, 16), num_classes=10)(x, is_training=True)
      >>> x = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.float32)
      >>> params, state = jax.eval_shape(hkx.transform_with_state(f).init, jax.random.key(0), x)
      >>> params["mobile_net_v1/logits"]["w"].shape
      (16, 10)
    """

    def __init__(
        self,
        strides: Items[Sizes] = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1),
        channels: Items[Size] = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024),
        num_classes: Size = 1000,
        use_bn: Flag = True,
        name: str | None = None,
    ):
        super().__init__(name=name)
        strides, channels = tuple(strides), tuple(channels)
        if len(strides) != len(channels):
            raise ValueError(
                "`strides` and `channels` must have the same length, one entry for each block: got "
                f"{len(strides)} and {len(channels)}."
            )
        self.strides = strides
        self.channels = channels
        self.use_bn = use_bn
        self.with_bias = not use_bn
        self.num_classes = num_classes

    def __call__(self, inputs: Num[jax.Array, "..."], is_training: Flag) -> jax.Array:
        """Applies the network.

        Args:
          inputs: images, shape `[N, H, W, C]`.
          is_training: whether batch normalisation uses the statistics of this batch, and updates its averages.

        Returns:
          Logits, shape `[N, num_classes]`.
        """
        first = Conv2D(output_channels=32, kernel_shape=(3, 3), stride=2, padding="VALID", with_bias=self.with_bias)
        out = first(inputs)
        if self.use_bn:
            out = _norm()(out, is_training)
        out = jax.nn.relu(out)
        for channels, stride in zip(self.channels, self.strides, strict=True):
            out = MobileNetV1Block(channels, stride, self.use_bn)(out, is_training)
        out = Flatten()(jnp.mean(out, axis=(1, 2)))
        return Linear(self.num_classes, name="logits")(out)
