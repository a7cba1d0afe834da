"""Between Hugging Face's `config.json` and the fields of `hkx.nets.DecoderConfig`."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from hkx.errors import PretrainedConfigError
from hkx.nets.pretrained_entries import Entries
from hkx.nn.rotary import checked_scaling, yarn_scale

ACTIVATIONS = ("silu", "swish", "relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")


def read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a DecoderConfig, from a folder, a file, or the content of a `config.json`."""
    mapping = source if isinstance(source, Mapping) else _content(source)
    entries = Entries(mapping)
    family = entries("model_type")
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise PretrainedConfigError(f"`model_type` {family!r} is not supported; these are: {known}.")
    fields = FAMILIES[family](entries, family)
    if fields["activation"] not in ACTIVATIONS:
        raise PretrainedConfigError(f"The activation {fields['activation']!r} is unknown: it is none of {ACTIVATIONS}.")
    entries.check_all_read()
    return {"family": family, **fields}


def _content(source: str | os.PathLike[str]) -> Mapping[str, Any]:
    path = pathlib.Path(source)
    path = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PretrainedConfigError(f"{path} is not JSON, or damaged: {error}.") from None
    if not isinstance(content, Mapping):
        raise PretrainedConfigError(f"{path} must hold a JSON object, got {type(content).__name__}.")
    return content


# Defaults where they differ from Llama's.
KV_HEADS = {
    "qwen2": 32,
    "qwen3": 32,
    "gemma2": 4,
    "gemma3_text": 4,
    "mistral": 8,
    "mixtral": 8,
    "qwen3_moe": 4,
    "gpt_oss": 8,
}
HEAD_DIM = {"qwen3": 128, "gemma2": 256, "gemma3_text": 256, "gpt_oss": 64}
EPS = {"phi3": 1e-5, "olmo2": 1e-5, "mixtral": 1e-5, "gpt_oss": 1e-5}
THETA = {"mixtral": 1e6, "gemma3_text": 1e6, "gpt_oss": 150_000.0}
BIAS = {"qwen2": True, "gpt_oss": True}  # of attention's projections; of a qwen2 not the output's


def _common(e: Entries, family: str) -> dict[str, Any]:
    """The fields of all families but GPT-2."""
    heads, width = e.number("num_attention_heads"), e.number("hidden_size")
    head_dim = e.number("head_dim", HEAD_DIM.get(family, width // heads))
    bias = bool(e("attention_bias", default=BIAS.get(family, False)))
    gemma = family in ("gemma2", "gemma3_text")
    if family in ("mistral", "mixtral", "phi3") and bias:
        raise PretrainedConfigError(f"'attention_bias' is True, and models of the type {family!r} have no biases.")
    activation = ("hidden_activation", "gelu_pytorch_tanh") if gemma else ("hidden_act", "silu")
    if gemma:
        e("hidden_act", default=None)  # the model does not read it
    return {
        "vocab_size": e.number("vocab_size"),
        "hidden_size": width,
        "num_layers": e.number("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": e.number("num_key_value_heads", KV_HEADS.get(family, heads)),
        "head_dim": head_dim,
        "intermediate_size": e.number("intermediate_size"),
        "norm_eps": e("rms_norm_eps", default=EPS.get(family, 1e-6)),
        "activation": e(activation[0], default=activation[1]),
        "qkv_bias": bias,
        "output_bias": bias and family != "qwen2",
        "mlp_bias": family == "llama" and bool(e("mlp_bias", default=False)),
        "tied_embeddings": bool(e("tie_word_embeddings", default=gemma)),
        "max_positions": e.number("max_position_embeddings", 2048),
        **_rope(e, family, head_dim),
    }


def _rope(e: Entries, family: str, head_dim: int) -> dict[str, Any]:
    """The fields of rotary embeddings, in the spellings of transformers 4 and 5."""
    parameters = e("rope_parameters", "rope_scaling", default={})
    fields: dict[str, Any] = {}
    if family == "gemma3_text":
        local = {"rope_theta": e("rope_local_base_freq", default=1e4), **(parameters.get("sliding_attention") or {})}
        fields["local_rope_theta"] = local.pop("rope_theta")
        if set(local) - {"rope_type", "type"} or local.get("rope_type", "default") != "default":
            raise PretrainedConfigError(f"'rope_parameters' of 'sliding_attention' are not supported: {local}.")
        parameters = parameters.get("full_attention") or {
            k: v for k, v in parameters.items() if k != "sliding_attention"
        }
    parameters = dict(parameters)
    theta = e("rope_theta", default=THETA.get(family, 1e4))
    fields["rope_theta"] = parameters.pop("rope_theta", theta)
    partial = e("partial_rotary_factor", default=1.0)
    partial = parameters.pop("partial_rotary_factor", partial)
    if partial != 1 and family != "phi3":
        raise PretrainedConfigError(f"'partial_rotary_factor' is {partial}, and only 1 is supported for {family!r}.")
    fields["rope_size"] = int(head_dim * partial)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind in ("llama3", "yarn"):
        original = e("original_max_position_embeddings", default=None)
        if original is not None:
            parameters["original_max_position_embeddings"] = original
        parameters.setdefault("original_max_position_embeddings", e("max_position_embeddings", default=2048))
        if kind == "yarn" and parameters.get("factor") is None:
            parameters["factor"] = e("max_position_embeddings") / parameters["original_max_position_embeddings"]
    elif family == "phi3":
        e("original_max_position_embeddings", default=None)
    if kind == "default":
        parameters = {k: v for k, v in parameters.items() if k not in ("original_max_position_embeddings", "factor")}
    try:
        scaling = checked_scaling(parameters)
    except ValueError as error:
        raise PretrainedConfigError(f"'rope_scaling': {error}") from None
    return fields | {"rope_scaling": {} if kind == "default" else scaling}


def _windows(e: Entries, layers: int, window: int | None, sliding: Callable[[int], bool]) -> tuple[int | None, ...]:
    """The window of each layer, by `layer_types` or else by `sliding`."""
    default = ["sliding_attention" if sliding(i) else "full_attention" for i in range(layers)]
    kinds = e("layer_types", default=default)
    if len(kinds) != layers or set(kinds) - {"sliding_attention", "full_attention"}:
        raise PretrainedConfigError(
            f"'layer_types' must be {layers} of 'sliding_attention', 'full_attention', got {kinds}."
        )
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _same_in_all_layers(e: Entries, layers: int, window: int | None) -> tuple[int | None, ...]:
    """For families that do not read `layer_types`."""
    expected = "full_attention" if window is None else "sliding_attention"
    if set(e("layer_types", default=[expected])) != {expected}:
        raise PretrainedConfigError(f"'layer_types' must all be {expected!r} in models of this type.")
    return (window,) * layers


def _llama(e: Entries, family: str) -> dict[str, Any]:
    fields = _common(e, family)
    window = None
    if family in ("mistral", "mixtral", "phi3"):
        window = e.or_null("sliding_window", 4096 if family == "mistral" else None)
    if family == "olmo2":
        fields |= {"norm_placement": "after", "query_key_norm": "all"}
    return fields | {"windows": _same_in_all_layers(e, fields["num_layers"], window)}


def _qwen(e: Entries, family: str) -> dict[str, Any]:
    fields = _common(e, family)
    window = e.or_null("sliding_window", 4096)
    window = window if e("use_sliding_window", default=False) else None
    if family == "qwen3_moe":
        e("max_window_layers", default=None)
        windows = _same_in_all_layers(e, fields["num_layers"], window)
    else:
        full = e("max_window_layers", default=28)
        windows = _windows(e, fields["num_layers"], window, lambda i: window is not None and i >= full)
    return fields | {"windows": windows, "query_key_norm": None if family == "qwen2" else "head"}


def _qwen3_moe(e: Entries, family: str) -> dict[str, Any]:
    fields = _qwen(e, family)
    step, without = e.number("decoder_sparse_step", 1), e("mlp_only_layers", default=[])
    dense = [i for i in range(fields["num_layers"]) if i in without or (i + 1) % step]
    experts = {
        "num_experts": e("num_experts", "num_local_experts", default=128),
        "top_k": e.number("num_experts_per_tok", 8),
        "intermediate_size": e.number("moe_intermediate_size", 768),
        "normalize": bool(e("norm_topk_prob", default=False)),
        "dense_layers": tuple(dense),
    }
    return fields | {"experts": experts}


def _gemma(e: Entries, family: str) -> dict[str, Any]:
    fields = _common(e, family)
    third = family == "gemma3_text"
    pattern = e("sliding_window_pattern", "_sliding_window_pattern", default=6) if third else 2
    window = e("sliding_window", default=4096)
    return fields | {
        "windows": _windows(e, fields["num_layers"], window, lambda i: (i + 1) % pattern != 0),
        "norm": "rms_plus_one",
        "norm_placement": "both",
        "query_key_norm": "head" if third else None,
        "query_scale": e("query_pre_attn_scalar", default=256) ** -0.5,
        "attention_cap": e.or_null("attn_logit_softcapping", None if third else 50.0),
        "logit_cap": e.or_null("final_logit_softcapping", None if third else 30.0),
        "embedding_scale": fields["hidden_size"] ** 0.5,
    }


def _mixtral(e: Entries, family: str) -> dict[str, Any]:
    fields = _llama(e, family)
    experts = {
        "num_experts": e.number("num_local_experts", 8),
        "top_k": e.number("num_experts_per_tok", 2),
        "intermediate_size": fields["intermediate_size"],
    }
    return fields | {"experts": experts}


def _gpt_oss(e: Entries, family: str) -> dict[str, Any]:
    fields = _common(e, family)
    experts = {
        "num_experts": e("num_local_experts", "num_experts", default=128),
        "top_k": e.number("num_experts_per_tok", 4),
        "intermediate_size": fields["intermediate_size"],
        "bias": True,
        "clamp": e("swiglu_limit", default=7.0),
    }
    windows = _windows(e, fields["num_layers"], e("sliding_window", default=128), lambda i: (i + 1) % 2 != 0)
    return fields | {"experts": experts, "sinks": True, "windows": windows}


def _deepseek_v3(e: Entries, family: str) -> dict[str, Any]:
    latent = {
        "kv_rank": e.number("kv_lora_rank", 512),
        "query_rank": e.or_null("q_lora_rank", 1536),
        "key_size": e.number("qk_nope_head_dim", 128),
        "rotary_size": e.number("qk_rope_head_dim", 64),
        "value_size": e.number("v_head_dim", 128),
    }
    e("head_dim", default=None)  # the size of the rotated part
    e.given["head_dim"] = latent["rotary_size"]
    fields = _common(e, family)
    scaling = fields["rope_scaling"]
    sharper = yarn_scale(scaling.get("factor", 1), scaling["mscale_all_dim"]) if scaling.get("mscale_all_dim") else 1.0
    experts = {
        "num_experts": e("n_routed_experts", "num_local_experts", default=256),
        "top_k": e.number("num_experts_per_tok", 8),
        "intermediate_size": e.number("moe_intermediate_size", 2048),
        "router": "sigmoid",
        "normalize": bool(e("norm_topk_prob", default=True)),
        "scale": e("routed_scaling_factor", default=2.5),
        "correction": True,
        "num_groups": e.number("n_group", 8),
        "top_groups": e.number("topk_group", 4),
        "shared_size": e.number("n_shared_experts", 1) * e.number("moe_intermediate_size", 2048),
        "dense_layers": tuple(range(min(e.number("first_k_dense_replace", 3, least=0), fields["num_layers"]))),
    }
    return fields | {
        "windows": _same_in_all_layers(e, fields["num_layers"], None),
        "query_scale": (latent["key_size"] + latent["rotary_size"]) ** -0.5 * sharper**2,
        "rope_interleaved": bool(e("rope_interleave", default=True)),
        "latent": latent,
        "experts": experts,
    }


def _gpt2(e: Entries, family: str) -> dict[str, Any]:
    heads, width = e.number("n_head", 12), e.number("n_embd", 768)
    return {
        "vocab_size": e.number("vocab_size", 50257),
        "hidden_size": width,
        "num_layers": e.number("n_layer", 12),
        "num_heads": heads,
        "num_kv_heads": heads,
        "intermediate_size": e("n_inner", default=4 * width),
        "norm_eps": e("layer_norm_epsilon", default=1e-5),
        "norm": "layer",
        "activation": e("activation_function", default="gelu_new"),
        "gated": False,
        "rope_theta": None,
        "learned_positions": e.number("n_positions", 1024),
        "max_positions": e.number("n_positions", 1024),
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "tied_embeddings": bool(e("tie_word_embeddings", default=True)),
    }


FAMILIES: dict[str, Callable[[Entries, str], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _llama,
    "phi3": _llama,
    "olmo2": _llama,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "gemma2": _gemma,
    "gemma3_text": _gemma,
    "gpt2": _gpt2,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
    "deepseek_v3": _deepseek_v3,
}
