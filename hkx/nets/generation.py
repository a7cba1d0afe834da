"""Text from a decoder: prompts are read once, and then tokens are drawn one by one in a compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hkx import next_rng_keys, while_loop
from hkx.arguments import checked_integer
from hkx.errors import InvalidRankError
from hkx.nets.decoder import Decoder, DecoderCache

Sample = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


class Generated(NamedTuple):
    """The answers of `hkx.nets.generate`. N is the number of prompts times the number of samples for each.

    Attributes:
      tokens: `int32[N, max_new_tokens]`, the stop token included, then 0. Samples of one prompt are neighbours.
      log_probs: `float32[N, max_new_tokens]`, of the distribution that was sampled from, then 0.
      lengths: `int32[N]`, the number of tokens with the stop token.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> config = hkx.nets.DecoderConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4)
      >>> def f(prompts, start):
      ...     return hkx.nets.generate(hkx.nets.Decoder(config, stacked=False), prompts, start, 5)
      >>> model, prompts, start = hkx.transform(f), jnp.array([[0, 9], [4, 2]]), jnp.array([1, 0])
      >>> answers = model.apply(model.init(0, prompts, start), 0, prompts, start)
      >>> answers.tokens.shape, answers.lengths.tolist()
      ((2, 5), [5, 5])
    """

    tokens: jax.Array
    log_probs: jax.Array
    lengths: jax.Array


def generate(
    decoder: Decoder,
    prompts: jax.Array,
    start: jax.Array,
    max_new_tokens: int,
    *,
    sample: Sample | None = None,
    stop_tokens: Sequence[int] = (),
    samples_per_prompt: int = 1,
) -> Generated:
    """Continues prompts by tokens that are drawn from a decoder's logits, in a loop that ends when all rows have ended.

    Call it in a transformed function. A prompt is read once for all of its samples: its keys and values are
    repeated. Layers must not be stacked, since each slice of a stack would be copied for each token: convert
    parameters that were trained in a stack by `hkx.unstack_params(params, "decoder/layers")`.

    Args:
      decoder: the decoder, with `stacked=False`.
      prompts: `int[B, T]`, each at the right end of its row; to the left of it is padding, of any token.
      start: `int[B]`, for each row the number of tokens of padding.
      max_new_tokens: the largest number of tokens of an answer, at least 1.
      sample: a function of a key and logits `[N, vocab_size]`, in float32 or wider, that returns the next tokens,
        `int[N]`, and their log-probabilities, `[N]`. By default it returns the likeliest token, with log-probability 0,
        and needs no key. For example

            def sample(key, logits):
                policy = rlx.top_p(0.95, temperature=0.7, logits=logits, k=50)
                tokens = policy.sample(key)
                return tokens, policy.logprob(tokens)

      stop_tokens: tokens that end an answer.
      samples_per_prompt: the number G of answers to each prompt. `N = G B`.

    Returns:
      A Generated.

    Raises:
      InvalidRankError: if `prompts` is not `[B, T]`, or `start` not `[B]`.
      ValueError: if the decoder is stacked, or has fewer learned positions than a prompt with its answer needs.
      InvalidSizeError: if a number is not a whole number above 0.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> config = hkx.nets.DecoderConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4)
      >>> def f(prompts, start):
      ...     return hkx.nets.generate(hkx.nets.Decoder(config, stacked=False), prompts, start, 5, samples_per_prompt=4)
      >>> model, prompts, start = hkx.transform(f), jnp.array([[0, 9], [4, 2]]), jnp.array([1, 0])
      >>> jax.jit(model.apply)(model.init(0, prompts, start), 0, prompts, start).tokens.shape
      (8, 5)
    """
    prompts, start = jnp.asarray(prompts), jnp.asarray(start)
    count = checked_integer(max_new_tokens, "max_new_tokens", 1)
    samples = checked_integer(samples_per_prompt, "samples_per_prompt", 1)
    _check_prompts("generate", prompts, start)
    _check_unstacked(decoder)
    batch, time = prompts.shape
    cache = decoder.initial_cache(batch, time + count)._replace(start=start.astype(jnp.int32))
    hidden, cache = decoder.hidden(prompts, cache=cache)
    logits = decoder.logits(hidden[:, -1])  # [B, V]
    if samples > 1:
        logits = jnp.repeat(logits, samples, axis=0)
        cache = _repeated(decoder, cache, samples)
    rows = batch * samples
    stops = np.asarray([-1, *stop_tokens], np.int32)[None]  # never empty: XLA of JAX 0.11 crashes in `shard_map`
    keys = None if sample is None else next_rng_keys(count)

    def draw(i: jax.Array, logits: jax.Array, ended: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        if sample is None or keys is None:
            token, log_prob = jnp.argmax(logits, axis=-1), jnp.zeros(rows)
        else:
            token, log_prob = sample(keys[i], logits)
        token = jnp.where(ended, 0, token).astype(jnp.int32)
        log_prob = jnp.where(ended, 0, log_prob).astype(jnp.float32)
        return token, log_prob, jnp.any(token[:, None] == stops, axis=1)

    def unfinished(carry: Carry) -> jax.Array:
        return (carry.i < count) & ~jnp.all(carry.ended)

    def step(carry: Carry) -> Carry:
        i, token, ended, cache, tokens, log_probs, lengths = carry
        logits, cache = decoder(token[:, None], cache=cache)
        token, log_prob, stopped = draw(i, logits[:, 0], ended)
        tokens, log_probs = _put(tokens, token, i), _put(log_probs, log_prob, i)
        return Carry(i + 1, token, ended | stopped, cache, tokens, log_probs, lengths + ~ended)

    token, log_prob, ended = draw(jnp.int32(0), logits, jnp.zeros(rows, bool))
    tokens = _put(jnp.zeros([rows, count], jnp.int32), token, 0)
    log_probs = _put(jnp.zeros([rows, count]), log_prob, 0)
    carry = Carry(jnp.int32(1), token, ended, cache, tokens, log_probs, jnp.ones(rows, jnp.int32))
    last = while_loop(unfinished, step, carry)
    return Generated(last.tokens, last.log_probs, last.lengths)


def answer_hidden(decoder: Decoder, prompts: jax.Array, start: jax.Array, answers: jax.Array) -> jax.Array:
    """The vectors from which the logits of each token of answers to prompts are computed, to learn from the answers.

    Call it in a transformed function. A prompt is read once for all answers to it, and gradients flow through
    its keys and values. Entry `[n, i]` has seen the prompt and tokens before i, so it predicts token i:

        hidden = hkx.nets.answer_hidden(decoder, prompts, start, answers)
        log_probs = rlx.batched(rlx.token_log_probs)(hidden, decoder.head(), answers)

    Args:
      decoder: the decoder. A stacked one compiles fastest.
      prompts: `int[B, T]`, each at the right end of its row, as for `hkx.nets.generate`.
      start: `int[B]`, for each row the number of tokens of padding.
      answers: `int[G B, A]`, G answers to each prompt, which are neighbours, as `hkx.nets.generate` returns them.

    Returns:
      `[G B, A, hidden_size]`.

    Raises:
      InvalidRankError: if `prompts` is not `[B, T]`, or `answers` not `[N, A]`.
      ValueError: if N is not a multiple of B, or `start` not `[B]`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> config = hkx.nets.DecoderConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4)
      >>> def f(prompts, start, answers):
      ...     return hkx.nets.answer_hidden(hkx.nets.Decoder(config), prompts, start, answers)
      >>> model, prompts, start = hkx.transform(f), jnp.array([[0, 9], [4, 2]]), jnp.array([1, 0])
      >>> answers = jnp.ones([8, 5], int)
      >>> model.apply(model.init(0, prompts, start, answers), None, prompts, start, answers).shape
      (8, 5, 64)
    """
    prompts, start, answers = map(jnp.asarray, (prompts, start, answers))
    _check_prompts("answer_hidden", prompts, start)
    if answers.ndim != 2:
        raise InvalidRankError("answer_hidden", "answers", answers.shape, 2)
    (batch, time), (rows, count) = prompts.shape, answers.shape
    if batch == 0 or rows % batch:
        raise ValueError(f"`answers` has {rows} rows for {batch} prompts: each prompt needs as many answers.")
    cache = decoder.initial_cache(batch, time + count)._replace(start=start.astype(jnp.int32))
    hidden, cache = decoder.hidden(prompts, cache=cache)
    first = jnp.repeat(hidden[:, -1:], rows // batch, axis=0)
    if count < 2:
        return first[:, :count]
    rest, _ = decoder.hidden(answers[:, :-1], cache=_repeated(decoder, cache, rows // batch))
    return jnp.concatenate([first, rest], axis=1)


class Carry(NamedTuple):
    i: jax.Array  # the number of the next token
    token: jax.Array  # int32[N], the last one, which is in no cache yet
    ended: jax.Array  # bool[N]
    cache: DecoderCache
    tokens: jax.Array
    log_probs: jax.Array
    lengths: jax.Array


def _put(table: jax.Array, column: jax.Array, i: jax.Array | int) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(table, column[:, None], i, axis=1)


def _repeated(decoder: Decoder, cache: DecoderCache, samples: int) -> DecoderCache:
    def each(x: jax.Array) -> jax.Array:
        return jnp.repeat(x, samples, axis=1 if decoder.stacked else 0)

    key, value = jax.tree.map(each, (cache.key, cache.value))
    return cache._replace(key=key, value=value, start=jnp.repeat(cache.start, samples, axis=0))


def _check_prompts(taker: str, prompts: jax.Array, start: jax.Array) -> None:
    if prompts.ndim != 2:
        raise InvalidRankError(taker, "prompts", prompts.shape, 2)
    if start.shape != prompts.shape[:1]:
        raise ValueError(f"`start` must have shape {prompts.shape[:1]}, a number for each prompt, got {start.shape}.")


def _check_unstacked(decoder: Decoder) -> None:
    if decoder.stacked:
        raise ValueError(
            "`generate` needs a decoder without a stack, whose slices would be copied for each token. Pass "
            '`Decoder(config, stacked=False)`, with parameters `hkx.unstack_params(params, "decoder/layers")`.'
        )
