"""The entries of Hugging Face's `config.json`: reading them, and refusing what is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from hkx.errors import PretrainedConfigError

# Entries that say nothing about what the model computes from tokens, or only how it is trained or sampled from.
_IRRELEVANT = """
architectures model_type torch_dtype dtype transformers_version transformers.js_config _name_or_path name_or_path
auto_map use_cache cache_implementation _attn_implementation attn_implementation _attn_implementation_autoset
output_attentions output_hidden_states return_dict use_return_dict torchscript tf_legacy_loss use_bfloat16
id2label label2id num_labels problem_type finetuning_task task_specific_params tokenizer_class prefix
bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
begin_suppress_tokens suppress_tokens bad_words_ids max_length min_length do_sample early_stopping num_beams
num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty encoder_no_repeat_ngram_size
length_penalty no_repeat_ngram_size num_return_sequences output_scores return_dict_in_generate remove_invalid_values
exponential_decay_length_penalty initializer_range attention_dropout attn_pdrop embd_pdrop resid_pdrop hidden_dropout
summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
chunk_size_feed_forward pretraining_tp is_llama_config n_ctx gradient_checkpointing reorder_and_upcast_attn
router_aux_loss_coef router_jitter_noise output_router_logits aux_loss_alpha seq_aux ep_size
num_nextn_predict_layers initial_context_length experts_per_token qk_head_dim unsloth_version unsloth_fixed is_decoder
"""
IRRELEVANT = frozenset(_IRRELEVANT.split())
# Entries that must have this value, which is what all supported models compute.
FIXED: dict[str, Any] = {
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "tie_encoder_decoder": False,
    "pruned_heads": {},
    "use_bidirectional_attention": False,
    "quantization_config": None,
    "rope_interleaved": False,
    "use_mrope": False,
    "moe_layer_freq": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "swiglu_alpha": 1.702,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}


class Entries:
    """The entries of a configuration, with a record of those that have been read."""

    def __init__(self, mapping: Mapping[str, Any]):
        self.given = {name: value for name, value in mapping.items() if value is not None}
        self.nulls = {name for name, value in mapping.items() if value is None}
        self.read: set[str] = set()

    def __call__(self, *names: str, default: Any = ...) -> Any:
        """The value of the first of these names that is there."""
        self.read.update(names)
        for name in names:
            if name in self.given:
                return self.given[name]
        if default is ...:
            near = difflib.get_close_matches(names[0], self.left(), 1)
            hint = f" Did you mean it by {near[0]!r}?" if near else ""
            raise PretrainedConfigError(f"The configuration lacks {names[0]!r}.{hint}")
        return default

    def or_null(self, name: str, default: Any) -> Any:
        """The value of an entry for which null is not the same as its absence."""
        return self(name, default=None if name in self.nulls else default)

    def left(self) -> list[str]:
        return sorted(set(self.given) - self.read - IRRELEVANT)

    def number(self, name: str, default: Any = ..., least: int = 1) -> int:
        value = self(name, default=default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise PretrainedConfigError(f"{name!r} must be an integer, at least {least}, got {value!r}.")
        return value

    def check_all_read(self) -> None:
        for name, expected in FIXED.items():
            value = self(name, default=expected)
            if value != expected and (value or expected):
                raise PretrainedConfigError(f"{name!r} is {value!r}, and only {expected!r} is supported.")
        if left := self.left():
            listed = "".join(f"\n  {name!r}: {self.given[name]!r}" for name in left)
            raise PretrainedConfigError(
                f"The configuration has entries that are unknown, and may change what the model computes:{listed}\n"
                "If they do not, pass a mapping without them."
            )
