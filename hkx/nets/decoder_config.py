"""The sizes and options of a decoder-only language model."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from hkx.arguments import checked_flag, checked_integer, checked_number
from hkx.errors import NotABoolError
from hkx.nets.pretrained_configs import read_config
from hkx.nn.rotary import checked_scaling


class _Checked:
    """A dataclass whose fields are checked by their types: integers, numbers, flags, and one of several texts."""

    def __post_init__(self) -> None:
        taker = type(self).__name__
        for name, declared in typing.get_type_hints(type(self)).items():
            value, union = getattr(self, name), typing.get_origin(declared) in (typing.Union, types.UnionType)
            kinds = typing.get_args(declared) if union else (declared,)
            if value is None and type(None) in kinds:
                continue
            if kinds[0] is int:
                object.__setattr__(self, name, checked_integer(value, name, 0, taker))
            elif kinds[0] is float:
                checked_number(value, name, taker)
            elif kinds[0] is bool:
                if isinstance(value, str):
                    raise NotABoolError(taker, name, value)
                object.__setattr__(self, name, checked_flag(value, name, taker))
            elif typing.get_origin(kinds[0]) is Literal and value not in typing.get_args(kinds[0]):
                known = " or ".join(map(repr, typing.get_args(kinds[0])))
                raise ValueError(f"`{name}` of `{taker}` must be {known}, got {value!r}.")


@dataclasses.dataclass(frozen=True)
class ExpertsConfig(_Checked):
    """The experts of a `hkx.nets.DecoderConfig`; see `hkx.MixtureOfExperts` for most of the fields.

    Attributes:
      num_experts: the number of experts of a layer.
      top_k: the number of experts that are chosen for each token.
      intermediate_size: the size of the hidden layer of each.
      router: `"softmax"` or `"sigmoid"`.
      normalize: whether the chosen scores are divided by their sum.
      scale: a factor of the chosen scores.
      correction: whether a parameter is added to the scores for the choice.
      num_groups: the number of groups of experts.
      top_groups: the number of groups from which experts are chosen.
      bias: whether router and experts have biases.
      clamp: gates and values are clamped to this, and combined as `gate sigmoid(1.702 gate) (up + 1)`; None for
        `activation(gate) up`.
      shared_size: the size of the hidden layer of an expert that each token goes through, too; 0 for none.
      dense_layers: the layers that have no experts, but one feed-forward layer of `intermediate_size`.

    Example:

      >>> import hkx
      >>> hkx.nets.ExpertsConfig(num_experts=8, top_k=2, intermediate_size=64).router
      'softmax'
    """

    num_experts: int
    top_k: int
    intermediate_size: int
    router: Literal["softmax", "sigmoid"] = "softmax"
    normalize: bool = True
    scale: float = 1.0
    correction: bool = False
    num_groups: int = 1
    top_groups: int = 1
    bias: bool = False
    clamp: float | None = None
    shared_size: int = 0
    dense_layers: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class LatentConfig(_Checked):
    """The latent attention of a `hkx.nets.DecoderConfig`; see `hkx.LatentAttention`.

    Attributes:
      kv_rank: the size of the latent from which keys and values are computed.
      query_rank: the size of the latent from which queries are computed; None for the layer's input.
      key_size: the size of the part of keys without position.
      rotary_size: the size of the rotated part of keys, which all heads share.
      value_size: the size of the values of a head.

    Example:

      >>> import hkx
      >>> hkx.nets.LatentConfig(kv_rank=16, query_rank=None, key_size=8, rotary_size=4, value_size=8).kv_rank
      16
    """

    kv_rank: int
    query_rank: int | None
    key_size: int
    rotary_size: int
    value_size: int


@dataclasses.dataclass(frozen=True)
class DecoderConfig(_Checked):
    """The sizes and options of a `hkx.nets.Decoder`; by default those of a Llama.

    Attributes:
      vocab_size: the number of tokens.
      hidden_size: the size of a token's vector.
      num_layers: the number of layers.
      num_heads: the number of query heads.
      num_kv_heads: the number of heads of keys and values; `num_heads` by default.
      head_dim: the size of a head; `hidden_size / num_heads` by default.
      intermediate_size: the size of the hidden layer of the feed-forward layers; `4 hidden_size` by default.
      family: the `model_type` of Hugging Face's models that have this form; it says how tensors are named in files.
      norm: `"rms"`, `"rms_plus_one"` (the scale is 1 plus the parameter) or `"layer"`.
      norm_placement: whether a layer normalises the inputs (`"before"`), outputs (`"after"`) or `"both"` of its parts.
      norm_eps: the constant in the norms.
      activation: the name of the feed-forward layers' activation, such as `"silu"`.
      gated: whether feed-forward layers are gated; see `hkx.GatedMLP`.
      rope_theta: the base of rotary embeddings; None for none.
      rope_size: how many features of each head are rotated; all by default.
      rope_scaling: as for `hkx.RotaryEmbedding`; a mapping, or its items.
      rope_interleaved: whether neighbouring features are pairs.
      local_rope_theta: the base in layers with a window, which then have no scaling; None for that of the others.
      learned_positions: the number of learned position embeddings; 0 for none.
      max_positions: the length of the longest text for which the model is intended; it does not affect results.
      windows: for each layer the size of its window or None; empty for none at all.
      query_scale: the factor of attention's logits; `head_dim**-0.5` by default.
      query_key_norm: the norm of queries and keys: of each `"head"`, over `"all"` heads, or None.
      qkv_bias: whether queries, keys and values have biases.
      output_bias: whether attention's output has a bias.
      mlp_bias: whether feed-forward layers have biases.
      sinks: whether each head has an attention sink.
      attention_cap: the soft cap of attention's logits, or None.
      logit_cap: the soft cap of the logits of tokens, or None.
      embedding_scale: the factor of embeddings.
      tied_embeddings: whether the logits are products with the embeddings, instead of parameters of their own.
      experts: the experts, or None.
      latent: the latent attention, or None.

    Raises:
      InvalidSizeError: if a size is not a whole number above 0.
      NotANumberError: if a field for a number holds something else.
      NotABoolError: if a field for a flag holds something else.
      ValueError: if sizes do not fit each other, or `rope_scaling` or a name such as `norm` is unknown.

    Example:

      >>> import hkx
      >>> config = hkx.nets.DecoderConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2)
      >>> config.head_dim, config.intermediate_size
      (16, 256)
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int = None  # type: ignore[assignment]
    head_dim: int = None  # type: ignore[assignment]
    intermediate_size: int = None  # type: ignore[assignment]
    family: str = "llama"
    norm: Literal["rms", "rms_plus_one", "layer"] = "rms"
    norm_placement: Literal["before", "after", "both"] = "before"
    norm_eps: float = 1e-5
    activation: str = "silu"
    gated: bool = True
    rope_theta: float | None = 10000.0
    rope_size: int = None  # type: ignore[assignment]
    rope_scaling: Any = ()  # pairs of a name and a value
    rope_interleaved: bool = False
    local_rope_theta: float | None = None
    learned_positions: int = 0
    max_positions: int = 2048
    windows: tuple[int | None, ...] = ()
    query_scale: float = None  # type: ignore[assignment]
    query_key_norm: Literal["head", "all"] | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    sinks: bool = False
    attention_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    tied_embeddings: bool = False
    experts: ExpertsConfig | None = None
    latent: LatentConfig | None = None

    def __post_init__(self) -> None:
        def default(name: str, value: Any) -> None:
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

        for name in ("vocab_size", "hidden_size", "num_layers", "num_heads"):
            object.__setattr__(self, name, checked_integer(getattr(self, name), name, 1))
        default("num_kv_heads", self.num_heads)
        default("head_dim", self.hidden_size // self.num_heads)
        default("intermediate_size", 4 * self.hidden_size)
        default("rope_size", self.head_dim)
        default("query_scale", self.head_dim**-0.5)
        for name in ("num_kv_heads", "head_dim", "intermediate_size"):
            object.__setattr__(self, name, checked_integer(getattr(self, name), name, 1))
        super().__post_init__()
        scaling = dict(self.rope_scaling or ())
        object.__setattr__(self, "rope_scaling", tuple(sorted(checked_scaling(scaling).items())) if scaling else ())
        windows = (w if w is None else checked_integer(w, "windows", 1, "DecoderConfig") for w in self.windows)
        object.__setattr__(self, "windows", tuple(windows) or (None,) * self.num_layers)
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"`num_kv_heads` {self.num_kv_heads} must divide `num_heads` {self.num_heads}.")
        if len(self.windows) != self.num_layers:
            raise ValueError(f"`windows` has {len(self.windows)} entries for {self.num_layers} layers.")
        if self.rope_theta is not None and (self.rope_size % 2 or self.rope_size > self.head_dim):
            raise ValueError(f"`rope_size` must be even and at most `head_dim` {self.head_dim}, got {self.rope_size}.")

    @classmethod
    def from_pretrained(cls, folder_or_mapping: str | os.PathLike[str] | Mapping[str, Any]) -> DecoderConfig:
        """The configuration of a pretrained model.

        It supports models of the types llama (also SmolLM), mistral, qwen2, qwen3, gemma2, gemma3_text, phi3, olmo2,
        gpt2, mixtral, qwen3_moe, gpt_oss and deepseek_v3, in the spellings of transformers 4 and 5.

        Args:
          folder_or_mapping: a folder with a `config.json`, this file, or its content.

        Returns:
          A DecoderConfig.

        Raises:
          PretrainedConfigError: if the model is of another type, an entry is missing, or one is unknown or has a value
            that is not supported, and may change what the model computes.
          OSError: if the file cannot be read.

        Example:

          >>> import hkx
          >>> sizes = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
          >>> mapping = {"model_type": "llama", "intermediate_size": 96, **sizes}
          >>> hkx.nets.DecoderConfig.from_pretrained(mapping).head_dim
          16
        """
        fields = read_config(folder_or_mapping)
        for name, kind in (("experts", ExpertsConfig), ("latent", LatentConfig)):
            if fields.get(name) is not None:
                fields[name] = kind(**fields[name])
        return cls(**fields)

    def is_dense(self, layer: int) -> bool:
        """True if a layer has one feed-forward layer, and not several experts."""
        return self.experts is None or layer in self.experts.dense_layers
