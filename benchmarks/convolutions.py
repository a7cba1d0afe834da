"""The gradient of the Nature network, 32 pictures, in CPU ms: plain, and in `jax.lax.scan`."""

from __future__ import annotations

from collections.abc import Callable

REFERENCE = "xla"


def _running(side: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax
        import jax.numpy as jnp

        import hkx
        from benchmarks import harness

        def network(x: jax.Array) -> jax.Array:
            for channels, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
                layer = hkx.Conv2D(channels, kernel, stride, padding="VALID", implementation=side)
                x = jax.nn.relu(layer(x))
            return hkx.nets.MLP([512, 6])(hkx.Flatten()(x))

        model = hkx.without_apply_rng(hkx.transform(network))
        x = jnp.ones([32, 84, 84, 4])
        params = model.init(jax.random.key(0), x)

        @jax.jit
        def plain(params: hkx.Params) -> hkx.Params:
            return jax.grad(lambda params: (model.apply(params, x) ** 2).mean())(params)

        @jax.jit
        def scanned(params: hkx.Params) -> hkx.Params:
            def step(params: hkx.Params, _: None) -> tuple[hkx.Params, None]:
                return jax.tree.map(lambda p, g: p - 1e-9 * g, params, plain(params)), None

            return jax.lax.scan(step, params, length=2)[0]

        figures, clock = {}, harness.clock()
        for what, run, steps in (("plain", plain, 1), ("in scan", scanned, 2)):
            times = []
            for _ in range(5):
                start = clock()
                jax.block_until_ready(run(params))
                times.append(clock() - start)
            figures[f"{what}, ms"] = min(times[1:]) / steps * 1e3
        return figures

    return measure


SIDES = {side: _running(side) for side in ("xla", "dot")}
