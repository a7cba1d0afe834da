"""Group normalisation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from hkx import Module, get_channel_index
from hkx.arguments import Axes, Flag, Num, Number, PositiveSize
from hkx.initializers import Initializer
from hkx.nn.norm.affine import (
    check_axes,
    check_given,
    check_inits,
    moments,
    normalized,
    parameter_or_given,
    resolved_axes,
)
from hkx.nn.numerics import narrowed, widened


class GroupNorm(Module):
    """Normalises each group of channels of each example by its own mean and variance.

    `y = (x - E[x]) / sqrt(Var[x] + eps) * scale + offset`, with mean and variance over space and the channels of a
    group, and one scale and offset for each channel.

    Reference: Wu & He (2018), "Group normalization", arXiv:1803.08494.

    Args:
      groups: the number of groups into which the channels are divided.
      axis: the dimensions over which mean and variance are computed: one, several, or a slice of all. Along the
        channels they are computed within each group.
      create_scale: whether there is a parameter `scale`.
      create_offset: whether there is a parameter `offset`.
      eps: a constant that is added to the variance.
      scale_init: initializer of `scale`; ones by default.
      offset_init: initializer of `offset`; zeros by default.
      data_format: where the channels are; see `hkx.get_channel_index`.
      name: the module's name.

    Raises:
      InvalidSizeError: if `groups` is less than 1.
      ValueError: if an initializer is given for a parameter that is not created, `axis` is not
        an int, a slice or a sequence of ints, or `data_format` does not say where the channels are.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.GroupNorm(groups=2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 4, 4, 6]))
      >>> jax.tree.map(jnp.shape, params)
      {'group_norm': {'offset': (6,), 'scale': (6,)}}
    """

    def __init__(
        self,
        groups: PositiveSize,
        axis: Axes = slice(1, None),
        create_scale: Flag = True,
        create_offset: Flag = True,
        eps: Number[float, "[0, inf)", "..."] = 1e-5,
        scale_init: Initializer | None = None,
        offset_init: Initializer | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        super().__init__(name=name)
        check_inits(create_scale, create_offset, scale_init, offset_init)
        self.groups = groups
        self.rank: int | None = None
        self.axis = axis
        self.create_scale = create_scale
        self.create_offset = create_offset
        self.eps = eps
        self.scale_init = scale_init or jnp.ones
        self.offset_init = offset_init or jnp.zeros
        self.data_format = data_format
        self.channel_index = get_channel_index(data_format)

    def __call__(
        self,
        x: Num[jax.Array, "... D"],
        scale: Num[jax.Array, "..."] | None = None,
        offset: Num[jax.Array, "..."] | None = None,
    ) -> jax.Array:
        """Normalises `x`.

        Args:
          x: `[N, ..., C]` or `[N, C, ...]`, by the data format; of any floating dtype.
          scale: a factor, if `create_scale` is false; it broadcasts to `x`.
          offset: a term to add, if `create_offset` is false; it broadcasts to `x`.

        Returns:
          An array of the shape of `x`.

        Raises:
          ValueError: if a scale or an offset is passed, but the layer has its own, the channels cannot be divided into
            groups, or the rank of `x` is not that of the first call.
          InvalidInputError: if `x` is not an array.
          ScalarInputError: if it is a scalar.
        """
        check_given(self.create_scale, self.create_offset, scale, offset)
        shape, dtype = x.shape, x.dtype
        rank = len(shape)
        self.rank = self.rank or rank
        if rank != self.rank:
            raise ValueError(
                f"The rank of the inputs cannot change between calls, the original inputs had {self.rank} dimensions "
                f"and these have {rank}."
            )
        channel = self.channel_index % rank
        size, rest = divmod(shape[channel], self.groups)
        if rest:
            raise ValueError(
                f"The number of channels must be divisible by the number of groups: {shape[channel]} channels do "
                f"not make {self.groups} groups."
            )
        axis = resolved_axes(self.axis, rank)
        check_axes(axis, shape, "hkx.GroupNorm")
        axis = tuple(i % rank for i in axis)
        axis = tuple(i + 1 if i >= channel else i for i in axis)
        grouped = jnp.reshape(x, (*shape[:channel], self.groups, size, *shape[channel + 1 :]))  # [N, ..., G, C / G]
        grouped = widened(grouped)
        mean, variance = moments(grouped, axis=axis)
        out = jnp.reshape(narrowed(normalized(grouped, mean, variance, self.eps, None, None), x), shape)
        own = (shape[channel],) + (1,) * (rank - 1 - channel)
        scale = parameter_or_given("scale", self.create_scale, scale, own, dtype, self.scale_init)
        offset = parameter_or_given("offset", self.create_offset, offset, own, dtype, self.offset_init)
        if scale is not None:
            out = out * _to_rank(scale, rank)
        return out if offset is None else out + _to_rank(offset, rank)


def _to_rank(value: Any, rank: int) -> jax.Array:
    """Adds leading dimensions of size 1 to `value`, up to this rank."""
    missing = rank - jnp.ndim(value)
    return jnp.expand_dims(value, tuple(range(missing))) if missing > 0 else value
