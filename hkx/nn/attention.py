"""Multi-head attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Linear, Module, dropout, initializers, next_rng_key, traced_once, transparent
from hkx.arguments import checked_integer, deprecated_argument, is_iterable
from hkx.errors import LeadingDimensionsError
from hkx.initializers import Initializer
from hkx.nn.inputs import array_of, sequences_of


def _size_or(default: int, size: Any, argument: str) -> int:
    unsaid = size is None or (not is_iterable(size) and not size)  # 0 too, as in Haiku
    return default if unsaid else checked_integer(size, argument, 1)


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
        num_heads: int,
        key_size: int,
        w_init_scale: float | None = None,
        *,
        w_init: Initializer | None = None,
        with_bias: bool = True,
        b_init: Initializer | None = None,
        value_size: int | None = None,
        model_size: int | None = None,
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
        self.num_heads = checked_integer(num_heads, "num_heads", 1)
        self.key_size = checked_integer(key_size, "key_size", 1)
        self.value_size = _size_or(self.key_size, value_size, "value_size")
        self.model_size = _size_or(self.key_size * self.num_heads, model_size, "model_size")
        self.w_init = initializers.VarianceScaling(w_init_scale) if w_init is None else w_init  # type: ignore[arg-type]
        self.with_bias = with_bias
        self.b_init = b_init

    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        mask: jax.Array | None = None,
        *,
        dropout_rate: float | jax.Array = 0.0,
    ) -> jax.Array:
        """Applies the layer. For self-attention, pass the same array three times.

        Args:
          query: `[..., T', D_q]`: one query for each of T' positions.
          key: `[..., T, D_k]`: the queries are compared with these.
          value: `[..., T, D_v]`: these are averaged, one value for each key.
          mask: broadcasts to `[..., num_heads, T', T]`, and has all its dimensions. A query attends to the keys where
            the mask is not zero. If it is zero for all keys, the query attends to all of them equally. NaN and infinity
            in keys and values to which no query may attend do not reach the result.
          dropout_rate: the probability of dropping each attention weight; the other weights are scaled up. If it is
            not zero, a random key is drawn (`hkx.next_rng_key`).

        Returns:
          `[..., T', model_size]`.

        Raises:
          InvalidRankError: if `query`, `key` or `value` has fewer than two dimensions.
          LeadingDimensionsError: if their shapes, or that of the mask, do not match.
          ValueError: if the mask has a wrong number of dimensions, or `dropout_rate` is not in `[0, 1)`.
        """
        (query, key, value), _ = sequences_of(self, query=query, key=key, value=value)
        if key.shape[-2] != value.shape[-2]:
            raise LeadingDimensionsError("MultiHeadAttention", "value", value.shape, f"T = {key.shape[-2]} as in `key`")
        query_heads = self._linear_projection(query, self.key_size, "query")
        key_heads = self._linear_projection(key, self.key_size, "key")
        value_heads = self._linear_projection(value, self.value_size, "value")
        if mask is not None:
            mask = mask if isinstance(mask, np.ndarray) else array_of(mask, self, "mask")
            _check_mask(mask, query_heads.shape, key_heads.shape)
            if not (isinstance(mask, np.ndarray) and mask.any(axis=(-3, -2)).all()):
                key_heads, value_heads = _finite(key_heads, value_heads, mask)
        weights = _weights(_logits(query_heads, key_heads), mask)
        if not (isinstance(dropout_rate, (int, float, np.generic)) and dropout_rate == 0):
            weights = dropout(next_rng_key(), dropout_rate, weights)
        return _linear_like(self, self.model_size)(_attended(weights, value_heads))

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
    """Heads `[..., T, H, D]`, finite where the mask `[..., H, T', T]` lets no query attend."""
    seen = jnp.any(mask, axis=(-3, -2))[..., None, None]
    return finite_where_unseen(key, seen), finite_where_unseen(value, seen)


def finite_where_unseen(x: Any, seen: Any) -> jax.Array:
    """`x`, with 0 for NaN and infinity at positions to which no query may attend: where `seen` is False.

    The weights of these positions are 0, and 0 * NaN is NaN. Where everything is finite, nothing changes, not even
    where a query may attend to nothing, which gives the mean of all values.
    """
    return jnp.where(seen | jnp.isfinite(x), x, 0)


@traced_once
def _logits(query: Any, key: Any) -> jax.Array:
    """`[..., H, T', T]`, from heads `[..., T', H, D]` and `[..., T, H, D]`."""
    logits = jnp.einsum("...thd,...Thd->...htT", query, key)
    return logits / np.sqrt(key.shape[-1]).astype(logits.dtype)


@traced_once
def _weights(logits: Any, mask: Any) -> jax.Array:
    """`[..., H, T', T]`, from logits of that shape."""
    if mask is not None:
        lowest = max(-1e30, float(jnp.finfo(logits.dtype).min))
        logits = jnp.where(mask, logits, np.asarray(lowest, logits.dtype))
    return jax.nn.softmax(logits)


@traced_once
def _attended(weights: Any, value: Any) -> jax.Array:
    """`[..., T', H * D]`, from weights `[..., H, T', T]` and heads `[..., T, H, D]`."""
    attended = jnp.einsum("...htT,...Thd->...thd", weights, value)
    return jnp.reshape(attended, (*attended.shape[:-2], attended.shape[-2] * attended.shape[-1]))
