"""Reads the runs of a table, and keeps their results in benchmarks/results/NAME.json."""

import csv
import json
import math
import os
import pathlib
import platform
import re
from importlib import metadata
from typing import Any

import numpy as np

from benchmarks.results.tables import TABLES, Table


def cpu_us_a_step(path: pathlib.Path) -> float:
    """CPU time of the second half of the steps in a metrics.csv, where all is compiled."""
    with open(path, newline="") as file:
        points = [(int(row["steps"]), float(row["cpu_seconds"])) for row in csv.DictReader(file)]
    (before, cpu_before), (after, cpu_after) = points[(len(points) - 1) // 2], points[-1]
    return 1e6 * (cpu_after - cpu_before) / (after - before)


def read_metrics(folder: pathlib.Path, column: str) -> tuple[list[tuple[int, float]], float]:
    """The curve of a run, and its CPU µs a step."""
    if (path := folder / "metrics.json").exists():  # of programs that are compiled whole
        metrics = json.loads(path.read_text())
        curve, seconds = metrics["curve"], metrics["cpu_seconds_to_compile"] + metrics["cpu_seconds_to_run"]
        points = list(zip(curve["environment_steps"], np.mean(curve["return"], axis=1).tolist(), strict=True))
        return points, 1e6 * seconds / points[-1][0]
    with open(folder / "metrics.csv", newline="") as file:
        points = [(int(row["steps"]), float(row[column])) for row in csv.DictReader(file)]
    return points, cpu_us_a_step(folder / "metrics.csv")


def read_run(folder: pathlib.Path, table: Table, budget: int) -> dict[str, Any] | None:
    """The results of a run: finished if it has its metrics, else its last line; None if it has not begun."""
    path = folder.with_name(f"{folder.name}.log")
    log = path.read_text() if path.exists() else ""
    try:
        points, cpu_us = read_metrics(folder, table.column)
        taken, value = points[-1]
        if not table.training_return:
            value = float(re.findall(r"final return: (-?[\d.]+)", log)[-1])
        drawn = [points[i] for i in np.unique(np.linspace(0, len(points) - 1, 60, dtype=int))]
        run = {"steps": taken, "return": round(value, 2), "cpu_us_a_step": round(cpu_us)}
        update = points[1][0] - points[0][0] if len(points) > 1 else taken
        curve = [[n, round(x, 2)] for n, x in drawn if math.isfinite(x)]
        return run | {"curve": curve, "finished": taken > budget - update}
    except (OSError, IndexError):  # metrics and the final return are written at the end
        lines = re.findall(r"([\d,]+) steps: (?:return|score) (-?[\d.]+)", log)
        if not lines:
            return None
        steps, value = lines[-1]
        return {"steps": int(steps.replace(",", "")), "return": float(value), "finished": False}


def folder_of(runs: pathlib.Path, budget: int, environment: str, program: str, seed: int) -> pathlib.Path:
    return runs / str(budget) / f"{environment}-{program.replace(' ', '-')}-{seed}"


def key_of(run: dict[str, Any]) -> tuple:
    return run["environment"], run["budget"], run["program"], run["seed"]


def machine() -> str:
    found = pathlib.Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", found.read_text()) if found.exists() else []
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "numpy"))
    cores = f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}"
    return f"{cores}, {versions}, Python {platform.python_version()}"


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
                if run := read_run(folder_of(runs, budget, environment, program, seed), table, budget):
                    of = {"environment": environment, "budget": budget, "program": program, "seed": seed}
                    found[key_of(of)] = of | run
                    kept["machine"] = machine()
    kept["runs"] = [found[key] for key in sorted(found)]
    lines = ",\n".join(json.dumps(run) for run in kept["runs"])
    path.write_text(f'{{"machine": {json.dumps(kept.get("machine"))}, "runs": [\n{lines}\n]}}\n')
    return kept
