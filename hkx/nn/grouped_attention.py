"""Grouped-query attention with a cache for decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp

from hkx import Linear, Module, transparent
from hkx.arguments import Flag, Function, Int, Num, PositiveSize, Real, Size, checked_integer
from hkx.errors import LeadingDimensionsError
from hkx.initializers import Initializer
from hkx.nn.attention import finite_where_unseen
from hkx.nn.numerics import check_dtype, parts_of, resharded


class KeyValueCache(NamedTuple):
    """The keys and values of the tokens so far; see `hkx.GroupedQueryAttention.initial_cache`.

    Attributes:
      key: `[..., S, num_kv_heads, key_size]`.
      value: `[..., S, num_kv_heads, key_size]`.
      length: `int32[]`, the number of tokens stored so far, out of S.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def generate(first):  # feeds every output back as the next token
      ...     layer = hkx.GroupedQueryAttention(num_heads=2, num_kv_heads=1, key_size=4)
      ...     def step(carry, _):
      ...         token, cache = layer(carry[0], cache=carry[1])
      ...         return (token, cache), token[:, 0]
      ...     return hkx.scan(step, (first, layer.initial_cache(1, max_length=6)), length=6)[1]
      >>> model = hkx.transform(generate)
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 1, 8]))
      >>> model.apply(params, None, jnp.ones([1, 1, 8])).shape
      (6, 1, 8)
    """

    key: jax.Array  # [..., S, num_kv_heads, key_size]
    value: jax.Array  # [..., S, num_kv_heads, key_size]
    length: jax.Array  # int32[], the number of tokens stored so far, out of S


class GroupedQueryAttention(Module):
    """Dot-product attention in which groups of query heads share one head of keys and values.

    `num_kv_heads == num_heads` is multi-head attention, and `num_kv_heads == 1` is multi-query attention. It is
    computed by `jax.nn.dot_product_attention`; with `implementation="cudnn"`, by the fused kernel for NVIDIA GPUs.

    References: Ainslie et al. (2023), "GQA: training generalized multi-query transformer models from multi-head
    checkpoints", arXiv:2305.13245; Shazeer (2019), "Fast transformer decoding: one write-head is all you need",
    arXiv:1911.02150.

    Args:
      num_heads: the number of query heads.
      num_kv_heads: the number of heads for keys and values; it must divide `num_heads`.
      key_size: the size of each head.
      w_init: initializer of all weights, as for `hkx.Linear`.
      with_bias: whether the projections have biases.
      b_init: initializer of all biases; zeros by default.
      model_size: the size of the output; `num_heads * key_size` by default.
      rotary: rotates queries and keys by their positions; None for no position embedding.
      implementation: `"xla"` or `"cudnn"`; see `jax.nn.dot_product_attention`. None leaves the choice to JAX, which
        today uses `"xla"`, also on a GPU. `"cudnn"` refuses shapes and dtypes for which it has no kernel.
      name: the module's name.

    Raises:
      ValueError: if `num_kv_heads` does not divide `num_heads`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     layer = hkx.GroupedQueryAttention(num_heads=4, num_kv_heads=2, key_size=8, rotary=hkx.RotaryEmbedding())
      ...     return layer(x, is_causal=True)
      >>> model = hkx.transform(f)
      >>> x = jnp.ones([1, 5, 16])
      >>> model.apply(model.init(jax.random.key(0), x), None, x).shape
      (1, 5, 32)
    """

    def __init__(
        self,
        num_heads: PositiveSize,
        num_kv_heads: PositiveSize,
        key_size: PositiveSize,
        *,
        w_init: Initializer | None = None,
        with_bias: Flag = False,
        b_init: Initializer | None = None,
        model_size: PositiveSize | None = None,
        rotary: Function | None = None,
        implementation: Any = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        if num_heads % num_kv_heads:
            raise ValueError(f"`num_kv_heads` {num_kv_heads} must divide `num_heads` {num_heads}.")
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.key_size = key_size
        self.w_init = w_init
        self.with_bias = with_bias
        self.b_init = b_init
        self.model_size = num_heads * key_size if model_size is None else model_size
        self.rotary = rotary
        self.implementation = implementation

    def initial_cache(
        self, batch_size: int | Sequence[int] | None, max_length: Size, dtype: Any = jnp.float32
    ) -> KeyValueCache:
        """An empty cache.

        Args:
          batch_size: the size of the batch; with several leading dimensions, all their sizes; None for no batch.
          max_length: the largest number of tokens that it can store.
          dtype: a floating dtype, in which keys and values are stored. The results of the layer have the dtype of the
            inputs.

        Returns:
          A `KeyValueCache` for the first call.
        """
        leading = () if batch_size is None else batch_size if isinstance(batch_size, Sequence) else (batch_size,)
        sizes = (*(checked_integer(n, "batch_size") for n in leading), max_length)
        shape = (*sizes, self.num_kv_heads, self.key_size)
        return KeyValueCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros((), jnp.int32))

    def __call__(
        self,
        query: Real[jax.Array, "*B T D"],
        key_value: Real[jax.Array, "*B S E"] | None = None,
        *,
        mask: Num[jax.Array, "..."] | None = None,
        is_causal: Flag = False,
        window: PositiveSize | None = None,
        lengths: Int[jax.Array, "..."] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Any:
        """Attends from each token of `query` to the tokens of `key_value`, or of `query` itself.

        By default no token is hidden. A hidden one has no effect, even if it is NaN.

        Args:
          query: `[..., T, D]`.
          key_value: `[..., S, E]`, the source of keys and values; `query` by default. Leading dimensions broadcast.
          mask: `bool[..., num_heads, T, S]`, False where a token is hidden from a query; any of these sizes may be 1.
            With a cache, S is its `max_length`.
          is_causal: hides tokens that come after the query.
          window: hides all tokens but the query's own and the `window - 1` before it; requires `is_causal` or a cache.
          lengths: `int[...]`, the number of tokens of `key_value` that are not padding; hides the others.
          cache: keys and values of earlier tokens. Those of `key_value` are appended, and tokens that come after the
            query are hidden. If they do not fit, the result is NaN where the length of the cache is traced.

        Returns:
          `[..., T, model_size]`; with a cache, a pair of this and the longer cache.

        Raises:
          InvalidRankError: if `query` or `key_value` has fewer than two dimensions.
          LeadingDimensionsError: if the dimensions of the arguments do not match.
          InputDTypeError: if `mask` is not of bools or integers, `lengths` are not integers, or `query` or `key_value`
            is complex.
          TypeError: if `cache` is not one of this kind of layer, of a floating dtype.
          InvalidSizeError: if `window` is not an integer, at least 1.
          ValueError: if `window` is given without `is_causal` and a cache, or the tokens do not fit into the cache and
            its length is known.
        """
        if window is not None and not (is_causal or cache is not None):
            raise ValueError(f"`window` goes with `is_causal=True` or a cache; got {window} without them.")
        key_value = query if key_value is None else key_value
        leading = jnp.broadcast_shapes(query.shape[:-2], key_value.shape[:-2])  # *B
        q = self._heads(query, self.num_heads, "query")  # [*B, T, H, K]
        k = self._heads(key_value, self.num_kv_heads, "key")  # [*B, S, G, K]
        v = self._heads(key_value, self.num_kv_heads, "value")  # [*B, S, G, K]
        dtype = jnp.result_type(q, k)
        cache = None if cache is None else _checked(cache, self, leading)
        start = 0 if cache is None else cache.length
        if self.rotary is not None:
            q = self.rotary(q, start + jnp.arange(q.shape[-3]))
            k = self.rotary(k, start + jnp.arange(k.shape[-3]))
        keys = k.shape[-3] if cache is None else cache.key.shape[-3]
        mask = None if mask is None else _mask(mask, self, leading, (self.num_heads, q.shape[-3], keys))
        lengths = None if lengths is None else _fitting("lengths", lengths.astype(jnp.int32), leading)
        held, room = start, keys - k.shape[-3]
        if cache is not None:
            k, v = (jnp.broadcast_to(x, (*leading, *x.shape[-3:])) for x in (k, v))
            allowed, cache = _extended(cache, k, v, q.shape[-3], window)  # [T, S]
            allowed = jnp.expand_dims(allowed, range(len(leading) + 1))
            mask = allowed if mask is None else jnp.logical_and(mask, allowed)
            k, v, is_causal, window = cache.key, cache.value, False, None
        if mask is not None:
            mask = _with_one_batch(mask, mask.shape[:-3] if _for_all(mask) else leading, 3)
        lengths = None if lengths is None else _with_one_batch(lengths, leading, 0)
        q, k, v = (_with_one_batch(x.astype(dtype), leading, 3) for x in (q, k, v))  # [B, T or S, H or G, K]
        seen = _seen(keys, mask, lengths)  # [B, S]
        if seen is not None:
            k, v = (finite_where_unseen(x, seen[..., None, None]) for x in (k, v))
        attended = _attention(
            q,
            k,
            v,
            mask=mask,
            is_causal=is_causal,
            key_value_seq_lengths=lengths,
            local_window_size=None if window is None else (window - 1, 0),
            implementation=self.implementation,
        )  # [B, T, H, K]
        if isinstance(held, jax.core.Tracer):
            attended = jnp.where(held <= room, attended, jnp.nan)
        shape = (*leading, attended.shape[1], self.num_heads * self.key_size)
        attended = jnp.reshape(attended, shape)  # [*B, T, H * K]
        out = Linear(self.model_size, self.with_bias, self.w_init, self.b_init, name="output")(attended)
        return out if cache is None else (out, cache)

    @transparent
    def _heads(self, x: jax.Array, num_heads: int, name: str) -> jax.Array:
        y = Linear(num_heads * self.key_size, self.with_bias, self.w_init, self.b_init, name=name)(x)
        return jnp.reshape(y, (*y.shape[:-1], num_heads, self.key_size))


def _mask(mask: Any, layer: object, leading: tuple[int, ...], sizes: tuple[int, ...]) -> jax.Array:
    whole = jnp.issubdtype(mask.dtype, jnp.integer) or mask.dtype == bool
    instead = "`mask > 0.5` if it is of ones and zeros, `mask == 0` if it was to be added"
    check_dtype(whole, layer, "mask", mask.dtype, "bool, True where a query may attend to a key", instead)
    return _fitting("mask", mask.astype(bool), leading, "num_heads, T, S", sizes)


def _fitting(
    argument: str, x: jax.Array, leading: tuple[int, ...], rest: str = "", sizes: tuple[int, ...] = ()
) -> jax.Array:
    """Returns `x` if its dimensions are `leading` followed by `sizes`, which `rest` names, or 1 in place of each."""
    wanted = (*leading, *sizes)
    if x.ndim != len(wanted) or any(a not in (b, 1) for a, b in zip(x.shape, wanted, strict=True)):
        dimensions = ", ".join([*map(str, leading), rest]).strip(", ")
        meaning = f" with {rest} = {', '.join(map(str, sizes))}" if rest else ""
        expected = f"[{dimensions}]{meaning}, as `query` and `key_value` say, or 1 in place of each"
        raise LeadingDimensionsError("GroupedQueryAttention", argument, x.shape, expected)
    return x


def _not_a_cache(argument: str, value: Any, expected: str) -> TypeError:
    return TypeError(
        f"`{argument}` of `GroupedQueryAttention` must be {expected}, got {value!r:.80} of type "
        f"{type(value).__name__}. It comes from `layer.initial_cache(batch_size, max_length)` or the previous call."
    )


def _checked(cache: Any, layer: GroupedQueryAttention, leading: tuple[int, ...]) -> KeyValueCache:
    """Returns `cache` if a layer of these sizes can have made it."""
    heads = (layer.num_kv_heads, layer.key_size)
    expected = f"[{', '.join(map(str, (*leading, 'max_length', *heads)))}]"
    if not isinstance(cache, KeyValueCache):
        raise _not_a_cache("cache", cache, "a `hkx.KeyValueCache`")
    for name, x in (("cache.key", cache.key), ("cache.value", cache.value)):
        shape = jnp.shape(x)
        if len(shape) != len(leading) + 3 or (*shape[:-3], *shape[-2:]) != (*leading, *heads):
            raise LeadingDimensionsError(
                "GroupedQueryAttention", name, shape, f"{expected}, as `query` and the layer say"
            )
        if not jnp.issubdtype(jnp.result_type(x), jnp.inexact):
            raise _not_a_cache(name, jnp.result_type(x), "of a floating dtype")
    return cache


def _for_all(mask: jax.Array) -> bool:
    """True if a mask is the same along all leading dimensions, so that it need not be repeated."""
    return all(size == 1 for size in mask.shape[:-3])


def _with_one_batch(x: jax.Array, leading: tuple[int, ...], n: int) -> jax.Array:
    """`x` broadcast to `leading`, with the leading dimensions merged into one, followed by its last `n` dimensions."""
    rest = x.shape[x.ndim - n :]
    return jnp.reshape(jnp.broadcast_to(x, (*leading, *rest)), (math.prod(leading), *rest))


def _seen(size: int, mask: jax.Array | None, lengths: jax.Array | None) -> jax.Array | None:
    """The positions of `size` to which a query may attend, `bool[N, S]`; None for all."""
    seen = None if mask is None else jnp.any(mask, axis=(1, 2))
    if lengths is None:
        return seen
    within = jnp.arange(size)[None] < lengths[:, None]
    return within if seen is None else jnp.logical_and(seen, within)


def _attention(q: jax.Array, k: jax.Array, v: jax.Array, **options: Any) -> jax.Array:
    """`jax.nn.dot_product_attention`; for float16 on CPU, which does not support it, in float32."""

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(q, k, v, **options)

    def attend_in_single(*qkv: jax.Array) -> jax.Array:
        return attend(*(x.astype(jnp.float32) for x in qkv)).astype(q.dtype)

    if q.dtype != jnp.float16:
        return attend(q, k, v)
    return jax.lax.platform_dependent(q, k, v, cpu=attend_in_single, default=attend)


def _extended(
    cache: KeyValueCache, key: jax.Array, value: jax.Array, queries: int, window: int | None
) -> tuple[jax.Array, KeyValueCache]:
    """The mask of tokens in the cache that a query may attend to, `bool[T, S]`, and the cache with the new tokens."""
    size, new = cache.key.shape[-3], key.shape[-3]
    held = 0 if isinstance(cache.length, jax.core.Tracer) else int(cache.length)  # the minimum, if traced
    if held + new > size:
        raise ValueError(f"The cache has room for {size} tokens and holds {held}: {new} more do not fit.")
    key, value = (
        jax.lax.dynamic_update_slice_in_dim(
            resharded(old, *parts_of(new)), new.astype(old.dtype), cache.length, axis=-3
        )
        for old, new in ((cache.key, key), (cache.value, value))
    )
    longer = KeyValueCache(key, value, cache.length + new)
    query_at = cache.length + jnp.arange(queries)[:, None]
    key_at = jnp.arange(size)[None]
    allowed = key_at <= query_at
    if window is not None:
        allowed = jnp.logical_and(allowed, key_at > query_at - window)
    return allowed, longer
