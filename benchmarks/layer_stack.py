"""The gradient of a deep transformer by `hkx.layer_stack` and by a `jax.lax.scan` written by hand, in CPU seconds.

Each time is of tracing, lowering and compiling; the smallest of three counts. The last figure is how many times as long
64 layers take as 2 do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import hkx

REFERENCE = "lax.scan by hand"
LENGTH, HEADS, WIDTH = 16, 4, 64


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5)
    return jnp.einsum("hqk,khd->qhd", scores, v)


def block(x: Any, dense: Callable[..., Any], scale: Callable[..., Any]) -> Any:
    """One layer of a transformer on x [T, D]; `dense(name, x, size)` and `scale(name, x)` hold the parameters."""
    width = x.shape[-1]

    def heads(name: str, h: Any) -> Any:
        return dense(name, h, width).reshape(LENGTH, HEADS, width // HEADS)

    h = scale("norm_1", x)
    h = attention(heads("q", h), heads("k", h), heads("v", h)).reshape(x.shape)
    x = x + dense("out", h, width)
    h = dense("up", scale("norm_2", x), 4 * width)
    return x + dense("down", jax.nn.gelu(h), width)


def normalised(x: Any, scale: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * scale


def layer(x: Any) -> Any:
    def dense(name: str, x: Any, size: int) -> Any:
        return hkx.Linear(size, name=name)(x)

    def scale(name: str, x: Any) -> Any:
        return normalised(x, hkx.get_parameter(name, x.shape[-1:], init=jnp.ones))

    return block(x, dense, scale)


def stacked(depth: int) -> Any:
    model = hkx.transform(lambda x: hkx.layer_stack(depth, name="layers")(layer)(x))
    return lambda params, x: model.apply(params, None, x).mean(), model.init


def by_hand(depth: int) -> Any:
    """The same program on the same parameters, written with `jax.lax.scan`."""
    init = stacked(depth)[1]

    def loss(params: Any, x: Any) -> Any:
        def step(x: Any, p: Any) -> Any:
            def dense(name: str, x: Any, size: int) -> Any:
                return jnp.dot(x, p[f"layers/{name}"]["w"]) + p[f"layers/{name}"]["b"]

            return block(x, dense, lambda name, x: normalised(x, p["layers/~"][name])), None

        return jax.lax.scan(step, x, params)[0].mean()

    return loss, init


def seconds(make: Callable[[int], Any], depth: int) -> float:
    """What one compilation takes."""
    loss, init = make(depth)
    x = jax.ShapeDtypeStruct((LENGTH, WIDTH), jnp.float32)
    params = jax.eval_shape(init, jax.random.key(0), x)
    jax.clear_caches()
    start = time.process_time()
    jax.jit(jax.grad(loss)).lower(params, x).compile()
    return time.process_time() - start


def compiling(make: Callable[[int], Any]) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        times = [(seconds(make, 2), seconds(make, 64)) for _ in range(3)]
        shallow, deep = (min(column) for column in zip(*times, strict=True))
        return {"2 layers, s": shallow, "64 layers, s": deep, "64 layers to 2": deep / shallow}

    return measure


SIDES = {"hkx.layer_stack": compiling(stacked), "lax.scan by hand": compiling(by_hand)}
