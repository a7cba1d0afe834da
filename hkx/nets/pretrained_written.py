"""The `config.json` of Hugging Face for a `hkx.nets.DecoderConfig`."""

from __future__ import annotations

from typing import Any

from hkx.errors import PretrainedConfigError
from hkx.nets.decoder_config import DecoderConfig

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}


def written_config(config: DecoderConfig) -> dict[str, Any]:
    """The content of a `config.json`, from which `DecoderConfig.from_pretrained` makes an equal configuration.

    Raises:
      PretrainedConfigError: if it does not, as no model of this family can have such a configuration.
    """
    if config.family not in CLASSES:
        raise PretrainedConfigError(f"`family` must be one of {', '.join(CLASSES)}, got {config.family!r}.")
    written = _gpt2(config) if config.family == "gpt2" else _common(config) | _own(config)
    written = {"architectures": [CLASSES[config.family]], "model_type": config.family, **written}
    again = DecoderConfig.from_pretrained(written)
    if different := [name for name, value in vars(config).items() if value != getattr(again, name)]:
        listed = "".join(f"\n  {name}: {getattr(config, name)!r}, not {getattr(again, name)!r}" for name in different)
        raise PretrainedConfigError(f"Models of the family {config.family!r} do not have:{listed}")
    return written


def _common(c: DecoderConfig) -> dict[str, Any]:
    scaling = {name: list(value) if isinstance(value, tuple) else value for name, value in c.rope_scaling}
    return {
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
        "intermediate_size": c.intermediate_size,
        "hidden_act": c.activation,
        "rms_norm_eps": c.norm_eps,
        "max_position_embeddings": c.max_positions,
        "tie_word_embeddings": c.tied_embeddings,
        "rope_theta": c.rope_theta,
        "rope_scaling": scaling or None,
    }


def _own(c: DecoderConfig) -> dict[str, Any]:
    """The entries of each family."""
    windows = [window for window in c.windows if window is not None]
    window = windows[0] if windows else None
    sliding = {"sliding_window": window}
    kinds = {"layer_types": ["full_attention" if w is None else "sliding_attention" for w in c.windows]}
    bias = {"attention_bias": c.qkv_bias}
    gemma = {
        "hidden_activation": c.activation,
        "query_pre_attn_scalar": _whole(c.query_scale**-2),
        "attn_logit_softcapping": c.attention_cap,
        "final_logit_softcapping": c.logit_cap,
        **({"sliding_window": 4096} if window is None else sliding),
        **kinds,
        **bias,
    }
    qwen = {"use_sliding_window": window is not None, **sliding}
    match c.family:
        case "llama":
            return {**bias, "mlp_bias": c.mlp_bias}
        case "mistral":
            return sliding
        case "phi3":
            return {**sliding, "partial_rotary_factor": c.rope_size / c.head_dim, "pad_token_id": None}
        case "olmo2":
            return bias
        case "qwen2":
            return {**qwen, **kinds}
        case "qwen3":
            return {**qwen, **kinds, **bias}
        case "gemma2":
            return gemma
        case "gemma3_text":
            return {**gemma, "rope_local_base_freq": c.local_rope_theta}
    return _of_experts(c, sliding | bias, kinds, qwen)


def _of_experts(c: DecoderConfig, same: dict[str, Any], kinds: Any, qwen: Any) -> dict[str, Any]:
    e = c.experts
    if e is None:
        raise PretrainedConfigError(f"Models of the family {c.family!r} have experts, and `config.experts` is None.")
    out = {"num_experts_per_tok": e.top_k}
    match c.family:
        case "mixtral":
            return {**out, "num_local_experts": e.num_experts, "sliding_window": same["sliding_window"]}
        case "gpt_oss":
            return {**out, **same, **kinds, "num_local_experts": e.num_experts, "swiglu_limit": e.clamp}
        case "qwen3_moe":
            sizes = {"num_experts": e.num_experts, "moe_intermediate_size": e.intermediate_size}
            options = {"norm_topk_prob": e.normalize, "mlp_only_layers": list(e.dense_layers), "decoder_sparse_step": 1}
            return {**out, **sizes, **options, **qwen, "attention_bias": c.qkv_bias}
    assert c.latent is not None
    return {
        **out,
        "attention_bias": c.qkv_bias,
        "head_dim": c.latent.rotary_size,
        "kv_lora_rank": c.latent.kv_rank,
        "q_lora_rank": c.latent.query_rank,
        "qk_nope_head_dim": c.latent.key_size,
        "qk_rope_head_dim": c.latent.rotary_size,
        "v_head_dim": c.latent.value_size,
        "n_routed_experts": e.num_experts,
        "moe_intermediate_size": e.intermediate_size,
        "n_shared_experts": e.shared_size // e.intermediate_size,
        "n_group": e.num_groups,
        "topk_group": e.top_groups,
        "norm_topk_prob": e.normalize,
        "routed_scaling_factor": e.scale,
        "first_k_dense_replace": len(e.dense_layers),
        "rope_interleave": c.rope_interleaved,
    }


def _gpt2(c: DecoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": c.vocab_size,
        "n_embd": c.hidden_size,
        "n_layer": c.num_layers,
        "n_head": c.num_heads,
        "n_inner": c.intermediate_size,
        "n_positions": c.learned_positions,
        "activation_function": c.activation,
        "layer_norm_epsilon": c.norm_eps,
        "tie_word_embeddings": c.tied_embeddings,
    }


def _whole(x: float) -> float:
    """A number that was raised to -1/2 and back, as an int if it was one."""
    return round(x) if abs(x - round(x)) < 1e-6 * x else x
