"""Compares agents with bsuite's own on bsuite's experiments: parallel, resumable, with the results in one table.

    python examples/zoo/bsuite_sweep.py --agents dqn bsuite:dqn --ids catch/0 bandit/0 --seeds 5
    python examples/zoo/bsuite_sweep.py --agents dqn bsuite:dqn --ids all   # days of work

An agent is a file of `agents/`, with settings that differ from the defaults (`actor_critic,memory=gru`), or
`bsuite:NAME`, one of bsuite's baselines in JAX, which need dm-haiku, rlax and optax. Every run lasts for the number of
episodes that its experiment defines, and writes bsuite's log; runs that have finished are not repeated. It writes
table.md to `--output`, with score, mean return and regret (mean and standard deviation over seeds) and steps per CPU
second, which hardly depends on other programs on the machine; and table.csv and radar.png.

"Behaviour Suite for Reinforcement Learning", Osband et al. 2020 (https://arxiv.org/abs/1908.03568).
"""

import concurrent.futures
import csv
import dataclasses
import glob
import importlib
import json
import os
import pathlib
import pkgutil
import subprocess
import sys
import time
from typing import Any

try:
    import numpy as np
    import tyro
    from agents import FILES
    from program import BadFlag, output_folder, whole_file
    from settings import Count, Settings
    from tqdm import tqdm
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")

PROGRAM = pathlib.Path(__file__)


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of a sweep. Every field is a flag of the command line."""

    agents: tuple[str, ...] = ("dqn", "bsuite:dqn")
    """files of examples/zoo/agents, such as dqn or actor_critic,memory=gru, and bsuite:NAME for bsuite's own"""
    ids: tuple[str, ...] = ("catch/0",)
    """experiments, such as catch/0; all for bsuite's whole sweep"""
    seeds: Count = 1
    """seeds for each agent on each experiment"""
    processes: Count = 1
    """parallel processes"""
    output: str = "runs/bsuite"
    """folder for the runs, the table and the plot"""
    baseline: str = ""
    """internal: the run of a process of the sweep"""


@dataclasses.dataclass(frozen=True)
class Run:
    """One agent on one experiment."""

    agent: str
    experiment: str
    seed: int

    def folder(self, output: str) -> pathlib.Path:
        agent, experiment = self.agent.replace(":", "-").replace(",", "-"), self.experiment.replace("/", "-")
        return pathlib.Path(output) / "runs" / agent / experiment / str(self.seed)


def do(run: Run, output: str) -> str:
    """Runs it, unless it has finished already. Returns a description of the failure, or an empty string."""
    folder = run.folder(output)
    if ended(run, output):
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    if run.agent.startswith("bsuite:"):
        what = json.dumps({"agent": run.agent[7:], "experiment": run.experiment, "seed": run.seed})
        command = [str(PROGRAM), "--baseline", what, "--output", str(folder)]
    else:
        agent, *settings = run.agent.split(",")
        command = [str(PROGRAM.with_name("run.py")), "--agent", agent, "--env", f"bsuite:{run.experiment}"]
        command += [f"--{setting}" for setting in settings]
        command += ["--seed", str(run.seed), "--output", str(folder), "--resume", "--exact", "--no-progress"]
        command += ["--parts", "2", "--evaluation-episodes", "1"]  # bsuite's log has all data for the score
    one_thread = os.environ | {"PJRT_NPROC": "1"}  # one XLA thread: more make small networks no faster
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=one_thread)
    if not done.returncode:
        return ""
    return f"{run}: {last_words(done.stderr) or f'exit status {done.returncode}'}"


def last_words(said: str) -> str:
    """The line that says why a program ended: the last one, except for tyro's boxes and their ends."""
    lines = [line.strip("╭╮╰╯│─ ") for line in said.splitlines()]
    return ([line for line in lines if line and not line.startswith("For full helptext")] or [""])[-1]


def wrong_agent(name: str) -> str:
    """The reason why there is no such agent, if there is none."""
    agent, *settings = name.split(",")
    if agent.startswith("bsuite:"):
        known = [
            module.name for module in pkgutil.iter_modules(importlib.import_module("bsuite.baselines.jax").__path__)
        ]
        return "" if agent[7:] in known and not settings else f"there is no {name!r}; bsuite has {', '.join(known)}"
    if agent not in FILES:
        return f"there is no {agent!r}; there are {', '.join(FILES)}, and bsuite:NAME"
    fields = [field.name for field in dataclasses.fields(FILES[agent].Config)]
    given = [setting.partition("=")[0].replace("-", "_").removeprefix("no_") for setting in settings]
    return next(
        (f"{agent} has no setting {each!r}; it has {', '.join(fields)}" for each in given if each not in fields), ""
    )


def run_baseline(agent: str, experiment: str, seed: int, folder: pathlib.Path) -> None:
    """Does what bsuite's own program for one of its agents does. Returns the numbers of steps and seconds."""
    import bsuite
    from bsuite.baselines import experiment as loop

    np.random.seed(seed)  # which these agents use to explore
    environment = bsuite.load_and_record_to_csv(experiment, str(folder / "bsuite"), overwrite=True)
    default_agent = importlib.import_module(f"bsuite.baselines.jax.{agent}").default_agent
    made = default_agent(environment.observation_spec(), environment.action_spec(), seed)
    began, worked = time.perf_counter(), time.process_time()
    loop.run(made, environment, num_episodes=environment.bsuite_num_episodes)
    took = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - worked}
    with whole_file(folder / "metrics.json") as unfinished:
        unfinished.write_text(json.dumps({"steps": int(last_rows(folder)["steps"])} | took))


def last_rows(folder: pathlib.Path) -> dict[str, float]:
    """The last row of bsuite's log of a run."""
    (path,) = glob.glob(str(folder / "bsuite" / "*.csv"))
    with open(path) as file:
        return {name: float(value) for name, value in list(csv.DictReader(file))[-1].items()}


def deep_sea_score(log: Any) -> float:
    """Whether one episode in ten found the treasure, sooner than by chance; bsuite's own fails with current pandas."""
    found = log[log.total_bad_episodes < 0.9 * log.episode]
    return float((found.episode.min() < 2.0 ** log["size"] + 100).all())  # any value is at least an unknown minimum


def scores(run: Run, output: str) -> dict[str, float]:
    """Score, mean return, regret and speed of a run."""
    from bsuite.experiments import summary_analysis
    from bsuite.logging import csv_load

    folder = run.folder(output)
    log, _ = csv_load.load_bsuite({run.agent: str(folder / "bsuite")})
    experiment, last = run.experiment.partition("/")[0], last_rows(folder)
    score = deep_sea_score if experiment == "deep_sea" else summary_analysis.BSUITE_INFO[experiment].score
    metrics = json.loads((folder / "metrics.json").read_text())
    return {
        "score": float(score(log)),
        "return": last["total_return"] / last["episode"],
        "regret": last.get("total_regret", float("nan")),
        "steps_per_cpu_second": metrics["steps"] / metrics["cpu_seconds"],
    }


def table(runs: list[Run], output: str) -> list[dict[str, Any]]:
    """Means and standard deviations, over seeds, of the runs that have finished."""
    rows = []
    for agent, experiment in dict.fromkeys((run.agent, run.experiment) for run in runs):
        found = [scores(r, output) for r in runs if (r.agent, r.experiment) == (agent, experiment) and ended(r, output)]
        if found:
            numbers = {name: [each[name] for each in found] for name in found[0]}
            means = {name: float(np.mean(values)) for name, values in numbers.items()}
            spread = {f"{name}_sd": float(np.std(values)) for name, values in numbers.items()}
            rows.append({"experiment": experiment, "agent": agent, "seeds": len(found)} | means | spread)
    return sorted(rows, key=lambda row: row["experiment"])


def ended(run: Run, output: str) -> bool:
    """Whether a run has finished; one that was stopped by Ctrl-C says so, and continues the next time."""
    metrics = run.folder(output) / "metrics.json"
    try:
        return metrics.exists() and not json.loads(metrics.read_text()).get("interrupted", False)
    except ValueError:  # damaged, so the run is repeated
        return False


def save(rows: list[dict[str, Any]], output: pathlib.Path) -> None:
    with open(output / "table.csv", "w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    lines = ["| experiment | agent | seeds | score | mean return | regret | steps a CPU second |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        numbers = [f"{row[name]:.3g} ± {row[f'{name}_sd']:.2g}" for name in ("score", "return", "regret")]
        fields = row["experiment"], row["agent"], row["seeds"], *numbers, f"{row['steps_per_cpu_second']:,.0f}"
        lines.append("| " + " | ".join(map(str, fields)).replace("nan ± nan", "") + " |")
    (output / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def save_radar(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    """The mean score of each agent for each of bsuite's tags; bsuite's own plot fails with current pandas."""
    from bsuite.experiments import summary_analysis
    from matplotlib import rc_context, rcParamsDefault
    from matplotlib.figure import Figure  # imported here because nothing before the end of a sweep needs it

    tags = {row["experiment"]: summary_analysis.BSUITE_INFO[row["experiment"].partition("/")[0]].tags for row in rows}
    names = sorted({tag for each in tags.values() for tag in each})
    angles = 2 * np.pi * np.arange(len(names) + 1) / len(names)
    with rc_context(rcParamsDefault):  # bsuite has changed the colours
        figure = Figure(figsize=(6, 6))
        axes = figure.add_subplot(polar=True)
        for agent in dict.fromkeys(row["agent"] for row in rows):
            scores = {
                tag: [r["score"] for r in rows if r["agent"] == agent and tag in tags[r["experiment"]]] for tag in names
            }
            shown = [i for i, tag in enumerate(names) if scores[tag]]  # not run on an experiment of each tag
            corners = [*shown, shown[0]]
            values = [np.mean(scores[names[i]]) for i in corners]
            axes.plot(angles[corners], values, "o-", label=agent)
            axes.fill(angles[corners], values, alpha=0.1)
        axes.set_xticks(angles[:-1], [name.replace("_", "\n") for name in names])
        axes.tick_params(axis="x", pad=15)
        axes.set_ylim(0, 1)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False)
        figure.savefig(path, dpi=120, bbox_inches="tight")


def main(config: Config) -> int:
    from bsuite import sweep

    if config.baseline:
        run_baseline(**json.loads(config.baseline), folder=pathlib.Path(config.output))
        return 0
    ids = sweep.SWEEP if config.ids == ("all",) else config.ids
    wrong = [("--ids", f"there is no {name!r}") for name in ids if name not in sweep.SWEEP]
    wrong += [("--agents", why) for why in map(wrong_agent, config.agents) if why]
    for flag, why in wrong[:1]:
        print(f"bsuite_sweep.py: argument {flag}: {why}", file=sys.stderr)
        return 2
    # Each of them once: two runs must not write into one folder.
    runs = list(dict.fromkeys(Run(a, i, s) for s in range(config.seeds) for i in ids for a in config.agents))
    output = output_folder(config.output)
    with concurrent.futures.ThreadPoolExecutor(config.processes) as pool:
        waiting = [pool.submit(do, run, config.output) for run in runs]
        try:
            for future in tqdm(concurrent.futures.as_completed(waiting), total=len(runs), unit=" runs"):
                if problem := future.result():
                    tqdm.write(problem)
        except KeyboardInterrupt:  # the runs get it too, and write checkpoints
            pool.shutdown(cancel_futures=True)
            raise
    if rows := table(runs, config.output):
        save(rows, output)
        save_radar(rows, output / "radar.png")
    return 0 if all(ended(run, config.output) for run in runs) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Config, description=(__doc__ or "").partition("\n")[0])))
    except BadFlag as error:
        print(f"bsuite_sweep.py: {error} (--help lists every flag)", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nbsuite_sweep.py: interrupted; the same command goes on", file=sys.stderr)
        sys.exit(130)
