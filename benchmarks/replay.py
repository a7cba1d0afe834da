"""Replay of rlx against flashbax: time of a step and memory, in one process, taken in turn.

    python -m benchmarks.replay [--rounds 20]

A step adds one item of each environment, draws a batch and, where there are any, sets new priorities; what is learnt
from the batch is one sum over it. Either all steps are one compiled loop, or the three are compiled and called from
Python, the state donated to them. Replays are full. Runs of the two alternate, and each is judged by its fastest one
(other programs disturb it least); the ratio of medians stands beside that of the fastest (ours over flashbax's; below
one is faster). On a CPU the time is that of the processors. Memory is that of the loop: the state and what it needs
beside it.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import rlx
from benchmarks import harness

EXPONENT, BETA = 0.6, 0.4
SETTINGS = {  # environments, capacity, batch, numbers in an observation
    "128 environments, 256 of 100,000": (128, 100_000, 256, 17),
    "10 environments, 128 of 10,000": (10, 10_000, 128, 4),
}
STEPS_OF_A_LOOP, STEPS_OF_CALLS = 1000, 200


class Functions(NamedTuple):
    """What both libraries do in a step, under one name each."""

    init: Callable[..., Any]  # item -> state
    add: Callable[..., Any]  # state, items -> state
    sample: Callable[..., Any]  # state, key -> items, indices, weights
    update: Callable[..., Any] | None  # state, indices, priorities -> state


def of_rlx(prioritised: bool, capacity: int, batch: int) -> Functions:
    replay = rlx.replay.prioritised(capacity, EXPONENT, BETA) if prioritised else rlx.replay.uniform(capacity)
    sample = functools.partial(replay.sample, n=batch)
    return Functions(replay.init, replay.add_batch, sample, replay.update_priorities if prioritised else None)


def of_flashbax(prioritised: bool, capacity: int, batch: int) -> Functions:
    """flashbax's, with the weights that its users compute from its probabilities."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import flashbax
    if not prioritised:
        replay = flashbax.make_item_buffer(capacity, 1, batch, add_batches=True)
        return Functions(replay.init, replay.add, lambda s, key: (replay.sample(s, key).experience, None, 1.0), None)
    replay = flashbax.make_prioritised_item_buffer(
        capacity, 1, batch, add_batches=True, priority_exponent=EXPONENT, device=jax.default_backend()
    )

    def sample(state: Any, key: Any) -> Any:
        drawn = replay.sample(state, key)
        weights = (capacity * drawn.probabilities) ** -BETA
        return drawn.experience, drawn.indices, weights / jnp.max(weights)

    return Functions(replay.init, replay.add, sample, replay.set_priorities)


class Program(NamedTuple):
    """One library in one setting."""

    loop: Callable[[Any], Any]  # state -> state, losses; compiled
    calls: Callable[[Any], Any]  # state -> state, the last batch
    state: Any
    megabytes: float


def program(functions: Functions, environments: int, capacity: int, batch: int, width: int) -> Program:
    observation, number = jnp.zeros(width), jnp.zeros([])
    item = {"s_tm1": observation, "a_tm1": jnp.int32(0), "r_t": number, "discount_t": number, "s_t": observation}
    new = jax.tree.map(lambda x: jnp.ones((environments, *x.shape), x.dtype), item)

    def learn(items: Any, weights: Any) -> Any:
        td_error = items["r_t"] + items["discount_t"] * items["s_t"].sum(-1) - items["s_tm1"].sum(-1)
        return jnp.abs(td_error), jnp.mean(weights * td_error**2)

    def step(state: Any, key: Any) -> Any:
        state = functions.add(state, jax.tree.map(lambda x: x + key[0].astype(x.dtype), new))
        items, indices, weights = functions.sample(state, key)
        priorities, loss = learn(items, weights)
        return (state if functions.update is None else functions.update(state, indices, priorities + 0.01)), loss

    keys = jax.random.split(jax.random.PRNGKey(0), STEPS_OF_A_LOOP)
    some_keys, priorities = list(keys[:STEPS_OF_CALLS]), jnp.linspace(0.1, 1, batch)
    add, sample = jax.jit(functions.add, donate_argnums=0), jax.jit(functions.sample)
    update = functions.update and jax.jit(functions.update, donate_argnums=0)

    def calls(state: Any) -> Any:
        for key in some_keys:
            state = add(state, new)
            items, indices, _ = sample(state, key)
            state = state if update is None else update(state, indices, priorities)
        return state, items

    full = -(-capacity // environments)
    fill = jax.jit(lambda state: jax.lax.scan(lambda s, _: (functions.add(s, new), None), state, None, full)[0])
    state = fill(functions.init(item))
    loop = jax.jit(lambda state: jax.lax.scan(step, state, keys), donate_argnums=0).lower(state).compile()
    memory = loop.memory_analysis()
    return Program(loop, calls, state, (memory.alias_size_in_bytes + memory.temp_size_in_bytes) / 1e6)


def compare(prioritised: bool, setting: str, rounds: int) -> dict[str, dict[str, list[float]]]:
    """By library, microseconds a step of the runs in turn, and megabytes."""
    environments, capacity, batch, width = SETTINGS[setting]
    programs = {
        name: program(make(prioritised, capacity, batch), environments, capacity, batch, width)
        for name, make in (("rlx", of_rlx), ("flashbax", of_flashbax))
    }
    found = {name: {"in a loop, µs": [], "calls, µs": [], "memory, MB": [p.megabytes]} for name, p in programs.items()}
    clock = harness.clock()
    states = {name: p.state for name, p in programs.items()}
    for _ in range(rounds + 1):
        for name, p in programs.items():
            for what, run, steps in (
                ("in a loop, µs", p.loop, STEPS_OF_A_LOOP),
                ("calls, µs", p.calls, STEPS_OF_CALLS),
            ):
                start = clock()
                states[name], _ = jax.block_until_ready(run(states[name]))
                found[name][what].append((clock() - start) / steps * 1e6)
    for times in found.values():
        del times["in a loop, µs"][0], times["calls, µs"][0]  # the first calls compile
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="how often each side is run (default: 20)")
    flags = parser.parse_args()
    print(f"jax {jax.__version__} on {jax.default_backend()}; ratio = rlx / flashbax, below 1 is better\n")
    print("| replay | setting | figure | rlx | flashbax | ratio | ratio of medians |")
    print("|---|---|---|---|---|---|---|")
    for name, prioritised in (("prioritised", True), ("uniform", False)):
        for setting in SETTINGS:
            found = compare(prioritised, setting, flags.rounds)
            for what in found["rlx"]:
                ours, theirs = found["rlx"][what], found["flashbax"][what]
                medians = statistics.median(ours) / statistics.median(theirs)
                print(
                    f"| {name} | {setting} | {what} | {min(ours):.3g} | {min(theirs):.3g} "
                    f"| {min(ours) / min(theirs):.2f} | {medians:.2f} |",
                    flush=True,
                )


def ratios() -> dict[str, float]:
    """rlx to flashbax, the fastest of a few runs in turn."""
    figures = {}
    for name, prioritised in (("prioritised", True), ("uniform", False)):
        for setting in SETTINGS:
            found = compare(prioritised, setting, 5)
            for what in found["rlx"]:
                figures[f"{name}, {setting}, {what}"] = min(found["rlx"][what]) / min(found["flashbax"][what])
    return figures


SIDES = {"rlx over flashbax": ratios}
REFERENCE = "flashbax"  # in the figures already

if __name__ == "__main__":
    main()
