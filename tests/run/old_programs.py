"""Runs old programs in one process, with the removed names restored, and prints their results as JSON.

`{name: [program, expectation]}` on the standard input becomes `{name: [passed, value, edits]}`. With
`--of-today`, nothing is restored.
"""

import ast
import json
import sys
import traceback
import warnings

from hkx.run import jax_names

if sys.argv[1:] != ["--of-today"]:
    jax_names.install()

import jax
import jax.numpy as jnp
import numpy as np

NAMESPACE = {"jax": jax, "jnp": jnp, "np": np}


def value_of(code, file):
    """Runs a program, and returns the value of its last line."""
    tree = ast.parse(code)
    last = ast.Expression(tree.body.pop().value)
    names = dict(NAMESPACE)
    exec(compile(tree, file, "exec"), names)
    return eval(compile(last, file, "eval"), names)


def is_same(a, b):
    if a is b or isinstance(a, str | bytes | type):
        return a is b or a == b
    if isinstance(a, dict | tuple | list) and type(a) is type(b):
        return jax.tree.structure(a) == jax.tree.structure(b) and all(
            is_same(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        )
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and (np.array_equal(a, b) or (a.dtype.kind == "f" and np.allclose(a, b, atol=1e-6)))


def result(name, program, expectation):
    file = f"/programs/{name}.py"
    try:
        value = value_of(program, file)
        passed = bool(is_same(value, eval(expectation, dict(NAMESPACE))))
    except Exception:
        return [False, traceback.format_exc(limit=-6), []]
    return [passed, repr(value), [edit for edit in jax_names.edits() if edit.startswith(f"{file}:")]]


warnings.simplefilter("ignore", DeprecationWarning)
print(json.dumps({name: result(name, *both) for name, both in json.load(sys.stdin).items()}))
