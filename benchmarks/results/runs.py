"""Reads the runs of a table, and keeps their results in benchmarks/results/NAME.json."""

import csv
import functools
import json
import math
import os
import pathlib
import platform
import re
from importlib import metadata
from typing import Any

import numpy as np

from benchmarks import gpu
from benchmarks.results.tables import TABLES, Table

TOOK = r"took ([\d.]+) s on (.*)"
"""The last line of a run's log, which `python -m benchmarks.results` writes."""


def cpu_us_a_step(path: pathlib.Path) -> float:
    """CPU time of the second half of the steps in a metrics.csv, where all is compiled."""
    with open(path, newline="") as file:
        points = [(int(row["steps"]), float(row["cpu_seconds"])) for row in csv.DictReader(file)]
    (before, cpu_before), (after, cpu_after) = points[(len(points) - 1) // 2], points[-1]
    return 1e6 * (cpu_after - cpu_before) / (after - before)


def read_metrics(folder: pathlib.Path, column: str, agent: int) -> tuple[list[tuple[int, float]], list[float], float]:
    """The curve of a run, the final return if that is kept, and the CPU µs a step."""
    if (path := folder / "metrics.json").exists():  # of programs that are compiled whole
        metrics = json.loads(path.read_text())
        curve, seconds = metrics["curve"], metrics["cpu_seconds_to_compile"] + metrics["cpu_seconds_to_run"]
        points = list(zip(curve["environment_steps"], np.array(curve["return"])[:, agent].tolist(), strict=True))
        return points, [metrics["final_return"][agent]], 1e6 * seconds / points[-1][0] / len(metrics["final_return"])
    with open(folder / "metrics.csv", newline="") as file:
        points = [(int(row["steps"]), float(row[column])) for row in csv.DictReader(file)]
    return points, [], cpu_us_a_step(folder / "metrics.csv")


def read_run(folder: pathlib.Path, table: Table, budget: int, agent: int = 0) -> dict[str, Any] | None:
    """The results of an agent: finished if there are metrics, else the last line; None if its run has not begun."""
    path = folder.with_name(f"{folder.name}.log")
    log = path.read_text() if path.exists() else ""
    try:
        points, final, cpu_us = read_metrics(folder, table.column, agent)
        taken, value = points[-1]
        if not table.training_return:
            value = float(([*re.findall(r"final return: (-?[\d.]+)", log), *final])[-1])
        drawn = [points[i] for i in np.unique(np.linspace(0, len(points) - 1, 60, dtype=int))]
        run = {"steps": taken, "return": round(value, 2), "cpu_us_a_step": round(cpu_us)}
        update = points[1][0] - points[0][0] if len(points) > 1 else taken
        curve = [[n, round(x, 2)] for n, x in drawn if math.isfinite(x)]
        took = dict(zip(("seconds", "machine"), re.findall(TOOK, log)[-1], strict=True)) if re.search(TOOK, log) else {}
        return run | {"curve": curve, "finished": taken > budget - update} | took
    except (OSError, IndexError):  # metrics and the final return are written at the end
        lines = re.findall(r"([\d,]+) steps: return (-?[\d.]+)", log)
        if not lines:
            return None
        steps, value = lines[-1]
        return {"steps": int(steps.replace(",", "")), "return": float(value), "finished": False}


def folder_of(runs: pathlib.Path, budget: int, environment: str, program: str, seed: int | None) -> pathlib.Path:
    """The folder of a seed, or with None of all seeds in one program."""
    last = "all" if seed is None else seed
    return runs / str(budget) / f"{environment}-{program.replace(' ', '-')}-{last}"


def key_of(run: dict[str, Any]) -> tuple:
    return run["environment"], run["budget"], run["program"], run["seed"]


@functools.cache
def machine() -> str:
    found = pathlib.Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", found.read_text()) if found.exists() else []
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "numpy"))
    parts = [*gpu.devices(), f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}", versions]
    return f"{', '.join(parts)}, Python {platform.python_version()}"


def load(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {"runs": []}


def save(name: str, runs: pathlib.Path, budget: int, seeds: int, results: pathlib.Path) -> dict[str, Any]:
    """Reads all runs of a budget, and writes NAME.json; runs that are in it and not in the folder stay."""
    table, path = TABLES[name], results / f"{name}.json"
    kept = load(path)
    found = {key_of(run): run for run in kept["runs"]}
    for environment in table.environments:
        for program in table.programs:
            for seed in range(1, seeds + 1):
                folder = folder_of(runs, budget, environment, program, None if table.together else seed)
                if run := read_run(folder, table, budget, seed - 1 if table.together else 0):
                    of = {"environment": environment, "budget": budget, "program": program, "seed": seed}
                    found[key_of(of)] = found.get(key_of(of), {}) | of | run
    kept["runs"] = [found[key] for key in sorted(found)]
    lines = ",\n".join(json.dumps(run) for run in kept["runs"])
    path.write_text(f'{{"runs": [\n{lines}\n]}}\n')
    return kept
