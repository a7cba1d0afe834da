"""What type checkers read of rlx is what rlx is."""

import ast
import inspect

import face_stub

import rlx


def test_the_stub_is_the_one_that_the_contracts_give():
    assert face_stub.PATH.read_text(encoding="utf-8") == face_stub.text(), "run: python tests/rlx/face_stub.py"


def test_the_stub_has_every_name_once_and_every_argument_with_both_spellings_of_the_flag():
    body = ast.parse(face_stub.PATH.read_text(encoding="utf-8")).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    imported = [a.asname for node in body if isinstance(node, ast.ImportFrom) for a in node.names if a.asname]
    assert sorted([*functions, *imported]) == sorted(rlx.__all__)
    for name, node in functions.items():
        given = {a.arg for a in node.args.args + node.args.kwonlyargs}
        flags = {"stop_target_gradients", "use_stop_gradient"}
        parameters = set(inspect.signature(getattr(rlx, name)).parameters)
        assert given == parameters | (flags if flags & parameters else set()), name
