"""Initial values from the standard distributions: one at a time, or all those of a model in one program.

With the partitionable form of Threefry, element i of a random array depends on the key and on i alone. So one compiled
program that fills blocks of a fixed size serves arrays of every shape, with the same bits as `jax.random` gives.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.core
import jax.extend.random
import jax.numpy as jnp
import numpy as np

from hkx.core.frame import local
from hkx.core.rng import is_typed_key, next_rng_key
from hkx.core.types import Array, DType

BLOCK = 4096
BLOCKS_PER_CALL = 256
CALLS_AT_ONCE = min(8, os.cpu_count() or 1)


class Draw(NamedTuple):
    """One array from a standard distribution.

    `low` and `high` are the bounds of the uniform distribution, or where the normal one is cut off (in standard
    deviations; infinite where it is not). A normal sample is multiplied by `scale`.
    """

    kind: Literal["normal", "truncated_normal", "uniform"]
    shape: tuple[int, ...]
    dtype: Any
    low: float
    high: float
    scale: float = 1.0

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


def sample(draw: Draw, key: Array) -> Array:
    """One array by `jax.random`."""
    kind, shape, dtype, low, high, scale = draw
    if kind == "uniform":
        return jax.random.uniform(key, shape, dtype, low, high)
    if kind == "normal":
        unit = jax.random.normal(key, shape, dtype)
    elif np.issubdtype(dtype, np.complexfloating):
        real, imaginary = jax.random.truncated_normal(key, low, high, (2, *shape), np.finfo(dtype).dtype)
        unit = jax.lax.complex(real, imaginary)
    else:
        unit = jax.random.truncated_normal(key, low, high, shape, dtype)
    return jax.lax.convert_element_type(scale, dtype) * unit + jnp.zeros((), dtype)


def drawn(draw: Draw) -> Array:
    """One array, with the next key of the running transform: recorded during an abstract init, else sampled."""
    recorder = running_recorder()
    if recorder is not None and draw.dtype == np.float32 and draw.size > 0 and recorder.owns_running_keys():
        return recorder.draw(draw, next_rng_key())
    return sample(draw, next_rng_key())


def filled(shape: Any, dtype: DType, value: int) -> Array:
    """An array of one number: recorded during an abstract init, else made."""
    recorder = running_recorder()
    if recorder is None:
        return jnp.full(shape, value, dtype)
    shape = tuple(shape) if np.ndim(shape) else (int(shape),)
    return recorder.fill(jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype)), value)


def running_recorder() -> Any:
    """What an abstract init records with, where the running code is in its own trace; else None."""
    frame = local.frames[-1] if local.frames else None
    if frame is None or frame.recorder is None or frame.mark.records:
        return None
    return frame.recorder


def can_share_program(key: Any) -> bool:
    """Whether the bits that `jax.random` draws from this key are those of the block program."""
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        return False
    if is_typed_key(key):
        return str(jax.random.key_impl(key)) == "fry" or jax.random.key_impl(key) == "threefry2x32"
    return jax.config.jax_default_prng_impl == "threefry2x32"  # type: ignore[attr-defined]


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
    root2 = np.float32(np.sqrt(2))
    above_minus_one = np.nextafter(np.float32(-1), np.float32(0))

    def fill(i: Any, out: Array) -> Array:
        block = _Blocks(*(jnp.asarray(column)[i] for column in blocks))
        is_uniform, is_normal = block.kind == 0, block.kind == 1
        counts = jnp.concatenate(
            [jnp.broadcast_to(block.start[0], [BLOCK]), block.start[1] + jnp.arange(BLOCK, dtype=jnp.uint32)]
        )
        first, second = jnp.split(jax.extend.random.threefry_2x32(block.key, counts), 2)
        mantissa = jax.lax.shift_right_logical(first ^ second, np.uint32(9)) | np.uint32(0x3F800000)
        unit = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - np.float32(1)
        cut_low, cut_high = jax.lax.erf(block.low / root2), jax.lax.erf(block.high / root2)
        low = jnp.where(is_uniform, block.low, jnp.where(is_normal, above_minus_one, cut_low))
        high = jnp.where(is_uniform, block.high, jnp.where(is_normal, np.float32(1), cut_high))
        uniform = jnp.maximum(low, unit * (high - low) + low)
        # All three distributions are computed and one is kept: a conditional takes longer to compile than it saves.
        normal = root2 * jax.lax.erf_inv(uniform)
        cut = jnp.clip(normal, jnp.nextafter(block.low, jnp.inf), jnp.nextafter(block.high, -jnp.inf))
        scaled = block.scale * jnp.where(is_normal, normal, cut) + np.float32(0)
        row = jnp.where(is_uniform, uniform, scaled)
        return jax.lax.dynamic_update_slice(out, row[None], (i, 0))

    return jax.lax.fori_loop(0, count, fill, jnp.zeros([blocks.kind.shape[0], BLOCK], jnp.float32))


_fill_blocks_compiled = jax.jit(_fill_blocks)
_KINDS = {"uniform": 0, "normal": 1, "truncated_normal": 2}


def _describe(draws: Sequence[Draw], owners: np.ndarray, first_block: np.ndarray, keys: Any) -> _Blocks:
    """The blocks whose draw is `owners[i]` and whose place in it is `first_block[i]`, counted in blocks."""
    columns = np.array([(d.low, d.high, d.scale, _KINDS[d.kind]) for d in draws], np.float64)[owners]
    first = first_block.astype(np.uint64) * np.uint64(BLOCK)
    start = np.stack([first >> np.uint64(32), first & np.uint64(0xFFFFFFFF)], axis=1).astype(np.uint32)
    bounds = columns[:, :3].T.astype(np.float32)
    bounds.flags.writeable = False  # an `init` around this one sees that nobody fills it anew
    low, high, scale = bounds
    return _Blocks(keys[owners], start, low, high, scale, columns[:, 3].astype(np.int32))


def sample_all(draws: Sequence[Draw], keys: Any, like: Any) -> list[Array]:
    """All arrays, with the bits that `sample` gives one by one; float32 only, and keys that can share a program.

    Args:
      draws: the arrays.
      keys: uint32[n, 2], the data of their keys, by NumPy or traced.
      like: an array on whose device the results are placed.
    """
    sizes = np.array([-(-d.size // BLOCK) for d in draws])
    owners = np.repeat(np.arange(len(draws)), sizes)
    first_block = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    if isinstance(keys, jax.core.Tracer):
        return _sample_traced(draws, _describe(draws, owners, first_block, keys), sizes)
    return _sample_concrete(draws, owners, first_block, keys, like)


def _sample_traced(draws: Sequence[Draw], blocks: _Blocks, sizes: np.ndarray) -> list[Array]:
    rows = _fill_blocks(blocks, len(blocks.kind))
    parts = (
        jax.lax.dynamic_slice(rows, (start, np.uint32(0)), (int(n), BLOCK))
        for start, n in zip(_unforeseen((np.cumsum(sizes) - sizes).tolist()), sizes, strict=True)
    )
    return [part.reshape(-1)[: d.size].reshape(d.shape) for d, part in zip(draws, parts, strict=True)]


def _unforeseen(numbers: Sequence[int]) -> list[Array]:
    """The same numbers, such that XLA does not know them before the program runs.

    It compiles a slice at a known place by itself, on a CPU in 20 ms each, but all slices of one shape at places that
    it is only told as one piece of code.
    """

    def same() -> list[np.uint32]:
        return [np.uint32(n) for n in numbers]

    return jax.lax.cond(jax.lax.optimization_barrier(False), same, same)


def _sample_concrete(
    draws: Sequence[Draw], owners: np.ndarray, first_block: np.ndarray, keys: np.ndarray, like: Any
) -> list[Array]:
    """Fills a fixed number of blocks a call: nothing is compiled twice, and little is held beside the results."""
    out: list[Array] = []
    buffer = np.empty(draws[0].size, np.float32)
    for owner, place, rows in _filled_calls(draws, owners, first_block, keys):
        for draw_index in range(owner[0], owner[-1] + 1):
            draw = draws[draw_index]
            begin, end = np.searchsorted(owner, [draw_index, draw_index + 1])
            at = place[begin] * BLOCK
            part = rows[begin:end].reshape(-1)[: draw.size - at]
            buffer[at : at + part.size] = part
            if at + part.size == draw.size:
                out.append(_placed(buffer.reshape(draw.shape), like))
                buffer = np.empty(draws[draw_index + 1].size if draw_index + 1 < len(draws) else 0, np.float32)
    return out


def _filled_calls(
    draws: Sequence[Draw], owners: np.ndarray, first_block: np.ndarray, keys: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The owners, the places and the values of the blocks of each call, with a few calls under way at once."""
    waiting: collections.deque[tuple[np.ndarray, np.ndarray, Array]] = collections.deque()
    for begin in range(0, len(owners), BLOCKS_PER_CALL):
        owner, place = owners[begin : begin + BLOCKS_PER_CALL], first_block[begin : begin + BLOCKS_PER_CALL]
        padding = (0, BLOCKS_PER_CALL - len(owner))
        blocks = _describe(draws, np.pad(owner, padding, mode="edge"), np.pad(place, padding, mode="edge"), keys)
        waiting.append((owner, place, _fill_blocks_compiled(blocks, len(owner))))
        if len(waiting) == CALLS_AT_ONCE:
            owner, place, rows = waiting.popleft()
            yield owner, place, np.asarray(rows)
    for owner, place, rows in waiting:
        yield owner, place, np.asarray(rows)


def _placed(values: np.ndarray, key: Array) -> Array:
    """On the device where the key is, if that was chosen, else on the default device."""
    return jax.device_put(values, key.sharding) if getattr(key, "committed", False) else jax.device_put(values)


def constant(aval: Any, value: Any, like: Any) -> Array:
    """An array of one number, on the device of `like`."""
    if like is not None and not isinstance(like, jax.core.Tracer):
        return _placed(np.full(aval.shape, value, aval.dtype), like)
    return jnp.full(aval.shape, value, aval.dtype)


@functools.partial(jax.jit, static_argnums=(1, 2))
def split_chain(key: Array, count: int, num: int) -> Array:
    """`count` times `num` keys, where each split starts from the first key of the one before: [count, num, …]."""

    def step(key: Array, _: None) -> tuple[Array, Array]:
        keys = jax.random.split(key, num)
        return keys[0], keys

    return jax.lax.scan(step, key, None, length=count)[1]
