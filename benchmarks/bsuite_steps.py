"""Agents of examples/zoo beside those of bsuite in its experiments: steps a second, as many runs at once as cores.

    python -m benchmarks.bsuite_steps --rounds 10

Each side runs as its own program runs it: ours as `examples/zoo/run.py`, bsuite's as its `run.py`, both with bsuite's
log and one thread of XLA (`PJRT_NPROC=1`), as `examples/zoo/bsuite_sweep.py` starts them. The runs of both sides are
alive at once and take turns of a second or two, so that a machine whose speed changes is as fast for both. A figure is
the sum over the runs of a side.
"""

import argparse
import importlib
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.__main__ import heading, positive

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples" / "zoo"
SETTINGS = {  # an agent of ours, its settings, that of bsuite's, and the steps of a turn
    "dqn": ("dqn", {}, "dqn", 3_200),
    "actor_critic": ("actor_critic", {}, "actor_critic", 6_400),
    "actor_critic, LSTM of 256": ("actor_critic", {"memory": "lstm", "hidden": (256, 256)}, "actor_critic_rnn", 1_600),
    "boot_dqn": ("boot_dqn", {}, "boot_dqn", 160),
}
ALL = ["bandit/0", "catch/0", "catch_noise/0", "catch_noise/10", "catch_scale/10", "discounting_chain/0"]
ALL += ["memory_len/5", "umbrella_length/5", "deep_sea/0", "deep_sea/5", "cartpole/0", "mountain_car/0"]
EXPERIMENTS = {
    "dqn": ALL,
    "actor_critic": ALL,
    "actor_critic, LSTM of 256": ["catch/0"],
    "boot_dqn": ["catch/0"],
}
SIDES = ("ours", "bsuite's")
WARM = 960  # steps before those that are measured


def our_run(environment: Any, name: str, settings: dict[str, Any]) -> Callable[[int], Any]:
    """A function that plays a number of steps and learns from them."""
    sys.path.insert(0, str(EXAMPLES))
    from agents import FILES, players  # pyright: ignore[reportMissingImports]
    from environments import on_host  # pyright: ignore[reportMissingImports]

    environments = on_host.of_dm_env([environment])
    config = FILES[name].Config(**settings)
    made = FILES[name].make(config, environments.observation_spec, environments.action_spec)
    player = players.OnHost(made, environments, environments, 0)
    return lambda steps: player.advance(steps // made.unroll)


def run_of_bsuite(environment: Any, name: str) -> Callable[[int], Any]:
    """The same for one of bsuite's: what `bsuite.baselines.experiment.run` does, which counts episodes."""
    module = importlib.import_module(f"bsuite.baselines.jax.{name}")
    agent = module.default_agent(environment.observation_spec(), environment.action_spec(), 0)
    timestep = environment.reset()

    def run(steps: int) -> None:
        nonlocal timestep
        for _ in range(steps):
            if timestep.last():
                timestep = environment.reset()
            action = agent.select_action(timestep)
            after = environment.step(action)
            agent.update(timestep, action, after)
            timestep = after

    return run


def worker(side: str, agent: str, experiment: str) -> None:
    """Prints the steps a second of one turn for each line that it reads."""
    import bsuite
    import jax

    if side == "ours":
        jax.config.update("jax_cpu_enable_async_dispatch", False)  # as run.py does
    name, settings, baseline, steps = SETTINGS[agent]
    with tempfile.TemporaryDirectory() as folder:
        environment = bsuite.load_and_record_to_csv(experiment, folder, overwrite=True)
        run = our_run(environment, name, settings) if side == "ours" else run_of_bsuite(environment, baseline)
        run(WARM)
        print("ready", flush=True)
        for _ in sys.stdin:
            begin = time.perf_counter()
            run(steps)
            print(steps / (time.perf_counter() - begin), flush=True)


def started(side: str, agent: str, experiment: str) -> list[Any]:
    """As many runs as there are cores."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bsuite_steps", "--run", side, agent, experiment]
    environment = os.environ | {"PJRT_NPROC": "1", "JAX_PLATFORMS": "cpu"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return [subprocess.Popen(command, env=environment, **pipes) for _ in range(os.cpu_count() or 1)]


def turn(runs: list[Any]) -> float:
    """Steps a second of one turn of all runs of a side."""
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    return sum(float(run.stdout.readline()) for run in runs)


def rates(agent: str, experiment: str, rounds: int) -> list[tuple[float, ...]]:
    """Steps a second of both sides, in each round."""
    sides = [started(side, agent, experiment) for side in SIDES]
    try:
        for run in itertools.chain(*sides):
            while (line := run.stdout.readline()) != "ready\n":  # bsuite says where it logs
                if not line:
                    raise RuntimeError(f"{agent} on {experiment}: a run ended with exit status {run.wait()}")
        return [tuple(turn(runs) for runs in sides) for _ in range(rounds)]
    finally:
        for run in itertools.chain(*sides):
            run.communicate()  # without further turns it ends, and removes its log


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bsuite_steps", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=10, help="turns of each side (default: 10)")
    parser.add_argument("--agents", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS), help="default: all")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        worker(*options.run)
        return
    print(heading())
    print("| agent | experiment | ours | bsuite's | ratio (lowest to highest) |\n|---|---|---|---|---|")
    for agent, experiment in [(name, each) for name in options.agents for each in EXPERIMENTS[name]]:
        found = rates(agent, experiment, options.rounds)
        ours, theirs = (statistics.median(side) for side in zip(*found, strict=True))
        ratios = [one / other for one, other in found]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {agent} | {experiment} | {ours:,.0f} | {theirs:,.0f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
