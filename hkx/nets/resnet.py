"""Residual networks for images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp

from hkx import BatchNorm, Conv2D, Linear, Module, max_pool
from hkx.arguments import Flag, Items, Num, Rule, Size, Sizes


def _keywords(value: Any, argument: str, taker: str) -> Any:
    if not hasattr(value, "keys"):  # a `ConfigDict` is not a Mapping
        raise TypeError(f"`{argument}` of `{taker}` must be keyword arguments in a dict, such as {{}}, got {value!r}.")
    return value


Config = Annotated[Mapping[str, Any], Rule(_keywords, lambda value: not hasattr(value, "shape") and not value)]


def _convolution(channels: int, kernel: int, stride: int, name: str) -> Conv2D:
    return Conv2D(
        output_channels=channels, kernel_shape=kernel, stride=stride, with_bias=False, padding="SAME", name=name
    )


def _shapes(channels: int, stride: int, bottleneck: bool) -> list[tuple[int, int, int]]:
    """The channels, kernel size and stride of each convolution of a block."""
    if bottleneck:
        return [(channels // 4, 1, 1), (channels // 4, 3, stride), (channels, 1, 1)]
    return [(channels, 3, stride), (channels, 3, 1)]


class BlockV1(Module):
    """A block of the first version: convolutions, each followed by batch normalisation, and a shortcut around them.

    `y = relu(x' + f(x))`, where `x'` is `x`, or a 1×1 convolution of it with batch normalisation. In a bottleneck the
    last scale of `f` is initialised to zero, so a new block without projection passes its input through.

    Args:
      channels: the number of output channels.
      stride: the stride of the block.
      use_projection: whether the shortcut has a convolution; needed where the stride is not 1 or the channels change.
      bn_config: keyword arguments of every `hkx.BatchNorm`; it must include `create_scale`, `create_offset` and
        `decay_rate`.
      bottleneck: three convolutions (1×1, 3×3, 1×1) with a quarter of the channels inside, rather than two of 3×3.
      name: the module's name.

    Example:
      >>> import hkx, jax, jax.numpy as jnp
      >>> norm = {"create_scale": True, "create_offset": True, "decay_rate": 0.9}
      >>> block = hkx.transform_with_state(lambda x: hkx.nets.ResNet.BlockV1(4, 2, True, norm, False)(x, True, False))
      >>> params, _ = jax.eval_shape(block.init, jax.random.key(0), jnp.ones([1, 8, 8, 3]))
      >>> params["block_v1/~/shortcut_conv"]["w"].shape
      (1, 1, 3, 4)
    """

    def __init__(
        self,
        channels: Size,
        stride: Sizes,
        use_projection: Flag,
        bn_config: Config,
        bottleneck: Flag,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.use_projection = use_projection
        if use_projection:
            self.proj_conv = _convolution(channels, 1, stride, "shortcut_conv")  # type: ignore[arg-type]
            self.proj_batchnorm = BatchNorm(name="shortcut_batchnorm", **bn_config)
        shapes = _shapes(channels, stride, bottleneck)  # type: ignore[arg-type]
        layers = []
        for i, shape in enumerate(shapes):
            last = {"scale_init": jnp.zeros} if bottleneck and i == len(shapes) - 1 else {}
            convolution = _convolution(*shape, name=f"conv_{i}")
            layers.append((convolution, BatchNorm(name=f"batchnorm_{i}", **{**last, **bn_config})))
        self.layers = tuple(layers)

    def __call__(self, inputs: jax.Array, is_training: Flag, test_local_stats: Flag) -> jax.Array:
        """Applies the block to `inputs`, shape `[N, H, W, C]`; the other arguments are as in `hkx.BatchNorm`."""
        out = shortcut = inputs
        if self.use_projection:
            shortcut = self.proj_batchnorm(self.proj_conv(shortcut), is_training, test_local_stats)
        for i, (convolution, norm) in enumerate(self.layers):
            out = norm(convolution(out), is_training, test_local_stats)
            if i < len(self.layers) - 1:
                out = jax.nn.relu(out)
        return jax.nn.relu(out + shortcut)


class BlockV2(Module):
    """A block of the second version, with batch normalisation and activation before each convolution.

    `y = x' + f(x)`, where `x'` is `x`, or a 1×1 convolution of the input of the first convolution.

    Args:
      channels: the number of output channels.
      stride: the stride of the block.
      use_projection: whether the shortcut has a convolution; needed where the stride is not 1 or the channels change.
      bn_config: as for `BlockV1`.
      bottleneck: as for `BlockV1`.
      name: the module's name.

    Example:
      >>> import hkx, jax, jax.numpy as jnp
      >>> norm = {"create_scale": True, "create_offset": True, "decay_rate": 0.9}
      >>> block = hkx.transform_with_state(lambda x: hkx.nets.ResNet.BlockV2(8, 1, True, norm, True)(x, True, False))
      >>> params, _ = jax.eval_shape(block.init, jax.random.key(0), jnp.ones([1, 8, 8, 3]))
      >>> params["block_v2/~/conv_1"]["w"].shape
      (3, 3, 2, 2)
    """

    def __init__(
        self,
        channels: Size,
        stride: Sizes,
        use_projection: Flag,
        bn_config: Config,
        bottleneck: Flag,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.use_projection = use_projection
        if use_projection:
            self.proj_conv = _convolution(channels, 1, stride, "shortcut_conv")  # type: ignore[arg-type]
        self.layers = tuple(
            (_convolution(*shape, name=f"conv_{i}"), BatchNorm(name=f"batchnorm_{i}", **bn_config))
            for i, shape in enumerate(_shapes(channels, stride, bottleneck))  # type: ignore[arg-type]
        )

    def __call__(self, inputs: jax.Array, is_training: Flag, test_local_stats: Flag) -> jax.Array:
        """Applies the block to `inputs`, shape `[N, H, W, C]`; the other arguments are as in `hkx.BatchNorm`."""
        out = shortcut = inputs
        for i, (convolution, norm) in enumerate(self.layers):
            out = jax.nn.relu(norm(out, is_training, test_local_stats))
            if i == 0 and self.use_projection:
                shortcut = self.proj_conv(out)
            out = convolution(out)
        return out + shortcut


class BlockGroup(Module):
    """Several blocks; the first one has the stride and the projection.

    Args:
      channels: the number of output channels.
      num_blocks: the number of blocks.
      stride: the stride of the first block.
      bn_config: as for `BlockV1`.
      resnet_v2: whether the blocks are `BlockV2` rather than `BlockV1`.
      bottleneck: as for `BlockV1`.
      use_projection: whether the shortcut of the first block has a convolution.
      name: the module's name.

    Example:
      >>> import hkx, jax, jax.numpy as jnp
      >>> norm = {"create_scale": True, "create_offset": True, "decay_rate": 0.9}
      >>> def f(x):
      ...     return hkx.nets.ResNet.BlockGroup(4, 2, 1, norm, False, False, True)(x, True, False)
      >>> params, _ = jax.eval_shape(hkx.transform_with_state(f).init, jax.random.key(0), jnp.ones([1, 8, 8, 3]))
      >>> [name for name in params if name.endswith("conv_0")]
      ['block_group/~/block_0/~/conv_0', 'block_group/~/block_1/~/conv_0']
    """

    def __init__(
        self,
        channels: Size,
        num_blocks: Size,
        stride: Sizes,
        bn_config: Config,
        resnet_v2: Flag,
        bottleneck: Flag,
        use_projection: Flag,
        name: str | None = None,
    ):
        super().__init__(name=name)
        block = BlockV2 if resnet_v2 else BlockV1
        self.blocks = [
            block(
                channels=channels,
                stride=1 if i else stride,
                use_projection=use_projection and i == 0,
                bn_config=bn_config,
                bottleneck=bottleneck,
                name=f"block_{i}",
            )
            for i in range(num_blocks)
        ]

    def __call__(self, inputs: jax.Array, is_training: Flag, test_local_stats: Flag) -> jax.Array:
        """Applies the blocks to `inputs`, shape `[N, H, W, C]`; the other arguments are as in `hkx.BatchNorm`."""
        out = inputs
        for block in self.blocks:
            out = block(out, is_training, test_local_stats)
        return out


_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}


class ResNet(Module):
    """A residual network: a convolution, pooling, four groups of blocks, the mean over positions, and a linear layer.

    References: He et al. (2015), "Deep residual learning for image recognition", arXiv:1512.03385; He et al. (2016),
    "Identity mappings in deep residual networks", arXiv:1603.05027, for the second version; Goyal et al. (2017),
    arXiv:1706.02677, for the zero-initialised scales.

    Args:
      blocks_per_group: the number of blocks in each of the four groups.
      num_classes: the number of logits.
      bn_config: keyword arguments of every `hkx.BatchNorm`; by default a decay rate of 0.9, an epsilon of 1e-5, a scale
        and an offset.
      resnet_v2: whether to use blocks of the second version, with the activation before the convolution.
      bottleneck: whether blocks have three convolutions (1×1, 3×3, 1×1) rather than two of 3×3.
      channels_per_group: the number of output channels of each group.
      use_projection: for each group, whether the shortcut of its first block has a convolution.
      logits_config: keyword arguments of the last `hkx.Linear`; by default its weights are initialised to zero.
      name: the module's name.
      initial_conv_config: keyword arguments of the first `hkx.Conv2D`; by default 64 channels, a kernel of 7 and a
        stride of 2.
      strides: the stride of each group.

    Raises:
      ValueError: if one of the sequences does not have four members.

    Example:
      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     net = hkx.nets.ResNet([1, 1, 1, 1], 10, channels_per_group=(8, 16, 32, 64))
      ...     return net(x, is_training=True)
      >>> model = hkx.transform_with_state(f)
      >>> params, state = jax.eval_shape(model.init, jax.random.key(0), jnp.ones([2, 32, 32, 3]))
      >>> params["res_net/~/logits"]["w"].shape
      (64, 10)
    """

    CONFIGS: ClassVar[dict[int, dict[str, Any]]] = {
        depth: {
            "blocks_per_group": blocks,
            "bottleneck": depth >= 50,
            "channels_per_group": (256, 512, 1024, 2048) if depth >= 50 else (64, 128, 256, 512),
            "use_projection": (depth >= 50, True, True, True),
        }
        for depth, blocks in _BLOCKS.items()
    }
    """The arguments that the networks known by their depth differ in."""

    BlockGroup = BlockGroup
    BlockV1 = BlockV1
    BlockV2 = BlockV2

    def __init__(
        self,
        blocks_per_group: Items[Size],
        num_classes: Size,
        bn_config: Config | None = None,
        resnet_v2: Flag = False,
        bottleneck: Flag = True,
        channels_per_group: Items[Size] = (256, 512, 1024, 2048),
        use_projection: Items[Flag] = (True, True, True, True),
        logits_config: Config | None = None,
        name: str | None = None,
        initial_conv_config: Config | None = None,
        strides: Items[Sizes] = (1, 2, 2, 2),
    ):
        super().__init__(name=name)
        self.resnet_v2 = resnet_v2
        norm = {"decay_rate": 0.9, "eps": 1e-5, "create_scale": True, "create_offset": True, **(bn_config or {})}
        per_group = {"blocks_per_group": blocks_per_group, "channels_per_group": channels_per_group}
        for what, given in {**per_group, "strides": strides, "use_projection": use_projection}.items():
            if (length := len(tuple(given))) != 4:
                raise ValueError(f"`{what}` must be of length 4 not {length}, one for each group: got {given}.")
        first = {"output_channels": 64, "kernel_shape": 7, "stride": 2, "with_bias": False, "padding": "SAME"}
        self.initial_conv = Conv2D(**{**first, "name": "initial_conv", **(initial_conv_config or {})})  # type: ignore[arg-type]
        if not resnet_v2:
            self.initial_batchnorm = BatchNorm(name="initial_batchnorm", **norm)
        groups = zip(channels_per_group, blocks_per_group, strides, use_projection, strict=True)
        self.block_groups = [
            BlockGroup(channels, num_blocks, stride, norm, resnet_v2, bottleneck, projection, f"block_group_{i}")
            for i, (channels, num_blocks, stride, projection) in enumerate(groups)
        ]
        if resnet_v2:
            self.final_batchnorm = BatchNorm(name="final_batchnorm", **norm)
        self.logits = Linear(num_classes, **{"w_init": jnp.zeros, "name": "logits", **(logits_config or {})})

    def __call__(self, inputs: Num[jax.Array, "..."], is_training: Flag, test_local_stats: Flag = False) -> jax.Array:
        """Applies the network.

        Args:
          inputs: images, shape `[N, H, W, C]`.
          is_training: whether to use the statistics of this batch and update their moving averages.
          test_local_stats: whether to use the statistics of this batch even when not training.

        Returns:
          Logits, shape `[N, num_classes]`.
        """
        out = self.initial_conv(inputs)
        if not self.resnet_v2:
            out = jax.nn.relu(self.initial_batchnorm(out, is_training, test_local_stats))
        out = max_pool(out, window_shape=(1, 3, 3, 1), strides=(1, 2, 2, 1), padding="SAME")
        for group in self.block_groups:
            out = group(out, is_training, test_local_stats)
        if self.resnet_v2:
            out = jax.nn.relu(self.final_batchnorm(out, is_training, test_local_stats))
        return self.logits(jnp.mean(out, axis=(1, 2)))


class _OfDepth(ResNet):
    """The base of residual networks with one of the depths in the papers."""

    depth: int

    def __init__(
        self,
        num_classes: int,
        bn_config: Config | None = None,
        resnet_v2: bool = False,
        logits_config: Config | None = None,
        name: str | None = None,
        initial_conv_config: Config | None = None,
        strides: Sequence[int] = (1, 2, 2, 2),
    ):
        super().__init__(
            num_classes=num_classes,
            bn_config=bn_config,
            resnet_v2=resnet_v2,
            logits_config=logits_config,
            name=name,
            initial_conv_config=initial_conv_config,
            strides=strides,
            **ResNet.CONFIGS[self.depth],
        )


class ResNet18(_OfDepth):
    """`ResNet` with 18 layers: two blocks of two convolutions in each group.

    Args:
      num_classes, bn_config, resnet_v2, logits_config, name, initial_conv_config, strides: as for `ResNet`.

    Example:
      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform_with_state(lambda x: hkx.nets.ResNet18(1000)(x, is_training=True))
      >>> params, state = jax.eval_shape(model.init, jax.random.key(0), jnp.ones([1, 224, 224, 3]))
      >>> hkx.data_structures.tree_size(params)
      11689512
    """

    depth = 18


class ResNet34(_OfDepth):
    """`ResNet` with 34 layers: 3, 4, 6 and 3 blocks of two convolutions.

    Args:
      num_classes, bn_config, resnet_v2, logits_config, name, initial_conv_config, strides: as for `ResNet`.

    Example:
      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform_with_state(lambda x: hkx.nets.ResNet34(1000)(x, is_training=True))
      >>> params, state = jax.eval_shape(model.init, jax.random.key(0), jnp.ones([1, 224, 224, 3]))
      >>> hkx.data_structures.tree_size(params)
      21797672
    """

    depth = 34


class ResNet50(_OfDepth):
    """`ResNet` with 50 layers: 3, 4, 6 and 3 blocks of three convolutions.

    Args:
      num_classes, bn_config, resnet_v2, logits_config, name, initial_conv_config, strides: as for `ResNet`.

    Example:
      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform_with_state(lambda x: hkx.nets.ResNet50(1000)(x, is_training=True))
      >>> params, state = jax.eval_shape(model.init, jax.random.key(0), jnp.ones([1, 224, 224, 3]))
      >>> hkx.data_structures.tree_size(params)
      25557032
    """

    depth = 50


class ResNet101(_OfDepth):
    """`ResNet` with 101 layers: 3, 4, 23 and 3 blocks of three convolutions.

    Args:
      num_classes, bn_config, resnet_v2, logits_config, name, initial_conv_config, strides: as for `ResNet`.

    Example:
      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform_with_state(lambda x: hkx.nets.ResNet101(1000)(x, is_training=True))
      >>> params, state = jax.eval_shape(model.init, jax.random.key(0), jnp.ones([1, 224, 224, 3]))
      >>> hkx.data_structures.tree_size(params)
      44549160
    """

    depth = 101


class ResNet152(_OfDepth):
    """`ResNet` with 152 layers: 3, 8, 36 and 3 blocks of three convolutions.

    Args:
      num_classes, bn_config, resnet_v2, logits_config, name, initial_conv_config, strides: as for `ResNet`.

    Example:
      >>> import hkx
      >>> model = hkx.transform_with_state(lambda x: hkx.nets.ResNet152(1000)(x, is_training=True))
      >>> hkx.nets.ResNet.CONFIGS[152]["blocks_per_group"]
      (3, 8, 36, 3)
    """

    depth = 152


class ResNet200(_OfDepth):
    """`ResNet` with 200 layers: 3, 24, 36 and 3 blocks of three convolutions.

    Args:
      num_classes, bn_config, resnet_v2, logits_config, name, initial_conv_config, strides: as for `ResNet`.

    Example:
      >>> import hkx
      >>> model = hkx.transform_with_state(lambda x: hkx.nets.ResNet200(1000)(x, is_training=True))
      >>> hkx.nets.ResNet.CONFIGS[200]["blocks_per_group"]
      (3, 24, 36, 3)
    """

    depth = 200
