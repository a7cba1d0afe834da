"""`python -m hkx.migrate`: what is rewritten, what is listed, and what stays as it is."""

import importlib
import importlib.util
import inspect
import io
import json
import os
import pathlib
import pkgutil
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

pytest.importorskip("libcst", reason="the tool is for those who install hkx[migrate]")

from hkx.migrate.__main__ import main
from hkx.migrate.names import public_home
from hkx.migrate.notebook import migrate_notebook
from hkx.migrate.rewrite import migrate

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = sorted((pathlib.Path(__file__).parent / "migrate").glob("*.py"))


REWRITTEN = {
    "an alias stays": ("import haiku as hk\nhk.Linear(3)", "import hkx as hk\nhk.Linear(3)"),
    "without an alias": (
        "import haiku\nhaiku.nets.MLP([haiku.__version__])",
        "import hkx\nhkx.nets.MLP([hkx.__version__])",
    ),
    "several at once": ("import os, haiku, rlax as rl", "import os, hkx, rlx as rl"),
    "a submodule": ("import haiku.nets\nhaiku.nets.MLP", "import hkx.nets\nhkx.nets.MLP"),
    "a submodule by a name": ("import haiku.nets as n", "import hkx.nets as n"),
    "names from it": ("from haiku import Linear as L, transform", "from hkx import Linear as L, transform"),
    "names from a submodule": ("from haiku.nets import MLP", "from hkx.nets import MLP"),
    "a submodule from it": ("from haiku import initializers as init", "from hkx import initializers as init"),
    "a deep one": (
        "from haiku.experimental.jaxpr_info import Module",
        "from hkx.experimental.jaxpr_info import Module",
    ),
    "RLax": ("import rlax\nrlax.vtrace", "import rlx\nrlx.vtrace"),
    "a missing one": (
        "try:\n  import haiku\nexcept ImportError:\n  haiku = None\nif haiku: pass",
        "try:\n  import hkx\nexcept ImportError:\n  hkx = None\nif hkx: pass",
    ),
    "in a branch": ("if x:\n    import haiku\n    haiku.grad", "if x:\n    import hkx\n    hkx.grad"),
    "in a function": (
        "def f():\n  import haiku\n  return haiku.Linear\nhaiku = 3",
        "def f():\n  import hkx\n  return hkx.Linear\nhaiku = 3",
    ),
    "a global one": (
        "import rlax\ndef f():\n  global rlax\n  return rlax.td_learning",
        "import rlx\ndef f():\n  global rlx\n  return rlx.td_learning",
    ),
    "another variable of the name": (
        "import haiku\ndef f(haiku):\n  return haiku.Linear, [haiku for haiku in x]",
        "import hkx\ndef f(haiku):\n  return haiku.Linear, [haiku for haiku in x]",
    ),
    "attributes and keywords": (
        "import haiku\nf(haiku=haiku.grad).haiku.rlax.hkx",
        "import hkx\nf(haiku=hkx.grad).haiku.rlax.hkx",
    ),
    "in a class": (
        "import haiku\nclass A:\n  haiku = haiku\n  def f(self): return haiku.grad",
        "import hkx\nclass A:\n  haiku = haiku\n  def f(self): return hkx.grad",
    ),
    "in an f-string": ("import haiku\nf'{haiku.grad} haiku.'", "import hkx\nf'{hkx.grad} haiku.'"),
    "annotations in strings": (
        "import haiku\nx: 'list[haiku.Params]'\ndef f() -> \"haiku.State\": ...",
        "import hkx\nx: 'list[hkx.Params]'\ndef f() -> \"hkx.State\": ...",
    ),
    "annotations in comments": ("import haiku\nx = 0  # type: haiku.Params", "import hkx\nx = 0  # type: hkx.Params"),
    "annotations by an alias": ("import haiku as hk\nx: 'hk.Params'", "import hkx as hk\nx: 'hk.Params'"),
    "another package instead": (
        "try:\n  import haiku\nexcept ImportError:\n  import my.haiku as haiku\nhaiku.grad",
        "try:\n  import hkx\nexcept ImportError:\n  import my.haiku as hkx\nhkx.grad",
    ),
    "another one of the name": (
        "if a:\n  from . import (haiku, b)\nelse:\n  import haiku\nhaiku.grad\ndef f():\n  from a import haiku",
        "if a:\n  from . import (haiku as hkx, b)\nelse:\n  import hkx\nhkx.grad\ndef f():\n  from a import haiku",
    ),
    "imported by a function": ("importlib.import_module('haiku')", "importlib.import_module('hkx')"),
    "relative to a package": (
        "import_module('.nets', 'haiku')\nimport_module(package='haiku', name='.nets')",
        "import_module('.nets', 'hkx')\nimport_module(package='hkx', name='.nets')",
    ),
    "__import__": ("__import__('rlax')", "__import__('rlx')"),
    "sys.modules": ("sys.modules['haiku'] = x", "sys.modules['hkx'] = x"),
    "a path in a string": (
        "mock.patch('haiku.nets.MLP', r\"rlax.vtrace\")",
        "mock.patch('hkx.nets.MLP', r\"rlx.vtrace\")",
    ),
    "an escape that means nothing": ("import haiku\nx = 'a\\.py'", "import hkx\nx = 'a\\.py'"),
    "from a private module": (
        "from haiku._src.nets.resnet import ResNet50 as R\nfrom rlax._src.vtrace import (  # why\n  vtrace,\n)",
        "from hkx.nets import ResNet50 as R\nfrom rlx import (  # why\n  vtrace,\n)",
    ),
    "what has one name in two places": (
        "from haiku._src.jaxpr_info import Module\nfrom haiku._src.filtering import map",
        "from hkx.experimental.jaxpr_info import Module\nfrom hkx.data_structures import map",
    ),
    "comments and layout": (
        "from  haiku import (  # why\n    Linear,\n\n    grad as g,  # and\n)\t# haiku\r\nx = [1,\\\n  2]",
        "from  hkx import (  # why\n    Linear,\n\n    grad as g,  # and\n)\t# haiku\r\nx = [1,\\\n  2]",
    ),
}


@pytest.mark.parametrize("case", REWRITTEN)
def test_rewrites(case):
    before, after = REWRITTEN[case]
    assert migrate(before) == (after, [])
    assert migrate(after) == (after, [])


@pytest.mark.peer
@pytest.mark.parametrize("package", ["haiku", "rlax"])
def test_a_private_name_becomes_the_public_one_of_the_same_object(package):
    """Of every private module; other names of these packages' own are listed, or public here alone."""
    peer, others = pytest.importorskip(package), set()
    source = importlib.import_module(f"{package}._src")
    for module in pkgutil.walk_packages(source.__path__, f"{package}._src."):
        if module.name.endswith("_test") or ".integration" in module.name:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            home = None if name.startswith("_") else public_home([f"{module.name}.{name}"])
            if home is None or inspect.ismodule(value):
                continue
            for part in home.split(".")[1:]:
                peer = getattr(peer, part)
            if getattr(peer, name, value) is not value:
                others.add(f"{module.name}.{name}")
            peer = importlib.import_module(package)
    # A word for modules in annotations; and a way for several functions, which is part of `hkx.without_state`.
    words = {"haiku._src.base.Module", "haiku._src.typing.Module", "haiku._src.multi_transform.without_state"}
    assert others == (words if package == "haiku" else set())


LISTED = {
    "import haiku as hk\n\nhk._src.base.foo": {3: "haiku._src.base.foo is private to haiku"},
    "import haiku as hk\nx = hk._src.data_structures.FlatMap": {2: "write hkx.Params in an annotation"},
    "import haiku as hk\nhk.Missing(hk.nets.Nothing)": {2: "hkx.Missing does not exist", 2.5: "hkx.nets.Nothing"},
    "from haiku import Linear, Missing": {1: "hkx.Missing does not exist"},
    "import rlax\nx = rlax.nothing": {2: "rlx.nothing does not exist"},
    "from haiku._src.nets.resnet import BlockGroup, ResNet50": {
        1: "resnet.BlockGroup is",
        1.5: "write hkx.nets.ResNet50",
    },
    "from haiku._src.module import Module, name_scope, _x": {
        1: "write hkx.Module",
        1.3: "module._x",
        1.6: "write hkx.name_scope",
    },
    "import jmp\nimport haiku as hk\nhk.mixed_precision.set_policy(A, p)": {1: "Policy.parse"},
    "import haiku as hk\nhk.Linear(784, 10)": {2: "pass the output size alone"},
    "from haiku import *": {1: "star import"},
    "import haiku as hk\nlibrary = 'haiku'": {2: "'hkx' where it names the module"},
    "run('import haiku as hk')": {1: "within a string"},
    "import rlax\nx = 'see rlax.vtrace'": {2: "within a string"},
    "run(f'import haiku; {x}')": {1: "within a string"},
    "hk = LazyLoader('hk', globals(), 'haiku')": {1: "'hkx' where it names the module"},
    "mock.patch('networks.haiku.nets.MLP')": {1: "it is hkx there now"},
}


@pytest.mark.parametrize("code", LISTED)
def test_lists_what_is_to_be_looked_at(code):
    found = migrate(code).findings
    assert len(found) == len(LISTED[code])
    for finding, (line, reason) in zip(found, LISTED[code].items(), strict=True):
        assert finding.line == int(line)
        assert reason in finding.reason


LEFT = {
    "from haiku._src import data_structures": "write hkx.data_structures",
    "from rlax._src import *": "rlax._src is private to rlax",
    "import rlax._src.base\nrlax._src.base.f": "private to rlax",
    "from haiku._src.data_structures import FlatMapping": "collections.abc.Mapping in isinstance",
    "from haiku.typing import Params": "write hkx.Params",
    "import haiku.typing": "hkx.typing does not exist",
    "from haiku import HaikuFinder": "hkx.HaikuFinder does not exist",
    "mock.patch('haiku._src.base.current_frame')": "private to haiku",
    "import haiku\nimport hkx\nhaiku.Linear": "imports hkx too",
    "import rlax\nrlx = 3\nrlax.vtrace": "the name rlx is in use",
    "import rlax\nfor i, rlx in x: rlax.vtrace": "the name rlx is in use",
    "import haiku\nhkx = 3\nmock.patch('haiku.nets.MLP')\nimport_module('haiku')": "the name hkx is in use",
}


@pytest.mark.parametrize("code", LEFT)
def test_leaves_and_lists(code):
    result = migrate(code)
    assert result.code == code
    assert any(LEFT[code] in finding.reason for finding in result.findings)


@pytest.mark.parametrize(
    "code",
    ["from .haiku import f", "from . import haiku\nhaiku.f", "haiku = 3\nhaiku.x", "x: 'haiku'", "'''A haiku.'''"],
)
def test_other_things_of_the_name_are_no_business_of_it(code):
    assert migrate(code) == (code, [])


NOTEBOOK = """{"cells": [
 {"cell_type": "markdown", "source": ["import haiku"]},
  {"cell_type": "code", "outputs": [{"text": ["haiku.nets"]}],
     "source": ["%matplotlib inline\\n", "!pip install dm-haiku\\n", "import haiku  # ü\\n", "x = 1"]},
 {"cell_type": "code", "source": "for i in [1]:\\n  !ls haiku\\n  haiku.nope([1])  # \\u00fc\\n"},
 {"cell_type": "code", "source": ["%%bash\\n", "import haiku"]},
 {"cell_type": "code", "source": ["def ("]}, {"cell_type": "code", "source": []}
], "nbformat": 4}"""


def test_notebooks_change_in_their_code_cells_alone():
    after, findings = migrate_notebook(NOTEBOOK)
    assert after == NOTEBOOK.replace("haiku  # ü", "hkx  # ü").replace("haiku.nope", "hkx.nope")
    assert json.loads(after)["nbformat"] == 4
    assert [finding[:2] for finding in findings] == [(1, 2), (2, 3), (3, 2), (4, 1)]
    assert migrate_notebook(after)[0] == after


def test_lines_of_a_notebook_that_are_not_python():
    cells = [
        "import haiku\nprint('%s'\n      % haiku.x)",
        "%timeit haiku.f()\ny = %time -o 1\nhaiku.f?",
        "%%timeit rlax.f",
    ]
    cells += ["!pip install dm_haiku\n!ls haiku", "%%writefile a.py\n\nfrom haiku import nets"]
    after, findings = migrate_notebook(json.dumps({"cells": [{"cell_type": "code", "source": c} for c in cells]}))
    assert [c["source"] for c in json.loads(after)["cells"]] == [cells[0].replace("haiku", "hkx"), *cells[1:]]
    assert [finding[:2] for finding in findings] == [(1, 3), (2, 1), (2, 3), (3, 1), (4, 1), (5, 3)]
    assert [finding.reason[:8] for finding in findings] == ["hkx.x do", *["code in "] * 3, "the requ", "code in "]


def test_commands_of_several_lines_in_a_notebook():
    cell = "try:\n  import haiku\nexcept ImportError:\n  !pip install \\\n  dm-haiku \\\n jax\nhaiku.grad"
    after, findings = migrate_notebook(json.dumps({"cells": [{"cell_type": "code", "source": cell}]}))
    expected = cell.replace("import haiku", "import hkx").replace("haiku.grad", "hkx.grad")
    assert json.loads(after)["cells"][0]["source"] == expected
    assert [finding[:2] for finding in findings] == [(1, 4)] and "the requirement" in findings[0].reason


def test_what_the_output_cannot_represent_is_printed_with_escapes(tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text("import haiku  # 俳句\n", encoding="utf-8")
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["--diff", str(path)]) == 0
    out.flush()
    assert rb"+import hkx  # \u4ff3\u53e5" in out.buffer.getvalue()


def test_the_command_line_on_a_folder(tmp_path, capsys):
    program, crlf = tmp_path / "program.py", tmp_path / "crlf.py"
    program.write_text("#!/usr/bin/env python\nimport haiku as hk  # the library\n", encoding="utf-8")
    program.chmod(0o755)
    crlf.write_bytes(b"\xef\xbb\xbfimport rlax\r\nrlax.vtrace\r\n")
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\nimport haiku  # ü\n".encode("latin-1"))
    (tmp_path / "broken.py").write_text("import haiku\nprint 'x'\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("jax\ndm-haiku>=0.0.9\n", encoding="utf-8")
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "base.txt").write_text("dm_haiku\n", encoding="utf-8")
    for skipped in (".venv", "env"):
        (tmp_path / skipped).mkdir()
        (tmp_path / skipped / "x.py").write_text("import haiku\n", encoding="utf-8")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "book.ipynb").write_bytes(b"\xef\xbb\xbf" + NOTEBOOK.encode())
    (tmp_path / ".venv" / "elsewhere.py").write_text("import haiku\n", encoding="utf-8")
    os.symlink(".venv/elsewhere.py", tmp_path / "link.py")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    assert main([str(tmp_path), "--check"]) == 1
    assert main([str(tmp_path), "--diff"]) == 0
    assert "+import hkx as hk  # the library\n" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before

    assert main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path / 'broken.py'}:2: no valid Python: left alone" in out
    assert f"{tmp_path / 'requirements.txt'}:2: the requirement dm-haiku: write hkx" in out
    assert f"{tmp_path / 'requirements' / 'base.txt'}:1: the requirement dm_haiku: write hkx" in out
    assert "4 files changed, 7 places to look at" in out
    changed = {path.name for path in before if path.read_bytes() != before[path]}
    assert changed == {"program.py", "crlf.py", "latin.py", "book.ipynb"}
    assert program.stat().st_mode & 0o777 == 0o755
    assert crlf.read_bytes() == b"\xef\xbb\xbfimport rlx\r\nrlx.vtrace\r\n"
    assert (tmp_path / "latin.py").read_bytes() == "# coding: latin-1\nimport hkx  # ü\n".encode("latin-1")
    assert main([str(tmp_path), "--check"]) == 0
    assert main([str(tmp_path / "link.py")]) == 0  # a link that is named is followed
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / ".venv" / "elsewhere.py").read_text(encoding="utf-8") == "import hkx\n"
    assert {path.name for path in tmp_path.iterdir()} == {path.relative_to(tmp_path).parts[0] for path in before}


def test_requirements_that_powershell_has_written_are_listed(tmp_path, capsys):
    (tmp_path / "requirements.txt").write_text("jax\ndm-haiku==0.0.9\n", encoding="utf-16")
    assert main([str(tmp_path)]) == 0
    assert "requirements.txt:2: the requirement dm-haiku" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nothing.py", "notes.md"])
def test_paths_that_it_cannot_take_are_refused(name, tmp_path, capsys):
    (tmp_path / "notes.md").touch()
    with pytest.raises(SystemExit) as refused:
        main([str(tmp_path / name)])
    assert refused.value.code == 2
    assert name in capsys.readouterr().err


def test_a_file_that_cannot_be_written_fails_and_stays(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.py").write_text("import haiku\n", encoding="utf-8")

    def no(*_):
        raise PermissionError("no")

    monkeypatch.setattr(os, "replace", no)
    assert main([str(tmp_path)]) == 2
    assert "a.py" in capsys.readouterr().err
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["import haiku\n"]


def test_it_starts_without_jax_and_says_what_it_lacks(tmp_path):
    (tmp_path / "a.py").write_text("import haiku as hk\nhk.nets.MLP.x, hk.experimental.to_dot", encoding="utf-8")
    code = (
        "import sys; from hkx.migrate.__main__ import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 'jax' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    code = "import sys, runpy; sys.modules['libcst'] = None; runpy.run_module('hkx.migrate', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, "."], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == "python -m hkx.migrate needs libcst: pip install 'hkx[migrate]'\n"
    assert done.returncode == 1


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_of_size_need_no_second_look(path):
    code = path.read_text(encoding="utf-8")
    result = migrate(code)
    assert result.findings == []
    assert "haiku" not in "".join(line for line in result.code.splitlines() if "import" in line)
    changed = [(a, b) for a, b in zip(code.splitlines(), result.code.splitlines(), strict=True) if a != b]
    assert len(changed) >= 4
    assert all(a.replace("haiku", "hkx").replace("rlax", "rlx") == b for a, b in changed)
    assert migrate(result.code).code == result.code


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of RLax's own
@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.unoptimised
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_of_size_give_the_same_numbers(path):
    for library in ("haiku", "rlax", "optax"):
        pytest.importorskip(library)
    code = path.read_text(encoding="utf-8")
    results = []
    for source in (code, migrate(code).code):
        module = types.ModuleType(path.stem)
        sys.modules[path.stem] = module  # where dataclasses look
        try:
            with jax.numpy_rank_promotion("allow"):  # programs broadcast as JAX lets them
                exec(compile(source, str(path), "exec"), vars(module))
                results.append(module.main())
        finally:
            del sys.modules[path.stem]
    theirs, ours = results
    assert theirs.keys() == ours.keys()
    assert len(theirs) > 5
    for name, value in theirs.items():
        # The two compile to different programs, of which XLA may fuse sums in another order.
        np.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.peer
@pytest.mark.slow
def test_every_public_name_of_both_is_known_to_it():
    """Read from the sources of hkx and rlx, the names are those that are there; and none that Haiku has is lacking."""
    for package, modules in {
        "haiku": (
            "",
            ".config",
            ".data_structures",
            ".experimental",
            ".initializers",
            ".mixed_precision",
            ".nets",
            ".pad",
        ),
        "rlax": ("",),
    }.items():
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
        for module in modules:
            public = [n for n in dir(importlib.import_module(package + module)) if not n.startswith("_")]
            names = "\n".join(f"x.{name}" for name in public)
            assert migrate(f"import {package}{module} as x\n{names}").findings == []
