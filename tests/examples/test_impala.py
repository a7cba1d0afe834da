"""`examples/impala.py` on Ray: killed actors are replaced, and a killed learner goes on from its checkpoint."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from children import environment, line_of

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.long]
ROOT = pathlib.Path(__file__).parents[2]


def start(folder, *flags):
    command = [sys.executable, str(ROOT / "examples" / "impala.py"), "--output", str(folder / "run"), *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    variables = environment(PYTHONPATH=ROOT, JAX_PLATFORMS="cpu", PYTHONUNBUFFERED=1)
    return subprocess.Popen([*command, "--checkpoint-every", "20"], cwd=folder, env=variables, **pipes)


def test_killed_actors_and_a_killed_learner(tmp_path):
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    learner = start(tmp_path, "--steps", "400000")
    line_of(learner, "    6,400 steps")
    started = psutil.Process(learner.pid).children(recursive=True)
    actors = [child for child in started if "Actor" in child.name() or "ray::Actor" in " ".join(child.cmdline())]
    assert len(actors) == 2
    actors[0].send_signal(signal.SIGKILL)
    for _ in range(500):
        line = line_of(learner)
        if line.endswith(" 1 actors lost\n"):
            break
    assert line.endswith(" 1 actors lost\n")
    os.kill(learner.pid, signal.SIGKILL)
    learner.communicate(timeout=60)
    psutil.wait_procs(started, timeout=60)
    again = start(tmp_path, "--steps", "16000")
    output, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    first, *_, last = output.splitlines()
    assert first.startswith("going on after ")
    assert last.startswith("final return: ") and last.endswith(" over 10 episodes")
    assert (tmp_path / "run" / "curve.png").stat().st_size > 5_000
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]  # of both learners, each step once
    steps = [float(row.split(",")[0]) for row in rows]
    assert steps[:2] == [6_400, 12_800] and steps == sorted(set(steps))
