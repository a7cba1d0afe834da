"""Sums, products and shapes as `jax.numpy` has them, where the operands are alike traced in half the time.

An operator of `jax.numpy` is a function that JAX traces at each call, in which dtypes and shapes are brought together.
In a layer they mostly are so already, and the primitive is what is left of it. What is traced is the same.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@functools.cache
def _is_inexact(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, np.inexact)


def _alike(x: Any, y: Any) -> bool:
    if not (isinstance(x, jax.Array) and isinstance(y, (jax.Array, np.generic))):
        return False
    return x.dtype == y.dtype and y.ndim in (x.ndim, 0) and _is_inexact(x.dtype)


def _operator(primitive: Callable[..., jax.Array], general: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def operate(x: Any, y: Any) -> Any:
        return primitive(x, y) if _alike(x, y) else general(x, y)

    return operate


add = _operator(jax.lax.add, operator.add)
subtract = _operator(jax.lax.sub, operator.sub)
multiply = _operator(jax.lax.mul, operator.mul)
divide = _operator(jax.lax.div, operator.truediv)


def broadcast_to(x: Any, shape: Sequence[int]) -> jax.Array:
    """`jnp.broadcast_to`."""
    if isinstance(x, jax.Array) and (missing := len(shape) - x.ndim) > 0 and x.shape == tuple(shape[missing:]):
        return jax.lax.broadcast_in_dim(x, shape, range(missing, len(shape)))
    return jnp.broadcast_to(x, shape)


def attention_logits(query: jax.Array, key: jax.Array) -> jax.Array:
    """`jnp.einsum("...thd,...Thd->...htT", query, key)`."""
    n = query.ndim
    if query.dtype != key.dtype or query.shape[:-3] != key.shape[:-3]:
        return jnp.einsum("...thd,...Thd->...htT", query, key)
    batch = (*range(n - 3), n - 2)
    numbers = (((n - 1,), (n - 1,)), (batch, batch))
    return jax.lax.dot_general(query, key, numbers, preferred_element_type=query.dtype)


def attended_values(weights: jax.Array, value: jax.Array) -> jax.Array:
    """`jnp.einsum("...htT,...Thd->...thd", weights, value)`."""
    n = value.ndim
    if weights.dtype != value.dtype or weights.shape[:-3] != value.shape[:-3]:
        return jnp.einsum("...htT,...Thd->...thd", weights, value)
    numbers = (((n - 3,), (n - 1,)), ((*range(n - 3), n - 2), tuple(range(n - 2))))
    out = jax.lax.dot_general(value, weights, numbers, preferred_element_type=value.dtype)
    return jax.lax.transpose(out, (*range(n - 3), n - 1, n - 3, n - 2))
