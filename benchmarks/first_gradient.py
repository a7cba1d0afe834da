"""A training program up to its first step: trace, lowering and compilation of a language model like Qwen 3, by depth.

The same decoder in each library: root mean square norms, grouped queries with norms and rotary positions, gated
perceptrons; small widths; stacks (one compiled layer) of 4, 28 and 64 layers, and 28 separate ones. The step is a
gradient and Adam. Parameters are made in one jitted call, as a program does that knows no other way yet.
"""

from __future__ import annotations

import importlib
import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

REFERENCE = "hkx"
VOCABULARY, WIDTH, HEADS, GROUPS, SIZE, HIDDEN, BATCH, TIME = 512, 64, 4, 2, 16, 192, 2, 32
STACKS, SEPARATE = (4, 28, 64), (28,)  # depths
Model = tuple[Callable[[jax.Array], Any], Callable[[Any, jax.Array], jax.Array]]
"""Functions: of a key to parameters, and of parameters and tokens [B, T] to logits [B, T, V]."""


def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention of [B, T, H, D] and [B, T, K, D], with rotary positions."""
    angles = jnp.arange(TIME)[:, None] / 1e6 ** (np.arange(SIZE // 2) / (SIZE // 2))
    sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]

    def turned(x: jax.Array) -> jax.Array:
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    return jax.nn.dot_product_attention(turned(q), turned(k), v, is_causal=True).reshape(BATCH, TIME, -1)


def by_hand(depth: int, stacked: bool) -> Model:
    """The model in plain JAX."""
    shapes = {"query": (WIDTH, HEADS * SIZE), "key": (WIDTH, GROUPS * SIZE), "value": (WIDTH, GROUPS * SIZE),
              "output": (HEADS * SIZE, WIDTH), "gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN),
              "down": (HIDDEN, WIDTH)}  # fmt: skip
    scales = {"attention_norm": WIDTH, "mlp_norm": WIDTH, "query_norm": SIZE, "key_norm": SIZE}

    def init(key: jax.Array) -> Any:
        def made(key: jax.Array) -> dict[str, jax.Array]:
            keys = jax.random.split(key, len(shapes))
            values = {n: jax.random.normal(k, s) * s[0] ** -0.5 for k, (n, s) in zip(keys, shapes.items(), strict=True)}
            return values | {name: jnp.ones(size) for name, size in scales.items()}

        first, last, *keys = jax.random.split(key, 2 + depth)
        layers = jax.vmap(made)(jnp.stack(keys)) if stacked else [made(k) for k in keys]
        embed, head = jax.random.normal(first, [VOCABULARY, WIDTH]), jax.random.normal(last, [WIDTH, VOCABULARY])
        return {"embed": embed, "layers": layers, "norm": jnp.ones(WIDTH), "head": head * WIDTH**-0.5}

    def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5) * scale

    def layer(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
        h = norm(x, p["attention_norm"])
        q, k, v = ((h @ p[name]).reshape(BATCH, TIME, -1, SIZE) for name in ("query", "key", "value"))
        x = x + attend(norm(q, p["query_norm"]), norm(k, p["key_norm"]), v) @ p["output"]
        h = norm(x, p["mlp_norm"])
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]

    def apply(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens]
        if stacked:
            x, _ = jax.lax.scan(lambda x, p: (layer(x, p), None), x, params["layers"])
        else:
            for p in params["layers"]:
                x = layer(x, p)
        return norm(x, params["norm"]) @ params["head"]

    return init, apply


def transformed(library: str, depth: int, stacked: bool) -> Model:
    """The model in Haiku or, with no other change, in hkx."""
    hk = importlib.import_module(library)

    def linear(size: int, x: jax.Array, name: str) -> jax.Array:
        return hk.Linear(size, with_bias=False, name=name)(x)

    def heads(number: int, x: jax.Array, name: str) -> jax.Array:
        return linear(number * SIZE, x, name).reshape(BATCH, TIME, number, SIZE)

    def layer(x: jax.Array) -> jax.Array:
        h = hk.RMSNorm(-1, name="attention_norm")(x)
        q = hk.RMSNorm(-1, name="query_norm")(heads(HEADS, h, "query"))
        k = hk.RMSNorm(-1, name="key_norm")(heads(GROUPS, h, "key"))
        x = x + linear(WIDTH, attend(q, k, heads(GROUPS, h, "value")), "output")
        h = hk.RMSNorm(-1, name="mlp_norm")(x)
        return x + linear(WIDTH, jax.nn.silu(linear(HIDDEN, h, "gate")) * linear(HIDDEN, h, "up"), "down")

    def model(tokens: jax.Array) -> jax.Array:
        x = hk.Embed(VOCABULARY, WIDTH)(tokens)
        if stacked:
            x = hk.layer_stack(depth)(layer)(x)
        else:
            for i in range(depth):
                x = hk.to_module(layer)(f"layer_{i}")(x)
        return linear(VOCABULARY, hk.RMSNorm(-1, name="norm")(x), "head")

    pair = hk.without_apply_rng(hk.transform(model))
    return lambda key: pair.init(key, jnp.zeros([BATCH, TIME], jnp.int32)), pair.apply


def decoder(depth: int, stacked: bool) -> Model:
    """The model that hkx has."""
    import hkx

    config = hkx.nets.DecoderConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_layers=depth, num_heads=HEADS, num_kv_heads=GROUPS,
        head_dim=SIZE, intermediate_size=HIDDEN, rope_theta=1e6, query_key_norm="head",
    )  # fmt: skip
    pair = hkx.without_apply_rng(hkx.transform(lambda tokens: hkx.nets.Decoder(config, stacked=stacked)(tokens)))
    return lambda key: pair.init(key, jnp.zeros([BATCH, TIME], jnp.int32)), pair.apply


def linen(depth: int, stacked: bool) -> Model:
    """The model in Flax Linen."""
    import flax.linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
            def linear(size: int, x: jax.Array, name: str) -> jax.Array:
                return nn.Dense(size, use_bias=False, name=name)(x)

            def heads(number: int, x: jax.Array, name: str) -> jax.Array:
                return linear(number * SIZE, x, name).reshape(BATCH, TIME, number, SIZE)

            h = nn.RMSNorm(name="attention_norm")(x)
            q = nn.RMSNorm(name="query_norm")(heads(HEADS, h, "query"))
            k = nn.RMSNorm(name="key_norm")(heads(GROUPS, h, "key"))
            x = x + linear(WIDTH, attend(q, k, heads(GROUPS, h, "value")), "output")
            h = nn.RMSNorm(name="mlp_norm")(x)
            return x + linear(WIDTH, nn.silu(linear(HIDDEN, h, "gate")) * linear(HIDDEN, h, "up"), "down"), None

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = nn.Embed(VOCABULARY, WIDTH)(tokens)
            if stacked:
                x, _ = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=depth)()(x)
            else:
                for _ in range(depth):
                    x, _ = Layer()(x)
            return nn.Dense(VOCABULARY, use_bias=False)(nn.RMSNorm()(x))

    net = Net()
    return lambda key: net.init(key, jnp.zeros([BATCH, TIME], jnp.int32)), net.apply


def nnx(depth: int, stacked: bool) -> Model:
    """The model in Flax NNX, split into what is constant and what is trained, as its guide for speed says."""
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            def linear(inputs: int, outputs: int) -> nnx.Linear:
                return nnx.Linear(inputs, outputs, use_bias=False, rngs=rngs)

            self.query, self.key = linear(WIDTH, HEADS * SIZE), linear(WIDTH, GROUPS * SIZE)
            self.value, self.output = linear(WIDTH, GROUPS * SIZE), linear(HEADS * SIZE, WIDTH)
            self.gate, self.up, self.down = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)
            self.attention_norm, self.mlp_norm = nnx.RMSNorm(WIDTH, rngs=rngs), nnx.RMSNorm(WIDTH, rngs=rngs)
            self.query_norm, self.key_norm = nnx.RMSNorm(SIZE, rngs=rngs), nnx.RMSNorm(SIZE, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            h = self.attention_norm(x)
            q, k, v = (f(h).reshape(BATCH, TIME, -1, SIZE) for f in (self.query, self.key, self.value))
            x = x + self.output(attend(self.query_norm(q), self.key_norm(k), v))
            h = self.mlp_norm(x)
            return x + self.down(nnx.silu(self.gate(h)) * self.up(h))

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.embed, self.norm = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs), nnx.RMSNorm(WIDTH, rngs=rngs)
            self.head = nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)
            if stacked:
                self.layers = nnx.vmap(Layer)(rngs.fork(split=depth))
            else:
                self.layers = nnx.List([Layer(rngs) for _ in range(depth)])

        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = self.embed(tokens)
            if stacked:
                x = nnx.scan(lambda x, layer: layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)
            else:
                for layer in self.layers:
                    x = layer(x)
            return self.head(self.norm(x))

    graph = nnx.graphdef(nnx.eval_shape(lambda: Net(nnx.Rngs(0))))
    return lambda key: nnx.state(Net(nnx.Rngs(key))), lambda state, tokens: nnx.merge(graph, state)(tokens)


def equinox(depth: int, stacked: bool) -> Model:
    """The model in Equinox."""
    import equinox as eqx

    class Layer(eqx.Module):
        linears: dict[str, eqx.nn.Linear]
        norms: dict[str, eqx.nn.RMSNorm]

        def __init__(self, key: jax.Array) -> None:
            sizes = {"query": (WIDTH, HEADS * SIZE), "key": (WIDTH, GROUPS * SIZE), "value": (WIDTH, GROUPS * SIZE),
                     "output": (HEADS * SIZE, WIDTH), "gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN),
                     "down": (HIDDEN, WIDTH)}  # fmt: skip
            keys = jax.random.split(key, len(sizes))
            self.linears = {
                name: eqx.nn.Linear(*size, use_bias=False, key=k)
                for (name, size), k in zip(sizes.items(), keys, strict=True)
            }
            widths = {"attention": WIDTH, "mlp": WIDTH, "query": SIZE, "key": SIZE}
            self.norms = {name: eqx.nn.RMSNorm(size, use_bias=False) for name, size in widths.items()}

        def __call__(self, x: jax.Array) -> jax.Array:
            def linear(name: str, x: jax.Array) -> jax.Array:
                return jax.vmap(jax.vmap(self.linears[name]))(x)

            h = jax.vmap(jax.vmap(self.norms["attention"]))(x)
            q, k, v = (linear(name, h).reshape(BATCH, TIME, -1, SIZE) for name in ("query", "key", "value"))
            q, k = (jax.vmap(jax.vmap(jax.vmap(self.norms[n])))(a) for n, a in (("query", q), ("key", k)))
            x = x + linear("output", attend(q, k, v))
            h = jax.vmap(jax.vmap(self.norms["mlp"]))(x)
            return x + linear("down", jax.nn.silu(linear("gate", h)) * linear("up", h))

    class Net(eqx.Module):
        embed: eqx.nn.Embedding
        layers: Any
        norm: eqx.nn.RMSNorm
        head: eqx.nn.Linear

        def __init__(self, key: jax.Array) -> None:
            first, last, *keys = jax.random.split(key, 2 + depth)
            self.embed, self.norm = eqx.nn.Embedding(VOCABULARY, WIDTH, key=first), eqx.nn.RMSNorm(WIDTH)
            self.layers = eqx.filter_vmap(Layer)(jnp.stack(keys)) if stacked else [Layer(k) for k in keys]
            self.head = eqx.nn.Linear(WIDTH, VOCABULARY, use_bias=False, key=last)

        def __call__(self, tokens: jax.Array) -> jax.Array:
            x = jax.vmap(jax.vmap(self.embed))(tokens)
            if stacked:
                x, _ = jax.lax.scan(lambda x, layer: (layer(x), None), x, self.layers)
            else:
                for layer in self.layers:
                    x = layer(x)
            return jax.vmap(jax.vmap(self.head))(jax.vmap(jax.vmap(self.norm))(x))

    return Net, lambda net, tokens: net(tokens)


def stages(model: Callable[[int, bool], Model]) -> dict[str, float]:
    """CPU seconds of each stage up to the first finished step, for each depth and both ways."""
    tokens = np.random.default_rng(0).integers(VOCABULARY, size=[BATCH, TIME + 1])
    optimizer = optax.adam(1e-3)
    figures: dict[str, float] = {}
    for stacked, depths in ((True, STACKS), (False, SEPARATE)):
        for depth in depths:
            times = [time.process_time()]
            init, apply = model(depth, stacked)
            params = jax.block_until_ready(jax.jit(init)(jax.random.key(0)))

            def step(params: Any, state: Any, tokens: jax.Array, apply: Callable[..., Any] = apply) -> Any:
                def loss(params: Any) -> jax.Array:
                    losses = optax.softmax_cross_entropy_with_integer_labels(
                        apply(params, tokens[:, :-1]), tokens[:, 1:]
                    )
                    return losses.mean()

                value, gradient = jax.value_and_grad(loss)(params)
                updates, state = optimizer.update(gradient, state)
                return value, optax.apply_updates(params, updates), state

            state = jax.jit(optimizer.init)(params)
            times.append(time.process_time())
            traced = jax.jit(step, donate_argnums=(0, 1)).trace(params, state, tokens)
            times.append(time.process_time())
            lowered = traced.lower()
            times.append(time.process_time())
            compiled = lowered.compile()
            times.append(time.process_time())
            value, *_ = jax.block_until_ready(compiled(params, state, tokens))
            times.append(time.process_time())
            if not 5 < value < 12:
                raise RuntimeError(f"the first loss is {value}, expected about that of guessing, {np.log(VOCABULARY)}")
            where = f"{'a stack of' if stacked else 'separate'} {depth} layers"
            for name, a, b in zip(("init", "trace", "lower", "compile", "run"), times[:-1], times[1:], strict=True):
                figures[f"{where}: {name}, CPU s"] = b - a
            figures[f"{where}: all, CPU s"] = times[-1] - times[0]
    figures["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


SIDES: dict[str, Callable[[], dict[str, float]]] = {
    "by hand": lambda: stages(by_hand),
    "hkx": lambda: stages(lambda *options: transformed("hkx", *options)),
    "hkx.nets.Decoder": lambda: stages(decoder),
    "haiku": lambda: stages(lambda *options: transformed("haiku", *options)),
    "flax linen": lambda: stages(linen),
    "flax nnx": lambda: stages(nnx),
    "equinox": lambda: stages(equinox),
}
