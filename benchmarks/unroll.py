"""The gradient of an LSTM of 128 units over a sequence: CPU seconds to trace and compile it, ms to run it.

Running time is the smallest of thirty, on a CPU of the processors' time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REFERENCE = "haiku"
STEPS = (20, 40)


def _running(side: str, unroll: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax
        import jax.numpy as jnp

        from benchmarks import harness, models

        library = models.library(side)

        def loss(xs: jax.Array) -> jax.Array:
            core = library.LSTM(128)
            outputs, _ = getattr(library, unroll)(core, xs, core.initial_state(xs.shape[1]))
            return (outputs**2).mean()

        pair = library.without_apply_rng(library.transform(loss))
        figures, clock = {}, harness.clock()
        for steps in STEPS:
            xs = jnp.ones([steps, 8, 32])
            params = pair.init(jax.random.PRNGKey(0), xs)
            start = time.process_time()
            run = jax.jit(jax.grad(pair.apply)).lower(params, xs).compile()
            figures[f"compile {steps} steps, s"] = time.process_time() - start
            times = []
            for _ in range(30):
                start = clock()
                jax.block_until_ready(run(params, xs))
                times.append(clock() - start)
            figures[f"run {steps} steps, ms"] = min(times) * 1e3
        return figures

    return measure


SIDES = {
    "haiku": _running("haiku", "static_unroll"),
    "hkx": _running("hkx", "static_unroll"),
    "hkx, dynamic_unroll": _running("hkx", "dynamic_unroll"),
}
