"""Random compositions of modules and transforms: `init` makes what an ordinary run makes, and what dm-haiku makes."""

import collections

import fuzzing
import jax
import numpy as np
import pytest
import random_programs
from hypothesis import HealthCheck, Phase, given, settings

import hkx
from hkx.init.create import run_initialising

X = np.random.default_rng(0).normal(size=[2, random_programs.WIDTH]).astype(np.float32)
KEY = jax.random.PRNGKey(7)


FROM_THE_EXAMPLE = {"mean", "kept", "hidden", "average"}  # names of what is computed from the input


def same_trees(a, b, ulps, rounded):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        # XLA rounds together what it compiles together: here the whole of a loop or a branch, there each operation.
        near = 1e-5 if rounded and path[-1].key in FROM_THE_EXAMPLE else 0.0
        np.testing.assert_allclose(x, y, rtol=ulps * np.finfo(np.float32).eps + near, atol=ulps * 1e-8 + near / 10)


def result(make):
    try:
        return make(), None
    except Exception as error:  # of either library
        return None, error


def compare(number, ours, theirs, same_errors):
    """Both make the same of random programs, always the same ones; nothing that fails is made smaller: that is slow."""
    count = collections.Counter()

    @settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(random_programs.program)
    def check(program):
        (made, error), (expected, expected_error) = (result(lambda make=make: make(program)) for make in (ours, theirs))
        refused = expected_error is not None and error is None  # Haiku refuses some branches that lift
        if not same_errors and (refused or random_programs.is_different(program)):
            count["another library may do otherwise"] += 1
            return
        assert (error is None) == (expected_error is None), (error, expected_error)
        assert type(error) is type(expected_error) or not same_errors
        # A stack is made in a compiled loop, where XLA rounds a product and a sum once that it rounds twice elsewhere.
        ulps = 0 if random_programs.without(["layer_stack"], program) else 4
        rounded = not random_programs.without(random_programs.COMPILED, program)
        same_trees(made, expected, ulps, rounded)
        count[error is None] += 1

    with jax.numpy_rank_promotion("allow"):  # the programs promote ranks, and so does dm-haiku's Orthogonal
        check()
    assert count[True] > 0.8 * number, count  # few are refused


def made_by(hk):
    return lambda program: hk.transform_with_state(lambda x: random_programs.run(hk, program, x)).init(KEY, X)


@pytest.mark.slow
def test_init_makes_what_an_ordinary_run_makes():
    def ordinary(program):
        return run_initialising(lambda x: random_programs.run(hkx, program, x), KEY, (X,))

    compare(fuzzing.count(12), made_by(hkx), ordinary, same_errors=True)


def test_init_needs_the_shapes_alone():
    def from_shapes(program):
        # Initial values that are computed from the example need it, the averages of a BatchNorm start with it, and the
        # keys after a `cond` depend on the branch that it takes.
        shapes_do = random_programs.without(["data", "batch_norm", "cond"], program)
        x = jax.ShapeDtypeStruct(X.shape, X.dtype) if shapes_do else X
        return hkx.transform_with_state(lambda x: random_programs.run(hkx, program, x)).init(KEY, x)

    compare(4, from_shapes, made_by(hkx), same_errors=True)


@pytest.mark.peer
@pytest.mark.slow
def test_init_makes_what_haiku_makes():
    haiku = pytest.importorskip("haiku", reason="compares with dm-haiku: pip install '.[peers]'")
    compare(fuzzing.count(60), made_by(hkx), made_by(haiku), same_errors=False)
