"""Random nestings of lifted transforms give the same parameters, state, results and keys as with dm-haiku."""

import random

import fuzzing
import jax
import nested_programs
import numpy as np
import pytest
from bits import same_but_for_rounding

import hkx

haiku = pytest.importorskip("haiku", reason="compares with dm-haiku: pip install '.[peers]'")
pytestmark = pytest.mark.peer

TWO_KEYS_IN_NESTED_LOOPS = [
    ("fori", ("sequence", ["two_keys", ("scan_one", "linear"), "two_keys"])),
    ("map", ("fori", ("sequence", ["two_keys", "drawn_state", "module"]))),
    ("module", ("scan", ("scan_none", "dropout"))),
    ("sequence", [("fori_none", "linear"), "linear", "linear"]),
]


def run(hk, program, reserve):
    def f(x):
        y = nested_programs.function(hk, program)(x)
        return (
            y,
            hk.Linear(1)(x),
            hk.get_parameter("after", [2], init=hk.initializers.RandomNormal()),
            hk.next_rng_key(),
        )

    model = hk.transform_with_state(f)
    with hk.config.context(rng_reserve_size=reserve):
        params, state = model.init(jax.random.PRNGKey(3), nested_programs.X)
        scaled = jax.tree.map(lambda p: 1.25 * p, params)
        return (params, state), model.apply(scaled, state, jax.random.PRNGKey(9), nested_programs.X)


def same(program, reserve):
    """Compares the two, where dm-haiku runs the program; whether it does."""
    try:
        created, out = run(haiku, program, reserve)
    except Exception:  # what is an error there may work here
        return False
    our_created, our_out = run(hkx, program, reserve)
    assert jax.tree.structure((our_created, our_out)) == jax.tree.structure((created, out))
    same_but_for_rounding(our_created, created)  # dm-haiku compiles branches and loops
    # Results may be rounded differently by the compiler, and a dozen layers make more of it.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), our_out, out)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("program", TWO_KEYS_IN_NESTED_LOOPS, ids=str)
def test_loops_in_loops_draw_the_same_keys(program):
    with jax.numpy_rank_promotion("allow"):  # the programs promote ranks
        assert same(program, 2)


@pytest.mark.slow
def test_random_nestings():
    compared, drawn = 0, fuzzing.count(24)
    with jax.numpy_rank_promotion("allow"):
        for seed in range(drawn):
            rng = random.Random(seed)
            program, reserve = nested_programs.draw(rng, 3), rng.choice([1, 1, 2])
            kinds = nested_programs.kinds_of(program)
            if "stack" in kinds and {"cond", "switch", "fori"} & kinds:
                continue  # dm-haiku makes a stack's parameters anew in each branch and round, and keeps those of one
            compared += same(program, reserve)
    assert compared > drawn / 2  # of the others most use state where dm-haiku allows none
