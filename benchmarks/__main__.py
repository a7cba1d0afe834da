"""`python -m benchmarks`: everything in turn, a table at the end."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import gpu, harness

BENCHMARKS = (
    *("imports", "init", "jitted_init", "growth", "tracing", "dispatch", "compiled", "layer_stack"),
    *("convolutions", "transposed", "unroll", "parallel", "rlx_returns", "replay", "on_device", "language"),
    "first_gradient",
)
VERSIONS = (
    *("jax", "jaxlib", "numpy", "dm-haiku", "rlax", "flax", "equinox", "flashbax", "rejax", "gymnax", "bsuite"),
    *("transformers", "xllamacpp"),
)


def main() -> None:
    """Runs the benchmarks that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join(BENCHMARKS)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, metavar="NAME", help=names)
    parser.add_argument("--rounds", type=positive, default=5, help="how often each side is run (default: 5)")
    parser.add_argument("--json", type=Path, help="a file for all the figures")
    parser.add_argument("--png", type=Path, help="a file for a picture of the ratios")
    parser.add_argument("--devices", choices=("cpu", "gpu"), help="where it all runs (default: where JAX would run it)")
    parser.add_argument("--gpu", action="store_true", help="tests and benchmarks on a GPU, into report.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stopped by a time limit, as by Ctrl-C
    if options.gpu:
        if not set(options.only) & set(gpu.BENCHMARKS):
            parser.error(f"--gpu measures what depends on the device: --only takes {', '.join(gpu.BENCHMARKS)}")
        sys.exit(gpu.main(Path("report.md"), options.rounds, options.only))
    if options.devices == "gpu" and not gpu.devices():
        parser.error(gpu.NO_GPU)
    if options.devices:
        os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[options.devices]
    for path in filter(None, (options.json, options.png)):  # said now, and not when everything has run
        if path.is_dir() or not path.absolute().parent.is_dir():
            parser.error(f"cannot write {path}: give the name of a file in a folder that exists")
    if options.png and not importlib.util.find_spec("matplotlib"):
        parser.error("--png needs matplotlib: pip install matplotlib")

    modules = [f"benchmarks.{name}" for name in options.only]
    sides = [side for m in modules for side in importlib.import_module(m).SIDES]
    for side in dict.fromkeys(side for side in sides if not harness.installed(side)):
        print(f"{side} is left out: {harness.LIBRARIES[side]} is not installed.", file=sys.stderr)
    total = options.rounds * sum(map(harness.installed, sides))
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    measured, interrupted = 0, False
    with tqdm(total=total, unit="run") as bar:

        def tick(what: str) -> None:
            bar.update(1 if bar.desc else 0)  # the run before this one is done
            bar.set_description(what)

        try:
            for module in modules:
                harness.run(module, options.rounds, rows, tick, failures.append)
                measured += 1
            bar.update()
        except KeyboardInterrupt:  # of a run of hours, what has been measured is shown
            interrupted = True
    print(heading())
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps({"machine": heading(), "rows": rows}, indent=1))
    if options.png:
        picture(rows, options.png)
    if interrupted:
        sys.exit(f"Interrupted: {measured} of {len(modules)} benchmarks were measured to the end.")
    if failures:
        sys.exit("\n".join(["These are left out, since they failed:", *failures]))


def positive(text: str) -> int:
    """A number of rounds on the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds, at least 1")
    return int(text)


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
