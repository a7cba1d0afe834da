"""`hkx.migrate` on random programs: Python stays Python, once is enough, and what is none is refused by name."""

import ast
import warnings

import numpy as np
import pytest
from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("libcst", reason="the tool is for those who install hkx[migrate]")

import libcst as cst

from hkx.migrate.rewrite import migrate

LINES = [
    *("import haiku as hk", "import haiku", "import rlax", "import os, haiku, rlax as rl", "from haiku import nets"),
    *("from haiku import Linear as L, transform", "from haiku import *", "import hkx", "from rlax import vtrace"),
    *(
        "import haiku.initializers",
        "import haiku.nets as n",
        "haiku = 3",
        "x = hk.Linear(3, 4)",
        "x = rlax.td_learning",
    ),
    *(
        "y = haiku.nets.MLP([3])",
        "z = 'haiku.Linear'",
        "z: 'haiku.Params' = None",
        "# haiku.get_parameter",
        "del haiku",
    ),
    *("def f(haiku=haiku):\n    return haiku.Linear", "class A(haiku.Module):\n    import rlax", "w = lambda hk: hk.x"),
    *(
        "try:\n    import haiku\nexcept ImportError:\n    haiku = None",
        "if hk:\n    from haiku import grad",
        "x = f'{hk.x}'",
    ),
    *(
        "for haiku in x: pass",
        "global haiku",
        "with haiku as rlax: pass",
        "x = [haiku for haiku in y]",
        "pass;",
        "\f",
        "",
    ),
    *("__import__('haiku')", "@hk.transparent\ndef g(self): return hk._src", "import haiku._src.base as b", "\tx = 1"),
]


def drawn_program(rng):
    text = "\n".join(LINES[i] for i in rng.integers(len(LINES), size=rng.integers(1, 8))) + "\n"
    if rng.random() < 0.3:  # a character less, or another one more
        at = rng.integers(len(text))
        text = text[:at] + rng.choice(["", "(", "'", "\\", ":", "\x00", "é", "\r"]) + text[at + 1 :]
    return text


def is_python(text):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
        return True
    except (SyntaxError, ValueError):
        return False


def is_kept(text):
    """Whether libcst reads the text, and writes it as it was: not all characters at the ends of files and lines."""
    try:
        return cst.parse_module(text).code == text
    except (cst.ParserSyntaxError, ValueError):
        return False


def problem(seed):
    text = drawn_program(np.random.default_rng(seed))
    try:
        new = migrate(text).code
    except (cst.ParserSyntaxError, SyntaxError, ValueError):
        return f"{seed}: refused {text!r}" if is_python(text) and is_kept(text) else None
    except Exception as error:
        return f"{seed}: {text!r}: {error!r}"
    if is_python(text) and not is_python(new):
        return f"{seed}: {text!r} became {new!r}"
    return None if migrate(new).code == new else f"{seed}: {text!r}: another time {migrate(new).code!r}"


@pytest.mark.slow
@cases(500)
@given(st.integers(0, 2**32 - 1))
def test_a_random_program(seed):
    assert problem(seed) is None
