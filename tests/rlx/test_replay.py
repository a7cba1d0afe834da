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

KINDS = {
    "uniform": rlx.replay.uniform,
    "prioritised": functools.partial(rlx.replay.prioritised, exponent=0.7, beta=0.5),
}
EACH = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
DRAWS = 1_000_000


def item_number(i):
    """An item of every kind of leaf, in all of which a reader finds the number i."""
    return {
        "float32": np.full([2], i, np.float32),
        "half": (np.float16(i), jnp.bfloat16(i)),
        "ints": [np.int32(i), np.uint8(i % 256), np.int16(-i)],
        "bool": np.bool_(i % 2),
        "key": jax.random.key(i),
    }


def stacked(items):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *items)


def plain(tree):
    """A tree's leaves as NumPy arrays, keys as their data."""
    keys = jax.dtypes.prng_key
    return [np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, keys) else x) for x in jax.tree.leaves(tree)]


def assert_same(one, other):
    for x, y in zip(plain(one), plain(other), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@EACH
@pytest.mark.parametrize("capacity, batch", [(7, 3), (6, 3), (5, 5), (9, 1)])
def test_it_holds_the_last_items(make, capacity, batch):
    replay = make(capacity)
    add_batch, sample = jax.jit(replay.add_batch), jax.jit(replay.sample, static_argnames="n")
    state, model = replay.init(item_number(0)), collections.deque(maxlen=capacity)
    for start in range(0, 4 * capacity, batch):
        state = add_batch(state, stacked([item_number(i) for i in range(start, start + batch)]))
        model.extend(range(start, start + batch))
        drawn = sample(state, jax.random.key(start), n=200)
        numbers = drawn.items["ints"][0].tolist()
        assert set(numbers) == set(model)  # 200 draws of at most 9: one is missed once in 10⁹ times
        assert_same(drawn.items, stacked([item_number(i) for i in numbers]))
        assert len({(i, j) for i, j in zip(drawn.indices.tolist(), numbers, strict=True)}) == len(model)


@EACH
def test_single_items_and_batches_of_any_size_mix(make):
    replay = make(10)
    state, model, number = replay.init(jnp.int32(0)), collections.deque(maxlen=10), 0
    for size in (None, 4, 3, None, 9, None, 10, 1, 7):
        new = list(range(number, number + (size or 1)))
        number += len(new)
        model.extend(new)
        state = replay.add(state, new[0]) if size is None else replay.add_batch(state, jnp.array(new, jnp.int32))
        assert set(replay.sample(state, jax.random.key(number), 300).items.tolist()) == set(model)
        assert bool(replay.can_sample(state, len(model))) and not replay.can_sample(state, len(model) + 1)


def frequencies(replay, state, calls, n, seed):
    """How often each place is drawn in calls · n draws."""
    keys = jax.random.split(jax.random.key(seed), calls)
    places = jax.jit(lambda s: jax.lax.map(lambda k: replay.sample(s, k, n).indices, keys))(state)
    return np.bincount(np.asarray(places).ravel())


def test_a_million_uniform_draws_are_alike():
    replay = rlx.replay.uniform(100)
    state = replay.add_batch(replay.init(0), jnp.arange(90))
    drawn = frequencies(replay, state, 4000, 250, seed=1)
    assert drawn.shape == (90,)
    expected = DRAWS / 90
    chi2 = np.sum((drawn - expected) ** 2 / expected)
    assert abs(chi2 - 89) < 5 * np.sqrt(2 * 89)  # χ² has mean 89 and variance 2 · 89


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("size", [70, 700])
def test_a_million_draws_follow_the_priorities(exponent, size):
    rng = np.random.default_rng(2)
    priorities = np.exp(rng.normal(0, 2, size)).astype(np.float32)
    priorities[::5] = 0
    replay = rlx.replay.prioritised(size, exponent, 0.4)
    state = replay.add_batch(replay.init(0), jnp.arange(size))
    state = replay.update_priorities(state, jnp.arange(size), priorities)
    drawn = frequencies(replay, state, 4000, 250, seed=3)
    drawn = np.pad(drawn, (0, size - len(drawn)))
    masses = np.where(priorities > 0, priorities.astype(np.float64) ** exponent, 0)
    expected = DRAWS * masses / masses.sum()
    assert (drawn[::5] == 0).all()
    # Strata make the spread smaller than that of independent draws, which is √expected.
    assert (np.abs(drawn - expected) <= 5 * np.sqrt(expected)).all()


def test_each_part_of_a_sample_is_spread_over_all_strata_and_each_place_sees_all():
    replay = rlx.replay.prioritised(64, 1.0, 0.0)
    state = replay.add_batch(replay.init(0), jnp.arange(64))
    samples = jax.vmap(lambda k: replay.sample(state, k, 64).indices)(jax.random.split(jax.random.key(4), 2000))
    assert (np.sort(samples, axis=1) == np.arange(64)).all()  # one from each stratum
    parts = np.asarray(samples).reshape(2000, 4, 16)
    assert (np.abs(parts.mean(-1) - 31.5) < 4).all()
    for place in np.asarray(samples).T:
        assert abs(np.mean(place) - 31.5) < 5 * 18.5 / np.sqrt(2000) and np.ptp(place) == 63


@pytest.mark.slow
def test_items_of_a_large_replay_are_told_apart():
    """Draws of 24 bits from 2²⁰ + 1 items would give neighbours probabilities that differ by six percent."""
    size = 2**20 + 1
    for make in (rlx.replay.uniform, functools.partial(rlx.replay.prioritised, exponent=1.0, beta=0.0)):
        replay = make(size)
        state = replay.add_batch(replay.init(jnp.int8(0)), jnp.zeros(size, jnp.int8))
        drawn = frequencies(replay, state, 200, 2**17, seed=5)  # 25 of each, on average
        expected = 200 * 2**17 / size
        spread = np.var(drawn) / expected
        assert spread < 1.01  # 1 if draws are independent, less if stratified; unequal items add 25 · 0.06² / 3


def test_weights_are_those_of_the_paper():
    rng = np.random.default_rng(6)
    priorities = rng.uniform(0.1, 5, 50).astype(np.float32)
    replay = rlx.replay.prioritised(60, exponent=0.6, beta=0.4)
    state = replay.add_batch(replay.init(0), jnp.arange(50))
    state = replay.update_priorities(state, jnp.arange(50), priorities)
    _, indices, weights = replay.sample(state, jax.random.key(7), 32)
    p = priorities.astype(np.float64) ** 0.6
    w = (50 * (p / p.sum())[np.asarray(indices)]) ** -0.4
    np.testing.assert_allclose(weights, w / w.max(), rtol=1e-5)
    assert weights.max() == 1 and weights.dtype == jnp.float32


def test_a_new_item_has_the_highest_priority_so_far():
    replay = rlx.replay.prioritised(8, exponent=1.0, beta=0.0)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.arange(4), jnp.array([0.5, 3.0, 6.0, 0.5]))
    state = replay.update_priorities(state, jnp.array([2]), jnp.array([0.0]))  # the highest was 6 all the same
    state = replay.add_batch(state, jnp.array([4, 5]))
    drawn = frequencies(replay, state, 100, 1600, seed=8)
    np.testing.assert_allclose(drawn / drawn.sum(), np.array([0.5, 3, 0, 0.5, 6, 6]) / 16, atol=1e-3)


def test_of_several_priorities_for_one_item_the_highest_counts():
    replay = rlx.replay.prioritised(4, exponent=1.0, beta=1.0)
    state = replay.add_batch(replay.init(0), jnp.arange(2))
    state = replay.update_priorities(state, jnp.array([0, 1, 0, 0]), jnp.array([0.5, 1.0, 4.0, 2.0]))
    drawn = frequencies(replay, state, 100, 500, seed=9)
    np.testing.assert_allclose(drawn / drawn.sum(), [0.8, 0.2], atol=1e-3)


@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf, -np.inf])
def test_what_is_no_priority_is_an_error_where_it_is_known_and_else_changes_nothing(wrong):
    replay = rlx.replay.prioritised(8, exponent=0.5, beta=1.0)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.arange(4), jnp.array([1.0, 2.0, 3.0, 4.0]))
    with pytest.raises(
        rlx.OptionError, match=r"replay\.update_priorities: argument `priorities` is .*, expected a fin"
    ):
        replay.update_priorities(state, jnp.array([0, 1]), jnp.array([1.0, wrong]))
    update = jax.jit(replay.update_priorities)
    assert_same(update(state, jnp.array([1, 2]), jnp.array([wrong, 3.0])), state)
    changed = update(state, jnp.array([1, 1]), jnp.array([wrong, 9.0]))
    assert_same(changed, replay.update_priorities(state, jnp.array([1]), jnp.array([9.0])))


def test_indices_of_no_item_change_nothing():
    replay = rlx.replay.prioritised(10, exponent=1.0, beta=1.0)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    indices = jnp.array([-1, 4, 9, 10, 15, 16, 63, 64, -9, 2**31 - 1])
    assert_same(jax.jit(replay.update_priorities)(state, indices, jnp.full(10, 7.0)), state)


@EACH
def test_where_nothing_can_be_drawn_weights_are_zero(make):
    replay = make(100)
    state = replay.init({"x": jnp.int32(3)})
    assert not replay.can_sample(state)
    items, indices, weights = replay.sample(state, jax.random.key(0), 5)
    assert items["x"].tolist() == indices.tolist() == [0] * 5 and weights.tolist() == [0.0] * 5
    state = jax.jit(replay.update_priorities)(state, indices, jnp.ones(5))
    assert not replay.can_sample(state)  # the places are still of no items


def test_priorities_of_zero_alone_can_be_drawn_no_more_until_one_is_not():
    replay = rlx.replay.prioritised(4, exponent=0.0, beta=1.0)
    state = replay.add_batch(replay.init(0), jnp.arange(4))
    state = replay.update_priorities(state, jnp.arange(4), jnp.zeros(4))
    assert not replay.can_sample(state)
    assert replay.sample(state, jax.random.key(0), 3).weights.tolist() == [0.0] * 3
    state = replay.update_priorities(state, jnp.array([2]), jnp.array([1e-3]))
    assert replay.can_sample(state, 4) and replay.sample(state, jax.random.key(0), 2).items.tolist() == [2, 2]


def test_sums_do_not_drift_over_many_updates():
    replay = rlx.replay.prioritised(1000, exponent=1.0, beta=0.0)

    def step(carry, key):
        state, priorities = carry
        indices, scale, noise = (jax.random.split(key, 3)[i] for i in range(3))
        indices = jax.random.permutation(indices, 1000)[:50]
        new = jnp.exp(jax.random.normal(noise, [50]) * 5 * jax.random.normal(scale))  # over many orders of magnitude
        return (replay.update_priorities(state, indices, new), priorities.at[indices].set(new)), None

    state = replay.add_batch(replay.init(0), jnp.arange(1000))
    keys = jax.random.split(jax.random.key(10), 3000)
    (state, priorities), _ = jax.jit(lambda c: jax.lax.scan(step, c, keys))((state, jnp.ones(1000)))
    levels = np.split(np.asarray(state.tree, np.float64), np.cumsum([125, 16, 2]))
    np.testing.assert_array_equal(levels[0].ravel(), priorities)
    for below, above in itertools.pairwise(levels):
        np.testing.assert_allclose(below.sum(1), above.ravel()[: len(below)], rtol=1e-6)


@EACH
def test_jit_is_eager_scan_is_a_loop_and_vmap_is_one_replay_at_a_time(make):
    replay = make(12)

    def step(state, x):
        number, key = x
        state = replay.add_batch(state, {"i": number + jnp.arange(5)})
        sample = replay.sample(state, key, 6)
        priorities = 1.0 + sample.items["i"] % 7
        return replay.update_priorities(state, sample.indices, priorities), sample

    numbers, keys = 5 * jnp.arange(4), jax.random.split(jax.random.key(11), 4)
    state, samples = replay.init({"i": 0}), []
    for x in zip(numbers, keys, strict=True):
        state, sample = step(state, x)
        samples.append(sample)
    scanned, scanned_samples = jax.jit(lambda: jax.lax.scan(step, replay.init({"i": 0}), (numbers, keys)))()
    close = functools.partial(jax.tree.map, functools.partial(np.testing.assert_allclose, rtol=1e-6))
    close(scanned, state)
    close(scanned_samples, stacked(samples))

    shifted = jnp.stack([numbers, numbers + 100, numbers + 200])
    init = functools.partial(replay.init, {"i": 0})
    many = jax.vmap(lambda n: jax.lax.scan(step, init(), (n, keys))[1])(shifted)
    one = jax.lax.scan(step, init(), (shifted[2], keys))[1]
    close(jax.tree.map(lambda x: x[2], many), one)


def compiled_step(make, capacity, learn_first=False):
    """A linear agent of 128 environments, which learns after it acted, or before."""
    replay = make(capacity)
    state = jax.eval_shape(replay.init, {"s_tm1": jnp.zeros(8), "r_t": 0.0})

    def loss(params, sample):
        td_error = sample.items["r_t"] - sample.items["s_tm1"] @ params
        return jnp.mean(sample.weights * td_error**2), jnp.abs(td_error)

    def learn(state, params, key):
        sample = replay.sample(state, key, 256)
        grads, priorities = jax.grad(loss, has_aux=True)(params, sample)
        return replay.update_priorities(state, sample.indices, priorities), params - 0.1 * grads

    def act(state, params, key):
        s_tm1 = jax.random.normal(key, [128, 8])
        return replay.add_batch(state, {"s_tm1": s_tm1 * params[None], "r_t": s_tm1 @ params})

    def step(carry, key):
        state, params = carry
        if learn_first:
            state, params = learn(state, params, key)
            return (act(state, params, key), params), None
        return learn(act(state, params, key), params, key), None

    state = state, jax.ShapeDtypeStruct([8], jnp.float32)
    return step, state


@EACH
@pytest.mark.parametrize("learn_first", [False, True])
@pytest.mark.parametrize("steps", [None, 10])
def test_a_million_items_are_changed_in_place(make, learn_first, steps):
    step, state = compiled_step(make, 1_000_003, learn_first)  # 128 does not divide it
    key = jax.random.key(0)
    loop = step if steps is None else lambda s, k: jax.lax.scan(step, s, jax.random.split(k, steps))
    compiled = jax.jit(loop, donate_argnums=0).lower(state, key).compile()
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    memory = compiled.memory_analysis()
    assert size > 36e6
    assert memory.alias_size_in_bytes == size
    assert memory.temp_size_in_bytes < 100e3
    copied = re.findall(r"= \w+\[\d{5,}[^=]* copy\(", compiled.as_text())
    assert copied == []


WRONG = [
    (lambda: rlx.replay.uniform(0), "OptionError", "replay.uniform: argument `capacity` is 0, expected a positive nu"),
    (lambda: rlx.replay.uniform(2.5), "OptionError", "argument `capacity` is 2.5, expected a positive .* integer"),
    (lambda: rlx.replay.prioritised(0, 1, 1), "OptionError", "replay.prioritised: argument `capacity` is 0"),
    (lambda: rlx.replay.prioritised(4, 1.5, 1), "OptionError", r"argument `exponent` is 1.5, expected .* \[0, 1\]"),
    (lambda: rlx.replay.prioritised(4, 1, -0.5), "OptionError", r"argument `beta` is -0.5, expected .* \[0, 1\]"),
    (lambda: rlx.replay.prioritised(4, 1, np.nan), "OptionError", "argument `beta` is nan, expected"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, text", WRONG)
def test_a_setting_out_of_range_is_named(call, error, text):
    with pytest.raises(getattr(rlx, error), match=text):
        call()


ITEM = {"s": {"x": jnp.zeros([2, 3]), "y": jnp.zeros([], jnp.int8)}, "r": 0.0}
WRONG_ITEMS = [
    ("add", {"s": ITEM["s"]}, "ArgumentError", r"replay.add: argument `item` is another tree .*: it lacks \['r'\]\."),
    ("add", {**ITEM, "q": 1}, "ArgumentError", r"it has \['q'\] beside it\.\nIt is PyTreeDef.*, expected PyTreeDef"),
    ("add", [1.0], "ArgumentError", r"it lacks \['r'\], \['s'\]\['x'\], \['s'\]\['y'\] and has \[0\] beside it"),
    ("add", {**ITEM, "r": "reward"}, "DTypeError", r"replay.add: argument `item`\['r'\] is a str, expected an array"),
    ("add", {**ITEM, "r": jnp.int32(1)}, "DTypeError", r"`item`\['r'\] has dtype int32, expected float32 as in"),
    ("add", {**ITEM, "r": np.float16(1)}, "DTypeError", r"`item`\['r'\] has dtype float16, expected float32"),
    ("add", {**ITEM, "r": jnp.ones(4)}, "RankError", r"`item`\['r'\] has shape \[4\], expected \[\], where .*\n`add`"),
    ("add", {**ITEM, "s": {"x": jnp.zeros([3, 2]), "y": 1}}, "ShapeError",
     r"`item`\['s'\]\['x'\] has shape \[3, 2\], expected \[2, 3\]"),
    ("add", {**ITEM, "s": {"x": jnp.zeros([2, 3]), "y": 1.5}}, "DTypeError", r"\['y'\] has dtype float32, expected"),
    ("add_batch", ITEM, "RankError", r"replay.add_batch: argument `items`\['r'\] has shape \[\], expected \[B\], "),
    ("add_batch", {"r": jnp.ones(3), "s": {"x": jnp.ones([4, 2, 3]), "y": jnp.zeros(4, jnp.int8)}}, "ShapeError",
     r"`items`\['s'\]\['x'\] has shape \[4, 2, 3\], expected \[B, 2, 3\].*, with B = 3 from argument `items`\['r'\]"),
    ("add_batch", {"r": jnp.ones(9), "s": {"x": jnp.ones([9, 2, 3]), "y": jnp.zeros(9, jnp.int8)}}, "ShapeError",
     r"replay.add_batch: argument `items` holds 9 items, expected at most 8, the capacity\.\nAdd"),
]  # fmt: skip


@EACH
@pytest.mark.parametrize("function, given, error, text", WRONG_ITEMS)
def test_an_item_that_is_unlike_the_first_is_named_by_its_path(make, function, given, error, text):
    replay = make(8)
    state = replay.init(ITEM)
    with pytest.raises(getattr(rlx, error), match=text):
        getattr(replay, function)(state, given)
    with pytest.raises(getattr(rlx, error), match=text):
        jax.eval_shape(lambda: getattr(replay, function)(state, given))


@EACH
def test_other_mistakes_are_named(make):
    replay = make(8)
    with pytest.raises(rlx.ArgumentError, match=r"replay.init: argument `item` is \{\}, expected a tree with at least"):
        replay.init({})
    with pytest.raises(rlx.DTypeError, match=r"replay.init: argument `item`\['x'\] is a str, expected an array"):
        replay.init({"x": "a word"})
    state = replay.init(0.0)
    for wrong in (0, -1, 2.0, None):
        with pytest.raises(rlx.OptionError, match=rf"replay.sample: argument `n` is {wrong}, expected a positive num"):
            replay.sample(state, jax.random.key(0), wrong)
        with pytest.raises(rlx.OptionError, match=rf"replay.can_sample: argument `n` is {wrong}, expected a positive"):
            replay.can_sample(state, wrong)
    with pytest.raises(
        rlx.DTypeError, match=r"replay.update_priorities: argument `indices` has dtype float32, expected"
    ):
        replay.update_priorities(state, jnp.ones(2), jnp.ones(2))
    with pytest.raises(
        rlx.ShapeError, match=r"`priorities` has shape \[3\], expected shape \[B\] with B = 2 from `ind"
    ):
        replay.update_priorities(state, jnp.arange(2), jnp.ones(3))


@EACH
def test_an_example_may_be_shapes_alone_and_numbers_are_what_python_writes(make):
    replay = make(4)
    state = replay.init(jax.eval_shape(lambda: item_number(0)))
    assert_same(state, replay.init(item_number(0)))
    state = replay.init({"r_t": 0.0, "a_tm1": 0, "done": False})
    state = replay.add(state, {"r_t": 1, "a_tm1": 2, "done": True})
    assert jax.tree.map(lambda x: x[0].item(), replay.sample(state, jax.random.key(0), 1).items) == {
        "r_t": 1.0, "a_tm1": 2, "done": True
    }  # fmt: skip


@EACH
def test_it_can_be_pickled(make):
    replay = pickle.loads(pickle.dumps(make(4)))
    state = replay.add(replay.init(0.0), 2.0)
    assert replay.sample(state, jax.random.key(0), 1).items.tolist() == [2.0]


@pytest.mark.parametrize("name", rlx.replay.__all__)
def test_each_name_has_an_example(name):
    assert ">>>" in inspect.getdoc(getattr(rlx.replay, name))
