"""Prepares each process of a program: one finder, and JAX's old names if asked for, or else a hint of them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types

import hkx.run.start
from hkx.run.finder import Finder

FLAGS = "HKX_RUN"  # the environment variable that hands our flags to child processes


def environment(flags: list[str]) -> dict[str, str]:
    """The environment variables that make a new Python, and its child processes, call `begin`."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.environ.get("PYTHONPATH") else []
    folder = hkx.run.start.__path__[0]
    return {FLAGS: " ".join(flags), "PYTHONPATH": os.pathsep.join([folder, *(f for f in folders if f != folder)])}


def begin() -> None:
    """Prepares this process, before its program starts."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder())
    flags = os.environ.get(FLAGS, "").split()
    if "--jax-names" in flags:
        importlib.import_module("hkx.run.jax_names").install(report="--report" in flags)
    else:
        sys.excepthook = _with_hint


def _with_hint(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
    if isinstance(error, AttributeError | ImportError | TypeError) and importlib.util.find_spec("hkx.run.jax_names"):
        hint = importlib.import_module("hkx.run.jax_names").hint(error)
        if hint is not None:
            error.add_note(hint)
    sys.__excepthook__(kind, error, traceback)
