"""Programs written for Haiku that came out differently once: each runs as Haiku runs it."""

import importlib.metadata

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
import hkx as hk
import rlx

X = jnp.ones([2, 3])


def needs_a_value(h):
    """What makes `init` run the function a second time."""
    return h if float(h.sum()) > 0 else -h


def test_an_error_is_that_of_the_first_run():
    def f(batch):
        del batch["x"]
        raise RuntimeError("mine")

    for init in (hk.transform(f).init, jax.jit(hk.transform(f).init)):
        with pytest.raises(RuntimeError, match="mine"):
            init(jax.random.PRNGKey(0), {"x": 1.0})


@pytest.mark.slow
def test_a_getter_that_casts_leaves_the_parameters_in_the_dtype_of_the_input():
    def f(x):
        with hk.custom_getter(lambda next_getter, value, context: next_getter(value.astype(jnp.bfloat16))):
            return hk.nets.MLP([2, 3])(x)

    model = hk.transform(f)
    params = model.init(0, X)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.float32)}
    assert model.init(0, X.astype(jnp.float16))["mlp/~/linear_0"]["b"].dtype == jnp.float16


def test_the_version_is_that_of_the_distribution():
    assert hkx.__version__ == rlx.__version__ == importlib.metadata.version("hkx")


class Table(hk.Module):
    def __getitem__(self, i):
        return hk.get_parameter(f"row_{i}", [], init=jnp.zeros)

    def __matmul__(self, x):
        return hk.Linear(2)(x)

    def __call__(self, x):
        return self[0] + self @ x


def test_operators_make_their_parameters_where_they_are_used():
    def f(x):
        table = Table()
        return table(x) + table[1] + table @ x

    assert hk.transform(f).init(0, X).keys() == {"table", "table/linear", "~", "linear"}
    assert list(hk.transform(f).init(0, X)["~"]) == ["row_1"]


@pytest.mark.parametrize("get", [hk.get_parameter, hk.get_state])
def test_shapes_of_arrays(get):
    shapes = jnp.array([2, 3]), np.array([2, 3]), (jnp.int32(2), 3), [np.int64(2), jnp.uint8(3)]
    made = hk.transform_with_state(lambda: [get(f"w{i}", s, init=jnp.ones) for i, s in enumerate(shapes)]).init(None)
    assert [a.shape for a in jax.tree.leaves(made)] == [(2, 3)] * 4


@pytest.mark.parametrize("shape", [[-1], "a", [2.0], [None]])
def test_states_of_no_shape(shape):
    with pytest.raises(hk.errors.InvalidShapeError, match="~/n"):
        hk.transform_with_state(lambda: hk.get_state("n", shape, init=jnp.zeros)).init(None)


def test_a_shape_is_what_the_initializer_of_a_state_takes():
    def f():
        hk.get_state("pair", [(2,), (3,)], init=lambda shapes, dtype: [jnp.zeros(s, dtype) for s in shapes])
        hk.get_state("three", 3, init=jnp.zeros)

    _, state = hk.transform_with_state(f).init(None)
    assert jax.tree.map(jnp.shape, state["~"]) == {"pair": [(2,), (3,)], "three": (3,)}


def test_an_initializer_that_returns_none():
    with pytest.raises(ValueError, match="'~/w' is None of type NoneType"):
        hk.transform(lambda: hk.get_parameter("w", [], init=lambda *_: None)).init(None)
