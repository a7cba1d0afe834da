"""What the programs of this folder share and none of them is about: flags, whole files, an end after Ctrl-C."""

import argparse
import dataclasses
import os
import pathlib
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

import numpy as np

import hkx


class BadFlag(ValueError):
    """A setting that cannot be used; the message says which, and why."""


def flag(default: Any, help: str, low: float = -np.inf, high: float = np.inf, choices: Sequence[str] = ()) -> Any:
    """A field of a config: its default, what it means, and what it may be."""
    return dataclasses.field(
        default=default, metadata={"help": help, "low": low, "high": high, "choices": tuple(choices)}
    )


def as_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a run. Every field of a subclass is a flag of the command line, made by `flag`."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, low, high = getattr(self, field.name), field.metadata["low"], field.metadata["high"]
            if field.type in (int, float) and not low <= value <= high:
                limits = f"{low} or more" if high == np.inf else f"between {low} and {high}"
                raise BadFlag(f"argument {as_flag(field.name)}: must be {limits}, not {value}")
            if field.metadata["choices"] and value not in field.metadata["choices"]:
                names = ", ".join(field.metadata["choices"])
                raise BadFlag(f"argument {as_flag(field.name)}: must be one of {names}, not {value!r}")


AnySettings = TypeVar("AnySettings", bound=Settings)


def parse(settings: type[AnySettings], description: str, arguments: Sequence[str] | None = None) -> AnySettings:
    """Reads the flags of a command line into a config."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise BadFlag(message)

    parser = Parser(description=description.partition("\n")[0], allow_abbrev=False)
    for field in dataclasses.fields(settings):
        help = field.metadata["help"]
        if field.type is bool:
            parser.add_argument(
                as_flag(field.name), action=argparse.BooleanOptionalAction, default=field.default, help=help
            )
        else:
            help += f", one of {', '.join(field.metadata['choices'])}" if field.metadata["choices"] else ""
            help += f" (default: {field.default})" if field.default != "" else ""
            parser.add_argument(
                as_flag(field.name), type=field.type, default=field.default, help=help, metavar=field.type.__name__
            )
    return settings(**vars(parser.parse_args(arguments)))


def start(settings: type[Settings], main: Callable[[Any], Mapping[str, Any]], description: str | None) -> NoReturn:
    """Runs `main` with the flags of the command line, and exits: 2 after a bad flag, 130 where it was interrupted."""
    try:
        metrics = main(parse(settings, description or ""))
    except BadFlag as error:
        print(f"{pathlib.Path(sys.argv[0]).name}: {error} (--help lists every flag)", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before there was anything to save, or a second time
        print(f"\n{pathlib.Path(sys.argv[0]).name}: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(130 if metrics.get("interrupted") else 0)


@contextmanager
def noticing_interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event, so that the work can end in good order; a second Ctrl-C acts as ever."""
    interrupted = threading.Event()

    def note(*_: Any) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, usual)

    usual = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, usual)


def output_folder(path: str) -> pathlib.Path:
    """Makes the folder that `--output` names, and tries it: better now than when there is something to lose."""
    folder = pathlib.Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFlag(f"argument --output: cannot make the folder {path}: {error.strerror}") from None
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise BadFlag(f"argument --output: cannot write into the folder {path}: {error.strerror}") from None
    return folder


def write_whole(path: pathlib.Path, write: Callable[[pathlib.Path], Any]) -> None:
    """Writes a file in such a way that, whatever stops the program, its name only ever stands for a whole one."""
    unfinished = path.with_stem(path.stem + "-unfinished")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink()
        raise BadFlag(f"argument --output: cannot write {path}: {error.strerror or error}") from None


def save_table(path: pathlib.Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Writes columns of one length as CSV; None stands for an empty field."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join("" if value is None else str(value) for value in row) for row in rows)]
    write_whole(path, lambda unfinished: unfinished.write_text("\n".join(lines) + "\n"))


def save_parameters(path: pathlib.Path, params: hkx.Params) -> None:
    """Writes parameters, or state, as NumPy's .npz: one array to `module/name`."""
    arrays = {f"{module}/{name}": np.asarray(x) for module, arrays in params.items() for name, x in arrays.items()}
    write_whole(path, lambda unfinished: np.savez(unfinished, **arrays))


def load_parameters(path: str, like: hkx.Params) -> hkx.Params:
    """Reads what `save_parameters` wrote, and checks that it fits where `like` does."""
    try:
        with open(path, "rb") as opened, np.load(opened) as file:
            found = dict(file)
    except FileNotFoundError:
        raise BadFlag(f"argument --parameters: there is no file {path}") from None
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile):
        raise BadFlag(f"argument --parameters: {path} does not hold saved parameters") from None
    for module, arrays in like.items():
        for name, x in arrays.items():
            saved = found.get(f"{module}/{name}")
            if saved is None or saved.shape != x.shape:
                has = f"has no {module}/{name}" if saved is None else f"has shape {saved.shape} for {module}/{name}"
                wrong = f"{path} {has}, and the network needs {x.shape}"
                raise BadFlag(f"argument --parameters: {wrong}; was it saved with other settings?")
    return {module: {name: found[f"{module}/{name}"] for name in arrays} for module, arrays in like.items()}
