"""What XLA makes of it: FLOPs and bytes accessed of the compiled forward and backward pass (`cost_analysis`)."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

REFERENCE = "haiku"


def _costs(side: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax

        from benchmarks import models

        library = models.library(side)
        programs = {
            "perceptron of 20 layers": models.perceptron(library, 20),
            "transformer of 4 layers": models.transformer(library, 4),
            "ResNet-50 at 64 pixels": models.resnet(library),
        }
        if library is not None:
            programs["LSTM"] = _lstm(library)
        figures = {}
        for name, (function, arguments) in programs.items():

            def loss(*arguments: Any, function: Callable[..., Any] = function) -> jax.Array:
                return (jax.tree.leaves(function(*arguments))[0] ** 2).sum()

            for what, program in (("forward", loss), ("backward", jax.grad(loss))):
                cost = jax.jit(program).lower(*arguments).compile().cost_analysis()
                figures[f"{name}, {what}, MFLOP"] = cost["flops"] / 1e6
                figures[f"{name}, {what}, MB accessed"] = cost["bytes accessed"] / 1e6
        return figures

    return measure


def _lstm(library: ModuleType) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import jax.numpy as jnp

    def forward(x: Any) -> Any:
        core = library.LSTM(32)
        return library.dynamic_unroll(core, x, core.initial_state(x.shape[1]))[0]

    x = jnp.ones([20, 8, 16])
    pair = library.without_apply_rng(library.transform(forward))
    return pair.apply, (pair.init(jax.random.PRNGKey(0), x), x)


SIDES = {side: _costs(side) for side in ("haiku", "hkx", "by hand")}
