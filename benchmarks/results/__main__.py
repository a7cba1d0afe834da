"""Repeats a table of docs/results.md: `python -m benchmarks.results mujoco_ppo`.

Each seed runs in a process of its own, into a folder of its own; finished ones are skipped, so that the same command
goes on after an interruption. After each, the results in benchmarks/results/NAME.json, the curves in docs/results/ and
docs/results.md are written anew. `--report` does that alone, without running anything.
"""

import argparse
import csv
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import numpy as np

from benchmarks.results.tables import TABLES, Table
from rlx import evaluation

ROOT = pathlib.Path(__file__).parents[2]
HEAD = """# Results

Each table is made by one command, which anyone can repeat; seeds are the first ones, none is chosen. A run that has
not finished is in no mean, and its row says how far it got. `python -m benchmarks.results NAME` skips runs that have
finished, so that it can be stopped at any time. The interquartile mean (IQM) is over seeds, with a 95 % interval by the
stratified bootstrap ([rlx.evaluation](api/rlx/evaluation.md)).
"""
REST = """## Not run yet

SAC and TD3 beside Stable-Baselines3 and sbx, Atari, MinAtar, Craftax and Brax have no tables yet;
[the examples](../examples/README.md) name single runs on some of them.
"""


def read_run(folder: pathlib.Path, table: Table) -> dict[str, Any] | None:
    """The results of a run: finished if it has its metrics, else its last line; None if it has not begun."""
    try:
        with open(folder / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        points = [(int(row["steps"]), float(row[table.column])) for row in rows]
        chosen = [points[i] for i in np.unique(np.linspace(0, len(points) - 1, 60, dtype=int))]
        taken = points[-1][0]
        run = {"steps": taken, "return": round(points[-1][1], 2), "curve": [[n, round(x, 2)] for n, x in chosen]}
        run["cpu_us_a_step"] = round(1e6 * float(rows[-1]["cpu_seconds"]) / taken)
        update = points[1][0] - points[0][0] if len(points) > 1 else taken
        return run | {"finished": taken > table.steps - update}
    except (OSError, IndexError):  # it writes them at its end
        log = folder.with_name(f"{folder.name}.log")
        lines = re.findall(r"([\d,]+) steps: return (-?[\d.]+)", log.read_text()) if log.exists() else []
        if not lines:
            return None
        steps, value = lines[-1]
        return {"steps": int(steps.replace(",", "")), "return": float(value), "finished": False}


def machine() -> str:
    found = pathlib.Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", found.read_text()) if found.exists() else []
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "numpy"))
    cores = f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}"
    return f"{cores}, {versions}, Python {platform.python_version()}"


def save(name: str, runs: pathlib.Path, seeds: int, results: pathlib.Path) -> dict[str, Any]:
    """Reads all runs, and writes NAME.json; runs that are in it and not in the folder stay."""
    table, path = TABLES[name], results / f"{name}.json"
    kept = json.loads(path.read_text()) if path.exists() else {"runs": {}}
    for env in table.reference:
        for seed in range(1, seeds + 1):
            if run := read_run(runs / f"{env}-{seed}", table):
                kept["runs"].setdefault(env, {})[str(seed)] = run
                kept["machine"] = machine()
    path.write_text(json.dumps(kept) + "\n")
    return kept


def section(name: str, table: Table, kept: dict[str, Any]) -> str:
    """The part of docs/results.md about one table."""
    lines = [
        f"## {table.title}\n",
        f"`python -m benchmarks.results {name}`: [{table.program}](../examples/{table.program}),",
        f"{table.steps:,} steps, {table.seeds} seeds. {table.remark}\n",
        f"Machine: {kept.get('machine', 'none yet')}. Reference: {table.source}.\n",
        "| environment | seeds | mean ± spread | IQM, interval | reference | CPU µs a step | not finished |",
        "|---|---|---|---|---|---|---|",
    ]
    for env, (mean, spread) in table.reference.items():
        runs = kept["runs"].get(env, {})
        finished = [run for run in runs.values() if run["finished"]]
        x = np.array([run["return"] for run in finished])
        ours = interval = cost = ""
        if len(x):
            low, high = evaluation.bootstrap_interval(evaluation.interquartile_mean, x)
            ours = f"{x.mean():,.0f} ± {x.std():,.0f}" if len(x) > 1 else f"{x[0]:,.0f}"
            interval = f"{evaluation.interquartile_mean(x):,.0f} [{low:,.0f}, {high:,.0f}]" if len(x) > 1 else ""
            cost = f"{np.mean([run['cpu_us_a_step'] for run in finished]):,.0f}"
        late = [(seed, runs.get(str(seed))) for seed in range(1, table.seeds + 1)]
        rest = [
            f"seed {seed}: {run['return']:,.0f} after {run['steps']:,} steps" if run else f"seed {seed}: not begun"
            for seed, run in late
            if not (run and run["finished"])
        ]
        cells = env, f"{len(x)} of {table.seeds}", ours, interval, f"{mean:,.0f} ± {spread:,.0f}", cost, "; ".join(rest)
        lines.append("| " + " | ".join(cells) + " |")
    if any(run["finished"] for runs in kept["runs"].values() for run in runs.values()):
        lines.append(
            f"\n![Returns of {table.title} over the steps, a line a seed, with the reference](results/{name}.png)"
        )
    return "\n".join(lines) + "\n"


def draw(path: pathlib.Path, table: Table, kept: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(table.reference), 3), layout="constrained")
    for axes, (env, (mean, spread)) in zip(
        figure.subplots(1, len(table.reference)), table.reference.items(), strict=True
    ):
        for run in kept["runs"].get(env, {}).values():
            if "curve" in run:
                axes.plot(*np.transpose(run["curve"]), color="tab:blue", alpha=0.6)
        axes.axhspan(mean - spread, mean + spread, color="tab:orange", alpha=0.3, label="reference at the end")
        axes.set(title=env, xlabel="steps", xlim=(0, table.steps))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("return")
    figure.axes[0].legend(frameon=False, fontsize="small")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=80)


def write_page(results: pathlib.Path, docs: pathlib.Path) -> str:
    """docs/results.md, from what is in benchmarks/results."""
    found = {name: json.loads(path.read_text()) for name in TABLES if (path := results / f"{name}.json").exists()}
    page = "\n".join([HEAD, *(section(name, TABLES[name], kept) for name, kept in found.items()), REST])
    (docs / "results.md").write_text(page)
    return page


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.results", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("--runs", type=pathlib.Path, help="folder of the runs (default: runs/results/NAME)")
    parser.add_argument("--seeds", type=int, help="seeds of each environment, from 1 on (default: the table's)")
    parser.add_argument(
        "--report", action="store_true", help="write the table of the runs that are there, and run none"
    )
    options = parser.parse_args()
    table, results, docs = TABLES[options.name], pathlib.Path(__file__).parent, ROOT / "docs"
    runs, seeds = options.runs or pathlib.Path("runs/results", options.name), options.seeds or table.seeds

    def report() -> str:
        kept = save(options.name, runs, seeds, results)
        draw(docs / "results" / f"{options.name}.png", table, kept)
        return write_page(results, docs)

    for seed in [] if options.report else range(1, seeds + 1):
        for env in table.reference:
            folder = runs / f"{env}-{seed}"
            if (run := read_run(folder, table)) and run["finished"]:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, str(ROOT / "examples" / table.program), "--env", env, "--seed", str(seed)]
            command += ["--steps", str(table.steps), "--output", str(folder)]
            print(" ".join(command), flush=True)
            paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            with open(folder.with_name(f"{folder.name}.log"), "w") as log:
                done = subprocess.run(command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": paths})
            if done.returncode:
                print(f"{env}, seed {seed}: exit status {done.returncode}; see {log.name}", file=sys.stderr)
                return 1
            report()
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
