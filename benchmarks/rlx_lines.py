"""Where the lines of rlx's public functions go: documentation, signature, checks, and the equation.

    python -m benchmarks.rlx_lines [folder]

By the syntax tree, of all functions of modules outside of `core` whose names have no leading underscore. A docstring is
documentation. Decorators and the `def` up to its colon are the signature. A statement is a check where it raises, or
calls something whose name begins with one of `CHECKS`. All else in the body, and the functions with a leading
underscore, are the equation; blank lines and comments are not counted.
"""

import argparse
import ast
import pathlib
from collections import Counter

CHECKS = ("require", "check", "as_arrays", "whole", "given_mask", "stoppable")
KINDS = ("documentation", "signature", "checks", "equation")


def lines_of(source: str) -> Counter[str]:
    """How many lines of each kind the functions of one file have."""
    written = {i for i, line in enumerate(source.splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    found: Counter[str] = Counter()
    for function in ast.parse(source).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        body = list(function.body)
        start = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        if function.name.startswith("_"):
            found["equation"] += _count(written, start, function.end_lineno)
            continue
        found["functions"] += 1
        found["signature"] += _count(written, start, body[0].lineno - 1)
        if ast.get_docstring(function) is not None:
            found["documentation"] += _count(written, body[0].lineno, body.pop(0).end_lineno)
        for statement in body:
            kind = "checks" if _checks(statement) else "equation"
            found[kind] += _count(written, statement.lineno, statement.end_lineno)
    return found


def _count(written: set[int], first: int, last: int | None) -> int:
    return sum(i in written for i in range(first, (last or first) + 1))


def _checks(statement: ast.stmt) -> bool:
    """Whether a statement looks at what came rather than computing from it."""
    calls = [n.func for n in ast.walk(statement) if isinstance(n, ast.Call)]
    names = [getattr(f, "id", getattr(f, "attr", "")) for f in calls]
    return isinstance(statement, ast.Raise) or any(
        name.startswith(CHECKS) or (isinstance(statement, ast.If) and name.endswith("Error")) for name in names
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=pathlib.Path(__file__).parents[1] / "rlx", type=pathlib.Path)
    folder = parser.parse_args().folder
    paths = [p for p in folder.rglob("*.py") if not {"core", "replay"} & set(p.relative_to(folder).parts)]
    total = sum((lines_of(path.read_text(encoding="utf-8")) for path in paths), Counter())
    functions, lines = total["functions"], sum(total[kind] for kind in KINDS)
    print(f"{functions} public functions; lines of each kind, their share, and how many a function has\n")
    for kind in KINDS:
        print(f"{kind:15s}{total[kind]:6d}{100 * total[kind] / lines:6.0f} %{total[kind] / functions:8.1f}")


if __name__ == "__main__":
    main()
