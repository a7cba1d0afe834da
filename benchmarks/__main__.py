"""`python -m benchmarks`: everything in turn, a table at the end."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import harness

BENCHMARKS = (
    *("imports", "init", "tracing", "dispatch", "compiled", "layer_stack", "transposed"),
    *("parallel", "rlx_returns"),
)
VERSIONS = ("jax", "jaxlib", "numpy", "dm-haiku", "flax", "equinox")


def main() -> None:
    """Runs the benchmarks that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, help="the ones to run")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is run (default: 5)")
    parser.add_argument("--json", type=Path, help="a file for all the figures")
    parser.add_argument("--png", type=Path, help="a file for a picture of the ratios")
    options = parser.parse_args()

    modules = [f"benchmarks.{name}" for name in options.only]
    total = sum(options.rounds * sum(map(harness.installed, importlib.import_module(m).SIDES)) for m in modules)
    rows: list[dict[str, Any]] = []
    with tqdm(total=total, unit="run") as bar:

        def tick(what: str) -> None:
            bar.set_description(what)
            bar.update()

        for module in modules:
            rows += harness.run(module, options.rounds, tick)
    print(heading())
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps({"machine": heading(), "rows": rows}, indent=1))
    if options.png:
        picture(rows, options.png)


def heading() -> str:
    """The machine and the versions."""
    versions = []
    for name in VERSIONS:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions)}"


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = ["| benchmark | figure | side | median | ratio (lowest to highest) |", "|---|---|---|---|---|"]
    for row in rows:
        ratio = f"{row['ratio']:.3g} ({row['lowest']:.3g} to {row['highest']:.3g})" if "ratio" in row else ""
        lines.append(f"| {row['benchmark']} | {row['figure']} | {row['side']} | {row['median']:.4g} | {ratio} |")
    return "\n".join(lines)


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """The ratios as bars, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row.get("ratio")][::-1]
    figure, axes = plt.subplots(figsize=(9, 1 + 0.28 * len(rows)), layout="constrained")
    spread = [[r["ratio"] - r["lowest"] for r in rows], [r["highest"] - r["ratio"] for r in rows]]
    colors = ["tab:green" if r["side"].startswith(("hkx", "rlx")) else "tab:gray" for r in rows]
    axes.barh(range(len(rows)), [r["ratio"] for r in rows], xerr=spread, color=colors)
    axes.set_yticks(range(len(rows)), [f"{r['benchmark']}: {r['figure']}, {r['side']}" for r in rows], fontsize=8)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("ratio to the reference (below 1 is better)")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
