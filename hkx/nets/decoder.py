"""Decoder-only language models, of the families that are in use today."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx import (
    AttentionCache,
    Embed,
    Module,
    RotaryEmbedding,
    custom_creator,
    custom_getter,
    get_parameter,
    intercept_methods,
    layer_stack,
    name_like,
    running_init,
    transparent,
)
from hkx.arguments import Flag, Int, Num, Size
from hkx.initializers import RandomNormal
from hkx.nets.decoder_config import DecoderConfig
from hkx.nets.decoder_layer import DecoderLayer, norm
from hkx.nets.exact import CHUNK, by_rows, check_exact, in_tiles, rounded
from hkx.nn.causal_attention import check_room, positions_of, slots_of, wide_product

NO_WINDOW = 2**30


class DecoderCache(NamedTuple):
    """The keys and values of all layers; see `hkx.AttentionCache`.

    Attributes:
      key: a tuple of `[B, K, S, D]`, one for each layer; for a stacked decoder, one array `[num_layers, B, K, S, D]`.
      value: the same for values; with latent attention None.
      length: `int32[]`, the number of slots written so far, out of S.
      start: `int32[B]`, the first slot of each row that is not padding. For prompts of several lengths, pad them on the
        left, and begin with `cache._replace(start=…)`.

    Example:

      >>> import hkx, jax
      >>> config = hkx.nets.DecoderConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4)
      >>> f = hkx.transform(lambda: hkx.nets.Decoder(config, stacked=False).initial_cache(3, max_length=10))
      >>> jax.tree.map(jax.numpy.shape, f.apply({}, None).key)
      ((3, 4, 10, 16), (3, 4, 10, 16))
    """

    key: Any
    value: Any
    length: jax.Array
    start: jax.Array


class Decoder(Module):
    """A decoder-only language model: the logits of each next token, given the tokens up to it.

    Families differ by their `hkx.nets.DecoderConfig`. Initial parameters give all tokens nearly equal probabilities.

    Parameters, under the module's name: `embed`; `layer`, `layer_1`, … with `attention`, `mlp` or `experts`, and norms;
    or, if stacked, the same with an axis for layers in front, `[num_layers, …]`, under `layers/layer`; `norm`; and
    `head`, unless it is tied to the embeddings. Layers without experts in a model with experts are called
    `dense_layer`, in a stack `dense_layers`. Train with a stack, which compiles in the same time for any number of
    layers, and decode without one: a stack's slices would be copied for each token. `hkx.unstack_params(params,
    "decoder/layers")` converts.

    Args:
      config: the sizes and options.
      stacked: whether the layers are a `hkx.layer_stack`.
      remat: True, or a policy of `jax.checkpoint_policies`, to compute layers again for the gradient, which saves
        memory; None stores them.
      dtype: the dtype to compute in; by default that of the parameters. `init` creates parameters in float32.
      exact: whether bits of a token's logits are equal in all programs, whatever the batch, padding and cache:
        `hkx.nets.generate` and `hkx.nets.answer_hidden` then agree to the bit. With `hkx.nets.in_tiles`, so do
        log-probabilities. On several devices, call it in `jax.shard_map`. A token's slot in a cache is its position.
      name: the module's name.

    Raises:
      ValueError: if it is exact, and the configuration has experts or latent attention.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> config = hkx.nets.DecoderConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2)
      >>> model = hkx.without_apply_rng(hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens)))
      >>> tokens = jnp.array([[7, 2, 5]])
      >>> params = model.init(jax.random.key(0), tokens)
      >>> model.apply(params, tokens).shape
      (1, 3, 256)
    """

    def __init__(
        self,
        config: DecoderConfig,
        *,
        stacked: Flag = True,
        remat: bool | Callable[..., bool] | None = None,
        dtype: Any = None,
        exact: Flag = False,
        name: str | None = None,
    ):
        super().__init__(name=name)
        if not isinstance(config, DecoderConfig):
            raise TypeError(f"`config` of Decoder must be a `hkx.nets.DecoderConfig`, got {config!r:.80}.")
        if exact:
            check_exact(config)
        self.config, self.stacked, self.remat, self.dtype, self.exact = config, stacked, remat or False, dtype, exact

    def __call__(
        self,
        tokens: Int[jax.Array, "B T"],
        *,
        cache: DecoderCache | None = None,
        positions: Int[jax.Array, "..."] | None = None,
        segments: Int[jax.Array, "..."] | None = None,
        lengths: Int[jax.Array, "..."] | None = None,
    ) -> Any:
        """Computes logits.

        Args:
          tokens: `int[B, T]`.
          cache: the tokens so far, to which the new ones are added; from `initial_cache` or the previous call.
          positions: `int[B, T]`; by default, each row, and each segment, counts from 0.
          segments: `int[B, T]`: several texts in a row; a token attends only to tokens of its own segment.
          lengths: `int[B]`: tokens at and after the length are padding, to which no token attends.

        Returns:
          `[B, T, vocab_size]`, in float32 or wider; with a cache, a pair of this and the new cache. If more tokens were
          added to a cache than fit, and its length is traced, all are NaN.

        Raises:
          InvalidRankError: if `tokens` is not `[B, T]`.
          ValueError: if the cache is too small, as far as its length is known; or `segments` or `lengths` are given
            with a cache; or these or `positions` are, and the decoder is exact.
        """
        x = self.hidden(tokens, cache=cache, positions=positions, segments=segments, lengths=lengths)
        return self.logits(x) if cache is None else (self.logits(x[0]), x[1])

    @name_like("__call__")
    def hidden(
        self,
        tokens: Int[jax.Array, "B T"],
        *,
        cache: DecoderCache | None = None,
        positions: Int[jax.Array, "..."] | None = None,
        segments: Int[jax.Array, "..."] | None = None,
        lengths: Int[jax.Array, "..."] | None = None,
    ) -> Any:
        """The vectors from which `logits` computes logits, `[B, T, hidden_size]`; with a cache, a pair."""
        c = self.config
        (batch, time), size = tokens.shape, tokens.shape[1] if cache is None else _size(cache)
        if cache is not None:
            check_room(cache.length, size, time)
            if segments is not None or lengths is not None:
                raise ValueError(
                    "`segments` and `lengths` go without a cache. Pad prompts on the left, and set `start`."
                )
        if self.exact and not (positions is None and segments is None and lengths is None):
            raise ValueError("`positions`, `segments` and `lengths` go without `exact=True` of Decoder.")
        if 0 < c.learned_positions < size:
            raise ValueError(f"The model has {c.learned_positions} learned positions, and {size} are needed.")
        slots, start = slots_of(cache, batch, time)
        if positions is None:
            positions = positions_of(slots, start) if segments is None else _positions_in(segments)
        mask = _mask(segments, lengths, time)
        with self._computing(), self._by_rows():
            x = self._embed()(tokens)
            x = x if self.dtype is None else x.astype(self.dtype)
            x = x if c.embedding_scale == 1 else x * jnp.asarray(c.embedding_scale, x.dtype)
            if c.learned_positions:
                shape, init = [c.learned_positions, c.hidden_size], RandomNormal(self._stddev(c.tied_embeddings))
                x = x + get_parameter("positions", shape, x.dtype, init=init).astype(x.dtype)[positions]
            x = rounded(x) if self.exact else x
            x, kv = self._layers(x, positions, mask, cache)
            x = norm(c, "norm")(x)
        if cache is None:
            return x
        if isinstance(cache.length, jax.core.Tracer):
            x = jnp.where(cache.length + time <= size, x, jnp.nan)
        return x, DecoderCache(kv[0], kv[1], cache.length + time, cache.start)

    @name_like("__call__")
    def logits(self, hidden: Num[jax.Array, "... D"]) -> jax.Array:
        """The logits `[..., vocab_size]` of vectors `[..., hidden_size]`, in float32 or wider."""
        c = self.config
        head = self.head()

        def of_rows(x: jax.Array) -> jax.Array:
            y = wide_product("...d,vd->...v", x, head.astype(x.dtype))
            return y if c.logit_cap is None else c.logit_cap * jnp.tanh(y / c.logit_cap)

        if not self.exact or running_init():
            return of_rows(hidden)
        return in_tiles(of_rows, hidden.reshape(-1, c.hidden_size)).reshape(*hidden.shape[:-1], c.vocab_size)

    @name_like("__call__")
    def head(self) -> jax.Array:
        """The rows whose products with `hidden` are logits, `[vocab_size, hidden_size]`; if tied, the embeddings.

        For log-probabilities of single tokens without all logits: `rlx.token_log_probs(hidden, decoder.head(), tokens,
        soft_cap=config.logit_cap)`.
        """
        c = self.config
        with self._computing():
            if c.tied_embeddings:
                return self._embed().embeddings
            shape, init = [c.vocab_size, c.hidden_size], RandomNormal(self._stddev(True))
            return get_parameter("head", shape, init=init)

    def initial_cache(self, batch_size: Size, max_length: Size, dtype: Any = None) -> DecoderCache:
        """An empty cache with room for `max_length` tokens of each row.

        Args:
          batch_size: the number of rows.
          max_length: the largest number of tokens.
          dtype: a floating dtype; by default `dtype` of the decoder, or float32.

        Returns:
          A DecoderCache for the first call.
        """
        c, dtype = self.config, dtype or self.dtype or jnp.float32
        max_length = -(-max_length // CHUNK) * CHUNK if self.exact else max_length
        heads, size = (c.num_kv_heads, c.head_dim) if c.latent is None else (1, c.latent.kv_rank + c.latent.rotary_size)
        shape = (batch_size, heads, max_length, size)

        def empty() -> Any:
            if self.stacked:
                return jnp.zeros((c.num_layers, *shape), dtype)
            return tuple(jnp.zeros(shape, dtype) for _ in range(c.num_layers))

        value = empty() if c.latent is None else None
        return DecoderCache(empty(), value, jnp.zeros([], jnp.int32), jnp.zeros(batch_size, jnp.int32))

    @transparent
    def _layers(self, x: jax.Array, positions: jax.Array, mask: Any, cache: Any) -> tuple[jax.Array, Any]:
        """The layers, one by one or in stacks of equal ones; returns keys and values of all layers, too."""
        c = self.config
        everywhere, local = _angles(c, positions)
        uniform = c.windows[0] if len(set(c.windows)) == 1 else None
        windows = np.array([NO_WINDOW if window is None else window for window in c.windows], np.int32)
        mixed, out = len(set(c.windows)) > 1, []

        def layer(x: jax.Array, window: Any, kv: Any, dense: bool) -> tuple[jax.Array, Any]:
            angles = everywhere
            if local is not None:
                angles = jax.tree.map(lambda a, b: jnp.where(window < NO_WINDOW, a, b), local, everywhere)
            own = None if cache is None else AttentionCache(kv[0], kv[1], cache.length, cache.start)
            name = "layer" if c.experts is None or not dense else "dense_layer"
            options = {"positions": positions, "mask": mask, "window": window if mixed else uniform, "cache": own}
            x, own = DecoderLayer(c, dense, name, exact=self.exact)(x, angles, **options)
            x = rounded(x) if self.exact else x
            return x, None if own is None else (own.key, own.value)

        if not self.stacked:
            for i in range(c.num_layers):
                kv = None if cache is None else (cache.key[i], None if cache.value is None else cache.value[i])
                x, kv = layer(x, windows[i], kv, c.is_dense(i))
                out.append(kv)
            return x, None if cache is None else _transposed(out)
        for dense, run in itertools.groupby(range(c.num_layers), c.is_dense):
            layers = list(run)
            rows = slice(layers[0], layers[-1] + 1)
            kv = None if cache is None else jax.tree.map(lambda a, rows=rows: a[rows], (cache.key, cache.value))
            name = "layers" if c.experts is None or not dense else "dense_layers"
            stack = layer_stack(len(layers), True, name=name, remat=self.remat)
            x, kv = stack(lambda x, window, kv, dense=dense: layer(x, window, kv, dense))(x, windows[rows], kv)
            out.append(kv)
        return x, None if cache is None else jax.tree.map(lambda *parts: jnp.concatenate(parts), *out)

    @transparent
    def _embed(self) -> Embed:
        c = self.config
        return Embed(c.vocab_size, c.hidden_size, w_init=RandomNormal(self._stddev(c.tied_embeddings)), name="embed")

    def _stddev(self, head: bool) -> float:
        """Of embeddings and head. The logits' is 1/4 at most, also that of a token itself where the two are tied."""
        scale = self.config.embedding_scale
        return 0.25 / float(np.sqrt(self.config.hidden_size * scale)) if head else 1 / scale

    def _by_rows(self) -> Any:
        exact = self.exact and not running_init()
        return intercept_methods(by_rows) if exact else contextlib.nullcontext()

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """Creates parameters in float32, and casts them to the dtype in which the decoder computes."""
        if self.dtype is None:
            yield
            return

        def in_float32(next_creator: Any, shape: Any, dtype: Any, init: Any, context: Any) -> Any:
            return next_creator(shape, jnp.float32, init)

        def cast(next_getter: Any, value: Any, context: Any) -> Any:
            return next_getter(value).astype(self.dtype)

        with custom_creator(in_float32), custom_getter(cast):
            yield


def _size(cache: DecoderCache) -> int:
    return jax.tree.leaves(cache.key)[0].shape[-2]


def _transposed(pairs: list[Any]) -> tuple[Any, Any]:
    keys, values = zip(*pairs, strict=True)
    return keys, None if values[0] is None else values


def _angles(config: DecoderConfig, positions: jax.Array) -> tuple[Any, Any]:
    """Cosines and sines of all layers, and those of layers with a window, if these have others."""
    c = config
    if c.rope_theta is None:
        return None, None
    size = c.rope_size if c.latent is None else c.latent.rotary_size
    angles = RotaryEmbedding(c.rope_theta, size=size, scaling=dict(c.rope_scaling)).cos_and_sin(positions)
    if c.local_rope_theta is None:
        return angles, None
    return angles, RotaryEmbedding(c.local_rope_theta, size=size).cos_and_sin(positions)


def _positions_in(segments: Any) -> jax.Array:
    """The position of each token in its segment: how far it is from the first token of the segment's run."""
    index = jnp.arange(segments.shape[1])[None]
    first = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    return index - jax.lax.cummax(jnp.where(first, index, 0), axis=1)


def _mask(segments: Any, lengths: Any, time: int) -> Any:
    """The mask of tokens that may attend to each other, `bool[B, T, T]` or broadcasting to it; None for everywhere."""
    mask = None if segments is None else segments[:, :, None] == segments[:, None, :]
    if lengths is None:
        return mask
    within = (jnp.arange(time)[None] < jnp.asarray(lengths)[:, None])[:, None]
    return within if mask is None else jnp.logical_and(mask, within)
