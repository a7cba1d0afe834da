"""Causal self-attention of language models, with a cache for decoding."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp

from hkx import Linear, Module, get_parameter, traced_once, transparent
from hkx.arguments import Flag, Function, Int, Num, Number, PositiveSize, Size, is_iterable
from hkx.errors import LeadingDimensionsError
from hkx.initializers import Initializer
from hkx.nn.numerics import check_dtype

PROJECTIONS = ("query", "key", "value", "output")


class AttentionCache(NamedTuple):
    """The keys and values of the tokens so far; see `hkx.CausalAttention.initial_cache`.

    All rows are written at the same slot. A row whose prompt is shorter begins at a later slot, its `start`: pad its
    prompt on the left. A row that has ended may be replaced by another prompt of at most `length` tokens: write its
    keys and values into the slots before `length`, and let `start` be the first of them.

    Attributes:
      key: `[B, num_kv_heads, S, key_size]`.
      value: `[B, num_kv_heads, S, key_size]`.
      length: `int32[]`, the number of slots written so far, out of S.
      start: `int32[B]`, the first slot of each row that is not padding.

    Example:

      >>> import hkx
      >>> f = hkx.transform(lambda: hkx.CausalAttention(4, 2, key_size=8).initial_cache(batch_size=3, max_length=16))
      >>> f.apply({}, None).key.shape
      (3, 2, 16, 8)
    """

    key: jax.Array  # [B, K, S, D]
    value: jax.Array  # [B, K, S, D]
    length: jax.Array  # int32[]
    start: jax.Array  # int32[B]


class CausalAttention(Module):
    """Each token attends to itself and to tokens before it; groups of query heads share a head of keys and values.

    For query head h and its key head k: `softmax(cap(scale q_h k_k^T)) v_k`, with `cap(x) = soft_cap tanh(x /
    soft_cap)`. With sinks, one more logit for each head takes part in the softmax, and has no value.

    Parameters, under the module's name: `query`, `key`, `value` and `output` with `w` (and `b`), as those of
    `hkx.GroupedQueryAttention`; `sinks`, `[num_heads]`; and those of the norms.

    References: Ainslie et al. (2023), "GQA: training generalized multi-query transformer models from multi-head
    checkpoints", arXiv:2305.13245; Dehghani et al. (2023), "Scaling vision transformers to 22 billion parameters",
    arXiv:2302.05442 (norms of queries and keys); Gemma Team (2024), "Gemma 2", arXiv:2408.00118 (soft cap);
    Xiao et al. (2023), "Efficient streaming language models with attention sinks", arXiv:2309.17453.

    Args:
      num_heads: the number of query heads.
      num_kv_heads: the number of heads for keys and values; it must divide `num_heads`.
      key_size: the size of each head.
      model_size: the size of the output; `num_heads * key_size` by default.
      bias: the projections that have biases, of `"query"`, `"key"`, `"value"` and `"output"`; True for all.
      rotary: a function of `([B, T, N, D], positions)` that rotates queries and keys, such as `hkx.RotaryEmbedding()`.
      query_norm: a function that normalises queries, `[B, T, num_heads, key_size]`, before they are rotated.
      key_norm: the same for keys, `[B, T, num_kv_heads, key_size]`.
      scale: the factor of the logits; `key_size**-0.5` by default.
      soft_cap: the largest logit; None for no limit.
      sinks: whether each head has a sink.
      w_init: initializer of `query`, `key` and `value`, as for `hkx.Linear`.
      output_w_init: initializer of `output`; `w_init` by default.
      name: the module's name.

    Raises:
      ValueError: if `num_kv_heads` does not divide `num_heads`, or `bias` names something else.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.CausalAttention(4, 2, key_size=8, rotary=hkx.RotaryEmbedding())(x))
      >>> x = jnp.ones([1, 5, 32])
      >>> model.apply(model.init(jax.random.key(0), x), None, x).shape
      (1, 5, 32)
    """

    def __init__(
        self,
        num_heads: PositiveSize,
        num_kv_heads: PositiveSize,
        key_size: PositiveSize,
        *,
        model_size: PositiveSize | None = None,
        bias: bool | Sequence[str] = False,
        rotary: Function | None = None,
        query_norm: Function | None = None,
        key_norm: Function | None = None,
        scale: Number[float, "any"] | None = None,
        soft_cap: Number[float, "(0, inf)"] | None = None,
        sinks: Flag = False,
        w_init: Initializer | None = None,
        output_w_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.num_heads, self.num_kv_heads, self.key_size = num_heads, num_kv_heads, key_size
        if num_heads % num_kv_heads:
            raise ValueError(f"`num_kv_heads` {num_kv_heads} must divide `num_heads` {num_heads}.")
        self.model_size = num_heads * key_size if model_size is None else model_size
        if not isinstance(bias, bool) and not is_iterable(bias):
            raise TypeError(f"`bias` must be a bool or names of {PROJECTIONS}, got {bias!r}.")
        self.bias = (PROJECTIONS if bias else ()) if isinstance(bias, bool) else tuple(bias)
        if unknown := set(self.bias) - set(PROJECTIONS):
            raise ValueError(f"`bias` must be a bool or names of {PROJECTIONS}, got {sorted(unknown)}.")
        self.rotary, self.query_norm, self.key_norm = rotary, query_norm, key_norm
        self.scale = self.key_size**-0.5 if scale is None else scale
        self.soft_cap, self.sinks = soft_cap, sinks
        self.w_init, self.output_w_init = w_init, w_init if output_w_init is None else output_w_init

    def initial_cache(self, batch_size: Size, max_length: Size, dtype: Any = jnp.float32) -> AttentionCache:
        """An empty cache with room for `max_length` tokens of each row, in a floating `dtype`."""
        shape = (batch_size, self.num_kv_heads, max_length, self.key_size)
        return empty_cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def __call__(
        self,
        x: Num[jax.Array, "B T D"],
        *,
        positions: Int[jax.Array, "..."] | None = None,
        mask: Num[jax.Array, "..."] | None = None,
        window: int | jax.Array | None = None,
        cache: AttentionCache | None = None,
    ) -> Any:
        """Applies the layer.

        Args:
          x: `[B, T, D]`.
          positions: `int[B, T]` for the rotation; by default, each row counts from its start.
          mask: `bool[B, T, S]`: where a token may attend to another one, of those that do not come after it. S is T,
            or the `max_length` of the cache.
          window: a token attends only to itself and the `window - 1` tokens before it; may be traced.
          cache: the tokens so far. The new ones are added to it, and attend to all of its row. Tokens that do not fit
            replace the last ones, if the length is traced: check it, as `hkx.nets.Decoder` does.

        Returns:
          `[B, T, model_size]`; with a cache, a pair of this and the new cache.

        Raises:
          InvalidRankError: if `x` is not `[B, T, D]`.
          ValueError: if the cache is too small, as far as its length is known.
        """
        b, t, _ = x.shape
        q, k, v = self.heads(x, "query"), self.heads(x, "key"), self.heads(x, "value")  # [B, T, N, D]
        slots, start = slots_of(cache, b, t)
        positions = positions_of(slots, start) if positions is None else positions
        q, k = (y if norm is None else norm(y) for y, norm in ((q, self.query_norm), (k, self.key_norm)))
        q, k = (y if self.rotary is None else self.rotary(y, positions) for y in (q, k))
        k, v = jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)  # [B, K, T, D]
        sinks = get_parameter("sinks", [self.num_heads], x.dtype, init=jnp.zeros) if self.sinks else None
        y, cache = self.attended(q, k, v, sinks, slots, start, mask, window, cache)
        y = y.reshape(b, t, self.num_heads * self.key_size)
        y = Linear(self.model_size, "output" in self.bias, self.output_w_init, name="output")(y)
        return y if cache is None else (y, cache)

    @transparent
    def attended(
        self, q: Any, k: Any, v: Any, sinks: Any, slots: Any, start: Any, mask: Any, window: Any, cache: Any
    ) -> tuple[jax.Array, Any]:
        """The means of values, `[B, T, H, D]`, for queries of this shape; and the cache with keys and values."""
        if cache is not None:
            cache = extended(cache, k, v)
            k, v = cache.key.astype(q.dtype), cache.value.astype(q.dtype)  # [B, K, S, D]
        allowed = visible(slots, start, k.shape[2], window)  # [B, T, S]
        allowed = allowed if mask is None else masked(allowed, mask, self)
        return attend(q, k, v, allowed, sinks, scale=self.scale, soft_cap=self.soft_cap), cache

    @transparent
    def heads(self, x: jax.Array, name: str) -> jax.Array:
        """The queries, keys or values of `x`, `[B, T, N, D]`."""
        n = self.num_heads if name == "query" else self.num_kv_heads
        y = Linear(n * self.key_size, name in self.bias, self.w_init, name=name)(x)
        return y.reshape(*y.shape[:2], n, self.key_size)


@functools.partial(traced_once, static_argnames=("scale", "soft_cap"))
def attend(q: Any, k: Any, v: Any, allowed: Any, sinks: Any = None, *, scale: float, soft_cap: Any = None) -> jax.Array:
    """`softmax(cap(scale q k^T)) v` of `q[B, T, H, D]`, `k[B, K, S, D]`, `v[B, K, S, E]`: `[B, T, H, E]`.

    A token attends to those for which `allowed[B, T, S]` is true. The softmax is computed in float32 or wider.
    """
    b, t, h, d = q.shape
    kv_heads, s, groups = k.shape[1], k.shape[2], h // k.shape[1]
    wide = jnp.promote_types(q.dtype, jnp.float32)
    q = q.reshape(b, t, kv_heads, groups, d).transpose(0, 2, 3, 1, 4).reshape(b, kv_heads, groups * t, d)
    logits = scale * wide_product("bkqd,bksd->bkqs", q, k)
    logits = logits if soft_cap is None else soft_cap * jnp.tanh(logits / soft_cap)
    logits = logits.reshape(b, kv_heads, groups, t, s)
    logits = jnp.where(allowed[:, None, None], logits, jnp.finfo(wide).min)
    if sinks is None:
        weights = jax.nn.softmax(logits, axis=-1)
    else:
        sinks = jnp.broadcast_to(sinks.astype(wide).reshape(1, kv_heads, groups, 1, 1), (*logits.shape[:-1], 1))
        weights = jax.nn.softmax(jnp.concatenate([logits, sinks], axis=-1), axis=-1)[..., :-1]
    weights = weights.astype(v.dtype).reshape(b, kv_heads, groups * t, s)
    y = jnp.einsum("bkqs,bksd->bkqd", weights, v).reshape(b, kv_heads, groups, t, v.shape[-1])
    return y.transpose(0, 3, 1, 2, 4).reshape(b, t, h, v.shape[-1])


def wide_product(subscripts: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """`jnp.einsum` with a result in float32 or wider, whose gradient multiplies in the operands' dtype, too."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    algorithm = jax.lax.DotAlgorithmPreset.BF16_BF16_F32 if x.dtype == jnp.bfloat16 else None
    return jnp.einsum(subscripts, x, y, precision=algorithm, preferred_element_type=wide)


def slots_of(cache: Any, batch: int, time: int) -> tuple[jax.Array, jax.Array]:
    """The slots of new tokens, `int32[T]`, and the first slot of each row, `int32[B]`."""
    if cache is None:
        return jnp.arange(time), jnp.zeros(batch, jnp.int32)
    return cache.length + jnp.arange(time), cache.start


def positions_of(slots: jax.Array, start: jax.Array) -> jax.Array:
    """The positions of tokens in their rows, `int32[B, T]`; 0 for padding."""
    return jnp.maximum(slots[None] - start[:, None], 0)


def visible(slots: jax.Array, start: jax.Array, size: int, window: int | jax.Array | None) -> jax.Array:
    """The mask of slots to which the tokens at these slots may attend at all, `bool[B, T, size]`."""
    distance = slots[:, None] - jnp.arange(size)[None]  # [T, S]
    near = distance >= 0 if window is None else jnp.logical_and(distance >= 0, distance < window)
    begun = jnp.arange(size)[None] >= start[:, None]  # [B, S]
    return jnp.logical_and(near[None], begun[:, None])


def empty_cache(key: jax.Array, value: Any) -> AttentionCache:
    return AttentionCache(key, value, jnp.zeros([], jnp.int32), jnp.zeros(key.shape[:1], jnp.int32))


def extended(cache: AttentionCache, key: jax.Array, value: jax.Array | None) -> AttentionCache:
    """The cache with the keys and values, `[B, K, T, D]`, of new tokens."""
    check_room(cache.length, cache.key.shape[2], key.shape[2])

    def written(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), cache.length, axis=2)

    all_keys, all_values = jax.tree.map(written, (cache.key, cache.value), (key, value))
    return cache._replace(key=all_keys, value=all_values, length=cache.length + key.shape[2])


def check_room(length: Any, size: int, new: int) -> None:
    """Raises ValueError if that many new tokens do not fit into a cache, as far as its length is known."""
    held = 0 if isinstance(length, jax.core.Tracer) else int(length)  # the minimum, if traced
    if held + new > size:
        raise ValueError(
            f"The cache has room for {size} tokens and holds {held}: {new} more do not fit. Make it longer: "
            "`initial_cache(batch_size, max_length)`."
        )


def masked(allowed: jax.Array, mask: jax.Array, layer: object) -> jax.Array:
    """A mask of the pairs that both allow, `bool[B, T, S]`."""
    check_dtype(mask.dtype == bool, layer, "mask", mask.dtype, "bool, True where a token may attend to another one")
    if mask.ndim != 3 or any(n not in (1, size) for n, size in zip(mask.shape, allowed.shape, strict=True)):
        expected = f"{allowed.shape}, or 1 in place of each"
        raise LeadingDimensionsError(type(layer).__name__, "mask", mask.shape, expected)
    return jnp.logical_and(allowed, mask)
