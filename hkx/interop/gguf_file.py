"""The format GGUF, versions 2 and 3: metadata, and tensors that are dequantised when they are asked for.

A header, then keys with values, then for each tensor its name, shape, type and offset, then the blocks of all tensors.
"""

from __future__ import annotations

import math
import mmap
import os
import pathlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from hkx.interop.gguf_blocks import NAMES_OF_OTHERS, TYPES, dequantised

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


class _Tensor(NamedTuple):
    shape: tuple[int, ...]  # of NumPy: the last axis is contiguous
    type: int
    offset: int  # in the file


class Tensors(Mapping[str, np.ndarray]):
    """The tensors of a file by name, float32: each is read and dequantised when it is asked for, and not stored."""

    def __init__(self, path: pathlib.Path, data: mmap.mmap, infos: dict[str, _Tensor]):
        self.path, self._data, self._infos = path, data, infos

    def __getitem__(self, name: str) -> np.ndarray:
        return dequantised(self._blocks(name), TYPES[self._infos[name].type]).reshape(self.shape(name))

    def row(self, name: str, index: int) -> np.ndarray:
        """One entry of a tensor along its first axis, such as the weights of one expert; no other is read."""
        count, *shape = self.shape(name)
        blocks = np.split(self._blocks(name), count)[index]
        return dequantised(blocks, TYPES[self._infos[name].type]).reshape(shape)

    def _blocks(self, name: str) -> np.ndarray:
        info = self._infos[name]
        kind = TYPES[info.type]
        return np.frombuffer(self._data, kind.dtype, math.prod(info.shape) // kind.size, info.offset)

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, which is not read."""
        if name not in self._infos:
            raise ValueError(f"{self.path} is damaged, or no language model: it has no tensor {name}.")
        return self._infos[name].shape


def read(file: str | os.PathLike[str]) -> tuple[dict[str, Any], Tensors]:
    """The metadata of a GGUF file by key, as Python values and lists, and its tensors.

    The file is mapped into memory, and must not change while its tensors are in use.

    Raises:
      ValueError: if the file is no GGUF file, is truncated or damaged, or has tensors of an unknown type.

    Example:
      >>> from hkx.interop import gguf
      >>> metadata, tensors = gguf.read(file)  # doctest: +SKIP
      >>> metadata["general.architecture"], tensors["output_norm.weight"].shape  # doctest: +SKIP
      ('llama', (576,))
    """
    path = pathlib.Path(file)
    with path.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise ValueError(f"{path} is not a GGUF file: it does not begin with the four bytes GGUF.")
        data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return _read(path, data)
    except (struct.error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise ValueError(
            f"{path} is truncated or damaged: its header is not complete after {len(data)} bytes. Copy it again."
        ) from error


def _read(path: pathlib.Path, data: mmap.mmap) -> tuple[dict[str, Any], Tensors]:
    stream = _Stream(data, 4)
    version = stream.number("I")
    if version not in (2, 3):
        raise ValueError(f"{path} has GGUF version {version}, expected 2 or 3, little-endian.")
    tensor_count, key_count = stream.number("Q"), stream.number("Q")
    metadata = {}
    for _ in range(key_count):
        key = stream.string()
        metadata[key] = stream.value(stream.number("I"))
    infos = {}
    for _ in range(tensor_count):
        name = stream.string()
        shape = stream.numbers("Q", stream.number("I"))[::-1]
        infos[name] = _Tensor(shape, stream.number("I"), stream.number("Q"))
    alignment = metadata.get("general.alignment", 32)
    start = -(-stream.at // alignment) * alignment
    infos = {name: info._replace(offset=start + info.offset) for name, info in infos.items()}
    for name, info in infos.items():
        _check(path, name, info, len(data))
    return metadata, Tensors(path, data, infos)


def _check(path: pathlib.Path, name: str, info: _Tensor, size: int) -> None:
    kind = TYPES.get(info.type)
    if kind is None:
        known = ", ".join(kind.name for kind in TYPES.values())
        given = NAMES_OF_OTHERS.get(info.type, f"type {info.type}")
        raise ValueError(f"{path}: tensor {name} is quantised as {given}, which is not read. Known are {known}.")
    if info.shape[-1] % kind.size:
        raise ValueError(
            f"{path} is damaged: tensor {name} has rows of {info.shape[-1]} weights, not a multiple of {kind.size}."
        )
    end = info.offset + math.prod(info.shape) // kind.size * kind.dtype.itemsize
    if end > size:
        raise ValueError(
            f"{path} is truncated: tensor {name} ends at byte {end}, and the file has {size}. Copy it again."
        )


class _Stream:
    """Numbers and strings, one after the other."""

    def __init__(self, data: mmap.mmap, at: int):
        self.data, self.at = data, at

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        format_ = f"<{count}{code}"
        values = struct.unpack_from(format_, self.data, self.at)
        self.at += struct.calcsize(format_)
        return values

    def number(self, code: str) -> Any:
        return self.numbers(code, 1)[0]

    def strings(self, count: int) -> list[str]:
        """A vocabulary is most of a header, so this loop calls nothing that it does not need."""
        out, at, data, length_at = [], self.at, self.data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            (length,) = length_at(data, at)
            text = data[at + 8 : at + 8 + length]
            if len(text) < length:
                raise struct.error("the file ends in a string")
            out.append(text.decode("utf-8"))
            at += 8 + length
        self.at = at
        return out

    def string(self) -> str:
        return self.strings(1)[0]

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            kind, count = self.number("I"), self.number("Q")
            if kind == _STRING:
                return self.strings(count)
            if kind in _NUMBERS:
                return list(self.numbers(_NUMBERS[kind], count))
            return [self.value(kind) for _ in range(count)]
        if kind not in _NUMBERS:
            raise struct.error(f"unknown kind of value {kind}")
        return self.number(_NUMBERS[kind])
