"""Arguments of another kind than what is taken: an error of hkx's that says which, and what it should be."""

import jax.numpy as jnp
import pytest

import hkx
from hkx import data_structures

X = jnp.ones([1, 2])
ENTRIES = {"linear": {"w": 1}}
INSIDE = {  # in a transformed function
    "3 is not a valid module name": [
        lambda: hkx.name_scope(3),
        lambda: hkx.lift(dict, name=3),
        lambda: hkx.lift_with_state(lambda: ({}, {}), name=3),
    ],
    "`hkx.cond` was given None of type NoneType where it takes a function: it is not callable": [
        lambda: hkx.cond(True, None, abs, 1.0),
        lambda: hkx.cond(True, abs, None, 1.0),
    ],
    "`hkx.switch` was given 3 of type int": [lambda: hkx.switch(0, [3, abs], 1.0)],
    "`hkx.scan` was given 'x' of type str": [lambda: hkx.scan("x", 0, None, 2)],
    "`hkx.fori_loop` was given 3 of type int": [lambda: hkx.fori_loop(0, 2, 3, 1.0)],
    "`hkx.while_loop` was given 3 of type int": [lambda: hkx.while_loop(3, abs, 1.0)],
    "`hkx.associative_scan` was given 3 of type int as `fn`": [lambda: hkx.associative_scan(3, X)],
    "`hkx.eval_shape` was given 3 of type int": [lambda: hkx.eval_shape(3, 1.0)],
    "`hkx.lift` was given 3 of type int as `init_fn`": [lambda: hkx.lift(3), lambda: hkx.transparent_lift(3)],
    "`hkx.custom_creator` was given 3 of type int as `creator`": [lambda: hkx.custom_creator(3).__enter__()],
    "`hkx.custom_getter` was given 3 of type int as `getter`": [lambda: hkx.custom_getter(3).__enter__()],
    "`hkx.custom_setter` was given 3 of type int as `setter`": [lambda: hkx.custom_setter(3).__enter__()],
    "`hkx.intercept_methods` was given 3 of type int as `interceptor`": [lambda: hkx.intercept_methods(3).__enter__()],
    "`num_layers` must be an integer, at least 0, got 'x'": [lambda: hkx.layer_stack("x")],
    "`num_dims` must be an integer, at least 1, got None": [lambda: hkx.BatchApply(abs, None)],
    "`hkx.BatchApply` was given 3 of type int as `f`": [lambda: hkx.BatchApply(3)],
    "`hkx.static_unroll` was given 3 of type int as `core`": [lambda: hkx.static_unroll(3, X, None)],
    "`dynamic_unroll` was given 3 of type int as `core`": [lambda: hkx.dynamic_unroll(3, X, None)],
    "`prev_state`, the state of `LSTM`, is None of type NoneType, expected an `LSTMState`, as returned by": [
        lambda: hkx.LSTM(3)(X, None),
        lambda: hkx.DeepRNN([hkx.LSTM(3)])(X, [None]),
    ],
    r"`state`, the state of `DeepRNN`, is \(1,\) of type tuple, expected a tuple of 2 states": [
        lambda: hkx.DeepRNN([hkx.GRU(1), abs, hkx.GRU(1)])(X, (1,)),
        lambda: hkx.deep_rnn_with_skip_connections([hkx.GRU(1), hkx.GRU(1)])(X, (1,)),
    ],
    "The name of a parameter or a state of '~' is .* of type (list|NoneType|int), and should be a string": [
        lambda: hkx.get_parameter(["w"], [2], init=jnp.ones),
        lambda: hkx.get_parameter(None, [2], init=jnp.ones),
        lambda: hkx.get_parameter(3, [2], init=jnp.ones),
        lambda: hkx.get_state(["w"], [2], init=jnp.ones),
        lambda: hkx.set_state(["w"], 1),
    ],
    "`pred` must be a number or a scalar array, got": [
        lambda: hkx.cond(None, lambda: 1, lambda: 2),
        lambda: hkx.cond("float32", lambda: 1, lambda: 2),
        lambda: hkx.cond(jnp.float32, lambda: 1, lambda: 2),
        lambda: hkx.cond(jnp.dtype("int32"), lambda: 1, lambda: 2),
        lambda: hkx.cond([True], lambda: 1, lambda: 2),
    ],
    "`branches` of `hkx.switch` must be a sequence of functions, got": [
        lambda: hkx.switch(0, abs, 1.0),
        lambda: hkx.switch(0, 3, 1.0),
    ],
    "`unroll` must be an integer, at least 0, got": [
        lambda: hkx.scan(lambda c, x: (c, x), 0, jnp.ones(3), unroll="2"),
        lambda: hkx.scan(lambda c, x: (c, x), 0, jnp.ones(3), unroll=1.5),
        lambda: hkx.scan(lambda c, x: (c, x), 0, jnp.ones(3), unroll=-1),
        lambda: hkx.fori_loop(0, 2, max, 1.0, unroll="x"),
        lambda: hkx.layer_stack(2, unroll="x"),
    ],
    "`equation` must be like '...d,dh->...h'.* got None": [lambda: hkx.Einsum([2, 3], None)],
    "`distribution` argument '4'": [lambda: hkx.initializers.VarianceScaling(1.0, "fan_in", 4)],
    "`num_spatial_dims` greater than 0, got None": [lambda: hkx.ConvND(None, 2, 2)],
}
OUTSIDE = {
    "`hkx.transparent` was given 3 of type int": lambda: hkx.transparent(3),
    "`scale` must be a number or a scalar array, got 'x'": lambda: hkx.initializers.VarianceScaling("x"),
    "`stddev` must be a number or a scalar array, got 'x'": lambda: hkx.initializers.RandomNormal("x"),
    "`upper` must be a number or a scalar array, got None": lambda: hkx.initializers.TruncatedNormal(upper=None),
    "`minval` must be a number or a scalar array, got {}": lambda: hkx.initializers.RandomUniform({}),
    "`constant` must be a number or a scalar array, got None": lambda: hkx.initializers.Constant(None),
    "`gain` must be a number or a scalar array, got b'x'": lambda: hkx.initializers.Identity(b"x"),
    "`effective_kernel_size` must be an integer, at least 1, got 'x'": lambda: hkx.pad.same("x"),
    "`effective_kernel_size` must be an integer, at least 1, got 1.5": lambda: hkx.pad.causal(1.5),
    "`effective_kernel_size` must be an integer, at least 1, got -3": lambda: hkx.pad.full(-3),
    "`hkx.pad.create` was given 'x' of type str as `padding`": lambda: hkx.pad.create("x", 3, 1, 2),
    "`expand_apply` was given 3 of type int as `f`": lambda: hkx.expand_apply(3),
    "`hkx.eval_summary` was given 3 of type int as `f`": lambda: hkx.experimental.eval_summary(3),
    "`hkx.tabulate` was given 3 of type int as `f`": lambda: hkx.tabulate(3),
    "`hkx.to_dot` was given 3 of type int as `fun`": lambda: hkx.to_dot(3),
    "`hkx.capture_intermediates` was given 3 of type int as `f`": lambda: hkx.capture_intermediates(3),
    r"result of `hkx.transform`, .* <class 'int'>: `hkx.with_empty_state\(hkx.transform\(f\)\)`": (
        lambda: hkx.with_empty_state(3)
    ),
    r"result of `hkx.transform_with_state`, .* `hkx.without_state\(hkx.transform_with_state\(f\)\)`": (
        lambda: hkx.without_state(3)
    ),
    "`structure` of `hkx.unstack_params` is 3 of type int": lambda: hkx.unstack_params(3),
    "`hkx.multi_transform` was given None of type NoneType as `f`": lambda: hkx.multi_transform(None).init(0),
    "`hkx.data_structures.filter` was given 3 of type int as `predicate`": lambda: data_structures.filter(3, ENTRIES),
    "`hkx.data_structures.partition` was given 3 .* as `predicate`": lambda: data_structures.partition(3, ENTRIES),
    "`hkx.data_structures.partition_n` was given 3 .* as `fn`": lambda: data_structures.partition_n(3, ENTRIES, 2),
    "`hkx.data_structures.map` was given 3 of type int as `fn`": lambda: data_structures.map(3, ENTRIES),
    r"`structure` of `hkx.data_structures.map` is \[1\] of type list, expected a mapping \{module: \{name: value\}\}": (
        lambda: data_structures.map(max, [1])
    ),
    r"`structure\['a'\]` of `hkx.data_structures.filter` is 3 of type int, expected a mapping \{name: value\}": (
        lambda: data_structures.filter(max, {"a": 3})
    ),
    "`structure` of `hkx.data_structures.traverse` is None": lambda: list(data_structures.traverse(None)),
    "`structure` of `hkx.data_structures.is_subset` is 'x'": (
        lambda: data_structures.is_subset(subset="x", superset=ENTRIES)
    ),
}


@pytest.mark.parametrize("text", INSIDE)
def test_arguments_inside_of_a_transform(text):
    for call in INSIDE[text]:
        with pytest.raises((hkx.errors.HkxError, ValueError), match=text):
            hkx.transform(call).init(0)


@pytest.mark.parametrize("text", OUTSIDE)
def test_arguments_outside_of_a_transform(text):
    with pytest.raises(hkx.errors.HkxError, match=text):
        OUTSIDE[text]()
