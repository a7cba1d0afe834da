"""The tokenizer of a GGUF file in the format of `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CONTROL, USER_DEFINED = 3, 4  # types of tokens that are cut out of a text before it is split
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA.replace("{1,3}", "")
SPLITS = {"gpt-2": [GPT2], "smollm": [r"\p{N}", GPT2], "llama-bpe": [LLAMA], "qwen2": [QWEN2]}
"""How texts are split before pairs of letters are merged, by `tokenizer.ggml.pre`."""


def tokenizer_json(metadata: Mapping[str, Any]) -> str:
    """The tokenizer of a GGUF file as the text of a `tokenizer.json`, the format of the package `tokenizers`.

    It encodes a text alone, and adds no token that begins or ends it.

    Args:
      metadata: the metadata that `read` returns.

    Raises:
      ValueError: unless it is byte-level byte-pair encoding (`tokenizer.ggml.model` is "gpt2") with texts split as
        GPT-2, SmolLM, Llama 3 or Qwen 2 and 3 do.

    Example:

      >>> import tokenizers  # doctest: +SKIP
      >>> from hkx.interop import gguf
      >>> metadata, _ = gguf.read("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
      >>> tokenizers.Tokenizer.from_str(gguf.tokenizer_json(metadata)).encode("The capital").ids  # doctest: +SKIP
      [504, 3575]
    """
    kind, split = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or split not in SPLITS:
        raise ValueError(f"The file's tokenizer is {kind}, {split}; expected gpt2 with one of {', '.join(SPLITS)}.")
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": i, "content": token, "special": type_ == CONTROL, **plain}
        for i, (token, type_) in enumerate(zip(tokens, types, strict=True))
        if type_ in (CONTROL, USER_DEFINED)
    ]
    isolated = {"behavior": "Isolated", "invert": False}
    splits = [{"type": "Split", "pattern": {"Regex": pattern}, **isolated} for pattern in SPLITS[split]]
    as_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {
        "type": "BPE",
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": metadata["tokenizer.ggml.merges"],
        "ignore_merges": split == "llama-bpe",  # a word that is a token stays whole
    }
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, as_bytes]},
            "decoder": as_bytes,
            "model": model,
        }
    )
