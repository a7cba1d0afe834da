"""A test passes alone and in any order: it draws from a generator of its own, not from where others left one."""

import ast
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).parent
GENERATOR = re.compile(r"^(\w+) = .*\b(?:RandomState|default_rng|Random)\([^()]*\)$", re.MULTILINE)
GLOBAL_DRAW = re.compile(r"\bnp\.random\.(?:rand|randn|normal|uniform|randint|choice|permutation|shuffle)\(")


def shared_draws(source: str) -> list[str]:
    """Draws from NumPy's own generator, or in a function from one of the whole file that no fixture seeds anew."""
    found = GLOBAL_DRAW.findall(source)
    shared = {name for name in GENERATOR.findall(source) if f"    {name}.seed(" not in source}
    if shared:
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.Lambda)]
        names = [node for f in functions for node in ast.walk(f) if isinstance(node, ast.Name)]
        found += [f"line {node.lineno}: {node.id}" for node in names if node.id in shared]
    return found


@pytest.mark.parametrize(
    "source", ["R = np.random.RandomState(0)\ndef test_it():\n    R.rand()", "f = lambda: np.random." + "rand()"]
)
def test_shared_generators_are_seen(source):
    assert shared_draws(source)


def test_no_test_draws_from_a_generator_that_others_draw_from():
    found = {
        str(path.relative_to(TESTS)): shared_draws(path.read_text(encoding="utf-8")) for path in TESTS.rglob("*.py")
    }
    assert {name: draws for name, draws in found.items() if draws} == {}
