"""Programs of one file: they import libraries only, have at most 200 lines, and run when copied elsewhere."""

import ast
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from children import environment

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
SINGLE = ["ppo", "ppo_mujoco"]
ALLOWED = {"hkx", "rlx", "jax", "numpy", "optax", "tyro", "matplotlib", "gymnax", "gymnasium", "wandb"}


@pytest.mark.parametrize("name", SINGLE)
def test_a_file_stands_alone_and_is_short(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 200
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names} | {
        getattr(n, "module", None) for n in nodes
    }
    roots = {name.split(".")[0] for name in names - {None}}
    assert roots - sys.stdlib_module_names <= ALLOWED


def run(folder, name, *flags):
    shutil.copy(EXAMPLES / f"{name}.py", folder)
    command = [sys.executable, f"{name}.py", *flags]
    root = str(EXAMPLES.parent)
    return subprocess.run(command, cwd=folder, env=environment() | {"PYTHONPATH": root}, capture_output=True, text=True)


@pytest.mark.peer
@pytest.mark.slow
def test_ppo_learns_cart_pole_from_a_folder_of_its_own(tmp_path):
    pytest.importorskip("gymnax")
    done = run(tmp_path, "ppo", "--seeds", "2", "--learning-rate", "0.005", "0.001", "--steps", "65536")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    assert first.startswith("final return: ") and first.endswith(
        "over 128 episodes of each of 2 seeds learning_rate=0.005"
    )
    assert second.endswith("learning_rate=0.001")
    metrics = json.loads((tmp_path / "runs/ppo/metrics.json").read_text())
    assert np.mean(metrics["final_return"][:2]) > 150  # 20 at random, 500 at most
    assert np.shape(metrics["curve"]["return"])[1] == metrics["agents"] == 4
    with np.load(tmp_path / "runs/ppo/parameters.npz") as params:
        assert params["policy/w"].shape == (4, 64, 2)
    assert (tmp_path / "runs/ppo/curve.png").stat().st_size > 10_000


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--env", "Tetris"), ("--minibatches", "5")])
def test_a_bad_flag_is_one_line(tmp_path, flags):
    pytest.importorskip("gymnax")
    done = run(tmp_path, "ppo", *flags)
    assert done.returncode == 1
    assert done.stderr.startswith(flags[0]) and done.stderr.count("\n") == 1


@pytest.mark.peer
@pytest.mark.slow
def test_ppo_on_mujoco_keeps_its_statistics_with_its_parameters(tmp_path):
    pytest.importorskip("mujoco")
    small = ["--rollout", "256", "--minibatches", "4", "--epochs", "2", "--environments", "2"]
    done = run(
        tmp_path, "ppo_mujoco", "--env", "InvertedPendulum-v5", "--steps", "4096", "--evaluation-episodes", "2", *small
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" over 2 episodes")
    rows = (tmp_path / "runs/ppo_mujoco/metrics.csv").read_text().splitlines()
    assert len(rows) == 1 + 4096 // 256
    assert float(rows[-1].split(",")[1]) > float(rows[2].split(",")[1])  # it learns: from 6 steps to about 20
    with np.load(tmp_path / "runs/ppo_mujoco/parameters.npz") as params:
        assert params["observations/number"] == 4096
        assert params["observations/mean"].shape == (4,)
        hidden = params["mlp/~/linear_0/w"]
    assert hidden.shape == (4, 64)
