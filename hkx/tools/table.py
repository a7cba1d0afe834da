"""Tables as text and as HTML."""

from __future__ import annotations

import html
import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Sequence[str]]


class Table(str):
    """A table as a str, which notebooks show as HTML."""

    headers: Sequence[str]
    rows: Rows
    numeric: Sequence[bool]

    @classmethod
    def of(
        cls,
        headers: Sequence[str],
        rows: Rows,
        numeric: Sequence[bool],
        options: Mapping[str, Any],
        width: int | None = None,
        optional: Sequence[int] = (),
    ) -> Table:
        """Creates a table, whose cells may have several lines.

        Args:
          headers: the text above each column.
          rows: the cells.
          numeric: for each column, whether it is aligned to the right.
          options: `tablefmt` is one of `"grid"`, `"simple"`, `"plain"`, `"pipe"` (also called `"github"`), `"tsv"`,
            `"html"`. Any other, or any other option, is left to the package `tabulate`, if it is installed.
          width: the number of characters that a line of the first three has at most, if there is one.
          optional: columns that the text leaves out, one after the other, while it is wider.

        Raises:
          ValueError: if the format is unknown, or of that package, which is not installed.
        """
        if not hasattr(options, "keys"):  # a `ConfigDict` is not a Mapping
            raise TypeError(f"`tabulate_kwargs` must be a mapping, such as {{'tablefmt': 'grid'}}, got {options!r}.")
        text = (headers, rows, numeric)
        if width is not None and options.get("tablefmt", "simple") in ("grid", "simple", "plain"):
            text = _fitted(*text, width, optional)
        table = cls(_text(*text, dict(options)))
        table.headers, table.rows, table.numeric = headers, rows, numeric
        return table

    def _repr_html_(self) -> str:
        return _html(self.headers, self.rows, self.numeric)


def _text(headers: Sequence[str], rows: Rows, numeric: Sequence[bool], options: dict[str, Any]) -> str:
    formats = {"grid": _grid, "simple": _simple, "plain": _plain, "pipe": _pipe, "github": _pipe, "html": _html}
    name = options.get("tablefmt", "simple")
    if set(options) <= {"tablefmt"} and (name == "tsv" or name in formats):
        return _tsv(headers, rows) if name == "tsv" else formats[name](headers, rows, numeric)
    try:
        package = importlib.import_module("tabulate")
    except ImportError as error:
        raise ValueError(
            f"`tabulate_kwargs={options}`: the table formats are {[*formats, 'tsv']}, with no other options; "
            "for more, install the package `tabulate`."
        ) from error
    if isinstance(name, str) and name not in package.tabulate_formats:  # for which it would take another
        raise ValueError(f"`tablefmt` {name!r} is unknown: the table formats are {package.tabulate_formats}.")
    return package.tabulate(rows, headers=headers, **options)


def _lines(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[list[str]]:
    """The padded pieces of each line of a row."""
    split = [cell.split("\n") for cell in cells]
    height = max(map(len, split))
    padded = []
    for lines, width, to_right in zip(split, widths, right, strict=True):
        lines = lines + [""] * (height - len(lines))
        padded.append([line.rjust(width) if to_right else line.ljust(width) for line in lines])
    return [list(pieces) for pieces in zip(*padded, strict=True)]


def _widths(headers: Sequence[str], rows: Rows) -> list[int]:
    wide = [f"{header}  " for header in headers]  # as in the package `tabulate`
    return [max(len(line) for cell in column for line in cell.split("\n")) for column in zip(wide, *rows, strict=True)]


def _fitted(
    headers: Sequence[str], rows: Rows, numeric: Sequence[bool], width: int, optional: Sequence[int]
) -> tuple[Sequence[str], Rows, Sequence[bool]]:
    """Columns that fit into a number of characters: without some of the optional ones, and with cells of more lines."""
    columns = list(zip(headers, numeric, *rows, strict=True))
    room = lambda: width - 3 * len(columns) - 1  # noqa: E731  # between the lines of a grid
    wide = lambda column: _widths(column[:1], [[cell] for cell in column[2:]])[0]  # noqa: E731
    for column in [columns[i] for i in optional]:
        if sum(map(wide, columns)) > room():
            columns.remove(column)
    texts = [wide(column) for column in columns if not column[1]]
    left = room() - sum(wide(column) for column in columns if column[1])
    most = max((n for n in range(8, max(texts, default=8) + 1) if sum(min(n, w) for w in texts) <= left), default=8)
    columns = [c if c[1] else (_broken(c[0], most - 2), c[1], *(_broken(s, most) for s in c[2:])) for c in columns]
    headers, numeric, *rows = zip(*columns, strict=True)
    return headers, rows, numeric


def _broken(cell: str, width: int) -> str:
    """The cell with lines of at most `width` characters, broken after a blank, a slash or `name(` if possible."""
    lines = []
    for line in cell.split("\n"):
        parts = re.split(r"(?<=[ /])|(?<=\w\()", line)
        lines.append("")
        for piece in [part[i : i + width] for part in parts for i in range(0, len(part), width)]:
            if len((lines[-1] + piece).rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _grid(headers: Sequence[str], rows: Rows, numeric: Sequence[bool]) -> str:
    widths = _widths(headers, rows)

    def rule(mark: str) -> str:
        return "+" + "+".join(mark * (w + 2) for w in widths) + "+"

    out = [rule("-")]
    for i, cells in enumerate([headers, *rows]):
        out += ["| " + " | ".join(pieces) + " |" for pieces in _lines(cells, widths, numeric)]
        out.append(rule("=" if i == 0 else "-"))
    return "\n".join(out)


def _plain(headers: Sequence[str], rows: Rows, numeric: Sequence[bool], ruled: bool = False) -> str:
    widths = _widths(headers, rows)
    out = []
    for i, cells in enumerate([headers, *rows]):
        out += ["  ".join(pieces).rstrip() for pieces in _lines(cells, widths, numeric)]
        if ruled and i == 0:
            out.append("  ".join("-" * w for w in widths))
    return "\n".join(out)


def _simple(headers: Sequence[str], rows: Rows, numeric: Sequence[bool]) -> str:
    return _plain(headers, rows, numeric, ruled=True)


def _pipe(headers: Sequence[str], rows: Rows, numeric: Sequence[bool]) -> str:
    rows = [[cell.replace("|", "\\|").replace("\n", "<br>") for cell in row] for row in rows]
    widths = [max(w, 3) for w in _widths(headers, rows)]
    out = ["| " + " | ".join(_lines(cells, widths, numeric)[0]) + " |" for cells in [headers, *rows]]
    rule = [("-" * (w + 1) + ":") if right else (":" + "-" * (w + 1)) for w, right in zip(widths, numeric, strict=True)]
    return "\n".join([out[0], "|" + "|".join(rule) + "|", *out[1:]])


def _tsv(headers: Sequence[str], rows: Rows) -> str:
    return "\n".join("\t".join(cell.replace("\n", " ") for cell in cells) for cells in [headers, *rows])


def _html(headers: Sequence[str], rows: Rows, numeric: Sequence[bool]) -> str:
    cell = "vertical-align: top; padding: 0.3em 0.7em; border-bottom: 1px solid #b0b7c3; white-space: "
    text, number = f"{cell}pre-wrap; text-align: left", f"{cell}nowrap; text-align: right"
    style = [f' style="{number if right else text}"' for right in numeric]

    def row(tag: str, cells: Sequence[str]) -> str:
        return "".join(f"<{tag}{s}>{html.escape(c)}</{tag}>" for s, c in zip(style, cells, strict=True))

    head, body = row("th", headers), "\n".join(f"<tr>{row('td', cells)}</tr>" for cells in rows)
    around = '<div style="border-collapse: collapse; font-size: 90%; overflow-wrap: break-word">'
    return f"{around}<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
