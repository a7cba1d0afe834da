"""Causal self-attention to keys and values that are computed from one small vector a token."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from hkx import AttentionCache, Linear, Module, RMSNorm, get_parameter, transparent
from hkx.arguments import Flag, Function, Int, Num, Number, PositiveSize, Size
from hkx.initializers import Initializer, TruncatedNormal
from hkx.nn.causal_attention import (
    attend,
    empty_cache,
    extended,
    masked,
    positions_of,
    slots_of,
    visible,
)


class LatentAttention(Module):
    """Multi-head latent attention: a token is stored as a latent c and one rotated key r, which all heads share.

    With c = norm(x kv_down) and r = rotary(x kv_down'), head h has the keys `[c K_h, r]`, the values `c V_h`, and the
    queries `[q_h, rotary(q'_h)]`. As `q_h . (c K_h) = (q_h K_h^T) . c`, all heads attend to `[c, r]` itself, and no
    keys and values of heads are computed: a cache has `kv_rank + rotary_size` numbers a token.

    Parameters, under the module's name: `query`, or `query_down`, `query_norm` and `query_up`; `kv_down`; `kv_norm`;
    `kv_up`, `[kv_rank, num_heads * (key_size + value_size)]`; `output`.

    Reference: DeepSeek-AI (2024), "DeepSeek-V2: a strong, economical, and efficient mixture-of-experts language model",
    arXiv:2405.04434.

    Args:
      num_heads: the number of heads.
      kv_rank: the size of c.
      query_rank: the size of a latent from which queries are computed; None for none.
      key_size: the size of the part of keys without position.
      rotary_size: the size of r.
      value_size: the size of the values of a head.
      model_size: the size of the output; that of the input by default.
      bias: whether `query_down`, `kv_down` and `output` have biases.
      rotary: a function of `([B, T, N, rotary_size], positions)`, such as `hkx.RotaryEmbedding()`.
      scale: the factor of the logits; `(key_size + rotary_size)**-0.5` by default.
      norm_eps: the constant in the norms.
      w_init: initializer of all but `output`; by default as for `hkx.Linear`.
      output_w_init: initializer of `output`; `w_init` by default.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     return hkx.LatentAttention(4, 16, None, key_size=8, rotary_size=4, value_size=8)(x)
      >>> model = hkx.transform(f)
      >>> x = jnp.ones([1, 5, 32])
      >>> model.apply(model.init(jax.random.key(0), x), None, x).shape
      (1, 5, 32)
    """

    def __init__(
        self,
        num_heads: PositiveSize,
        kv_rank: PositiveSize,
        query_rank: PositiveSize | None,
        key_size: PositiveSize,
        rotary_size: PositiveSize,
        value_size: PositiveSize,
        *,
        model_size: PositiveSize | None = None,
        bias: Flag = False,
        rotary: Function | None = None,
        scale: Number[float, "any"] | None = None,
        norm_eps: Number[float, "[0, inf)"] = 1e-6,
        w_init: Initializer | None = None,
        output_w_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.num_heads, self.kv_rank, self.query_rank = num_heads, kv_rank, query_rank
        self.key_size, self.rotary_size, self.value_size = key_size, rotary_size, value_size
        self.model_size = model_size
        self.bias, self.rotary, self.norm_eps = bias, rotary, norm_eps
        self.scale = (key_size + rotary_size) ** -0.5 if scale is None else scale
        self.w_init, self.output_w_init = w_init, w_init if output_w_init is None else output_w_init

    def initial_cache(self, batch_size: Size, max_length: Size, dtype: Any = jnp.float32) -> AttentionCache:
        """An empty cache with room for `max_length` tokens of each row, in a floating `dtype`; it has no `value`."""
        return empty_cache(jnp.zeros((batch_size, 1, max_length, self.kv_rank + self.rotary_size), dtype), None)

    def __call__(
        self,
        x: Num[jax.Array, "B T D"],
        *,
        positions: Int[jax.Array, "..."] | None = None,
        mask: Num[jax.Array, "..."] | None = None,
        window: int | jax.Array | None = None,
        cache: AttentionCache | None = None,
    ) -> Any:
        """Applies the layer; arguments, results and errors are those of `hkx.CausalAttention`."""
        b, t, d = x.shape
        slots, start = slots_of(cache, b, t)
        positions = positions_of(slots, start) if positions is None else positions
        rotate = (lambda y: y) if self.rotary is None else lambda y: self.rotary(y, positions)  # type: ignore[misc]
        q = self.queries(x).reshape(b, t, self.num_heads, self.key_size + self.rotary_size)
        q, q_rotated = q[..., : self.key_size], rotate(q[..., self.key_size :])  # [B, T, H, …]
        y = Linear(self.kv_rank + self.rotary_size, self.bias, self.w_init, name="kv_down")(x)
        latent, shared = self.norm(y[..., : self.kv_rank], "kv_norm"), rotate(y[..., None, self.kv_rank :])
        k = jnp.concatenate([latent, shared[:, :, 0]], axis=-1)[:, None]  # [B, 1, T, R]
        if cache is not None:
            cache = extended(cache, k, None)
            k = cache.key.astype(q.dtype)
        to_keys, to_values = self.maps_of_heads(q.dtype)
        q = jnp.concatenate([jnp.einsum("bthk,rhk->bthr", q, to_keys), q_rotated], axis=-1)  # [B, T, H, R]
        allowed = visible(slots, start, k.shape[2], window)
        allowed = allowed if mask is None else masked(allowed, mask, self)
        y = attend(q, k, k[..., : self.kv_rank], allowed, scale=self.scale)
        y = jnp.einsum("bthr,rhv->bthv", y, to_values).reshape(b, t, self.num_heads * self.value_size)
        model_size = d if self.model_size is None else self.model_size
        y = Linear(model_size, self.bias, self.output_w_init, name="output")(y)
        return y if cache is None else (y, cache)

    @transparent
    def queries(self, x: jax.Array) -> jax.Array:
        """The queries of all heads, `[B, T, num_heads * (key_size + rotary_size)]`."""
        size = self.num_heads * (self.key_size + self.rotary_size)
        if self.query_rank is None:
            return Linear(size, False, self.w_init, name="query")(x)
        y = self.norm(Linear(self.query_rank, self.bias, self.w_init, name="query_down")(x), "query_norm")
        return Linear(size, False, self.w_init, name="query_up")(y)

    @transparent
    def maps_of_heads(self, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """K, `[kv_rank, num_heads, key_size]`, and V, `[kv_rank, num_heads, value_size]`."""
        size = self.num_heads * (self.key_size + self.value_size)
        init = TruncatedNormal(self.kv_rank**-0.5) if self.w_init is None else self.w_init
        w = get_parameter("kv_up", [self.kv_rank, size], dtype, init=init).reshape(self.kv_rank, self.num_heads, -1)
        return w[..., : self.key_size], w[..., self.key_size :]

    @transparent
    def norm(self, x: jax.Array, name: str) -> jax.Array:
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        return RMSNorm(-1, self.norm_eps, name=name)(wide).astype(x.dtype)
