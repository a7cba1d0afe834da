"""Models in GGUF files under the names, and in the layout, of Hugging Face: configuration and tensors.

llama.cpp permutes the rows of query and key of the architecture `llama` (it pairs neighbours in a rotation, where
Hugging Face pairs the halves), adds 1 to the norms of Gemma, stacks experts, and transposes the weights of GPT-2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hkx.interop.gguf_file import Tensors

FAMILIES = {  # architecture of a file -> model type
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3moe": "qwen3_moe", "gemma2": "gemma2",
    "gemma3": "gemma3_text", "phi3": "phi3", "olmo2": "olmo2", "gpt2": "gpt2",
}  # fmt: skip
_TOP = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
}  # fmt: skip
_LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "attn_qkv": "self_attn.qkv_proj", "ffn_norm": "post_attention_layernorm",
    "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj", "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}  # fmt: skip
_OTHER_NAMES = {  # where a family differs
    "gemma2": {"ffn_norm": "pre_feedforward_layernorm"},
    "gemma3_text": {"ffn_norm": "pre_feedforward_layernorm"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "mixtral": {
        "ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3", "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    "gpt2": {
        "token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
        "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
    },
}  # fmt: skip
_ADDED_ONE = ("gemma2", "gemma3_text")


def configuration(metadata: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    """The `config.json` that Hugging Face has for the model of a file."""
    architecture = metadata.get("general.architecture")
    if architecture not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ValueError(f"{tensors.path} has a model of architecture {architecture!r}. Known are {known}.")

    layers = 1 + max((int(name.split(".")[1]) for name in tensors if re.match(r"blk\.\d+\.", name)), default=0)

    def get(key: str, *default: Any) -> Any:
        name = f"{architecture}.{key}"
        if name not in metadata and not default:
            raise ValueError(f"{tensors.path} is damaged: its metadata has no {name}.")
        if isinstance(metadata.get(name), str) != (key == "rope.scaling.type") and name in metadata:
            raise ValueError(f"{tensors.path} is damaged: its {name} is {metadata[name]!r:.40}.")
        return metadata.get(name, *default)

    width, heads = get("embedding_length"), get("attention.head_count")
    if get("block_count") != layers or not heads:
        raise ValueError(
            f"{tensors.path} is damaged: it says {get('block_count')} layers of {heads} heads, and holds {layers}."
        )
    config = {
        "model_type": FAMILIES[architecture],
        "vocab_size": tensors.shape("token_embd.weight")[0],
        "tie_word_embeddings": "output.weight" not in tensors,
    }
    if architecture == "gpt2":
        return config | {
            "n_embd": width, "n_head": heads, "n_layer": get("block_count"), "n_positions": get("context_length"),
            "n_inner": get("feed_forward_length"), "layer_norm_epsilon": get("attention.layer_norm_epsilon"),
            "activation_function": "gelu_new",
        }  # fmt: skip
    config |= {
        "hidden_size": width,
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "head_dim": get("attention.key_length", width // heads),
        "intermediate_size": get("feed_forward_length"),
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "rope_theta": get("rope.freq_base", 10000.0),
        "rope_scaling": _scaling(get, tensors),
        "hidden_act": "silu",
    }
    return config | _SPECIAL.get(architecture, lambda get, config, tensors: {})(get, config, tensors)


def _scaling(get: Callable[..., Any], tensors: Tensors) -> dict[str, Any] | None:
    """How rotary frequencies are scaled: a method by name, or Llama 3's, which is a tensor of divisors in the file."""
    if any(name.startswith("rope_factors_") for name in tensors):
        raise ValueError(f"{tensors.path} scales rotary frequencies by `longrope`, which is not read.")
    kind = get("rope.scaling.type", "none")
    if "rope_freqs.weight" in tensors:
        divisors, size = tensors["rope_freqs.weight"], get("rope.dimension_count")
        scaling = {"rope_type": "llama3", "factor": float(divisors.max()), "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
        wavelengths = 2 * np.pi * get("rope.freq_base") ** (np.arange(0, size, 2) / size)
        smooth = np.clip((8192 / wavelengths - 1) / 3, 0, 1)
        if not np.allclose(divisors, 1 / (smooth + (1 - smooth) / scaling["factor"]), rtol=1e-4):
            raise ValueError(f"{tensors.path}: its tensor rope_freqs.weight is not the scaling of Llama 3.")
        return scaling
    if kind == "none":
        return None
    scaling = {"rope_type": kind, "factor": get("rope.scaling.factor")}
    original = get("rope.scaling.original_context_length", None)
    return scaling | ({} if original is None else {"original_max_position_embeddings": original})


def _llama(get: Callable[..., Any], config: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    if not get("expert_count", 0):
        return {"attention_bias": "blk.0.attn_q.bias" in tensors}
    experts, chosen = get("expert_count"), get("expert_used_count")
    return {"model_type": "mixtral", "num_local_experts": experts, "num_experts_per_tok": chosen}


def _qwen3moe(get: Callable[..., Any], config: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    return {
        "num_experts": get("expert_count"),
        "num_experts_per_tok": get("expert_used_count"),
        "moe_intermediate_size": get("expert_feed_forward_length"),
        "norm_topk_prob": True,
    }


def _gemma2(get: Callable[..., Any], config: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    layers = config["num_hidden_layers"]
    return {
        "attn_logit_softcapping": get("attn_logit_softcapping"),
        "final_logit_softcapping": get("final_logit_softcapping"),
        "sliding_window": get("attention.sliding_window"),
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)],
        **_gemma(config, of_27b=46),
    }


def _gemma3(get: Callable[..., Any], config: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    layers = config["num_hidden_layers"]
    return {
        "sliding_window": get("attention.sliding_window"),
        "layer_types": ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(layers)],
        "rope_local_base_freq": get("rope.freq_base_swa", 10000.0),
        **_gemma(config, of_27b=62),
    }


def _gemma(config: dict[str, Any], of_27b: int) -> dict[str, Any]:
    """The scale of queries is not in a file: 27B, known by its number of layers, has the width of the model a head."""
    large = config["num_hidden_layers"] == of_27b
    scale = config["hidden_size"] // config["num_attention_heads"] if large else config["head_dim"]
    return {"query_pre_attn_scalar": scale, "hidden_activation": "gelu_pytorch_tanh"}


def _phi3(get: Callable[..., Any], config: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    rotated = get("rope.dimension_count", config["head_dim"]) / config["head_dim"]
    return {"sliding_window": get("attention.sliding_window", None) or None, "partial_rotary_factor": rotated}


_SPECIAL = {"llama": _llama, "qwen3moe": _qwen3moe, "gemma2": _gemma2, "gemma3": _gemma3, "phi3": _phi3}


class HuggingFaceTensors:
    """The tensors of a file under the names of Hugging Face; each is read when it is asked for."""

    def __init__(self, config: Mapping[str, Any], tensors: Tensors):
        self._config, self._tensors = config, tensors
        self._sources: dict[str, tuple[str, int | None]] = {}  # name -> the one in the file, and which expert
        self.shapes: dict[str, tuple[int, ...]] = {}
        for source in tensors:
            shape = tensors.shape(source)
            for expert, name in _names(source, shape, config["model_type"]):
                self._sources[name] = source, expert
                own = shape if expert is None else shape[1:]
                self.shapes[name] = own[::-1] if self._is_transposed(source) else own

    def read(self, name: str) -> np.ndarray:
        source, expert = self._sources[name]
        x = self._tensors[source] if expert is None else self._tensors.row(source, expert)
        kind, part = self._config["model_type"], source.split(".")[-2]
        if part in ("attn_q", "attn_k") and kind in ("llama", "mixtral"):
            heads = self._config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
            x = x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
        if kind in _ADDED_ONE and part.endswith("norm"):
            x = x - 1
        return x.T if self._is_transposed(source) else x

    def _is_transposed(self, source: str) -> bool:
        return (
            self._config["model_type"] == "gpt2"
            and source.startswith("blk.")
            and source.endswith(".weight")
            and len(self._tensors.shape(source)) == 2
        )


def _names(source: str, shape: tuple[int, ...], kind: str) -> list[tuple[int | None, str]]:
    """The names of Hugging Face for a tensor of a file: one for each expert; none for tables that can be computed."""
    if source == "rope_freqs.weight":
        return []
    table = _TOP | _LAYER | _OTHER_NAMES.get(kind, {})
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", source)
    if match is None or match[2] not in table:
        return [(None, source)]  # left over, so that loading says so
    layers = "transformer.h." if kind == "gpt2" else "model.layers."
    name = ("" if match[1] is None else f"{layers}{match[1]}.") + f"{table[match[2]]}.{match[3]}"
    return [(e, name.format(e)) for e in range(shape[0])] if "{}" in name else [(None, name)]
