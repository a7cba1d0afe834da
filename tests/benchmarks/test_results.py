"""`python -m benchmarks.results`: unfinished runs are in no mean, and the page shows the results that are there."""

import json
import pathlib

import pytest

from benchmarks.results import __main__ as results
from benchmarks.results.tables import TABLES

ROOT = pathlib.Path(__file__).parents[2]


def write_run(folder, last_step, value):
    folder.mkdir()
    rows = [f"{n},{value * n / last_step},{n * 4e-4}" for n in range(2048, last_step + 1, 2048)]
    (folder / "metrics.csv").write_text("\n".join(["steps,return_of_100_episodes,cpu_seconds", *rows]))


def test_finished_runs_are_averaged_and_others_say_how_far_they_got(tmp_path):
    write_run(tmp_path / "Hopper-v5-1", 999_424, 2000.0)  # 488 updates of 2,048 steps, as many as fit
    write_run(tmp_path / "Hopper-v5-2", 999_424, 3000.0)
    write_run(tmp_path / "Walker2d-v5-1", 409_600, 900.0)  # stopped by Ctrl-C
    (tmp_path / "HalfCheetah-v5-1").mkdir()
    (tmp_path / "HalfCheetah-v5-1.log").write_text(
        "  20,480 steps: return -3.5, 9 CPU µs a step\n  40,960 steps: return 7.5"
    )
    (tmp_path / "results").mkdir()
    results.save("mujoco_ppo", tmp_path, 3, tmp_path / "results")
    lines = {line.split(" | ")[0][2:]: line for line in results.write_page(tmp_path / "results", tmp_path).splitlines()}
    assert lines["Hopper-v5"].startswith(
        "| Hopper-v5 | 2 of 3 | 2,500 ± 500 | 2,500 [2,000, 3,000] | 2,383 ± 272 | 400 |"
    )
    assert lines["Hopper-v5"].endswith("| seed 3: not begun |")
    assert "| 0 of 3 |  |  |" in lines["Walker2d-v5"] and "seed 1: 900 after 409,600 steps" in lines["Walker2d-v5"]
    assert "seed 1: 8 after 40,960 steps" in lines["HalfCheetah-v5"]


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_the_results_that_are_kept(name):
    kept = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    assert results.section(name, TABLES[name], kept) in (ROOT / "docs/results.md").read_text()
