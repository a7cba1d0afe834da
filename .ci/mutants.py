#!/usr/bin/env python
"""Mutation testing: changes one thing in the sources at a time, and runs the tests that execute that line.

    python .ci/mutants.py map                                  # once: which test runs which line (needs coverage)
    python .ci/mutants.py run --only hkx/core --sample 100     # random mutants; a later run continues
    python .ci/mutants.py report                               # the share killed in each package, and the survivors

Files are not changed: a mutant exists only in the memory of one process. Results are stored in runs/mutants/.
"""

import argparse
import ast
import collections
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
STORE = ROOT / "runs" / "mutants"
RESULTS, TIMES, COVERAGE, FAILED = (STORE / n for n in ("results.jsonl", "times.json", "coverage", "failed"))
NEAREST = {  # by directory of sources, their tests
    "hkx/core": ["tests/core"],
    "hkx/init": ["tests/core"],
    "hkx/lift": ["tests/lift", "tests/core"],
    "rlx": ["tests/rlx"],
}
MOST_TESTS = 150  # per mutant, from as many test functions as possible, because parametrised cases are similar
SWAPS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


def mutations(node):
    """The possible replacements of a node, each with a name for the mutation."""
    if isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS:
        yield "operator", _with(node, op=SWAPS[type(node.op)]())
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "comparison", _with(node, ops=[SWAPS[type(node.ops[0])]()])
    if isinstance(node, ast.UnaryOp):
        yield "without " + type(node.op).__name__, node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        yield "constant", ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield "condition", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Return) and not (node.value is None or isinstance(node.value, ast.Constant)):
        yield "returns None", _with(node, value=ast.Constant(None))
    plain = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if plain or isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete)):
        yield "left out", ast.Pass()


def _with(node, **changes):
    new = copy.copy(node)
    for name, value in changes.items():
        setattr(new, name, value)
    return new


def _is_for_types(node):
    """Whether a node is an overload, an import for type checkers or a type alias, where mutants are pointless."""
    if isinstance(node, ast.FunctionDef):
        return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation).endswith("TypeAlias")
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def places(tree):
    """Each node that is executed, with its parent, field and index, for replacing it."""
    todo = [tree]
    while todo:
        parent = todo.pop(0)
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list") or _is_for_types(parent):
                continue
            for i, child in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(child, ast.AST):
                    todo.append(child)
                    yield child, parent, field, i if isinstance(value, list) else None


def mutants(file):
    """The names of all mutants of a file, `path:line:column:word:number`, with their lines."""
    for number, (node, *_) in enumerate(places(ast.parse((ROOT / file).read_text()))):
        for word, _ in mutations(node):
            yield f"{file}:{node.lineno}:{node.col_offset}:{word}:{number}", node.lineno


def mutated(name):
    """The syntax tree of a file with one mutation, and a description of the change."""
    file, _, _, word, number = name.rsplit(":", 4)
    tree = ast.parse((ROOT / file).read_text())
    node, parent, field, i = list(places(tree))[int(number)]
    new = dict(mutations(node))[word]
    words = f"{ast.unparse(node).splitlines()[0]}  ->  {ast.unparse(new).splitlines()[0]}"
    if i is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[i] = new
    return ast.fix_missing_locations(tree), words


class Mutated(importlib.machinery.SourceFileLoader):
    def __init__(self, module, path, tree):
        super().__init__(module, path)
        self.tree = tree

    def get_code(self, fullname):
        return compile(self.tree, self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, file, tree):
        self.path, self.tree = str(ROOT / file), tree
        self.module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(self, fullname, path=None, target=None):
        if fullname == self.module:
            return importlib.util.spec_from_file_location(
                fullname, self.path, loader=Mutated(fullname, self.path, self.tree)
            )


class Mapper:
    """A pytest plug-in that records which test runs which line, and how long each test takes."""

    def __init__(self, coverage):
        self.coverage, self.times = coverage, {}

    def pytest_runtest_setup(self, item):
        self.coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report):
        self.times[report.nodeid] = self.times.get(report.nodeid, 0) + report.duration

    def pytest_runtest_teardown(self, item):
        self.coverage.switch_context("")


def make_map(tests):
    import coverage
    import pytest

    STORE.mkdir(parents=True, exist_ok=True)
    tests = tests or sorted({t for near in NEAREST.values() for t in near})
    known = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    watch = coverage.Coverage(data_file=str(COVERAGE), branch=True, source=["hkx", "rlx"])
    watch.load() if COVERAGE.exists() else None
    mapper = Mapper(watch)
    watch.start()
    code = pytest.main(["-q", "--no-header", *tests], plugins=[mapper])
    watch.stop()
    watch.save()
    TIMES.write_text(json.dumps(known | mapper.times))
    return code


class FirstFailure:
    """A pytest plug-in that records the first test (or file, in collection) that fails."""

    def pytest_runtest_logreport(self, report):
        if report.failed and not FAILED.exists():
            FAILED.write_text(report.nodeid)

    pytest_collectreport = pytest_runtest_logreport


def verdict(name, tests, limit):
    """Runs tests with a mutant, or with none, in a separate process; returns killed, survived, or timeout."""
    import pytest

    FAILED.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        if name:
            sys.meta_path.insert(0, Finder(name.split(":")[0], mutated(name)[0]))
        os._exit(pytest.main(["-x", "-q", "--tb=no", *tests], plugins=[FirstFailure()]))
    end = time.monotonic() + limit
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return "survived" if status == 0 else "killed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def spread(tests, times):
    """Orders tests such that the fastest case of each test function comes first, then the second of each, and so on."""
    seen = collections.Counter()
    turns = {}
    for test in sorted(tests, key=times.get):
        function = test.partition("[")[0]
        seen[function] += 1
        turns[test] = seen[function]
    return sorted(tests, key=lambda test: (turns[test], times[test]))


def runs_at_import(file, line):
    """Whether a line is outside of all function bodies: a default, a class attribute, a constant."""
    functions = (n for n in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(n, ast.FunctionDef))
    return not any(node.body[0].lineno <= line <= node.end_lineno for node in functions)


def lines_that_use(file, line):
    """The lines that use what a line computes at import: the function of a default, or the uses of a constant."""
    tree = ast.parse((ROOT / file).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line < node.body[0].lineno:
            return set(range(node.body[0].lineno, node.end_lineno + 1))
    statements = [node for node in tree.body if node.lineno <= line <= node.end_lineno]
    names = [node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name)]
    set_here = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in set_here}


def nearest_tests(file, line, times):
    """The tests that run a line or lines that use it, or else any line of the file, in the order to try them."""
    import coverage

    data = coverage.CoverageData(basename=str(COVERAGE))
    data.read()
    contexts = data.contexts_by_lineno(str(ROOT / file))
    lines = {n: {c for c in names if c in times} for n, names in contexts.items()}
    tests = lines.get(line, set())
    if not tests or runs_at_import(file, line):  # recorded for whichever test imported the module first
        tests = tests.union(*(lines.get(n, ()) for n in lines_that_use(file, line)))
    return spread(tests or set().union(*lines.values()), times)[:MOST_TESTS]


def tried(name, tests, times, limit, without):
    """The verdict of a mutant's nearest tests; if it survives them, of all tests in their files.

    The latter are needed because a test may use what an earlier test in its file has compiled or cached, so that it
    does not run the line itself.
    """
    files = [file for file, _ in collections.Counter(test.partition("::")[0] for test in tests).most_common(3)]
    for several in (tests, files):
        most = limit + 3 * sum(times[test] for test in times if test.startswith(tuple(several)))
        became = verdict(name, several, most) if several else "no test"
        if became in ("killed", "timeout"):
            seen_by = (FAILED.read_text(),) if FAILED.exists() else tuple(several)
            if seen_by not in without:  # they may fail without the mutant: an old map may contain removed tests
                without[seen_by] = verdict(None, seen_by, most)
            return became if without[seen_by] == "survived" else "not tried"
    return became


def run(only, sample, seed, minutes, limit):
    import jax  # imported before forking, which starts no threads yet
    import pytest

    assert jax and pytest
    end = time.monotonic() + 60 * minutes
    times = json.loads(TIMES.read_text())
    files = sorted(str(f.relative_to(ROOT)) for f in ROOT.glob("*/**/*.py"))
    files = [f for f in files if any(f.startswith(f"{place}/") for place in only)]
    drawn = [mutant for file in files for mutant in mutants(file)]
    random.Random(seed).shuffle(drawn)
    done = {result["mutant"] for result in results()}
    without = {}  # the verdicts of tests without a mutant
    compiled = tempfile.TemporaryDirectory(prefix="compiled-by-tests-")  # shared by all mutants: keyed by program text
    os.environ["COMPILED_BY_TESTS"] = compiled.name
    for name, line in drawn[:sample]:
        if name in done or time.monotonic() > end:
            continue
        tests = nearest_tests(name.split(":")[0], line, times)
        became = tried(name, tests, times, limit, without)
        with RESULTS.open("a") as file:
            file.write(json.dumps({"mutant": name, "became": became, "tests": len(tests)}) + "\n")
        print(became, name, mutated(name)[1], flush=True)


def results():
    return list(map(json.loads, RESULTS.read_text().splitlines())) if RESULTS.exists() else []


def report():
    counts = collections.defaultdict(collections.Counter)
    for result in results():
        place = next(p for p in NEAREST if result["mutant"].startswith(f"{p}/"))
        counts[place][result["became"]] += 1
        if result["became"] in ("survived", "no test"):
            print(result["became"], result["mutant"], "|", mutated(result["mutant"])[1])
    for place, count in sorted(counts.items()):
        dead = count["killed"] + count["timeout"]
        tried = count.total() - count["not tried"]
        print(f"{place}: {dead} of {tried} killed ({dead / max(1, tried):.0%}), {dict(count)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["map", "run", "report"])
    parser.add_argument("tests", nargs="*", help="map: files of tests (default: those of all sources)")
    parser.add_argument("--only", nargs="+", default=sorted(NEAREST), choices=sorted(NEAREST), help="sources")
    parser.add_argument("--sample", type=int, help="number of mutants, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time; a later run continues")
    parser.add_argument(
        "--limit", type=float, default=30, help="seconds for a mutant, in addition to the time of its tests"
    )
    chosen = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    if chosen.what == "map":
        sys.exit(make_map(chosen.tests))
    if chosen.what == "run":
        run(chosen.only, chosen.sample, chosen.seed, chosen.minutes, chosen.limit)
    report()


if __name__ == "__main__":
    main()
