"""The same models by hand and in each library: a deep perceptron, a transformer, ResNet-50."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from benchmarks import by_hand

Model = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and its arguments: what it is trained on, and the input."""

WIDTH = 8
LAYERS, HEADS, MODEL, TOKENS = 24, 4, 64, 16


def perceptron(library: ModuleType | None, depth: int) -> Model:
    """A deep perceptron, by dm-haiku, hkx, or by hand."""
    x = jnp.ones([1, WIDTH])
    names = ["linear"] + [f"linear_{i}" for i in range(1, depth)]
    params = {name: {"w": jnp.ones([WIDTH, WIDTH]), "b": jnp.ones([WIDTH])} for name in names}
    if library is None:
        # Not in the order of the dict: jax.jit sorts its keys.
        return lambda p, x: by_hand.perceptron({name: p[name] for name in names}, x), (params, x)

    def forward(x: jax.Array) -> jax.Array:
        for _ in range(depth):
            x = jax.nn.relu(library.Linear(WIDTH)(x))
        return x

    return library.without_apply_rng(library.transform(forward)).apply, (params, x)


def transformer(library: ModuleType | None, layers: int = LAYERS) -> Model:
    """A transformer, by dm-haiku, hkx, or by hand."""
    x = jnp.ones([1, TOKENS, MODEL])
    mask = np.tril(np.ones([1, 1, TOKENS, TOKENS], bool))
    if library is None:
        import hkx

        return lambda p, x: by_hand.transformer(p, x, mask, layers, HEADS), transformer(hkx, layers)[1]

    def forward(x: jax.Array) -> jax.Array:
        for _ in range(layers):
            h = library.LayerNorm(-1, True, True)(x)
            init = library.initializers.VarianceScaling(1.0)
            attention = library.MultiHeadAttention(HEADS, MODEL // HEADS, w_init=init, model_size=MODEL)
            x = x + attention(h, h, h, mask)
            h = library.LayerNorm(-1, True, True)(x)
            x = x + library.nets.MLP([4 * MODEL, MODEL], activation=jax.nn.gelu)(h)
        return x

    pair = library.without_apply_rng(library.transform(forward))
    return pair.apply, (_zeros(jax.eval_shape(pair.init, jax.random.PRNGKey(0), x)), x)


def resnet(library: ModuleType | None, size: int = 64) -> Model:
    """ResNet-50 in training, by dm-haiku, hkx, or by hand."""
    if library is None:
        import hkx

        return lambda p, s, x: by_hand.ResNet50(p, s)(x), resnet(hkx, size)[1]
    x = jnp.ones([2, size, size, 3])
    pair = library.without_apply_rng(
        library.transform_with_state(lambda x: library.nets.ResNet50(10)(x, is_training=True))
    )
    return pair.apply, (*_zeros(jax.eval_shape(pair.init, jax.random.PRNGKey(0), x)), x)


def divided(shapes: Any) -> Any:
    """Shardings that divide arrays over all devices by their last axis, where that can be done."""
    mesh = jax.make_mesh((jax.device_count(),), ("model",), axis_types=(AxisType.Auto,))

    def sharding(leaf: Any) -> NamedSharding:
        if leaf.ndim and leaf.shape[-1] % jax.device_count() == 0:
            return NamedSharding(mesh, PartitionSpec(*(None,) * (leaf.ndim - 1), "model"))
        return NamedSharding(mesh, PartitionSpec())

    return jax.tree.map(sharding, shapes)


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def linen_perceptron(depth: int) -> Model:
    """A deep perceptron by Flax Linen."""
    import flax.linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            for _ in range(depth):
                x = nn.relu(nn.Dense(WIDTH)(x))
            return x

    net, x = Net(), jnp.ones([1, WIDTH])
    return net.apply, (net.init(jax.random.key(0), x), x)


def nnx_perceptron(depth: int) -> Model:
    """A deep perceptron by Flax NNX, split into what is constant and what is trained, as its guide for speed says."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.layers = nnx.List([nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(depth)])

        def __call__(self, x: jax.Array) -> jax.Array:
            for layer in self.layers:
                x = nnx.relu(layer(x))
            return x

    graph, state = nnx.split(Net())
    return lambda state, x: nnx.merge(graph, state)(x), (state, jnp.ones([1, WIDTH]))


def equinox_perceptron(depth: int) -> Model:
    """A deep perceptron by Equinox."""
    import equinox

    layers = [equinox.nn.Linear(WIDTH, WIDTH, key=jax.random.key(i)) for i in range(depth)]

    def apply(layers: Any, x: jax.Array) -> jax.Array:
        for layer in layers:
            x = jax.nn.relu(jax.vmap(layer)(x))
        return x

    return apply, (layers, jnp.ones([1, WIDTH]))


def library(side: str) -> ModuleType | None:
    """dm-haiku or hkx, from the name of a side; None is by hand."""
    return None if side == "by hand" else importlib.import_module(side)


PERCEPTRONS: dict[str, Callable[[int], Model]] = {
    **{side: lambda depth, side=side: perceptron(library(side), depth) for side in ("by hand", "hkx", "haiku")},
    "flax linen": linen_perceptron,
    "flax nnx": nnx_perceptron,
    "equinox": equinox_perceptron,
}
