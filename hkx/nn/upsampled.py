"""The transposed convolution as a function, with a fast derivative with respect to the kernel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

Pads = Sequence[tuple[int, int]]


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4, 5))
def transposed_convolution(
    x: jax.Array, w: jax.Array, stride: tuple[int, ...], pads: Pads, layout: Any, precision: Any
) -> jax.Array:
    """The convolution of `w` with a dilated `x`, which has `stride - 1` zeros between its elements.

    Its derivative with respect to `w` is computed by dense convolutions, one for each phase of the output, which is
    the remainder of a position divided by the stride. The derivative of the dilated form would also process the zeros,
    and take tens of times as long on a CPU.

    Args:
      x: the inputs, in the given layout.
      w: the kernel, in the given layout.
      stride: the stride for each spatial dimension.
      pads: the padding before and after the dilated input, for each spatial dimension.
      layout: a `jax.lax.ConvDimensionNumbers`.
      precision: as in `jax.lax.conv_general_dilated`.

    Returns:
      The outputs, in the given layout.
    """
    return _spread_out(x, w, stride, pads, layout, precision)


def _spread_out(x: Any, w: Any, stride: tuple[int, ...], pads: Pads, layout: Any, precision: Any) -> jax.Array:
    ones = (1,) * len(stride)
    return jax.lax.conv_general_dilated(
        x, w, ones, pads, lhs_dilation=stride, dimension_numbers=layout, precision=precision
    )


@functools.partial(transposed_convolution.defjvp, symbolic_zeros=True)
def _derivative(stride: Any, pads: Any, layout: Any, precision: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x, w), (x_dot, w_dot) = primals, tangents
    arguments = (stride, pads, layout, precision)
    terms = []
    if not isinstance(x_dot, SymbolicZero):
        terms.append(_spread_out(x_dot, w, *arguments))
    if not isinstance(w_dot, SymbolicZero):
        terms.append(_by_phases(x, w_dot, *arguments))
    out = transposed_convolution(x, w, *arguments)
    return out, sum(terms[1:], terms[0])


def _by_phases(x: Any, w: Any, stride: tuple[int, ...], pads: Pads, layout: Any, precision: Any) -> jax.Array:
    """The same result: at position `stride * q + phase`, only every `stride`-th kernel tap meets an element of `x`."""
    sizes = [
        (x.shape[a] - 1) * s + 1 + low + high - w.shape[b] + 1
        for a, b, s, (low, high) in zip(layout.lhs_spec[2:], layout.rhs_spec[2:], stride, pads, strict=True)
    ]

    def convolved(dim: int, taps: jax.Array, phase_pads: list[tuple[int, int]]) -> jax.Array | None:
        """The interleaved phases of the dimensions from `dim` on, for one phase of each dimension before.

        None if no tap of the kernel falls on an element.
        """
        if dim == len(stride):
            ones = (1,) * dim
            return jax.lax.conv_general_dilated(
                x, taps, ones, phase_pads, dimension_numbers=layout, precision=precision
            )
        axis, place, low, step = layout.rhs_spec[2 + dim], layout.out_spec[2 + dim], pads[dim][0], stride[dim]
        parts: list[jax.Array | None] = []
        by_remainder = _dealt(taps, axis, step)
        for phase in range(step):
            first, length = (low - phase) % step, -(-(sizes[dim] - phase) // step)
            if first >= taps.shape[axis] or length <= 0:
                parts.append(None)
                continue
            chosen = by_remainder[first]
            before = -((phase + first - low) // step)
            after = length - 1 + chosen.shape[axis] - x.shape[layout.lhs_spec[2 + dim]] - before
            parts.append(convolved(dim + 1, chosen, [*phase_pads, (before, after)]))
        return _woven(parts, place, sizes[dim])

    out = convolved(0, w, [])
    if out is None:  # only padding
        return jnp.zeros_like(_spread_out(x, w, stride, pads, layout, precision))
    return out


def _dealt(taps: jax.Array, axis: int, number: int) -> list[jax.Array]:
    """Divides an axis into elements 0, n, 2n …, then 1, n + 1 …, and so on, without strided slices.

    The derivative is then a concatenation.
    """
    size = taps.shape[axis]
    longest = -(-size // number)
    padded = jnp.pad(taps, [(0, (longest * number - size) * (i == axis)) for i in range(taps.ndim)])
    rows = padded.reshape(*taps.shape[:axis], longest, number, *taps.shape[axis + 1 :])
    columns = jax.lax.split(rows, (1,) * number, axis=axis + 1)
    return [
        jax.lax.slice_in_dim(jnp.squeeze(column, axis + 1), 0, -(-(size - first) // number), 1, axis)
        for first, column in enumerate(columns)
    ]


def _woven(parts: list[jax.Array | None], axis: int, size: int) -> jax.Array | None:
    """Interleaves arrays along an axis, with zeros for None. The last arrays may be shorter by one."""
    given = [part for part in parts if part is not None]
    if not given:
        return None
    shape = list(given[0].shape)
    shape[axis] = -(-size // len(parts))
    zeros = jnp.zeros(shape, given[0].dtype)
    full = [zeros if part is None else part if part.shape == zeros.shape else _lengthened(part, axis) for part in parts]
    shape[axis] *= len(parts)
    return jax.lax.slice_in_dim(jnp.stack(full, axis + 1).reshape(shape), 0, size, 1, axis)


def _lengthened(part: jax.Array, axis: int) -> jax.Array:
    return jnp.pad(part, [(0, int(i == axis)) for i in range(part.ndim)])
