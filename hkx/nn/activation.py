"""Activations that have parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hkx import Module, get_parameter, initializers
from hkx.arguments import Float, Index
from hkx.errors import InvalidRankError
from hkx.initializers import Initializer


class PReLU(Module):
    """`y = x` where x is positive, and `alpha * x` elsewhere, with a trainable `alpha`.

    Reference: He et al. (2015), "Delving deep into rectifiers: surpassing human-level performance on ImageNet
    classification", arXiv:1502.01852.

    Args:
      param_axis: the dimension along which each element has its own `alpha`, such as the channels; None uses a single
        number.
      alpha_init: initializer of `alpha`; 0.25 by default.
      name: the module's name.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.PReLU()(x))
      >>> x = jnp.array([-4.0, 4.0])
      >>> print(model.apply(model.init(None, x), None, x))
      [-1.  4.]
    """

    def __init__(self, param_axis: Index | None = None, alpha_init: Initializer | None = None, name: str | None = None):
        super().__init__(name=name)
        self.param_axis = param_axis
        self.alpha_init = alpha_init or initializers.Constant(0.25)

    def __call__(self, x: Float[jax.Array, "..."]) -> jax.Array:
        """Applies the activation to an array of any shape and floating dtype.

        Raises:
          InputDTypeError: if it is of integers: `alpha` would be an integer too.
          InvalidRankError: if it has no dimension `param_axis`.
        """
        shape, axes = x.shape, ()
        if self.param_axis is not None:
            if not -len(shape) <= self.param_axis < len(shape):
                raise InvalidRankError("PReLU", "x", shape, max(self.param_axis + 1, -self.param_axis))
            axes = (self.param_axis % len(shape),)
        alpha = get_parameter("alpha", [shape[i] for i in axes], x.dtype, init=self.alpha_init)
        return jnp.where(x >= 0, x, jax.lax.broadcast_in_dim(alpha, shape, axes) * x)
