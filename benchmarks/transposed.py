"""A transposed convolution and its gradient, in ms, on a CPU of the processors' time (the smallest of nine)."""

from __future__ import annotations

from collections.abc import Callable

REFERENCE = "haiku"


def _running(side: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax
        import jax.numpy as jnp

        from benchmarks import harness, models

        library = models.library(side)
        pair = library.without_apply_rng(library.transform(lambda x: library.Conv2DTranspose(64, 4, stride=2)(x)))
        x = jnp.ones([8, 32, 32, 64])
        params = pair.init(jax.random.PRNGKey(0), x)

        def loss(params: object, x: jax.Array) -> jax.Array:
            return (pair.apply(params, x) ** 2).sum()

        figures, clock = {}, harness.clock()
        for what, function in (("forward", loss), ("forward and backward", jax.grad(loss, argnums=(0, 1)))):
            run = jax.jit(function)
            times = []
            for _ in range(10):
                start = clock()
                jax.block_until_ready(run(params, x))
                times.append(clock() - start)
            figures[f"{what}, ms"] = min(times[1:]) * 1e3
        return figures

    return measure


SIDES = {side: _running(side) for side in ("haiku", "hkx")}
