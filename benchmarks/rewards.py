"""A language model that learns from rewards: three seeds of examples/grpo.py, and random rewards as the control.

    python -m benchmarks.rewards                  # half an hour of two cores; continues where it stopped
    python -m benchmarks.rewards --report         # the table and picture of the runs that are there

Draws docs/gallery/grpo.png, and prints a table. A run is tested after UPDATES updates on all held-out questions, and
again after 40 more, in which it should keep what it has learned.
"""

import argparse
import csv
import os
import pathlib
import shlex
import subprocess
import sys

from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).parents[1]
UPDATES, MORE = 24, 40
RUNS = {f"seed {seed}": ["--seed", str(seed)] for seed in range(3)}
RUNS["random rewards"] = ["--random-rewards"]


def run(folder: pathlib.Path, flags: list[str]) -> None:
    for updates in (UPDATES,) if "--random-rewards" in flags else (UPDATES, UPDATES + MORE):
        options = [*flags, "--output", str(folder), "--updates", str(updates)]
        command = [sys.executable, str(ROOT / "examples" / "grpo.py"), *options]
        print(shlex.join(command), flush=True)
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=True)


def read(folder: pathlib.Path) -> list[dict[str, float]]:
    with open(folder / "metrics.csv", newline="") as file:
        return [{name: float(x) for name, x in row.items()} for row in csv.DictReader(file)]


def report(runs: pathlib.Path) -> None:
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    axes = dict(zip(("accuracy", "reward", "kl"), figure.subplots(1, 3), strict=True))
    print(f"| | before | after {UPDATES} | after {UPDATES + MORE} | CPU s of {UPDATES} |\n|---|---|---|---|---|")
    for name in RUNS:
        if not (runs / name / "metrics.csv").exists():
            continue
        rows = read(runs / name)
        for column, axis in axes.items():
            points = [(row["update"], row[column]) for row in rows if row[column] == row[column]]
            axis.plot(*zip(*points, strict=True), ".-", label=name, alpha=0.8)
        tests = {row["update"]: row["accuracy"] for row in rows}
        cells = [f"{tests[n]:.3f}" if n in tests else "" for n in (0, UPDATES, UPDATES + MORE)]
        print(f"| {name} | {' | '.join(cells)} | {rows[min(UPDATES, len(rows) - 1)]['cpu_seconds']:.0f} |")
    titles = "accuracy on held-out questions, greedy", "reward of sampled answers", "divergence from the start, nats"
    for axis, title in zip(axes.values(), titles, strict=True):
        axis.set(title=title, xlabel="updates")
        axis.grid(alpha=0.3)
    axes["accuracy"].legend(frameon=False, fontsize="small")
    figure.savefig(ROOT / "docs" / "gallery" / "grpo.png", dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rewards", description=__doc__)
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/rewards"))
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    for name, flags in [] if options.report else RUNS.items():
        run(options.runs / name, flags)
    report(options.runs)


if __name__ == "__main__":
    main()
