"""What `init` holds at its peak: the parameters once, and little beside them."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import hkx

PROGRAM = """
import resource, jax, jax.numpy as jnp, hkx

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def init(size):
    model = hkx.transform(lambda x: hkx.nets.MLP([size] * 6)(x))
    return jax.block_until_ready(model.init(jax.random.key(0), jnp.ones([1, size])))

init(64)  # imports and compiles
before = peak()
params = init(4096)
print((peak() - before) / sum(x.nbytes for x in jax.tree.leaves(params)))
"""


@pytest.mark.slow
def test_parameters_are_held_once():
    pytest.importorskip("resource", reason="this system does not say how much memory a process had")
    root = str(pathlib.Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.6  # with the blocks that are being drawn; a copy of every array makes it more than 2


def test_no_program_runs_on_what_has_been_drawn(compiled):
    """A copy of each array, for its shape alone, would be one: of shapes that no other test has.

    Accelerators cut each array out of blocks that stay there, by one program for each of the three shapes.
    """
    model = hkx.transform(lambda x: hkx.Linear(17, b_init=hkx.initializers.RandomNormal())(hkx.Linear(83)(x)))
    x = jax.ShapeDtypeStruct((2, 39), jnp.float32)
    model.init(jax.random.PRNGKey(0), x)  # compiles what draws
    wider = hkx.transform(lambda x: hkx.Linear(19, b_init=hkx.initializers.RandomNormal())(hkx.Linear(89)(x)))
    count = compiled(lambda: wider.init(jax.random.PRNGKey(0), jax.ShapeDtypeStruct((2, 41), jnp.float32)))
    assert count == (0 if jax.default_backend() == "cpu" else 3)


def test_the_program_for_one_huge_array_is_small():
    """More elements than one word can count."""
    cut = hkx.initializers.TruncatedNormal(0.1)
    init = hkx.transform(lambda: hkx.get_parameter("w", [2**17, 2**16], init=cut)).init
    program = jax.jit(init).lower(jax.random.key(0))
    assert len(program.as_text()) < 200_000
