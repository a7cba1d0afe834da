"""The programs that the libraries are compared with: plain JAX on the same dict of dicts of parameters and state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DECAY, BATCH_EPS, LAYER_EPS = np.float32(0.9), 1e-5, 1e-5
LAST = np.int32(2**31 - 1)


def linear(p: Any, x: jax.Array) -> jax.Array:
    """`x w + b`."""
    y = jnp.dot(x, p["w"])
    return y + jnp.broadcast_to(p["b"], y.shape)


def perceptron(params: Any, x: jax.Array) -> jax.Array:
    """Linear layers, each with a relu after it."""
    for p in params.values():
        x = jax.nn.relu(linear(p, x))
    return x


def layer_norm(p: Any, x: jax.Array) -> jax.Array:
    """Layer normalisation over the last axis."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    scale, offset = jnp.broadcast_to(p["scale"], x.shape), jnp.broadcast_to(p["offset"], x.shape)
    return (x - mean) * (scale * jax.lax.rsqrt(variance + LAYER_EPS)) + offset


def attention(params: Any, path: str, heads: int, x: jax.Array, mask: jax.Array) -> jax.Array:
    """Multi-head self-attention."""
    parts = (linear(params[f"{path}/{name}"], x) for name in ("query", "key", "value"))
    query, key, value = (part.reshape(*x.shape[:-1], heads, -1) for part in parts)
    logits = jnp.einsum("...thd,...Thd->...htT", query, key) / np.sqrt(query.shape[-1]).astype(x.dtype)
    weights = jax.nn.softmax(jnp.where(mask, logits, -1e30))
    mixed = jnp.einsum("...htT,...Thd->...thd", weights, value)
    return linear(params[f"{path}/linear"], mixed.reshape(x.shape))


def transformer(params: Any, x: jax.Array, mask: jax.Array, layers: int, heads: int) -> jax.Array:
    """Layers of causal self-attention and a perceptron, both after layer normalisation."""
    for i in range(layers):
        end, norm = f"_{i}" if i else "", f"_{2 * i}" if i else ""
        h = layer_norm(params[f"layer_norm{norm}"], x)
        x = x + attention(params, f"multi_head_attention{end}", heads, h, mask)
        h = layer_norm(params[f"layer_norm_{2 * i + 1}"], x)
        h = jax.nn.gelu(linear(params[f"mlp{end}/~/linear_0"], h))
        x = x + linear(params[f"mlp{end}/~/linear_1"], h)
    return x


class ResNet50:
    """The residual network of 50 layers in training; `__call__` gives the logits and the new state."""

    def __init__(self, params: Any, state: Any):
        self.params, self.state = params, {path: dict(entries) for path, entries in state.items()}

    def __call__(self, x: jax.Array) -> tuple[jax.Array, Any]:
        """Applies the network to images `[N, H, W, C]`."""
        path = "res_net50/~"
        x = self.norm(f"{path}/initial_batchnorm", self.conv(f"{path}/initial_conv", x, 2))
        x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for group, (blocks, stride) in enumerate(((3, 1), (4, 2), (6, 2), (3, 2))):
            for block in range(blocks):
                x = self.block(f"{path}/block_group_{group}/~/block_{block}/~", x, 1 if block else stride, not block)
        return linear(self.params[f"{path}/logits"], jnp.mean(x, axis=(1, 2))), self.state

    def block(self, path: str, x: jax.Array, stride: int, projects: bool) -> jax.Array:
        """Three convolutions and a shortcut around them."""
        shortcut = x
        if projects:
            shortcut = self.norm(f"{path}/shortcut_batchnorm", self.conv(f"{path}/shortcut_conv", x, stride))
        for i in range(3):
            x = self.norm(f"{path}/batchnorm_{i}", self.conv(f"{path}/conv_{i}", x, stride if i == 1 else 1))
            if i < 2:
                x = jax.nn.relu(x)
        return jax.nn.relu(x + shortcut)

    def conv(self, path: str, x: jax.Array, stride: int) -> jax.Array:
        """A convolution without bias."""
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, self.params[path]["w"], (stride, stride), "SAME", dimension_numbers=layout
        )

    def norm(self, path: str, x: jax.Array) -> jax.Array:
        """Batch normalisation in training."""
        mean = jnp.mean(x, (0, 1, 2), keepdims=True)
        variance = jnp.mean(jnp.square(x), (0, 1, 2), keepdims=True) - jnp.square(mean)
        variance = jnp.maximum(variance, 0)
        self.average(f"{path}/~/mean_ema", mean)
        self.average(f"{path}/~/var_ema", variance)
        p = self.params[path]
        return (x - mean) * (p["scale"] * jax.lax.rsqrt(variance + BATCH_EPS)) + p["offset"]

    def average(self, path: str, value: jax.Array) -> None:
        """An exponential moving average, corrected for its start from zero."""
        old = self.state[path]
        counter = jax.lax.min(old["counter"], LAST - 1) + 1  # never wraps around
        hidden = old["hidden"] * DECAY + value * (np.float32(1) - DECAY)
        self.state[path] = {
            "counter": counter,
            "hidden": hidden,
            "average": hidden / (1 - jax.lax.pow(DECAY, counter)),
        }
