"""Removed names of JAX, NumPy, optax and chex: each row of the table is used by a program in the old style."""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from removed_names import JAX
from removed_numpy_names import CHEX, NUMPY, OPTAX

from hkx.run import jax_names
from hkx.run.table import ROWS

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = {**JAX, **NUMPY, **OPTAX, **CHEX}
NEED_OPTAX = {"jax.experimental.optix.*", *OPTAX}
UNCHANGED = {  # programs of today, which use no removed name
    "missing": ("hasattr(jax, 'no_such_name') or hasattr(jnp.ones(2), 'no_such_name')", "False"),
    "settings": ("jax.config.update('jax_log_compiles', False)\nhasattr(jax.config, 'jax_no_such_name')", "False"),
    "device": ("jax.device_put(np.ones(2), jax.devices()[0]).device == jax.devices()[0]", "True"),
    "signature": ("import inspect\nlist(inspect.signature(jnp.clip).parameters)[1:]", "['min', 'max']"),
    "source": ("import inspect\n'def ' in inspect.getsource(jax.numpy) or jax.numpy.__file__.endswith('.py')", "True"),
    "pickle": ("import pickle\nf = (jnp.clip, jax.jit, np.array)\npickle.loads(pickle.dumps(f)) == f", "True"),
    "decorator": ("import functools as f\nf.partial(jax.jit, static_argnums=1)(lambda x, n: x * n)(2, 3)", "6"),
    "numbers": ("[int(jnp.ones(())), float(jnp.full((), 2.5)), hash(jax.devices()[0]) == 0]", "[1, 2.5, False]"),
    "copy": ("a = np.ones(2)\nb = np.array(a)\nb[0] = 5\na", "[1.0, 1.0]"),
}  # fmt: skip


def run(*words, **options):
    devices = "--xla_force_host_platform_device_count=8"
    one_device = {"PYTHONPATH": str(ROOT), "XLA_FLAGS": os.environ["XLA_FLAGS"].replace(devices, "")}
    environment = {**os.environ, **one_device, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, **options)


def installed(old):
    needed = "optax" if old in NEED_OPTAX else "chex" if old in CHEX else "jax"
    return importlib.util.find_spec(needed) is not None


@pytest.fixture(scope="module")
def results():
    programs = {name: program for name, program in {**PROGRAMS, **UNCHANGED}.items() if installed(name)}
    done = run(HERE / "old_programs.py", input=json.dumps(programs))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def numbers(version):
    return [int(part) for part in version.split(".")[:3]]


def is_removed(row):
    """Whether the installed version of the package is without the name, as the table says."""
    root = row.path.partition(".")[0]
    return numbers(importlib.metadata.version("jax" if root == "jaxlib" else root)) >= numbers(row.since)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.old)
def test_a_program_with_a_removed_name_computes_what_it_did(row, results):
    if not installed(row.old):
        pytest.skip("the package is not installed")
    passed, value, edits = results[row.old]
    assert passed, value
    used = [edit for edit in edits if edit.endswith(f": {row.edit}")]
    deprecated = row.path == "jax.numpy.array" and not is_removed(row)  # its signature is the one to come
    assert deprecated or bool(used) == is_removed(row), edits


@pytest.mark.slow
@pytest.mark.parametrize("name", UNCHANGED)
def test_a_program_of_today_is_unchanged(name, results):
    passed, value, edits = results[name]
    assert passed, value
    assert edits == []


def test_each_row_has_a_program():
    assert PROGRAMS.keys() == {row.old for row in ROWS}
    assert len({row.old for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("jax.tree_map", "removed in JAX 0.6.0: {} (jax.tree_map -> jax.tree.map)"),
        ("from jax import tree_multimap", "removed in JAX 0.3.16: {} (jax.tree_multimap -> jax.tree.map)"),
        ("from jax.config import config", "jax.config has been removed: {}"),
        ("from jax.lib import xla_bridge", "jax.lib.xla_bridge has been removed: {}"),
        ("import jax.linear_util", "removed in JAX 0.4.24: {} (jax.linear_util -> jax.extend.linear_util)"),
        ("jnp.ones(2).to_py()", "removed in JAX 0.4.14: {} (jax.Array.to_py() -> numpy.array(x))"),
        ("np.int(3)", "removed in NumPy 1.24: {} (numpy.int -> int)"),
        ("jnp.clip(1, a_min=2)", "removed in JAX 0.4.36: {} (jax.numpy.clip: a_min= -> min=)"),
        ("np.array(1).no_such_name", None),
        ("import jax.no_such_module", None),
        ("jax.no_such_name", None),
        ("[].no_such_name", None),
        ("sorted([], no_such_argument=1)", None),
    ],
)  # fmt: skip
def test_errors_of_removed_names_hint_at_the_flag(program, expected):
    with pytest.raises((AttributeError, ImportError, TypeError)) as caught:
        exec(program, {"jax": jax, "jnp": jnp, "np": np})
    restores = "`python -m hkx.run --jax-names …` restores it"
    assert jax_names.hint(caught.value) == (expected and expected.format(restores))


OLD = """
import jax
import numpy as np
from jax.experimental import optimizers

print(jax.tree_map(np.product, [np.array([2, 3])])[0])
x = jax.tree_map(
    np.int, [1.5])
"""


@pytest.mark.slow
def test_the_report_is_a_list_of_edits(tmp_path):
    (tmp_path / "train.py").write_text(OLD)
    done = run("-m", "hkx.run", "--jax-names", "--report", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr
    assert done.stderr.splitlines()[:6] == [
        "Removed names that this program used:",
        "  train.py:4: jax.experimental.optimizers -> jax.example_libraries.optimizers",
        "  train.py:6: jax.tree_map -> jax.tree.map",
        "  train.py:6: numpy.product -> numpy.prod",
        "  train.py:7: jax.tree_map -> jax.tree.map",
        "  train.py:8: numpy.int -> int",
    ]


@pytest.mark.slow
def test_without_the_flag_the_program_ends_with_a_hint():
    done = run("-m", "hkx.run", "-c", "import jax; jax.tree_map")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "removed in JAX 0.6.0: `python -m hkx.run --jax-names …` restores it"
    )
