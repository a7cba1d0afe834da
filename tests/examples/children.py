"""Programs that a test starts: their environment, what they print, and ports for them to meet at."""

import contextlib
import os
import pathlib
import random
import socket
import subprocess
import threading


def environment(cache: pathlib.Path | None = None, unoptimised: bool = True, **variables: object) -> dict[str, str]:
    """The environment of the tests, where a program says itself how many devices it makes out of a CPU.

    `unoptimised` is what the mark of this name is: not for a program that computes for a long time.
    What one program has compiled, those after it read from the folder `cache`. That is not for programs that a test
    kills, unless another one has compiled the same before: half an entry would stay behind.
    """
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    found = os.environ | {"XLA_FLAGS": " ".join(flags)}
    if unoptimised and not os.environ.get("TESTS_OPTIMISED"):
        found["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    if cache is not None:
        found["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        found |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    return found | {name: str(value) for name, value in variables.items()}


def line_of(process: subprocess.Popen, begins: str = "", seconds: float = 240) -> str:
    """The next line that a program prints which begins so. Where none comes in time the program is killed, and the test
    fails with what it wrote."""
    clock = threading.Timer(seconds, process.kill)
    clock.start()
    try:
        for line in iter(process.stdout.readline, ""):
            if line.startswith(begins):
                return line
        raise AssertionError(f"no line {begins!r} within {seconds} s: {process.communicate()[1]}")
    finally:
        clock.cancel()


def free_port() -> int:
    """A port that nobody listens on, and no connection is given: systems take those from 32,768 on."""
    while True:
        port = random.SystemRandom().randrange(10_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            return port
