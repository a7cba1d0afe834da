"""The names of a decoder's tensors in Hugging Face's files, and how they hold the parameters of hkx."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hkx.init.transform import transform
from hkx.nets import Decoder, DecoderConfig

Shape = tuple[int, ...]


class Layout(NamedTuple):
    """How one tensor of a file holds one or more parameters."""

    paths: tuple[str, ...]  # of the parameters, below the layer or the decoder
    transposed: bool = False  # `[output, input]`, where hkx has `[input, output]`
    axis: int | None = None  # 0 or -1: the tensor holds several parameters one after another along it; None: in turn
    flat: bool = False  # one dimension in the file, where hkx has several
    expert: int | None = None  # the tensor holds this expert's part of the parameter

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The shape of the tensor that holds parameters of these shapes."""
        own = [shape if self.expert is None else shape[1:] for shape in shapes]
        own = [(*shape[:-2], shape[-1], shape[-2]) if self.transposed else shape for shape in own]
        if self.flat:
            return (math.prod(own[0]),)
        if len(own) == 1:
            return own[0]
        axis = -1 if self.axis is None else self.axis
        size = sum(shape[axis] for shape in own)
        return tuple(size if i == axis % len(own[0]) else n for i, n in enumerate(own[0]))

    def views(self, tensor: np.ndarray, shapes: Sequence[Shape]) -> Iterator[np.ndarray]:
        """The part of the tensor that is each parameter, in the parameter's shape; to read, or to write into."""
        start = 0
        for i, shape in enumerate(shapes):
            own = shape if self.expert is None else shape[1:]
            begin, start, part = start, start + own[-1], tensor
            if len(shapes) > 1 and self.axis is None:
                part = tensor[..., i :: len(shapes)]
            elif len(shapes) > 1:
                part = tensor[begin:start] if self.axis == 0 else tensor[..., begin:start]
            part = np.swapaxes(part, -1, -2) if self.transposed else part
            yield part.reshape(own) if self.flat else part


class Group(NamedTuple):
    """Layers whose parameters have the same names in hkx: one layer, or those of a stack."""

    prefix: str  # of the modules' names
    layers: tuple[int, ...]
    stacked: bool


def groups(config: DecoderConfig, stacked: bool) -> list[Group]:
    """The layers of a decoder, in the order in which it creates them."""
    out, numbers = [], dict.fromkeys((False, True), 0)
    for dense, run in itertools.groupby(range(config.num_layers), config.is_dense):
        layers = tuple(run)
        kind = "dense_layer" if dense and config.experts is not None else "layer"
        for own in (layers,) if stacked else ((i,) for i in layers):
            number = f"_{numbers[dense]}" if numbers[dense] else ""
            prefix = f"decoder/{kind}s{number}/{kind}" if stacked else f"decoder/{kind}{number}"
            out.append(Group(prefix, own, stacked))
            numbers[dense] += 1
    return out


def decoder_shapes(config: DecoderConfig, stacked: bool) -> Any:
    """The shapes of a decoder's parameters, as `init` creates them.

    One layer of each kind is traced, that of a stack; the shapes of single layers are those of its slices.
    """
    model = transform(lambda tokens: Decoder(config)(tokens))
    shapes = dict(jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 1), jnp.int32)))
    names = {layer: one.prefix for one in groups(config, False) for layer in one.layers}
    for stack in [] if stacked else groups(config, True):
        for bundle in [x for x in shapes if x.startswith(f"{stack.prefix}/")]:
            each = {name: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for name, x in shapes.pop(bundle).items()}
            shapes |= {names[layer] + bundle.removeprefix(stack.prefix): each for layer in stack.layers}
    return shapes


def decoder_tensors(config: DecoderConfig) -> dict[str, Layout]:
    """The tensors outside of layers."""
    if config.family == "gpt2":
        names = {"wte.weight": "embed/embeddings", "wpe.weight": "positions"}
        names |= {"ln_f.weight": "norm/scale", "ln_f.bias": "norm/offset"}
        out = {f"transformer.{name}": Layout((path,)) for name, path in names.items()}
    else:
        out = {"model.embed_tokens.weight": Layout(("embed/embeddings",)), "model.norm.weight": Layout(("norm/scale",))}
    return out if config.tied_embeddings else out | {"lm_head.weight": Layout(("head",))}


def layer_tensors(config: DecoderConfig, layer: int) -> dict[str, Layout]:
    """The tensors of a layer."""
    if config.family == "gpt2":
        return {f"transformer.h.{layer}.{name}": layout for name, layout in _gpt2().items()}
    out = _norms(config) | (_attention(config) if config.latent is None else _latent(config))
    if config.is_dense(layer):
        out |= _mlp("mlp", "mlp", config.mlp_bias) if config.family != "phi3" else _phi3_mlp()
    else:
        out |= _experts(config)
    return {f"model.layers.{layer}.{name}": layout for name, layout in out.items()}


def _linear(name: str, path: str, bias: bool = False) -> dict[str, Layout]:
    out = {f"{name}.weight": Layout((f"{path}/w",), transposed=True)}
    return out | {f"{name}.bias": Layout((f"{path}/b",))} if bias else out


def _norms(config: DecoderConfig) -> dict[str, Layout]:
    names = {
        "before": {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"},
        "after": {"post_attention_layernorm": "attention_post_norm", "post_feedforward_layernorm": "mlp_post_norm"},
        "both": {
            "input_layernorm": "attention_norm",
            "post_attention_layernorm": "attention_post_norm",
            "pre_feedforward_layernorm": "mlp_norm",
            "post_feedforward_layernorm": "mlp_post_norm",
        },
    }[config.norm_placement]
    return {f"{name}.weight": Layout((f"{path}/scale",)) for name, path in names.items()}


def _attention(config: DecoderConfig) -> dict[str, Layout]:
    projections = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
    if config.family == "phi3":
        paths = tuple(f"attention/{path}/w" for path in projections.values())
        out = {"self_attn.qkv_proj.weight": Layout(paths, transposed=True, axis=0)}
    else:
        pairs = (_linear(f"self_attn.{n}", f"attention/{p}", config.qkv_bias) for n, p in projections.items())
        out = {name: layout for pair in pairs for name, layout in pair.items()}
    out |= _linear("self_attn.o_proj", "attention/output", config.output_bias)
    if config.query_key_norm is not None:
        for name, path in (("q_norm", "query_norm"), ("k_norm", "key_norm")):
            flat = config.query_key_norm == "all"
            out[f"self_attn.{name}.weight"] = Layout((f"attention/{path}/scale",), flat=flat)
    return out | {"self_attn.sinks": Layout(("attention/sinks",))} if config.sinks else out


def _latent(config: DecoderConfig) -> dict[str, Layout]:
    assert config.latent is not None
    if config.latent.query_rank is None:
        out = _linear("self_attn.q_proj", "attention/query")
    else:
        out = _linear("self_attn.q_a_proj", "attention/query_down", config.qkv_bias)
        out |= {"self_attn.q_a_layernorm.weight": Layout(("attention/query_norm/scale",))}
        out |= _linear("self_attn.q_b_proj", "attention/query_up")
    out |= _linear("self_attn.kv_a_proj_with_mqa", "attention/kv_down", config.qkv_bias)
    out |= {"self_attn.kv_a_layernorm.weight": Layout(("attention/kv_norm/scale",))}
    out |= {"self_attn.kv_b_proj.weight": Layout(("attention/kv_up",), transposed=True)}
    return out | _linear("self_attn.o_proj", "attention/output", config.output_bias)


def _mlp(name: str, path: str, bias: bool = False) -> dict[str, Layout]:
    out: dict[str, Layout] = {}
    for part in ("gate", "up", "down"):
        out |= _linear(f"{name}.{part}_proj", f"{path}/{part}", bias)
    return out


def _phi3_mlp() -> dict[str, Layout]:
    joined = Layout(("mlp/gate/w", "mlp/up/w"), transposed=True, axis=0)
    return {"mlp.gate_up_proj.weight": joined} | _linear("mlp.down_proj", "mlp/down")


def _experts(config: DecoderConfig) -> dict[str, Layout]:
    e = config.experts
    assert e is not None
    if config.family == "gpt_oss":
        return {
            **_linear("mlp.router", "experts/router", True),
            "mlp.experts.gate_up_proj": Layout(("experts/gate", "experts/up")),
            "mlp.experts.gate_up_proj_bias": Layout(("experts/gate_bias", "experts/up_bias")),
            "mlp.experts.down_proj": Layout(("experts/down",)),
            "mlp.experts.down_proj_bias": Layout(("experts/down_bias",)),
        }
    mixtral = config.family == "mixtral"
    block = "block_sparse_moe" if mixtral else "mlp"
    parts = {"gate": "w1", "up": "w3", "down": "w2"} if mixtral else {p: f"{p}_proj" for p in ("gate", "up", "down")}
    out = _linear(f"{block}.gate", "experts/router")
    for i, (path, name) in itertools.product(range(e.num_experts), parts.items()):
        out[f"{block}.experts.{i}.{name}.weight"] = Layout((f"experts/{path}",), transposed=True, expert=i)
    if e.correction:
        out[f"{block}.gate.e_score_correction_bias"] = Layout(("experts/correction",))
    return out | _mlp(f"{block}.shared_experts", "shared_expert") if e.shared_size else out


def _gpt2() -> dict[str, Layout]:
    paths = tuple(f"attention/{path}" for path in ("query", "key", "value"))
    out: dict[str, Any] = {
        "attn.c_attn.weight": Layout(tuple(f"{path}/w" for path in paths), axis=-1),
        "attn.c_attn.bias": Layout(tuple(f"{path}/b" for path in paths), axis=-1),
    }
    for name, path in (("attn.c_proj", "attention/output"), ("mlp.c_fc", "mlp/up"), ("mlp.c_proj", "mlp/down")):
        out |= {f"{name}.weight": Layout((f"{path}/w",)), f"{name}.bias": Layout((f"{path}/b",))}
    for name, path in (("ln_1", "attention_norm"), ("ln_2", "mlp_norm")):
        out |= {f"{name}.weight": Layout((f"{path}/scale",)), f"{name}.bias": Layout((f"{path}/offset",))}
    return out
