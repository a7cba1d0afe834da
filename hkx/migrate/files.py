"""Files: which ones are processed, how they are read, and how they are written back in the same format."""

from __future__ import annotations

import codecs
import io
import os
import pathlib
import re
import shutil
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from hkx.migrate.jax_names import migrate_jax_names
from hkx.migrate.notebook import migrate_notebook
from hkx.migrate.rewrite import Result, migrate

_PROGRAMS = {".py", ".pyi"}
_REQUIREMENTS = re.compile(
    r"(.*requirements.*|constraints.*)\.(txt|in)|pyproject\.toml|setup\.cfg|Pipfile|environment\.ya?ml"
)
_REQUIRED = re.compile(r"(?<![\w.-])(dm[-_]haiku|rlax)(?![\w/-])")
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


class Migrated(NamedTuple):
    """A file before and after the migration, and what is left to do in it, with places and reasons."""

    path: pathlib.Path
    encoding: str
    before: str
    after: str
    findings: list[tuple[str, str]]


def files_in(paths: Iterable[pathlib.Path]) -> Iterator[pathlib.Path]:
    """The given files, and those in the given folders that may use Haiku or RLax; each once."""
    seen = set()
    for path in paths:
        for file in [path] if path.is_file() else _search(path):
            real = file.resolve()  # a link that is given explicitly is followed, and its target is written
            if real not in seen:
                seen.add(real)
                yield file


def _search(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED and not os.path.exists(f"{root}/{name}/pyvenv.cfg")
        )
        for name in sorted(files):
            path = pathlib.Path(root, name)
            if is_read(path) and not path.is_symlink():
                yield path


def is_read(path: pathlib.Path) -> bool:
    """True if the tool processes files of this name."""
    listed = path.parent.name == "requirements" and path.suffix in {".txt", ".in"}
    return path.suffix in {*_PROGRAMS, ".ipynb"} or listed or _REQUIREMENTS.fullmatch(path.name) is not None


def migrate_file(path: pathlib.Path, jax_names: bool = False) -> Migrated:
    """Reads one file and migrates its contents, without writing it; `jax_names` includes names that JAX has removed."""
    data = path.read_bytes()
    packages = b"haiku|rlax|jax|numpy|optax|chex" if jax_names else b"haiku|rlax"
    if not re.search(packages, data.replace(b"\0", b"")):  # in UTF-16, with zeros in between
        return Migrated(path, "utf-8", "", "", [])
    try:
        encoding = _encoding(path, data)
        before = data.decode(encoding)
        if path.suffix == ".ipynb":
            after, cells = migrate_notebook(before, _both if jax_names else migrate)
            findings = [(f"{path}:cell {cell}:{line}", reason) for cell, line, reason in cells]
        elif path.suffix in _PROGRAMS:
            after, found = _both(before, keep_lines=False) if jax_names else migrate(before)
            findings = [(f"{path}:{line}", reason) for line, reason in [*found, *_required(path, before)]]
        else:
            after, findings = before, [(f"{path}:{line}", reason) for line, reason in _required(path, before)]
    except cst.ParserSyntaxError as error:
        return Migrated(path, "utf-8", "", "", [(f"{path}:{error.raw_line}", "no valid Python: left alone")])
    except (ValueError, SyntaxError, RecursionError) as error:
        return Migrated(path, "utf-8", "", "", [(f"{path}:1", f"left alone: {error}")])
    return Migrated(path, encoding, before, after, findings)


def _both(code: str, keep_lines: bool = True) -> Result:
    """The program for hkx, without names that JAX has removed; in a notebook, lines stay where they are."""
    first = migrate(code)
    second = migrate_jax_names(first.code, keep_lines)
    return Result(second.code, sorted({*first.findings, *second.findings}))


def _encoding(path: pathlib.Path, data: bytes) -> str:
    if path.suffix in _PROGRAMS:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]  # by byte order mark or comment
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"  # what PowerShell writes, as in `pip freeze > requirements.txt`
    return "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"


def _required(path: pathlib.Path, text: str) -> Iterator[tuple[int, str]]:
    if path.suffix in _PROGRAMS and path.name != "setup.py":
        return
    for number, line in enumerate(text.splitlines(), start=1):
        found = _REQUIRED.search(line.partition("#")[0])
        if found and not re.match(r"\s*(import|from)\b", line):
            yield number, f"the requirement {found[1]}: write hkx, which has both hkx and rlx"


def write(file: Migrated) -> None:
    """Replaces the contents atomically, and preserves the file mode."""
    target = file.path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(file.after.encode(file.encoding))
        shutil.copymode(target, name)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
