"""The first `init` of ResNet-50 and of a transformer, compilation included: un-jitted, under `jax.jit`, and into shards
over all devices. Then what `init` takes of time and memory as models of hkx grow.

On a CPU all seconds are those of the processors, and the transformer has 0.16 billion parameters. On an accelerator
they are of the clock, and it has 1.4 billion.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

from benchmarks import harness

REFERENCE = "haiku"


def _host_memory() -> int:
    """Bytes that this process has taken at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _seconds(function: Callable[..., Any], *arguments: Any) -> float:
    import jax

    clock = harness.clock()
    start = clock()
    jax.block_until_ready(function(*arguments))
    return clock() - start


def _into_shards(side: str, init: Callable[..., Any], key: Any) -> Any:
    import jax

    from benchmarks import models

    shardings = models.divided(jax.eval_shape(init, key))
    if side == "hkx":
        import hkx

        return hkx.sharding.sharded_init(init, shardings)(key)
    return jax.jit(init, out_shardings=shardings)(key)


def _compiled(side: str, init: Callable[..., Any], key: Any, figure: str) -> dict[str, float]:
    """Seconds under `jax.jit` and into shards, compiled anew; the names are `figure` with one of these filled in."""
    import jax

    figures = {}
    for how, run in (
        ("under jit", jax.jit(init)),
        ("into shards", lambda key: _into_shards(side, init, key)),
    ):
        jax.clear_caches()
        figures[figure.format(how)] = _seconds(run, key)
    jax.clear_caches()
    return figures


def _init(side: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax
        import jax.numpy as jnp

        from benchmarks import large_models

        on_cpu = jax.default_backend() == "cpu"
        size, count = (large_models.SMALL, "0.16e9") if on_cpu else (large_models.XL, "1.4e9")
        key, unit = jax.random.PRNGKey(0), "CPU s" if on_cpu else "s"
        _seconds(lambda: jax.random.normal(key, [8, 8]) @ jnp.ones([8, 8]))  # the libraries of the device are loaded
        figures: dict[str, float] = {}

        # The transformer first, because it is larger: of memory, the most that the process has taken is known.
        name, init = f"transformer of {count} parameters", large_models.transformer(side, size)
        before = _host_memory()
        figures[f"{name}, {unit}"] = _seconds(init, key)
        at_most = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        figures |= _compiled(side, init, key, f"{name} {{}}, {unit}")
        if not on_cpu:
            shapes = jax.tree.leaves(jax.eval_shape(init, key))
            parameters = sum(leaf.size * leaf.dtype.itemsize for leaf in shapes)
            figures[f"{name}, device memory in sizes of the parameters"] = at_most / parameters
            figures[f"{name}, host memory in sizes of the parameters"] = (_host_memory() - before) / parameters

        name, init = "ResNet-50", large_models.resnet(side)
        figures[f"{name}, {unit}"] = _seconds(init, key)
        figures |= _compiled(side, init, key, f"{name} {{}}, {unit}")
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
    _seconds(init([4]), key, x)
    unit = "CPU s" if jax.default_backend() == "cpu" else "s"
    figures = {f"{n} layers, {unit}": _seconds(init([4] * n), key, x) for n in (1_000, 10_000)}
    if jax.default_backend() == "cpu":
        before = _host_memory()
        params = jax.block_until_ready(init([4096] * 12)(key, jnp.ones([1, 4096])))
        taken = (_host_memory() - before) / hkx.data_structures.tree_bytes(params)
        figures["peak memory of 12 layers of 4096, in sizes of the parameters"] = taken
    return figures


SIDES: dict[str, Callable[[], dict[str, float]]] = {
    **{side: _init(side) for side in ("haiku", "hkx", "flax linen", "flax nnx")},
    "hkx, larger and larger": _growth,
}
