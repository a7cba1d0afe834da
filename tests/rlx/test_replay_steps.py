"""Replays that take the steps of many environments, and the reservoir, against loops in NumPy."""

import functools
import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.unoptimised

R2D2 = functools.partial(rlx.replay.prioritised, exponent=1.0, beta=0.5)
Transition = rlx.replay.Transition


def steps_of(times, environments):
    """Steps [T, E] that say when and where they are."""
    t, e = np.meshgrid(times, np.arange(environments), indexing="ij")
    return {"t": jnp.asarray(t, jnp.int32), "e": {"x": jnp.stack([jnp.asarray(e, jnp.float32)] * 2, -1)}}


def sequences_held(steps, capacity, length, period):
    """The starts of the sequences of one environment that are held after so many steps: the last ones completed."""
    starts = [t for t in range(0, steps, period) if t + length <= steps]
    return starts[-((capacity - length + 1) // period) :]


@pytest.mark.parametrize(
    "make_replay, capacity, length, period, batch",
    [
        pytest.param(rlx.replay.uniform, 8, 3, 1, 1, marks=pytest.mark.slow),
        (R2D2, 10, 4, 2, 3),
        pytest.param(rlx.replay.uniform, 9, 4, 3, 9, marks=pytest.mark.slow),
        pytest.param(rlx.replay.uniform, 7, 2, 5, 1, marks=pytest.mark.slow),
        pytest.param(R2D2, 12, 5, 2, 4, marks=pytest.mark.slow),
        pytest.param(R2D2, 6, 6, 1, 4, marks=pytest.mark.slow),
        pytest.param(R2D2, 11, 3, 4, 2, marks=pytest.mark.slow),
    ],
)
def test_sequences_are_whole_and_in_order(make_replay, capacity, length, period, batch):
    replay = rlx.replay.sequences(capacity, length, period, make_replay)
    state = replay.init(jax.tree.map(lambda x: x[0], steps_of([0], 3)))
    add_batch, sample = jax.jit(replay.add_batch), jax.jit(replay.sample, static_argnames="n")
    can_sample = jax.jit(replay.can_sample, static_argnames="n")
    for steps in range(batch, 4 * capacity, batch):
        state = add_batch(state, steps_of(range(steps - batch, steps), 3))
        held = set(itertools.product(sequences_held(steps, capacity, length, period), range(3)))
        assert all(steps - capacity <= start for start, _ in held)
        assert can_sample(state, n=len(held) or 1) == bool(held) and not can_sample(state, n=len(held) + 1)
        items, _, weights = sample(state, jax.random.key(steps), n=500)
        assert items["t"].shape == (500, length) and items["e"]["x"].shape == (500, length, 2)
        if not held:
            assert (weights == 0).all()
            continue
        assert set(zip(items["t"][:, 0].tolist(), items["e"]["x"][:, 0, 0].tolist(), strict=True)) == held
        np.testing.assert_array_equal(items["t"], items["t"][:, :1] + np.arange(length)[None])
        np.testing.assert_array_equal(items["e"]["x"], np.broadcast_to(items["e"]["x"][:, :1, :1], (500, length, 2)))
        assert (weights == 1).all()


def one_by_one(replay, state, steps):
    """The steps added by single ones, in a scan."""
    return jax.lax.scan(lambda state, step: (replay.add(state, step), None), state, steps)[0]


@pytest.mark.slow
def test_sequences_by_batches_of_any_size_are_those_by_single_steps():
    replay = rlx.replay.sequences(20, 5, 2)
    sample = jax.jit(lambda state, key: replay.sample(state, key, 300).items)
    one = many = replay.init(jax.tree.map(lambda x: x[0], steps_of([0], 2)))
    time = 0
    for batch in (1, 7, 20, 2, 1, 7):
        steps = steps_of(range(time, time + batch), 2)
        time += batch
        many, one = jax.jit(replay.add_batch)(many, steps), jax.jit(functools.partial(one_by_one, replay))(one, steps)
        key = jax.random.key(time)
        # More sequences may be completed at once than are held, and then the others never get a place.
        ours, theirs = sample(many, key), sample(one, key)
        for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert {row.tobytes() for row in np.asarray(x)} == {row.tobytes() for row in np.asarray(y)}


@pytest.mark.slow
def test_sequences_are_drawn_by_their_priorities():
    replay = rlx.replay.sequences(14, 4, 2, R2D2)
    sample, update = jax.jit(replay.sample, static_argnames="n"), jax.jit(replay.update_priorities)
    add_batch = jax.jit(replay.add_batch)
    state = replay.init(jnp.zeros([2], jnp.int32))
    for t in range(0, 12, 2):
        state = add_batch(state, 2 * t + jnp.arange(4).reshape(2, 2))
    # Starts at 0, 2, 4, 6, 8 in two environments; the number of a step is 2 t + e.
    priority = {number: 1.0 + number for t in (0, 2, 4, 6, 8) for number in (2 * t, 2 * t + 1)}
    for seed in range(12):
        items, indices, _ = sample(state, jax.random.key(seed), n=10)
        state = update(state, indices, jnp.asarray([priority[i] for i in items[:, 0].tolist()]))
    state = add_batch(
        state, jnp.arange(24, 28).reshape(2, 2)
    )  # the sequences from step 10 on replace those from step 0
    expected = {number: p for number, p in priority.items() if number > 1} | {20: 18.0, 21: 18.0}
    counts = np.bincount(sample(state, jax.random.key(20), n=100_000).items[:, 0])
    mass = np.array([expected.get(i, 0) for i in range(22)])
    np.testing.assert_allclose(counts / counts.sum(), mass / mass.sum(), atol=2e-3)


def n_step_transitions(steps, n):
    """By the definition, one start after the other: {(t, e): (reward, discount, number of the last state)}."""
    found = {}
    times, environments = steps.r_t.shape
    truncation_t = np.zeros([times, environments]) if steps.truncation_t is None else steps.truncation_t
    for t, e in itertools.product(range(times - n + 1), range(environments)):
        reward, discount = 0.0, 1.0
        for k in range(t, t + n):
            reward += discount * steps.r_t[k, e]
            discount *= steps.discount_t[k, e]
            if steps.discount_t[k, e] == 0 or truncation_t[k, e]:
                break
        found[t, e] = reward, discount, steps.s_t["x"][k, e]
    return found


def random_steps(times, environments, seed, truncated=True):
    rng = np.random.default_rng(seed)
    shape = [times, environments]
    return Transition(
        s_tm1={"te": np.stack(np.meshgrid(range(times), range(environments), indexing="ij"), -1).astype(np.int32)},
        a_tm1=rng.integers(0, 5, shape).astype(np.int32),
        r_t=rng.normal(size=shape).astype(np.float32),
        discount_t=(rng.random(shape) > 0.3).astype(np.float32) * np.float32(0.9),
        s_t={"x": rng.normal(size=shape).astype(np.float32)},
        truncation_t=rng.random(shape) > 0.8 if truncated else None,
    )


@pytest.mark.parametrize(
    "n, batches, truncated",
    [
        (3, (1, 1, 1, 1, 5), True),
        pytest.param(4, (9,), False, marks=pytest.mark.slow),
        pytest.param(1, (2, 2), True, marks=pytest.mark.slow),
        pytest.param(5, (3, 3, 9), True, marks=pytest.mark.slow),
    ],
)
def test_n_step_transitions_are_those_of_a_loop(n, batches, truncated):
    steps = random_steps(sum(batches), 3, seed=sum(batches) + n, truncated=truncated)
    replay = rlx.replay.n_step(rlx.replay.uniform(100), n)
    state, time = replay.init(jax.tree.map(lambda x: x[0], steps)), 0
    for batch in batches:
        time += batch
        state = jax.jit(replay.add_batch)(state, jax.tree.map(lambda x: x[time - batch : time], steps))  # noqa: B023
        expected = n_step_transitions(jax.tree.map(lambda x: x[:time], steps), n)  # noqa: B023
        assert bool(replay.can_sample(state, len(expected) or 1)) == bool(expected)
        assert not replay.can_sample(state, len(expected) + 1)
    items = replay.sample(state, jax.random.key(time), 1000).items
    assert items.truncation_t is None
    where = [tuple(te) for te in items.s_tm1["te"].tolist()]
    assert set(where) == set(expected)
    reward, discount, last = np.transpose([expected[te] for te in where])
    np.testing.assert_allclose(items.r_t, reward, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(items.discount_t, discount, rtol=1e-6)
    np.testing.assert_array_equal(items.s_t["x"], last.astype(np.float32))
    np.testing.assert_array_equal(items.a_tm1, [steps.a_tm1[te] for te in where])


@pytest.mark.slow
def test_n_step_by_single_steps_and_in_a_scan_is_the_same():
    steps = random_steps(9, 2, seed=3)
    replay = rlx.replay.n_step(rlx.replay.prioritised(30, 0.6, 0.4), 3)
    init = replay.init(jax.tree.map(lambda x: x[0], steps))
    at_once = jax.jit(replay.add_batch)(init, steps)
    jax.tree.map(np.testing.assert_array_equal, at_once, jax.jit(functools.partial(one_by_one, replay))(init, steps))


@jax.jit
def of_the_smallest(steps):
    """What is drawn, 20 times each, from replays of as few places, steps and sequences as there can be."""
    first, keys = jax.tree.map(lambda x: x[0], steps), jax.random.split(jax.random.key(5), 4)

    def drawn(replay, state, key):
        return replay.can_sample(state, 2), replay.sample(state, key, 20)

    one_step = rlx.replay.n_step(rlx.replay.uniform(2), 1)
    state = one_step.init(first)
    before = one_step.can_sample(state)
    state = one_step.add(state, first)
    t = steps.s_tm1["te"][:, :1, 0]
    single, shortest = rlx.replay.sequences(1, 1), rlx.replay.sequences(5, 3, 3)
    of_one, of_three = single.add_batch(single.init(t[0]), t[:1]), shortest.init(t[0])
    for i in range(3):
        of_one, of_three = single.add(of_one, t[i]), shortest.add(of_three, t[i])
    reservoir = rlx.replay.reservoir(1)
    held = reservoir.add(reservoir.init(0, keys[3]), 7)
    return (
        before,
        drawn(one_step, state, keys[0]),
        drawn(single, of_one, keys[1]),
        drawn(shortest, of_three, keys[2]),
        drawn(shortest, shortest.add_batch(of_three, t[3:6]), keys[2]),
        drawn(reservoir, held, keys[3]),
    )


def test_the_smallest_replays():
    steps = random_steps(6, 2, seed=8)
    before, (two, of_steps), *others = jax.tree.map(np.asarray, of_the_smallest(steps))
    assert not before and two
    e = of_steps.items.s_tm1["te"][:, 1]
    assert set(e) == {0, 1} and (of_steps.items.s_tm1["te"][:, 0] == 0).all()
    for name in ("r_t", "discount_t", "a_tm1"):
        np.testing.assert_array_equal(getattr(of_steps.items, name), getattr(steps, name)[0][e])
    np.testing.assert_array_equal(of_steps.items.s_t["x"], steps.s_t["x"][0][e])
    for (two, sample), expected in zip(others, ([2], [0, 1, 2], [3, 4, 5], 7), strict=True):
        assert not two and (sample.weights == 1).all()
        np.testing.assert_array_equal(sample.items, np.broadcast_to(expected, sample.items.shape))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_rewards_and_discounts_of_half_precision_are_rounded_once(dtype):
    r_t = np.array([[-6e4], [6e4], [6e4], [5e3], [321.0], [-77.0]])  # the sum from the second one on is no float16
    nothing = jnp.zeros([6, 1])
    step = Transition(nothing, nothing, jnp.asarray(r_t, dtype), jnp.full([6, 1], 0.97, dtype), nothing)
    replay = rlx.replay.n_step(rlx.replay.uniform(6), 6)
    state = replay.add_batch(replay.init(jax.tree.map(lambda x: x[0], step)), step)
    items = replay.sample(state, jax.random.key(0), 1).items
    rewards, discount = (np.asarray(x, np.float64) for x in (step.r_t, step.discount_t[0]))
    exact = [rewards[:, 0] @ discount ** np.arange(6), discount[0] ** 6]
    assert items.r_t.dtype == items.discount_t.dtype == dtype
    found = [np.float64(x[0]) for x in (items.r_t, items.discount_t)]
    np.testing.assert_allclose(found, exact, rtol=float(jnp.finfo(dtype).eps) / 2)


def test_states_without_entries():
    nothing = {"none": jnp.zeros([2, 0, 3]), "x": jnp.zeros(2)}
    step = Transition(nothing, jnp.zeros([2, 0]), jnp.ones(2), jnp.ones(2), nothing)
    replay = rlx.replay.n_step(rlx.replay.uniform(4), 2)
    state = replay.add(replay.add(replay.init(step), step), step)
    items = replay.sample(state, jax.random.key(0), 5).items
    assert items.s_tm1["none"].shape == items.s_t["none"].shape == (5, 0, 3) and items.a_tm1.shape == (5, 0)
    np.testing.assert_array_equal(items.r_t, np.full(5, 2))


@pytest.mark.parametrize("end", ["discount_t", "truncation_t"])
def test_what_follows_an_episode_has_no_influence_on_it(end):
    steps = random_steps(4, 1, seed=4)
    steps.truncation_t[:] = False
    steps.discount_t[:] = 0.9
    getattr(steps, end)[1] = end == "truncation_t"
    steps.r_t[2:] = np.nan
    steps.discount_t[2:] = np.inf
    replay = rlx.replay.n_step(rlx.replay.uniform(4), 4)
    run = jax.jit(lambda steps: replay.add_batch(replay.init(jax.tree.map(lambda x: x[0], steps)), steps))
    items = jax.jit(lambda state: replay.sample(state, jax.random.key(0), 1).items)(run(steps))
    np.testing.assert_allclose(items.r_t, [steps.r_t[0, 0] + 0.9 * steps.r_t[1, 0]], rtol=1e-6)
    np.testing.assert_allclose(items.discount_t, [0.81 if end == "truncation_t" else 0.0], rtol=1e-6)
    np.testing.assert_array_equal(items.s_t["x"], steps.s_t["x"][1])


def test_whole_numbers_as_rewards_and_keys_in_states():
    keys = jax.random.split(jax.random.key(0), 2)
    step = Transition({"key": keys}, jnp.arange(2), jnp.array([1, 2]), jnp.array([1, 1]), {"key": keys})
    replay = rlx.replay.n_step(rlx.replay.uniform(10), 2)
    run = jax.jit(lambda step: replay.add(replay.add(replay.init(step), step), step))
    items = jax.jit(lambda state: replay.sample(state, jax.random.key(1), 20).items)(run(step))
    assert items.r_t.dtype == jnp.float32 and set(items.r_t.tolist()) == {2.0, 4.0}
    assert {k.tobytes() for k in np.asarray(jax.random.key_data(items.s_t["key"]))} == {
        k.tobytes() for k in np.asarray(jax.random.key_data(keys))
    }


def held_often(make_state, runs, items, capacity):
    """In how many of many reservoirs each item is held, and each pair of items."""
    states = jax.jit(jax.vmap(make_state))(jax.random.split(jax.random.key(7), runs))
    assert states.items.shape == (runs, capacity)
    held = (np.asarray(states.items)[:, :, None] == np.arange(items)).any(1).astype(float)
    assert (held.sum(1) == capacity).all()  # none is held twice
    return held.sum(0), held.T @ held


@pytest.mark.slow
@pytest.mark.parametrize("batches", [[2, 7, 3], [5, 0, 7]])
def test_each_item_is_held_by_a_reservoir_with_the_same_probability(batches):
    replay = rlx.replay.reservoir(4)

    def run(key):
        state, number = replay.init(0, key), 0
        for batch in batches:
            state = replay.add_batch(state, number + jnp.arange(batch))
            number += batch
        return state

    runs = 20_000
    single, pairs = held_often(run, runs, 12, 4)
    p, both = 4 / 12, 4 / 12 * 3 / 11
    np.testing.assert_allclose(single / runs, p, atol=5 * np.sqrt(p * (1 - p) / runs))
    apart = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose(pairs[apart] / runs, both, atol=5 * np.sqrt(both * (1 - both) / runs))


def test_a_reservoir_counts_what_the_mask_lets_through():
    replay = rlx.replay.reservoir(4)
    mask = jnp.arange(24) % 2 == 1

    def run(key):
        state = replay.add_batch(replay.init(0, key), jnp.arange(16) // 2, mask[:16])
        return replay.add_batch(state, 8 + jnp.arange(8) // 2, mask[:8])

    single, _ = held_often(run, 20_000, 12, 4)
    np.testing.assert_allclose(single / 20_000, 4 / 12, atol=5 * np.sqrt(2 / 9 / 20_000))


def test_a_reservoir_is_sampled_uniformly_and_may_be_part_full():
    replay = rlx.replay.reservoir(10)
    sample = jax.jit(functools.partial(replay.sample, n=30_000))
    state = replay.init(jnp.float16(0), jax.random.key(0))
    assert not replay.can_sample(state) and not sample(state, jax.random.key(1)).weights.any()
    state = jax.jit(replay.add)(state, jnp.float16(7))
    state = jax.jit(replay.add_batch)(state, jnp.array([8, 9], jnp.float16))
    assert replay.can_sample(state, 3) and not replay.can_sample(state, 4)
    items, _, weights = sample(state, jax.random.key(2))
    counts = np.array([(items == i).sum() for i in (7, 8, 9)])
    np.testing.assert_allclose(counts / 30_000, 1 / 3, atol=5 * np.sqrt(2 / 9 / 30_000))
    assert (weights == 1).all() and items.dtype == jnp.float16
    assert replay.update_priorities(state, jnp.arange(2), jnp.ones(2)) is state


def test_a_reservoir_goes_on_where_its_count_ends():
    replay = rlx.replay.reservoir(2)
    state = replay.init(0, jax.random.key(0))._replace(seen=jnp.int32(2**31 - 2))
    add = jax.jit(replay.add_batch)
    for _ in range(3):
        state = add(state, jnp.arange(5))
        assert 2**31 - 6 <= int(state.seen) <= 2**31 - 1
    assert replay.can_sample(state, 2)


# By kind, from about how many steps to hold, the replay, its item, and what else `init` takes.
STEPS = {
    "sequences": lambda size: (rlx.replay.sequences(size // 4, 5, 2, R2D2), {"x": jnp.zeros([4, 8])}, ()),
    "uniform sequences": lambda size: (rlx.replay.sequences(size // 4, 5, 1), {"x": jnp.zeros([4, 8])}, ()),
    "n_step": lambda size: (
        rlx.replay.n_step(R2D2(size), 3),
        Transition(jnp.zeros([4, 8]), jnp.zeros(4, jnp.int32), jnp.zeros(4), jnp.zeros(4), jnp.zeros([4, 8])),
        (),
    ),
    "reservoir": lambda size: (rlx.replay.reservoir(size), {"x": jnp.zeros(8)}, (jax.random.key(0),)),
}


def steps_in_a_scan(replay, item, state, key):
    """Ten steps that add, draw and set priorities."""

    def step(state, key):
        batch = jax.tree.map(lambda x: jax.random.uniform(key, (5, *x.shape)).astype(x.dtype), item)
        state = replay.add_batch(state, batch)
        sample = replay.sample(state, key, 32)
        losses = sum(x.reshape(32, -1).sum(1) for x in jax.tree.leaves(sample.items)) * sample.weights
        return replay.update_priorities(state, sample.indices, jnp.abs(losses)), losses.mean()

    return jax.lax.scan(step, state, jax.random.split(key, 10))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in ("sequences", "n_step") else ()) for kind in STEPS]
)
def test_these_are_changed_in_place_too(kind):
    replay, item, more = STEPS[kind](1_000_003)
    state = jax.eval_shape(lambda: replay.init(item, *more))
    loop = jax.jit(functools.partial(steps_in_a_scan, replay, item), donate_argnums=0)
    program = loop.lower(state, jax.random.key(0)).compile()
    memory = program.memory_analysis()
    assert memory.alias_size_in_bytes > 32e6
    assert memory.temp_size_in_bytes < 200e3
    assert program.cost_analysis()["flops"] < 1e6  # nothing is computed with each of them


@pytest.mark.slow
@pytest.mark.parametrize("kind", STEPS)
def test_a_vmap_over_replays_is_one_at_a_time_and_64_bits_change_no_dtype(kind):
    with jax.enable_x64(True):
        replay, item, more = STEPS[kind](40)
        run = functools.partial(steps_in_a_scan, replay, item, replay.init(item, *more))
        keys = jax.random.split(jax.random.key(1), 3)
        many = jax.jit(jax.vmap(run))(keys)
        one = jax.jit(run)(keys[1])
    for x, y in zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True):
        if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(x[1], y, rtol=1e-6)


WRONG = [
    (lambda: rlx.replay.sequences(10, 0), r"replay.sequences: argument `length` is 0, expected a positive num"),
    (lambda: rlx.replay.sequences(10, 3, 0), r"argument `period` is 0, expected a positive number of steps"),
    (lambda: rlx.replay.sequences(10, 8, 4), r"`capacity` is 10, expected at least length \+ period - 1 = 11 steps"),
    (lambda: rlx.replay.sequences(2**30 + 1, 3), r"`capacity` is 1073741825, .* 3 steps, and at most 1073741824"),
    (lambda: rlx.replay.sequences(9, 3, 2, rlx.replay.uniform(4)), r"argument `make_replay` is Replay\(.*, exp"),
    (lambda: rlx.replay.sequences(9, 3, 2, rlx.replay.reservoir).init(jnp.zeros(2)), r"`make_replay` .* the latest"),
    (lambda: rlx.replay.sequences(9, 3, 2, lambda n: n).init(jnp.zeros(2)), r"`make_replay` is <.*, expected one t"),
    (lambda: rlx.replay.n_step(rlx.replay.uniform(4), 0), r"replay.n_step: argument `n` is 0, expected a positive"),
    (lambda: rlx.replay.n_step(3, 4), r"replay.n_step: argument `replay` is 3, expected a Replay, for instance rlx"),
    (lambda: rlx.replay.n_step(rlx.replay.uniform(4), 2).init({"r_t": 0.0}), r"replay.init: argument `item` is .*, "),
    (lambda: rlx.replay.reservoir(2**30 + 1), r"replay.reservoir: .*, expected a positive .* at most 1073741824"),
    (lambda: rlx.replay.reservoir(0), r"replay.reservoir: argument `capacity` is 0, expected a positive"),
]  # fmt: skip


@pytest.mark.parametrize("call, text", WRONG)
def test_a_setting_out_of_range_is_named(call, text):
    with pytest.raises(rlx.OptionError, match=text):
        call()


def test_items_without_an_axis_of_environments_are_named():
    replay = rlx.replay.sequences(9, 3)
    with pytest.raises(
        rlx.RankError, match=r"replay.init: argument `item`\['r'\] has shape \[\], expected \[E, \.\.\.\]"
    ):
        replay.init({"r": 0.0})
    with pytest.raises(
        rlx.ShapeError, match=r"`item`\['r'\] has shape \[3\], .* with E = 2 from argument `item`\['o'\]"
    ):
        replay.init({"o": jnp.zeros([2, 4]), "r": jnp.zeros(3)})
    state = jax.eval_shape(replay.init, {"r": np.zeros(3, np.float32)})
    with pytest.raises(rlx.RankError, match=r"replay.add: argument `item`\['r'\] has shape \[\], expected \[3\]"):
        replay.add(state, {"r": 0.0})
    with pytest.raises(
        rlx.RankError, match=r"`items`\['r'\] has shape \[3\], expected \[T, 3\], where an item is \[3\]"
    ):
        replay.add_batch(state, {"r": jnp.zeros(3)})
    with pytest.raises(rlx.ShapeError, match=r"replay.add_batch: argument `items` holds 10 items, expected at most 9"):
        replay.add_batch(state, {"r": jnp.zeros([10, 3])})
    step = Transition(jnp.zeros([2, 4]), jnp.zeros(2), jnp.zeros([2, 1]), jnp.zeros(2), jnp.zeros([2, 4]))
    with pytest.raises(
        rlx.RankError, match=r"replay.init: argument `item.r_t` has rank 2 \(shape \[2, 1\]\), expected shape \[E\]"
    ):
        rlx.replay.n_step(rlx.replay.uniform(4), 2).init(step)
    with pytest.raises(rlx.DTypeError, match=r"replay.init: argument `item.r_t` is None, expected an array of real"):
        rlx.replay.n_step(rlx.replay.uniform(4), 2).init(step._replace(r_t=None))
    with pytest.raises(rlx.ShapeError, match=r"replay.init: argument `item` has shape \[0\], .* with E at least 1\."):
        replay.init(jnp.zeros(0))
    replay = rlx.replay.n_step(rlx.replay.uniform(4), 2)
    state = jax.eval_shape(replay.init, step._replace(r_t=jnp.zeros(2)))
    with pytest.raises(rlx.ArgumentError, match=r"`item` has another structure .*: it has \.truncation_t in addition"):
        replay.add(state, step._replace(r_t=jnp.zeros(2), truncation_t=jnp.zeros(2)))


def test_arguments_that_a_replay_does_not_take_are_named():
    step = Transition(*[jnp.zeros(2)] * 5)
    for replay, item in ((rlx.replay.sequences(9, 3), step.r_t), (rlx.replay.n_step(rlx.replay.uniform(4), 2), step)):
        items = jax.tree.map(lambda x: x[None], item)
        with pytest.raises(rlx.ArgumentError, match=r"replay.add_batch: .*argument.* It takes state, items."):
            replay.add_batch(replay.init(item), items, mask=jnp.ones(1))
    with pytest.raises(rlx.ArgumentError, match=r"replay.init: missing a required argument: 'key'. It takes item, key"):
        rlx.replay.reservoir(4).init(0.0)


@pytest.mark.parametrize("kind", STEPS)
def test_they_can_be_pickled(kind):
    replay, *_ = STEPS[kind](40)
    assert pickle.loads(pickle.dumps(replay)).init.func is replay.init.func
