"""Layers where they are used in unusual ways: other platforms, very long runs, inputs of any rank."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

XS = np.random.RandomState(0).randn(6, 2, 3).astype(np.float32)


def recurrent(unroll):
    def f(xs):
        core = hkx.GRU(4)
        return unroll(core, xs, core.initial_state(2))

    return hkx.without_apply_rng(hkx.transform(f))


def lowered(f, *args, platforms):
    return jax.jit(f).trace(*args).lower(lowering_platforms=platforms).as_text()


def test_the_steps_of_static_unroll_are_a_loop_only_in_the_program_for_a_cpu():
    pair = recurrent(hkx.static_unroll)
    params = pair.init(0, XS)

    def gradient(params, xs):
        return jax.grad(lambda params: pair.apply(params, xs)[0].sum())(params)

    for f in (pair.apply, gradient):
        loops = {p: "stablehlo.while" in lowered(f, params, XS, platforms=(p,)) for p in ("cpu", "cuda", "tpu", "rocm")}
        assert loops == {"cpu": True, "cuda": False, "tpu": False, "rocm": False}
    dynamic = recurrent(hkx.dynamic_unroll)
    assert "stablehlo.while" in lowered(dynamic.apply, params, XS, platforms=("cuda",))


def test_one_exported_program_holds_both():
    pair = recurrent(hkx.static_unroll)
    params = pair.init(0, XS)
    exported = jax.export.export(jax.jit(pair.apply), platforms=("cpu", "cuda"))(params, XS)
    assert "stablehlo.while" in exported.mlir_module() and "stablehlo.case" in exported.mlir_module()
    outputs, state = exported.call(params, XS)
    expected, expected_state = pair.apply(params, XS)  # step by step, since nothing is compiled here
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, expected_state, rtol=1e-5, atol=1e-6)


def greatest(dtype):
    return np.iinfo(dtype).max


AVERAGES = {
    "average": lambda x: hkx.ExponentialMovingAverage(0.5)(x),
    "without debias": lambda x: hkx.ExponentialMovingAverage(0.5, zero_debias=False)(x),
    "warmup": lambda x: hkx.ExponentialMovingAverage(0.5, zero_debias=False, warmup_length=3)(x),
    "not updated": lambda x: hkx.ExponentialMovingAverage(0.5)(x, update_stats=False),
}


def with_counter(state, counter, hidden):
    """The state with other counters, where hidden and average are `hidden`."""
    new = {"counter": lambda value: counter}
    new |= dict.fromkeys(("hidden", "average"), lambda value: np.full_like(value, hidden))
    return {
        module: {name: new.get(name, lambda value: value)(value) for name, value in entries.items()}
        for module, entries in state.items()
    }


@pytest.mark.parametrize("average", AVERAGES.values(), ids=AVERAGES)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint32])
def test_the_counter_of_an_average_stays_at_its_greatest_value(average, dtype):
    pair = hkx.transform_with_state(average)
    _, state = pair.init(None, np.float32(3))
    for counter in (greatest(dtype) - 1, greatest(dtype)):
        near_the_end = with_counter(state, np.asarray(counter, dtype), np.float32(3))
        result, after = pair.apply({}, near_the_end, None, np.float32(3))
        np.testing.assert_allclose(result, 3, rtol=1e-6)  # an average of 3 and 3
        (entries,) = after.values()
        expected = counter if average is AVERAGES["not updated"] else greatest(dtype)
        assert (int(entries["counter"]), entries["counter"].dtype) == (expected, dtype)


def test_counters_count_up_to_there():
    pair = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.9, zero_debias=False, warmup_length=2)(x))
    _, state = pair.init(None, 1.0)
    counts = []
    for _ in range(4):
        _, state = pair.apply({}, state, None, 1.0)
        counts.append(int(state["exponential_moving_average"]["counter"]))
    assert counts == [-1, 0, 1, 2]


def test_powers_of_the_decay_are_products_where_operations_run_one_by_one():
    """They have the bits of `jnp.power` of a known whole number. Those of a logarithm differ from n = 3 on.

    An accelerator takes the logarithm, because the host would have to wait for the number: 1 - 0.99 loses two digits.
    """
    rounding = 0 if jax.default_backend() == "cpu" else 1e-4
    pair = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.99)(x))
    _, state = pair.init(None, 1.0)
    one, decay, hidden = np.float32(1), np.float32(0.99), np.float32(0)
    powers = (decay, decay * decay, decay * decay * decay, decay * decay * (decay * decay))
    for power in powers:
        with jax.numpy_dtype_promotion("strict"):  # in which `jnp.power` takes no float and whole number
            average, state = pair.apply({}, state, None, 1.0)
        hidden = hidden * decay + one * (one - decay)
        np.testing.assert_allclose(average, hidden / (one - power), rtol=rounding)


def test_an_average_goes_on_where_a_getter_casts_its_whole_state():
    def f(value):
        with hkx.custom_getter(lambda next_getter, value, _: next_getter(value.astype(jnp.bfloat16)), state=True):
            return hkx.ExponentialMovingAverage(0.5)(value)

    pair = hkx.transform_with_state(f)
    _, state = pair.init(None, 0.0)
    for value, average in ((2.0, 1 / (1 - 0.5)), (5.0, (0.5 * 1 + 0.5 * 5) / (1 - 0.25))):
        found, state = pair.apply({}, state, None, value)
        assert float(found) == average


LONG_RUNS = {
    "batch norm": lambda x: hkx.BatchNorm(True, True, 0.9)(x, is_training=True),
    "vector quantizer": lambda x: hkx.nets.VectorQuantizerEMA(4, 2, 0.25, 0.9)(x, is_training=True)["quantize"],
}


@pytest.mark.parametrize("layer", LONG_RUNS.values(), ids=LONG_RUNS)
def test_layers_with_averages_run_on_after_any_number_of_steps(layer):
    x = np.random.RandomState(1).randn(6, 4).astype(np.float32)
    pair = hkx.transform_with_state(layer)
    params, state = pair.init(0, x)
    at_the_end, far = (
        pair.apply(params, with_counter(state, np.int32(counter), np.float32(1)), 0, x)
        for counter in (greatest(np.int32), 10**6)  # after a million steps nothing is left to correct
    )
    for module, entries in at_the_end[1].items():
        for name, value in entries.items():
            if name == "counter":
                assert value == greatest(np.int32)
            else:
                np.testing.assert_allclose(value, far[1][module][name], rtol=1e-6)


def grouped(rotary=True, **options):
    def call(x, **arguments):
        layer = hkx.GroupedQueryAttention(4, 2, 4, rotary=hkx.RotaryEmbedding() if rotary else None)
        return layer(x, **options, **arguments)

    return call


def decoded(x):
    """Two tokens, then the rest."""
    layer = hkx.GroupedQueryAttention(4, 2, 4, rotary=hkx.RotaryEmbedding())
    first, cache = layer(x[..., :2, :], cache=layer.initial_cache(x.shape[:-2], 6))
    rest, _ = layer(x[..., 2:, :], cache=cache)
    return jnp.concatenate([first, rest], -2)


def attention(x):
    return hkx.MultiHeadAttention(2, 3, w_init=hkx.initializers.VarianceScaling())(x, x, x)


# a layer, and the shape of its input without leading dimensions
ANY_RANK = {
    "grouped, rotary, window": (grouped(is_causal=True, window=2), (5, 4)),
    "grouped, decoding": (decoded, (5, 4)),
    "attention": (attention, (5, 4)),
    "rotary": (lambda x: hkx.RotaryEmbedding()(x), (5, 2, 4)),
    "einsum": (lambda x: hkx.Einsum([4, 2, 3], "...d,dhk->...hk")(x), (4,)),
    "linear": (lambda x: hkx.Linear(3)(x), (4,)),
    "embed": (lambda x: hkx.Embed(9, 3)(jnp.abs(x).astype(int)), ()),
}


def each_alone(f):
    """`f` over two leading dimensions of its arguments."""
    return jax.vmap(jax.vmap(f))


@pytest.mark.parametrize(("layer", "shape"), ANY_RANK.values(), ids=ANY_RANK)
def test_any_leading_dimensions_and_none_are_those_of_vmap(layer, shape):
    pair = hkx.without_apply_rng(hkx.transform(layer))
    x = np.random.RandomState(2).randn(2, 3, *shape).astype(np.float32)
    params = jax.jit(pair.init)(0, x[0, 0])
    assert jax.eval_shape(pair.init, 0, x) == jax.eval_shape(lambda: params)  # the rank makes no other parameters

    def all_ranks(params, x):
        f = lambda x: pair.apply(params, x)  # noqa: E731
        return each_alone(f)(x), f(x), f(x[0])

    each, both, one = jax.jit(all_ranks)(params, x)
    np.testing.assert_allclose(both, each, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one, each[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask_shape", [(1, 3, 4, 1, 6)])
def test_grouped_attention_with_masks_lengths_and_keys_of_any_leading_dimensions(mask_shape):
    def f(query, key_value, mask, lengths):
        return hkx.GroupedQueryAttention(4, 2, 4)(query, key_value, mask=mask, lengths=lengths)

    pair = hkx.without_apply_rng(hkx.transform(f))
    random = np.random.RandomState(4)
    query, key_value = (random.randn(*shape).astype(np.float32) for shape in ((2, 1, 5, 8), (3, 6, 8)))
    mask = random.rand(*mask_shape) < 0.7
    mask[..., 0] = True  # no query without a key
    arguments = query, key_value, mask, np.array([[1, 2, 3], [4, 5, 6]])
    params = jax.jit(pair.init)(0, *arguments)
    sizes = ((5, 8), (6, 8), mask_shape[2:], ())
    full = [np.broadcast_to(x, (2, 3, *size)) for x, size in zip(arguments, sizes, strict=True)]
    f = functools.partial(pair.apply, params)
    out, each = jax.jit(lambda arguments, full: (f(*arguments), each_alone(f)(*full)))(arguments, full)
    np.testing.assert_allclose(out, each, rtol=1e-5, atol=1e-6)


def test_positions_of_a_rotary_embedding_broadcast():
    f = hkx.without_apply_rng(hkx.transform(lambda x, positions: hkx.RotaryEmbedding()(x, positions))).apply
    x = np.random.RandomState(5).randn(2, 3, 5, 2, 4).astype(np.float32)
    positions = np.arange(30).reshape(2, 3, 5)
    given = [positions, positions[:1], positions[:, :1], positions[0], positions[0, 0], positions[0, 0, :1]]
    full = np.stack([np.broadcast_to(p, (2, 3, 5)) for p in given])

    def both(x, given, full):
        return [f({}, x, p) for p in given], [each_alone(functools.partial(f, {}))(x, p) for p in full]

    for out, each in zip(*jax.jit(both)(x, given, full), strict=True):
        np.testing.assert_allclose(out, each, rtol=1e-5, atol=1e-6)


def test_a_bidirectional_network_takes_one_sequence():
    pair = hkx.without_apply_rng(hkx.transform(lambda xs: hkx.Bidirectional(hkx.LSTM(3), hkx.GRU(2))(xs)[0]))
    params = jax.jit(pair.init)(0, XS)
    assert jax.eval_shape(pair.init, 0, XS[:, 0]) == jax.eval_shape(lambda: params)
    one, all_of_them = jax.jit(lambda p, xs: (pair.apply(p, xs[:, 0]), pair.apply(p, xs)))(params, XS)
    np.testing.assert_allclose(one, all_of_them[:, 0], rtol=1e-5, atol=1e-6)


def ones(*shape):
    return np.ones(shape, np.float32)


def batched(lib, make, x, batch=2, **options):
    core = make()
    return lib(core, x, core.initial_state(batch), **options)


errors = hkx.errors
NAMED = {
    "other keys": (
        lambda: grouped()(ones(2, 5, 4), key_value=ones(3, 5, 4)),
        errors.LeadingDimensionsError,
        r"`key_value` of `GroupedQueryAttention` has shape \(3, 5, 4\)",
    ),
    "other keys, multi-head": (
        lambda: hkx.MultiHeadAttention(2, 3, w_init=hkx.initializers.VarianceScaling())(
            ones(2, 5, 4), ones(3, 5, 4), ones(3, 5, 4)
        ),
        errors.LeadingDimensionsError,
        "`key` of `MultiHeadAttention`",
    ),
    "fewer values": (
        lambda: hkx.MultiHeadAttention(2, 3, w_init=hkx.initializers.VarianceScaling())(
            ones(5, 4), ones(6, 4), ones(5, 4)
        ),
        errors.LeadingDimensionsError,
        "`value`.* T = 6",
    ),
    "a signal of text": (
        lambda: hkx.ResetCore(hkx.GRU(3))((ones(2, 4), "yes"), ones(2, 3)),
        errors.InvalidInputError,
        "`should_reset` of `ResetCore` is not an array",
    ),
    "objects to unroll": (
        lambda: hkx.ResetCore(hkx.GRU(3))((np.array([None, None]), np.array([True, False])), ones(2, 3)),
        errors.InvalidInputError,
        "`inputs` of `ResetCore` is not an array",
    ),
    "complex numbers to correct": (
        lambda: hkx.BatchRenorm(True, True, 0.9)(1j * ones(4, 3), is_training=True),
        errors.InputDTypeError,
        r"`inputs` of `BatchRenorm` is of dtype complex64, expected a real one",
    ),
    "a batch of text": (
        lambda: hkx.expand_apply(hkx.Linear(3))("x"),
        errors.InvalidInputError,
        "`args` of `expand_apply` is not an array",
    ),
    "a mask of other keys, multi-head": (
        lambda: hkx.MultiHeadAttention(2, 3, w_init=hkx.initializers.VarianceScaling())(
            *3 * [ones(5, 4)], mask=ones(1, 5, 6) > 0
        ),
        errors.LeadingDimensionsError,
        r"`mask` of `MultiHeadAttention` has shape \(1, 5, 6\), expected \(2, 5, 5\), or 1",
    ),
    "a mask without heads": (
        lambda: grouped()(ones(2, 5, 4), mask=ones(2, 5, 5) > 0),
        errors.LeadingDimensionsError,
        r"`mask` of .* \[2, num_heads, T, S\]",
    ),
    "lengths of another batch": (
        lambda: grouped()(ones(2, 5, 4), lengths=np.ones(3, int)),
        errors.LeadingDimensionsError,
        r"`lengths` of .* \(3,\), expected \[2\]",
    ),
    "a cache of another batch": (
        lambda: batched(lambda layer, x, cache: layer(x, cache=cache), Cached, ones(5, 4), 2),
        errors.LeadingDimensionsError,
        r"`cache.key` of .* expected \[max_length",
    ),
    "positions of another length": (
        lambda: hkx.RotaryEmbedding()(ones(5, 2, 4), np.arange(4)),
        errors.LeadingDimensionsError,
        r"`positions` of `RotaryEmbedding` has shape \(4,\), expected one that broadcasts to \(5,\)",
    ),
    "positions of a batch": (
        lambda: hkx.RotaryEmbedding()(ones(5, 2, 4), np.ones([3, 5])),
        errors.LeadingDimensionsError,
        "`positions`",
    ),
    "one position": (lambda: hkx.RotaryEmbedding()(ones(5, 2, 4), 3), errors.LeadingDimensionsError, "`positions`"),
    "a channel that is not there": (lambda: hkx.PReLU(param_axis=2)(ones(3, 4)), errors.InvalidRankError, "least 3"),
    "a channel of a scalar": (lambda: hkx.PReLU(param_axis=-1)(ones()), errors.InvalidRankError, "`x` is of rank 0"),
    "an axis of a group norm": (
        lambda: hkx.GroupNorm(2, axis=(1, 3))(ones(6, 5, 4)),
        IndexError,
        r"`axis` of `hkx.GroupNorm` is out of range: \(1, 3\)",
    ),
    "a state of another rank": (
        lambda: batched(lambda core, x, state: core(x, state), lambda: hkx.LSTM(3), ones(4)),
        errors.InvalidRankError,
        "`prev_state` is of rank 2",
    ),
    "no batch where time is second": (
        lambda: batched(hkx.dynamic_unroll, lambda: hkx.GRU(3), ones(4), time_major=False),
        ValueError,
        "`input_sequence` must hold arrays",
    ),
    "a sequence of nothing": (
        lambda: hkx.Bidirectional(hkx.GRU(3), hkx.GRU(2))(ones()),
        ValueError,
        "`input_sequence` must hold arrays with a time axis",
    ),
}


class Cached(hkx.GroupedQueryAttention):
    def __init__(self):
        super().__init__(4, 2, 4)

    def initial_state(self, batch_size):
        return self.initial_cache(batch_size, 6)


COMPLEX = {
    "batch": (lambda x: hkx.BatchNorm(False, False, 0.9)(x, is_training=True), (0, 1)),
    "layer, fast": (lambda x: hkx.LayerNorm(-1, False, False, use_fast_variance=True)(x), (-1,)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_the_variance_of_complex_numbers_keeps_its_sign(name):  # as in Haiku: it is the mean of squares
    layer, axis = COMPLEX[name]
    random = np.random.RandomState(0)
    x = (0.3 * random.randn(4, 5, 6) + 1j * random.randn(4, 5, 6)).astype(np.complex64)
    model = hkx.transform_with_state(layer)
    out, _ = model.apply(*model.init(None, x), None, x)
    mean = x.mean(axis, keepdims=True)
    variance = np.square(x).mean(axis, keepdims=True) - np.square(mean)
    assert (variance.real < 0).all()
    np.testing.assert_allclose(out, (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("use", "error", "text"), NAMED.values(), ids=NAMED)
def test_what_does_not_fit_is_named(use, error, text):
    with pytest.raises(error, match=text):
        hkx.transform(use).init(0)


def test_reset_core_passes_arrays_in_sorted_dicts_as_an_unroll_does():
    class Core(hkx.RNNCore):
        def __call__(self, inputs, state):
            assert all(isinstance(x, jax.Array) for x in inputs.values())
            return [hkx.Linear(1, name=f"{name}{i}")(x) for i, (name, x) in enumerate(inputs.items())], state

        def initial_state(self, batch_size):
            return jnp.zeros([batch_size, 1])

    def step(x):
        core = hkx.ResetCore(Core())
        return core(({"b": x, "a": x}, np.array([True, False])), core.initial_state(2))

    params = hkx.transform(step).init(0, np.ones([2, 3], np.float32))
    assert list(params) == ["core/a0", "core/b1"]  # the names that Haiku gives


@pytest.mark.parametrize(("batch", "asked"), [(2, [1, 2]), (1, [1, 1]), (None, [1, None])])
def test_reset_core_resets_to_the_initial_state_of_its_subclass(batch, asked):
    sizes = []

    class Core(hkx.RNNCore):
        def __call__(self, inputs, state):
            return state, state

        def initial_state(self, batch_size):
            sizes.append(batch_size)  # dm-haiku asks as often: this may draw keys
            return jnp.zeros([3] if batch_size is None else [batch_size, 3])

    class Reset(hkx.ResetCore):
        def initial_state(self, batch_size):
            return super().initial_state(batch_size) + hkx.get_parameter("start", [], init=hkx.initializers.Constant(5))

    def step():
        core, state = Reset(Core()), jnp.ones([3] if batch is None else [batch, 3])
        return core((0.0, jnp.arange(batch or 1) == 0 if batch else jnp.array(True)), state)[0]

    apply, params = hkx.transform(step).apply, {"reset": {"start": jnp.array(5.0)}}
    expected = np.array([[5] * 3, [1] * 3][:batch] if batch else [5] * 3)
    np.testing.assert_array_equal(apply(params, None), expected)
    assert sizes == asked


def test_reset_core_of_a_core_without_a_state_asks_for_it_once():
    sizes = []

    class Core(hkx.RNNCore):
        def __call__(self, inputs, state):
            return inputs, state

        def initial_state(self, batch_size):
            return sizes.append(batch_size) or ()

    hkx.transform(lambda: hkx.ResetCore(Core())((jnp.ones([2]), jnp.array(True)), ())).apply({}, None)
    assert sizes == [None]


def test_a_subclass_of_a_depthwise_convolution_finds_its_dimension_numbers():
    def numbers(layer, **settings):
        return hkx.transform(lambda: layer(1, 2, **settings).dn).apply({}, None)

    assert numbers(hkx.DepthwiseConv1D) == jax.lax.ConvDimensionNumbers((0, 2, 1), (2, 1, 0), (0, 2, 1))
    nchw = jax.lax.ConvDimensionNumbers((0, 1, 2, 3), (3, 2, 0, 1), (0, 1, 2, 3))
    assert numbers(hkx.DepthwiseConv2D, data_format="NCHW") == nchw


@pytest.mark.parametrize("style", ["ARRAY_INDEX", "ONE_HOT"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_small_integers_are_ids_in_a_large_vocabulary(dtype, style):
    """Of 300, which these dtypes cannot count: JAX's own one-hot vectors have two ones, and its gradients are 0."""
    assert np.flatnonzero(hkx.one_hot(np.array(10, dtype), 300)).tolist() == [10]
    embed = hkx.without_apply_rng(hkx.transform(lambda ids: hkx.Embed(300, 2, lookup_style=style)(ids)))
    params = embed.init(0, np.array(10, dtype))
    np.testing.assert_allclose(embed.apply(params, np.array([10], dtype))[0], params["embed"]["embeddings"][10])
    gradient = jax.grad(lambda params: embed.apply(params, np.array(10, dtype)).sum())(params)["embed"]["embeddings"]
    np.testing.assert_array_equal(gradient, np.repeat(np.arange(300) == 10, 2).reshape(300, 2))


def test_bools_are_the_classes_0_and_1():
    np.testing.assert_array_equal(hkx.one_hot(np.array([True, False]), 3), [[0, 1, 0], [1, 0, 0]])


ON_INTEGERS = {
    "avg_pool": lambda x: hkx.avg_pool(x, (6, 6, 1), 1, "VALID"),
    "avg_pool, padded": lambda x: hkx.avg_pool(x, (17, 17, 1), 1, "SAME"),
    "RMSNorm": lambda x: hkx.RMSNorm(-1)(x),
    "LayerNorm, fast": lambda x: hkx.LayerNorm(-1, True, True, use_fast_variance=True)(x),
    "BatchNorm": lambda x: hkx.BatchNorm(True, True, 0.9)(x, is_training=True),
}


@pytest.mark.parametrize(("dtype", "most"), [(np.uint8, 250), (np.int8, 120), (np.int32, 50_000)])
@pytest.mark.parametrize("f", ON_INTEGERS.values(), ids=ON_INTEGERS)
def test_sums_and_squares_of_integers_do_not_wrap_around(f, dtype, most):
    images = np.random.default_rng(0).integers(0, most, (2, 17, 17, 4))
    model = hkx.without_apply_rng(hkx.transform_with_state(f))
    real = images.astype(np.float32)
    params, state = model.init(0, real)
    found, _ = model.apply(params, state, images.astype(dtype))
    np.testing.assert_allclose(found, model.apply(params, state, real)[0], rtol=2e-4)


IN_HALF_PRECISION = {
    "avg_pool": lambda x: hkx.avg_pool(x, (17, 17, 1), 1, "VALID"),
    "RMSNorm": lambda x: hkx.RMSNorm(-1)(x),
    "LayerNorm": lambda x: hkx.LayerNorm(-1, True, True)(x),
    "LayerNorm, fast": lambda x: hkx.LayerNorm(-1, True, True, use_fast_variance=True)(x),
    "InstanceNorm": lambda x: hkx.InstanceNorm(True, True)(x),
    "GroupNorm": lambda x: hkx.GroupNorm(2)(x),
}


@pytest.mark.parametrize("f", IN_HALF_PRECISION.values(), ids=IN_HALF_PRECISION)
def test_sums_and_squares_in_float16_do_not_overflow(f):
    """The squares of numbers above 255 do: the norms were 0, or NaN."""
    images = np.random.default_rng(0).normal(500, 300, (2, 17, 17, 4)).astype(np.float16)
    model = hkx.without_apply_rng(hkx.transform(f))
    params = model.init(0, images)
    found = model.apply(params, images)
    assert found.dtype == np.float16
    expected = model.apply(jax.tree.map(np.float32, params), images.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_the_gradient_of_a_norm_over_several_dimensions_costs_what_it_costs_by_hand():
    def by_hand(params, x):
        inverse = jax.lax.rsqrt(x.var((1, 2), keepdims=True) + 1e-5) * params["scale"].reshape(1, 1, 1, -1)
        return (x - x.mean((1, 2), keepdims=True)) * inverse + params["offset"].reshape(1, 1, 1, -1)

    model = hkx.without_apply_rng(hkx.transform(lambda x: hkx.InstanceNorm(True, True)(x)))
    x = jax.ShapeDtypeStruct((2, 8, 8, 4), jnp.float32)
    params = jax.eval_shape(model.init, jax.random.key(0), x)["instance_norm"]

    def cost(function):
        gradient = jax.jit(jax.grad(lambda *a: jnp.mean(jnp.square(function(*a))), argnums=(0, 1)))
        return gradient.lower(params, x).compile().cost_analysis()["flops"]

    assert cost(lambda params, x: model.apply({"instance_norm": params}, x)) <= 1.01 * cost(by_hand)


@pytest.mark.parametrize("shape", [(3,), (2, 4, 5), (7, 2, 4)])
def test_a_scale_that_does_not_broadcast_to_the_inputs_is_named(shape):
    norm = hkx.transform(lambda x, scale: hkx.LayerNorm(-1, False, False)(x, scale=scale))
    with pytest.raises(ValueError, match=r"`scale` should broadcast to the inputs, of shape \(2, 4\), got shape"):
        norm.apply({}, None, jnp.ones([2, 4]), jnp.ones(shape))


@pytest.mark.parametrize(
    ("layer", "size"),
    [(hkx.BatchNorm, 1e-3), (hkx.BatchNorm, 300.0), (hkx.BatchRenorm, 1.0)],
)
def test_batch_norm_in_float16_of_any_size_and_of_a_channel_that_is_off(layer, size):
    """The variance, or its power -3/2 in the gradient, overflowed: there was 0, or NaN."""
    random = np.random.default_rng(0)
    x = random.normal(0, size, (32, 4)).astype(np.float16) * np.float16([1, 1, 0, 1])  # one channel does not vary
    weights = random.normal(size=x.shape).astype(np.float16)
    model = hkx.without_apply_rng(hkx.transform_with_state(lambda x: layer(False, False, 0.9)(x, True)))
    params, state = model.init(0, x)

    def total(x):
        y, after = model.apply(params, state, x)
        return jnp.sum((y * weights).astype(jnp.float32)), (y, after)

    slopes, (y, after) = jax.grad(total, has_aux=True)(x)
    wide, w = x.astype(np.float64), weights.astype(np.float64)
    # The averages of `BatchRenorm` start as those of this batch, so that it corrects nothing.
    deviation = np.sqrt(wide.var(0) + (1e-5 if layer is hkx.BatchNorm else 1e-3))
    expected = (wide - wide.mean(0)) / deviation
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=1e-3)
    if layer is hkx.BatchNorm:
        expected = (w - w.mean(0) - expected * (w * expected).mean(0)) / deviation
        np.testing.assert_allclose(slopes, expected, rtol=5e-3, atol=2e-3 * np.abs(expected).max())
    assert np.all(np.isfinite(slopes)) and y.dtype == slopes.dtype == np.float16
    assert {x.dtype for x in jax.tree.leaves(after)} == {x.dtype for x in jax.tree.leaves(state)}


@pytest.mark.slow
@pytest.mark.parametrize("size", [5e-4, 1.0, 300.0])
def test_spectral_norm_in_float16_of_any_size(size):
    """W / σ, and its slope C / σ - <C, W> / σ² v uᵀ, with the largest singular value and its vectors."""
    random = np.random.default_rng(0)
    w, c = random.normal(0, size, (6, 4)).astype(np.float16), random.normal(size=(6, 4)).astype(np.float16)
    model = hkx.without_apply_rng(hkx.transform_with_state(lambda w: hkx.SpectralNorm(n_steps=40, eps=0.0)(w)))
    params, state = model.init(0, w)

    def total(w):
        y, after = model.apply(params, state, w)
        return jnp.sum((y * c).astype(jnp.float32)), (y, after)

    slopes, (y, after) = jax.grad(total, has_aux=True)(w)
    wide, wide_c = w.astype(np.float64), c.astype(np.float64)
    left, sigma, right = np.linalg.svd(wide)
    np.testing.assert_allclose(y, wide / sigma[0], rtol=2e-3, atol=1e-3)
    expected = wide_c / sigma[0] - np.sum(wide_c * wide) / sigma[0] ** 2 * np.outer(left[:, 0], right[0])
    np.testing.assert_allclose(slopes, expected, rtol=5e-3, atol=5e-3 * np.abs(expected).max())
    assert {x.dtype for x in jax.tree.leaves((y, after))} == {np.dtype(np.float16)}


def test_weight_norm_in_float16():
    """Of weights whose squares overflow, and of none: 1e-12, which is added to the squares, is 0 in float16."""
    columns = np.float16([[300, 3, 0], [-400, 4, 0]])
    model = hkx.transform(lambda x: hkx.WeightNorm(hkx.Linear(3, w_init=lambda *_: columns))(x))
    x = np.eye(2, dtype=np.float16)
    y = model.apply(model.init(0, x), None, x)
    np.testing.assert_allclose(y, [[0.6, 0.6, 0], [-0.8, 0.8, 0]], rtol=1e-3)
    assert y.dtype == np.float16


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float16, np.uint8])
def test_vector_quantisers_of_vectors_whose_squares_overflow(dtype):
    """Their distances were infinite, NaN or wrong, and the perplexity NaN, for 1e-10 is 0 in float16."""
    table = np.array([[10.0, 200, 240, 90], [200, 90, 10, 30], [0, 30, 250, 200]])
    x = np.array([[12, 190, 3], [230, 10, 250], [190, 100, 30], [14, 205, 0]], dtype)
    table = table.astype(dtype if dtype == np.float16 else np.float32)
    distances = np.square(x.astype(float)[:, :, None] - table.astype(float)).sum(1)
    numbers = np.argmin(distances, axis=1)
    assert numbers.tolist() == [0, 2, 1, 0]
    quantiser = lambda x: hkx.nets.VectorQuantizer(3, 4, 0.25, table.dtype)(x, True)  # noqa: E731
    out = hkx.transform(quantiser).apply({"vector_quantizer": {"embeddings": table}}, None, x)
    assert out["encoding_indices"].tolist() == numbers.tolist()
    fits = distances < np.finfo(table.dtype).max
    np.testing.assert_allclose(out["distances"], np.where(fits, distances, np.inf), rtol=1e-3)
    np.testing.assert_array_equal(out["quantize"], table.T[numbers])
    np.testing.assert_allclose(out["perplexity"], np.exp(1.5 * np.log(2)), rtol=1e-3)  # shares of ½, ¼, ¼
    error = 1.25 * np.mean(np.square(x.astype(float) - table.T[numbers]))
    np.testing.assert_allclose(out["loss"], error, rtol=2e-3)
    assert out["loss"].dtype == out["perplexity"].dtype == table.dtype


@pytest.mark.parametrize("axis", [-1, 3, -2])
def test_a_window_of_all_dimensions_needs_no_channels(axis):
    """The axis of the channels, also the default one, says what a single number does not apply to."""
    x = jnp.array([1.0, 4.0, 2.0, 8.0])
    assert hkx.max_pool(x, (2,), (2,), "VALID", axis).tolist() == [4.0, 8.0]
    assert hkx.avg_pool(x, (2,), (2,), "VALID", axis).tolist() == [2.5, 5.0]
    with pytest.raises(ValueError, match=f"Invalid channel axis {axis}"):
        hkx.max_pool(x, 2, (2,), "VALID", axis)


def test_layer_norm_takes_a_dimension_that_is_named_twice():
    x = np.float32(np.random.RandomState(0).randn(2, 3, 4))
    out = hkx.transform(lambda: hkx.LayerNorm((0, 2, -3), False, False)(x)).apply({}, None)
    expected = (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, expected, 1e-5, 1e-5)


def test_a_normalised_weight_that_is_no_array_is_named():
    model = hkx.transform(lambda x: hkx.WeightNorm(hkx.Linear(2))(x))
    params = model.init(0, jnp.ones([1, 3]))
    for wrong in (0.5, [1.0], "text"):
        with pytest.raises(hkx.errors.NotAnArrayError, match="The value of 'linear/w' is"):
            model.apply({"linear": {**params["linear"], "w": wrong}}, None, jnp.ones([1, 3]))


@pytest.mark.parametrize("n, layout", [(1, "NCW"), (3, "NCDHW")])
def test_the_bias_of_a_depthwise_convolution_belongs_to_the_channels(n, layout):
    """As many examples, and steps in space, as channels: the bias could be added along any of them."""
    x = jnp.zeros([2] * (n + 2))
    model = hkx.transform(lambda x: getattr(hkx, f"DepthwiseConv{n}D")(1, 1, data_format=layout)(x))
    params = model.init(0, x)[f"depthwise_conv{n}_d"]
    params["b"] = jnp.array([1.0, 2.0]).reshape(params["b"].shape)
    out = model.apply({f"depthwise_conv{n}_d": params}, None, x)
    np.testing.assert_array_equal(np.moveaxis(np.asarray(out), 1, -1), np.broadcast_to([1.0, 2.0], x.shape))
