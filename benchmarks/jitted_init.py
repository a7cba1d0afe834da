"""`jax.jit(init)`: temporary memory of the program in MB per device, and CPU seconds to trace, lower and compile it.

The perceptron has eight layers of 1,024 units (33.6 MB of parameters), whole and divided over eight devices; ResNet-50
is whole, and `init` is given arrays, so that the first averages of its normalisation come from the forward pass.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

REFERENCE = "haiku"


def _compiled(init: Any, arguments: tuple[Any, ...], shardings: Any = None) -> tuple[float, float]:
    """Temporary megabytes, and CPU seconds."""
    import jax

    start = time.process_time()
    program = (jax.jit(init) if shardings is None else jax.jit(init, out_shardings=shardings)).lower(*arguments)
    memory = program.compile().memory_analysis().temp_size_in_bytes
    return memory / 1e6, time.process_time() - start


def _measured(side: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
        import jax
        import jax.numpy as jnp

        from benchmarks import models

        library = models.library(side)
        key, x = jax.random.PRNGKey(0), jnp.ones([1, 1024])
        perceptron = library.transform(lambda x: library.nets.MLP([1024] * 8)(x))
        divided = models.divided(jax.eval_shape(perceptron.init, key, x))
        resnet = library.transform_with_state(lambda x: library.nets.ResNet50(1000)(x, True))
        picture = jnp.ones([1, 224, 224, 3])
        cases = {
            "perceptron": _compiled(perceptron.init, (key, x)),
            "perceptron in 8 parts": _compiled(perceptron.init, (key, x), divided),
            "ResNet-50": _compiled(resnet.init, (key, picture)),
        }
        return {
            f"{name}, {what}": value
            for name, (memory, seconds) in cases.items()
            for what, value in (("temporary MB", memory), ("s to compile", seconds))
        }

    return measure


SIDES = {side: _measured(side) for side in ("hkx", "haiku")}
