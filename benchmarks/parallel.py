"""Data-parallel training of ResNet-18 by `examples/data_parallel.py` on 1, 2, 4 and 8 virtual devices.

The devices are made out of one CPU, which they share, so that the images per second cannot grow with their number: what
can be seen is what it costs to divide the same batch among more of them. The share outside the compiled step is the
time for preparing a batch and putting it on the devices, as a part of the time for that and the step after it. In the
training loop the two overlap, so that it is what the loop loses at most.
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import time
from collections.abc import Callable

REFERENCE = "mesh, 1 device"
BATCH_SIZE, STEPS = 64, 10


def _side(strategy: str, devices: int) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax

        jax.config.update("jax_num_cpu_devices", devices)
        sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))
        import data_parallel
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        config = data_parallel.Config(strategy=strategy, batch_size=BATCH_SIZE)
        everywhere = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec())
        by = data_parallel.make_strategy(strategy, everywhere)
        create, step, _ = data_parallel.make_training(config, by.axis, by.compile)
        images, _ = data_parallel.load(config.image_size, devices)
        learner = by.spread(jax.device_put(create(), everywhere))
        learner = step(learner, by.divide(data_parallel.batch_of(config, images, 0)))  # compiles
        jax.block_until_ready(learner)
        begun = time.perf_counter()
        for n in range(STEPS):
            learner = jax.block_until_ready(step(learner, by.divide(data_parallel.batch_of(config, images, n))))
        jax.block_until_ready(learner)
        speed, shares = STEPS * BATCH_SIZE / (time.perf_counter() - begun), []
        for n in range(STEPS):
            begun = time.perf_counter()
            batch = jax.block_until_ready(by.divide(data_parallel.batch_of(config, images, n)))
            prepared = time.perf_counter()
            learner = jax.block_until_ready(step(learner, batch))
            shares.append((prepared - begun) / (time.perf_counter() - begun))
        return {"images per second": speed, "share outside the compiled step": statistics.median(shares)}

    return measure


SIDES = {
    f"{strategy}, {devices} device{'s' * (devices > 1)}": _side(strategy, devices)
    for strategy in ("mesh", "pmap")
    for devices in (1, 2, 4, 8)
}
