"""Random initial values from standard distributions: all those of a model in one program.

With partitionable Threefry, element i of a random array depends only on the key and on i. So one compiled program that
fills blocks of a fixed size can generate arrays of any shape, with the same bits as `jax.random`.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from hkx.base.draws import Draw
from hkx.base.types import Array
from hkx.init.devices import is_on_cpu, placed
from hkx.init.threefry import BLOCK, KINDS, Blocks, bounds_of, rows_of, sample_alone

BLOCKS_AT_ONCE = 8
BLOCKS_PER_CALL = 2048
BLOCKS_ON_ACCELERATOR = 8192
LARGEST_TOGETHER = 2**28
CALLS_AT_ONCE = min(8, os.cpu_count() or 1)


def _fill_blocks(blocks: Blocks, count: Any) -> Array:
    """float32[n, BLOCK], with the first `count` rows filled; n must be a multiple of BLOCKS_AT_ONCE."""
    return jax.lax.platform_dependent(blocks, count, cpu=_fill_in_turn, default=_fill_at_once)


def _fill_at_once(blocks: Blocks, count: Any) -> Array:
    """As an accelerator does it. Without the barrier XLA would compute again what each array is cut from."""
    return jax.lax.optimization_barrier(rows_of(blocks))


def _fill_in_turn(blocks: Blocks, count: Any) -> Array:
    """One group of blocks after the other, as a CPU compiles it fastest, with no further memory."""

    def fill(i: Any, out: Array) -> Array:
        begin = i * BLOCKS_AT_ONCE
        some = (jax.lax.dynamic_slice_in_dim(jnp.asarray(column), begin, BLOCKS_AT_ONCE) for column in blocks)
        return jax.lax.dynamic_update_slice(out, rows_of(Blocks(*some)), (begin, 0))

    groups = (count + BLOCKS_AT_ONCE - 1) // BLOCKS_AT_ONCE
    return jax.lax.fori_loop(0, groups, fill, jnp.zeros([blocks.kind.shape[0], BLOCK], jnp.float32))


_fill_blocks_compiled = jax.jit(_fill_in_turn)


class _Plan:
    """How arrays are divided into blocks. An array for several keys consists of one part for each key, in order.

    Attributes:
      draws: for each array, the draw of one of its parts.
      counts: for each array, the number of its parts.
      per_part: for each array, the number of blocks in one part.
      first: for each array, the index of its first block; then the total number of blocks.
    """

    def __init__(self, draws: Sequence[Draw], counts: Sequence[int]):
        self.draws = draws
        self.counts = counts
        self.per_part = [-(-d.size // BLOCK) for d in draws]
        array_of = np.repeat(np.arange(len(draws)), counts)  # for each part
        of_part = np.array(self.per_part, np.int64)[array_of]
        ends = np.cumsum(of_part)
        self._part_of = np.repeat(np.arange(len(of_part)), of_part)  # for each block
        self._place_of = np.arange(len(self._part_of)) - np.repeat(ends - of_part, of_part)
        self.first = [0, *itertools.accumulate(b * n for b, n in zip(self.per_part, counts, strict=True))]
        self._bounds = np.array([bounds_of(d) for d in draws]).reshape(-1, 3)[array_of]  # for each part
        self._kinds = np.array([KINDS[d.kind] for d in draws], np.int32)[array_of]

    def describe(self, begin: int, count: int, size: int, keys: Any) -> Blocks:
        """The program's inputs for `count` blocks from `begin`, padded to `size`; `keys` are those of all parts."""
        padding = (0, size - count)
        part, place = (
            np.pad(a[begin : begin + count], padding, mode="edge").astype(np.uint64)
            for a in (self._part_of, self._place_of)
        )
        first = place * np.uint64(BLOCK)
        start = np.stack([first >> np.uint64(32), first & np.uint64(0xFFFFFFFF)], axis=1).astype(np.uint32)
        low, high, scale = map(np.array, self._bounds[part].T)  # copies: an outer `init` sees that they cannot change
        return Blocks(keys[part], start, low, high, scale, self._kinds[part])


def sample_all(draws: Sequence[Draw], batches: Sequence[tuple[int, ...]], keys: Any, like: Any) -> list[Array]:
    """Samples all arrays, with the same bits as `sample`. Only for float32, and keys for which `can_share_program`.

    Args:
      draws: the draws. One with several keys gives one array with leading axes.
      batches: for each draw, these leading axes; () for a single key.
      keys: uint32[n, 2], the data of all keys, as a NumPy array or traced.
      like: an array on whose device the results are placed.
    """
    counts = [math.prod(batch) for batch in batches]
    shapes = [(*batch, *draw.shape) for batch, draw in zip(batches, draws, strict=True)]
    if isinstance(keys, jax.core.Tracer):
        arrays = _sample_traced(draws, counts, keys)
        return [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)]
    if is_on_cpu(like):
        return _sample_concrete(_Plan(draws, counts), shapes, keys, like)
    return _sample_on_accelerator(draws, counts, shapes, keys, like)


def _sample_traced(draws: Sequence[Draw], counts: Sequence[int], keys: Any) -> list[Array]:
    """Under a trace: samples small arrays together, to compile less, and large ones separately, to use less memory.

    For a moment, each device of a sharded program holds all arrays that are sampled together. Their total size stays
    below three times the largest array's share per device, which is what `jax.random` needs for that array.
    """
    sizes = [d.size * n for d, n in zip(draws, counts, strict=True)]
    left, together = 3 * max(sizes) // jax.device_count(), set[int]()
    for i in sorted(range(len(draws)), key=sizes.__getitem__):
        left -= -(-draws[i].size // BLOCK) * BLOCK * counts[i]
        if left < 0 or sizes[i] > LARGEST_TOGETHER:  # blocks are described one by one in the program
            break
        together.add(i)
    some, alone = ([i for i in range(len(draws)) if (i in together) is wanted] for wanted in (True, False))
    first = [0, *itertools.accumulate(counts)]
    plan = _Plan([draws[i] for i in some], [counts[i] for i in some])
    told = [(np.uint32(first[i]), bounds_of(draws[i])) for i in alone]
    starts, told = _unforeseen((list(map(np.uint32, plan.first[:-1])), told))
    out: dict[int, Array] = {}
    for i, (at, bounds) in zip(alone, told, strict=True):
        own = jax.lax.dynamic_slice(keys, (at, np.uint32(0)), (counts[i], 2))
        out[i] = sample_alone(draws[i].kind, draws[i].shape, own, *bounds)
    if some:
        keys = jnp.concatenate([keys[first[i] : first[i + 1]] for i in some])
        out.update(zip(some, _sample_together(plan, starts, keys), strict=True))
    return [out[i] for i in range(len(draws))]


def _sample_together(plan: _Plan, starts: Sequence[Array], keys: Any) -> Iterator[Array]:
    count = plan.first[-1]
    rows = _fill_blocks(plan.describe(0, count, -(-count // BLOCKS_AT_ONCE) * BLOCKS_AT_ONCE, keys), count)
    for draw, n, per_part, start in zip(plan.draws, plan.counts, plan.per_part, starts, strict=True):
        part = jax.lax.dynamic_slice(rows, (start, np.uint32(0)), (n * per_part, BLOCK))
        yield part.reshape(n, -1)[:, : draw.size].reshape(n, *draw.shape)


def _unforeseen(numbers: Any) -> Any:
    """The same numbers, hidden from XLA until the program runs.

    XLA compiles each operation with a known constant separately: on a CPU, a slice at a known index takes 20 ms, an
    array from known bounds 60 ms. With unknown numbers, all operations of the same shape share their code.
    """
    return jax.lax.cond(jax.lax.optimization_barrier(False), lambda: numbers, lambda: numbers)


def _sample_concrete(plan: _Plan, shapes: Sequence[tuple[int, ...]], keys: np.ndarray, like: Any) -> list[Array]:
    """Fills a fixed number of blocks per call, so that it compiles only once and needs little additional memory."""
    out: list[Array] = []
    buffer = np.empty([0, 0], np.float32)
    for begin, count, blocks in _filled_calls(plan, keys):
        rows = np.asarray(blocks)[:count]
        while len(rows):
            i = len(out)
            at = begin - plan.first[i]
            if at == 0:
                buffer = np.empty([plan.counts[i], plan.draws[i].size], np.float32)
            done = _copy_blocks(rows[: plan.first[i + 1] - begin], at, plan.per_part[i], buffer)
            begin, rows = begin + done, rows[done:]
            if begin == plan.first[i + 1]:
                out.append(placed(buffer.reshape(shapes[i]), like))
    return out


def _copy_blocks(rows: np.ndarray, at: int, per_part: int, parts: np.ndarray) -> int:
    """Copies as many blocks as possible at once into an array, from its block `at` on; returns how many."""
    part, place = divmod(at, per_part)
    if place or len(rows) < per_part:
        rows, begin = rows[: per_part - place], place * BLOCK
        values = rows.reshape(-1)[: parts.shape[1] - begin]
        parts[part, begin : begin + len(values)] = values
        return len(rows)
    whole = len(rows) // per_part
    values = rows[: whole * per_part].reshape(whole, -1)
    parts[part : part + whole] = values[:, : parts.shape[1]]
    return whole * per_part


def _filled_calls(plan: _Plan, keys: np.ndarray) -> Iterator[tuple[int, int, Array]]:
    """The index of each call's first block, their number, and the filled blocks. A few calls run at the same time."""
    waiting: collections.deque[tuple[int, int, Array]] = collections.deque()
    for begin in range(0, plan.first[-1], BLOCKS_PER_CALL):
        count = min(BLOCKS_PER_CALL, plan.first[-1] - begin)
        blocks = plan.describe(begin, count, BLOCKS_PER_CALL, keys)
        waiting.append((begin, count, _fill_blocks_compiled(blocks, count)))
        if len(waiting) == CALLS_AT_ONCE:
            yield waiting.popleft()
    yield from waiting


def _sample_on_accelerator(
    draws: Sequence[Draw], counts: Sequence[int], shapes: Sequence[tuple[int, ...]], keys: np.ndarray, like: Any
) -> list[Array]:
    """Fills arrays where they are to be: none passes through the host.

    A compiler for accelerators takes a third of a second for each place in a program where random bits are made. So one
    program fills the blocks of several arrays, from which another cuts them for each shape; arrays that are larger have
    a program for each shape.
    """
    ends = np.cumsum(counts)
    keys_of = [keys[end - n : end] for end, n in zip(ends, counts, strict=True)]
    blocks = [-(-d.size // BLOCK) * n for d, n in zip(draws, counts, strict=True)]
    out: dict[int, Array] = {}
    for some in _in_calls(blocks):
        if blocks[some[0]] > BLOCKS_ON_ACCELERATOR:
            (i,) = some
            what = draws[i].kind, draws[i].shape, shapes[i]
            out[i] = _sample_whole(*what, placed(keys_of[i], like), *bounds_of(draws[i]))
            continue
        plan = _Plan([draws[i] for i in some], [counts[i] for i in some])
        given = np.concatenate([keys_of[i] for i in some])
        described = plan.describe(0, plan.first[-1], BLOCKS_ON_ACCELERATOR, given)
        rows = _rows_compiled(Blocks(*(placed(field, like) for field in described)))
        for i, start in zip(some, plan.first[:-1], strict=True):
            out[i] = _cut_out(rows, np.uint32(start), counts[i], draws[i].size, shapes[i])
    return [placed(out[i], like) for i in range(len(draws))]


def _in_calls(blocks: Sequence[int]) -> Iterator[list[int]]:
    """The indices of arrays, of which there are the numbers of blocks, as they are filled in the same call."""
    some, count = list[int](), 0
    for i in sorted(range(len(blocks)), key=blocks.__getitem__):
        if some and count + blocks[i] > BLOCKS_ON_ACCELERATOR:
            yield some
            some, count = [], 0
        some.append(i)
        count += blocks[i]
    if some:
        yield some


_rows_compiled = jax.jit(rows_of)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _cut_out(rows: Array, start: Array, parts: int, size: int, shape: tuple[int, ...]) -> Array:
    """An array of so many parts, each of `size` elements, whose first block is the row `start`."""
    own = jax.lax.dynamic_slice(rows, (start, np.uint32(0)), (parts * -(-size // BLOCK), BLOCK))
    return own.reshape(parts, -1)[:, :size].reshape(shape)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _sample_whole(kind: Any, shape: tuple[int, ...], whole: tuple[int, ...], keys: Array, *bounds: Any) -> Array:
    """The arrays of a shape for several keys, as one."""
    return sample_alone(kind, shape, keys, *bounds).reshape(whole)
