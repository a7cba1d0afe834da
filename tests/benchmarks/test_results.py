"""`python -m benchmarks.results`: unfinished runs are in no mean, and the page shows the results that are there."""

import csv
import json
import pathlib
import subprocess
import sys

import pytest

from benchmarks.results import __main__ as command
from benchmarks.results import page
from benchmarks.results.runs import folder_of, save
from benchmarks.results.tables import TABLES

ROOT = pathlib.Path(__file__).parents[2]


def write_run(folder, last_step, value, update=2048, column="return_of_100_episodes", final=None):
    folder.mkdir(parents=True)
    rows = [f"{n},{value * n / last_step},{n * 4e-4}" for n in range(update, last_step + 1, update)]
    (folder / "metrics.csv").write_text("\n".join([f"steps,{column},cpu_seconds", *rows]))
    if final is not None:
        folder.with_name(f"{folder.name}.log").write_text(f"  some line\nfinal return: {final:.2f} over 10 episodes\n")


def lines_of(name, tmp_path, budget):
    """The cells of the rows of a table, by environment, steps and program."""
    (tmp_path / "results").mkdir(exist_ok=True)
    save(name, tmp_path, budget, 3, tmp_path / "results")
    rows = [line[2:-2].split(" | ") for line in page.write_page(tmp_path / "results", tmp_path).splitlines()]
    return {tuple(row[:3]): row[3:] for row in rows if len(row) > 3}


def test_finished_runs_are_averaged_and_others_say_how_far_they_got(tmp_path):
    def folder(env, seed):
        return folder_of(tmp_path, 1_000_000, env, "ppo_mujoco.py", seed)

    write_run(folder("Hopper-v5", 1), 999_424, 2000.0)  # 488 updates of 2,048 steps, as many as fit
    write_run(folder("Hopper-v5", 2), 999_424, 3000.0)
    write_run(folder("Walker2d-v5", 1), 409_600, 900.0)  # stopped by Ctrl-C
    folder("HalfCheetah-v5", 1).with_name("HalfCheetah-v5-ppo_mujoco.py-1.log").write_text(
        "  20,480 steps: return -3.5, 9 CPU µs a step\n  40,960 steps: return 7.5"
    )
    lines = lines_of("mujoco_ppo", tmp_path, 1_000_000)
    hopper = lines["Hopper-v5", "1,000,000", "ppo_mujoco.py"]
    assert hopper[:5] == ["2 of 3", "2,500 ± 500", "2,500 [2,000, 3,000]", "2,383 ± 272", "400"]
    assert hopper[5].startswith("seed 3: not begun")
    walker = lines["Walker2d-v5", "1,000,000", "ppo_mujoco.py"]
    assert walker[:3] == ["0 of 3", "", ""] and walker[5].startswith("seed 1: 900 after 409,600 steps")
    assert "seed 1: 7.5 after 40,960 steps" in lines["HalfCheetah-v5", "1,000,000", "ppo_mujoco.py"][5]


def test_contenders_stand_beside_ours_with_the_same_steps(tmp_path):
    """The final return is the one that the program prints, and a smaller budget gets a row of its own."""
    for seed, ours, theirs in [(1, 900.0, 500.0), (2, 700.0, 300.0)]:
        for program, final in [("sac.py", ours), ("sbx", theirs)]:
            folder = folder_of(tmp_path, 20_000, "Hopper-v5", program, seed)
            write_run(folder, 20_000, 99.0, 100, "return_of_10_episodes", final)
    unfinished = folder_of(tmp_path, 20_000, "Hopper-v5", "Stable-Baselines3", 1)
    write_run(unfinished, 10_000, 99.0, 100, "return_of_10_episodes", 5.0)  # stopped by Ctrl-C
    path = tmp_path / "results/sac.json"
    path.parent.mkdir()
    path.write_text('{"machine": "another", "runs": []}')
    lines = lines_of("sac", tmp_path, 20_000)
    assert lines["Hopper-v5", "20,000", "sac.py"][1:4] == ["800 ± 100", "800 [700, 900]", "400"]
    assert lines["Hopper-v5", "20,000", "sbx"][1:4] == ["400 ± 100", "400 [300, 500]", "400 (ours 1.00 of it)"]
    assert "seed 1: 5.0 after 10,000 steps" in lines["Hopper-v5", "20,000", "Stable-Baselines3"][4]
    write_run(folder_of(tmp_path, 200_000, "Hopper-v5", "sac.py", 1), 200_000, 9.0, 1000, "return_of_10_episodes", 2000)
    lines = lines_of("sac", tmp_path, 200_000)
    assert lines["Hopper-v5", "200,000", "sac.py"][:2] == ["1 of 3", "2,000"]
    assert lines["Hopper-v5", "20,000", "sac.py"][:2] == ["2 of 3", "800 ± 100"]


def test_metrics_of_programs_that_are_compiled_whole(tmp_path):
    folder = folder_of(tmp_path, 4_000, "Breakout-MinAtar", "pqn.py", 1)
    folder.mkdir(parents=True)
    curve = {"environment_steps": [2_048, 4_096], "return": [[0.5], [1.5]], "loss": [[1.0], [1.0]]}
    seconds = {"cpu_seconds_to_compile": 0.4096, "cpu_seconds_to_run": 0.8192}
    (folder / "metrics.json").write_text(json.dumps({"final_return": [7.0], "curve": curve, **seconds}))
    folder.with_name("Breakout-MinAtar-pqn.py-1.log").write_text("final return: 7.00 ± 0.00, IQM 7.00 [7, 7], 1 seeds")
    lines = lines_of("minatar", tmp_path, 4_000)
    assert lines["Breakout-MinAtar", "4,000", "pqn.py"][:5] == ["1 of 10", "7.0", "", "28.0", "300"]


def test_the_command_runs_what_is_missing_and_continues(tmp_path, monkeypatch, capsys):
    """With a program that takes the flags, leaves the metrics, and fails for one seed."""
    program = tmp_path / "program.py"
    program.write_text(
        "import argparse, pathlib, sys\nparser = argparse.ArgumentParser()\n"
        "for name in ('--env', '--seed', '--steps', '--output'): parser.add_argument(name)\n"
        "o = parser.parse_args()\n"
        "if o.seed == '2' and not pathlib.Path(sys.argv[0]).with_name('mended').exists(): sys.exit(3)\n"
        "with open(o.output + '/metrics.csv', 'x') as file:\n"
        "    file.write(f'steps,return_of_10_episodes,cpu_seconds\\n5,1,1\\n{o.steps},1,1\\n')\n"
        "print('final return: 1.00 over 10 episodes')\n"
    )
    table = TABLES["sac"].__class__("A title", {"ours": (str(program),)}, ("One", "Two"), 100, "A remark.", seeds=2)
    monkeypatch.setitem(TABLES, "sac", table)
    for module in (command, page):
        monkeypatch.setattr(module, "TABLES", {"sac": table})
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "__file__", str(tmp_path / "results/__main__.py"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(sys, "argv", ["results", "sac", "--runs", str(tmp_path / "runs"), "--steps", "10"])
    assert command.main() == 1
    assert "One, ours, seed 2: exit status 3" in capsys.readouterr().err
    assert "| One | 10 | ours | 1 of 2 | 1.0 |" in (tmp_path / "docs/results.md").read_text()
    (tmp_path / "mended").touch()
    assert command.main() == 0  # `x` fails where a finished run is repeated
    assert "| Two | 10 | ours | 2 of 2 | 1.0 ± 0.0 |" in (tmp_path / "docs/results.md").read_text()
    before = (tmp_path / "results/sac.json").read_text()
    monkeypatch.setattr(sys, "argv", [*sys.argv[:2], "--runs", str(tmp_path / "none"), "--steps", "10", "--missing"])
    program.unlink()
    assert command.main() == 0 and (tmp_path / "results/sac.json").read_text() == before
    assert (tmp_path / "docs/results/sac.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("library", ["sb3", "sbx"])
@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_contenders_write_what_the_examples_write(tmp_path, library, algorithm):
    pytest.importorskip({"sb3": "stable_baselines3", "sbx": "sbx"}[library])
    pytest.importorskip("mujoco")
    program = str(ROOT / "benchmarks/results/contenders.py")
    flags = ["--library", library, "--algorithm", algorithm, "--env", "InvertedPendulum-v5", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, program, *flags, "--steps", "300", "--warmup", "200"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("final return: ")
    with open(tmp_path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 300 and rows[-1]["steps"] == "300" and float(rows[-1]["return_of_10_episodes"]) > 1


@pytest.mark.peer
def test_random_actions_reach_what_the_page_says(tmp_path):
    """Another seed's 128 episodes: rewards are rare, so that the variance of a return is near its mean."""
    pytest.importorskip("gymnax")
    program = str(ROOT / "benchmarks/results/contenders.py")
    flags = ["--library", "random", "--env", "Breakout-MinAtar", "--seed", "2", "--output", str(tmp_path)]
    done = subprocess.run([sys.executable, program, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    value = float(done.stdout.split("final return: ")[1].split()[0])
    stated = float(TABLES["minatar"].source.split("random actions reach ")[1].split(",")[0])  # the first game's
    assert abs(value - stated) < 4 * (2 * stated / 128) ** 0.5


@pytest.mark.parametrize("name", [name for name in TABLES if (ROOT / f"benchmarks/results/{name}.json").exists()])
def test_the_page_shows_the_results_that_are_kept(name):
    kept = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    assert page.section(name, TABLES[name], kept) in (ROOT / "docs/results.md").read_text()
