"""Folders of Hugging Face with language models: `config.json` and safetensors. Needs no other package."""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from hkx.errors.interop import WeightMismatchError
from hkx.interop.decoder_parameters import Params, full_name, missing_line, parameters, place_of, tensors_of
from hkx.interop.decoder_tensors import Layout, decoder_shapes
from hkx.interop.safetensors import Tensors, write
from hkx.nets import DecoderConfig
from hkx.nets.pretrained_written import written_config

__all__ = ["load", "save"]


def load(
    folder: str | os.PathLike[str],
    *,
    stacked: bool = True,
    dtype: Any = None,
    shardings: Any = None,
) -> tuple[DecoderConfig, Params]:
    """The configuration and the parameters of a pretrained language model.

    The files are mapped into memory and read parameter by parameter: apart from the parameters themselves, one of them
    at a time is in the host's memory; with shardings, only the parts of it that this process's devices hold.

    Args:
      folder: a folder with `config.json` and `*.safetensors`, as `save_pretrained` of transformers writes it.
      stacked: whether the parameters are those of `hkx.nets.Decoder(config, stacked=True)`.
      dtype: the parameters' dtype; by default, each keeps that of the file.
      shardings: how to divide the parameters over devices: a tree of `jax.sharding.Sharding` like the parameters, or a
        function of their shapes that returns one, such as `lambda shapes: hkx.sharding.shardings(shapes, mesh,
        hkx.nets.decoder_sharding_rules())`.

    Returns:
      A pair `(config, params)`; the parameters are those of `hkx.transform(lambda tokens: hkx.nets.Decoder(config,
      stacked=stacked)(tokens))`.

    Raises:
      PretrainedConfigError: if the model is not supported.
      WeightMismatchError: if tensors are missing, left over or of another shape, or a file is damaged.
      OSError: if a file cannot be read.

    Example:

      >>> import hkx, jax, jax.numpy as jnp, tempfile
      >>> from hkx.interop import huggingface
      >>> config = hkx.nets.DecoderConfig(vocab_size=32, hidden_size=8, num_layers=2, num_heads=2)
      >>> model = hkx.without_apply_rng(hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens)))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 4], int))
      >>> folder = tempfile.mkdtemp()
      >>> huggingface.save(folder, config, params)
      >>> config, params = huggingface.load(folder)
      >>> model.apply(params, jnp.ones([1, 4], int)).shape
      (1, 4, 32)
    """
    config = DecoderConfig.from_pretrained(folder)
    mapped = Tensors(folder)
    tensors = _renamed(config, mapped)

    def read(name: str) -> np.ndarray:
        mapped.release()  # what was read before
        return tensors[name]

    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    return config, parameters(config, shapes, read, stacked=stacked, dtype=dtype, shardings=shardings)


def save(folder: str | os.PathLike[str], config: DecoderConfig, params: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes a folder that transformers and `load` can read: `config.json` and `model.safetensors`.

    Args:
      folder: the folder, which is created. Its other files, such as a tokenizer's, stay.
      config: the configuration; its `family` says how tensors are named.
      params: the parameters of `hkx.nets.Decoder(config)`, stacked or not.

    Raises:
      WeightMismatchError: if parameters are missing, left over or of another shape.
      PretrainedConfigError: if no model of this family has such a configuration.
      OSError: if a file cannot be written; an older one stays unchanged.

    Example:

      >>> import hkx, jax, jax.numpy as jnp, pathlib, tempfile
      >>> from hkx.interop import huggingface
      >>> config = hkx.nets.DecoderConfig(vocab_size=32, hidden_size=8, num_layers=2, num_heads=2)
      >>> model = hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens))
      >>> folder = tempfile.mkdtemp()
      >>> huggingface.save(folder, config, model.init(jax.random.key(0), jnp.ones([1, 4], int)))
      >>> sorted(file.name for file in pathlib.Path(folder).iterdir())
      ['config.json', 'model.safetensors']
    """
    stacked = any(bundle.startswith(("decoder/layers", "decoder/dense_layers")) for bundle in params)
    shapes = decoder_shapes(config, stacked)
    _check_params(shapes, params)
    content = json.dumps(written_config(config), indent=2) + "\n"
    found: dict[str, tuple[Layout, list[Any], list[tuple[int, ...]]]] = {}
    for name, layout, group, layer in tensors_of(config, stacked):
        leaves, own = [], []
        for path in layout.paths:
            bundle, _, entry = full_name(group, path).rpartition("/")
            leaf = params[bundle][entry]
            leaves.append((leaf, place_of(group, layer, layout)))
            own.append(tuple(leaf.shape[1:] if group is not None and group.stacked else leaf.shape))
        found[name] = (layout, leaves, own)

    def tensor(name: str) -> np.ndarray:
        layout, leaves, own = found[name]
        out = np.empty(layout.shape(own), np.dtype(leaves[0][0].dtype))
        for view, (leaf, index) in zip(layout.views(out, own), leaves, strict=True):
            view[...] = np.asarray(leaf[index] if index else leaf)
        return out

    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    about = {n: (layout.shape(own), leaves[0][0].dtype) for n, (layout, leaves, own) in found.items()}
    write(target / "model.safetensors", about, tensor)
    (target / "model.safetensors.index.json").unlink(missing_ok=True)  # of an older model
    unfinished = target / f".config.json.{os.getpid()}"
    unfinished.write_text(content, encoding="utf-8")
    os.replace(unfinished, target / "config.json")


def _renamed(config: DecoderConfig, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors without those that are no parameters, under the names that a model with a head has."""
    prefix, first = ("transformer.", "wte.weight") if config.family == "gpt2" else ("model.", "embed_tokens.weight")
    added = prefix if first in tensors and prefix + first not in tensors else ""
    named = {name if name == "lm_head.weight" else added + name: tensor for name, tensor in tensors.items()}
    unused = re.compile(r".*\.rotary_emb\.inv_freq|transformer\.h\.\d+\.attn\.(bias|masked_bias)")
    out = {name: tensor for name, tensor in named.items() if not unused.fullmatch(name)}
    if config.family == "deepseek_v3":  # layers that predict further tokens come after those of the model
        number = re.compile(r"model\.layers\.(\d+)\..*")
        last = config.num_layers
        out = {name: x for name, x in out.items() if not ((m := number.fullmatch(name)) and int(m[1]) >= last)}
    head, embeddings = out.get("lm_head.weight"), out.get(prefix + first)
    if config.tied_embeddings and head is not None and embeddings is not None and _equal(head, embeddings):
        del out["lm_head.weight"]
    return out


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.array_equal(a.view(np.uint8), b.view(np.uint8)))


def _check_params(shapes: Any, params: Mapping[str, Mapping[str, Any]]) -> None:
    expected = {f"{bundle}/{name}": x.shape for bundle, entries in shapes.items() for name, x in entries.items()}
    given = {f"{bundle}/{name}": np.shape(x) for bundle, entries in params.items() for name, x in entries.items()}
    left = sorted(set(given) - set(expected))
    problems = [missing_line(name, left) for name in expected if name not in given]
    problems += [
        f"{name} has the shape {given[name]}, expected {shape}"
        for name, shape in expected.items()
        if name in given and given[name] != shape
    ]
    problems += [f"{name} is left over" for name in left]
    if problems:
        raise WeightMismatchError("The parameters are not those of the model that `config` describes", problems)
