"""Small array helpers: indexing, broadcasting, masking, gradient control."""

from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.checks import check, whole_number
from rlx.core.errors import ShapeError
from rlx.core.types import Array, ArrayLike


def one_hot(indices: ArrayLike, num_classes: int, dtype: Any = jnp.float32) -> Array:
    """Vectors with a one at each index: one_hot(i)_k = 1 if k = i else 0.

    Args:
      indices: numbers of any shape [...]; an index outside [0, num_classes) gives a row of zeros.
      num_classes: length of the new last axis.
      dtype: dtype of the result.

    Returns:
      Array [..., num_classes] of `dtype`.

    Raises:
      ArgumentError: if `indices` is not an array or number.

    Example:
      >>> import rlx
      >>> rlx.one_hot(1, 3).tolist()
      [0.0, 1.0, 0.0]
    """
    (indices,) = check("one_hot", indices=(indices, "[*E]", "real"))
    num_classes = whole_number("one_hot", "num_classes", num_classes, "a number of classes", 0)
    classes = jnp.arange(num_classes, dtype=indices.dtype).reshape((1,) * indices.ndim + (num_classes,))
    return (indices[..., None] == classes).astype(dtype)


def batched_index(values: ArrayLike, indices: ArrayLike, keepdims: bool = False) -> Array:
    """Picks one entry along the last axis of `values` for each position: out[...] = values[..., indices[...]].

    Args:
      values: array [..., D].
      indices: integers [...] in [0, D); negative ones count from the end.
      keepdims: keep the last axis, with length 1.

    Returns:
      Array [...], or [..., 1] with `keepdims`, of the dtype of `values`.

    Raises:
      ArgumentError: if the leading axes differ or `indices` are not integers.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.batched_index(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1, 0])).tolist()
      [2.0, 3.0]
    """
    values, indices = check("batched_index", values=(values, "[*E, D]", "any"), indices=(indices, "[*E]", "int"))
    picked = pick(values, indices)
    return picked[..., None] if keepdims else picked


def lhs_broadcast(source: ArrayLike, target: ArrayLike) -> Array:
    """Appends axes of length one to `source` until it broadcasts against `target` from the left.

    Args:
      source: array [...] whose lengths equal those of the leading axes of `target`, or are 1.
      target: array [..., more].

    Returns:
      `source`, reshaped to the rank of `target`.

    Raises:
      ShapeError: if the leading axes do not agree.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.lhs_broadcast(jnp.ones([3]), jnp.ones([3, 2])).shape
      (3, 1)
    """
    source, target = check("lhs_broadcast", source=(source, "[*S]", "any"), target=(target, "[*E]", "any"))
    return _append_axes("lhs_broadcast", "source", source, target)


def replace_masked(data: ArrayLike, replacement: ArrayLike | None, mask: ArrayLike) -> Array:
    """Replaces entries of `data` where the mask is true: out = where(mask, replacement, data).

    Args:
      data: array [*E, ...].
      replacement: array of the shape of `data`, or None for zeros.
      mask: booleans or 0/1 [*E], a prefix of the shape of `data`.

    Returns:
      Array with the shape of `data`.

    Raises:
      ArgumentError: if the shape of `mask` is not a prefix of that of `data`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.replace_masked(jnp.array([1.0, 2.0]), None, jnp.array([True, False])).tolist()
      [0.0, 2.0]
    """
    data, mask = check("replace_masked", data=(data, "[*D]", "any"), mask=(mask, "[*M]", "mask"))
    chosen = _append_axes("replace_masked", "mask", mask, data).astype(bool)
    return jnp.where(chosen, jnp.zeros_like(data) if replacement is None else replacement, data)


def pick(values: Array, indices: Array) -> Array:
    """`values[..., indices[...]]` for arguments that are checked already; past the end it is the last entry."""
    return jnp.take_along_axis(values, indices[..., None], axis=-1, mode="clip")[..., 0]


def scale_down(x: Array, temperature: ArrayLike) -> Array:
    """`x / temperature`, where what is infinite stays so, and adds nothing to the gradient of the temperature."""
    finite = jnp.isfinite(x)
    return jnp.where(finite, jnp.where(finite, x, 0) / temperature, x)


def scale_up(x: Array, factor: Array) -> Array:
    """`x * factor`, where what is infinite adds nothing to the gradient of the factor."""
    finite = jnp.isfinite(x)
    return jnp.where(finite, jnp.where(finite, x, 0) * factor, x * jax.lax.stop_gradient(factor))


def _append_axes(function: str, argument: str, source: Array, target: Array) -> Array:
    leading = target.shape[: source.ndim]
    if source.ndim > target.ndim or any(s not in (1, t) for s, t in zip(source.shape, leading, strict=True)):
        raise ShapeError(
            f"{function}: argument `{argument}` has shape {list(source.shape)}, expected a {argument} shape "
            f"whose lengths are those of the leading axes of {list(target.shape)}, or 1."
        )
    return source.reshape(source.shape + (1,) * (target.ndim - source.ndim))


class AllSum:
    """Sums over an array and, with `axis_name`, over the devices (or the mapped axis) of that name too.

    Args:
      axis_name: name, or names, of axes of `jax.pmap`, `jax.vmap` or `jax.shard_map`, or None to sum locally.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.AllSum()(jnp.arange(4.0)))
      6.0
    """

    def __init__(self, axis_name: Any = None):
        self._axis_name = axis_name

    def __call__(self, x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Array:
        """Sums `x` over `axis` (all axes by default), then over the named axes."""
        total = jnp.sum(x, axis=axis)
        return total if self._axis_name is None else jax.lax.psum(total, axis_name=self._axis_name)
