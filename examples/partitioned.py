"""Memory use and communication, per device, of a program that XLA has partitioned over many devices."""

import collections
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\(")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
CALLED = re.compile(r"(body|condition|to_apply|calls|branch_computations)=(%[\w.-]+|\{[^}]*\})")
TRIPS = re.compile(r"known_trip_count\W+n\W+(\d+)")
ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")


class Traffic(NamedTuple):
    """The use of one kind of collective operation in one run of a program."""

    times: int
    received: int  # bytes of the results, on one device


def collectives(compiled: jax.stages.Compiled) -> dict[str, Traffic]:
    """The collectives of a compiled program, by kind. Those in a loop are counted once per iteration."""
    found: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)  # by computation: kind, bytes
    called: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)  # by computation: callee, times
    entry = name = ""
    for line in (compiled.as_text() or "").splitlines():
        if header := COMPUTATION.match(line):
            name = header[2]
            entry = name if header[1] else entry
        elif match := COLLECTIVE.search(line):
            found[name].append((match[2], bytes_of(match[1])))
        trips = TRIPS.search(line)
        for how, names in CALLED.findall(line):
            times = int(trips[1]) if trips and how == "body" else 1
            called[name] += [(callee, times) for callee in re.findall(r"[\w.-]+", names)]
    totals: dict[str, Traffic] = {}

    def visit(name: str, times: int) -> None:
        for kind, received in found[name]:
            so_far = totals.get(kind, Traffic(0, 0))
            totals[kind] = Traffic(so_far.times + times, so_far.received + times * received)
        for callee, more in called[name]:
            visit(callee, times * more)

    visit(entry, 1)
    return {kind: totals[kind] for kind in KINDS if kind in totals}


def bytes_of(result: str) -> int:
    """The size in bytes of a type such as `(f32[2,3]{1,0}, bf16[4])`."""
    return sum(
        math.ceil(int(bits or 8) / 8) * math.prod(int(n) for n in shape.split(",") if n)
        for _, bits, shape in ARRAY.findall(result)
    )


def carried(values: Mapping[int, float], to: int) -> float:
    """Extrapolates a quantity to the width `to` from its values at three smaller widths.

    Every array of a transformer has at most two dimensions that grow with its width, so sizes in bytes are
    `a + b width + c width**2`, and three widths determine the three coefficients. A single value is returned unchanged.
    """
    if to in values:
        return values[to]
    widths = np.array(list(values), float)
    return float(np.polyval(np.polyfit(widths, np.array(list(values.values()), float), len(values) - 1), to))


def report(programs: Mapping[int, Any], width: int) -> tuple[list[str], dict[str, float]]:
    """A table of memory and collectives for each compiled width, and the values of its last column, for `width`."""
    rows: dict[str, dict[int, float]] = collections.defaultdict(dict)
    for compiled_width, compiled in programs.items():
        memory = compiled.memory_analysis()  # of one device: parameters, optimizer state, its part of the batch …
        rows["held between steps, bytes"][compiled_width] = memory.argument_size_in_bytes
        rows["needed besides in a step, bytes"][compiled_width] = memory.temp_size_in_bytes  # … and what a step needs
        for kind, (times, received) in collectives(compiled).items():
            rows[f"{kind}, times"][compiled_width] = times
            rows[f"{kind}, bytes received"][compiled_width] = received
    widths = dict.fromkeys([*programs, width])
    lines = [line("per device and step", [f"width {w}" for w in widths])]
    last = {}
    for name, values in rows.items():
        values = {w: values.get(w, 0.0) for w in programs}
        last[name] = carried(values, width)
        lines.append(line(name, [f"{round(number):,}" for number in (values | {width: last[name]}).values()]))
    return lines, last


def line(name: str, cells: Sequence[str]) -> str:
    return f"{name:34}" + "".join(f"{cell:>19}" for cell in cells)
