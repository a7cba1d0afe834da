"""One layer of a decoder-only language model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hkx import (
    CausalAttention,
    GatedMLP,
    LatentAttention,
    LayerNorm,
    Linear,
    MixtureOfExperts,
    Module,
    RMSNorm,
    name_scope,
    transparent,
)
from hkx.arguments import Flag, Num
from hkx.initializers import VarianceScaling
from hkx.nets.decoder_config import DecoderConfig
from hkx.nets.exact import ExactAttention
from hkx.nn.rotary import rotated

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": jax.nn.gelu,
    "gelu_fast": jax.nn.gelu,
    "gelu_pytorch_tanh": jax.nn.gelu,
}


class DecoderLayer(Module):
    """One layer of a `hkx.nets.Decoder`: attention, and a feed-forward layer or experts; each adds to its input.

    Args:
      config: the sizes and options of the decoder.
      dense: whether the layer has one feed-forward layer, and not several experts.
      exact: as for the decoder; only its attention depends on this.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> config = hkx.nets.DecoderConfig(vocab_size=256, hidden_size=64, num_layers=2, num_heads=4, rope_theta=None)
      >>> model = hkx.transform(lambda x: hkx.nets.DecoderLayer(config)(x, None)[0])
      >>> x = jnp.ones([1, 3, 64])
      >>> model.apply(model.init(jax.random.key(0), x), None, x).shape
      (1, 3, 64)
    """

    def __init__(self, config: DecoderConfig, dense: Flag = True, name: str | None = None, *, exact: Flag = False):
        super().__init__(name=name)
        self.config, self.dense, self.exact = config, dense, exact
        self.small = VarianceScaling(0.5 / config.num_layers)  # the sum over layers does not grow with their number
        self.small_3d = VarianceScaling(0.5 / config.num_layers, fan_in_axes=[1])

    def __call__(self, x: Num[jax.Array, "B T D"], angles: Any, **attention: Any) -> tuple[jax.Array, Any]:
        """Applies the layer to `[B, T, hidden_size]`, with `cos, sin` of all positions, or None."""
        before, after = self.config.norm_placement != "after", self.config.norm_placement != "before"
        y = self.norm(x, "attention_norm") if before else x
        y, cache = self.attention(y, angles, **attention)
        x = x + (self.norm(y, "attention_post_norm") if after else y)
        y = self.norm(x, "mlp_norm") if before else x
        y = self.mlp(y) if self.dense else self.experts(y)
        return x + (self.norm(y, "mlp_post_norm") if after else y), cache

    @transparent
    def attention(self, x: jax.Array, angles: Any, cache: Any = None, **options: Any) -> tuple[jax.Array, Any]:
        c = self.config

        def rotary(y: jax.Array, positions: jax.Array) -> jax.Array:
            return rotated(y, angles[0], angles[1], c.rope_interleaved)

        same: Any = {
            "model_size": c.hidden_size,
            "rotary": None if angles is None else rotary,
            "scale": c.query_scale,
            "output_w_init": self.small,
            "name": "attention",
        }
        if c.latent is not None:
            layer: Any = LatentAttention(c.num_heads, **vars(c.latent), bias=c.qkv_bias, norm_eps=1e-6, **same)
        else:
            layer = (ExactAttention if self.exact else CausalAttention)(
                c.num_heads,
                c.num_kv_heads,
                c.head_dim,
                bias=("query", "key", "value") * c.qkv_bias + ("output",) * c.output_bias,
                query_norm=self.head_norm("query_norm"),
                key_norm=self.head_norm("key_norm"),
                soft_cap=c.attention_cap,
                sinks=c.sinks,
                **same,
            )
        y = layer(x, cache=cache, **options)
        return (y, None) if cache is None else y

    @transparent
    def mlp(self, x: jax.Array) -> jax.Array:
        c, activation = self.config, ACTIVATIONS[self.config.activation]
        if c.gated:
            return GatedMLP(c.intermediate_size, None, activation, c.mlp_bias, down_w_init=self.small, name="mlp")(x)
        with name_scope("mlp"):
            up = Linear(c.intermediate_size, c.mlp_bias, name="up")(x)
            return Linear(c.hidden_size, c.mlp_bias, self.small, name="down")(activation(up))

    @transparent
    def experts(self, x: jax.Array) -> jax.Array:
        e, activation = self.config.experts, ACTIVATIONS[self.config.activation]
        assert e is not None

        def clamped(gate: jax.Array, up: jax.Array) -> jax.Array:
            gate, up = jnp.minimum(gate, e.clamp), jnp.clip(up, -e.clamp, e.clamp)  # type: ignore[operator]
            return gate * jax.nn.sigmoid(1.702 * gate) * (up + 1)

        experts = MixtureOfExperts(
            e.num_experts,
            e.top_k,
            e.intermediate_size,
            activation=activation,
            combine=None if e.clamp is None else clamped,
            router=e.router,
            normalize=e.normalize,
            scale=e.scale,
            correction=e.correction,
            num_groups=e.num_groups,
            top_groups=e.top_groups,
            router_bias=e.bias,
            with_bias=e.bias,
            down_w_init=self.small_3d,
            name="experts",
        )
        y = experts(x)
        if not e.shared_size:
            return y
        return y + GatedMLP(e.shared_size, None, activation, down_w_init=self.small, name="shared_expert")(x)

    @transparent
    def norm(self, x: jax.Array, name: str) -> jax.Array:
        return norm(self.config, name)(x)

    def head_norm(self, name: str) -> Any:
        """A function that normalises queries or keys, `[B, T, N, D]`, or None."""
        if self.config.query_key_norm is None:
            return None
        return norm(self.config, name, -1 if self.config.query_key_norm == "head" else (-2, -1))


def norm(config: DecoderConfig, name: str, axis: Any = -1) -> Callable[[jax.Array], jax.Array]:
    """A norm that computes in float32 or wider."""

    def normalised(x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        if config.norm == "layer":
            y = LayerNorm(axis, True, True, config.norm_eps, name=name)(wide)
        else:
            offset = 1.0 if config.norm == "rms_plus_one" else 0.0
            y = RMSNorm(axis, config.norm_eps, name=name, param_axis=axis, scale_offset=offset)(wide)
        return y.astype(x.dtype)

    return normalised
