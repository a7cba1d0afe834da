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


def _into_shards(side: str, init: Callable[..., Any]) -> Callable[..., Any]:
    """`init` whose arrays are divided over all devices by their last axis, where that can be done."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("model",), axis_types=(jax.sharding.AxisType.Auto,))

    def sharding(leaf: Any) -> Any:
        divided = leaf.ndim and leaf.shape[-1] % jax.device_count() == 0
        return NamedSharding(mesh, PartitionSpec(*(None,) * (leaf.ndim - 1), "model") if divided else PartitionSpec())

    def run(key: jax.Array) -> Any:
        tree = jax.tree.map(sharding, jax.eval_shape(init, key))
        if side == "hkx":
            import hkx

            return hkx.sharding.sharded_init(init, tree)(key)
        return jax.jit(init, out_shardings=tree)(key)

    return run


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
        # The larger model first: what the process takes at most is read once that is done.
        before = _host_memory()
        for name, init in (
            (f"transformer of {count} parameters", large_models.transformer(side, size)),
            ("ResNet-50", large_models.resnet(side)),
        ):
            figures[f"{name}, {unit}"] = _seconds(init, key)
            if name != "ResNet-50":
                shapes = jax.eval_shape(init, key)
                parameters = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
                if not on_cpu:
                    at_most = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
                    figures[f"{name}, device memory in sizes of the parameters"] = at_most / parameters
            jax.clear_caches()
            figures[f"{name} under jit, {unit}"] = _seconds(jax.jit(init), key)
            jax.clear_caches()
            figures[f"{name} into shards, {unit}"] = _seconds(_into_shards(side, init), key)
            jax.clear_caches()
            if name != "ResNet-50" and not on_cpu:
                figures[f"{name}, host memory in sizes of the parameters"] = (_host_memory() - before) / parameters
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
