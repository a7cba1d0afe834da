"""ResNet-50 and a decoder-only transformer in each library, as functions that create their parameters.

Each function takes a key and returns arrays: `init(key)`. The transformer has learned positions, layer normalisation
before attention and perceptron, and a separate output map. With 24 layers of 2,048 units and 50,257 words it has 1.4
billion parameters, of which all but the output map are the 1.3 billion of GPT-3 XL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks import models

Init = Callable[[jax.Array], Any]
CLASSES, BLOCKS, WIDTHS = 1000, (3, 4, 6, 3), (256, 512, 1024, 2048)


class Size(NamedTuple):
    """How large a transformer is."""

    layers: int
    width: int
    heads: int
    words: int = 50_257
    length: int = 128


XL, SMALL = Size(24, 2048, 16), Size(12, 768, 12)


def resnet(side: str) -> Init:
    """The `init` of ResNet-50, in training, for one picture of 224 x 224."""
    picture = jnp.zeros([1, 224, 224, 3])
    if side == "flax nnx":
        return _nnx(_nnx_resnet)
    if side == "flax linen":
        return lambda key: _linen_resnet().init(key, picture)
    library: Any = models.library(side)
    pair = library.transform_with_state(lambda x: library.nets.ResNet50(CLASSES)(x, is_training=True))
    return lambda key: pair.init(key, picture)


def transformer(side: str, size: Size) -> Init:
    """The `init` of a transformer for one text."""
    tokens = jnp.zeros([1, size.length], jnp.int32)
    if side == "flax nnx":
        return _nnx(functools.partial(_nnx_transformer, size))
    if side == "flax linen":
        return lambda key: _linen_transformer(size).init(key, tokens)
    library: Any = models.library(side)
    small = library.initializers.RandomNormal(0.02)

    def forward(tokens: jax.Array) -> jax.Array:
        x = library.Embed(size.words, size.width, w_init=small)(tokens)
        x = x + library.get_parameter("positions", [size.length, size.width], init=small)
        mask = jnp.tril(jnp.ones([1, 1, size.length, size.length], bool))
        for _ in range(size.layers):
            attention = library.MultiHeadAttention(
                size.heads, size.width // size.heads, model_size=size.width, w_init=small
            )
            h = library.LayerNorm(-1, True, True)(x)
            x = x + attention(h, h, h, mask)
            h = library.Linear(4 * size.width, w_init=small)(library.LayerNorm(-1, True, True)(x))
            x = x + library.Linear(size.width, w_init=small)(jax.nn.gelu(h))
        return library.Linear(size.words, with_bias=False, w_init=small)(library.LayerNorm(-1, True, True)(x))

    pair = library.transform(forward)
    return lambda key: pair.init(key, tokens)


def _nnx(build: Callable[[Any], Any]) -> Init:
    from flax import nnx

    return lambda key: nnx.state(build(nnx.Rngs(key)))


def _linen_transformer(size: Size) -> Any:
    from flax import linen as nn

    small = nn.initializers.normal(0.02)

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = nn.Embed(size.words, size.width, embedding_init=small)(tokens)
            x = x + self.param("positions", small, (size.length, size.width))
            mask = nn.make_causal_mask(tokens)
            for _ in range(size.layers):
                h = nn.LayerNorm()(x)
                x = x + nn.MultiHeadDotProductAttention(size.heads, kernel_init=small)(h, h, mask=mask)
                h = nn.gelu(nn.Dense(4 * size.width, kernel_init=small)(nn.LayerNorm()(x)))
                x = x + nn.Dense(size.width, kernel_init=small)(h)
            return nn.Dense(size.words, use_bias=False, kernel_init=small)(nn.LayerNorm()(x))

    return Transformer()


def _nnx_transformer(size: Size, rngs: Any) -> Any:
    from flax import nnx

    small = nnx.initializers.normal(0.02)

    class Layer(nnx.Module):
        def __init__(self) -> None:
            self.norms = nnx.List([nnx.LayerNorm(size.width, rngs=rngs) for _ in range(2)])
            self.attention = nnx.MultiHeadAttention(size.heads, size.width, kernel_init=small, decode=False, rngs=rngs)
            self.up = nnx.Linear(size.width, 4 * size.width, kernel_init=small, rngs=rngs)
            self.down = nnx.Linear(4 * size.width, size.width, kernel_init=small, rngs=rngs)

    class Transformer(nnx.Module):
        def __init__(self) -> None:
            self.embed = nnx.Embed(size.words, size.width, embedding_init=small, rngs=rngs)
            self.positions = nnx.Param(small(rngs.params(), (size.length, size.width)))
            self.layers = nnx.List([Layer() for _ in range(size.layers)])
            self.norm = nnx.LayerNorm(size.width, rngs=rngs)
            self.logits = nnx.Linear(size.width, size.words, use_bias=False, kernel_init=small, rngs=rngs)

    return Transformer()


def _linen_resnet() -> Any:
    from flax import linen as nn

    class Block(nn.Module):
        width: int
        stride: int
        projected: bool

        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            y = x
            for width, kernel, stride in ((self.width // 4, 1, 1), (self.width // 4, 3, self.stride)):
                y = nn.Conv(width, (kernel, kernel), (stride, stride), use_bias=False)(y)
                y = nn.relu(nn.BatchNorm(use_running_average=False)(y))
            y = nn.BatchNorm(use_running_average=False)(nn.Conv(self.width, (1, 1), use_bias=False)(y))
            if self.projected:
                x = nn.Conv(self.width, (1, 1), (self.stride, self.stride), use_bias=False)(x)
                x = nn.BatchNorm(use_running_average=False)(x)
            return nn.relu(x + y)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
            x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
            for group, (blocks, width) in enumerate(zip(BLOCKS, WIDTHS, strict=True)):
                for block in range(blocks):
                    x = Block(width, 2 if group and not block else 1, not block)(x)
            return nn.Dense(CLASSES)(jnp.mean(x, axis=(1, 2)))

    return ResNet()


def _nnx_resnet(rngs: Any) -> Any:
    from flax import nnx

    def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Any:
        layer = nnx.Conv(inputs, outputs, (kernel, kernel), strides=(stride, stride), use_bias=False, rngs=rngs)
        return nnx.List([layer, nnx.BatchNorm(outputs, rngs=rngs)])

    class Block(nnx.Module):
        def __init__(self, inputs: int, width: int, stride: int, projected: bool) -> None:
            inner = width // 4
            kernels = (inputs, inner, 1, 1), (inner, inner, 3, stride), (inner, width, 1, 1)
            self.convolutions = nnx.List([convolution(*about) for about in kernels])
            self.shortcut = nnx.List([convolution(inputs, width, 1, stride)] if projected else [])

    class ResNet(nnx.Module):
        def __init__(self) -> None:
            self.first = convolution(3, 64, 7, 2)
            self.blocks, inputs = nnx.List([]), 64
            for group, (blocks, width) in enumerate(zip(BLOCKS, WIDTHS, strict=True)):
                for block in range(blocks):
                    self.blocks.append(Block(inputs, width, 2 if group and not block else 1, not block))
                    inputs = width
            self.logits = nnx.Linear(inputs, CLASSES, rngs=rngs)

    return ResNet()
