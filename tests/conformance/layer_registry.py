"""Every module, once: how to call it and on what. One line here adds a module to all tests of this folder.

`call` takes the library (hkx, or dm-haiku where it has the module too) and the inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Input:
    """One argument: floats that are normally distributed, or integers (or booleans) below `high`."""

    shape: tuple[int, ...]
    high: int = 0
    dtype: Any = None

    def array(self, seed: int, dtype: Any) -> np.ndarray:
        """The argument, floats in `dtype`."""
        random = np.random.RandomState(seed)
        if self.high:
            return random.randint(0, self.high, self.shape).astype(self.dtype or np.int32)
        return random.standard_normal(self.shape).astype(np.float32).astype(dtype)


@dataclasses.dataclass(frozen=True)
class Case:
    """A module with its arguments.

    `ours` marks what Haiku lacks. `rng` marks what draws keys when it is applied. `loose` is a factor on the tolerance
    in half precision, for what subtracts nearly equal numbers. `main` marks those on which the costlier tests run by
    default; on the others they are slow tests. `no_vmap` marks what JAX does not map.
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple[Input, ...]
    ours: bool = False
    rng: bool = False
    loose: float = 1.0
    main: bool = False
    no_vmap: bool = False

    def arrays(self, dtype: Any = np.float32, seed: int = 0) -> list[np.ndarray]:
        """The arguments."""
        return [x.array(seed + i, dtype) for i, x in enumerate(self.inputs)]


def F(*shape: int) -> Input:
    """Floats."""
    return Input(shape)


def I(high: int, *shape: int) -> Input:  # noqa: E743
    """Integers below `high`."""
    return Input(shape, high)


def B(*shape: int) -> Input:
    """Booleans."""
    return Input(shape, 2, np.bool_)


def step(make: Callable[[Any], Any], batched: bool = True) -> Callable[..., Any]:
    """One step of a core."""

    def call(lib: Any, x: Any) -> Any:
        core = make(lib)
        return core(x, core.initial_state(jax.tree.leaves(x)[0].shape[0] if batched else None))

    return call


def unrolled(function: str, make: Callable[[Any], Any], time_major: bool = True, **options: Any) -> Callable[..., Any]:
    """A core applied to a sequence."""

    def call(lib: Any, xs: Any) -> Any:
        core = make(lib)
        state = core.initial_state(xs.shape[1 if time_major else 0])
        return getattr(lib, function)(core, xs, state, time_major=time_major, **options)

    return call


def norm(*args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Batch normalisation, in training."""
    return lambda lib, x: lib.BatchNorm(*args, **kwargs)(x, is_training=True)


def deep(lib: Any) -> Any:
    """A stack of cores and functions."""
    return lib.DeepRNN([lib.LSTM(3), jax.nn.relu, lib.GRU(4), lib.Linear(2)])


def skipping(lib: Any) -> Any:
    """A stack of cores with skip connections."""
    return lib.deep_rnn_with_skip_connections([lib.VanillaRNN(3), lib.GRU(2)])


def attention(mask: bool, **options: Any) -> Callable[..., Any]:
    """Attention, with a causal mask or none."""

    def call(lib: Any, q: Any, kv: Any) -> Any:
        allowed = np.tril(np.ones([1, 1, q.shape[-2], kv.shape[-2]])) if mask else None
        module = lib.MultiHeadAttention(2, 3, w_init=lib.initializers.VarianceScaling(), **options)
        return module(q, kv, kv, mask=allowed)

    return call


def tree_of(w: Any, b: Any) -> dict[str, dict[str, Any]]:
    """Parameters as `init` returns them."""
    return {"mlp/~/linear_0": {"w": w, "b": b}}


def twice(lib: Any, x: Any) -> Any:
    """A deferred module beside another of the same class."""
    later = lib.Deferred(lambda: lib.Linear(3))
    return lib.Linear(2)(later(x))


def grouped(lib: Any, x: Any) -> Any:
    """Causal attention with a rotary embedding, and decoding with a cache."""
    layer = lib.GroupedQueryAttention(4, 2, 4, rotary=lib.RotaryEmbedding())
    return layer(x, is_causal=True, window=3), layer(x, cache=layer.initial_cache(x.shape[0], 6, x.dtype))


def causal(lib: Any, x: Any) -> Any:
    """Causal attention with a rotary embedding, and decoding with a cache."""
    layer = lib.CausalAttention(4, 2, 4, rotary=lib.RotaryEmbedding(), soft_cap=2.0, sinks=True)
    return layer(x, window=3), layer(x, cache=layer.initial_cache(x.shape[0], 6, x.dtype))


def decoder(lib: Any, tokens: Any) -> Any:
    """A small language model."""
    config = lib.nets.DecoderConfig(vocab_size=9, hidden_size=8, num_layers=2, num_heads=2)
    return lib.nets.Decoder(config)(tokens)


def lengths(lib: Any, xs: Any, lengths: Any) -> Any:
    """A core applied to padded sequences."""
    core = lib.GRU(3)
    return lib.dynamic_unroll(core, xs, core.initial_state(xs.shape[1]), sequence_lengths=lengths)


X, IMAGE, VIDEO, XS = F(2, 4), F(2, 6, 5, 4), F(1, 3, 4, 3, 2), F(3, 2, 4)

CASES = [
    Case("linear", lambda lib, x: lib.Linear(3)(x), (X,), main=True),
    Case("linear_no_bias", lambda lib, x: lib.Linear(3, with_bias=False)(x, precision="highest"), (F(2, 3, 4),)),
    Case(
        "linear_inits",
        lambda lib, x: lib.Linear(3, 1, lib.initializers.RandomUniform(-1, 2), lib.initializers.TruncatedNormal(0.3))(
            x
        ),
        (X,),
    ),
    Case("bias", lambda lib, x: lib.Bias(b_init=lib.initializers.RandomNormal())(x), (IMAGE,)),
    Case("bias_dims", lambda lib, x: lib.Bias(bias_dims=[1, 3])(x, multiplier=2.0), (IMAGE,)),
    Case("sequential", lambda lib, x: lib.Sequential([lib.Linear(3), jax.nn.relu, lib.Linear(2)])(x), (X,)),
    Case("reshape", lambda lib, x: lib.Reshape([2, -1], preserve_dims=2)(x), (IMAGE,)),
    Case("flatten", lambda lib, x: lib.Flatten()(x), (IMAGE,)),
    Case("mlp", lambda lib, x: lib.nets.MLP([3, 2], activate_final=True)(x), (X,)),
    Case("mlp_dropout", lambda lib, x: lib.nets.MLP([3, 2])(x, 0.5, lib.next_rng_key()), (X,), rng=True, main=True),
    Case("dropout_function", lambda lib, x: lib.dropout(lib.next_rng_key(), 0.5, x), (X,), rng=True),
    Case("one_hot", lambda lib, i: lib.one_hot(i, 5), (I(5, 2, 3),)),
    Case("multinomial", lambda lib, x: lib.multinomial(lib.next_rng_key(), x, 5), (X,), rng=True),
    Case("embed", lambda lib, i: lib.Embed(5, 3)(i), (I(5, 2, 3),), main=True),
    Case("embed_one_hot", lambda lib, i: lib.Embed(5, 3, lookup_style="ONE_HOT")(i), (I(5, 2, 3),)),
    Case("batch_apply", lambda lib, x: lib.BatchApply(lib.Linear(3))(x), (XS,)),
    Case("expand_apply", lambda lib, x: lib.expand_apply(lib.Linear(3))(x), (X,)),
    Case("deferred", twice, (X,), main=True),
    Case("conv1d", lambda lib, x: lib.Conv1D(3, 3)(x), (F(2, 6, 4),)),
    Case("conv1d_causal", lambda lib, x: lib.Conv1D(3, 3, rate=2, padding=lib.pad.causal)(x), (F(2, 6, 4),), main=True),
    Case("conv1d_first", lambda lib, x: lib.Conv1D(3, 3, data_format="NCW")(x), (F(2, 6, 4),)),
    Case("conv2d", lambda lib, x: lib.Conv2D(3, 3, stride=2)(x), (IMAGE,), main=True),
    Case("conv2d_unbatched", lambda lib, x: lib.Conv2D(3, 3, padding="VALID")(x), (F(6, 5, 4),)),
    Case("conv2d_groups", lambda lib, x: lib.Conv2D(6, 3, feature_group_count=2)(x), (IMAGE,)),
    Case("conv2d_first", lambda lib, x: lib.Conv2D(3, 3, data_format="NCHW")(x), (IMAGE,)),
    Case("conv2d_pairs", lambda lib, x: lib.Conv2D(3, 3, padding=[(1, 2), (0, 3)])(x), (IMAGE,)),
    Case("conv2d_mask", lambda lib, x: lib.Conv2D(3, 2, mask=np.tril(np.ones([2, 2, 4, 3])))(x), (IMAGE,)),
    Case("conv2d_padfns", lambda lib, x: lib.Conv2D(3, 3, padding=[lib.pad.full, lib.pad.same])(x), (IMAGE,)),
    Case(
        "conv2d_first_groups_rate",
        lambda lib, x: lib.Conv2D(4, (3, 2), rate=(1, 2), padding=(1, 0), data_format="NCHW", feature_group_count=2)(x),
        (IMAGE,),
    ),
    Case("conv3d", lambda lib, x: lib.Conv3D(3, 2)(x), (VIDEO,)),
    Case("conv_nd", lambda lib, x: lib.ConvND(2, 3, (3, 2), with_bias=False)(x), (IMAGE,)),
    Case("conv1d_transpose", lambda lib, x: lib.Conv1DTranspose(3, 3, stride=2)(x), (F(2, 6, 4),)),
    Case("conv2d_transpose", lambda lib, x: lib.Conv2DTranspose(3, 3, stride=2)(x), (IMAGE,)),
    Case(
        "conv2d_transpose_shape",
        lambda lib, x: lib.Conv2DTranspose(3, 3, 2, output_shape=(11, 9))(x),
        (IMAGE,),
        main=True,
    ),
    Case("conv2d_transpose_valid", lambda lib, x: lib.Conv2DTranspose(3, 2, 3, padding="VALID")(x), (IMAGE,)),
    Case("conv3d_transpose", lambda lib, x: lib.Conv3DTranspose(3, 2, 2)(x), (VIDEO,)),
    Case("conv_nd_transpose", lambda lib, x: lib.ConvNDTranspose(1, 3, 3, data_format="NCW")(x), (F(2, 6, 4),)),
    Case(
        "conv1d_transpose_unbatched",
        lambda lib, x: lib.Conv1DTranspose(3, 3, 2, padding=[(2, 1)], mask=np.tril(np.ones([3, 3, 4])))(x),
        (F(6, 4),),
    ),
    Case("depthwise_conv1d", lambda lib, x: lib.DepthwiseConv1D(2, 3)(x), (F(2, 6, 4),)),
    Case("depthwise_conv2d", lambda lib, x: lib.DepthwiseConv2D(2, 3, rate=2)(x), (IMAGE,)),
    Case("depthwise_conv2d_first", lambda lib, x: lib.DepthwiseConv2D(1, 3, data_format="NCHW")(x), (IMAGE,)),
    Case("depthwise_conv3d", lambda lib, x: lib.DepthwiseConv3D(2, 2)(x), (VIDEO,)),
    Case(
        "separable_depthwise_conv2d",
        lambda lib, x: lib.SeparableDepthwiseConv2D(2, (3, 2), stride=2)(x),
        (IMAGE,),
        main=True,
    ),
    Case("max_pool", lambda lib, x: lib.MaxPool(2, 2, "SAME")(x), (IMAGE,)),
    Case("max_pool_valid", lambda lib, x: lib.max_pool(x, (3, 2, 1), 2, "VALID"), (IMAGE,)),
    Case("max_pool_no_channels", lambda lib, x: lib.max_pool(x, 3, 2, "SAME", channel_axis=None), (IMAGE,)),
    Case("avg_pool", lambda lib, x: lib.AvgPool(3, 2, "SAME")(x), (IMAGE,), main=True),
    Case("avg_pool_valid", lambda lib, x: lib.avg_pool(x, 2, 1, "VALID", channel_axis=1), (IMAGE,)),
    Case("batch_norm", norm(True, True, 0.9), (IMAGE,), loose=4, main=True),
    Case("batch_norm_first", norm(True, False, 0.9, data_format="NCHW", eps=1e-3), (IMAGE,), loose=4),
    Case("batch_norm_axis", norm(False, True, 0.9, axis=[0, 1]), (IMAGE,), loose=4),
    Case("batch_norm_local", lambda lib, x: lib.BatchNorm(True, True, 0.9)(x, False, True), (IMAGE,), loose=4),
    Case("layer_norm", lambda lib, x: lib.LayerNorm(-1, True, True)(x), (IMAGE,), loose=4, main=True),
    Case(
        "layer_norm_axes", lambda lib, x: lib.LayerNorm(slice(1, None), True, True, param_axis=1)(x), (IMAGE,), loose=4
    ),
    Case("layer_norm_fast", lambda lib, x: lib.LayerNorm((1, 2), 1, 0, use_fast_variance=True)(x), (IMAGE,), loose=4),
    Case("instance_norm", lambda lib, x: lib.InstanceNorm(True, True)(x), (IMAGE,), loose=4),
    Case("instance_norm_first", lambda lib, x: lib.InstanceNorm(True, True, data_format="NCHW")(x), (IMAGE,), loose=4),
    Case("group_norm", lambda lib, x: lib.GroupNorm(2)(x), (IMAGE,), loose=4),
    Case("group_norm_first", lambda lib, x: lib.GroupNorm(3, data_format="NCHW")(x), (IMAGE,), loose=4, main=True),
    Case("group_norm_axis", lambda lib, x: lib.GroupNorm(2, axis=(1, 3), create_scale=False)(x), (IMAGE,), loose=4),
    Case("rms_norm", lambda lib, x: lib.RMSNorm(-1)(x), (IMAGE,), loose=4),
    Case("rms_norm_axes", lambda lib, x: lib.RMSNorm((1, 2), param_axis=(1, 3), eps=1e-3)(x), (IMAGE,), loose=4),
    Case("spectral_norm", lambda lib, x: lib.SpectralNorm(n_steps=2)(x), (F(3, 4),), loose=2, main=True),
    Case(
        "sn_params_tree",
        lambda lib, w, b: lib.SNParamsTree(ignore_regex=".*b")(tree_of(w, b)),
        (F(3, 4), F(4)),
        loose=2,
    ),
    Case("ema", lambda lib, x: lib.ExponentialMovingAverage(0.9)(x), (X,)),
    Case("ema_warmup", lambda lib, x: lib.ExponentialMovingAverage(0.9, False, 2)(x), (X,)),
    Case("ema_params_tree", lambda lib, w, b: lib.EMAParamsTree(0.9)(tree_of(w, b)), (F(3, 4), F(4)), main=True),
    Case("attention", attention(False), (F(2, 4, 6), F(2, 5, 6))),
    Case(
        "attention_mask",
        attention(True, with_bias=False, value_size=2, model_size=5),
        (F(2, 4, 6), F(2, 4, 6)),
        main=True,
    ),
    Case("vanilla_rnn", step(lambda lib: lib.VanillaRNN(3)), (X,)),
    Case("vanilla_rnn_bias", step(lambda lib: lib.VanillaRNN(3, double_bias=False), False), (F(4),)),
    Case("lstm", step(lambda lib: lib.LSTM(3)), (X,), main=True),
    Case("gru", step(lambda lib: lib.GRU(3)), (X,)),
    Case("identity_core", step(lambda lib: lib.IdentityCore()), (X,)),
    Case("conv1d_lstm", step(lambda lib: lib.Conv1DLSTM((6,), 2, 3)), (F(2, 6, 4),)),
    Case("conv2d_lstm", step(lambda lib: lib.Conv2DLSTM((6, 5), 2, 3)), (IMAGE,)),
    Case("conv3d_lstm", step(lambda lib: lib.Conv3DLSTM((3, 4, 3), 2, 2)), (VIDEO,)),
    Case(
        "reset_core", lambda lib, x, r: step(lambda lib: lib.ResetCore(lib.LSTM(3)))(lib, (x, r)), (X, B(2)), main=True
    ),
    Case("deep_rnn", step(deep), (X,)),
    Case("deep_rnn_skipping", step(skipping), (X,)),
    Case("static_unroll", unrolled("static_unroll", lambda lib: lib.LSTM(3)), (XS,)),
    Case("dynamic_unroll", unrolled("dynamic_unroll", lambda lib: lib.LSTM(3)), (XS,), main=True),
    Case("dynamic_unroll_batch", unrolled("dynamic_unroll", deep, time_major=False, reverse=True), (F(2, 3, 4),)),
    Case("dynamic_unroll_states", unrolled("dynamic_unroll", skipping, return_all_states=True, unroll=2), (XS,)),
    Case("dropout", lambda lib, x: lib.Dropout(0.5)(x, True), (X,), ours=True, rng=True),
    Case("einsum", lambda lib, x: lib.Einsum([4, 2, 3], "...d,dhk->...hk")(x), (X,), ours=True, main=True),
    Case("prelu", lambda lib, x: lib.PReLU(param_axis=-1)(x), (IMAGE,), ours=True),
    Case("lora_linear", lambda lib, x: lib.LoRALinear(3, rank=2)(x), (X,), ours=True),
    Case("weight_norm", lambda lib, x: lib.WeightNorm(lib.Conv2D(3, 2))(x), (IMAGE,), ours=True, loose=2, main=True),
    Case("adaptive_avg_pool", lambda lib, x: lib.AdaptiveAvgPool(4)(x), (IMAGE,), ours=True),
    Case("rotary_embedding", lambda lib, x: lib.RotaryEmbedding()(x), (F(2, 5, 2, 4),), ours=True),
    Case("grouped_query_attention", grouped, (F(2, 5, 4),), ours=True),
    Case("causal_attention", causal, (F(2, 5, 4),), ours=True),
    Case(
        "latent_attention", lambda lib, x: lib.LatentAttention(2, 3, 4, 4, 2, 3)(x), (F(2, 5, 4),), ours=True, loose=2
    ),
    Case("gated_mlp", lambda lib, x: lib.GatedMLP(5)(x), (X,), ours=True),
    Case("mixture_of_experts", lambda lib, x: lib.MixtureOfExperts(4, 2, 3)(x), (X,), ours=True, no_vmap=True),
    Case("decoder", decoder, (I(9, 2, 5),), ours=True),
    Case("bidirectional", lambda lib, x: lib.Bidirectional(lib.LSTM(3), lib.GRU(2))(x), (XS,), ours=True),
    Case("batch_renorm", lambda lib, x: lib.BatchRenorm(True, True, 0.9)(x, True), (IMAGE,), ours=True, loose=4),
    Case("q_mixer", lambda lib, q, s: lib.nets.QMixer(4, [5])(q, s), (F(2, 3), F(2, 4)), ours=True),
    Case("bro_net", lambda lib, x: lib.nets.BroNet(6, 1)(x), (X,), ours=True, loose=2),
    Case("simba", lambda lib, x: lib.nets.Simba(6, 1)(x), (X,), ours=True, loose=2),
    Case("simba_v2", lambda lib, x: lib.nets.SimbaV2(6, 1)(x), (X,), ours=True, loose=2),
    Case("dynamic_unroll_lengths", lengths, (XS, I(4, 2)), ours=True),
]


def filled(make: Callable[[Any], Any], *shape: int) -> Callable[..., Any]:
    """A parameter from an initializer, and a number from the input."""
    return lambda lib, x: x.sum() * lib.get_parameter("w", shape, x.dtype, make(lib.initializers))


def block(make: Callable[[Any], Any]) -> Callable[..., Any]:
    """A network that is told whether it trains."""
    return lambda lib, x: make(lib.nets)(x, is_training=True)


def padded(make: Callable[[Any], Any]) -> Callable[..., Any]:
    """A convolution with a padding that is made by functions of `pad`."""
    return lambda lib, x: lib.Conv2D(2, 3, padding=make(lib.pad))(x)


RESIDUAL = {
    "channels_per_group": (4,) * 4,
    "initial_conv_config": {"kernel_shape": 3, "stride": 2, "output_channels": 4},
}

# What is made of the modules above, or for them. Tests of tests/nets and tests/core compare their numbers; here they
# meet other platforms, devices, settings and kinds of input, in slow tests.
LARGE = [
    Case("resnet", block(lambda nets: nets.ResNet([1] * 4, 3, resnet_v2=True, bottleneck=False, **RESIDUAL)), (IMAGE,)),
    Case("mobilenet", block(lambda nets: nets.MobileNetV1((1, 2), (4, 4), 3)), (IMAGE,)),
    Case("vector_quantizer", block(lambda nets: nets.VectorQuantizer(4, 3, 0.25)), (X,)),
    Case("vector_quantizer_ema", block(lambda nets: nets.VectorQuantizerEMA(4, 3, 0.25, 0.9)), (X,)),
    Case("bro_net_block", lambda lib, x: lib.nets.BroNetBlock()(x), (X,), ours=True),
    Case("simba_block", lambda lib, x: lib.nets.SimbaBlock()(x), (X,), ours=True),
    Case("simba_v2_block", lambda lib, x: lib.nets.SimbaV2Block(0.5)(x), (X,), ours=True),
    Case("constant", filled(lambda init: init.Constant(2.0), 4), (X,)),
    Case("identity", filled(lambda init: init.Identity(2.0), 4, 4), (F(4, 4),)),
    Case("orthogonal", filled(lambda init: init.Orthogonal(), 4, 4), (F(4, 4),)),
    Case("uniform_scaling", filled(lambda init: init.UniformScaling(2.0), 4, 4), (F(4, 4),)),
    Case("sparse", filled(lambda init: init.Sparse(0.5), 4, 4), (F(4, 4),), ours=True),
    Case("torch_uniform", filled(lambda init: init.TorchUniform(), 4, 4), (F(4, 4),), ours=True),
    Case("torch_embedding", filled(lambda init: init.TorchEmbedding(), 4, 4), (F(4, 4),), ours=True),
    Case("pad_create", padded(lambda pad: pad.create([pad.valid, pad.reverse_causal], 3, 1, 2)), (IMAGE,)),
    Case("pad_of_function", padded(lambda pad: pad.create_from_padfn(pad.same, 3, 1, 2)), (IMAGE,)),
    Case("pad_of_tuple", padded(lambda pad: pad.create_from_tuple((1, 0), 2)), (IMAGE,)),
]
