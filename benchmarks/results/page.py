"""Writes docs/results.md and its curves from benchmarks/results/NAME.json."""

import json
import pathlib
from typing import Any

import numpy as np

from benchmarks.results.tables import CONTENDERS, TABLES, Table
from rlx import evaluation

HEAD = """# Results

Each table is made by one command, which anyone can repeat; seeds are the first ones, none is chosen. A run that has
not finished is in no mean, and its row says how far it got. `python -m benchmarks.results NAME` skips runs that have
finished, so that it can be stopped at any time; `--steps` sets another number of steps, which gets rows of its own.
The interquartile mean (IQM) is over seeds, with a 95 % interval by the
stratified bootstrap ([rlx.evaluation](api/rlx/evaluation.md)). CPU time a step is that of the second half of a run,
of all of it with compilation where the program is compiled whole; machines of one name differ in it, here up to
threefold, so that it is a mean over seeds on fast and slow ones.
"""


def number(x: float, *spread: float) -> str:
    return " ± ".join(f"{y:,.0f}" if abs(x) >= 100 else f"{y:.1f}" for y in (x, *spread))


def budgets_of(kept: dict[str, Any], environment: str) -> list[int]:
    """The numbers of steps that were run."""
    return sorted({run["budget"] for run in kept["runs"] if run["environment"] == environment})


def select(kept: dict[str, Any], environment: str, budget: int, program: str) -> dict[int, dict[str, Any]]:
    """The runs of a row, by seed."""
    wanted = environment, budget, program
    return {run["seed"]: run for run in kept["runs"] if (run["environment"], run["budget"], run["program"]) == wanted}


def cpu_us(runs: dict[int, dict[str, Any]]) -> float | None:
    found = [run["cpu_us_a_step"] for run in runs.values() if run["finished"]]
    return float(np.mean(found)) if found else None


def row(table: Table, kept: dict[str, Any], environment: str, budget: int, program: str) -> list[str]:
    runs = select(kept, environment, budget, program)
    x = np.array([run["return"] for run in runs.values() if run["finished"]])
    mean = interval = reference = ""
    if len(x) == 1:
        mean = number(x[0])
    elif len(x):
        low, high = evaluation.bootstrap_interval(evaluation.interquartile_mean, x)
        mean = number(x.mean(), x.std())
        interval = f"{number(evaluation.interquartile_mean(x))} [{number(low)}, {number(high)}]"
    if environment in table.reference:
        reference = number(*table.reference[environment])
    cost, ours = cpu_us(runs), cpu_us(select(kept, environment, budget, next(iter(table.programs))))
    share = f" (ours {ours / cost:.2f} of it)" if cost and ours and table.programs[program][0] == CONTENDERS else ""
    late = {seed: run for seed, run in runs.items() if not run["finished"]}
    rest = [f"seed {seed}: {number(run['return'])} after {run['steps']:,} steps" for seed, run in late.items()]
    waiting = [seed for seed in range(1, table.seeds + 1) if seed not in runs]
    rest += [f"seed{'s' * (len(waiting) > 1)} {', '.join(map(str, waiting))}: not begun"] if waiting else []
    cells = [environment, f"{budget:,}", program, f"{len(x)} of {table.seeds}", mean, interval]
    cells += [reference] if table.reference else []
    return [*cells, f"{cost:,.0f}{share}" if cost else "", "; ".join(rest)]


def section(name: str, table: Table, kept: dict[str, Any]) -> str:
    """The part of docs/results.md about one table."""
    file = next(iter(table.programs.values()))[0]
    budgets = {environment: budgets_of(kept, environment) for environment in table.environments}
    smallest = min(sum(budgets.values(), [table.steps]))
    reduced = f" Rows of fewer than {table.steps:,} steps are reduced." if smallest < table.steps else ""
    waiting = ", ".join(environment for environment in table.environments if not budgets[environment])
    columns = ["environment", "steps", "program", "seeds", "mean ± spread", "IQM, interval"]
    columns += [*(["reference"] if table.reference else []), "CPU µs a step", "not finished"]
    lines = [
        f"## {table.title}\n",
        f"`python -m benchmarks.results {name}`: [{pathlib.Path(file).name}](../{file}),",
        f"{table.steps:,} steps, {table.seeds} seed{'s' * (table.seeds > 1)}.{reduced} {table.remark}\n",
        f"Machine: {kept['machine']}.{f' Reference: {table.source}.' if table.reference else ''}\n",
        "| " + " | ".join(columns) + " |",
        "|---" * len(columns) + "|",
    ]
    for environment in table.environments:
        for budget in budgets[environment]:
            for program in filter(lambda name: select(kept, environment, budget, name), table.programs):
                lines.append("| " + " | ".join(row(table, kept, environment, budget, program)) + " |")
    lines += [f"\nNot begun: {waiting}."] if waiting else []
    lines.append(f"\n![Returns of {table.title} over the steps, a line a seed](results/{name}.png)")
    return "\n".join(lines) + "\n"


def draw(path: pathlib.Path, table: Table, kept: dict[str, Any]) -> None:
    """The curves of the largest budget with a curve, of each program on each environment that has been run."""
    from matplotlib.figure import Figure

    names = [name for name in table.environments if any(run["environment"] == name for run in kept["runs"])]
    figure = Figure(figsize=(3.4 * max(2, len(names)), 3), layout="constrained")
    for axes, environment in zip(np.atleast_1d(figure.subplots(1, max(1, len(names)))), names, strict=False):
        budgets = budgets_of(kept, environment)
        for i, program in enumerate(table.programs):
            runs = [select(kept, environment, budget, program).values() for budget in reversed(budgets)]
            curves = [[run["curve"] for run in same if "curve" in run] for same in runs]
            for j, curve in enumerate(next(filter(None, curves), [])):
                axes.plot(*np.transpose(curve), color=f"C{i}", alpha=0.6, label=None if j else program)
        if environment in table.reference:
            mean, *spread = table.reference[environment]
            axes.axhspan(mean - sum(spread), mean + sum(spread), color="gray", alpha=0.3, label="reference at the end")
        axes.set(title=environment, xlabel="steps", xlim=(0, budgets[-1]))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("return in training")
    figure.axes[0].legend(frameon=False, fontsize="small")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=80)


def write_page(results: pathlib.Path, docs: pathlib.Path) -> str:
    """docs/results.md, from what is in benchmarks/results."""
    found = {name: json.loads(path.read_text()) for name in TABLES if (path := results / f"{name}.json").exists()}
    page = "\n".join([HEAD, *(section(name, TABLES[name], kept) for name, kept in found.items())])
    (docs / "results.md").write_text(page)
    return page
