"""Writes `rlx/__init__.pyi`, which type checkers and editors read: `python tests/rlx/face_stub.py`.

A kernel's signature says `Array`, since arrays are what reaches it; those who call the operator may give whatever can
be read as one. No single signature says both to a type checker, so the one for callers is written from the contracts.
"""

import ast
import inspect
import pathlib
import sys

PATH = pathlib.Path(__file__).parents[2] / "rlx" / "__init__.pyi"
WIDTH = 120
HEAD = '''"""What type checkers read of rlx. Written by tests/rlx/face_stub.py."""

# ruff: noqa: I001
# fmt: off

from rlx.core.operator import operator
from rlx.core.types import Array, ArrayLike
'''
TAIL = "__all__: list[str]\n__version__: str\n"


def text():
    """The whole of the file."""
    rlx = sys.modules["rlx"]
    places = [(home, name) for home, names in vars(rlx)["_EXPORTS"].items() for name in names.split()]
    operators = [name for _, name in places if hasattr(getattr(rlx, name), "kernel")]
    public = [f"from {home} import {name} as {name}" for home, name in places if name not in operators]
    known = {name for _, name in places} | {"Array", "ArrayLike"}
    types = sorted({line for name in operators for line in imports_of(getattr(rlx, name), known)})
    blocks = ["\n".join(types), "\n".join(public), *(declaration(getattr(rlx, name)) for name in operators), TAIL]
    return HEAD + "\n".join(filter(None, blocks))


def declaration(operator):
    """The operator as its callers see it, with both spellings of the flag."""
    annotations, _ = sources_of(operator)
    contract, lines, starred = operator.contract, [], False
    for name, parameter in operator.__signature__.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("*")
            starred = True
        shaped = contract.arrays.get(name)
        kind = annotations[name] if shaped is None else "ArrayLike" + " | None" * shaped.optional
        lines.append(f"{name}: {kind}" + default_of(parameter))
    if contract.flag is not None:
        lines += [*(["*"] * (not starred)), f"{contract.flag[1]}: bool = ..."]
    result = operator.__signature__.return_annotation
    result = "Array" if type(result).__name__ == "Shaped" else annotations["return"]
    head = f"def {operator.__name__}("
    short = f"{head}{', '.join(lines)}) -> {result}: ..."
    long = "\n".join([head, *(f"    {line}," for line in lines), f") -> {result}: ..."])
    return "@operator()\n" + (short if len(short) <= WIDTH else long)


def default_of(parameter):
    if parameter.default is parameter.empty:
        return ""
    plain = isinstance(parameter.default, (bool, int, float, str, type(None)))
    return f" = {parameter.default!r}" if plain and repr(parameter.default) not in ("inf", "nan") else " = ..."


def sources_of(operator):
    """The annotations of an operator as its file writes them, by name, and those of the file's imports."""
    tree = ast.parse(inspect.getsource(sys.modules[operator.__module__]))
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == operator.__name__)
    given = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    nodes = {a.arg: a.annotation for a in given} | {"return": function.returns}
    for name, node in nodes.items():  # `Annotated[int, "a number of classes"]` is an int
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
            nodes[name] = node.slice.elts[0]
    homes = {a.name: n.module for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    homes |= {n.name: operator.__module__ for n in tree.body if isinstance(n, ast.ClassDef)}
    return {name: ast.unparse(node) for name, node in nodes.items()}, homes


def imports_of(operator, known):
    """The import of each name that is in an annotation of what is no array."""
    annotations, homes = sources_of(operator)
    contract = operator.contract
    plain = [a for name, a in annotations.items() if name not in contract.arrays and name != "return"]
    if type(operator.__signature__.return_annotation).__name__ != "Shaped":
        plain.append(annotations["return"])
    names = {n.id for a in plain for n in ast.walk(ast.parse(a)) if isinstance(n, ast.Name)}
    return [f"from {homes[name]} import {name}" for name in names - known if name in homes]


if __name__ == "__main__":
    sys.path.insert(0, str(PATH.parents[1]))
    import rlx  # noqa: F401

    PATH.write_text(text(), encoding="utf-8")
