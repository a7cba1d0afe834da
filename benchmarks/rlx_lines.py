"""How plain rlx is: lines of code, kernels without machinery, functions of masking, and where the lines go.

    python -m benchmarks.rlx_lines [folder]

- **Lines of code** are counted as `tests/test_architecture.py` counts them: neither blank, nor comments, nor strings
  that stand alone, as docstrings do. They are those of all of rlx but `rlx/batching.py`.
- **Added later** are files and functions that came with features after commit 51c876a, for which the goals were set
  (`git diff 51c876a --stat -- rlx`, `git log -S NAME -- rlx`), and their rows in the table of public names. Their lines
  are listed and subtracted. Whatever else grew in files that existed counts.
- **Kernels** are the functions under `@operator(...)`. One is plain if its body has none of `MACHINERY`: words for
  masks and weights (`product` is the recurrence's), for finite exponents and logarithms, and for the widening of half
  precision. Means and sums over the steps that count (`masked_mean`, `masked_sum`, `counts_of`) are part of equations.
  The words of 51c876a are in the list, so that its 95 are counted alike: `git worktree add base 51c876a`, then give the
  folder `base/rlx`.
- **Functions of masking** are all those in `rlx/core/masking.py`, private ones too.
- **Where the lines go**: of the functions outside of `core` and `replay` whose names have no leading underscore. A
  statement is a check where it raises, or calls something whose name begins with one of `CHECKS`. The rest of the body,
  and functions with a leading underscore, are the equation.
"""

import argparse
import ast
import io
import pathlib
import tokenize
from collections import Counter
from collections.abc import Iterator

CHECKS = ("require", "check", "as_arrays", "whole", "given_mask", "stoppable")
KINDS = ("documentation", "signature", "checks", "equation")
MACHINERY = {
    *("masked", "weighted", "product", "weighted_sum", "finite_exponent", "finite_log", "wide_dtype", "astype"),
    *("if_used", "rows_if_used", "if_counted", "slope_if_used", "slopes_if_used", "slope_where", "leave_out"),
    "in_wide_dtype",
}
ADDED_FILES = {
    "batch_advantages.py": "advantages of REINFORCE++, ReMax, GDPO, pass@k and of the optimal baseline",
    "clip_cov.py": "clip_cov_loss kl_cov_loss",
    "evaluation.py": "interquartile means and probabilities of improvement of several runs",
    "gmpo.py": "gmpo_loss gspo_token_loss",
    "importance_weights.py": "importance_weights",
    "preference_variants.py": "apo_loss robust_dpo_loss slic_loss",
    "token_log_probs.py": "token_log_probs",
    "token_rewards.py": "distillation_advantages kl_shaped_rewards",
    "truncated_softmax.py": "top_k top_p min_p repetition_penalty",
    "core/glossary.py": "answers to names of other libraries",
    "core/tracebacks.py": "errors without frames of rlx",
}
ADDED_FUNCTIONS = {
    "grpo.py": ("aggregated", "_k3_with_gradient_of_k2"),  # the ways of averaging tokens; an estimator of the KL
    "core/arguments.py": ("_require_indices",),  # errors that name an action that is out of range
    "core/annotations.py": ("Indices",),  # the same
    "core/operator.py": ("_require_axes_of_vmap",),  # of batching: the error of keywords under `jax.vmap`
}


def code_lines(source: str) -> set[int]:
    """The numbers of the lines of code."""
    strings = {
        i
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) and isinstance(n.value.value, str)
        for i in range(n.lineno, (n.end_lineno or 0) + 1)
    }
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in nothing]
    return {i for t in tokens for i in range(t.start[0], t.end[0] + 1)} - strings


def added_lines(files: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """(file, lines of code, what they are) of everything that was added later."""
    for name, what in ADDED_FILES.items():
        if name in files:
            yield name, len(code_lines(files[name])), what
    for name, functions in ADDED_FUNCTIONS.items():
        lines, tree = code_lines(files[name]), ast.parse(files[name])
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in functions:
                yield name, len(lines & set(range(_first_line(node), (node.end_lineno or 0) + 1))), node.name
    modules = [f'"rlx.{name[:-3]}"' for name in ADDED_FILES if "/" not in name]
    rows = [line for line in files["__init__.py"].splitlines() if line.strip().startswith(tuple(modules))]
    yield "__init__.py", len(rows), "first rows of their public names"


def kernels(files: dict[str, str]) -> dict[str, bool]:
    """The functions under `@operator(...)`, and whether each is plain."""
    found = {}
    for name, source in files.items():
        for node in ast.walk(ast.parse(source)):
            if (
                name != "core/operator.py"
                and isinstance(node, ast.FunctionDef)
                and any(map(_is_operator, node.decorator_list))
            ):
                used = {
                    getattr(n, "id", getattr(n, "attr", "")) for statement in node.body for n in ast.walk(statement)
                }
                found[node.name] = not used & MACHINERY
    return found


def _is_operator(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "operator"


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def lines_of(source: str) -> Counter[str]:
    """How many lines of each kind the functions of one file have."""
    written = {i for i, line in enumerate(source.splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    found: Counter[str] = Counter()
    for function in ast.parse(source).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        body = list(function.body)
        start = _first_line(function)
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
    files = {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in sorted(folder.rglob("*.py"))}
    files.pop("batching.py", None)
    of_all, added = sum(len(code_lines(source)) for source in files.values()), list(added_lines(files))
    print("| added later | lines of code | |\n|---|---|---|")
    for name, lines, what in added:
        print(f"| {name} | {lines} | {what} |")
    plain, later = kernels(files), kernels({name: source for name, source in files.items() if name in ADDED_FILES})
    masking = sum(isinstance(n, ast.FunctionDef) for n in ast.walk(ast.parse(files["core/masking.py"])))
    print("\n| | now | at 51c876a | goal |\n|---|---|---|---|")
    print(f"| lines of code without batching | {of_all} | 5987 | |")
    print(f"| and without what was added later | {of_all - sum(lines for _, lines, _ in added)} | 5987 | 5870 |")
    print(f"| plain kernels, of {len(plain)} | {sum(plain.values())} | 95 of 181 | |")
    print(f"| and without what was added later, of {len(plain) - len(later)} | ", end="")
    print(f"{sum(plain.values()) - sum(later.values())} | 95 of 181 | 113 |")
    print(f"| functions of masking | {masking} | 25 | 10 |\n")
    paths = [name for name in files if not name.startswith(("core/", "replay/"))]
    total = sum((lines_of(files[name]) for name in paths), Counter())
    functions, lines = total["functions"], sum(total[kind] for kind in KINDS)
    print(f"{functions} public functions; lines of each kind, their share, and how many a function has\n")
    for kind in KINDS:
        print(f"{kind:15s}{total[kind]:6d}{100 * total[kind] / lines:6.0f} %{total[kind] / functions:8.1f}")


if __name__ == "__main__":
    main()
