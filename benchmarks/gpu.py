"""`python -m benchmarks --gpu`: the tests on a GPU, the benchmarks there, and one report of both."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What does not depend on the device, as imports and tracing, or divides over several, is not measured there.
BENCHMARKS = ("dispatch", "transposed", "unroll", "replay", "on_device", "rlx_returns", "compiled", "init")
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
    # The tests compare with NumPy to the precision of float32; by default JAX multiplies matrices in TF32 there. They
    # compile thousands of small programs, which would take longer if each were tuned.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0".strip()
    for_tests = {**environment, "JAX_DEFAULT_MATMUL_PRECISION": "highest", "XLA_FLAGS": flags}
    benchmark = ["-m", "benchmarks", "--devices", "gpu", "--rounds", str(rounds), "--only"]
    commands = {"Tests": ["-m", "pytest", "-q", "-n", "auto", *SUITES]}
    commands |= {f"Benchmark: {name}": [*benchmark, name] for name in BENCHMARKS if name in only}
    parts = [f"# On {', '.join(gpus)}\n\n{platform.platform()}, Python {platform.python_version()}\n"]
    failed = interrupted = False
    for title, command in commands.items():
        begin = time.monotonic()
        print(" ".join(command), flush=True)
        status, text, interrupted = run(command, for_tests if title == "Tests" else environment)
        failed = failed or status != 0
        took = f"{'interrupted' if interrupted else f'status {status}'}, {time.monotonic() - begin:.0f} s"
        fence = "```\n" if title == "Tests" else ""
        parts.append(f"## {title}\n\n`{' '.join(command)}`, {took}\n\n{fence}{text}\n{fence}")
        report.write_text("\n".join(parts))  # what there is, though the next part should fail
        if interrupted:
            break
    print(f"wrote {report}")
    return 130 if interrupted else int(failed)


def run(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, bool]:
    """Runs Python; returns its status, its last 200 lines, and whether it was interrupted, when it ends by itself."""
    with tempfile.TemporaryFile("w+") as printed:
        python = [sys.executable, *command]
        process = subprocess.Popen(python, cwd=ROOT, env=variables, stdout=printed, start_new_session=True)
        try:
            process.wait()
            interrupted = False
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            process.wait()
            interrupted = True
        printed.seek(0)
        return process.returncode, "\n".join(printed.read().splitlines()[-200:]), interrupted
