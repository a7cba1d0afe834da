"""Agents of examples/agents beside those of bsuite in its experiments: steps a second, as many runs at once as cores.

Each side runs as its own program runs it: ours as `examples/run.py`, bsuite's as its `run.py`, both with bsuite's log
and one thread of XLA (`PJRT_NPROC=1`), as `examples/bsuite_sweep.py` starts them. A figure is the sum over the runs.
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

REFERENCE = "bsuite"
EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
SETTINGS = {  # an agent of ours, its settings, that of bsuite's, and the steps of a run
    "dqn": ("dqn", {}, "dqn", 5_000),
    "actor_critic": ("actor_critic", {}, "actor_critic", 5_000),
    "actor_critic, LSTM of 256": ("actor_critic", {"memory": "lstm", "hidden": (256, 256)}, "actor_critic_rnn", 2_500),
    "boot_dqn": ("boot_dqn", {}, "boot_dqn", 500),
}
EXPERIMENTS = [
    *(("dqn", name) for name in ("catch/0", "cartpole/0", "discounting_chain/0", "deep_sea/0", "mountain_car/0")),
    *((agent, "catch/0") for agent in ("actor_critic", "actor_critic, LSTM of 256", "boot_dqn")),
]
WARM = 1_000  # steps before those that are measured


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
    """Plays when it is told to, and prints the steps a second."""
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
        sys.stdin.readline()
        begin = time.perf_counter()
        run(steps)
        print(json.dumps(steps / (time.perf_counter() - begin)))


def rate(side: str, agent: str, experiment: str) -> float:
    """Steps a second of as many runs as there are cores."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bsuite_steps", side, agent, experiment]
    environment = os.environ | {"PJRT_NPROC": "1", "JAX_PLATFORMS": "cpu"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen(command, env=environment, **pipes) for _ in range(os.cpu_count() or 1)]
    for run in runs:
        while (line := run.stdout.readline()) != "ready\n":  # bsuite says where it logs
            assert line, f"{side}, {agent} on {experiment} ended with {run.wait()}"
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    return sum(json.loads(run.communicate()[0].splitlines()[-1]) for run in runs)


def rates(side: str) -> dict[str, float]:
    return {f"{agent} on {name}, steps a second": rate(side, agent, name) for agent, name in EXPERIMENTS}


SIDES = {side: partial(rates, side) for side in ("ours", "bsuite")}

if __name__ == "__main__":
    worker(*sys.argv[1:])
