"""Notebooks: the code cells are treated as one program, and everything else is preserved byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import libcst as cst

from hkx.migrate.rewrite import Result, mentions, migrate

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MAGIC = re.compile(r"^(\s*)([%!?].*|\w[\w., ]*=\s*[%!].*|[\w.]+\?{1,2})$")
_INSTALL = re.compile(r"\s*[%!].*(?<![\w.-])(dm[-_]haiku|rlax)\b")
_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun")


class CellFinding(NamedTuple):
    """Something for the user to look at, with its code cell (counted from 1) and line."""

    cell: int
    line: int
    reason: str


def migrate_notebook(text: str, rewrite: Callable[[str], Result] = migrate) -> tuple[str, list[CellFinding]]:
    """Rewrites the code cells of a notebook by `rewrite`, which adds no line, and lists what is left to do in them.

    Raises `ValueError` for text that is not a notebook.
    """
    tokens = list(_STRING.finditer(text))
    sources = _sources(json.loads(text), len(tokens))
    findings, programs, hidden = [], {}, {}
    for number, places in enumerate(sources, start=1):
        lines = "".join(json.loads(tokens[place][0]) for place in places).split("\n")
        foreign = lines[0].startswith("%%") and not lines[0].startswith(_PYTHON_CELLS)
        magic = [range(n, n + 1) for n in range(len(lines))] if foreign else _magic(lines)
        texts = [(command[0], " ".join(lines[n] for n in command)) for command in magic]
        findings += [CellFinding(number, n + 1, reason) for n, text in texts if (reason := _reason(text))]
        if foreign:
            continue
        hidden[number] = {n: lines[n] for command in magic for n in command}
        shown = {command[0]: re.match(r"\s*", lines[command[0]])[0] + "pass" for command in magic}  # type: ignore[index]
        program = "\n".join(shown.get(n, "") if n in hidden[number] else line for n, line in enumerate(lines))
        try:
            cst.parse_module(program)
        except cst.ParserSyntaxError as error:
            findings.append(CellFinding(number, error.raw_line, "no valid Python: left alone"))
        else:
            programs[number] = program
    new, inside = _migrate_together(programs, rewrite)
    edits = {}
    for number, program in new.items():
        whole = "\n".join(hidden[number].get(n, line) for n, line in enumerate(program.split("\n")))
        pieces = re.findall(r".*\n|.+$", whole)
        places = sources[number - 1]
        if len(places) == 1:
            pieces = ["".join(pieces)]
        if len(pieces) != len(places):
            raise ValueError(f"the source of code cell {number} is not split at its line ends")
        edits.update(zip(places, pieces, strict=True))
    return _with_strings(text, tokens, edits), sorted(findings + inside)


def _magic(lines: Sequence[str]) -> list[range]:
    """The commands of a cell that are for IPython, by their lines. They go on after a backslash at the end of a line.

    In Python, a line may begin with %, too, within an expression.
    """
    try:
        cst.parse_module("\n".join(lines))
    except cst.ParserSyntaxError:
        commands, end = [], 0
        for n, line in enumerate(lines):
            if n >= end and _MAGIC.match(line):
                end = next((m for m in range(n, len(lines)) if not lines[m].rstrip("\r").endswith("\\")), n) + 1
                commands.append(range(n, end))
        return commands
    return []


def _reason(line: str) -> str | None:
    """Why to look at a line that is not Python, if there is a reason."""
    if mentions(line):
        return "code in a line that is not Python: rewrite it by hand"
    return "the requirement: write hkx, which has both hkx and rlx" if _INSTALL.match(line) else None


def _migrate_together(
    programs: dict[int, str], rewrite: Callable[[str], Result]
) -> tuple[dict[int, str], list[CellFinding]]:
    """Rewrites the cells as one program, because they share their names. No line is added or removed."""
    result = rewrite("\n".join(programs.values()))
    lines, new, findings, begin = result.code.split("\n"), {}, [], 0
    for number, program in programs.items():
        end = begin + program.count("\n") + 1
        new[number] = "\n".join(lines[begin:end])
        findings += [
            CellFinding(number, line - begin, reason) for line, reason in result.findings if begin < line <= end
        ]
        begin = end
    return new, findings


def _sources(notebook: Any, n_tokens: int) -> list[list[int]]:
    """For each code cell, the indices of the strings in the file that are its source."""
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("no notebook: it has no list of cells")
    sources: dict[int, list[int]] = {}
    code = [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    numbers = {id(cell): number for number, cell in enumerate(code)}
    seen = 0

    def walk(value: Any, number: int | None) -> None:
        nonlocal seen
        if isinstance(value, str):
            if number is not None:
                sources.setdefault(number, []).append(seen)
            seen += 1
        elif isinstance(value, list):
            for item in value:
                walk(item, number)
        elif isinstance(value, dict):
            for key, item in value.items():
                seen += 1
                walk(item, numbers.get(id(value)) if key == "source" else None)

    walk(notebook, None)
    if seen != n_tokens:
        raise ValueError("its JSON has keys twice")
    return [sources.get(number, []) for number in range(len(code))]


def _with_strings(text: str, tokens: list[re.Match[str]], edits: dict[int, str]) -> str:
    """The text of the file with some of its strings replaced, in the same style of escapes."""
    parts, end = [], 0
    for place, new in sorted(edits.items()):
        token = tokens[place]
        if json.loads(token[0]) != new:
            parts += [text[end : token.start()], json.dumps(new, ensure_ascii=token[0].isascii())]
            end = token.end()
    return "".join([*parts, text[end:]])
