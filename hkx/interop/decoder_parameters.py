"""A decoder's parameters from tensors with the names of Hugging Face, whatever file they are in."""

from __future__ import annotations

import difflib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from hkx.errors.interop import WeightMismatchError
from hkx.interop.decoder_tensors import Group, Layout, Shape, decoder_shapes, decoder_tensors, groups, layer_tensors
from hkx.nets import DecoderConfig

Params = dict[str, dict[str, Any]]
Read = Callable[[str], np.ndarray]
"""Reads a tensor by its name."""


def parameters(
    config: DecoderConfig,
    tensor_shapes: Mapping[str, Shape],
    read: Read,
    *,
    stacked: bool,
    dtype: Any = None,
    shardings: Any = None,
) -> Params:
    """The parameters of `hkx.nets.Decoder(config, stacked=stacked)`, read one at a time.

    Raises:
      WeightMismatchError: if tensors are missing, left over or of another shape.
    """
    shapes = decoder_shapes(config, stacked)
    sources = _sources(config, stacked, shapes, tensor_shapes, read)
    divided: Any = shardings(shapes) if callable(shardings) else shardings

    def slice_of(index: tuple[slice, ...], parts: Any) -> np.ndarray:
        lead = parts.ndim  # axes of layers and experts
        chosen = parts[index[:lead]] if lead else parts
        out = None
        for place in np.ndindex(*chosen.shape):
            part = chosen[place]()[index[lead:]]
            if out is None:
                out = _empty((*chosen.shape, *part.shape), part.dtype if dtype is None else dtype)
            out[place] = part
        assert out is not None
        return out

    params: Params = {}
    for bundle, entries in shapes.items():
        params[bundle] = {}
        for name, like in entries.items():
            part_of: Any = functools.partial(slice_of, parts=sources[f"{bundle}/{name}"])
            if divided is None:
                array = jax.device_put(part_of((slice(None),) * len(like.shape)))
            else:
                array = jax.make_array_from_callback(like.shape, divided[bundle][name], part_of)
            params[bundle][name] = array
    return params


def _empty(shape: Shape, dtype: Any) -> np.ndarray:
    """An array that begins at a multiple of 64 bytes, which `jax.device_put` takes on a CPU without a copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + size].view(dtype).reshape(shape)


def tensors_of(config: DecoderConfig, stacked: bool) -> Iterator[tuple[str, Layout, Group | None, int]]:
    """All tensors of a file, each with the group and the layer whose parameters it holds."""
    for name, layout in decoder_tensors(config).items():
        yield name, layout, None, 0
    for group in groups(config, stacked):
        for layer in group.layers:
            for name, layout in layer_tensors(config, layer).items():
                yield name, layout, group, layer


def full_name(group: Group | None, path: str) -> str:
    """The full name of a parameter, by its path below the layer or the decoder."""
    return f"decoder/{path}" if group is None else f"{group.prefix}/{path}"


def place_of(group: Group | None, layer: int, layout: Layout) -> tuple[int, ...]:
    """The place in a parameter of the part that a tensor holds: its layer, if stacked, and its expert."""
    place = (group.layers.index(layer),) if group is not None and group.stacked else ()
    return place if layout.expert is None else (*place, layout.expert)


def _sources(
    config: DecoderConfig, stacked: bool, shapes: Any, tensor_shapes: Mapping[str, Shape], read: Read
) -> dict[str, Any]:
    """For each parameter, an array by layer and expert of functions that read its part of a tensor."""
    sources: dict[str, Any] = {}
    missing, wrong, used = [], [], set()
    for name, layout, group, layer in tensors_of(config, stacked):
        full = [full_name(group, path) for path in layout.paths]
        leaves = [shapes[path.rpartition("/")[0]][path.rpartition("/")[2]].shape for path in full]
        own = [leaf[1:] if group is not None and group.stacked else leaf for leaf in leaves]
        used.add(name)
        if name not in tensor_shapes:
            missing.append(name)
        elif tensor_shapes[name] != layout.shape(own):
            wrong.append(f"{name} has the shape {tensor_shapes[name]}, expected {layout.shape(own)}")
        else:
            place = place_of(group, layer, layout)
            for i, (path, leaf) in enumerate(zip(full, leaves, strict=True)):
                part = functools.partial(_part, read, name, layout, own, i)
                sources.setdefault(path, np.empty(leaf[: len(place)], object))[place] = part
    left = sorted(set(tensor_shapes) - used)
    if missing or wrong or left:
        raise WeightMismatchError(
            "The tensors are not those of the model that the configuration describes",
            [*(missing_line(name, left) for name in missing), *wrong, *(f"{name} is left over" for name in left)],
        )
    return sources


def _part(read: Read, name: str, layout: Layout, shapes: list[Shape], i: int) -> np.ndarray:
    return next(itertools.islice(layout.views(read(name), shapes), i, None))


def missing_line(name: str, left: Iterable[str]) -> str:
    """A line of an error about a missing name, with the nearest of those that are left over."""
    near = difflib.get_close_matches(name, list(left), 1)
    return f"{name} is missing; the nearest one left over is {near[0]}" if near else f"{name} is missing"
