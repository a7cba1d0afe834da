"""The first `init` of ResNet-50 on a 224 x 224 image, un-jitted and under `jax.jit`, compilation included, and what
`init` takes of time and memory as models grow."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

REFERENCE = "haiku"


def _resnet(library: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import jax.numpy as jnp

    pair = library.transform_with_state(lambda x: library.nets.ResNet50(1000)(x, is_training=True))
    return pair.init, (jax.random.PRNGKey(0), jnp.zeros([1, 224, 224, 3]))


def _seconds(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    import jax

    start = time.process_time()
    jax.block_until_ready(function(*arguments))
    return time.process_time() - start


def _init(side: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax

        from benchmarks import models

        init, arguments = _resnet(models.library(side))
        figures = {"ResNet-50, CPU s": _seconds(init, arguments)}
        jax.clear_caches()
        figures["ResNet-50 under jit, CPU s"] = _seconds(jax.jit(init), arguments)
        return figures

    return measure


def _growth() -> dict[str, float]:
    """hkx alone: a Haiku program of 10,000 layers takes minutes."""
    import jax
    import jax.numpy as jnp

    import hkx

    def init(sizes: list[int]) -> Callable[..., Any]:
        return hkx.transform(lambda x: hkx.nets.MLP(sizes)(x)).init

    key, x = jax.random.key(0), jnp.ones([1, 4])
    _seconds(init([4]), (key, x))
    figures = {f"{n} layers, CPU s": _seconds(init([4] * n), (key, x)) for n in (1_000, 10_000)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    params = jax.block_until_ready(init([4096] * 12)(key, jnp.ones([1, 4096])))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures["peak memory of 12 layers of 4096, in sizes of the parameters"] = (
        after - before
    ) / hkx.data_structures.tree_bytes(params)
    return figures


SIDES = {"haiku": _init("haiku"), "hkx": _init("hkx"), "hkx, larger and larger": _growth}
