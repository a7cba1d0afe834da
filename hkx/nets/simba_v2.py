"""SimbaV2: features and weights on the unit sphere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hkx import Module, get_parameter
from hkx.arguments import Num, Number, PositiveSize, Size
from hkx.initializers import Constant, Orthogonal

_UNIT = "unit_w"
_LEAST_NORM = 1e-8


def _on_sphere(x: jax.Array, axis: int = -1) -> jax.Array:
    """x / ‖x‖, with the zero vector unchanged."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    squares = jnp.sum(jnp.square(wide), axis=axis, keepdims=True)
    return (wide * jax.lax.rsqrt(jnp.maximum(squares, _LEAST_NORM**2))).astype(x.dtype)


def _orthogonal(shape: Sequence[int], dtype: Any) -> jax.Array:
    return _on_sphere(Orthogonal()(shape, dtype), axis=0)


def _linear(x: jax.Array, size: int, name: str) -> jax.Array:
    return jnp.dot(x, get_parameter(name, [x.shape[-1], size], x.dtype, init=_orthogonal))


def _scaled(x: jax.Array, name: str, value: float, scale: float) -> jax.Array:
    """`x` times a parameter that is learnt as if initialised to `scale`, and acts as if initialised to `value`."""
    parameter = get_parameter(name, x.shape[-1:], x.dtype, init=Constant(scale))
    return x * jnp.broadcast_to(parameter * (value / scale), x.shape)


class SimbaV2Block(Module):
    """SimbaV2's block: moves a point on the unit sphere towards another, `unit((1 - α) x + α unit(W2 relu(s W1 x)))`.

    s and α are learnt vectors. Parameters, under the module's name: `unit_w_1`, `scaler`, `unit_w_2` and `alpha`. α is
    `alpha_init * sqrt(size)` times the parameter `alpha`, which starts at `1 / sqrt(size)`, as in the paper. The
    columns of the matrices have length 1 initially, and after each update once `hkx.nets.project_to_sphere` has been
    applied.

    Reference: Lee et al. (2025), "Hyperspherical normalization for scalable deep reinforcement learning",
    arXiv:2502.15280.

    Args:
      alpha_init: the initial value of α; `1 / (num_blocks + 1)` in the paper.
      expansion: the ratio of hidden units to input size.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.nets.SimbaV2Block(0.5)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([2, 8]))
      >>> jax.tree.map(jnp.shape, params)
      {'simba_v2_block': {'alpha': (8,), 'scaler': (32,), 'unit_w_1': (8, 32), 'unit_w_2': (32, 8)}}
    """

    def __init__(self, alpha_init: Number[float, "any"], expansion: PositiveSize = 4, name: str | None = None):
        super().__init__(name=name)
        self.alpha_init = alpha_init
        self.expansion = expansion

    def __call__(self, inputs: Num[jax.Array, "... D"]) -> jax.Array:
        """Applies the block.

        Args:
          inputs: `[..., size]`, vectors of length 1.

        Returns:
          An array of the shape of `inputs`, vectors of length 1.

        Raises:
          ScalarInputError: if `inputs` is a scalar.
        """
        x, size = inputs, inputs.shape[-1]
        if size == 0:
            raise ValueError(f"`inputs` of shape {x.shape} has no features: vectors of length 1 have at least one.")
        gain = math.sqrt(2 / (size * self.expansion))
        hidden = _scaled(_linear(x, self.expansion * size, f"{_UNIT}_1"), "scaler", gain, gain)
        other = _on_sphere(_linear(jax.nn.relu(hidden), size, f"{_UNIT}_2"))
        return _on_sphere(x + _scaled(other - x, "alpha", self.alpha_init, 1 / math.sqrt(size)))


class SimbaV2(Module):
    """The network of SimbaV2, without an output layer: features and weights stay on the unit sphere.

    The inputs are projected to the sphere, with an appended constant that preserves their length,
    `unit(s W unit([x, c]))`, and moved along it by the blocks. The paper first whitens observations by running
    statistics. Parameters, under the module's name: `unit_w` and `scaler`, and those of `hkx.nets.SimbaV2Block` under
    `block_0`, `block_1`, ….

    Reference: Lee et al. (2025), "Hyperspherical normalization for scalable deep reinforcement learning",
    arXiv:2502.15280, whose critic has 2 blocks of 512 units and whose actor has 1 of 128.

    Args:
      hidden_size: the number of units between the blocks.
      num_blocks: the number of blocks.
      expansion: the ratio of hidden units in a block to `hidden_size`.
      shift: c, the constant appended to the inputs.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.without_apply_rng(hkx.transform(lambda x: hkx.nets.SimbaV2(8, 1)(x)))
      >>> x = jnp.array([[3.0, -1.0, 2.0]])
      >>> params = model.init(jax.random.key(0), x)
      >>> print(jnp.linalg.norm(model.apply(params, x), axis=-1).round(3))
      [1.]
      >>> gradients = jax.grad(lambda params: model.apply(params, x)[0, 0])(params)
      >>> params = jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients)
      >>> params = hkx.nets.project_to_sphere(params)  # after each update
    """

    def __init__(
        self,
        hidden_size: PositiveSize = 512,
        num_blocks: Size = 2,
        expansion: PositiveSize = 4,
        shift: Number[float, "any"] = 3.0,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.hidden_size = hidden_size
        self.num_blocks = num_blocks
        self.expansion = expansion
        self.shift = shift

    def __call__(self, inputs: Num[jax.Array, "... D"]) -> jax.Array:
        """Applies the network.

        Args:
          inputs: `[..., input_size]`.

        Returns:
          `[..., hidden_size]`, vectors of length 1.

        Raises:
          ScalarInputError: if `inputs` is a scalar.
        """
        x = jnp.concatenate([inputs, jnp.full_like(inputs[..., :1], self.shift)], axis=-1)  # [..., input_size + 1]
        x = _on_sphere(x)
        gain = math.sqrt(2 / self.hidden_size)
        x = _on_sphere(_scaled(_linear(x, self.hidden_size, _UNIT), "scaler", gain, gain))
        for i in range(self.num_blocks):
            x = SimbaV2Block(1 / (self.num_blocks + 1), self.expansion, name=f"block_{i}")(x)
        return x


def project_to_sphere(params: Any) -> Any:
    """Renormalises the columns of SimbaV2's matrices, all parameters whose names begin with `unit_w`, to length 1.

    Reference: Lee et al. (2025), "Hyperspherical normalization for scalable deep reinforcement learning",
    arXiv:2502.15280, which does so after each update.

    Args:
      params: parameters of a function that uses `hkx.nets.SimbaV2`, and of anything else, which is unchanged. Matrices
        stacked along their first axis, such as those of an ensemble, are renormalised one by one.

    Returns:
      The parameters.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.nets.project_to_sphere({"net": {"unit_w": jnp.array([[3.0], [4.0]]), "b": jnp.array([2.0])}})
      {'net': {'unit_w': Array([[0.6],
             [0.8]], dtype=float32), 'b': Array([2.], dtype=float32)}}
    """
    return {
        module: {name: _on_sphere(x, axis=-2) if name.startswith(_UNIT) else x for name, x in entries.items()}
        for module, entries in params.items()
    }
