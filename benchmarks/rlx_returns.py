"""Multi-step operators of rlx against RLax's: running time and compile time, in one process, taken in turn.

    python -m benchmarks.rlx_returns [--shapes 20x256 128x2048 ...] [--seconds 1] [--operators vtrace ...] [--gradients]

For each operator and each shape (T steps, B sequences) both libraries' functions go under `jax.jit(jax.vmap(...))` with
the same arguments. Runs alternate between the two, so that a busy machine slows both. Each is judged by its fastest run
(other programs disturb it least); the ratio of medians stands beside that of the fastest (ours over RLax's; below one
is faster). Compiling, from tracing to the executable, is counted in CPU seconds, the median of five in turn. On a
machine that does other work too, pin the program to one core (`taskset -c 0 python -m benchmarks.rlx_returns`).
"""

import argparse
import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rlx

NUM_ACTIONS = 6
SHAPES = ((20, 256), (128, 2048), (1024, 16), (16384, 16))


class Draw:
    """Arguments for a batch of B sequences of T steps."""

    def __init__(self, steps: int, batch: int):
        self.rng, self.steps, self.batch = np.random.default_rng(0), steps, batch

    def normal(self, *shape: int, extra: int = 0) -> jax.Array:
        return jnp.asarray(self.rng.normal(size=(self.batch, self.steps + extra, *shape)), jnp.float32)

    def unit(self, *shape: int, extra: int = 0) -> jax.Array:
        return jnp.asarray(self.rng.uniform(0.1, 0.99, size=(self.batch, self.steps + extra, *shape)), jnp.float32)

    def probs(self) -> jax.Array:
        return jax.nn.softmax(self.normal(NUM_ACTIONS))

    def action(self) -> jax.Array:
        return jnp.asarray(self.rng.integers(0, NUM_ACTIONS, size=(self.batch, self.steps)), jnp.int32)

    def q(self) -> jax.Array:
        return self.normal(NUM_ACTIONS)

    def rewards(self) -> tuple[jax.Array, jax.Array]:
        return self.normal(), self.unit()


def cases(d: Draw) -> Iterator[tuple[str, Callable[[Any], Callable[..., Any]], tuple[jax.Array, ...]]]:
    """(name, library -> function of one sequence's arrays, arguments of the batch)."""
    yield "lambda_returns", lambda lib: lambda r, g, v: lib.lambda_returns(r, g, v, 0.95), (*d.rewards(), d.normal())
    yield "discounted_returns", lambda lib: lib.discounted_returns, (*d.rewards(), d.normal())
    for n in (3, 5, 8, 10, 20):
        yield (
            f"n_step_bootstrapped_returns, n = {n}",
            lambda lib, n=n: lambda r, g, v: lib.n_step_bootstrapped_returns(r, g, v, n),
            (*d.rewards(), d.normal()),
        )
    yield (
        "truncated_gae",
        lambda lib: lambda r, g, v: lib.truncated_generalized_advantage_estimation(r, g, 0.95, v),
        (*d.rewards(), d.normal(extra=1)),
    )
    yield "vtrace", lambda lib: lib.vtrace, (d.normal(), d.normal(), *d.rewards(), d.unit())
    yield (
        "vtrace_td_error_and_advantage",
        lambda lib: lambda *x: tuple(lib.vtrace_td_error_and_advantage(*x)),
        (d.normal(), d.normal(), *d.rewards(), d.unit()),
    )
    yield (
        "general_off_policy_returns",
        lambda lib: lib.general_off_policy_returns_from_action_values,
        (d.q(), d.action(), *d.rewards(), d.unit(), d.probs()),
    )
    yield (
        "general_off_policy_returns_from_q_and_v",
        lambda lib: lambda q, v, r, g, c: lib.general_off_policy_returns_from_q_and_v(q[:-1], v, r, g, c[:-1]),
        (d.normal(), d.normal(), *d.rewards(), d.unit()),
    )
    yield (
        "td_lambda",
        lambda lib: lambda v, r, g, w: lib.td_lambda(v, r, g, w, 0.9),
        (d.normal(), *d.rewards(), d.normal()),
    )
    yield (
        "q_lambda",
        lambda lib: lambda q, a, r, g, p: lib.q_lambda(q, a, r, g, p, 0.9),
        (d.q(), d.action(), *d.rewards(), d.q()),
    )
    yield (
        "retrace",
        lambda lib: lambda q, p, a, b, r, g, pi, mu: lib.retrace(q, p, a, b, r, g, pi, mu, 0.9),
        (d.q(), d.q(), d.action(), d.action(), *d.rewards(), d.probs(), d.unit()),
    )
    yield (
        "transformed_n_step_q_learning",
        lambda lib: (
            lambda q, a, p, b, r, g: lib.transformed_n_step_q_learning(
                q, a, p, b, r, g, 5, True, lib.SIGNED_HYPERBOLIC_PAIR
            )
        ),
        (d.q(), d.action(), d.q(), d.action(), *d.rewards()),
    )


def gradients(make: Callable[[Any], Callable[..., Any]]) -> Callable[[Any], Callable[..., Any]]:
    """The same of the gradient of the results' sum in all floating-point arguments."""

    def make_gradient(library: Any) -> Callable[..., Any]:
        def gradient(*arguments: jax.Array) -> Any:
            floats = tuple(i for i, x in enumerate(arguments) if jnp.issubdtype(x.dtype, jnp.floating))

            def total(*given):
                return sum(jnp.sum(x) for x in jax.tree.leaves(make(library)(*given)))

            return jax.grad(total, argnums=floats)(*arguments)

        return gradient

    return make_gradient


def compile_seconds(function: Callable[..., Any], arguments: tuple[jax.Array, ...]) -> tuple[float, Callable[..., Any]]:
    start = time.process_time()
    compiled = jax.jit(jax.vmap(function)).lower(*arguments).compile()
    return time.process_time() - start, compiled


def compare(
    make: Callable[[Any], Callable[..., Any]], arguments: tuple[jax.Array, ...], seconds: float, compilations: int
) -> dict[str, list[float]]:
    """Seconds to compile and to run, for (ours, RLax's) in turn."""
    times: dict[str, list[float]] = {key: [] for key in ("compile_rlx", "compile_rlax", "run_rlx", "run_rlax")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import rlax
    compiled: dict[str, Any] = {}
    libraries = [("rlx", rlx), ("rlax", rlax)]
    for _ in range(compilations):
        for name, library in libraries:
            jax.clear_caches()
            gc.collect()
            spent, compiled[name] = compile_seconds(make(library), arguments)
            times[f"compile_{name}"].append(spent)
        libraries.reverse()
    outputs = [jax.tree.leaves(compiled[name](*arguments)) for name in ("rlx", "rlax")]
    for ours, theirs in zip(*outputs, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["run_rlx"]) < 20:
        for name, _ in libraries:
            start = time.perf_counter()
            jax.block_until_ready(compiled[name](*arguments))
            times[f"run_{name}"].append(time.perf_counter() - start)
        libraries.reverse()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=[f"{t}x{b}" for t, b in SHAPES], help="TxB, steps by sequences")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to run the two in turn, for each ratio")
    parser.add_argument("--operators", nargs="*", default=[], help="names to time; all by default")
    parser.add_argument("--gradients", action="store_true", help="time the gradients in place of the operators")
    flags = parser.parse_args()
    device = jax.devices()[0]
    print(f"jax {jax.__version__} on {device.platform} ({device.device_kind}); ratio = rlx / RLax, below 1 is faster\n")
    print("| operator | T × B | run, ms | RLax, ms | ratio | ratio of medians | compile, ms | RLax, ms | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for shape in flags.shapes:
        steps, batch = map(int, shape.split("x"))
        for name, make, arguments in cases(Draw(steps, batch)):
            if flags.operators and name not in flags.operators:
                continue
            times = compare(gradients(make) if flags.gradients else make, arguments, flags.seconds, 5)
            shown = {key: 1e3 * min(times[key]) for key in ("run_rlx", "run_rlax")}
            shown |= {key: 1e3 * statistics.median(times[key]) for key in ("compile_rlx", "compile_rlax")}
            medians = statistics.median(times["run_rlx"]) / statistics.median(times["run_rlax"])
            print(
                f"| {name} | {steps} × {batch} | {shown['run_rlx']:.3f} | {shown['run_rlax']:.3f} "
                f"| {shown['run_rlx'] / shown['run_rlax']:.2f} | {medians:.2f} | {shown['compile_rlx']:.0f} "
                f"| {shown['compile_rlax']:.0f} | {shown['compile_rlx'] / shown['compile_rlax']:.2f} |",
                flush=True,
            )


def ratios() -> dict[str, float]:
    """rlx to RLax, the fastest runs and the compilations of the two in turn; less exact than `main`."""
    figures = {}
    for steps, batch in SHAPES:
        for name, make, arguments in cases(Draw(steps, batch)):
            best = {key: min(values) for key, values in compare(make, arguments, 0.2, 2).items()}
            for what in ("run", "compile"):
                figures[f"{name} {steps} × {batch}, {what}"] = best[f"{what}_rlx"] / best[f"{what}_rlax"]
    return figures


SIDES = {"rlx over rlax": ratios}
REFERENCE = "rlax"  # in the figures already

if __name__ == "__main__":
    main()
