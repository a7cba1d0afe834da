"""Settings that contradict each other or the input: an error that names them; and what a rare setting does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

X = jnp.ones([2, 3])
PICTURE = jnp.ones([1, 4, 4, 2])


def made(initializer, shape):
    return lambda: hkx.get_parameter("w", shape, init=initializer())


def attended(**options):
    return hkx.GroupedQueryAttention(4, 2, 3)(X, **options)


def cache(**replaced):
    return hkx.GroupedQueryAttention(4, 2, 3).initial_cache(None, 5)._replace(**replaced)


REFUSED = {
    "`scale` must be a positive float, got -1": lambda: hkx.initializers.VarianceScaling(-1),
    "Invalid `mode` argument 'fan': it must be 'fan_in', 'fan_out' or 'fan_avg'": (
        lambda: hkx.initializers.VarianceScaling(mode="fan")
    ),
    r"`fan_in_axes` of VarianceScaling is \[3\], expected axes of the shape \(3, 3, 2\)": (
        made(lambda: hkx.initializers.VarianceScaling(fan_in_axes=[3]), [3, 3, 2])
    ),
    r"Orthogonal initializer requires at least a 2D shape. Got \(3,\)": made(hkx.initializers.Orthogonal, [3]),
    r"`axis` of Orthogonal is 2, expected an axis of the shape \(3, 3\)": (
        made(lambda: hkx.initializers.Orthogonal(axis=2), [3, 3])
    ),
    r"Identity initializer requires at least a 2D shape. Got \(3,\)": made(hkx.initializers.Identity, [3]),
    "b_init must not be set when `with_bias` is False": (
        lambda: hkx.nets.MLP([3], with_bias=False, b_init=hkx.initializers.Constant(1))
    ),
    "With `dropout_rate`, an rng key must be passed": lambda: hkx.nets.MLP([3, 3])(X, dropout_rate=0.5),
    "`rng` is only to be passed when using dropout": lambda: hkx.nets.MLP([3])(X, rng=jax.random.key(0)),
    "Call the MLP before `reverse`": lambda: hkx.nets.MLP([3]).reverse(),
    "both say how weights begin: provide only `w_init`": (
        lambda: hkx.MultiHeadAttention(2, 3, w_init_scale=1.0, w_init=jnp.zeros)
    ),
    r"the `vocab_size` of 3 was not consistent with its shape \(2, 3\)": lambda: hkx.Embed(
        3, embedding_matrix=jnp.ones([2, 3])
    ),
    "preserve_dims should be non-zero": lambda: hkx.Reshape([3], preserve_dims=0),
    "`padding` must not be empty": lambda: hkx.pad.create_from_tuple((), 2),
    "`padding` must be a pair, or a sequence of pairs, got 'ab'": lambda: hkx.pad.create_from_tuple("ab", 2),
    "`padding` must be a .* of length 1, or one of length 2, got": lambda: hkx.pad.create_from_tuple(
        [(1, 1), (1, 1), (1, 1)], 2
    ),
    r"Input shape must be \(-1, 4\), with -1 for the batch, but `inputs` has shape \(2, 3\)": lambda: hkx.Bias(
        output_size=[4]
    )(X),
    r"`output_shape` must be a sequence of ints, of which one may be -1, got \[-1, -2\]": lambda: hkx.Reshape([-1, -2])(
        X
    ),
    r"`output_shape` must be a sequence of ints, of which one may be -1, got \[None\]": lambda: hkx.Reshape([None])(X),
    r"`ignore_regex` must be a regular expression, such as '.*/b', got \['b'\]": lambda: hkx.SNParamsTree(
        ignore_regex=["b"]
    )({"linear": {"w": X}}),
    "`decay` must be a number or a scalar array": lambda: hkx.ExponentialMovingAverage(jnp.full([2], 0.5))(X),
    r"given as `padding` must return a pair \(before, after\) for a kernel's size, got \(3,\)": lambda: hkx.Conv1D(
        2, 3, padding=lambda k: k
    ),
    "`cross_replica_axis` must be the `axis_name` .*, got 1": lambda: hkx.BatchNorm(
        True, True, 0.9, cross_replica_axis=1
    )(X, True),
    r"`cross_replica_axis` must be the `axis_name` .*, got \['i', 0\]": lambda: hkx.nets.VectorQuantizer(
        3, 2, 0.25, cross_replica_axis=["i", 0]
    )(X, True),
    r"Dimension 0 \(`bias_dims`\) is out of range for input of rank 2": lambda: hkx.Bias(bias_dims=[0])(X),
    r"'SAME_LOWER' with a stride of 1 only, got \(2, 2\)": lambda: hkx.Conv2DTranspose(
        2, 3, stride=2, padding="SAME_LOWER"
    )(PICTURE),
    "the original inputs had 2 dimensions and these have 3": lambda: _twice(
        hkx.GroupNorm(1), jnp.ones([2, 4]), jnp.ones([2, 2, 4])
    ),
    "should_reset is .*: it must be one array, or a tree of them in the structure of the state": lambda: hkx.ResetCore(
        hkx.GRU(3)
    )((X, {"now": jnp.zeros(2, bool), "then": jnp.zeros(2, bool)}), X),
}


def _twice(module, first, second):
    module(first)
    module(second)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text):
    with pytest.raises((ValueError, TypeError, AssertionError), match=text):
        hkx.transform(REFUSED[text]).init(0)


def value(f):
    model = hkx.transform_with_state(f)
    return model.apply(*model.init(0), 0)[0]


def test_a_single_number_is_drawn_with_a_fan_of_one():
    drawn = value(made(lambda: hkx.initializers.VarianceScaling(4.0, "fan_avg", "uniform"), ()))
    assert drawn.shape == () and abs(drawn) <= np.sqrt(12)
    other = value(made(lambda: hkx.initializers.VarianceScaling(1.0, "fan_avg", "uniform"), ()))
    np.testing.assert_allclose(drawn, 2 * other, rtol=1e-6)


def test_same_lower_puts_the_larger_half_before():
    kernel = jax.random.normal(jax.random.key(0), [2, 2, 2, 2])
    picture = jax.random.normal(jax.random.key(1), [1, 4, 4, 2])

    def layer():
        w_init = hkx.initializers.Constant(kernel)
        return hkx.Conv2DTranspose(2, 2, padding="SAME_LOWER", with_bias=False, w_init=w_init)(picture)

    expected = jax.lax.conv_general_dilated(
        picture, kernel, (1, 1), [(1, 0), (1, 0)], dimension_numbers=("NHWC", "HWOI", "NHWC")
    )
    np.testing.assert_allclose(value(layer), expected, rtol=1e-5, atol=1e-5)


def test_a_largest_of_booleans_is_whether_any_is_true():
    given = jnp.zeros([1, 4, 4, 1], bool).at[0, 3, 0, 0].set(True)
    expected = np.zeros([1, 2, 2, 1], bool)
    expected[0, 1, 0, 0] = True
    assert value(lambda: hkx.max_pool(given, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")).tolist() == expected.tolist()


def test_normalisations_without_a_scale_and_products_without_a_bias():
    x = jnp.array([[3.0, 4.0]])
    np.testing.assert_allclose(
        value(lambda: hkx.RMSNorm(-1, create_scale=False, eps=0)(x)), x / np.sqrt(12.5), rtol=1e-6
    )
    w = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    by_einsum = value(
        lambda: hkx.Einsum([2, 2], "...a,ab->...b", with_bias=False, w_init=hkx.initializers.Constant(w))(x)
    )
    np.testing.assert_allclose(by_einsum, x @ w)


def test_a_vector_with_nothing_to_reshape_stays():
    assert value(lambda: hkx.Reshape([-1], preserve_dims=2)(X)).tolist() == X.tolist()


def test_a_lookup_may_be_said_by_its_name_or_by_the_enum():
    tokens = jnp.array([1, 0])
    by_name, by_enum = (
        value(lambda style=style: hkx.Embed(2, 3, lookup_style=style)(tokens))
        for style in ("ONE_HOT", hkx.EmbedLookupStyle.ONE_HOT)
    )
    np.testing.assert_array_equal(by_name, by_enum)


def test_an_average_of_floats_counts_beyond_whole_numbers():
    """A counter that is not of integers, from a checkpoint say, counts on."""

    def f():
        average = hkx.ExponentialMovingAverage(0.5, zero_debias=True)
        return average(jnp.ones(2))

    model = hkx.transform_with_state(f)
    params, state = model.init(0)
    (name,) = state
    state = {name: {**state[name], "counter": jnp.float32(2.0)}}
    _, after = model.apply(params, state, None)
    assert after[name]["counter"] == 3.0 and after[name]["counter"].dtype == jnp.float32


def test_a_spectral_norm_shows_what_it_has_found():
    def f():
        norm = hkx.SpectralNorm(n_steps=50)
        norm(jnp.array([[3.0, 0.0], [0.0, 1.0]]))
        return norm.u0, norm.sigma

    u0, sigma = value(f)
    np.testing.assert_allclose(sigma, 3.0, rtol=1e-4)
    np.testing.assert_allclose(jnp.abs(u0), [[1.0, 0.0]], atol=1e-3)


OF_A_SIZE = {
    "AvgPool": lambda n, x: hkx.AvgPool(n - 1, 1, "SAME")(x),
    "BatchApply": lambda n, x: hkx.BatchApply(jnp.tanh, n - 1)(x),
    "Bias": lambda n, x: hkx.Bias(bias_dims=[n - 4])(x),
    "Conv1D": lambda n, x: hkx.Conv1D(n, n, padding=(n, n - 2))(x),
    "Embed": lambda n, x: hkx.Embed(n, n)(jnp.zeros(2, int)),
    "GRU": lambda n, x: hkx.GRU(n)(x[0], hkx.GRU(n).initial_state(2)),
    "GroupNorm": lambda n, x: hkx.GroupNorm(n - 1)(x),
    "Linear": lambda n, x: hkx.Linear(n)(x),
    "get_state": lambda n, x: hkx.get_state("mean", [n], init=jnp.zeros),
    "layer_stack": lambda n, x: hkx.layer_stack(n)(hkx.Linear(4))(x),
    "max_pool": lambda n, x: hkx.max_pool(x, 1, 2, "SAME", channel_axis=n - 4),
    "next_rng_keys": lambda n, x: hkx.next_rng_keys(n),
    "scan": lambda n, x: hkx.scan(lambda c, _: (c + 1, None), x, None, length=n),
}


@pytest.mark.parametrize("make", OF_A_SIZE.values(), ids=OF_A_SIZE)
def test_a_size_may_come_from_an_argument(make):
    """In `init`, which then looks at its value, and outside of `jit`."""
    model, fixed = hkx.transform_with_state(make), hkx.transform_with_state(lambda _, x: make(3, x))
    size, x = jnp.array(3), jnp.ones([2, 2, 4])
    made, wanted = (m.init(0, size, x) for m in (model, fixed))
    jax.tree.map(np.testing.assert_array_equal, made, wanted)
    jax.tree.map(np.testing.assert_array_equal, model.apply(*made, 0, size, x), fixed.apply(*made, 0, size, x))
    with pytest.raises(TypeError, match="depends on the value of the argument"):
        jax.jit(model.init)(0, size, x)


@pytest.mark.parametrize("number", [-1, 2.5, "2", None])
def test_what_is_no_number_of_layers(number):
    with pytest.raises(hkx.errors.InvalidSizeError, match="`num_layers` must be an integer, at least 0, got"):
        hkx.layer_stack(number)


DEPRECATED = {
    r"`w_init_scale` of MultiHeadAttention is deprecated: write w_init=hkx.initializers.VarianceScaling\(2.0\)": (
        lambda: hkx.MultiHeadAttention(2, 3, 2.0)(X, X, X)
    ),
    "`shape` of ExponentialMovingAverage.initialize is deprecated: as an array": (
        lambda: hkx.ExponentialMovingAverage(0.9).initialize(X)
    ),
}


@pytest.mark.parametrize("text", DEPRECATED)
def test_what_is_deprecated_warns_where_it_is_used(text):
    with pytest.warns(DeprecationWarning, match=text) as shown:
        hkx.transform_with_state(DEPRECATED[text]).init(0)
    assert {warning.filename for warning in shown} == {__file__}


def test_a_module_of_ones_own_warns_where_it_is_used():
    source = """
import hkx

class Layer(hkx.Module):
    def __init__(self, gain=None):
        super().__init__()
        self._check(gain)

    def _check(self, gain):
        hkx.arguments.deprecated_argument("gain", "Layer", "leave it out")
"""
    library = {"__name__": "a_library"}
    exec(compile(source, "a_library.py", "exec"), library)
    with pytest.warns(DeprecationWarning, match="`gain` of Layer is deprecated: leave it out") as shown:
        hkx.transform(lambda: library["Layer"](gain=1.0)).apply({}, None)
    assert [warning.filename for warning in shown] == [__file__]


@pytest.mark.parametrize("axis", [np.array(-1), jnp.asarray(-1), [jnp.asarray(-1)]], ids=["numpy", "jax", "list"])
def test_a_dimension_may_be_an_array_of_one_integer(axis):
    x = np.float32(np.random.RandomState(0).randn(2, 3))
    out = hkx.transform(lambda: hkx.LayerNorm(axis, False, False, eps=0.0)(x)).apply({}, None)
    expected = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    np.testing.assert_allclose(out, expected, rtol=1e-4)


OUT_OF_RANGE = {
    "`channel_axis` of `hkx.AdaptiveAvgPool` is out of range: 7, for an array of shape (1, 4, 4, 2)": (
        lambda: hkx.AdaptiveAvgPool(2, channel_axis=7)(PICTURE)
    ),
    "`param_axis` of `hkx.LayerNorm` is out of range: 5, for an array of shape (2, 3)": (
        lambda: hkx.LayerNorm(-1, True, True, param_axis=(0, 5))(X)
    ),
    "`param_axis` of `hkx.RMSNorm` is out of range: -3": lambda: hkx.RMSNorm(-1, param_axis=-3)(X),
    "`feature_axis` of `hkx.WeightNorm` is out of range: 2, for an array of shape (3, 2)": (
        lambda: hkx.WeightNorm(hkx.Linear(2), feature_axis=2)(X)
    ),
    "`broadcast_dims` of `hkx.dropout` is out of range: 2": lambda: hkx.Dropout(0.5, [2])(X, True),
}
OF_ANOTHER_KIND = {
    "`output_shape` must be an integer, at least 1, got 0": lambda: hkx.AdaptiveAvgPool(0)(PICTURE),
    "`shape` must be an integer, at least 0, got None": lambda: hkx.Einsum(None, "a,ab->b"),
    "`shape` (3,) must have one size for each letter of 'ab'": lambda: hkx.Einsum(3, "a,ab->b"),
    "`parameters` of `hkx.WeightNorm` names 'v', and the layer in it asks for no such parameter when it is called. It "
    "asks for: 'b', 'w'.": lambda: hkx.WeightNorm(hkx.Linear(2), ["w", "v"])(X),
    "`parameters` of `hkx.WeightNorm` names 'w', and the layer in it asks for no such parameter when it is called. It "
    "asks for: none.": lambda: hkx.WeightNorm(jax.nn.relu)(X),
    "as `backward.initial_state`, which must be a function": lambda: hkx.Bidirectional(hkx.GRU(2), hkx.Linear(2))(X),
    "`mask` of `GroupedQueryAttention` is of dtype float32, expected bool": lambda: attended(mask=jnp.zeros([1, 1, 1])),
    "`mask` of `GroupedQueryAttention` has shape (1, 2, 3), expected [num_heads, T, S] with num_heads, T, S": (
        lambda: attended(mask=jnp.ones([1, 2, 3], bool))
    ),
    "`mask` of `GroupedQueryAttention` has shape (2, 2, 2)": lambda: attended(mask=jnp.ones([2, 2, 2], bool)),
    "`cache.key` of `GroupedQueryAttention` has shape (5, 4, 3), expected [max_length, 2, 3]": (
        lambda: attended(cache=hkx.GroupedQueryAttention(4, 4, 3).initial_cache(None, 5))
    ),
    "`cache.value` of `GroupedQueryAttention` has shape (5, 2, 1), expected [max_length, 2, 3]": (
        lambda: attended(cache=cache(value=jnp.zeros([5, 2, 1])))
    ),
    "`cache.value` of `GroupedQueryAttention` must be of the shape of `cache.key`, (5, 2, 3)": (
        lambda: attended(cache=cache(value=jnp.zeros([6, 2, 3])))
    ),
    "`cache.key` of `GroupedQueryAttention` must be of a floating dtype": (
        lambda: attended(cache=cache(key=jnp.zeros([5, 2, 3], int)))
    ),
    "`cache` of `GroupedQueryAttention` must be a `hkx.KeyValueCache`, got {}": lambda: attended(cache={}),
    "`cache.length` of `GroupedQueryAttention` must be one integer, at least 0": (
        lambda: attended(cache=cache(length=jnp.zeros(2, int)))
    ),
    "for the whole batch, got -1": lambda: attended(cache=cache(length=-1)),
    "for the whole batch, got 1.0": lambda: attended(cache=cache(length=1.0)),
    "`stddev` must be a number or a scalar array, got [1.0]": lambda: hkx.initializers.RandomNormal([1.0]),
    "`lower` must be a number or a scalar array, got <object": lambda: hkx.initializers.TruncatedNormal(lower=object()),
    "`constant` must be a number or a scalar array, got <class": lambda: hkx.initializers.Constant(jnp.float32),
    "need a floating dtype, not int32": lambda: hkx.initializers.Orthogonal()([2, 2], jnp.int32),
    "need a floating dtype, not complex64": lambda: hkx.initializers.RandomUniform()([2, 2], jnp.complex64),
}


@pytest.mark.parametrize("text", [*OUT_OF_RANGE, *OF_ANOTHER_KIND])
def test_an_argument_is_named(text):
    call = {**OUT_OF_RANGE, **OF_ANOTHER_KIND}[text]
    kind = IndexError if text in OUT_OF_RANGE else (hkx.errors.HkxError, TypeError, ValueError)
    with pytest.raises(kind) as info:
        hkx.transform_with_state(call).init(0)
    assert text in str(info.value)


def test_one_name_of_a_parameter_is_not_a_list_of_letters():
    class Layer(hkx.Module):
        def __call__(self, x):
            return x @ hkx.get_parameter("kernel", [3, 2], init=jnp.ones)

    params = hkx.transform(lambda x: hkx.WeightNorm(Layer(), "kernel")(x)).init(0, X)
    assert list(params["layer"]) == ["kernel", "kernel_scale"]


def test_dropout_takes_dimensions_in_any_iterable():
    assert value(lambda: hkx.Dropout(0.5, iter([0])).broadcast_dims) == (0,)  # it may be called twice
    key = jax.random.PRNGKey(0)
    alike = [hkx.dropout(key, 0.5, jnp.ones([8, 8]), dims) for dims in ([0], np.array([0]), {0}, iter([0]))]
    assert all(np.array_equal(alike[0], other) for other in alike) and len(np.unique(alike[0], axis=0)) == 1


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_normal_distribution_may_have_truncation_points_of_its_own_for_each_element(dtype, compiled):
    def init(lower, upper):
        initializer = hkx.initializers.TruncatedNormal(2.0, 1.0, lower, upper)
        return hkx.transform(lambda: hkx.get_parameter("w", [3, 2], dtype, initializer)).init(0)["~"]["w"]

    size = [2, 3, 2] if dtype == jnp.complex64 else [3, 2]
    lower, upper = np.arange(2.0, dtype=np.float32).reshape([1] * (len(size) - 1) + [2]), 2.0
    w = (jax.jit(init) if compiled else init)(lower, upper)
    unit = jax.random.truncated_normal(jax.random.split(jax.random.PRNGKey(0))[1], lower, upper, size, jnp.float32)
    expected = 2.0 * (unit[0] + 1j * unit[1] if len(size) == 3 else unit) + 1.0
    np.testing.assert_allclose(w, expected, rtol=1e-6)


@pytest.mark.parametrize("axis", [-2, -1])
def test_a_negative_axis_of_group_norm_is_one_of_the_input(axis):  # in Haiku, one of the array with groups
    x = np.random.default_rng(0).normal(size=[2, 4, 3, 5]).astype(np.float32)
    y = value(lambda: hkx.GroupNorm(2, axis, False, False, data_format="NCHW")(x))
    np.testing.assert_allclose(y, (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5), 1e-4)
