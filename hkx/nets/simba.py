"""Simba: pre-normalised residual blocks and a final normalisation."""

from __future__ import annotations

import jax

from hkx import LayerNorm, Linear, Module
from hkx.arguments import Num, PositiveSize, Size
from hkx.initializers import Orthogonal, VarianceScaling


class SimbaBlock(Module):
    """Simba's residual block: `x + linear(relu(linear(norm(x))))`, with a wider hidden layer.

    Parameters, under the module's name: `layer_norm`, `linear_0` and `linear_1`.

    Reference: Lee et al. (2024), "SimBa: simplicity bias for scaling up parameters in deep reinforcement learning",
    arXiv:2410.09754.

    Args:
      expansion: the ratio of hidden units to input size.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.nets.SimbaBlock()(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([2, 8]))
      >>> params["simba_block/linear_0"]["w"].shape, params["simba_block/linear_1"]["w"].shape
      ((8, 32), (32, 8))
    """

    def __init__(self, expansion: PositiveSize = 4, name: str | None = None):
        super().__init__(name=name)
        self.expansion = expansion

    def __call__(self, inputs: Num[jax.Array, "... D"]) -> jax.Array:
        """Applies the block.

        Args:
          inputs: `[..., size]`.

        Returns:
          An array of the shape of `inputs`.

        Raises:
          ScalarInputError: if `inputs` is a scalar.
        """
        size, he = inputs.shape[-1], VarianceScaling(2.0)
        hidden = LayerNorm(-1, True, True, name="layer_norm")(inputs)  # [..., size]
        hidden = jax.nn.relu(Linear(self.expansion * size, w_init=he, name="linear_0")(hidden))
        return inputs + Linear(size, w_init=he, name="linear_1")(hidden)  # [..., size]


class Simba(Module):
    """The network of Simba, without an output layer: a linear layer, pre-normalised blocks, and a normalisation.

    The paper first whitens observations by running statistics. Parameters, under the module's name: `linear` and
    `layer_norm`, and those of `hkx.nets.SimbaBlock` under `block_0`, `block_1`, ….

    Reference: Lee et al. (2024), "SimBa: simplicity bias for scaling up parameters in deep reinforcement learning",
    arXiv:2410.09754, whose critic has 2 blocks of 512 units and whose actor has 1 of 128.

    Args:
      hidden_size: the number of units between the blocks.
      num_blocks: the number of blocks.
      expansion: the ratio of hidden units in a block to `hidden_size`.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda observation: hkx.Linear(2)(hkx.nets.Simba(8, 1)(observation)))
      >>> params = model.init(jax.random.key(0), jnp.ones([2, 3]))
      >>> sorted(name for name in params if "block" not in name)
      ['linear', 'simba/layer_norm', 'simba/linear']
    """

    def __init__(
        self,
        hidden_size: PositiveSize = 512,
        num_blocks: Size = 2,
        expansion: PositiveSize = 4,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.hidden_size = hidden_size
        self.num_blocks = num_blocks
        self.expansion = expansion

    def __call__(self, inputs: Num[jax.Array, "... D"]) -> jax.Array:
        """Applies the network.

        Args:
          inputs: `[..., input_size]`.

        Returns:
          `[..., hidden_size]`.

        Raises:
          ScalarInputError: if `inputs` is a scalar.
        """
        x = Linear(self.hidden_size, w_init=Orthogonal(), name="linear")(inputs)  # [..., hidden_size]
        for i in range(self.num_blocks):
            x = SimbaBlock(self.expansion, name=f"block_{i}")(x)
        return LayerNorm(-1, True, True, name="layer_norm")(x)
