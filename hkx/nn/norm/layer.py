"""Layer and instance normalisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hkx import Module, get_channel_index
from hkx.arguments import Axes, Flag, Num, Number
from hkx.initializers import Initializer
from hkx.nn.norm.affine import (
    aligned,
    check_axes,
    check_given,
    check_inits,
    moments,
    normalized,
    parameter_or_given,
    parameter_shape,
    resolved_axes,
)
from hkx.nn.numerics import narrowed, widened


class LayerNorm(Module):
    """Normalises each example by its own mean and variance.

    `y = (x - E[x]) / sqrt(Var[x] + eps) * scale + offset`, with mean and variance over `axis`.

    Reference: Ba, Kiros & Hinton (2016), "Layer normalization", arXiv:1607.06450.

    Args:
      axis: the dimensions over which mean and variance are computed: one, several, or a slice of all.
      create_scale: whether there is a parameter `scale`.
      create_offset: whether there is a parameter `offset`.
      eps: a constant that is added to the variance.
      scale_init: initializer of `scale`; ones by default.
      offset_init: initializer of `offset`; zeros by default.
      use_fast_variance: whether the variance is `E[x**2] - E[x]**2`, which reads the inputs only once, instead of
        `E[(x - E[x])**2]`, which is more accurate.
      name: the module's name.
      param_axis: the dimensions along which `scale` and `offset` have one entry for each element: one, several, or a
        slice of all; by default the last.

    Raises:
      ValueError: if an initializer is given for a parameter that is not created, or `axis` or `param_axis` is not an
        int, a slice or a sequence of ints.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.LayerNorm(axis=-1, create_scale=True, create_offset=True)(x))
      >>> x = jnp.array([[1.0, 3.0], [10.0, 20.0]])
      >>> params = model.init(jax.random.key(0), x)
      >>> print(model.apply(params, None, x).round(2))
      [[-1.  1.]
       [-1.  1.]]
    """

    def __init__(
        self,
        axis: Axes,
        create_scale: Flag,
        create_offset: Flag,
        eps: Number[float, "[0, inf)", "..."] = 1e-5,
        scale_init: Initializer | None = None,
        offset_init: Initializer | None = None,
        use_fast_variance: Flag = False,
        name: str | None = None,
        *,
        param_axis: Axes | None = None,
    ):
        super().__init__(name=name)
        check_inits(create_scale, create_offset, scale_init, offset_init)
        self.axis = axis
        self.create_scale = create_scale
        self.create_offset = create_offset
        self.eps = eps
        self.scale_init = scale_init or jnp.ones
        self.offset_init = offset_init or jnp.zeros
        self.use_fast_variance = use_fast_variance
        self.param_axis = (-1,) if param_axis is None else param_axis

    def __call__(
        self,
        inputs: Num[jax.Array, "... D"],
        scale: Num[jax.Array, "..."] | None = None,
        offset: Num[jax.Array, "..."] | None = None,
    ) -> jax.Array:
        """Normalises `inputs`.

        Args:
          inputs: an array of any shape and floating dtype.
          scale: a factor, if `create_scale` is false; it broadcasts to `inputs`.
          offset: a term to add, if `create_offset` is false; it broadcasts to `inputs`.

        Returns:
          An array of the shape of `inputs`.

        Raises:
          ValueError: if a scale or an offset is passed, but the layer has its own, or it does not broadcast.
          InvalidInputError: if `inputs` is not an array.
          ScalarInputError: if it is a scalar.
          IndexError: if `axis` or `param_axis` is not one of its dimensions.
        """
        check_given(self.create_scale, self.create_offset, scale, offset)
        full, dtype = inputs.shape, inputs.dtype
        axis = resolved_axes(self.axis, len(full))
        check_axes(axis, full, "hkx.LayerNorm")
        axis = tuple(sorted({i % len(full) for i in axis}))  # the same dimension may be given twice, as 0 and -2
        shape = parameter_shape(self.param_axis, full, "hkx.LayerNorm")
        wide = widened(inputs)
        mean, variance = moments(wide, axis=axis, fast=self.use_fast_variance)  # of size 1 along `axis`
        scale = parameter_or_given("scale", self.create_scale, scale, shape, dtype, self.scale_init)
        offset = parameter_or_given("offset", self.create_offset, offset, shape, dtype, self.offset_init)
        scale, offset = aligned("scale", scale, mean.shape, full), aligned("offset", offset, full, full)
        out = normalized(wide, mean, variance, self.eps, widened(scale), widened(offset))
        return narrowed(out, inputs, scale, offset)


class InstanceNorm(LayerNorm):
    """Normalises each channel of each example by its mean and variance over space: `hkx.LayerNorm` over these axes.

    Reference: Ulyanov, Vedaldi & Lempitsky (2016), "Instance normalization: the missing ingredient for fast
    stylization", arXiv:1607.08022.

    Args:
      create_scale: whether there is a parameter `scale`, one number for each channel.
      create_offset: whether there is a parameter `offset`, one number for each channel.
      eps: a constant that is added to the variance.
      scale_init: initializer of `scale`; ones by default.
      offset_init: initializer of `offset`; zeros by default.
      data_format: where the channels are; see `hkx.get_channel_index`.
      name: the module's name.

    Raises:
      ValueError: if an initializer is given for a parameter that is not created, or `data_format` does not say where
        the channels are.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.InstanceNorm(create_scale=True, create_offset=True)(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([1, 4, 4, 3])))
      {'instance_norm': {'offset': (3,), 'scale': (3,)}}
    """

    def __init__(
        self,
        create_scale: Flag,
        create_offset: Flag,
        eps: Number[float, "[0, inf)", "..."] = 1e-5,
        scale_init: Initializer | None = None,
        offset_init: Initializer | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        channel = get_channel_index(data_format)
        super().__init__(
            axis=slice(2, None) if channel == 1 else slice(1, -1),
            create_scale=create_scale,
            create_offset=create_offset,
            eps=eps,
            scale_init=scale_init,
            offset_init=offset_init,
            name=name,
            param_axis=channel,
        )
