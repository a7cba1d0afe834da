"""Initial values from the standard distributions: one at a time, or all those of a model in one program.

With the partitionable form of Threefry, element i of a random array depends on the key and on i alone. So one compiled
program that fills blocks of a fixed size serves arrays of every shape, with the same bits as `jax.random` gives.
"""

from __future__ import annotations

import collections
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.extend.random
import jax.numpy as jnp
import numpy as np

from hkx.base.draws import Draw, sample
from hkx.base.keys import is_typed_key
from hkx.core.types import Array

BLOCK = 4096
BLOCKS_PER_CALL = 256
CALLS_AT_ONCE = min(8, os.cpu_count() or 1)


def can_share_program(key: Any) -> bool:
    """Whether the bits that `jax.random` draws from this key are those of the block program."""
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        return False
    if is_typed_key(key):
        return str(jax.random.key_impl(key)) == "fry" or jax.random.key_impl(key) == "threefry2x32"
    return jax.config.jax_default_prng_impl == "threefry2x32"  # type: ignore[attr-defined]


def key_batch(keys: Any) -> tuple[int, ...]:
    """The leading axes of an array of keys; () of one key."""
    return keys.shape if is_typed_key(keys) else keys.shape[:-1]


def for_each_key(f: Callable[[Array], Any], keys: Array) -> Any:
    """`f` of each key of an array of them, along leading axes, with the bits that `f` gives for one alone."""
    batch = key_batch(keys)
    if not batch:
        return f(keys)
    each = keys.reshape(-1, *keys.shape[len(batch) :])
    # `vmap` changes what keys of other kinds draw.
    out = jax.vmap(f)(each) if can_share_program(keys) and each.shape[0] else jax.lax.map(f, each)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), out)


def _unit(bits: Array) -> Array:
    """Uniform numbers in [0, 1) from random bits, as `jax.random.uniform` makes them."""
    mantissa = jax.lax.shift_right_logical(bits, np.uint32(9)) | np.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(mantissa, jnp.float32) - np.float32(1)


def _between(unit: Array, low: Any, high: Any) -> Array:
    return jnp.maximum(low, unit * (high - low) + low)


_ROOT2 = np.float32(np.sqrt(2))
_ABOVE_MINUS_ONE = np.nextafter(np.float32(-1), np.float32(0))


def _cut(normal: Array, low: Any, high: Any) -> Array:
    return jnp.clip(normal, jnp.nextafter(low, jnp.inf), jnp.nextafter(high, -jnp.inf))


class _Blocks(NamedTuple):
    """What the program is told of each block, along a leading axis of blocks."""

    key: Any  # uint32[n, 2]
    start: Any  # uint32[n, 2], the index of the block's first element as two words
    low: Any  # float32[n]
    high: Any  # float32[n]
    scale: Any  # float32[n]
    kind: Any  # int32[n], 0 uniform, 1 normal, 2 truncated normal


def _fill_blocks(blocks: _Blocks, count: Any) -> Array:
    """float32[n, BLOCK], of which the first `count` rows are filled."""

    def fill(i: Any, out: Array) -> Array:
        block = _Blocks(*(jnp.asarray(column)[i] for column in blocks))
        is_uniform, is_normal = block.kind == 0, block.kind == 1
        counts = jnp.concatenate(
            [jnp.broadcast_to(block.start[0], [BLOCK]), block.start[1] + jnp.arange(BLOCK, dtype=jnp.uint32)]
        )
        first, second = jnp.split(jax.extend.random.threefry_2x32(block.key, counts), 2)
        cut_low, cut_high = jax.lax.erf(block.low / _ROOT2), jax.lax.erf(block.high / _ROOT2)
        low = jnp.where(is_uniform, block.low, jnp.where(is_normal, _ABOVE_MINUS_ONE, cut_low))
        high = jnp.where(is_uniform, block.high, jnp.where(is_normal, np.float32(1), cut_high))
        uniform = _between(_unit(first ^ second), low, high)
        # All three distributions are computed and one is kept: a conditional takes longer to compile than it saves.
        normal = _ROOT2 * jax.lax.erf_inv(uniform)
        scaled = block.scale * jnp.where(is_normal, normal, _cut(normal, block.low, block.high)) + np.float32(0)
        row = jnp.where(is_uniform, uniform, scaled)
        return jax.lax.dynamic_update_slice(out, row[None], (i, 0))

    return jax.lax.fori_loop(0, count, fill, jnp.zeros([blocks.kind.shape[0], BLOCK], jnp.float32))


_fill_blocks_compiled = jax.jit(_fill_blocks)
_KINDS = {"uniform": 0, "normal": 1, "truncated_normal": 2}


class _Plan:
    """Which blocks some arrays consist of; an array for many keys consists of as many parts, one after the other.

    Attributes:
      draws: of each array, what one of its parts is.
      counts: of each array, how many parts it has.
      array_of: of each part, which array it is of.
      part_of: of each block, which part it is of.
      place_of: of each block, its place in that, counted in blocks.
    """

    def __init__(self, draws: Sequence[Draw], counts: Sequence[int]):
        self.draws = draws
        self.counts = np.array(counts, np.int64)
        blocks = np.array([-(-d.size // BLOCK) for d in draws], np.int64)
        self.array_of = np.repeat(np.arange(len(draws)), self.counts)
        of_part = blocks[self.array_of]
        self.part_of = np.repeat(np.arange(len(of_part)), of_part)
        self.place_of = np.arange(len(self.part_of)) - np.repeat(np.cumsum(of_part) - of_part, of_part)
        self.first_part = np.cumsum(self.counts) - self.counts
        self.rows = blocks * self.counts  # of each array, how many blocks it is of

    def describe(self, part_of: np.ndarray, place_of: np.ndarray, keys: Any) -> _Blocks:
        """What the program is told of some blocks; `keys` are those of all parts."""
        columns = np.array([(d.low, d.high, d.scale, _KINDS[d.kind]) for d in self.draws], np.float64)
        columns = columns[self.array_of[part_of]]
        first = place_of.astype(np.uint64) * np.uint64(BLOCK)
        start = np.stack([first >> np.uint64(32), first & np.uint64(0xFFFFFFFF)], axis=1).astype(np.uint32)
        bounds = columns[:, :3].T.astype(np.float32)
        bounds.flags.writeable = False  # an `init` around this one sees that nobody fills it anew
        low, high, scale = bounds
        return _Blocks(keys[part_of], start, low, high, scale, columns[:, 3].astype(np.int32))


def sample_all(draws: Sequence[Draw], batches: Sequence[tuple[int, ...]], keys: Any, like: Any) -> list[Array]:
    """All arrays, with the bits that `sample` gives one by one; float32 only, and keys that can share a program.

    Args:
      draws: the arrays; those for many keys are one array each, with leading axes.
      batches: these leading axes, () for one key.
      keys: uint32[n, 2], the data of all their keys, by NumPy or traced.
      like: an array on whose device the results are placed.
    """
    counts = [math.prod(batch) for batch in batches]
    some = [i for i, count in enumerate(counts) if count]  # of no key, of a stack of no layers, there is no array
    draws_of_some, counts_of_some = [draws[i] for i in some], [counts[i] for i in some]
    shapes = [(*batch, *draw.shape) for batch, draw in zip(batches, draws, strict=True)]
    if not some:
        arrays = []
    elif isinstance(keys, jax.core.Tracer):
        arrays = _sample_traced(draws_of_some, counts_of_some, keys)
        arrays = [array.reshape(shapes[i]) for i, array in zip(some, arrays, strict=True)]
    else:
        arrays = _sample_concrete(_Plan(draws_of_some, counts_of_some), [shapes[i] for i in some], keys, like)
    made = dict(zip(some, arrays, strict=True))
    return [made[i] if i in made else jnp.zeros(shapes[i], draw.dtype) for i, draw in enumerate(draws)]


def _sample_traced(draws: Sequence[Draw], counts: Sequence[int], keys: Any) -> list[Array]:
    """In a program: small arrays together, which compiles to little, large ones each by itself, which holds little.

    What is made together is whole for a moment, on every device of a program that is divided over several. It is held
    below what three of the largest array's parts take, which is what `jax.random` needs for that array.
    """
    sizes = [d.size * n for d, n in zip(draws, counts, strict=True)]
    left, together = 3 * max(sizes) // jax.device_count(), set[int]()
    for i in sorted(range(len(draws)), key=sizes.__getitem__):
        left -= -(-draws[i].size // BLOCK) * BLOCK * counts[i]
        if left < 0:
            break
        together.add(i)
    first = np.cumsum(counts) - np.array(counts)
    of = [keys[f : f + n] for f, n in zip(first.tolist(), counts, strict=True)]
    out: dict[int, Array] = {i: _sample_alone(draws[i], of[i]) for i in range(len(draws)) if i not in together}
    if together:
        some = sorted(together)
        plan = _Plan([draws[i] for i in some], [counts[i] for i in some])
        out.update(zip(some, _sample_together(plan, jnp.concatenate([of[i] for i in some])), strict=True))
    return [out[i] for i in range(len(draws))]


def _sample_together(plan: _Plan, keys: Any) -> list[Array]:
    rows = _fill_blocks(plan.describe(plan.part_of, plan.place_of, keys), len(plan.part_of))
    starts = _unforeseen((np.cumsum(plan.rows) - plan.rows).tolist())
    parts = (
        jax.lax.dynamic_slice(rows, (start, np.uint32(0)), (n, BLOCK))
        for start, n in zip(starts, plan.rows.tolist(), strict=True)
    )
    shapes = zip(parts, plan.draws, plan.counts.tolist(), strict=True)
    return [part.reshape(n, -1)[:, : d.size].reshape(n, *d.shape) for part, d, n in shapes]


@functools.partial(jax.jit, static_argnums=0)
def _sample_alone(draw: Draw, keys: Array) -> Array:
    """[n, *shape]: the arrays of n keys, in one loop over their elements that needs no memory beside them."""
    if draw.size > 2**32:
        return jax.vmap(functools.partial(sample, draw))(keys)
    shape = (keys.shape[0], *draw.shape)
    index = jnp.zeros(shape, jnp.uint32)
    strides = np.cumprod([1, *draw.shape[:0:-1]], dtype=np.uint64)[::-1]
    for axis, stride in enumerate(strides[: len(draw.shape)], 1):
        index = index + jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * np.uint32(stride)
    one = (-1,) + (1,) * len(draw.shape)
    unit = _unit(_threefry(keys[:, 0].reshape(one), keys[:, 1].reshape(one), index))
    if draw.kind == "uniform":
        return _between(unit, np.float32(draw.low), np.float32(draw.high))
    if draw.kind == "normal":
        # Of factors that it knows, XLA would make one first, and round otherwise: a clip stands between them.
        normal = _ROOT2 * jax.lax.erf_inv(_between(unit, _ABOVE_MINUS_ONE, np.float32(1)))
        normal = jnp.clip(normal, -np.float32(8), np.float32(8))
    else:
        low, high = jnp.float32(draw.low), jnp.float32(draw.high)
        uniform = _between(unit, jax.lax.erf(low / _ROOT2), jax.lax.erf(high / _ROOT2))
        normal = _cut(_ROOT2 * jax.lax.erf_inv(uniform), low, high)
    return np.float32(draw.scale) * normal + np.float32(0)


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(key0: Array, key1: Array, index: Array) -> Array:
    """The bits of element `index` of a random array, by Threefry-2x32 in 20 rounds (Salmon et al., 2011).

    The same as `jax.random.bits`. Written out, it becomes one loop over the elements with what follows it; JAX's own
    operation becomes several loops, which take ten times as long to compile and need memory for what passes between.
    """
    keys = key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA)
    x0, x1 = jnp.zeros_like(index) + keys[0], index + keys[1]
    for block in range(5):
        for turn in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(turn)) | jax.lax.shift_right_logical(x1, np.uint32(32 - turn)))
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0 ^ x1


def _unforeseen(numbers: Sequence[int]) -> list[Array]:
    """The same numbers, such that XLA does not know them before the program runs.

    It compiles a slice at a known place by itself, on a CPU in 20 ms each, but all slices of one shape at places that
    it is only told as one piece of code.
    """

    def same() -> list[np.uint32]:
        return [np.uint32(n) for n in numbers]

    return jax.lax.cond(jax.lax.optimization_barrier(False), same, same)


def _sample_concrete(plan: _Plan, shapes: Sequence[tuple[int, ...]], keys: np.ndarray, like: Any) -> list[Array]:
    """Fills a fixed number of blocks a call: nothing is compiled twice, and little is held beside the results."""
    out: list[Array] = []
    buffer = np.empty(0, np.float32)
    for part_of, place_of, rows in _filled_calls(plan, keys):
        for part in range(part_of[0], part_of[-1] + 1):
            array = plan.array_of[part]
            draw, count = plan.draws[array], int(plan.counts[array])
            begin, end = np.searchsorted(part_of, [part, part + 1])
            at = place_of[begin] * BLOCK
            values = rows[begin:end].reshape(-1)[: draw.size - at]
            at += (part - plan.first_part[array]) * draw.size
            if at == 0:
                buffer = np.empty(draw.size * count, np.float32)
            buffer[at : at + values.size] = values
            if at + values.size == buffer.size:
                out.append(placed(buffer.reshape(shapes[array]), like))
    return out


def _filled_calls(plan: _Plan, keys: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The parts, the places and the values of the blocks of each call, with a few calls under way at once."""
    waiting: collections.deque[tuple[np.ndarray, np.ndarray, Array]] = collections.deque()
    for begin in range(0, len(plan.part_of), BLOCKS_PER_CALL):
        part, place = (a[begin : begin + BLOCKS_PER_CALL] for a in (plan.part_of, plan.place_of))
        padding = (0, BLOCKS_PER_CALL - len(part))
        blocks = plan.describe(np.pad(part, padding, mode="edge"), np.pad(place, padding, mode="edge"), keys)
        waiting.append((part, place, _fill_blocks_compiled(blocks, len(part))))
        if len(waiting) == CALLS_AT_ONCE:
            part, place, rows = waiting.popleft()
            yield part, place, np.asarray(rows)
    for part, place, rows in waiting:
        yield part, place, np.asarray(rows)


def placed(values: np.ndarray, key: Array) -> Array:
    """On the device where the key is, if that was chosen, else on the default device."""
    return jax.device_put(values, key.sharding) if getattr(key, "committed", False) else jax.device_put(values)


def constant(aval: Any, value: Any, like: Any) -> Array:
    """An array of one number, on the device of `like`."""
    if like is not None and not isinstance(like, jax.core.Tracer):
        return placed(np.full(aval.shape, value, aval.dtype), like)
    return jnp.full(aval.shape, value, aval.dtype)


@functools.partial(jax.jit, static_argnums=(1, 2))
def split_chain(key: Array, count: int, num: int) -> Array:
    """`count` times `num` keys, where each split starts from the first key of the one before: [count, num, …]."""

    def step(key: Array, _: None) -> tuple[Array, Array]:
        keys = jax.random.split(key, num)
        return keys[0], keys

    return jax.lax.scan(step, key, None, length=count)[1]
