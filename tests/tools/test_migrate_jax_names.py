"""`hkx.migrate --jax-names`: programs with removed names become programs of today."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("libcst")

from hkx.migrate.__main__ import main
from hkx.migrate.files import migrate_file
from hkx.migrate.jax_names import migrate_jax_names
from hkx.run.table import ROWS

RUN = pathlib.Path(__file__).parents[1] / "run"


def rewritten(code, **options):
    return migrate_jax_names(textwrap.dedent(code).lstrip(), **options)


def load(name):
    spec = importlib.util.spec_from_file_location(name, RUN / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OLD = '''
    """A program."""
    import jax  # first
    import jax.numpy as jnp
    import numpy as np
    from jax import jit, partial, tree_map
    from jax.config import config
    from jax.experimental import optimizers
    from jax.lib import xla_bridge
    from jax.ops import index, index_update
    import jax.linear_util as lu

    config.update("jax_enable_x64", True)


    @partial(jit, static_argnums=(1,))
    def f(x: jnp.DeviceArray, n: np.int):
        x = index_update(x, index[:, 0], n + 1)  # the first column
        y = tree_map(lambda a: jnp.clip(a, a_min=0.0, a_max=1.0), x)
        if xla_bridge.get_backend().platform == "cpu":
            return jnp.in1d(x, y, invert=True), np.array(y, copy=False), jax.jit(f, 1)
        return jax.scipy.linalg.solve(x, y, sym_pos=True), jax.random.shuffle(y, x), -jnp.NINF


    opt = optimizers.adam(1e-3)
'''
NEW = '''
    """A program."""
    import jax  # first
    import functools
    import jax.extend.backend
    import jax.numpy as jnp
    import numpy as np
    from jax import jit
    from jax.example_libraries import optimizers
    import jax.extend.linear_util as lu

    jax.config.update("jax_enable_x64", True)


    @functools.partial(jit, static_argnums=(1,))
    def f(x: jax.Array, n: int):
        x = jnp.asarray(x).at[jnp.s_[:, 0]].set(n + 1)  # the first column
        y = jax.tree.map(lambda a: jnp.clip(a, min=0.0, max=1.0), x)
        if jax.extend.backend.get_backend().platform == "cpu":
            return jnp.isin(x, y, invert=True).ravel(), np.array(y, copy=None), jax.jit(f, static_argnums=1)
        return jax.scipy.linalg.solve(x, y, assume_a='pos'), jax.random.permutation(y, x, independent=True), -(-jnp.inf)


    opt = optimizers.adam(1e-3)
'''


def test_names_imports_and_arguments_are_rewritten():
    assert rewritten(OLD) == (textwrap.dedent(NEW).lstrip(), [])
    assert rewritten(NEW) == (textwrap.dedent(NEW).lstrip(), [])


@pytest.mark.parametrize(
    "code",
    [
        "import jax\njax.tree.map(f, x)\n",
        "from mine import tree_map, jax\ntree_map(f, x)\njax.tree_map(f, x)\n",
        "import numpy as np\nx = 1\nx.int = np.foo(x, int=3)\n",
        "def f(jax):\n    return jax.tree_map\n",
        "try:\n    from jax import tree_util as t\nexcept ImportError:\n    import other as t\nt.tree_multimap(x)\n",
    ],
)
def test_other_programs_stay_as_they_are(code):
    assert migrate_jax_names(code) == (code, [])


@pytest.mark.parametrize(
    ("code", "new", "line", "reason"),
    [
        ("import jax\nx.to_py()\n", None, 2, "of an array of JAX: jax.Array.to_py() -> numpy.array(x)"),
        (
            "import jax\njax.config.update('jax_array', True)\n",
            None,
            2,
            "jax.config.jax_array -> True: delete this call",
        ),
        (
            "import jax.cloud_tpu_init\n",
            None,
            1,
            "jax.cloud_tpu_init did nothing, and no longer exists: delete its import",
        ),
        (
            "from jax.config import config\nconfig.enable_omnistaging()\n",
            "import jax\njax.config.enable_omnistaging()\n",
            2,
            "jax.config.enable_omnistaging() -> None: rewrite it by hand",
        ),
        (
            "import jax.numpy as jnp\nf = map(jnp.msort, x)\n",
            None,
            2,
            "jax.numpy.msort(a) -> jax.numpy.sort(a, axis=0): rewrite it by hand",
        ),
        (
            "from jax import tree_map\n\ndef f(jax):\n    return tree_map(jax)\n",
            None,
            4,
            "write jax.tree.map here: the name jax is in use in this file",
        ),
        (
            "from jax.experimental import host_callback as hcb\nhcb.id_print(x)\n",
            None,
            2,
            "jax.experimental.host_callback.id_print -> jax.debug.print: rewrite it by hand",
        ),
    ],
)
def test_other_uses_are_listed(code, new, line, reason):
    assert migrate_jax_names(code) == (new or code, [(line, reason)])


def test_defaults_that_differ_from_the_present_ones_are_written():
    assert rewritten("import numpy as np\nnp.asfarray(x)\n").code == "import numpy as np\nnp.asarray(x, dtype=float)\n"
    assert rewritten("from jax import util\nutil.cache()(f)\n").code.endswith("functools.lru_cache(4096)(f)\n")


def test_a_notebook_keeps_its_lines(tmp_path):
    cells = [
        ["import numpy as np\n", "import haiku as hk\n", "from jax import tree_map"],
        ["tree_map(np.int, x)\n", "y"],
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}))
    file = migrate_file(path, jax_names=True)
    assert [cell["source"] for cell in json.loads(file.after)["cells"]] == [
        ["import numpy as np; import jax\n", "import hkx as hk\n", "pass"],
        ["jax.tree.map(int, x)\n", "y"],
    ]


def test_the_command_rewrites_removed_names_if_asked(tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text("import jax\njax.tree_map(f, x)\n")
    assert main([str(path), "--check"]) == 0
    assert main([str(path), "--check", "--jax-names"]) == 1
    assert main([str(path), "--jax-names"]) == 0
    assert path.read_text() == "import jax\njax.tree.map(f, x)\n"
    assert "1 file changed" in capsys.readouterr().out


@pytest.mark.slow
def test_each_row_is_rewritten_to_a_program_of_the_same_value():
    programs = {**load("removed_names").JAX, **load("removed_numpy_names").NUMPY}
    new, listed = {}, set()
    for old, (code, expectation) in programs.items():
        header = "import jax\nimport jax.numpy as jnp\nimport numpy as np\n"
        result = migrate_jax_names(header + code)
        listed |= {old} if result.findings else set()
        if not result.findings and not old.startswith(("jax.Array.", "jax.experimental.optix.")):
            new[old] = (result.code, expectation)
    # These depend on an object, have no equivalent in one expression, or may be deleted.
    by_hand = {row.old for row in ROWS if row.by or row.new in ("", "None") or row.owner in ("jax.Array", "jax.config")}
    assert listed - by_hand == set()
    environment = {
        **os.environ,
        "PYTHONPATH": str(RUN.parents[1]),
        "XLA_FLAGS": "",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    done = subprocess.run(
        [sys.executable, RUN / "old_programs.py", "--of-today"],
        input=json.dumps(new), env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {old: value for old, (passed, value, _) in json.loads(done.stdout).items() if not passed} == {}
