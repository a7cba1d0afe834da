"""Elements of random arrays by their index: the same bits as those of `jax.random`, in one loop over them."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hkx.base.draws import Draw, sample
from hkx.base.key_arrays import THREEFRY, for_each_key
from hkx.base.types import Array

BLOCK = 512
KINDS = {"uniform": 0, "normal": 1, "truncated_normal": 2}

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_ROOT2 = np.float32(np.sqrt(2))
_ABOVE_MINUS_ONE = np.nextafter(np.float32(-1), np.float32(0))


class Blocks(NamedTuple):
    """Inputs that determine the elements of n blocks: `BLOCK` consecutive ones of an array each."""

    key: Any  # uint32[n, 2]
    start: Any  # uint32[n, 2], the index of the block's first element as two words
    low: Any  # float32[n]
    high: Any  # float32[n]
    scale: Any  # float32[n]
    kind: Any  # int32[n], as in KINDS


def bounds_of(draw: Draw) -> tuple[np.float32, np.float32, np.float32]:
    """`low`, `high` and `scale`."""
    return np.float32(draw.low), np.float32(draw.high), np.float32(draw.scale)


def _threefry(key: tuple[Array, Array], index: tuple[Array, Array]) -> Array:
    """The bits of an element of a random array, by Threefry-2x32 in 20 rounds (Salmon et al., 2011).

    The same as `jax.random.bits`. Written out like this, XLA fuses it with what follows into a single loop. JAX's own
    operation becomes several loops, which take ten times as long to compile and need memory for intermediate results.

    Args:
      key: the two words of the key.
      index: the index of the element, as two words.
    """
    keys = *key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)
    x0, x1 = index[0] + keys[0], index[1] + keys[1]
    for block in range(5):
        for turn in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(turn)) | jax.lax.shift_right_logical(x1, np.uint32(32 - turn)))
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0 ^ x1


def _unit(bits: Array) -> Array:
    """Uniform numbers in [0, 1) from random bits, computed as in `jax.random.uniform`."""
    mantissa = jax.lax.shift_right_logical(bits, np.uint32(9)) | np.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(mantissa, jnp.float32) - np.float32(1)


def _between(unit: Array, low: Any, high: Any) -> Array:
    return jnp.maximum(low, unit * (high - low) + low)


def _cut(normal: Array, low: Any, high: Any) -> Array:
    return jnp.clip(normal, jnp.nextafter(low, jnp.inf), jnp.nextafter(high, -jnp.inf))


def _numbers(block: Blocks, index: tuple[Any, Any]) -> Array:
    """Elements of random arrays, by the two words of their index. The fields of `block` must broadcast to them.

    Normal samples are clipped to bounds, which are infinite unless they are truncated. XLA must not know these when it
    compiles: without the clip between them, it would merge the factors sqrt(2) and `scale`, which rounds differently.
    """
    is_uniform, is_normal = block.kind == 0, block.kind == 1
    cut_low, cut_high = jax.lax.erf(block.low / _ROOT2), jax.lax.erf(block.high / _ROOT2)
    low = jnp.where(is_uniform, block.low, jnp.where(is_normal, _ABOVE_MINUS_ONE, cut_low))
    high = jnp.where(is_uniform, block.high, cut_high)
    uniform = _between(_unit(_threefry((block.key[..., 0], block.key[..., 1]), index)), low, high)
    # Computes both distributions and selects one: a conditional would take more time to compile than it saves.
    normal = _cut(_ROOT2 * jax.lax.erf_inv(uniform), block.low, block.high)
    return jnp.where(is_uniform, uniform, block.scale * normal + np.float32(0))


def rows_of(blocks: Blocks) -> Array:
    """The elements of n blocks, float32[n, BLOCK]."""
    column = Blocks(*(jnp.asarray(field)[:, None] for field in blocks))
    place = jax.lax.broadcasted_iota(jnp.uint32, [len(blocks.kind), BLOCK], 1)
    return _numbers(column, (column.start[..., 0], column.start[..., 1] + place))


@functools.partial(jax.jit, static_argnums=(0, 1))
def sample_alone(kind: Any, shape: tuple[int, ...], keys: Array, low: Any, high: Any, scale: Any) -> Array:
    """[n, *shape]: the arrays for n keys, in a single loop over their elements that needs no further memory."""
    if math.prod(shape) > 2**32:  # one word cannot index the elements
        draw = functools.partial(sample, Draw(kind, shape, jnp.float32, low, high, scale))
        return for_each_key(draw, jax.random.wrap_key_data(keys, impl=THREEFRY))
    index = jnp.zeros((len(keys), *shape), jnp.uint32)
    strides = np.cumprod([1, *shape[:0:-1]], dtype=np.uint64)[::-1]
    for axis, stride in enumerate(strides[: len(shape)], 1):
        index = index + jax.lax.broadcasted_iota(jnp.uint32, index.shape, axis) * np.uint32(stride)
    keys = keys.reshape(-1, *(1,) * len(shape), 2)
    return _numbers(Blocks(keys, None, low, high, scale, np.int32(KINDS[kind])), (np.uint32(0), index))
