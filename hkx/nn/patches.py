"""Convolution as one matrix product of patches with the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def convolved_patches(
    inputs: jax.Array,
    w: jax.Array,
    window_strides: Sequence[int],
    padding: Any,
    rhs_dilation: Sequence[int],
    dimension_numbers: jax.lax.ConvDimensionNumbers,
    feature_group_count: int,
    precision: jax.lax.PrecisionLike,
) -> jax.Array:
    """As `jax.lax.conv_general_dilated`, for inputs [N, *space, C] or [N, C, *space], and a kernel [*K, C / groups, O].

    A patch consists of all inputs of one output: for each element of the kernel, a strided slice of the inputs.
    """
    *kernel, channels, outputs = w.shape
    size = int(np.prod(kernel))
    x = jnp.moveaxis(inputs, dimension_numbers.lhs_spec[1], -1)  # [N, *space, C]
    spans = [(k - 1) * rate + 1 for k, rate in zip(kernel, rhs_dilation, strict=True)]
    if isinstance(padding, str):
        padding = jax.lax.padtype_to_pads(x.shape[1:-1], spans, window_strides, padding)
    x = jax.lax.pad(x, jnp.zeros([], x.dtype), [(0, 0, 0), *((*pair, 0) for pair in padding), (0, 0, 0)])
    ends = [max(size - span + 1, 0) for size, span in zip(x.shape[1:-1], spans, strict=True)]

    def slice_of(element: tuple[int, ...]) -> jax.Array:  # [N, *space of the outputs, C]
        starts = [min(k * rate, n) for k, rate, n in zip(element, rhs_dilation, x.shape[1:-1], strict=True)]
        stops = [start + end for start, end in zip(starts, ends, strict=True)]
        return jax.lax.slice(x, (0, *starts, 0), (x.shape[0], *stops, x.shape[-1]), (1, *window_strides, 1))

    patches = jnp.stack([slice_of(element) for element in np.ndindex(*kernel)], -2)  # [..., size, C]
    if feature_group_count == 1:
        patches = patches.reshape(*patches.shape[:-2], size * channels)
        out = jnp.matmul(patches, w.reshape(size * channels, outputs), precision=precision)
    else:
        grouped = patches.reshape(*patches.shape[:-1], feature_group_count, channels)
        kernels = w.reshape(size, channels, feature_group_count, outputs // feature_group_count)
        out = jnp.einsum("...kgc,kcgo->...go", grouped, kernels, precision=precision)
        out = out.reshape(*out.shape[:-2], outputs)
    return jnp.moveaxis(out, -1, dimension_numbers.lhs_spec[1])
