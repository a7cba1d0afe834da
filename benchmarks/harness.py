"""How a benchmark is run: every side in a fresh process, the sides in turn, several rounds, medians and ratios.

A benchmark is a module with `SIDES`, a dict from the name of a side to a function that measures itself and returns a
dict of figures, and `REFERENCE`, the side that the others are compared with. A side whose library is not installed is
left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

LIBRARIES = {
    "haiku": "haiku",
    "rlax": "rlax",
    "rlx over rlax": "rlax",
    "flax linen": "flax",
    "flax nnx": "flax",
    "equinox": "equinox",
    "rlx over flashbax": "flashbax",
    "transformers": "transformers",
    "llama.cpp, F16": "xllamacpp",
    "rejax": "rejax",
    "gymnax, random actions": "gymnax",
}


def installed(side: str) -> bool:
    """Whether the library that a side needs is there."""
    return side not in LIBRARIES or importlib.util.find_spec(LIBRARIES[side]) is not None


def measure(module: str, side: str) -> dict[str, float]:
    """The figures of one side, from a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.harness", module, side]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module}, {side}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def clock() -> Callable[[], float]:
    """Seconds of the processors where the device is a CPU, so that other programs disturb little; else of the clock."""
    import jax

    return time.process_time if jax.default_backend() == "cpu" else time.perf_counter


def run(
    module: str, rounds: int, rows: list[dict[str, Any]], tick: Callable[[str], Any], failed: Callable[[str], Any]
) -> None:
    """Adds to `rows` one for each figure and side, with the median, the ratio to the reference and its spread.

    A side that fails is left out, and `failed` is told why. When interrupted, it adds what has been measured.
    """
    benchmark = importlib.import_module(module)
    results: dict[str, list[dict[str, float]]] = {side: [] for side in benchmark.SIDES if installed(side)}
    try:
        for _ in range(rounds):
            for side in tuple(results):
                tick(f"{module.rpartition('.')[2]}: {side}")
                try:
                    results[side].append(measure(module, side))
                except RuntimeError as error:
                    failed(str(error))
                    del results[side]
    finally:
        rows += _rows(module, benchmark.REFERENCE, {side: values for side, values in results.items() if values})


def _rows(module: str, reference: str, results: dict[str, list[dict[str, float]]]) -> Iterable[dict[str, Any]]:
    for figure in dict.fromkeys(f for rounds in results.values() for f in rounds[0]):
        for side, rounds in results.items():
            if figure not in rounds[0]:
                continue
            values = [r[figure] for r in rounds]
            row = {
                "benchmark": module.rpartition(".")[2],
                "figure": figure,
                "side": side,
                "median": statistics.median(values),
                "values": values,
            }
            against = results.get(reference, [])
            if against and figure in against[0]:
                ratios = [v / r[figure] for v, r in zip(values, against, strict=False) if r[figure]]  # of whole rounds
                if ratios:
                    row.update(ratio=statistics.median(ratios), lowest=min(ratios), highest=max(ratios))
            yield row


if __name__ == "__main__":
    print(json.dumps(importlib.import_module(sys.argv[1]).SIDES[sys.argv[2]]()))
