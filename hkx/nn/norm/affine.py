"""Shared code of normalisation layers: statistics, scale and offset."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx import get_parameter, traced_once
from hkx.initializers import Initializer
from hkx.nn.numerics import constant, dimension_of


def check_inits(
    create_scale: bool, create_offset: bool, scale_init: Initializer | None, offset_init: Initializer | None
) -> None:
    """Raises ValueError if an initializer is given for a parameter that is not created."""
    for what, create, init in (("scale", create_scale, scale_init), ("offset", create_offset, offset_init)):
        if not create and init is not None:
            raise ValueError(f"Cannot set `{what}_init` if `create_{what}=False`: there is no {what} to initialise.")


def check_given(create_scale: bool, create_offset: bool, scale: Any, offset: Any) -> None:
    """Raises ValueError if a scale or an offset is passed to a layer that has its own."""
    for what, create, given in (("scale", create_scale, scale), ("offset", create_offset, offset)):
        if create and given is not None:
            raise ValueError(f"Cannot pass `{what}` at call time if `create_{what}=True`: the layer has its own.")


def parameter_or_given(
    name: str, create: bool, given: jax.Array | None, shape: Sequence[int], dtype: Any, init: Initializer
) -> jax.Array | None:
    """The parameter `name` if the layer creates one; otherwise what was given."""
    return get_parameter(name, shape, dtype, init=init) if create else given


def aligned(name: str, value: Any, shape: Sequence[int], full: Sequence[int]) -> jax.Array | None:
    """`value` broadcast along with `shape`, the inputs' or that of their statistics; `full` is the inputs' shape.

    A scale of the statistics' shape is smaller than one of the inputs' shape, and so is its gradient.

    Raises:
      ValueError: if it does not broadcast to the inputs.
    """
    if value is None:
        return None
    own = jnp.shape(value)
    missing = len(full) - len(own)
    if missing < 0 or any(n not in (1, m) for n, m in zip(own, full[missing:], strict=True)):
        raise ValueError(f"`{name}` should broadcast to the inputs, of shape {tuple(full)}, got shape {own}.")
    return jnp.broadcast_to(value, jnp.broadcast_shapes(own, shape))


def normalized(inputs: Any, mean: Any, variance: jax.Array, eps: Any, scale: Any, offset: Any) -> jax.Array:
    """`(inputs - mean) * rsqrt(variance + eps) * scale + offset`, where `scale` and `offset` may be None."""
    return _normalized(inputs, mean, variance, constant(eps, variance.dtype), scale, offset)


@traced_once
def _normalized(inputs: Any, mean: Any, variance: Any, eps: Any, scale: Any, offset: Any) -> jax.Array:
    inverse = jax.lax.rsqrt(variance + eps)
    if scale is not None:
        inverse = scale * inverse
    out = (inputs - mean) * inverse
    return out if offset is None else out + offset


@functools.partial(traced_once, static_argnames=("axis", "fast"))
def moments(inputs: Any, *, axis: tuple[int, ...], fast: bool = False) -> tuple[jax.Array, jax.Array]:
    """Mean and variance over `axis`; with `fast`, the variance is `E[x**2] - E[x]**2`, in one pass over the inputs."""
    mean = jnp.mean(inputs, axis=axis, keepdims=True)
    if fast:
        return mean, nonnegative(jnp.mean(jnp.square(inputs), axis, keepdims=True) - jnp.square(mean))
    return mean, jnp.var(inputs, axis=axis, keepdims=True)


def nonnegative(variance: jax.Array) -> jax.Array:
    """Sets a variance that rounding has made negative to zero. One of complex numbers stays: it has no sign."""
    return variance if jnp.iscomplexobj(variance) else jnp.maximum(variance, np.zeros((), variance.dtype))


def resolved_axes(axis: int | Sequence[int] | slice, rank: int) -> tuple[int, ...]:
    """The dimensions of an array with this rank: one, several, or a slice of all."""
    if isinstance(axis, slice):
        return tuple(range(rank)[axis])
    return (axis,) if isinstance(axis, int) else tuple(axis)


def check_axes(axis: tuple[int, ...], shape: Sequence[int], module: str) -> None:
    """Raises IndexError if the input lacks a dimension, often because `axis` is the number of features by mistake."""
    if not all(-len(shape) <= i < len(shape) for i in axis):
        raise IndexError(
            f"`axis` of `{module}` is out of range: {axis}, for inputs of shape {tuple(shape)}. These are the "
            "dimensions over which mean and variance are computed, such as -1 for the last, and not their sizes."
        )


def parameter_shape(axis: int | Sequence[int] | slice, shape: Sequence[int], module: str) -> tuple[int, ...]:
    """The shape of parameters: the size along `axis`, and 1 elsewhere. For the last dimension alone, only its size.

    Raises:
      IndexError: if the input lacks a dimension of `axis`, the module's `param_axis`.
    """
    chosen = {dimension_of(i, shape, module, "param_axis") for i in resolved_axes(axis, len(shape))}
    if chosen == {len(shape) - 1}:
        return (shape[-1],)
    return tuple(size if i in chosen else 1 for i, size in enumerate(shape))
