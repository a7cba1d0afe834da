"""Exclusive or, learned by two inputs, three tanh units and one output: what grad, jit and vmap each do for it.

A case is a pair of truths, written as -1 and 1, and its label is whether they differ. `jax.grad` of the cross-entropy
of one case says how to change the parameters for it. The program computes the gradients of all four cases three times:
with grad alone, which runs Python and one small operation after the other; with jit, which compiles them into one
program; and with vmap, which turns the program for one case into one for all four. It measures each, checks that they
agree, and then goes down the mean of the four gradients.

    pip install hkx tyro && python xor.py
    python examples/xor.py --seed 7

prints (your times will differ, the rest will not)

    grad of one case after the other      93.424 ms for the four cases
    and jit                                0.561 ms, 166.6 times faster
    and vmap                               0.089 ms, 6.3 times faster
    the gradients of the three are the same
    false xor false: 0.00
    false xor true:  1.00
    true  xor false: 1.00
    true  xor true:  0.00
    all four right after 2000 steps

These times are from two busy cores. A published tutorial on JAX reports 13.1 ms and 0.86 ms for one case, 15 times from
jit. Here grad alone also runs the Python of the network anew in every call, and jit leaves that out as well.
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import tyro

    import hkx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the initial weights
    steps: int = 2000  # steps of gradient descent
    learning_rate: float = 1.0  # size of a step
    rounds: int = 7  # rounds of measuring; their median counts


CASES = jnp.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])  # [case, input]
LABELS = jnp.array([0.0, 1.0, 1.0, 0.0])  # [case]


def logit(case: jax.Array) -> jax.Array:
    """The logarithm of the odds, [], that the two inputs, [2], differ."""
    # With weights of size 1, one seed in 35 ends where no step leads on; with these, one in 5000.
    small = hkx.initializers.RandomNormal(stddev=0.2)
    return hkx.nets.MLP([3, 1], activation=jnp.tanh, w_init=small)(case)[0]


network = hkx.without_apply_rng(hkx.transform(logit))


def cross_entropy(params: hkx.Params, case: jax.Array, label: jax.Array) -> jax.Array:
    """- label log p - (1 - label) log (1 - p), for p = sigmoid(logit)."""
    z = network.apply(params, case)
    return jax.nn.softplus(z) - label * z


# The three ways. A way takes parameters to the gradients of the four cases, stacked along a new first axis.
with_grad = jax.grad(cross_entropy)
with_jit = jax.jit(with_grad)
with_vmap = jax.jit(jax.vmap(with_grad, in_axes=(None, 0, 0)))


def one_by_one(gradient: Callable[..., Any], params: hkx.Params) -> list[hkx.Params]:
    return [gradient(params, case, label) for case, label in zip(list(CASES), list(LABELS), strict=True)]


WAYS: dict[str, Callable[[hkx.Params], Any]] = {
    "grad of one case after the other": lambda params: one_by_one(with_grad, params),
    "and jit": lambda params: one_by_one(with_jit, params),
    "and vmap": lambda params: with_vmap(params, CASES, LABELS),
}


def difference(params: hkx.Params) -> float:
    """The largest difference between the gradients that the three ways give."""
    one, two, three = (
        jax.tree.map(lambda *g: jnp.stack(g), *result) if isinstance(result, list) else result
        for result in (way(params) for way in WAYS.values())
    )
    gaps = jax.tree.map(lambda a, b, c: jnp.maximum(abs(a - b), abs(a - c)).max(), one, two, three)
    return float(max(jax.tree.leaves(gaps)))


def milliseconds(way: Callable[[hkx.Params], Any], params: hkx.Params, rounds: int) -> float:
    """The median over the rounds of the time that one call takes, compilation left out."""
    jax.block_until_ready(way(params))
    begin = time.perf_counter()
    jax.block_until_ready(way(params))
    calls = max(1, int(0.02 / (time.perf_counter() - begin)))  # a round of 0.02 s, or of one call
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(way(params))
        times.append((time.perf_counter() - begin) / calls)
    return 1000 * statistics.median(times)


def main(config: Config) -> dict[str, Any]:
    """Measures the three ways, trains, and prints. Returns the times, the final losses and the probabilities."""
    params = network.init(jax.random.key(config.seed), CASES[0])

    times: dict[str, float] = {}
    for name, way in WAYS.items():
        times[name] = milliseconds(way, params, config.rounds)
        before = list(times.values())[-2:-1]
        faster = f", {before[0] / times[name]:.1f} times faster" if before else " for the four cases"
        print(f"{name:36}{times[name]:8.3f} ms{faster}")
    gap = difference(params)
    print(f"the gradients of the three are {'the same' if gap < 1e-5 else f'not the same: they differ by {gap}'}")

    @jax.jit
    def step(params: hkx.Params) -> hkx.Params:
        gradients = with_vmap(params, CASES, LABELS)
        return jax.tree.map(lambda p, g: p - config.learning_rate * g.mean(axis=0), params, gradients)

    for _ in range(config.steps):
        params = step(params)

    probabilities = jax.nn.sigmoid(jax.vmap(network.apply, in_axes=(None, 0))(params, CASES))
    for (a, b), p in zip(CASES > 0, probabilities, strict=True):
        print(f"{str(bool(a)).lower():5} xor {str(bool(b)).lower() + ':':6} {p:.2f}")
    right = int(jnp.sum((probabilities > 0.5) == (LABELS > 0.5)))
    print(f"{'all four' if right == 4 else f'{right} of four'} right after {config.steps} steps")
    return {
        "milliseconds": times,
        "probabilities": [float(p) for p in probabilities],
        "right": right,
        "difference": gap,
    }


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
