"""Blocks of quantised weights in GGUF files, turned into float32. One dtype of NumPy and one equation for each type.

A row is a sequence of blocks of 32 or 256 weights. A block holds integers q and float16 scales d (and minima m).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np


def _q8_0(b: np.ndarray) -> np.ndarray:
    return _scale(b, "d") * b["q"]


def _q4_0(b: np.ndarray) -> np.ndarray:
    return _scale(b, "d") * (_nibbles(b["q"]) - 8)


def _q4_1(b: np.ndarray) -> np.ndarray:
    return _scale(b, "d") * _nibbles(b["q"]) + _scale(b, "m")


def _q5_0(b: np.ndarray) -> np.ndarray:
    return _scale(b, "d") * (_nibbles(b["q"]) + 16 * _bits(b["high"]) - 16)


def _q5_1(b: np.ndarray) -> np.ndarray:
    return _scale(b, "d") * (_nibbles(b["q"]) + 16 * _bits(b["high"])) + _scale(b, "m")


def _q4_k(b: np.ndarray) -> np.ndarray:
    """Eight groups of 32 weights, each with a scale and a minimum of 6 bits, packed into 12 bytes."""
    first, second, third = np.split(b["scales"], 3, axis=-1)  # [N, 4] each
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=-1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=-1)
    q = _nibbles(b["q"].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    d, m = (_scale(b, x) * y for x, y in (("d", scales), ("m", minima)))
    return d[..., None] * q - m[..., None]


def _q6_k(b: np.ndarray) -> np.ndarray:
    """Two halves of 128 weights: 4 low bits of each in `low`, 2 high bits in `high`; 16 scales of 8 bits."""
    low, high = b["low"].reshape(-1, 2, 1, 64), b["high"].reshape(-1, 2, 1, 32)
    q = (low >> np.array([[0], [4]], np.uint8) & 15).reshape(-1, 2, 4, 32)
    q = (q | (high >> np.array([[0], [2], [4], [6]], np.uint8) & 3) << 4).astype(np.int8) - 32
    return (_scale(b, "d") * b["scales"])[..., None] * q.reshape(-1, 16, 16)


def _scale(b: np.ndarray, field: str) -> np.ndarray:
    return b[field].astype(np.float32)[:, None]


def _nibbles(q: np.ndarray) -> np.ndarray:
    """The low four bits of all bytes [..., n], then the high four: int8[..., 2 n]."""
    return np.concatenate([q & 15, q >> 4], axis=-1).view(np.int8)


def _bits(q: np.ndarray) -> np.ndarray:
    return np.unpackbits(q, axis=-1, bitorder="little").view(np.int8)


class Blocks(NamedTuple):
    """A type of weights: how many weights are in a block, the block's fields, and its weights [N, size] in float32."""

    name: str
    size: int
    dtype: np.dtype
    weights: Callable[[np.ndarray], np.ndarray] = lambda b: b.astype(np.float32)


def _fields(**fields: str) -> np.dtype:
    return np.dtype(list(fields.items()))


TYPES = {  # by the number in a file
    0: Blocks("F32", 1, np.dtype("<f4")),
    1: Blocks("F16", 1, np.dtype("<f2")),
    2: Blocks("Q4_0", 32, _fields(d="<f2", q="16u1"), _q4_0),
    3: Blocks("Q4_1", 32, _fields(d="<f2", m="<f2", q="16u1"), _q4_1),
    6: Blocks("Q5_0", 32, _fields(d="<f2", high="4u1", q="16u1"), _q5_0),
    7: Blocks("Q5_1", 32, _fields(d="<f2", m="<f2", high="4u1", q="16u1"), _q5_1),
    8: Blocks("Q8_0", 32, _fields(d="<f2", q="32i1"), _q8_0),
    12: Blocks("Q4_K", 256, _fields(d="<f2", m="<f2", scales="12u1", q="128u1"), _q4_k),
    14: Blocks("Q6_K", 256, _fields(low="128u1", high="64u1", scales="16i1", d="<f2"), _q6_k),
    30: Blocks("BF16", 1, np.dtype(ml_dtypes.bfloat16)),
}
NAMES_OF_OTHERS = {9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 13: "Q5_K", 15: "Q8_K", 16: "IQ2_XXS", 20: "IQ4_NL", 23: "IQ4_XS"}
CHUNK = 2**12  # blocks at once, so that intermediate arrays stay in a cache of the processor


def dequantised(blocks: np.ndarray, kind: Blocks) -> np.ndarray:
    """The weights of an array [N] of blocks, float32[N * size]."""
    out = np.empty((len(blocks), kind.size), np.float32)
    step = CHUNK if kind.size > 1 else 32 * CHUNK
    for start in range(0, len(blocks), step):
        part = slice(start, start + step)
        out[part] = kind.weights(blocks[part]).reshape(-1, kind.size)
    return out.reshape(-1)
