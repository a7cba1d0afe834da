"""What one call of a compiled 100-layer perceptron costs, in microseconds of wall time (median of many)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

REFERENCE = "by hand"


def _dispatch(name: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax

        from benchmarks import models

        apply, arguments = models.PERCEPTRONS[name](100)
        call = jax.jit(apply)
        jax.block_until_ready(call(*arguments))
        times = []
        for _ in range(300):
            start = time.perf_counter()
            for _ in range(10):
                out = call(*arguments)
            jax.block_until_ready(out)
            times.append((time.perf_counter() - start) / 10)
        return {"call, µs": statistics.median(times) * 1e6}

    return measure


SIDES = {name: _dispatch(name) for name in ("by hand", "hkx", "haiku", "flax linen", "flax nnx", "equinox")}
