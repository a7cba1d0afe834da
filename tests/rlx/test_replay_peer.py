"""Replay beside flashbax's: the same probabilities, and no sequence that it would not draw."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]  # of advice and of deprecated names in flashbax

with warnings.catch_warnings():  # what it imports warns
    warnings.simplefilter("ignore")
    flashbax = pytest.importorskip("flashbax", reason="compares with flashbax: pip install '.[peers]'")
    sum_tree = pytest.importorskip("flashbax.buffers.sum_tree")


@pytest.fixture(autouse=True)
def rank_promotion():
    with jax.numpy_rank_promotion("allow"):  # flashbax promotes ranks
        yield


def test_probabilities_are_those_of_flashbax():
    ours = rlx.replay.prioritised(10, 0.6, beta=1.0)
    theirs = flashbax.make_prioritised_item_buffer(10, 1, 4, add_batches=True, priority_exponent=0.6, device="cpu")
    state, their_state = ours.init(0), theirs.init(jnp.int32(0))
    add, update = jax.jit(ours.add_batch), jax.jit(ours.update_priorities)
    their_add, their_update = jax.jit(theirs.add), jax.jit(theirs.set_priorities)
    probabilities = jax.jit(lambda tree: sum_tree.get(tree, jnp.arange(10)))
    sample = jax.jit(lambda state, key: ours.sample(state, key, 2000))
    rng = np.random.default_rng(0)
    for step in range(8):
        items = 3 * step + jnp.arange(3)
        state, their_state = add(state, items), their_add(their_state, items)
        held = min(3 * step + 3, 10)
        indices = jnp.asarray(rng.permutation(held)[:3], jnp.int32)
        # The highest so far stays 1: flashbax 0.1.3 gives new items its whole part.
        priorities = jnp.asarray(rng.uniform(0.1, 1, 3), jnp.float32)
        state, their_state = update(state, indices, priorities), their_update(their_state, indices, priorities)
        found, indices, weights = sample(state, jax.random.key(step))
        masses = np.zeros(10)
        masses[np.asarray(indices)] = 1 / weights  # P(i) / min P
        expected = np.asarray(probabilities(their_state.sum_tree_state))
        np.testing.assert_allclose(masses / masses.sum(), expected / expected.sum(), rtol=1e-5)
        np.testing.assert_array_equal(np.asarray(their_state.experience)[0, indices], found)


@pytest.mark.parametrize(
    "length, period, batch",
    [(3, 2, 1), pytest.param(4, 1, 3, marks=pytest.mark.slow), pytest.param(2, 4, 2, marks=pytest.mark.slow)],
)
def test_sequences_are_among_those_of_flashbax(length, period, batch):
    capacity, environments = 16, 2
    ours = rlx.replay.sequences(capacity, length, period)
    # Its uniform one begins sequences at other steps each time, the prioritised one at the same, as R2D2 does.
    theirs = flashbax.make_prioritised_trajectory_buffer(
        environments, 300, length, period, length, max_length_time_axis=capacity, device="cpu"
    )
    state, their_state = ours.init(jnp.zeros(environments, jnp.int32)), theirs.init(jnp.int32(0))
    add, their_add, their_sample = jax.jit(ours.add_batch), jax.jit(theirs.add), jax.jit(theirs.sample)
    sample = jax.jit(functools.partial(ours.sample, n=300))
    sizes = []
    for step in range(4 * capacity // batch):
        times = step * batch + jnp.arange(batch)
        items = 1 + times[:, None] * environments + jnp.arange(environments)[None]
        state, their_state = add(state, items), their_add(their_state, items.T)
        if not ours.can_sample(state):
            continue
        key = jax.random.key(step)
        drawn = {tuple(row) for row in sample(state, key).items.tolist()}
        their_drawn = {tuple(row) for row in their_sample(their_state, key).experience.tolist()}
        assert drawn <= their_drawn
        sizes.append((len(drawn), len(their_drawn)))
    # Of each environment flashbax has one more as long as the oldest one happens to be whole.
    assert all(theirs - ours <= environments for ours, theirs in sizes)
    assert any(theirs == ours for ours, theirs in sizes)
