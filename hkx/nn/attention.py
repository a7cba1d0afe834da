"""Multi-head attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Linear, Module, dropout, initializers, next_rng_key, traced_once, transparent
from hkx.arguments import Flag, Num, Number, PositiveSize, Size, deprecated_argument
from hkx.errors import LeadingDimensionsError
from hkx.initializers import Initializer


class MultiHeadAttention(Module):
    """Multi-headed dot-product attention.

    Each head h computes `softmax(Q_h K_hᵀ / sqrt(key_size)) V_h` of linear projections of queries, keys and values; the
    heads are concatenated and projected once more.

    Reference: Vaswani et al. (2017), "Attention is all you need", arXiv:1706.03762.

    Args:
      num_heads: the number of heads.
      key_size: the size of queries and keys in each head.
      w_init_scale: the scale of `hkx.initializers.VarianceScaling` for all weights; deprecated, write `w_init`.
      w_init: initializer of all weights. You need to give this or `w_init_scale`.
      with_bias: whether the projections have biases.
      b_init: initializer of all biases; zeros by default.
      value_size: the size of values in each head; `key_size` by default.
      model_size: the size of the output; `num_heads * key_size` by default.
      name: the module's name.

    Raises:
      ValueError: if neither or both of `w_init` and `w_init_scale` are given.

    Warns:
      DeprecationWarning: if `w_init_scale` is given, as Haiku does.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     w_init = hkx.initializers.VarianceScaling(2.0)
      ...     return hkx.MultiHeadAttention(num_heads=2, key_size=4, w_init=w_init)(x, x, x)
      >>> model = hkx.transform(f)
      >>> x = jnp.ones([1, 5, 3])
      >>> model.apply(model.init(jax.random.key(0), x), None, x).shape
      (1, 5, 8)
    """

    def __init__(
        self,
        num_heads: PositiveSize,
        key_size: PositiveSize,
        w_init_scale: float | None = None,
        *,
        w_init: Initializer | None = None,
        with_bias: Flag = True,
        b_init: Initializer | None = None,
        value_size: Size | None = None,
        model_size: Size | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        if w_init is not None and w_init_scale is not None:
            raise ValueError("`w_init` and `w_init_scale` both say how weights begin: provide only `w_init`.")
        if w_init is None and w_init_scale is None:
            raise ValueError(
                "Please provide a weight initializer: `w_init`, for example `hkx.initializers.VarianceScaling(2.0)`."
            )
        if w_init_scale is not None:
            instead = f"write w_init=hkx.initializers.VarianceScaling({w_init_scale})"
            deprecated_argument("w_init_scale", "MultiHeadAttention", instead)
        self.num_heads = num_heads
        self.key_size = key_size
        self.value_size = value_size or key_size  # also for 0, as in Haiku
        self.model_size = model_size or key_size * num_heads
        self.w_init = initializers.VarianceScaling(w_init_scale) if w_init is None else w_init  # type: ignore[arg-type]
        self.with_bias = with_bias
        self.b_init = b_init

    def __call__(
        self,
        query: Num[jax.Array, "*B t Q"],
        key: Num[jax.Array, "*B T K"],
        value: Num[jax.Array, "*B T V"],
        mask: Num[jax.Array | np.ndarray, "..."] | None = None,
        *,
        dropout_rate: Number[float, "[0, 1)"] = 0.0,
    ) -> jax.Array:
        """Applies the layer. For self-attention, pass the same array three times.

        Args:
          query: `[..., t, Q]`: one query for each of t positions.
          key: `[..., T, K]`: the queries are compared with these.
          value: `[..., T, V]`: these are averaged, one value for each key.
          mask: broadcasts to `[..., num_heads, t, T]`, and has all its dimensions. A query attends to the keys where
            the mask is not zero. If it is zero for all keys, the query attends to all of them equally. NaN and infinity
            in keys and values to which no query may attend do not reach the result.
          dropout_rate: the probability of dropping each attention weight; the other weights are scaled up. If it is
            not zero, a random key is drawn (`hkx.next_rng_key`).

        Returns:
          `[..., t, model_size]`.

        Raises:
          InvalidRankError: if `query`, `key` or `value` has fewer than two dimensions.
          LeadingDimensionsError: if their shapes, or that of the mask, do not match.
          ValueError: if the mask has a wrong number of dimensions, or `dropout_rate` is not in `[0, 1)`.
        """
        query_heads = self._linear_projection(query, self.key_size, "query")  # [*B, t, H, K]
        key_heads = self._linear_projection(key, self.key_size, "key")  # [*B, T, H, K]
        value_heads = self._linear_projection(value, self.value_size, "value")  # [*B, T, H, V]
        if mask is not None:
            _check_mask(mask, query_heads.shape, key_heads.shape)
            if not (isinstance(mask, np.ndarray) and mask.any(axis=(-3, -2)).all()):
                key_heads, value_heads = _finite(key_heads, value_heads, mask)
        weights = _weights(query_heads, key_heads, mask)  # [*B, H, t, T]
        if not (isinstance(dropout_rate, (int, float, np.generic)) and dropout_rate == 0):
            weights = dropout(next_rng_key(), dropout_rate, weights)
        attended = _attended(weights, value_heads)  # [*B, t, H * V]
        return _linear_like(self, self.model_size)(attended)  # [*B, t, model_size]

    @transparent
    def _linear_projection(self, x: jax.Array, head_size: int, name: str | None = None) -> jax.Array:
        """A linear projection to all heads: `[..., T, num_heads, head_size]`."""
        y = _linear_like(self, self.num_heads * head_size, name)(x)
        return jnp.reshape(y, (*y.shape[:-1], self.num_heads, head_size))


def _linear_like(layer: MultiHeadAttention, size: int, name: str | None = None) -> Linear:
    """A linear layer with the settings of `layer`. It is no method, so that a subclass may have one of this name."""
    return Linear(size, with_bias=layer.with_bias, w_init=layer.w_init, b_init=layer.b_init, name=name)


def _check_mask(mask: Any, query: tuple[int, ...], key: tuple[int, ...]) -> None:
    """Raises an error if the mask does not fit heads of these shapes."""
    shape = (*jnp.broadcast_shapes(query[:-3], key[:-3]), key[-2], query[-3], key[-3])
    if mask.ndim != len(shape):
        raise ValueError(
            f"Mask dimensionality {mask.ndim} must match logits dimensionality {len(shape)}: it broadcasts to {shape}."
        )
    if any(a != b and 1 not in (a, b) for a, b in zip(mask.shape, shape, strict=True)):
        expected = f"{shape}, or 1 in place of each"
        raise LeadingDimensionsError("MultiHeadAttention", "mask", mask.shape, expected)


@traced_once
def _finite(key: Any, value: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
    seen = jnp.any(mask, axis=(-3, -2))[..., None, None]  # [*B, T, 1, 1]
    return finite_where_unseen(key, seen), finite_where_unseen(value, seen)


def finite_where_unseen(x: Any, seen: Any) -> jax.Array:
    """`x`, with 0 for NaN and infinity at positions to which no query may attend: where `seen` is False.

    The weights of these positions are 0, and 0 * NaN is NaN. Nothing changes where everything is finite, not even
    where a query may attend to nothing, which gives the mean of all values.
    """
    return jnp.where(seen | jnp.isfinite(x), x, 0)


@traced_once
def _weights(query: Any, key: Any, mask: Any) -> jax.Array:
    logits = jnp.einsum("...thd,...Thd->...htT", query, key)  # [*B, H, t, T]
    logits = logits / np.sqrt(key.shape[-1]).astype(logits.dtype)
    if mask is not None:
        lowest = max(-1e30, float(jnp.finfo(logits.dtype).min))
        logits = jnp.where(mask, logits, np.asarray(lowest, logits.dtype))
    return jax.nn.softmax(logits)  # [*B, H, t, T]


@traced_once
def _attended(weights: Any, value: Any) -> jax.Array:
    attended = jnp.einsum("...htT,...Thd->...thd", weights, value)  # [*B, t, H, V]
    return jnp.reshape(attended, (*attended.shape[:-2], attended.shape[-2] * attended.shape[-1]))
