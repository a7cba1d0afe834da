"""`python -m benchmarks --gpu`: the tests on a GPU, the benchmarks there, and one report of both."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("tests/core", "tests/lift", "tests/nn", "tests/nets", "tests/rlx", "tests/sharding", "tests/conformance")
NO_GPU = "There is no GPU that JAX can use here: nothing was run. Install jax[cuda13] on a machine that has one."


def devices() -> list[str]:
    """The kinds of the GPUs that JAX finds, in a process of its own: this one holds none."""
    program = "import jax; print(*[d.device_kind for d in jax.devices('gpu')], sep='\\n')"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return found.stdout.split("\n")[:-1] if found.returncode == 0 else []


def main(report: Path, rounds: int) -> int:
    """Runs all that there is on the GPU; returns the exit status."""
    gpus = devices()
    if not gpus:
        print(NO_GPU, file=sys.stderr)
        return 1
    environment = {**os.environ, "JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    parts = [f"# On {', '.join(gpus)}\n\n{platform.platform()}, Python {platform.python_version()}\n"]
    failed = False
    for title, command in {
        "Tests": [sys.executable, "-m", "pytest", "-q", *SUITES],
        "Benchmarks": [sys.executable, "-m", "benchmarks", "--devices", "gpu", "--rounds", str(rounds)],
    }.items():
        begin = time.monotonic()
        print(" ".join(command[1:]), flush=True)
        ran = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        failed = failed or ran.returncode != 0
        text = "\n".join(ran.stdout.splitlines()[-200:])
        took = f"status {ran.returncode}, {time.monotonic() - begin:.0f} s"
        fence = "" if title == "Benchmarks" else "```\n"
        parts.append(f"## {title}\n\n`{' '.join(command[1:])}`, {took}\n\n{fence}{text}\n{fence}")
        report.write_text("\n".join(parts))  # what there is, though the next part should fail
    print(f"wrote {report}")
    return int(failed)
