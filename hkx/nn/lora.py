"""Low-rank adaptation of a linear layer."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hkx import Linear, get_parameter, initializers
from hkx.arguments import Flag, Num, Number, PositiveSize, Size
from hkx.initializers import Initializer


class LoRALinear(Linear):
    """`y = x w + b + (alpha / rank) x A B`, where only A and B are meant to be trained.

    B starts at zero, so the layer starts as `hkx.Linear`. It has the same parameters `w` and `b`, and also `lora_a` and
    `lora_b`. To choose which parameters are trained, split them with `hkx.data_structures.partition`.

    Reference: Hu et al. (2021), "LoRA: low-rank adaptation of large language models", arXiv:2106.09685.

    Args:
      output_size: the size of the last dimension of the output.
      rank: the rank of the added matrix.
      alpha: the scale of the added matrix, times `rank`; `rank` by default, which gives a scale of 1.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, as for `hkx.Linear`.
      b_init: initializer of `b`; zeros by default.
      a_init: initializer of `lora_a`, shape `[input_size, rank]`; by default uniform with variance `2 / input_size`.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.LoRALinear(4, rank=2)(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([1, 3])))["lo_ra_linear"]
      {'b': (4,), 'lora_a': (3, 2), 'lora_b': (2, 4), 'w': (3, 4)}
    """

    def __init__(
        self,
        output_size: Size,
        rank: PositiveSize,
        alpha: Number[float, "any"] | None = None,
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        a_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(output_size, with_bias, w_init, b_init, name)
        self.rank = rank
        self.alpha = self.rank if alpha is None else alpha
        self.a_init = a_init or initializers.VarianceScaling(2.0, "fan_in", "uniform")

    def __call__(self, inputs: Num[jax.Array, "... D"], *, precision: jax.lax.PrecisionLike = None) -> jax.Array:
        """Applies the layer; see `hkx.Linear`."""
        out = super().__call__(inputs, precision=precision)  # [..., output_size]
        dtype = inputs.dtype
        a = get_parameter("lora_a", [inputs.shape[-1], self.rank], dtype, init=self.a_init)
        b = get_parameter("lora_b", [self.rank, self.output_size], dtype, init=jnp.zeros)
        change = jnp.dot(jnp.dot(inputs, a, precision=precision), b, precision=precision)  # [..., output_size]
        return out + change * (self.alpha / self.rank)
