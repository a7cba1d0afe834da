"""Time to trace `jax.jit(jax.vmap(operator))`, for every operator that RLax has too: rlx against RLax, in turn.

    python -m benchmarks.rlx_tracing [--operators q_learning ...] [--traces 200]

The arguments are those of the registry of the tests, in batches of four. The two libraries trace new functions in turn,
one at a time, since a machine is now faster and now slower: a time is the median of all traces, and the ratio the
median of those of neighbours. Operators that RLax cannot trace with these arguments are left out, and named.
"""

import argparse
import pathlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rlx

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "rlx"))


def batches(case: Any) -> dict[str, jax.Array]:
    """Four times the arguments of a case, in the dtypes that programs use."""
    arguments = {name: np.asarray(x) for name, x in case.make(np.random.default_rng(0)).items()}
    narrow = {name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in arguments.items()}
    return {name: jnp.stack([jnp.asarray(x)] * 4) for name, x in narrow.items()}


def traced(case: Any, library: Any, arguments: dict[str, jax.Array]) -> Callable[[], Any]:
    """A function that traces the operator once more, as if for the first time."""

    def trace() -> Any:
        def mapped(*arrays: jax.Array) -> Any:
            return case.run(dict(zip(arguments, arrays, strict=True)), library)

        return jax.jit(jax.vmap(mapped)).trace(*arguments.values())

    return trace


def seconds(trace: Callable[[], Any]) -> float:
    start = time.process_time()
    trace()
    return time.process_time() - start


def compare(sides: list[Callable[[], Any]], traces: int) -> tuple[float, float, float]:
    """Seconds that either takes, and the ratio of the first to the second."""
    pairs = []
    for i in range(traces):
        first, second = sides if i % 2 else sides[::-1]
        pair = seconds(first), seconds(second)
        pairs.append(pair if i % 2 else pair[::-1])
    ours, theirs = map(statistics.median, zip(*pairs, strict=True))
    return ours, theirs, statistics.median(a / b for a, b in pairs)


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import rlax
    import operator_registry as registry

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="*", default=[], help="names to time; all by default")
    parser.add_argument("--traces", type=int, default=200, help="traces of each library")
    flags = parser.parse_args()
    print(f"jax {jax.__version__}, rlax {rlax.__version__}; ms of CPU time, ratio = rlx / RLax, below 1 is faster\n")
    print("| operator | rlx | RLax | ratio |\n|---|---|---|---|")
    sums, left_out = [0.0, 0.0], []
    for case in registry.RLAX:
        if flags.operators and case.name not in flags.operators:
            continue
        arguments = batches(case)
        sides = [traced(case, library, arguments) for library in (rlx, rlax)]
        try:
            for trace in sides:
                trace()
        except Exception:  # RLax raises whatever it stumbles over
            left_out.append(case.name)
            continue
        ours, theirs, ratio = compare(sides, flags.traces)
        sums = [sums[0] + ours, sums[1] + theirs]
        print(f"| {case.name} | {1e3 * ours:.2f} | {1e3 * theirs:.2f} | {ratio:.2f} |", flush=True)
    print(f"| sum | {1e3 * sums[0]:.1f} | {1e3 * sums[1]:.1f} | {sums[0] / sums[1]:.2f} |")
    print(f"\nleft out: {', '.join(left_out) or 'none'}")


if __name__ == "__main__":
    main()
