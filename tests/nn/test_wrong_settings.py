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


REFUSED = {
    "`scale` must be a positive float, got -1": lambda: hkx.initializers.VarianceScaling(-1),
    "Invalid `mode` argument 'fan': it must be 'fan_in', 'fan_out' or 'fan_avg'": (
        lambda: hkx.initializers.VarianceScaling(mode="fan")
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
    "You cannot reverse an MLP until it has been called": lambda: hkx.nets.MLP([3]).reverse(),
    "Please provide only `w_init`, not `w_init_scale`": (
        lambda: hkx.MultiHeadAttention(2, 3, w_init_scale=1.0, w_init=jnp.zeros)
    ),
    r"`embedding_matrix` must be \[vocab_size, embed_dim\], got the shape \(2,\)": (
        lambda: hkx.Embed(embedding_matrix=jnp.ones(2))
    ),
    r"the `vocab_size` of 3 was not consistent with its shape \(2, 3\)": lambda: hkx.Embed(
        3, embedding_matrix=jnp.ones([2, 3])
    ),
    r"`rate` of dropout must be in \[0, 1\), got 1": lambda: hkx.dropout(jax.random.key(0), 1.0, X),
    "preserve_dims should be non-zero": lambda: hkx.Reshape([3], preserve_dims=0),
    "`padding` must not be empty": lambda: hkx.pad.create_from_tuple((), 2),
    "`padding` must be a pair, or a sequence of pairs, got 'ab'": lambda: hkx.pad.create_from_tuple("ab", 2),
    "padding must be a .* of length 1 or sequence of length 2, got": lambda: hkx.pad.create_from_tuple(
        [(1, 1), (1, 1), (1, 1)], 2
    ),
    r"Input shape must be \(-1, 4\), with -1 for the batch, but `inputs` has shape \(2, 3\)": lambda: hkx.Bias(
        output_size=[4]
    )(X),
    "`preserve_dims` must be an integer, got 1.5": lambda: hkx.Flatten(1.5)(X),
    r"`output_shape` must be a sequence of ints, of which one may be -1, got \[-1, -2\]": lambda: hkx.Reshape([-1, -2])(
        X
    ),
    r"`output_shape` must be a sequence of ints, of which one may be -1, got \[None\]": lambda: hkx.Reshape([None])(X),
    "`value_size` must be an integer, at least 1, got 2.5": lambda: hkx.MultiHeadAttention(
        2, 3, w_init=jnp.zeros, value_size=2.5
    ),
    "`model_size` must be an integer, at least 1, got -1": lambda: hkx.MultiHeadAttention(
        2, 3, w_init=jnp.zeros, model_size=-1
    ),
    "`embedding_matrix` of `Embed` is not an array of numbers": lambda: hkx.Embed(embedding_matrix="text"),
    "`hkx.Sequential` was given 3 of type int as `layers`": lambda: hkx.Sequential([jnp.tanh, 3])(X),
    "`hkx.DeepRNN` was given None of type NoneType as `layers`": lambda: hkx.DeepRNN([None])(X, ()),
    "`layers` of `hkx.DeepRNN` is not iterable": lambda: hkx.DeepRNN(hkx.LSTM(3)),
    "`hkx.ResetCore` was given 'lstm' of type str as `core`": lambda: hkx.ResetCore("lstm"),
    "`hkx.nets.MLP` was given 'relu' of type str as `activation`": lambda: hkx.nets.MLP([3, 2], activation="relu")(X),
    r"`ignore_regex` must be a regular expression, such as '.*/b', got \['b'\]": lambda: hkx.SNParamsTree(
        ignore_regex=["b"]
    )({"linear": {"w": X}}),
    "`decay` must be a number or a scalar array": lambda: hkx.ExponentialMovingAverage(jnp.full([2], 0.5))(X),
    "`output_size` of `hkx.Bias` must be a sequence of whole numbers, got 3": lambda: hkx.Bias(3)(X),
    "`bias_dims` of `hkx.Bias` must be a sequence of whole numbers, got -1": lambda: hkx.Bias(bias_dims=-1)(X),
    r"given as `padding` must return a pair \(before, after\) for a kernel's size, got \(3,\)": lambda: hkx.Conv1D(
        2, 3, padding=lambda k: k
    ),
    r"`axis` should be an int, slice or iterable of ints, got \[None\]": lambda: hkx.BatchNorm(
        True, True, 0.9, axis=[None]
    ),
    "`axis` must be a sequence of dimensions, got 'ab'": lambda: hkx.BatchNorm(True, True, 0.9, axis="ab"),
    r"`axis` must be a sequence of dimensions, got array\(1\)": lambda: hkx.BatchNorm(
        True, True, 0.9, axis=np.array(1)
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
    "the original call was rank=2 but this one is rank=3": lambda: _twice(
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
