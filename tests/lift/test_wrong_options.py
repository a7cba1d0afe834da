"""Options of lifted transforms, of tools and of paddings that are of another kind: an error that names them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

X, TWO = jnp.ones([2, 3]), np.array([1, 2])
SCALAR = jnp.array(2)


def loss(w):
    return jnp.sum(w**2)


def inner(x):
    return hkx.transform(lambda x: hkx.Linear(3)(x)).init(0, x)


def mapped(**options):
    return hkx.vmap(jnp.tanh, split_rng=False, **options)


def tabulated(**options):
    return hkx.experimental.tabulate(hkx.transform(lambda x: hkx.Linear(3)(x)), **options)(X)


FLAGS = {
    "reverse of hkx.scan": lambda f: hkx.scan(lambda c, x: (c, x), 0, X, reverse=f),
    "split_rng of hkx.vmap": lambda f: hkx.vmap(lambda x: x, split_rng=f)(X),
    "has_aux of hkx.grad": lambda f: hkx.grad(loss, has_aux=f)(X),
    "has_aux of hkx.value_and_grad": lambda f: hkx.value_and_grad(loss, has_aux=f)(X),
    "params of hkx.custom_creator": lambda f: hkx.custom_creator(loss, params=f),
    "state of hkx.custom_getter": lambda f: hkx.custom_getter(loss, state=f),
    "allow_reuse of hkx.lift": lambda f: hkx.lift(inner, allow_reuse=f)(X),
    "with_per_layer_inputs of hkx.layer_stack": lambda f: hkx.layer_stack(2, with_per_layer_inputs=f)(jnp.tanh)(X),
    "pass_reverse_to_layer_fn of hkx.layer_stack": (
        lambda f: hkx.layer_stack(2, pass_reverse_to_layer_fn=f)(jnp.tanh)(X)
    ),
    "remat of hkx.layer_stack": lambda f: hkx.layer_stack(2, remat=f)(jnp.tanh)(X),
    "apply_rng of hkx.transform": lambda f: hkx.transform(jnp.tanh, apply_rng=f),
    "transparent of hkx.layer_stack": lambda f: hkx.layer_stack(2, transparent=f)(jnp.tanh)(X),
    "check_duplicates of merge": lambda f: hkx.data_structures.merge({}, check_duplicates=f),
    "run_apply of hkx.testing.transform_and_run": lambda f: hkx.testing.transform_and_run(lambda: 1, run_apply=f)(),
}


@pytest.mark.parametrize("place", FLAGS)
def test_a_flag_that_is_neither_true_nor_false_is_named(place):
    argument, _, taker = place.partition(" of ")
    with pytest.raises(hkx.errors.NotABoolError, match=rf"`{argument}` of `{taker}` must be True or False, got array"):
        hkx.transform_with_state(lambda: FLAGS[place](TWO)).init(0)


NO_FUNCTIONS = {
    "hkx.grad": lambda f: hkx.grad(f),
    "hkx.value_and_grad": lambda f: hkx.value_and_grad(f),
    "hkx.jit": lambda f: hkx.jit(f),
    "hkx.remat": lambda f: hkx.remat(f),
}


@pytest.mark.parametrize("name", NO_FUNCTIONS)
def test_what_is_no_function_is_named(name):
    for wrong in (3, "f", X):
        with pytest.raises(hkx.errors.NotAFunctionError, match=f"(?s)`{name}` was given .* as `fun`"):
            NO_FUNCTIONS[name](wrong)


OTHERS = {
    r"`axis_size` must be an integer, at least 0, got \[2\]": lambda: mapped(axis_size=[2]),
    r"`mapping` of `hkx.data_structures.to_mutable_dict` is None": lambda: hkx.data_structures.to_mutable_dict(None),
    r"`mapping` of `hkx.data_structures.to_immutable_dict` is \[\]": lambda: hkx.data_structures.to_immutable_dict([]),
    r"`superset` of `.*is_subset` is 3": lambda: hkx.data_structures.is_subset(subset={}, superset=3),
    r"`n` must be an integer, at least 0, got 1.5": (
        lambda: hkx.data_structures.partition_n(lambda *_: 0, {"a": {"b": 1}}, 1.5)
    ),
    r"`kernel` must be an integer, got 2.5": lambda: hkx.pad.create(hkx.pad.same, 2.5, 1, 2),
    r"`rate` must be an integer, got 'x'": lambda: hkx.pad.create(hkx.pad.same, 3, "x", 2),
    r"`n` must be an integer, at least 0, got None": lambda: hkx.pad.create(hkx.pad.same, 3, 1, None),
    r"`n` must be an integer, at least 0, got 'x'": lambda: hkx.pad.create_from_tuple((1, 1), "x"),
    r"`padding` must be a pair, or a sequence of pairs, got array": lambda: hkx.pad.create_from_tuple(TWO, 2),
    r"The column.s. must be a list of names, got Array": lambda: tabulated(columns=SCALAR),
    r"The filter.s. must be a list of names, got Array": lambda: tabulated(filters=SCALAR),
    r"`tabulate_kwargs` must be a mapping, such as .*, got 'grid'": lambda: tabulated(tabulate_kwargs="grid"),
    "is not a valid module name": lambda: hkx.layer_stack(2, name=TWO)(jnp.tanh)(X),
    "identifier": lambda: hkx.name_scope("a", method_name=TWO).__enter__(),
    r"`init` must be one of .*, got array": lambda: hkx.transform(jnp.tanh, init=TWO),
}


@pytest.mark.parametrize("text", OTHERS)
def test_an_option_of_another_kind_is_named(text):
    with pytest.raises((TypeError, ValueError), match=text):
        hkx.transform(OTHERS[text]).init(0)


def test_an_integer_may_be_an_array():
    expected = hkx.pad.create(hkx.pad.causal, 3, 2, 2)
    assert hkx.pad.create(hkx.pad.causal, np.int64(3), jnp.array(2), jnp.array(2)) == expected == ((4, 0), (4, 0))
    assert hkx.pad.create_from_tuple((1, 2), jnp.array(2)) == ((1, 2), (1, 2))
    several = hkx.vmap(lambda x: 2 * x, in_axes=None, out_axes=None, axis_size=jnp.array(2), split_rng=False)
    assert hkx.testing.transform_and_run(lambda: several(X))().shape == (2, 3)
    assert jax.tree.leaves(hkx.data_structures.partition_n(lambda *_: 1, {"a": {"b": 1}}, np.int8(2))) == [1]
