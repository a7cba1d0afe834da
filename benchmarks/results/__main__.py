"""Repeats a table of docs/results.md: `python -m benchmarks.results mujoco_ppo`.

Each seed of each program runs in a process of its own, into a folder of its own; finished ones are skipped, so that the
same command goes on after an interruption. After each, the results in benchmarks/results/NAME.json, the curves in
docs/results/ and docs/results.md are written anew. `--report` does that alone, without running anything;
`--missing` runs what those results lack.
"""

import argparse
import os
import pathlib
import subprocess
import sys

from benchmarks.results import page
from benchmarks.results.runs import folder_of, key_of, load, read_run, save
from benchmarks.results.tables import TABLES

ROOT = pathlib.Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.results", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("--runs", type=pathlib.Path, help="folder of the runs (default: runs/results/NAME)")
    parser.add_argument("--steps", type=int, help="steps of each run (default: the table's)")
    parser.add_argument("--seeds", type=int, help="seeds of each environment, from 1 on (default: the table's)")
    parser.add_argument("--env", nargs="+", help="run these environments only (default: all of the table's)")
    parser.add_argument("--program", nargs="+", help="run these programs only (default: all of the table's)")
    parser.add_argument(
        "--missing", action="store_true", help="skip what has finished in benchmarks/results/NAME.json as well"
    )
    parser.add_argument(
        "--report", action="store_true", help="write the table of the runs that are there, and run none"
    )
    options = parser.parse_args()
    table, results, docs = TABLES[options.name], pathlib.Path(__file__).parent, ROOT / "docs"
    for flag, names in ("env", table.environments), ("program", table.programs):
        if unknown := set(getattr(options, flag) or []) - set(names):
            parser.error(f"--{flag}: {', '.join(unknown)} not in the table, which has {', '.join(names)}")
    runs, seeds = options.runs or pathlib.Path("runs/results", options.name), options.seeds or table.seeds
    budget, environments = options.steps or table.steps, options.env or table.environments
    programs = options.program or table.programs

    def report() -> str:
        kept = save(options.name, runs, budget, seeds, results)
        page.draw(docs / "results" / f"{options.name}.png", table, kept)
        return page.write_page(results, docs)

    wanted = [(seed, env, program) for seed in range(1, seeds + 1) for env in environments for program in programs]
    kept = load(results / f"{options.name}.json")["runs"] if options.missing else []
    done = {key_of(run) for run in kept if run["finished"]}
    for seed, env, program in [] if options.report else wanted:
        folder = folder_of(runs, budget, env, program, seed)
        run = read_run(folder, table, budget)
        if (env, budget, program, seed) in done or (run and run["finished"]):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        file, *flags = table.programs[program]
        command = [sys.executable, "-u", str(ROOT / file), *flags, "--env", env, "--seed", str(seed)]
        command += ["--steps", str(budget), "--output", str(folder)]
        print(" ".join(command), flush=True)
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with open(folder.with_name(f"{folder.name}.log"), "w") as log:
            process = subprocess.run(command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": paths})
        if process.returncode:
            print(f"{env}, {program}, seed {seed}: exit status {process.returncode}; see {log.name}", file=sys.stderr)
            return 1
        report()
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
