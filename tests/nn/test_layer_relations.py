"""Arguments of layers that contradict each other or the input: errors that name them."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.PRNGKey(0)
X, ROWS = jnp.ones([2, 3]), jnp.ones([3, 4])
PICTURE = jnp.ones([1, 4, 4, 2])
SCALAR = jnp.array(2)


def attended(**options):
    return hkx.GroupedQueryAttention(4, 2, 3)(X, **options)


def cache(**replaced):
    return hkx.GroupedQueryAttention(4, 2, 3).initial_cache(None, 5)._replace(**replaced)


REFUSED = {
    "b_init must not be set when `with_bias` is False": (
        lambda: hkx.nets.MLP([3], with_bias=False, b_init=hkx.initializers.Constant(1))
    ),
    "With `dropout_rate`, an rng key must be passed": lambda: hkx.nets.MLP([3, 3])(X, dropout_rate=0.5),
    "`rng` is only to be passed when using dropout": lambda: hkx.nets.MLP([3])(X, rng=jax.random.key(0)),
    "Call the MLP before `reverse`": lambda: hkx.nets.MLP([3]).reverse(),
    "both say how weights begin: provide only `w_init`": (
        lambda: hkx.MultiHeadAttention(2, 3, w_init_scale=1.0, w_init=jnp.zeros)
    ),
    r"`ignore_regex` must be a regular expression, such as '.*/b', got \['b'\]": lambda: hkx.SNParamsTree(
        ignore_regex=["b"]
    )({"linear": {"w": X}}),
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


OUT_OF_RANGE = {
    "`channel_axis` of `hkx.AdaptiveAvgPool`: axis 7 is out of bounds for array of dimension 4": (
        lambda: hkx.AdaptiveAvgPool(2, channel_axis=7)(PICTURE)
    ),
    "`param_axis` of `hkx.LayerNorm`: axis 5": lambda: hkx.LayerNorm(-1, True, True, param_axis=(0, 5))(X),
    "`param_axis` of `hkx.RMSNorm`: axis -3": lambda: hkx.RMSNorm(-1, param_axis=-3)(X),
    "`feature_axis` of `hkx.WeightNorm`: axis 2": lambda: hkx.WeightNorm(hkx.Linear(2), feature_axis=2)(X),
    "`broadcast_dims` of `hkx.dropout`: axis 2": lambda: hkx.Dropout(0.5, [2])(X, True),
}
OF_ANOTHER_KIND = {
    "`output_shape` must be an integer, at least 1, got 0": lambda: hkx.AdaptiveAvgPool(0)(PICTURE),
    "`shape` must be an integer, at least 0, got None": lambda: hkx.Einsum(None, "a,ab->b"),
    "`shape` (3,) must have one size for each letter of 'ab'": lambda: hkx.Einsum(3, "a,ab->b"),
    "`parameters` of `hkx.WeightNorm` names 'v', and the layer in it asks for no such parameter when it is called. It "
    "asks for: 'b', 'w'.": lambda: hkx.WeightNorm(hkx.Linear(2), ["w", "v"])(X),
    "`parameters` of `hkx.WeightNorm` names 'w', and the layer in it asks for no such parameter when it is called. It "
    "asks for: none.": lambda: hkx.WeightNorm(jax.nn.relu)(X),
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
    "`cache.key` of `GroupedQueryAttention` must be of a floating dtype": (
        lambda: attended(cache=cache(key=jnp.zeros([5, 2, 3], int)))
    ),
    "`cache` of `GroupedQueryAttention` must be a `hkx.KeyValueCache`, got {}": lambda: attended(cache={}),
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


LISTS = {
    "output_shape": lambda: hkx.Reshape(SCALAR)(X),
    "layers.* of .*skip_connections": lambda: hkx.deep_rnn_with_skip_connections(SCALAR),
    "a pair of states": lambda: hkx.Bidirectional(hkx.GRU(3), hkx.GRU(3))(jnp.ones([2, 2, 3]), SCALAR),
    "a tuple of 1 states": lambda: hkx.DeepRNN([hkx.GRU(3)])(X, SCALAR),
    "call_methods": lambda: hkx.Deferred(lambda: hkx.Linear(2), SCALAR)(X),
}


@pytest.mark.parametrize("name", LISTS)
def test_an_array_that_is_no_list_is_named(name):
    with pytest.raises((TypeError, ValueError), match=f"(?i){name}"):
        hkx.transform(LISTS[name]).init(0)


@pytest.mark.parametrize("axis_name", ["i", ("i", "j"), ["i"]])
def test_an_axis_that_is_not_mapped_is_named(axis_name):
    def f(x):
        quantizer = hkx.nets.VectorQuantizer(3, 4, 0.25, cross_replica_axis=axis_name)
        return hkx.BatchNorm(True, True, 0.9, cross_replica_axis=axis_name)(x, True), quantizer(x, True)

    model = hkx.transform_with_state(f)
    params, state = model.init(0, X)
    text = re.escape(f"`cross_replica_axis` is {axis_name!r}, but no such axis is mapped here")
    with pytest.raises(hkx.errors.UnboundAxisError, match=text) as raised:
        model.apply(params, state, None, X)
    assert isinstance(raised.value, NameError)  # what JAX raises


def test_dtypes_of_one_hot_vectors():
    assert [hkx.one_hot(1, 3, dtype).dtype for dtype in ("half", None, float, np.int8)] == ["f2", "f4", "f4", "i1"]


def test_other_arguments_that_are_named() -> None:
    def raised(match: str, f: Any) -> None:
        with pytest.raises((TypeError, ValueError, IndexError), match=match):
            hkx.transform_with_state(f).init(KEY)

    raised(
        r"`axis` of `hkx.BatchNorm` is out of range: \(1, 2\)",
        lambda: hkx.BatchNorm(1, 1, 0.9, axis=(1, 2))(ROWS, True),
    )
    raised("`rng` of `hkx.dropout`", lambda: hkx.dropout("key", 0.5, ROWS))
    raised("`rng` of `hkx.multinomial`", lambda: hkx.multinomial(None, ROWS, 2))
    raised("`logits` must be of a floating dtype, got int32", lambda: hkx.multinomial(KEY, jnp.arange(3), 2))
    raised(r"`logits` must have a dimension of classes, .* \(3, 0\)", lambda: hkx.multinomial(KEY, ROWS[:, :0], 2))
    raised("not int32. .* convert those first", lambda: hkx.Linear(3)(jnp.ones([2, 2], int)))
    raised("not bool. .* convert those first", lambda: hkx.initializers.RandomUniform()([2], bool))


CONVOLUTIONS = {
    "Conv2D": lambda x: hkx.Conv2D(3, 3)(x),
    "Conv2DTranspose": lambda x: hkx.Conv2DTranspose(3, 3)(x),
    "DepthwiseConv2D": lambda x: hkx.DepthwiseConv2D(1, 3)(x),
    "SeparableDepthwiseConv2D": lambda x: hkx.SeparableDepthwiseConv2D(1, 3)(x),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "bfloat16", "complex64"])
def test_an_image_of_another_dtype_than_the_kernel_is_named(name: str, dtype: str) -> None:
    model = hkx.transform(CONVOLUTIONS[name])
    params = model.init(KEY, jnp.ones([1, 5, 5, 2]))
    with pytest.raises(hkx.errors.InputDTypeError, match=rf"`inputs` of `\w+` is of dtype {dtype}, expected float32"):
        model.apply(params, None, jnp.ones([1, 5, 5, 2], dtype))


def test_integers_are_not_normalised_by_moving_averages() -> None:
    model = hkx.transform_with_state(lambda x, training: hkx.BatchNorm(True, True, 0.9)(x, training))
    params, state = model.init(KEY, jnp.ones([4, 3]), True)
    with pytest.raises(hkx.errors.InputDTypeError, match=r"`inputs` of `BatchNorm` is of dtype int32.*moving averages"):
        model.apply(params, state, KEY, jnp.ones([4, 3], int), False)
    out, _ = model.apply(params, state, KEY, jnp.ones([4, 3], int), True)  # as in Haiku
    assert not out.any()


def test_what_cannot_be_averaged_or_has_no_channels_is_named() -> None:
    with pytest.raises(hkx.errors.InputDTypeError, match="`value` of `avg_pool` is of dtype bool"):
        hkx.avg_pool(jnp.ones([1, 4, 1], bool), 2, 2, "SAME")
    with pytest.raises(ValueError, match=r"`inputs` of `DepthwiseConv1D` .* without channels"):
        hkx.transform(lambda: hkx.DepthwiseConv1D(1, 2)(jnp.ones([1, 4, 0]))).init(KEY)


@pytest.mark.parametrize(
    "wrong", ["text", np.array([["a", "b"]]), object(), np.float32], ids=["text", "texts", "object", "dtype"]
)
@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("unroll", [hkx.dynamic_unroll, hkx.static_unroll], ids=["dynamic", "static"])
def test_a_sequence_that_is_no_array_is_named(unroll: Any, time_major: bool, wrong: Any) -> None:
    with pytest.raises(hkx.errors.HkxError, match=r"no array|not an array"):
        hkx.transform(lambda: unroll(hkx.GRU(3), wrong, jnp.zeros([2, 3]), time_major)).init(KEY)


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
