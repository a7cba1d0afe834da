"""BroNet: a residual network whose layers are all normalised."""

from __future__ import annotations

import math

import jax

from hkx import LayerNorm, Linear, Module
from hkx.arguments import Num, PositiveSize, Size
from hkx.initializers import Orthogonal


def _normalised(x: jax.Array, size: int, number: int) -> jax.Array:
    x = Linear(size, w_init=Orthogonal(math.sqrt(2)), name=f"linear_{number}")(x)
    return LayerNorm(-1, True, True, name=f"layer_norm_{number}")(x)


class BroNetBlock(Module):
    """BroNet's residual block: `x + norm(linear(relu(norm(linear(x)))))`.

    Parameters, under the module's name: `linear_0`, `layer_norm_0`, `linear_1` and `layer_norm_1`.

    Reference: Nauman et al. (2024), "Bigger, regularized, optimistic: scaling for compute and sample-efficient
    continuous control", arXiv:2405.16158.

    Args:
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.nets.BroNetBlock()(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([2, 8]))
      >>> sorted(params)
      ['bro_net_block/layer_norm_0', 'bro_net_block/layer_norm_1', 'bro_net_block/linear_0', 'bro_net_block/linear_1']
    """

    def __call__(self, inputs: Num[jax.Array, "... D"]) -> jax.Array:
        """Applies the block.

        Args:
          inputs: `[..., size]`.

        Returns:
          An array of the shape of `inputs`.

        Raises:
          ScalarInputError: if `inputs` is a scalar.
        """
        size = inputs.shape[-1]
        return inputs + _normalised(jax.nn.relu(_normalised(inputs, size, 0)), size, 1)  # [..., size]


class BroNet(Module):
    """The network of BRO's critics and actors, without an output layer: blocks after `relu(norm(linear(x)))`.

    Parameters, under the module's name: `linear_0` and `layer_norm_0`, and those of `hkx.nets.BroNetBlock` under
    `block_0`, `block_1`, ….

    Reference: Nauman et al. (2024), "Bigger, regularized, optimistic: scaling for compute and sample-efficient
    continuous control", arXiv:2405.16158, whose critic has 2 blocks of 512 units and whose actor has 1 of 256.

    Args:
      hidden_size: the number of units per layer.
      num_blocks: the number of blocks.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def critic(observation, action):
      ...     return hkx.Linear(1)(hkx.nets.BroNet(8, 1)(jnp.concatenate([observation, action], axis=-1)))
      >>> params = hkx.transform(critic).init(jax.random.key(0), jnp.ones([2, 3]), jnp.ones([2, 1]))
      >>> params["bro_net/linear_0"]["w"].shape, params["bro_net/block_0/linear_1"]["w"].shape
      ((4, 8), (8, 8))
    """

    def __init__(self, hidden_size: PositiveSize = 512, num_blocks: Size = 2, name: str | None = None):
        super().__init__(name=name)
        self.hidden_size = hidden_size
        self.num_blocks = num_blocks

    def __call__(self, inputs: Num[jax.Array, "... D"]) -> jax.Array:
        """Applies the network.

        Args:
          inputs: `[..., input_size]`.

        Returns:
          `[..., hidden_size]`.

        Raises:
          ScalarInputError: if `inputs` is a scalar.
        """
        x = jax.nn.relu(_normalised(inputs, self.hidden_size, 0))
        for i in range(self.num_blocks):
            x = BroNetBlock(name=f"block_{i}")(x)
        return x
