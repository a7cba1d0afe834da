"""Writes the folder of a model, as transformers saves it, into a GGUF file as llama.cpp's converter does.

Names of tensors and of metadata come from the package `gguf`.
"""

import json
import pathlib

import gguf
import numpy as np
import safetensors.numpy

ARCHITECTURES = {
    "llama": "LLAMA", "mistral": "LLAMA", "mixtral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3",
    "qwen3_moe": "QWEN3MOE",
    "gemma2": "GEMMA2", "gemma3_text": "GEMMA3", "phi3": "PHI3", "olmo2": "OLMO2", "gpt2": "GPT2",
}  # fmt: skip


def write(folder, file, quantised="F32"):
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    arch = gguf.MODEL_ARCH[ARCHITECTURES[config["model_type"]]]
    layers = config.get("num_hidden_layers") or config["n_layer"]
    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[arch])
    add_metadata(writer, config, layers)
    names = gguf.get_tensor_name_map(arch, layers)
    kind = gguf.GGMLQuantizationType[quantised]
    size = gguf.GGML_QUANT_SIZES[kind][0]
    for name, x in with_experts_stacked(tensors).items():
        x = np.ascontiguousarray(converted(config, name, x))
        used = kind if x.ndim > 1 and x.shape[-1] % size == 0 else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(x, used)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data, raw_dtype=used)
    if (config.get("rope_parameters") or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config["rope_parameters"], config["head_dim"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def with_experts_stacked(tensors):
    out, experts = {}, {}
    for name, x in tensors.items():
        before, _, after = name.partition(".experts.")
        if after:
            index, _, rest = after.partition(".")
            experts.setdefault(f"{before}.experts.{rest}", {})[int(index)] = x
        else:
            out[name] = x
    return out | {name: np.stack([x[i] for i in range(len(x))]) for name, x in experts.items()}


def converted(config, name, x):
    kind = config["model_type"]
    if kind in ("llama", "mistral", "mixtral") and (".q_proj." in name or ".k_proj." in name):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        halves = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:])
        return np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(x.shape)
    if kind.startswith("gemma") and name.endswith("norm.weight"):
        return x + 1
    if kind == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return x.T
    return x


def llama3_divisors(rope, size):
    """By the loop of the published code."""
    out = []
    for i in range(0, size, 2):
        wavelength = 2 * np.pi * rope["rope_theta"] ** (i / size)
        old, factor = rope["original_max_position_embeddings"], rope["factor"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        if wavelength < old / high:
            out.append(1)
        elif wavelength > old / low:
            out.append(factor)
        else:
            smooth = (old / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.float32(out)


def add_metadata(writer, config, layers):
    get = config.get
    writer.add_block_count(layers)
    if config["model_type"] == "gpt2":
        writer.add_context_length(get("n_positions"))
        writer.add_embedding_length(get("n_embd"))
        writer.add_feed_forward_length(4 * get("n_embd"))
        writer.add_head_count(get("n_head"))
        writer.add_layer_norm_eps(get("layer_norm_epsilon"))
        return
    writer.add_context_length(get("max_position_embeddings"))
    writer.add_embedding_length(get("hidden_size"))
    writer.add_feed_forward_length(get("intermediate_size"))
    writer.add_head_count(get("num_attention_heads"))
    writer.add_head_count_kv(get("num_key_value_heads"))
    writer.add_layer_norm_rms_eps(get("rms_norm_eps"))
    size = get("head_dim") or get("hidden_size") // get("num_attention_heads")
    writer.add_key_length(size)
    rope = get("rope_parameters")
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(size * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if get("sliding_window"):
        writer.add_sliding_window(get("sliding_window"))
    if get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(get("attn_logit_softcapping"))
        writer.add_final_logit_softcapping(get("final_logit_softcapping"))
    if get("num_local_experts"):
        writer.add_expert_count(get("num_local_experts"))
        writer.add_expert_used_count(get("num_experts_per_tok"))
    if get("moe_intermediate_size"):
        writer.add_expert_feed_forward_length(get("moe_intermediate_size"))
