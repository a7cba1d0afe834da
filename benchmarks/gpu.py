"""`python -m benchmarks --gpu`: the tests on a GPU, the benchmarks there, and one report of both."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What does not depend on the device, as imports and tracing, or divides over several, is not measured there.
BENCHMARKS = ("init", "dispatch", "compiled", "transposed", "unroll", "rlx_returns", "replay", "on_device")
SUITES = ("tests/core", "tests/lift", "tests/nn", "tests/nets", "tests/rlx", "tests/sharding", "tests/conformance")
NO_GPU = "There is no GPU that JAX can use here: nothing was run. Install jax[cuda13] on a machine that has one."


def devices() -> list[str]:
    """The kinds of the GPUs that JAX finds, in a process of its own: this one holds none."""
    program = "import jax; print(*[d.device_kind for d in jax.devices('gpu')], sep='\\n')"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return found.stdout.split("\n")[:-1] if found.returncode == 0 else []


def main(report: Path, rounds: int, only: Sequence[str] = BENCHMARKS) -> int:
    """Runs the tests on the GPU, and the benchmarks that depend on it; returns the exit status."""
    gpus = devices()
    if not gpus:
        print(NO_GPU, file=sys.stderr)
        return 1
    environment = {**os.environ, "JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    # The tests compare with NumPy to the precision of float32; by default JAX multiplies matrices in TF32 there.
    precisely = {**environment, "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    select = [name for name in BENCHMARKS if name in only]
    parts = [f"# On {', '.join(gpus)}\n\n{platform.platform()}, Python {platform.python_version()}\n"]
    failed = False
    benchmarks = [sys.executable, "-m", "benchmarks", "--devices", "gpu", "--rounds", str(rounds), "--only", *select]
    for title, command, variables in (
        ("Tests", [sys.executable, "-m", "pytest", "-q", "-n", "auto", *SUITES], precisely),
        ("Benchmarks", benchmarks, environment),
    ):
        begin = time.monotonic()
        print(" ".join(command[1:]), flush=True)
        ran = subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True)
        failed = failed or ran.returncode != 0
        text = "\n".join(ran.stdout.splitlines()[-200:])
        took = f"status {ran.returncode}, {time.monotonic() - begin:.0f} s"
        fence = "" if title == "Benchmarks" else "```\n"
        parts.append(f"## {title}\n\n`{' '.join(command[1:])}`, {took}\n\n{fence}{text}\n{fence}")
        report.write_text("\n".join(parts))  # what there is, though the next part should fail
    print(f"wrote {report}")
    return int(failed)
