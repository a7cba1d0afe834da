"""Language models in GGUF files, the format of llama.cpp. Needs no other package."""

from __future__ import annotations

import os
from typing import Any

from hkx.interop.decoder_parameters import parameters
from hkx.interop.gguf_families import HuggingFaceTensors, configuration
from hkx.interop.gguf_file import read as read
from hkx.interop.gguf_tokenizer import tokenizer_json as tokenizer_json
from hkx.nets import DecoderConfig

__all__ = ["load", "read", "tokenizer_json"]


def load(file: str | os.PathLike[str], *, stacked: bool = True, dtype: Any = None) -> tuple[DecoderConfig, Any]:
    """The configuration and the parameters of a language model in a GGUF file.

    It reads tensors of the types F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K and Q6_K, of the architectures
    llama (also Mistral, Mixtral and SmolLM), qwen2, qwen3, qwen3moe, gemma2, gemma3, phi3, olmo2 and gpt2. The file is
    mapped into memory, and dequantised tensor by tensor: a quantised model needs as much memory as any other.

    Args:
      file: the file.
      stacked: whether the parameters are those of `hkx.nets.Decoder(config, stacked=True)`.
      dtype: the parameters' dtype, float32 by default.

    Returns:
      A pair `(config, params)`, as `hkx.interop.huggingface.load` returns it. `tokenizer_json` has its tokenizer.

    Raises:
      ValueError: if it is not a GGUF file, is truncated or damaged, or its architecture or a type is none of these.
      WeightMismatchError: if tensors are missing, left over or of another shape.
      OSError: if the file cannot be read.

    Example:

      >>> import hkx, jax
      >>> from hkx.interop import gguf
      >>> config, params = gguf.load("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
      >>> model = hkx.without_apply_rng(hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens)))
      >>> model.apply(params, jax.numpy.array([[504, 3575, 282, 4649, 314]])).shape  # doctest: +SKIP
      (1, 5, 49152)
    """
    metadata, tensors = read(file)
    description = configuration(metadata, tensors)
    config = DecoderConfig.from_pretrained(description)
    named = HuggingFaceTensors(description, tensors)
    return config, parameters(config, named.shapes, named.read, stacked=stacked, dtype=dtype)
