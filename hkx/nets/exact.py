"""Numbers of each row, or token, whose bits do not depend on the others: on their number, their padding or a cache.

A compiler picks instructions by shapes, and sums of another order round differently. Here all shapes of what works on a
row are fixed: rows go in tiles of `TILE`, keys in chunks of `CHUNK`, through loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hkx import CausalAttention, LayerNorm, Linear, RMSNorm, RotaryEmbedding, transparent
from hkx.nets.decoder_config import DecoderConfig
from hkx.nn.causal_attention import attend, wide_product

TILE = 32  # rows that are computed together
AT_ONCE = 512 // TILE  # tiles whose gradients are computed together
QUERIES = 8  # queries that attend together, each to its own row of keys
CHUNK = 32  # keys that are read together


def in_tiles(f: Callable[..., Any], *rows: jax.Array) -> Any:
    """Computes `f(*rows)` in tiles of fixed size, for an f that works row by row: a row's bits depend only on the row.

    Values are computed in a loop over tiles of 32 rows, and gradients of 512 rows at once, as fast as usual: their bits
    depend on other rows.

    `rlx.softmax(t).logprob(y, logits)` and `rlx.token_log_probs` round differently. Use one function in both programs,
    here `log_prob(logits, y)`, and they agree to the bit if `decoder` is exact:

        tokens, hkx.nets.in_tiles(log_prob, logits, tokens)  # what `sample` returns to `hkx.nets.generate`
        hkx.nets.in_tiles(lambda x, y: log_prob(decoder.logits(x), y), hidden.reshape(-1, D), answers.ravel())

    Args:
      f: a function of arrays `[N, …]` that returns arrays `[N, …]`, or a tree of them; row n depends only on rows n.
      *rows: arrays `[R, …]`.

    Returns:
      Arrays `[R, …]`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> x, w = jax.random.normal(jax.random.key(0), [100, 64]), jnp.ones([64, 3])
      >>> all_rows, one = (hkx.nets.in_tiles(lambda x: jax.nn.softmax(x @ w), rows) for rows in (x, x[:1]))
      >>> bool(jnp.all(all_rows[:1] == one))
      True
    """
    count = rows[0].shape[0]
    tiles = [_tiles(x, TILE) for x in rows]
    run, captured = jax.closure_convert(f, *(x[0] for x in tiles))

    def one_by_one(captured: Any, tiles: Any) -> Any:
        return _looped(lambda *tile: run(*tile, *captured), *tiles)

    def at_once(captured: Any, tiles: Any) -> Any:
        each = jax.checkpoint(lambda tile: run(*tile, *captured))
        return jax.lax.map(each, tiles, batch_size=AT_ONCE)

    out = _with_derivative_of(at_once, one_by_one)(captured, tiles)
    return jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:])[:count], out)


def _looped(f: Callable[..., Any], *xs: jax.Array) -> Any:
    """`f` of each entry, in a loop of whose length the compiler knows nothing: it would open loops of one round."""
    out = jax.eval_shape(f, *(x[0] for x in xs))

    def step(i: jax.Array, done: Any) -> Any:
        new = f(*(jax.lax.dynamic_index_in_dim(x, i, keepdims=False) for x in xs))
        return jax.tree.map(lambda a, b: jax.lax.dynamic_update_index_in_dim(a, b, i, 0), done, new)

    start = jax.tree.map(lambda y: jnp.zeros_like(y, shape=[len(xs[0]), *y.shape]), out)
    return jax.lax.fori_loop(0, jax.lax.optimization_barrier(jnp.asarray(len(xs[0]))), step, start)


def _with_derivative_of(g: Callable[..., Any], f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, with the derivative of `g`, which differs from it by rounding."""
    both = jax.custom_vjp(f)
    both.defvjp(lambda *args: (f(*args), args), lambda args, dy: jax.vjp(g, *args)[1](dy))
    return both


def rounded(x: jax.Array) -> jax.Array:
    """`x`, rounded to its dtype, which a compiler may leave out between two sums in bfloat16.

    Between layers it may do so in a sampler, but not in a learner, whose layers are a stack.
    """
    wide, about = jnp.promote_types(x.dtype, jnp.float32), jnp.finfo(x.dtype)
    if x.dtype == wide:
        return x
    return jax.lax.reduce_precision(x.astype(wide), about.nexp, about.nmant).astype(x.dtype)


def check_exact(config: DecoderConfig) -> None:
    """Raises ValueError if a decoder has what is not computed exactly."""
    for name in ("experts", "latent"):
        if getattr(config, name) is not None:
            raise ValueError(
                f"`exact=True` of Decoder goes with `{name}=None` of its config, got {getattr(config, name)!r:.80}: "
                "bits of a token's numbers would depend on other tokens."
            )


def by_rows(next_method: Any, args: Any, kwargs: Any, context: Any) -> Any:
    """An interceptor that calls layers which work on each token by itself, `[B, T, …]`, in tiles of tokens."""
    method = type(context.module), context.method_name
    if method not in ((Linear, "__call__"), (RMSNorm, "__call__"), (LayerNorm, "__call__"), _ANGLES):
        return next_method(*args, **kwargs)
    (x, *rest), leading = args, args[0].shape[:2]
    y = in_tiles(lambda x: next_method(x, *rest, **kwargs), x.reshape(-1, *x.shape[2:]))
    return jax.tree.map(lambda y: y.reshape(*leading, *y.shape[1:]), y)


_ANGLES = (RotaryEmbedding, "cos_and_sin")


class ExactAttention(CausalAttention):
    """A `hkx.CausalAttention` whose tokens attend one by one; a token's slot in the cache is its position."""

    @transparent
    def attended(
        self, q: Any, k: Any, v: Any, sinks: Any, slots: Any, start: Any, mask: Any, window: Any, cache: Any
    ) -> tuple[jax.Array, Any]:
        positions = slots[None] - start[:, None]  # [B, T], negative for padding
        if cache is not None:
            size, rows = cache.key.shape[2], jnp.arange(len(start))[:, None]
            own = jnp.where(positions < 0, size, positions)

            def written(old: jax.Array, new: jax.Array) -> jax.Array:
                return old.at[rows, :, own].set(jnp.swapaxes(new, 1, 2).astype(old.dtype), mode="drop")

            key, value = written(cache.key, k), written(cache.value, v)
            cache = cache._replace(key=key, value=value, length=cache.length + q.shape[1])
            k, v = key.astype(q.dtype), value.astype(q.dtype)
        positions = jnp.maximum(positions, 0)
        options = {"scale": self.scale, "soft_cap": self.soft_cap}

        def one_by_one(q: Any, k: Any, v: Any, sinks: Any, positions: Any, window: Any) -> jax.Array:
            return _attended(q, k, v, sinks, positions, window, **options)

        def at_once(q: Any, k: Any, v: Any, sinks: Any, positions: Any, window: Any) -> jax.Array:
            distance = positions[..., None] - jnp.arange(k.shape[2])[None, None]
            allowed = (distance >= 0) if window is None else (distance >= 0) & (distance < window)
            return attend(q, k, v, allowed, sinks, **options)

        y = _with_derivative_of(at_once, one_by_one)(q, k, v, sinks, positions, window)
        return y, cache


def _attended(q: Any, k: Any, v: Any, sinks: Any, positions: Any, window: Any, *, scale: float, soft_cap: Any) -> Any:
    """As `attend`, for queries at these positions: chunks of keys change a running maximum, sum and mean of values.

    Chunks that come after the query's position change none of them.
    """
    (batch, time, heads, size), kv_heads = q.shape, k.shape[1]
    groups, wide = heads // kv_heads, jnp.promote_types(q.dtype, jnp.float32)
    if sinks is None:
        highest, total = jnp.finfo(wide).min, 0
    else:
        highest, total = sinks.astype(wide).reshape(1, kv_heads, groups), 1
    k, v = (jnp.pad(x, [(0, 0), (0, 0), (0, -x.shape[2] % CHUNK), (0, 0)]) for x in (k, v))

    def of_tile(q: Any, row: Any, position: Any) -> jax.Array:
        q = q.reshape(QUERIES, kv_heads, groups, size)

        def chunk(i: jax.Array, carry: Any) -> Any:
            highest, total, y = carry

            def read(x: jax.Array) -> jax.Array:  # the keys or values of each query's row
                parts = (1, kv_heads, CHUNK, x.shape[-1])
                return jax.vmap(lambda row: jax.lax.dynamic_slice(x, (row, 0, i * CHUNK, 0), parts)[0])(row)

            logits = scale * wide_product("qkgd,qksd->qkgs", q, read(k))
            logits = logits if soft_cap is None else soft_cap * jnp.tanh(logits / soft_cap)
            distance = position[:, None] - (i * CHUNK + jnp.arange(CHUNK))[None]
            seen = (distance >= 0) if window is None else (distance >= 0) & (distance < window)
            seen = seen[:, None, None]
            new = jnp.maximum(highest, jnp.max(jnp.where(seen, logits, jnp.finfo(wide).min), axis=-1))
            weights, factor = jnp.where(seen, jnp.exp(logits - new[..., None]), 0), jnp.exp(highest - new)
            more = jnp.einsum("qkgs,qksd->qkgd", weights.astype(v.dtype), read(v)).astype(wide)
            return new, total * factor + jnp.sum(weights, axis=-1), y * factor[..., None] + more

        zeros = jnp.zeros_like(q, wide, [*q.shape[:-1], v.shape[-1]])  # varying between devices as q does
        carry = zeros[..., 0] + highest, zeros[..., 0] + total, zeros
        _, sums, y = jax.lax.fori_loop(0, jnp.max(position) // CHUNK + 1, chunk, carry)
        return (y / sums[..., None]).astype(v.dtype).reshape(QUERIES, heads, v.shape[-1])

    rows = jnp.broadcast_to(jnp.arange(batch)[:, None], (batch, time))
    tiles = (_tiles(x.reshape(-1, *x.shape[2:]), QUERIES) for x in (q, rows, positions))
    y = _looped(of_tile, *tiles)
    return y.reshape(-1, *y.shape[2:])[: batch * time].reshape(batch, time, heads, v.shape[-1])


def _tiles(x: jax.Array, size: int) -> jax.Array:
    """Rows `[R, …]` as tiles `[N, size, …]`, at least one; the last one is filled with zeros."""
    padded = jnp.pad(x, [(0, max(size - len(x), -len(x) % size))] + [(0, 0)] * (x.ndim - 1))
    return padded.reshape(-1, size, *x.shape[1:])
