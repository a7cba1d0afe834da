"""Uniform and prioritised replay against loops in NumPy: what is held, what is drawn and how often, at what cost."""

import collections
import functools
import inspect
import itertools
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.replay import slots, sum_tree

KINDS = {
    "uniform": rlx.replay.uniform,
    "prioritised": functools.partial(rlx.replay.prioritised, exponent=0.7, beta=0.5),
    "proportional": functools.partial(rlx.replay.prioritised, exponent=1.0, beta=1.0),
}
EACH = pytest.mark.parametrize("kind", ["uniform", "prioritised"])


@functools.cache
def compiled(kind, capacity):
    """A replay's functions, compiled, so that tests share what is compiled."""
    replay = KINDS[kind](capacity)
    return rlx.replay.Replay(
        replay.init,
        jax.jit(replay.add),
        jax.jit(replay.add_batch),
        jax.jit(replay.sample, static_argnames="n"),
        jax.jit(replay.can_sample, static_argnames="n"),
        jax.jit(replay.update_priorities),
    )


@jax.jit
def items_with(numbers):
    """Items [B] with leaves of every kind, in all of which a reader finds the numbers."""
    return {
        "float32": jnp.stack([numbers, -numbers], 1).astype(jnp.float32),
        "half": (numbers.astype(jnp.float16), numbers.astype(jnp.bfloat16)),
        "ints": [numbers, numbers.astype(jnp.uint8), numbers.astype(jnp.int16)],
        "bool": numbers % 2 == 1,
        "key": jax.vmap(jax.random.key)(numbers),
    }


def plain(tree):
    """A tree's leaves as NumPy arrays, keys as their data."""
    keys = jax.dtypes.prng_key
    return [np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, keys) else x) for x in jax.tree.leaves(tree)]


def assert_same(one, other):
    for x, y in zip(plain(one), plain(other), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.unoptimised
@pytest.mark.parametrize("kind, capacity, batch", [("uniform", 7, 3), ("uniform", 5, 5), ("prioritised", 9, 4)])
def test_it_holds_the_last_items(kind, capacity, batch):
    replay = compiled(kind, capacity)
    example = jax.tree.map(lambda x: x[0], items_with(jnp.arange(1)))
    state, model = replay.init(example), collections.deque(maxlen=capacity)
    for start in range(0, 4 * capacity, batch):
        numbers = np.arange(start, start + batch)
        state = replay.add_batch(state, items_with(numbers))
        model.extend(numbers.tolist())
        items, indices, _ = replay.sample(state, jax.random.key(start), n=200)
        drawn = items["ints"][0]
        assert set(drawn.tolist()) == set(model)  # 200 draws of at most 9: one is missed once in 10⁹ times
        assert_same(items, items_with(drawn))
        assert len(set(zip(indices.tolist(), drawn.tolist(), strict=True))) == len(model)


@EACH
def test_single_items_and_batches_of_any_size_mix(kind):
    replay = compiled(kind, 8)
    state, model, number = replay.init(0), collections.deque(maxlen=8), 0
    for size in (None, 4, 3, None, 0, 8, None, 3, 3):
        new = list(range(number, number + (1 if size is None else size)))
        number += len(new)
        model.extend(new)
        state = replay.add(state, new[0]) if size is None else replay.add_batch(state, jnp.array(new, jnp.int32))
        assert set(replay.sample(state, jax.random.key(number), n=300).items.tolist()) == set(model)
        assert replay.can_sample(state, n=len(model)) and not replay.can_sample(state, n=len(model) + 1)


@EACH
def test_what_the_mask_leaves_out_is_not_added(kind):
    replay = compiled(kind, 8)
    state, model = replay.init(0), collections.deque(maxlen=8)
    assert_same(replay.add_batch(state, jnp.arange(4), jnp.zeros(4, bool)), state)
    rng = np.random.default_rng(1)
    for step in range(8):
        numbers, mask = 4 * step + np.arange(4), rng.random(4) < 0.6
        state = replay.add_batch(state, jnp.asarray(numbers), mask if step % 2 else mask.astype(np.float32))
        model.extend(numbers[mask].tolist())
        assert set(replay.sample(state, jax.random.key(step), n=300).items.tolist()) == set(model)


def frequencies(state, sample, places, calls, n, seed):
    """How often each place is drawn in calls · n draws."""
    keys = jax.random.split(jax.random.key(seed), calls)
    drawn = jax.lax.map(lambda key: sample(state, key, n).indices, keys)
    return jnp.bincount(drawn.ravel(), length=places)


counted = jax.jit(frequencies, static_argnums=(1, 2, 3, 4, 5))


def test_a_million_uniform_draws_are_alike():
    replay = rlx.replay.uniform(100)
    state = replay.add_batch(replay.init(0), jnp.arange(90))
    drawn = np.asarray(counted(state, replay.sample, 100, 4000, 250, 1))
    assert (drawn[90:] == 0).all()
    chi2 = np.sum((drawn[:90] - 1e6 / 90) ** 2 / (1e6 / 90))
    assert abs(chi2 - 89) < 5 * np.sqrt(2 * 89)  # χ² has mean 89 and variance 2 · 89


SAMPLE_OF_700 = rlx.replay.prioritised(700, 1.0, 0.0).sample  # α is in the state


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_a_million_draws_follow_the_priorities(exponent):
    priorities = np.exp(np.random.default_rng(2).normal(0, 2, 700)).astype(np.float32)
    priorities[::5] = 0
    replay = rlx.replay.prioritised(700, exponent, 0.0)
    state = jax.jit(replay.add_batch)(replay.init(0), jnp.arange(700))
    state = jax.jit(replay.update_priorities)(state, jnp.arange(700), priorities)
    drawn = np.asarray(counted(state, SAMPLE_OF_700, 700, 4000, 250, 3))
    masses = np.where(priorities > 0, priorities.astype(np.float64) ** exponent, 0)
    expected = 1e6 * masses / masses.sum()
    assert (drawn[::5] == 0).all()
    # Strata make the spread smaller than that of independent draws, which is √expected.
    assert (np.abs(drawn - expected) <= 5 * np.sqrt(expected)).all()


def test_each_part_of_a_sample_is_spread_over_all_strata_and_each_place_sees_all():
    replay = compiled("proportional", 64)
    state = replay.add_batch(replay.init(0), jnp.arange(64))
    samples = np.stack([replay.sample(state, jax.random.key(i), n=64).indices for i in range(1000)])
    assert (np.sort(samples, axis=1) == np.arange(64)).all()  # one from each stratum
    assert (np.abs(samples.reshape(1000, 4, 16).mean(-1) - 31.5) < 4).all()
    assert (np.abs(samples.mean(0) - 31.5) < 5 * 18.5 / np.sqrt(1000)).all()
    assert (np.ptp(samples, axis=0) == 63).all()
    # By the golden ratio the first few, a Fibonacci number of them, leave gaps of two lengths, one 1.6 times the other.
    for part in (2, 3, 5, 8, 13, 21):
        drawn = np.sort(samples[0, :part])
        gaps = np.diff(np.append(drawn, drawn[0] + 64))
        assert gaps.max() <= 2 * gaps.min()


@pytest.mark.slow
@EACH
def test_items_of_a_large_replay_are_told_apart(kind):
    """Draws of 24 bits from 1.3 million items would give some twelve values and others thirteen, or six and seven."""
    size = 1_300_000
    replay = compiled(kind, size)
    state = replay.add_batch(replay.init(jnp.int8(0)), jnp.zeros(size, jnp.int8))
    drawn = np.asarray(counted(state, KINDS[kind](size).sample, size, 100_000, 256, 5))
    # Variance to mean is 1 ± 0.0012; with so unequal items it would be 1.012 or 1.12.
    assert np.var(drawn) / np.mean(drawn) < 1.006


@pytest.mark.unoptimised
def test_weights_are_those_of_the_paper():
    priorities = np.random.default_rng(6).uniform(0.1, 5, 50).astype(np.float32)
    replay = rlx.replay.prioritised(60, exponent=0.6, beta=0.4)
    state = jax.jit(replay.add_batch)(replay.init(0), jnp.arange(50))
    state = jax.jit(replay.update_priorities)(state, jnp.arange(50), priorities)
    _, indices, weights = jax.jit(lambda state: replay.sample(state, jax.random.key(7), 32))(state)
    p = priorities.astype(np.float64) ** 0.6
    w = (50 * (p / p.sum())[np.asarray(indices)]) ** -0.4
    np.testing.assert_allclose(weights, w / w.max(), rtol=1e-5)
    assert weights.max() == 1 and weights.dtype == jnp.float32


def shares(replay, state, seed):
    """How often each of eight places is drawn, of all draws."""
    return np.bincount(replay.sample(state, jax.random.key(seed), n=4096).indices, minlength=8) / 4096


def test_a_new_item_has_the_highest_priority_so_far():
    replay = compiled("proportional", 8)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.arange(4), jnp.array([0.5, 3.0, 6.0, 0.5]))
    state = replay.update_priorities(state, jnp.array([2]), jnp.array([0.0]))  # the highest was 6 all the same
    state = replay.add_batch(state, jnp.arange(4, 7))
    np.testing.assert_allclose(shares(replay, state, 8), np.array([0.5, 3, 0, 0.5, 6, 6, 6, 0]) / 22, atol=1e-3)


def test_of_several_priorities_for_one_item_the_highest_counts():
    replay = compiled("proportional", 8)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.array([0, 1, 0, 0]), jnp.array([0.5, 2.0, 4.0, 2.0]))
    np.testing.assert_allclose(shares(replay, state, 9), np.array([4, 2, 1, 1, 0, 0, 0, 0]) / 8, atol=1e-3)


@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf, -np.inf])
def test_what_is_no_priority_is_an_error_where_it_is_known_and_else_changes_nothing(wrong):
    replay = compiled("proportional", 8)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.arange(4), jnp.array([1.0, 2.0, 3.0, 4.0]))
    with pytest.raises(
        rlx.OptionError, match=r"replay\.update_priorities: argument `priorities` is .*, expected a fin"
    ):
        KINDS["proportional"](8).update_priorities(state, jnp.array([0, 1]), jnp.array([1.0, wrong]))
    assert_same(replay.update_priorities(state, jnp.array([1, 2]), jnp.array([wrong, 3.0])), state)
    changed = replay.update_priorities(state, jnp.array([1, 1]), jnp.array([wrong, 9.0]))
    assert_same(changed, replay.update_priorities(state, jnp.array([1, 2]), jnp.array([9.0, 3.0])))


def test_indices_and_priorities_of_64_bits_count_as_what_they_are():
    """In 32 bits, 2³² is the index 0, and 1e60 is infinite, which would be ignored."""
    replay = rlx.replay.prioritised(4, exponent=0.5, beta=1.0)
    state = replay.add_batch(replay.init(np.float32(0)), np.zeros(3, np.float32))
    with jax.enable_x64(True):
        state = replay.update_priorities(state, np.array([2**32, 1, -(2**32)]), np.array([9.0, 1e60, 9.0]))
    assert state.tree.dtype == state.highest.dtype == jnp.float32
    np.testing.assert_allclose(state.tree[0, :4], [1, 1e30, 1, 0], rtol=1e-6)


def test_indices_of_no_item_change_nothing():
    replay = compiled("proportional", 64)
    state = replay.add_batch(replay.init(0), jnp.arange(40))
    indices = jnp.array([-1, 40, 63, 64, 71, 72, 128, 511, 512, -64, 2**31 - 1])
    assert_same(replay.update_priorities(state, indices, jnp.full(11, 7.0)), state)


@EACH
def test_where_nothing_can_be_drawn_weights_are_zero(kind):
    replay = compiled(kind, 8)
    state = replay.init(3)
    assert not replay.can_sample(state)
    items, indices, weights = replay.sample(state, jax.random.key(0), n=300)
    assert not items.any() and not indices.any() and not weights.any()
    state = replay.update_priorities(state, indices[:4], jnp.ones(4))
    assert not replay.can_sample(state)  # the places are still of no items


def test_with_priorities_of_zero_alone_nothing_can_be_drawn():
    replay = compiled("proportional", 8)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.arange(4), jnp.zeros(4))
    assert not replay.can_sample(state) and not replay.sample(state, jax.random.key(0), n=300).weights.any()
    state = replay.update_priorities(state, jnp.arange(4), jnp.array([0.0, 0.0, 1e-3, 0.0]))
    assert replay.can_sample(state, n=4) and (replay.sample(state, jax.random.key(0), n=300).items == 2).all()


def test_the_sum_of_huge_priorities_stays_finite():
    replay = compiled("proportional", 8)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.arange(4), jnp.array([3e38, 3e38, 1.0, 3e38]))
    state = replay.add_batch(state, jnp.arange(4))
    np.testing.assert_allclose(shares(replay, state, 12), np.array([1, 1, 0, 1, 1, 1, 1, 1]) / 7, atol=1e-3)


def test_a_huge_priority_counts_as_the_highest_of_which_twice_as_many_have_a_finite_sum():
    replay = compiled("proportional", 8)
    most = np.finfo(np.float32).max / 16
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.arange(4), jnp.array([most / 2, 3e38, most, 0.0], jnp.float32))
    np.testing.assert_allclose(shares(replay, state, 13), np.array([1, 2, 2, 0, 0, 0, 0, 0]) / 5, atol=1e-3)


@EACH
@pytest.mark.parametrize("capacity", [1, 8])
def test_of_one_item_every_draw_is_that_item(kind, capacity):
    replay = compiled(kind, capacity)
    state = replay.add(replay.init(0), 7)
    items, indices, weights = replay.sample(state, jax.random.key(0), n=300)
    assert (items == 7).all() and not indices.any() and (weights == 1).all()
    assert replay.can_sample(state) and not replay.can_sample(state, n=2)
    state = replay.add(state, 8)
    assert set(replay.sample(state, jax.random.key(1), n=300).items.tolist()) == ({8} if capacity == 1 else {7, 8})


@functools.partial(jax.jit, static_argnums=1)
def drawn_from(masses, n):
    """Of numbers [5000] what is drawn: places, and the numbers there."""
    tree = sum_tree.put(sum_tree.empty_tree(5000), 5000, jnp.arange(5000), masses)
    return sum_tree.draw(tree, 5000, jax.random.key(3), n)


@pytest.mark.unoptimised
def test_below_four_levels_another_random_number_decides():
    """There are 8⁴ nodes of eight numbers at most that one draw tells apart; strata are of these."""
    masses = np.zeros(5000, np.float32)
    pairs = np.array([8, 1234, 2345, 4095, 4992])  # places beside each other, in nodes of their own
    masses[pairs], masses[pairs + 1] = [1, 2, 3, 4, 6], [3, 2, 1, 12, 6]
    places, values = map(np.asarray, drawn_from(masses, 4000))
    counts = np.bincount(places, minlength=5000)
    np.testing.assert_array_equal(values, masses[places])
    assert (np.abs(counts[pairs] + counts[pairs + 1] - 100 * np.array([4, 4, 4, 16, 12])) <= 1).all()
    share = masses[pairs] / (masses[pairs] + masses[pairs + 1])
    spread = np.sqrt((counts[pairs] + counts[pairs + 1]) * share * (1 - share))
    assert (np.abs(counts[pairs] - (counts[pairs] + counts[pairs + 1]) * share) < 4 * spread).all()


@pytest.mark.unoptimised
@pytest.mark.parametrize("size", [8, 5000])
def test_the_largest_number_that_is_drawn_at_random_is_of_the_last_item(size, monkeypatch):
    """Rounded to 24 bits it would be the end of all, beyond which there is only what has no mass."""
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.full(shape, 1 - 2**-24, dtype))

    @jax.jit
    def drawn(masses):
        tree = sum_tree.put(sum_tree.empty_tree(size), size, jnp.arange(size), masses)
        return sum_tree.draw(tree, size, jax.random.key(0), 3)

    places, values = drawn(jnp.zeros(size).at[jnp.array([1, size - 3])].set(jnp.array([1.0, 3.0])))
    assert places.tolist() == [size - 3] * 3 and values.tolist() == [3.0] * 3


def test_places_outside_every_replay_are_all_different():
    outside = np.asarray(slots.out_of_bounds(5), np.int64)
    assert len(set(outside)) == 5 and (outside > 2**30).all()


@pytest.mark.slow
@pytest.mark.unoptimised
def test_sums_do_not_drift_over_many_updates():
    replay = rlx.replay.prioritised(1000, exponent=1.0, beta=0.0)

    def step(carry, key):
        state, priorities = carry
        first, stride, noise = jax.random.split(key, 3)
        # 50 places, no two alike, whose priorities are of many orders of magnitude
        indices = (jax.random.randint(first, [], 0, 1000) + 3 * jnp.arange(50)) % 1000
        new = jnp.exp(jax.random.normal(noise, [50]) * 5 * jax.random.normal(stride))
        return (replay.update_priorities(state, indices, new), priorities.at[indices].set(new)), None

    state = replay.add_batch(replay.init(0), jnp.arange(1000))
    keys = jax.random.split(jax.random.key(10), 10_000)
    (state, priorities), _ = jax.jit(lambda c: jax.lax.scan(step, c, keys))((state, jnp.ones(1000)))
    levels = np.split(np.asarray(state.tree, np.float64), np.cumsum([125, 16, 2]))
    np.testing.assert_array_equal(levels[0].ravel(), priorities)
    for below, above in itertools.pairwise(levels):
        np.testing.assert_allclose(below.sum(1), above.ravel()[: len(below)], rtol=1e-6)


def learning(replay, state, x):
    """A step that adds, draws and sets priorities."""
    number, key = x
    state = replay.add_batch(state, {"i": number + jnp.arange(5)})
    sample = replay.sample(state, key, 6)
    return replay.update_priorities(state, sample.indices, 1.0 + sample.items["i"] % 7), sample


@pytest.mark.slow
@pytest.mark.unoptimised
@pytest.mark.parametrize("kind", ["uniform", "prioritised"])
def test_jit_is_eager_scan_is_a_loop_and_vmap_is_one_replay_at_a_time(kind):
    step = functools.partial(learning, KINDS[kind](7))
    init = KINDS[kind](7).init({"i": 0})
    numbers, keys = 5 * jnp.arange(3), jax.random.split(jax.random.key(11), 3)
    state, samples = init, []
    for x in zip(numbers, keys, strict=True):
        state, sample = step(state, x)
        samples.append(sample)
    close = functools.partial(jax.tree.map, functools.partial(np.testing.assert_allclose, rtol=1e-6))
    run = jax.jit(lambda numbers: jax.lax.scan(step, init, (numbers, keys)))
    close(run(numbers), (state, jax.tree.map(lambda *x: jnp.stack(x), *samples)))
    many = jax.jit(jax.vmap(run))(jnp.stack([numbers + 100, numbers]))
    close(jax.tree.map(lambda x: x[1], many), run(numbers))


def agent(kind, order):
    """A step of a linear agent of 128 environments with a million transitions, and what it starts from."""
    replay = KINDS[kind](1_000_003)  # 128 does not divide it

    def loss(params, sample):
        td_error = sample.items["r_t"] - sample.items["s_tm1"] @ params
        return jnp.mean(sample.weights * td_error**2), jnp.abs(td_error)

    def draw_and_learn(state, params, key):
        sample = replay.sample(state, key, 256)
        grads, priorities = jax.grad(loss, has_aux=True)(params, sample)
        return params - 0.1 * grads, sample.indices, priorities

    def learn(state, params, key):
        params, indices, priorities = draw_and_learn(state, params, key)
        return replay.update_priorities(state, indices, priorities), params

    def act(state, params, key):
        s_tm1 = jax.random.normal(key, [128, 8])
        return replay.add_batch(state, {"s_tm1": s_tm1 * params[None], "r_t": s_tm1 @ params})

    def act_and_learn(state, params, key):
        return learn(act(state, params, key), params, key)

    def learn_and_act(state, params, key):
        state, params = learn(state, params, key)
        return act(state, params, key), params

    def learn_in_a_cond(state, params, key):
        state = act(state, params, key)
        skip = lambda state, params, key: (state, params)  # noqa: E731
        return jax.lax.cond(replay.can_sample(state, 1000), learn, skip, state, params, key)

    def draw_in_a_cond(state, params, key):
        state = act(state, params, key)
        nothing = lambda params: (params, jnp.full(256, -1), jnp.zeros(256))  # noqa: E731
        params, indices, priorities = jax.lax.cond(
            replay.can_sample(state, 1000), lambda params: draw_and_learn(state, params, key), nothing, params
        )
        return replay.update_priorities(state, indices, priorities), params

    steps = locals()[order]
    state = jax.eval_shape(replay.init, {"s_tm1": jnp.zeros(8), "r_t": 0.0})
    return (lambda carry, key: (steps(*carry, key), None)), (state, jax.ShapeDtypeStruct([8], jnp.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, order",
    [
        ("uniform", "act_and_learn"),
        ("prioritised", "act_and_learn"),
        ("prioritised", "learn_and_act"),
        ("prioritised", "learn_in_a_cond"),
        ("prioritised", "draw_in_a_cond"),
    ],
)
@pytest.mark.parametrize("steps", [1, 10])
@pytest.mark.unoptimised
def test_a_million_items_are_changed_in_place(kind, order, steps):
    step, carry = agent(kind, order)
    loop = step if steps == 1 else lambda carry, key: jax.lax.scan(step, carry, jax.random.split(key, steps))
    program = jax.jit(loop, donate_argnums=0).lower(carry, jax.random.key(0)).compile()
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(carry))
    memory = program.memory_analysis()
    assert size > 36e6
    assert memory.alias_size_in_bytes == size
    assert memory.temp_size_in_bytes < 100e3
    assert program.cost_analysis()["flops"] < 1e6  # nothing is computed with each of them
    assert re.findall(r"= \w+\[\d{5,}[^=]* copy\(", program.as_text()) == []


WRONG = [
    (lambda: rlx.replay.uniform(0), "replay.uniform: argument `capacity` is 0, expected a positive number of items"),
    (lambda: rlx.replay.uniform(2.5), "argument `capacity` is 2.5, expected a positive .* integer"),
    (lambda: rlx.replay.uniform(2**31), r"`capacity` is 2147483648, expected a positive .*, at most 1073741824"),
    (lambda: rlx.replay.prioritised(2**62, 1, 1), r"`capacity` is .*, at most 1073741824"),
    (lambda: rlx.replay.uniform(4).can_sample(rlx.replay.uniform(4).init(0.0), 2**40), r"can_sample: argument `n`"),
    (lambda: rlx.replay.prioritised(0, 1, 1), "replay.prioritised: argument `capacity` is 0"),
    (lambda: rlx.replay.prioritised(4, 1.5, 1), r"argument `exponent` is 1.5, expected .* \[0, 1\]"),
    (lambda: rlx.replay.prioritised(4, 1, -0.5), r"argument `beta` is -0.5, expected .* \[0, 1\]"),
    (lambda: rlx.replay.prioritised(4, 1, np.nan), "argument `beta` is nan, expected"),
]
ONE_FOR_EACH = [
    (lambda: rlx.replay.prioritised(4, np.ones(3), 1), "replay.prioritised: argument `exponent` has rank 1"),
    (lambda: rlx.replay.prioritised(4, 1, np.ones(3)), "replay.prioritised: argument `beta` has rank 1"),
]  # fmt: skip


@pytest.mark.parametrize("call, text", WRONG)
def test_a_setting_out_of_range_is_named(call, text):
    with pytest.raises(rlx.OptionError, match=text):
        call()


@pytest.mark.parametrize("call, text", ONE_FOR_EACH)
def test_exponents_are_single_numbers(call, text):
    with pytest.raises(rlx.RankError, match=text):
        call()


ITEM = {"s": {"x": np.zeros([2, 3], np.float32), "y": np.int8(0)}, "r": 0.0}
ITEMS = {"s": {"x": np.zeros([9, 2, 3], np.float32), "y": np.zeros(9, np.int8)}, "r": np.ones(9, np.float32)}
WRONG_ITEMS = [
    ("add", {"s": ITEM["s"]}, "ArgumentError", r"replay.add: argument `item` has another .*: it lacks \['r'\]\."),
    ("add", {**ITEM, "q": 1}, "ArgumentError", r"it has \['q'\] in addition\.\nIt is PyTreeDef.*, expected PyTreeDef"),
    ("add", {**ITEM, "s": {**ITEM["s"], "y": 128}}, "DTypeError",
     r"`item`\['s'\]\['y'\] is 128, expected a number from -128 to 127: the item given to `init` has dtype int8"),
    ("add", {**ITEM, "s": {**ITEM["s"], "y": -129}}, "DTypeError", r"\['y'\] is -129, expected a number from -128"),
    ("add", {**ITEM, "s": {**ITEM["s"], "y": jnp.asarray(200)}}, "DTypeError", r"\['y'\] is 200, expected a number"),
    ("add_batch", {"s": {**ITEMS["s"], "y": jnp.full(9, -200)}, "r": ITEMS["r"]}, "DTypeError", r"\['y'\] is .-200"),
    ("add", {**ITEM, "s": {**ITEM["s"], "y": 2**40}}, "DTypeError", rf"\['y'\] is {2**40}, too large a number"),
    ("add", {**ITEM, "s": {**ITEM["s"], "y": np.int64(2**40)}}, "DTypeError", rf"\['y'\] is {2**40}, too large a n"),
    ("add", {**ITEM, "r": jax.ShapeDtypeStruct([], "float32")}, "DTypeError", r"\['r'\] is a ShapeDtypeStruct, exp"),
    ("add", [1.0], "ArgumentError", r"it lacks \['r'\], \['s'\]\['x'\], \['s'\]\['y'\] and has \[0\] in addition"),
    ("add", {**ITEM, "r": "reward"}, "DTypeError", r"replay.add: argument `item`\['r'\] is a str, expected an array"),
    ("add", {**ITEM, "r": np.int32(1)}, "DTypeError", r"`item`\['r'\] has dtype int32, expected float32 as in"),
    ("add", {**ITEM, "r": np.float16(1)}, "DTypeError", r"`item`\['r'\] has dtype float16, expected float32"),
    ("add", {**ITEM, "r": np.float32([1])}, "RankError", r"`item`\['r'\] has shape \[1\], expected \[\], .*\n`add`"),
    ("add", {**ITEM, "s": {"x": np.zeros([3, 2], np.float32), "y": 1}}, "ShapeError",
     r"`item`\['s'\]\['x'\] has shape \[3, 2\], expected \[2, 3\]"),
    ("add", {**ITEM, "s": {**ITEM["s"], "y": 1.5}}, "DTypeError", r"\['y'\] has dtype float32, expected int8"),
    ("add_batch", ITEM, "RankError", r"replay.add_batch: argument `items`\['r'\] has shape \[\], expected \[B\], "),
    ("add_batch", {**ITEMS, "r": np.ones(3, np.float32)}, "ShapeError",
     r"`items`\['s'\]\['x'\] has shape \[9, 2, 3\], expected \[B, 2, 3\].*, with B = 3 from argument `items`\['r'\]"),
    ("add_batch", ITEMS, "ShapeError",
     r"replay.add_batch: argument `items` holds 9 items, expected at most 8, the capacity\.\nAdd"),
]  # fmt: skip


@EACH
@pytest.mark.parametrize("function, given, error, text", WRONG_ITEMS)
def test_an_item_that_is_unlike_the_first_is_named_by_its_path(kind, function, given, error, text):
    replay = KINDS[kind](8)
    state = jax.eval_shape(replay.init, ITEM)
    with pytest.raises(getattr(rlx, error), match=text):
        jax.eval_shape(lambda state: getattr(replay, function)(state, given), state)


@EACH
def test_other_mistakes_are_named(kind):
    replay = KINDS[kind](8)
    with pytest.raises(rlx.ArgumentError, match=r"replay.init: argument `item` is \{\}, expected a tree with at least"):
        replay.init({})
    with pytest.raises(rlx.DTypeError, match=r"replay.init: argument `item`\['x'\] is a str, expected an array"):
        replay.init({"x": "a word"})
    with pytest.raises(rlx.DTypeError, match=rf"replay.init: argument `item` is {2**70}, too large a number, expect"):
        replay.init(2**70)
    with pytest.raises(rlx.ArgumentError, match=r"replay.init: missing a required argument: 'item'. It takes item."):
        replay.init()
    state = replay.init(0.0)
    with pytest.raises(rlx.ArgumentError, match=r"replay.add: missing a required argument: 'item'. It takes state, i"):
        replay.add(state)
    with pytest.raises(
        rlx.ArgumentError, match=r"replay.sample: got an unexpected keyword argument 'size'. It takes st"
    ):
        replay.sample(state, jax.random.key(0), 1, size=1)
    for wrong in (0, -1, 2.0, None):
        with pytest.raises(rlx.OptionError, match=rf"replay.sample: argument `n` is {wrong}, expected a positive num"):
            replay.sample(state, jax.random.key(0), wrong)
        with pytest.raises(rlx.OptionError, match=rf"replay.can_sample: argument `n` is {wrong}, expected a positive"):
            replay.can_sample(state, wrong)
    with pytest.raises(rlx.DTypeError, match=r"replay.update_priorities: argument `indices` has dtype float32, expec"):
        replay.update_priorities(state, jnp.ones(2), jnp.ones(2))
    with pytest.raises(
        rlx.ShapeError, match=r"`priorities` has shape \[3\], expected shape \[B\] with B = 2 from `ind"
    ):
        replay.update_priorities(state, jnp.arange(2), jnp.ones(3))
    with pytest.raises(
        rlx.ShapeError, match=r"replay.add_batch: argument `mask` has shape \[3\], expected shape \[2\]"
    ):
        replay.add_batch(state, jnp.ones(2), mask=jnp.ones(3))


@EACH
def test_an_example_may_be_shapes_alone_and_numbers_are_what_python_writes(kind):
    replay = compiled(kind, 4)
    example = jax.tree.map(lambda x: x[0], items_with(jnp.arange(1)))
    assert_same(replay.init(jax.eval_shape(lambda: example)), replay.init(example))
    state = replay.add(replay.init({"r_t": 0.0, "a_tm1": 0, "done": False}), {"r_t": 1, "a_tm1": 2, "done": True})
    items = replay.sample(state, jax.random.key(0), n=1).items
    assert jax.tree.map(lambda x: x[0].item(), items) == {"r_t": 1.0, "a_tm1": 2, "done": True}


def test_a_state_that_was_loaded_as_a_dict_is_an_error_that_says_how_to_load_it():
    """So Orbax restores a checkpoint if it is not given an example of what it holds."""
    loaded = rlx.replay.prioritised(4, 1.0, 1.0).init(0.0)._asdict(), rlx.running_statistics.init(0.0)._asdict()
    calls = [
        lambda: rlx.replay.prioritised(4, 1.0, 1.0).sample(loaded[0], 0, 2),
        lambda: rlx.running_statistics.update(loaded[1], 1.0),
        lambda: rlx.scale_rewards({"discounted": 0.0, "statistics": loaded[1]}, 1.0, 1.0),
    ]
    for call in calls:
        with pytest.raises(rlx.OptionError, match=r"(?s)`state` is .*, expected .*\.\nIf .* a new state, whose"):
            call()


@EACH
def test_it_can_be_pickled(kind):
    replay = pickle.loads(pickle.dumps(KINDS[kind](8)))
    state = compiled(kind, 8).add_batch(replay.init(0), jnp.arange(4))
    assert replay.can_sample(state, 4)


@pytest.mark.parametrize("name", rlx.replay.__all__)
def test_each_name_has_an_example(name):
    assert ">>>" in inspect.getdoc(getattr(rlx.replay, name))


@pytest.mark.parametrize(
    "make",
    [
        *KINDS.values(),
        lambda capacity: rlx.replay.n_step(rlx.replay.uniform(capacity), n=2),
        lambda capacity: rlx.replay.sequences(capacity, length=2),
    ],
    ids=[*KINDS, "n_step", "sequences"],
)
def test_a_state_that_was_loaded_as_arrays_of_numpy(make):
    """As a checkpoint may be, also where a compiled function closes over it."""
    replay, one = make(4), np.ones(2, np.float32)
    item = rlx.replay.Transition(one, one, one, one, one)
    several = jax.tree.map(lambda x: np.stack([x, x]), item)
    state = jax.eval_shape(replay.init, item)
    loaded = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state)
    for call in (
        lambda: replay.add(loaded, item),
        lambda: replay.add_batch(loaded, several),
        lambda: replay.update_priorities(loaded, jnp.array([0, 1]), one),
    ):
        assert jax.tree.map(lambda x: (x.shape, x.dtype), jax.eval_shape(call)) == jax.tree.map(
            lambda x: (x.shape, x.dtype), state
        )
    assert jax.eval_shape(lambda: replay.sample(loaded, jax.random.key(0), 3)).indices.shape == (3,)
    assert jax.eval_shape(lambda: replay.can_sample(loaded, 2)).shape == ()


@pytest.mark.parametrize("make", [rlx.replay.uniform, functools.partial(rlx.replay.prioritised, exponent=0.5, beta=0)])
def test_nothing_to_draw_is_no_error_where_nan_is(make):
    replay = make(4)
    with jax.debug_nans(True):
        items, indices, weights = replay.sample(replay.init(0.0), jax.random.key(0), 3)
    assert items.tolist() == weights.tolist() == [0, 0, 0] and indices.shape == (3,)
