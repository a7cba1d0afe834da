"""Running statistics and scales of returns, against NumPy's in float64 over all that was seen at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import rlx
from rlx import running_statistics as rs

pytestmark = pytest.mark.unoptimised

close = functools.partial(np.testing.assert_allclose, rtol=2e-6)  # some roundings of float32
jitted = jax.jit(rs.update, static_argnames="axis_name")


def items(seed, *shape, mean=0.0, std=1.0):
    return np.float32(mean + std * np.random.default_rng(seed).normal(size=shape))


def seen(state, xs, weights=None):
    """That a state holds the moments of all xs [n, ...]."""
    xs = np.float64(xs)
    weights = np.ones(len(xs)) if weights is None else np.float64(weights)
    mean = np.average(xs, axis=0, weights=weights)
    close(state.number, weights.sum())
    close(state.mean, mean)
    close(state.variance, np.average((xs - mean) ** 2, axis=0, weights=weights))


@pytest.mark.parametrize("mean, std", [(0.0, 1.0), (1e6, 1.0), (-3.0, 1e-12), (0.0, 1e12)])
def test_batches_one_after_another_are_one_large_batch(mean, std):
    xs, state = items(0, 60, 3, mean=mean, std=std), rs.init(jnp.zeros(3))
    if mean == 1e6:
        xs[:30] -= 1e6  # what came before was elsewhere
        xs[:30] *= 1e5
    for batch in np.split(xs, 6):
        state = jitted(state, batch)
    seen(state, xs)


def test_a_first_batch_of_large_numbers_keeps_its_digits():
    xs = items(1, 4096, mean=1e7, std=4.0)
    state = jitted(rs.init(0.0), xs)
    close(state.variance, np.var(np.float64(xs)))
    assert abs(float(state.mean) - np.float64(xs).mean()) <= 0.5  # half of the distance of two floats there
    alike = jitted(rs.init(jnp.zeros(2)), jnp.full([100_001, 2], 16777213.0))  # whose sum is no float
    close(alike.mean, [16777213.0] * 2, rtol=0 if jax.default_backend() == "cpu" else 2e-7, atol=0)
    assert not np.any(alike.variance)
    far = np.zeros([100_001, 2], np.float32)
    far[0] = 16777213  # unlike all others
    found = jitted(rs.init(jnp.zeros(2)), far)
    close(found.mean, np.float64(far).mean(0), rtol=0, atol=1)  # the distance of two floats there
    close(found.variance, np.float64(far).var(0))


def test_axes_in_front_single_items_and_kinds_of_numbers():
    xs, state = items(2, 4, 5, 2), rs.init(jnp.zeros(2))
    seen(jitted(state, xs), xs.reshape(20, 2))
    one = functools.reduce(jitted, xs[0], state)
    seen(one, xs[0])
    image = np.random.default_rng(3).integers(0, 256, size=(7, 2), dtype=np.uint8)
    state = jitted(rs.init(image[0]), image)
    seen(state, image)
    assert rs.normalize(state, image).dtype == jnp.float32
    assert rs.normalize(state, image.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    assert rs.init({"x": jnp.zeros(2, jnp.float16), "y": False}).mean["x"].dtype == jnp.float32
    with jax.enable_x64(True):
        assert rs.update(rs.init(np.zeros(2)), np.ones([3, 2])).variance.dtype == jnp.float64


def test_what_has_no_weight_has_no_influence():
    xs, weights = items(4, 8, 2), np.array([1, 0, 2, 0.5, 0, 1, 0, 3])
    state = jitted(rs.init(jnp.zeros(2)), xs[:3])
    holes = np.where(weights[:, None] > 0, xs, [np.nan, np.inf])
    seen(jitted(state, holes, weights), np.concatenate([xs[:3], xs]), [1, 1, 1, *weights])
    for nothing in (jitted(state, holes, np.zeros(8, bool)), jitted(state, np.zeros([0, 2]))):
        jax.tree.map(np.testing.assert_array_equal, nothing, state)
    fresh = rs.init(jnp.zeros(2))
    jax.tree.map(np.testing.assert_array_equal, jitted(fresh, holes, np.zeros(8)), fresh)
    seen(jitted(fresh, xs, weights / 32), xs, weights / 32)  # less than one item in all


def test_few_items_that_hardly_count_far_from_zero_keep_their_digits():
    xs, fresh = items(12, 2, 20, 2, mean=1e6), rs.init(jnp.zeros(2))
    weights = np.random.default_rng(12).uniform(0.01, 0.04, size=[2, 20])  # less than one item in all
    weights[:, 0], xs[:, 0] = 0, np.nan  # the first is not the one from which differences are taken

    @jax.jit
    def found(weights):
        on_two = jax.vmap(lambda x, w: rs.update(fresh, x, w, "i"), axis_name="i")(xs, weights)
        return on_two, rs.update(fresh, xs[0], weights[0]), rs.update(fresh, xs[0, 1:2])

    on_two, alone, of_one = found(weights)
    seen(alone, xs[0, 1:], weights[0, 1:])
    seen(of_one, xs[0, 1:2])
    for device in range(2):
        seen(jax.tree.map(lambda x: x[device], on_two), xs[:, 1:].reshape(38, 2), weights[:, 1:].ravel())  # noqa: B023
    weights[1] = 0  # a device without items
    on_two, _, _ = found(weights)
    seen(jax.tree.map(lambda x: x[1], on_two), xs[0, 1:], weights[0, 1:])


def test_merging_is_seeing_both():
    xs, fresh = items(5, 9, 2, mean=5.0), rs.init(jnp.zeros(2))
    one, two = jitted(fresh, xs[:2]), jitted(fresh, xs[2:])
    merge = jax.jit(rs.merge)
    seen(merge(one, two), xs)
    for both in (merge(one, fresh), merge(fresh, one)):
        jax.tree.map(np.testing.assert_array_equal, both, one)


@pytest.mark.eight_devices
def test_devices_put_their_items_together():
    xs = items(6, 8, 3, 2, mean=100.0)
    mask = np.arange(24).reshape(8, 3) % 5 != 0
    state = rs.update(rs.init(jnp.zeros(2)), xs[0])
    expected = np.concatenate([xs[0], xs[mask]])
    mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("i")

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(spec, spec), out_specs=PartitionSpec())
    def found(x, m):
        return rs.update(state, x, m, "i"), rlx.percentile_range(2.0, x[:, 0], mask=m, axis_name="i")

    statistics, spread = found(xs.reshape(24, 2), mask.reshape(24))
    seen(statistics, expected)
    close(spread, 0.99 * 2 + 0.01 * np.subtract(*np.percentile(np.float64(xs[mask][:, 0]), [95, 5])), rtol=1e-5)


def test_normalising_and_back():
    xs = {"a": items(7, 50, 3, mean=7.0, std=0.1), "b": items(8, 50)}
    xs["a"][:, 2] = 5.0  # does not vary
    nothing = rs.init({"a": jnp.zeros(3), "b": 0.0})

    @jax.jit
    def found(xs):
        state = rs.update(nothing, xs)
        z, of_one = rs.normalize(state, xs), jax.tree.map(lambda x: x[0], xs)
        slopes = jax.grad(lambda x: sum(map(jnp.sum, rs.normalize(state, x).values())))(of_one)
        slopes_of_state = jax.grad(lambda x: rs.update(nothing, x).mean["b"])(xs)
        moved = rs.normalize(state, {"a": jnp.full(3, 6.0), "b": 0.0})["a"][2]
        limited = rs.normalize(state, xs, max_abs=0.5)["b"]
        return z, rs.unnormalize(state, z), limited, moved, slopes, slopes_of_state, rs.normalize(nothing, xs)

    z, back, limited, moved, slopes, slopes_of_state, as_they_are = found(xs)
    close(np.mean(z["a"], 0), 0, atol=1e-4)
    close(np.std(z["a"], 0), [1, 1, 0], rtol=1e-4)
    jax.tree.map(functools.partial(close, atol=1e-6), back, xs)
    assert np.max(np.abs(limited)) == 0.5
    assert moved == 1  # not 1 / √ε
    jax.tree.map(np.testing.assert_array_equal, as_they_are, xs)
    close(slopes["a"], [*(1 / np.sqrt(np.float64(xs["a"]).var(0)[:2] + 1e-8)), 1], rtol=1e-4)
    assert not any(map(np.any, slopes_of_state.values()))


ONE, TWO = jnp.ones(3), {"a": jnp.ones([2, 3])}


@pytest.mark.parametrize("call, text", [
    (lambda s: rs.update(s, {"a": jnp.ones([2, 4])}), "`batch`['a'] has shape [2, 4], expected shape [..., 3]"),
    (lambda s: rs.update(s, ONE), "running_statistics.update: argument `batch` is the tree "),
    (lambda s: rs.update(s, {"a": 1j * ONE}), "`batch`['a'] has dtype complex64, expected an array of real"),
    (lambda s: rs.update(s, TWO, ONE), "argument `weights` has shape [3], expected shape [2]"),
    (lambda s: rs.update(s, TWO, jnp.array([1, -1])), "argument `weights` is [ 1 -1], expected a finite number of at"),
    (lambda s: rs.normalize(s, {"a": ONE[:1]}), "running_statistics.normalize: argument `x`['a'] has shape [1]"),
    (lambda s: rs.normalize(s, {"a": ONE}, epsilon=-1.0), "argument `epsilon` is -1"),
    (lambda s: rs.normalize(s, {"a": ONE}, max_abs=0), "argument `max_abs` is 0"),
    (lambda s: rs.init({"a": "x"}), "init: argument `item`['a'] is a str, expected an array of real numbers"),
    (lambda s: rs.merge(s, rs.init({"a": jnp.ones(4)})), "merge: argument `other`['a'] has shape [4]"),
    (lambda s: rlx.scale_rewards(rlx.initial_reward_scale([2]), ONE, 0.9), "scale_rewards: argument `r_t` has shape"),
    (lambda s: rlx.percentile_range(0.0, ONE, low=9, high=1), "percentile_range: argument `high` is 1"),
])  # fmt: skip
def test_errors_name_the_argument(call, text):
    with pytest.raises(rlx.ArgumentError) as caught:
        call(rs.init({"a": jnp.zeros(3)}))
    assert text in str(caught.value)


def rewards_over_deviation(r, discount, epsilon=1e-8):
    """Step by step, with all returns so far."""
    returns, carried, scaled = [], np.zeros(r.shape[1]), []
    for r_t, discount_t in zip(r, discount, strict=True):
        returns.append(r_t + carried)
        carried = discount_t * returns[-1]
        variance = np.var(returns)
        scaled.append(r_t / np.sqrt(variance + epsilon) if variance else r_t)
    return np.array(scaled)


def test_rewards_are_divided_by_the_deviation_of_their_returns():
    rng = np.random.default_rng(9)
    r, discount = rng.normal(2.0, 30.0, size=(12, 3)), 0.9 * (rng.uniform(size=(12, 3)) < 0.7)

    def step(state, given):
        scaled, state = rlx.scale_rewards(state, *given, max_abs=jnp.inf)
        return state, scaled

    state, scaled = jax.jit(lambda *xs: jax.lax.scan(step, rlx.initial_reward_scale([3]), xs))(
        jnp.float32(r), jnp.float32(discount)
    )
    close(scaled, rewards_over_deviation(r, discount), rtol=1e-5)
    # An environment that takes no step stays where it is.
    r_t, mask = jnp.array([1.0, jnp.nan, 2.0]), jnp.array([True, False, True])
    result, after = rlx.scale_rewards(state, r_t, jnp.array([0.5, jnp.nan, 0.5]), mask=mask)
    assert result[1] == 0 and after.discounted[1] == state.discounted[1] and np.all(np.isfinite(after.discounted))
    assert after.statistics.number == 36 + 2
    alone, _ = rlx.scale_rewards(rlx.initial_reward_scale(), 5.0, 0.9)
    assert alone == 5
    assert rlx.scale_rewards(state, 1e9 * jnp.ones(3), 0.9, 3.0)[0].tolist() == [3.0] * 3


@pytest.mark.peer
def test_gymnasium_has_the_same_moments_and_scales():
    utils = pytest.importorskip("gymnasium.wrappers.utils")
    theirs, state = utils.RunningMeanStd(epsilon=1e-12, shape=(2,), dtype=np.float64), rs.init(jnp.zeros(2))
    for batch in np.split(items(10, 40, 2, mean=3.0), 4):
        theirs.update(batch)
        state = jitted(state, batch)
    close(state.mean, theirs.mean)
    close(state.variance, theirs.var)


def test_the_range_of_percentiles():
    xs, mask = items(11, 5, 40, std=10.0), np.arange(40) % 3 > 0
    holes = np.where(mask, xs[0], np.nan)
    settings = {"decay": 0.5, "low": 20, "high": 90}

    @jax.jit
    def found(xs, holes, mask):
        def on_four(x, m):
            return rlx.percentile_range(2.0, x, **settings, mask=m, axis_name="i")

        average = functools.reduce(rlx.percentile_range, xs.reshape(5, 8, 5), jnp.zeros(()))
        masked = rlx.percentile_range(2.0, holes, **settings, mask=mask)
        together = jax.vmap(on_four, axis_name="i")(holes.reshape(4, 10), mask.reshape(4, 10))
        nothing = rlx.percentile_range(2.0, holes, mask=False), rlx.percentile_range(2.0, jnp.zeros(0))
        alone = rlx.percentile_range(0.0, jnp.array([4.0]), 0.0)
        slopes = jax.grad(lambda x: rlx.percentile_range(2.0, x))(xs[0])
        return average, jnp.append(together, masked), nothing, alone, slopes

    average, masked, nothing, alone, slopes = found(xs, holes, mask)
    expected = 0.0
    for returns in xs:
        expected = 0.99 * expected + 0.01 * np.subtract(*np.percentile(np.float64(returns), [95, 5]))
    close(average, expected, rtol=1e-5)
    of_those = 0.5 * 2 + 0.5 * np.subtract(*np.percentile(np.float64(xs[0][mask]), [90, 20]))
    close(masked, np.full(5, of_those), rtol=1e-5)
    assert nothing == (2, 2) and alone == 0 and not np.any(slopes)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_range_of_percentiles_of_half_precision_follows_them(dtype):
    """In bfloat16, steps of 1 % of the distance change the average on two thirds of the way only."""
    returns = jnp.arange(101.0).astype(dtype)  # whose range is 90

    @jax.jit
    def after(start, number):
        return jax.lax.fori_loop(0, number, lambda _, scale: rlx.percentile_range(scale, returns), start)

    scale = after(rlx.percentile_range(0.0, returns), 499)
    assert scale.dtype == jnp.float32
    np.testing.assert_allclose(scale, 90 * (1 - 0.99**500), rtol=1e-5)
    assert after(jnp.zeros([], dtype), 3).dtype == dtype  # as the carry of a loop


@pytest.mark.parametrize("function", [rs.normalize, rs.unnormalize])
def test_items_of_another_shape_are_named(function):
    with pytest.raises(ValueError, match="argument `x`"):
        function(rs.init(np.zeros(3, np.float32)), np.zeros([5, 2], np.float32))


def test_statistics_that_were_written_as_whole_numbers():
    """Means of 0 over one item and of 2 over another are 1 together, and the variance is that of 0 and 2."""
    both = rs.merge(rs.RunningStatistics(1, 0, 0), rs.RunningStatistics(1, 2, 0))
    assert [float(x) for x in both] == [2.0, 1.0, 1.0]
    state = rs.update(rs.RunningStatistics(1, 0, 0), jnp.array([3.0]))
    assert [float(x) for x in state] == [2.0, 1.5, 2.25]


@pytest.mark.parametrize("weights", [None, np.ones(3)])
def test_items_without_entries(weights):
    state = rs.update(rs.init(np.zeros([2, 0], np.float32)), np.zeros([3, 2, 0], np.float32), weights)
    assert float(state.number) == 3 and state.mean.shape == state.variance.shape == (2, 0)


def test_a_number_that_no_dtype_holds_is_named():
    with pytest.raises(rlx.DTypeError, match=f"running_statistics.update: argument `batch` is {2**40}, too large a n"):
        rs.update(rs.init(0), 2**40)


def test_averages_that_were_written_as_whole_numbers():
    """½ · 0 + ½ · 3 and ½ · 0 + ½ · 10, of which ½ is the weight."""
    moments, state = rlx.create_ema(0.5)[1](jnp.array([2.0, 4.0]), rlx.EmaState(mu=0, nu=0, decay_product=1))
    assert [float(x) for x in (moments.mean, moments.variance, state.decay_product)] == [3.0, 1.0, 0.5]


def test_whole_numbers_of_64_bits_are_read_as_floats():
    """JAX would keep 32 of their bits."""
    x = np.array([3_000_000_000, 3_000_004_096])
    state = rs.update(rs.init(np.int64(0)), x)
    np.testing.assert_array_equal([state.mean, state.variance], [3_000_002_048, 2048**2])
    np.testing.assert_allclose(rs.normalize(state, x), [-1, 1])
    np.testing.assert_allclose(rs.unnormalize(rs.RunningStatistics(1.0, 0.0, 4.0), x), 2.0 * x)
    initial, update = rlx.create_ema(0.5)
    np.testing.assert_array_equal(update(x, initial(np.int64(0)))[0].mean, 3_000_002_048)


def test_averages_may_be_donated_from_the_first_update_on():
    initial, update = rlx.create_ema(0.5)
    moments, state = jax.jit(update, donate_argnums=1)({"x": jnp.array([1.0, 3.0])}, initial({"x": 0.0}))
    assert (float(moments.mean["x"]), float(moments.variance["x"]), float(state.decay_product)) == (2, 1, 0.5)


def test_squares_that_overflow_and_do_not_count():
    """The variance of equal items is 0, however large they are, also beside an item without weight."""
    for x, weights in (([1e30], None), ([1e30, 1e30], None), ([1e30, 2.0], np.array([1.0, 0.0]))):
        state = rs.update(rs.init(0.0), np.float32(x), weights)
        np.testing.assert_allclose([state.mean, state.variance], [1e30, 0.0], rtol=1e-6)
        again = rs.merge(state, rs.update(state, np.float32([1e30])))
        np.testing.assert_allclose([again.mean, again.variance], [1e30, 0.0], rtol=1e-6)
