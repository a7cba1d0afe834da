"""What tracing costs: the jaxpr of perceptrons, of a 24-layer transformer and of ResNet-50, in ms of CPU (median).

And that of their gradients, which is what a step of training traces.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

REFERENCE = "by hand"


def _milliseconds(function: Callable[..., Any], arguments: tuple[Any, ...], times: int) -> float:
    import jax

    taken = []
    for _ in range(times + 1):
        start = time.process_time()
        # A new function each time, since JAX remembers what it has traced.
        jax.make_jaxpr(lambda *a, f=function: f(*a))(*arguments)
        taken.append(time.process_time() - start)
    return statistics.median(taken[1:]) * 1e3


def _gradient(function: Callable[..., Any], arguments: tuple[Any, ...], times: int) -> float:
    import jax

    def loss(params: Any, *rest: Any) -> Any:
        return jax.tree.leaves(function(params, *rest))[0].sum()

    return _milliseconds(jax.grad(loss), arguments, times)


def _tracing(side: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        from benchmarks import models

        figures = {}
        for depth in (200, 400):
            figures[f"perceptron of {depth} layers, ms"] = _milliseconds(*models.PERCEPTRONS[side](depth), times=10)
        if side in ("by hand", "hkx", "haiku"):
            library = models.library(side)
            figures["transformer of 24 layers, ms"] = _milliseconds(*models.transformer(library), times=5)
            figures["ResNet-50, ms"] = _milliseconds(*models.resnet(library), times=5)
            figures["gradient of 200 layers, ms"] = _gradient(*models.PERCEPTRONS[side](200), times=5)
            figures["gradient of the transformer, ms"] = _gradient(*models.transformer(library), times=5)
            figures["gradient of ResNet-50, ms"] = _gradient(*models.resnet(library), times=5)
        return figures

    return measure


SIDES = {side: _tracing(side) for side in ("by hand", "hkx", "haiku", "flax linen", "flax nnx", "equinox")}
