"""Helpers that the programs of this folder share: flags from a dataclass, atomic file writes, and handling of Ctrl-C.

The flags of a program are the fields of a dataclass, which tyro parses, as in CleanRL. The comment beside a field is
its help text, and `Literal` gives its choices. settings.py adds limits, which tyro does not support.
"""

import csv
import gc
import os
import pathlib
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np
import tyro
from settings import BadSetting

import hkx


class BadFlag(BadSetting):
    """A flag has an invalid value; the message says which flag, and why."""


def as_flag(name: str) -> str:
    return f"--{name[:-1].replace('_', '-')}{name[-1]}"  # tyro turns `lambda_` into `--lambda_`


def start(settings: type[Any], main: Callable[[Any], Mapping[str, Any]], description: str | None) -> NoReturn:
    """Runs `main` with the flags of the command line, and exits: with 2 after a bad flag, with 130 after Ctrl-C."""
    gc.freeze()  # imported objects live as long as the program; without this, collecting garbage takes 0.1 s more
    try:
        metrics = main(tyro.cli(settings, description=description))
    except BadSetting as error:
        print(f"{pathlib.Path(sys.argv[0]).name}: {error} (--help lists every flag)", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before there was anything to save, or the second Ctrl-C
        end_at_once()
    sys.exit(130 if metrics.get("interrupted") else 0)


def end_at_once() -> NoReturn:
    """Ends the program after a KeyboardInterrupt, which may have come in the middle of anything.

    This is not `sys.exit`: if JAX was compiling, cleaning up after it crashes with a segmentation fault.
    """
    print(f"\n{pathlib.Path(sys.argv[0]).name}: interrupted", file=sys.stderr)
    sys.stdout.flush()
    os._exit(130)


@contextmanager
def noticing_interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event, so that the program can save and stop; a second Ctrl-C stops it at once."""
    interrupted = threading.Event()

    def note(*_: Any) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, usual)

    usual = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, usual)


def output_folder(path: str, flag: str = "--output") -> pathlib.Path:
    """Creates the folder given by a flag, and checks that it is writeable before any work is done."""
    try:
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise BadFlag(f"argument {flag}: cannot write into the folder {path}: {error.strerror}") from None
    return pathlib.Path(path)


@contextmanager
def whole_file(path: pathlib.Path, flag: str = "--output") -> Iterator[pathlib.Path]:
    """A temporary path to write a file to, which is then renamed, so that `path` never contains an incomplete file."""
    unfinished = path.with_stem(path.stem + "-unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink()
        raise BadFlag(f"argument {flag}: cannot write {path}: {error.strerror or error}") from None


def save_table(path: pathlib.Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Writes columns of equal length as CSV; None becomes an empty field."""
    with whole_file(path) as unfinished, open(unfinished, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])


def save_parameters(path: pathlib.Path, params: hkx.Params) -> None:
    """Writes parameters or state as a NumPy .npz file, with one array for each `module/name`."""
    with whole_file(path) as unfinished:
        np.savez(unfinished, **{f"{module}/{name}": x for module, name, x in hkx.data_structures.traverse(params)})


def load_parameters(path: str, like: hkx.Params) -> hkx.Params:
    """Reads what `save_parameters` wrote, and checks that its names and shapes are those of `like`."""
    try:
        with open(path, "rb") as opened, np.load(opened) as file:
            found = dict(file)
    except Exception as error:  # NumPy raises errors of many kinds
        why = getattr(error, "strerror", None) or "it holds none"
        raise BadFlag(f"argument --parameters: cannot read saved parameters from {path}: {why}") from None
    for module, name, x in hkx.data_structures.traverse(like):
        has = found[f"{module}/{name}"].shape if f"{module}/{name}" in found else "nothing"
        if has != x.shape:
            wrong = f"{path} has {has} for {module}/{name}, and the network needs {x.shape}"
            raise BadFlag(f"argument --parameters: {wrong}; was it saved with other settings?")
    return hkx.data_structures.map(lambda module, name, _: found[f"{module}/{name}"], like)
