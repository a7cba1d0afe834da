"""Losses and distributions of rlx at the sizes of training, against RLax's: values, and values with gradients.

    python -m benchmarks.rlx_losses [--seconds 1] [--operators entropy_loss ...]

Both libraries' functions go under `jax.jit(jax.vmap(...))`, as in `benchmarks.rlx_returns`, with a mean over the batch.
The gradient is with respect to what is learned: logits, values or quantiles. Runs alternate between the two, and each
is judged by its fastest run; the ratio is ours over RLax's, below one is faster. Pin the program to one core
(`taskset -c 0 python -m benchmarks.rlx_losses`), so that both have one thread.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rlx
from benchmarks.rlx_returns import Draw

ACTIONS, ATOMS, QUANTILES = 18, 51, 200
ATOMS_AT = np.linspace(-10, 10, ATOMS).astype(np.float32)
LEVELS = ((np.arange(QUANTILES) + 0.5) / QUANTILES).astype(np.float32)

Case = tuple[str, Callable[[Any], Callable[..., Any]], tuple[jax.Array, ...], tuple[int, ...]]


def cases() -> Iterator[Case]:
    """(name, library -> function of one example's arrays, arguments of the batch, the arguments that are learned)."""
    yield from of_steps(Draw(80, 256))
    yield from of_values(Draw(1, 4096))
    yield from of_value_distributions(Draw(1, 256))


def of_steps(d: Draw) -> Iterator[Case]:
    """Of sequences of 80 steps with 18 actions."""

    def logits() -> jax.Array:
        return d.normal(ACTIONS)

    def actions() -> jax.Array:
        return jnp.asarray(d.rng.integers(0, ACTIONS, size=(d.batch, d.steps)), jnp.int32)

    ones = jnp.ones([d.batch, d.steps])
    yield "policy_gradient_loss", lambda lib: lib.policy_gradient_loss, (logits(), actions(), d.normal(), ones), (0,)
    yield "entropy_loss", lambda lib: lib.entropy_loss, (logits(), ones), (0,)
    for name in ("qpg_loss", "rm_loss", "rpg_loss"):
        yield name, lambda lib, name=name: getattr(lib, name), (logits(), logits()), (0,)
    yield (
        "clipped_surrogate_pg_loss",
        lambda lib: lambda ratios, adv: lib.clipped_surrogate_pg_loss(ratios, adv, 0.2),
        (jnp.exp(0.1 * d.normal()), d.normal()),
        (0,),
    )
    yield "softmax().logprob", lambda lib: lambda x, a: lib.softmax().logprob(a, x), (logits(), actions()), (0,)
    yield "softmax().entropy", lambda lib: lambda x: lib.softmax().entropy(x), (logits(),), (0,)
    yield "softmax().kl", lambda lib: lambda x, y: lib.softmax().kl(x, y), (logits(), logits()), (0,)
    yield "categorical_kl_divergence", lambda lib: lib.categorical_kl_divergence, (logits(), logits()), (0,)
    moments = (d.normal(6), jnp.exp(0.1 * d.normal(6)))
    gaussian = (d.normal(6), *moments)
    gaussians = (*moments, d.normal(6), jnp.exp(0.1 * d.normal(6)))
    kl = "multivariate_normal_kl_divergence"
    yield kl, lambda lib: lambda *x: lib.multivariate_normal_kl_divergence(*x), gaussians, (0, 1, 2, 3)
    yield "gaussian_diagonal().logprob", lambda lib: lambda *x: lib.gaussian_diagonal().logprob(*x), gaussian, (1, 2)


def of_values(d: Draw) -> Iterator[Case]:
    """Of single steps with 18 action values."""

    def q() -> jax.Array:
        return d.normal(ACTIONS)[:, 0]

    def one(*shape: int) -> jax.Array:
        return d.normal(*shape)[:, 0]

    action = jnp.asarray(d.rng.integers(0, ACTIONS, size=d.batch), jnp.int32)
    step = (one(), jnp.full(d.batch, 0.99))
    yield "td_learning", lambda lib: lib.td_learning, (one(), *step, one()), (0,)
    yield "q_learning", lambda lib: lib.q_learning, (q(), action, *step, q()), (0,)
    yield "double_q_learning", lambda lib: lib.double_q_learning, (q(), action, *step, q(), q()), (0,)
    yield "expected_sarsa", lambda lib: lib.expected_sarsa, (q(), action, *step, q(), jax.nn.softmax(q())), (0,)
    yield "l2_loss", lambda lib: lib.l2_loss, (one(64), one(64)), (0,)
    yield "huber_loss", lambda lib: lib.huber_loss, (one(64),), (0,)
    yield "transform_to_2hot", lambda lib: lambda x: lib.transform_to_2hot(x, -300.0, 300.0, 601), (100 * one(),), ()
    yield "logit", lambda lib: lib.logit, (jax.nn.sigmoid(one(64)),), (0,)
    yield "signed_logp1", lambda lib: lib.signed_logp1, (one(64),), (0,)
    yield "signed_expm1", lambda lib: lib.signed_expm1, (one(64),), (0,)
    yield "power, p = 0.3", lambda lib: lambda x: lib.power(x, 0.3), (one(64),), (0,)
    yield "power, p = 2", lambda lib: lambda x: lib.power(x, 2.0), (one(64),), (0,)
    yield "power, p = 0.5", lambda lib: lambda x: lib.power(x, 0.5), (one(64),), (0,)
    yield "signed_hyperbolic", lambda lib: lib.signed_hyperbolic, (10 * one(64),), (0,)
    yield "signed_parabolic", lambda lib: lib.signed_parabolic, (10 * one(64),), (0,)


def of_value_distributions(d: Draw) -> Iterator[Case]:
    """Of single steps with 51 atoms or 200 quantiles for each of six action values."""

    def one(*shape: int) -> jax.Array:
        return d.normal(*shape)[:, 0]

    action, step = d.action()[:, 0], (one(), jnp.full(d.batch, 0.99))
    atoms, probs = jnp.sort(one(ATOMS)), jax.nn.softmax(one(ATOMS))
    yield "categorical_l2_project", lambda lib: lib.categorical_l2_project, (one(ATOMS), probs, atoms), (0, 1)
    yield (
        "categorical_q_learning",
        lambda lib: lambda q, a, r, g, q_t: lib.categorical_q_learning(ATOMS_AT, q, a, r, g, ATOMS_AT, q_t),
        (one(6, ATOMS), action, *step, one(6, ATOMS)),
        (0,),
    )
    yield (
        "quantile_q_learning",
        lambda lib: lambda q, a, r, g, q_t: lib.quantile_q_learning(q, LEVELS, a, r, g, q_t, q_t, 1.0),
        (one(QUANTILES, 6), action, *step, one(QUANTILES, 6)),
        (0,),
    )
    yield (
        "quantile_regression_loss",
        lambda lib: lambda x, target: lib.quantile_regression_loss(x, LEVELS, target),
        (one(QUANTILES), one(QUANTILES)),
        (0,),
    )


def programs(make: Callable[[Any], Callable[..., Any]], learned: tuple[int, ...], library: Any) -> dict[str, Any]:
    """The compiled function, and its value and gradient where something is learned."""
    function = jax.vmap(make(library))
    found = {"value": jax.jit(function)}
    if learned:

        def mean(*arguments: jax.Array) -> Any:
            return sum(jnp.mean(x) for x in jax.tree.leaves(function(*arguments)))

        found["with gradient"] = jax.jit(jax.value_and_grad(mean, argnums=learned))
    return found


def compare(case: Case, seconds: float) -> dict[str, tuple[float, float]]:
    """For the value, and for the value with its gradient: seconds of rlx's and of RLax's fastest run, in turn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import rlax
    _, make, arguments, learned = case
    ours, theirs = programs(make, learned, rlx), programs(make, learned, rlax)
    fastest = {}
    for what in ours:
        sides, times = [ours[what], theirs[what]], ([], [])
        for one, other in zip(*(jax.tree.leaves(run(*arguments)) for run in sides), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)
        end, turn = time.perf_counter() + seconds, 0
        while time.perf_counter() < end or len(times[1]) < 20:
            for i in (0, 1) if turn % 2 else (1, 0):
                start = time.perf_counter()
                jax.block_until_ready(sides[i](*arguments))
                times[i].append(time.perf_counter() - start)
            turn += 1
        fastest[what] = (min(times[0]), min(times[1]))
    return fastest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to run the two in turn, for each ratio")
    parser.add_argument("--operators", nargs="*", default=[], help="names to time; all by default")
    flags = parser.parse_args()
    device = jax.devices()[0]
    print(f"jax {jax.__version__} on {device.platform} ({device.device_kind}); ratio = rlx / RLax, below 1 is faster\n")
    print("| operator | value, ms | RLax, ms | ratio | with gradient, ms | RLax, ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for case in cases():
        if flags.operators and case[0] not in flags.operators:
            continue
        times = compare(case, flags.seconds)
        ratios.append([ours / theirs for ours, theirs in times.values()])
        columns = [f"{1e3 * ours:.3f} | {1e3 * theirs:.3f} | {ours / theirs:.2f}" for ours, theirs in times.values()]
        print(f"| {case[0]} | {' | '.join([*columns, *['| |'] * (2 - len(columns))])} |", flush=True)
    if ratios:
        print(f"\nmedian ratio with gradient: {statistics.median(r[-1] for r in ratios if len(r) > 1):.2f}")


if __name__ == "__main__":
    main()
