"""What a program is made of, where its values do not show it: which algorithm, from which length on, and how often."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.core import recurrence
from rlx.replay import sum_tree

pytestmark = pytest.mark.unoptimised
# Where the default device is a CPU, programs hold one algorithm; these tests are about that one.
on_a_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="programs hold two algorithms elsewhere")


def traced(function, *arguments):
    """The program as text, of arguments that are given by their shapes; nothing is compiled."""
    return str(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(x, np.float32) for x in arguments)))


def lengths_of_loops(program):
    return [int(n) for n in re.findall(r"\blength=(\d+)", program)]


@pytest.mark.parametrize(("default_device", "loops"), [("cpu", [300]), ("gpu", [9, 300])])
def test_programs_hold_two_algorithms_where_the_default_device_is_an_accelerator(default_device, loops, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: default_device)
    jax.clear_caches()
    program = traced(rlx.discounted_returns, [300], [300], [])
    assert ("platform_index" in program) is (default_device == "gpu")
    assert sorted(lengths_of_loops(program)) == loops


@pytest.mark.parametrize(("steps", "doublings"), [(1, []), (2, [1]), (3, [2]), (8, [3]), (9, [4])])
def test_doubling_takes_as_many_steps_as_reach_to_the_end(steps, doublings):
    program = traced(lambda delta, w, end: recurrence.doubling(_affine, (delta, w), end), [steps], [steps], [])
    assert lengths_of_loops(program) == doublings


def _affine(after, delta, w):
    return delta + w * after


@pytest.mark.parametrize("n", [5, 39, 41])
def test_windows_need_no_loop(n):
    program = traced(lambda *x: rlx.n_step_bootstrapped_returns(*x, n=n), [40], [40], [40])
    assert lengths_of_loops(program) == []


@on_a_cpu
def test_a_gradient_computes_a_step_of_a_loop_again_and_no_barrier_keeps_it_from_being_fused():
    def total(*x):
        return rlx.lambda_returns(*x, 0.5).sum()

    program = traced(jax.grad(total), [5], [5], [5])
    assert "remat" in program and "prevent_cse=True" not in program
    assert lengths_of_loops(program) == [5, 5]


@pytest.mark.parametrize(("size", "words"), [(8, 1), (8**4, 1), (8**4 + 1, 2)])
def test_a_draw_from_four_levels_takes_one_random_number(size, words):
    tree = jax.eval_shape(lambda: sum_tree.empty_tree(size))
    program = str(jax.make_jaxpr(lambda tree, key: sum_tree.draw(tree, size, key, 6))(tree, jax.random.key(0)))
    assert re.findall(r"random_bits\[.*?shape=\((\d+), (\d+)\)", program, re.DOTALL) == [(str(words), "7")]


def test_items_are_put_at_places_that_differ_and_a_reservoir_keeps_the_last_of_each():
    for replay, keys in ((rlx.replay.uniform(9), ()), (rlx.replay.reservoir(9), (jax.random.key(0),))):
        state = replay.init(0.0, *keys)
        program = str(jax.make_jaxpr(replay.add_batch)(state, jnp.zeros(4)))
        assert "unique_indices=True" in program
        assert ("is_stable=True" in program) is bool(keys)


@pytest.mark.parametrize(
    ("steps", "length", "period", "most"), [(5, 4, 2, 3), (6, 4, 2, 3), (1, 4, 3, 1), (20, 14, 1, 7)]
)
def test_no_more_sequences_are_put_in_than_steps_can_complete_or_the_replay_holds(steps, length, period, most):
    replay = rlx.replay.sequences(20, length, period)
    state = jax.eval_shape(lambda: replay.init(jnp.zeros([3])))
    program = str(jax.make_jaxpr(replay.add_batch)(state, jnp.zeros([steps, 3])))
    last = re.findall(r"scatter\[.*?\] \w+ (\w+) \w+\n", program, re.DOTALL)[-1]  # of the starts, 3 environments each
    assert re.findall(rf"\b{last}:i32\[(\d+),1\]", program) == [str(3 * most)]
