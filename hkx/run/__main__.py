"""The command line of `python -m hkx.run`."""

from __future__ import annotations

import importlib
import os
import sys

import hkx.run
import hkx.run.start
from hkx.run import here
from hkx.run.start.hkx_finder import FLAGS, begin


def main(words: list[str]) -> int:
    """Replaces this process by one of Python that runs the program; where it cannot, returns the exit code."""
    flags = []
    while words and words[0] in ("--jax-names", "--report"):
        flags.append(words.pop(0))
    if words[:1] in (["-h"], ["--help"]):
        print(hkx.run.__doc__)
        return 0
    if not words or flags == ["--report"]:
        wrong = "--report needs --jax-names" if words else "there is no program to run"
        print(f"python -m hkx.run: {wrong}; --help says more", file=sys.stderr)
        return 2
    os.environ.update(_environment(flags))
    if here.is_needed():
        begin()
        here.run(words)
        return 0
    command = [sys.executable, *_options_of_this_python(), *words]
    if os.name == "nt":  # there, exec returns to the shell before the program ends
        return importlib.import_module("subprocess").call(command)
    sys.stdout.flush()
    os.execv(sys.executable, command)


def _environment(flags: list[str]) -> dict[str, str]:
    """The environment variables that make a new Python, and its child processes, import our `sitecustomize`."""
    folders = os.environ["PYTHONPATH"].split(os.pathsep) if os.environ.get("PYTHONPATH") else []
    folder = os.path.abspath(hkx.run.start.__path__[0])
    return {FLAGS: " ".join(flags), "PYTHONPATH": os.pathsep.join([folder, *(f for f in folders if f != folder)])}


def _options_of_this_python() -> list[str]:
    """The words between `python` and `-m hkx.run` on the command line."""
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    if options[-1] == "hkx.run":
        options.pop()
    last = options.pop().removesuffix("hkx.run").removesuffix("m")  # `-m`, `-Om`, `-mhkx.run`
    return options if last == "-" else [*options, last]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
