"""Files of safetensors: read by mapping them into memory, and written tensor by tensor. Needs nothing but NumPy.

A file is a length, `uint64`, a JSON object of names, dtypes, shapes and offsets, and the tensors' bytes.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from hkx.errors.interop import WeightMismatchError

__all__ = ["Tensors", "write"]

DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F8_E4M3": jnp.float8_e4m3fn,
    "F8_E5M2": jnp.float8_e5m2,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


class Tensors(dict[str, np.ndarray]):
    """All tensors of a folder, or of a file, by name; a tensor's bytes are read when it is used.

    Args:
      path: a folder with a `model.safetensors.index.json` and the files that it lists, or with a `model.safetensors`,
        or else with files `*.safetensors`; or a file.

    Raises:
      FileNotFoundError: if there is no such file.
      WeightMismatchError: if a file is truncated or damaged, or lacks a tensor that the index lists.

    Example:

      >>> import pathlib, tempfile, numpy as np
      >>> from hkx.interop.safetensors import Tensors, write
      >>> file = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
      >>> write(file, {"w": ((2,), np.float32)}, lambda name: np.ones(2, np.float32))
      >>> Tensors(file)["w"].tolist()
      [1.0, 1.0]
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__()
        self.maps: list[mmap.mmap] = []
        for file in _files(pathlib.Path(path)):
            self.update(self._mapped(file))
        _check_index(pathlib.Path(path), self)

    def release(self) -> None:
        """Frees the memory that holds parts of the files; a part that is used again is read again."""
        for data in self.maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                data.madvise(mmap.MADV_DONTNEED)

    def _mapped(self, path: pathlib.Path) -> Iterator[tuple[str, np.ndarray]]:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = 8 + int.from_bytes(file.read(8), "little")
            if size < 8 or size < start:
                raise WeightMismatchError(
                    f"{path} is truncated or damaged: it has {size} bytes, and its header {start}"
                )
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.maps.append(data)
        try:
            header = json.loads(data[8:start])
            entries = [(name, _entry(about)) for name, about in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightMismatchError(f"{path} is damaged: its header cannot be read ({error!r})") from None
        needed = start + max((end for _, (_, _, _, end) in entries), default=0)
        if needed > size:
            raise WeightMismatchError(f"{path} is truncated: it has {size} bytes, and its header describes {needed}")
        for name, (dtype, shape, begin, _) in entries:
            yield name, np.frombuffer(data, dtype, math.prod(shape), start + begin).reshape(shape)


def _entry(about: Mapping[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    dtype, shape = np.dtype(DTYPES[about["dtype"]]), tuple(int(n) for n in about["shape"])
    begin, end = about["data_offsets"]
    if not 0 <= begin <= end or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{end - begin} bytes for the shape {shape} of {dtype}")
    return dtype, shape, begin, end


def _index(folder: pathlib.Path) -> dict[str, str]:
    path = folder / "model.safetensors.index.json"
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise WeightMismatchError(f"{path} is damaged: it has no `weight_map` that can be read ({error!r})") from None


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if not path.is_dir():
        return [path]
    if index := _index(path):
        files = [path / name for name in sorted(set(index.values()))]
        if missing := [file.name for file in files if not file.is_file()]:
            raise FileNotFoundError(
                f"{path} lacks files that model.safetensors.index.json lists: {', '.join(missing)}."
            )
        return files
    files = (
        [path / "model.safetensors"] if (path / "model.safetensors").is_file() else sorted(path.glob("*.safetensors"))
    )
    if not files:
        there = ", ".join(sorted(file.name for file in path.iterdir())) or "nothing"
        raise FileNotFoundError(f"There is no file *.safetensors in {path}, which has {there}.")
    return files


def _check_index(path: pathlib.Path, tensors: Mapping[str, Any]) -> None:
    if lost := sorted(set(_index(path)) - set(tensors)) if path.is_dir() else []:
        raise WeightMismatchError("Tensors that model.safetensors.index.json lists are not in their files", lost)


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, tuple[tuple[int, ...], Any]],
    values: Callable[[str], np.ndarray],
) -> None:
    """Writes a file, which replaces an older one only when it is complete.

    Args:
      path: the file.
      tensors: the shape and dtype of each tensor.
      values: a function of a name, which returns the tensor; it is called once for each, in order, and only the tensor
        that is being written need be in memory.

    Raises:
      OSError: if the file cannot be written, because the disk is full for instance; nothing of it remains.

    Example:

      >>> import pathlib, tempfile, numpy as np
      >>> from hkx.interop.safetensors import write
      >>> file = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
      >>> write(file, {"w": ((2,), np.float32)}, lambda name: np.ones(2, np.float32))
      >>> file.stat().st_size % 8
      0
    """
    path, header, end = pathlib.Path(path), {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, dtype) in tensors.items():
        begin, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        about: Any = {"dtype": NAMES[np.dtype(dtype)], "shape": list(shape), "data_offsets": [begin, end]}
        header[name] = about
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in tensors:
                file.write(np.ascontiguousarray(values(name)).reshape(-1).view(np.uint8).data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a failed write names no file
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(unfinished)
