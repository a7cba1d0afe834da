"""Root-mean-square normalisation."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from hkx import Module, get_parameter, traced_once
from hkx.arguments import Axes, Flag, Num, Number
from hkx.initializers import Constant, Initializer
from hkx.nn.norm.affine import check_axes, check_inits, parameter_shape, resolved_axes
from hkx.nn.numerics import constant, narrowed, widened


class RMSNorm(Module):
    """Divides each example by the root of the mean of its squares: `y = x / sqrt(E[x**2] + eps) * scale`.

    Reference: Zhang & Sennrich (2019), "Root mean square layer normalization", arXiv:1910.07467.

    Args:
      axis: the dimensions over which the mean is computed: one, several, or a slice of all.
      eps: a constant that is added to the mean.
      scale_init: initializer of `scale`; ones by default.
      name: the module's name.
      create_scale: whether there is a parameter `scale`.
      param_axis: the dimensions along which `scale` has one entry for each element: one, several, or a slice of all; by
        default the last.
      scale_offset: a constant that is added to `scale`; with 1, as in Gemma, it starts as zeros by default.

    Raises:
      ValueError: if `scale_init` is given and there is no scale, or `axis` or `param_axis` is not an int, a slice or a
        sequence of ints.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.RMSNorm(axis=-1)(x))
      >>> x = jnp.array([[-2.0, 14.0]])  # the mean of the squares is 100
      >>> bool(jnp.allclose(model.apply(model.init(None, x), None, x), x / 10))
      True
    """

    def __init__(
        self,
        axis: Axes,
        eps: Number[float, "[0, inf)", "..."] = 1e-5,
        scale_init: Initializer | None = None,
        name: str | None = None,
        create_scale: Flag = True,
        *,
        param_axis: Axes | None = None,
        scale_offset: Number[float, "any"] = 0.0,
    ):
        super().__init__(name=name)
        check_inits(create_scale, True, scale_init, None)
        self.axis = axis
        self.eps = eps
        self.create_scale = create_scale
        self.scale_init = scale_init or (Constant(1 - scale_offset) if scale_offset else jnp.ones)
        self.scale_offset = scale_offset
        self.param_axis = (-1,) if param_axis is None else param_axis

    def __call__(self, inputs: Num[jax.Array, "... D"]) -> jax.Array:
        """Normalises `inputs`, an array of any shape and floating dtype.

        Raises:
          InvalidInputError: if `inputs` is not an array.
          ScalarInputError: if it is a scalar.
          IndexError: if `axis` or `param_axis` is not one of its dimensions.
        """
        shape, dtype = inputs.shape, inputs.dtype
        axis = resolved_axes(self.axis, len(shape))
        check_axes(axis, shape, "hkx.RMSNorm")
        wide = widened(inputs)
        squares = _mean_of_squares(wide, axis=axis)  # of size 1 along `axis`
        eps, scale = constant(self.eps, squares.dtype), None
        if self.create_scale:
            own = parameter_shape(self.param_axis, shape, "hkx.RMSNorm")
            scale = widened(get_parameter("scale", own, dtype, init=self.scale_init))
            scale = scale + self.scale_offset if self.scale_offset else scale
        return narrowed(_divided_by_root(wide, squares, eps, scale), inputs)


@functools.partial(traced_once, static_argnames="axis")
def _mean_of_squares(inputs: Any, *, axis: tuple[int, ...]) -> jax.Array:
    return jnp.mean(jnp.square(inputs), axis=axis, keepdims=True)


@traced_once
def _divided_by_root(inputs: Any, squares: Any, eps: Any, scale: Any) -> jax.Array:
    inverse = jax.lax.rsqrt(squares + eps)
    return inputs * inverse if scale is None else inputs * jnp.broadcast_to(scale, inputs.shape) * inverse
