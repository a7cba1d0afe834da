"""Mutable arrays, `jax.new_ref`, in a transformed function: `init` reads in them what an ordinary run would."""

import jax
import jax.numpy as jnp
import jax.ref
import numpy as np
import pytest

import hkx
from hkx.errors import AbstractInitError

pytestmark = pytest.mark.unoptimised

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SHAPE = jax.ShapeDtypeStruct(X.shape, X.dtype)


def from_ref(ref):
    return hkx.get_parameter("w", [3], init=lambda *_: 1 * ref[...])


def added_in_scan(ref, x):
    jax.lax.scan(lambda c, row: (c, jax.ref.addupdate(ref, ..., row)), 0, x)


CHANGES = {
    "set": lambda ref, x: jax.ref.set(ref, ..., x.sum(0)),
    "addupdate": lambda ref, x: jax.ref.addupdate(ref, ..., x.sum(0)),
    "addupdate in a scan": added_in_scan,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("given", ["closed over", "argument"])
@pytest.mark.parametrize("draws", [False, True])
def test_an_initializer_reads_what_was_written_before(draws, given, change):
    def initial(shape, dtype):
        noise = hkx.initializers.RandomNormal()(shape, dtype) if draws else 0
        return ref[...] + 0 * noise

    def f(ref, x):
        CHANGES[change](ref, x)
        return hkx.get_parameter("w", [3], init=initial)

    ref = jax.new_ref(jnp.zeros(3))
    made = hkx.transform(f).init(0, ref, X) if given == "argument" else hkx.transform(lambda: f(ref, X)).init(0)
    np.testing.assert_array_equal(made["~"]["w"], X.sum(0))
    np.testing.assert_array_equal(ref[...], X.sum(0))  # changed once


def test_a_mutable_array_that_is_only_read_needs_no_forward_pass():
    def f(x):
        runs.append(0)
        from_ref(ref)
        return hkx.Linear(2)(x)

    ref, runs = jax.new_ref(jnp.ones(3)), []
    hkx.transform(f).init(0, X)
    assert len(runs) == 1


def made_inside(x, change):
    ref = jax.new_ref(jnp.ones(3))
    ref[...] += 1
    w = from_ref(ref)
    change(ref, x)
    return w, ref


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_written_to_a_mutable_array_needs_arrays_as_arguments(change):
    def f(x):
        ref = made_inside(jax.new_ref(x)[...], CHANGES[change])[1]
        return hkx.Linear(2)(x) + jax.freeze(ref).sum()

    model = hkx.transform(f)
    params, same = model.init(0, X), hkx.transform(f, init="eager").init(0, X)
    np.testing.assert_array_equal(params["~"]["w"], np.full(3, 2.0))
    jax.tree.map(np.testing.assert_array_equal, params, same)
    with pytest.raises(AbstractInitError):
        model.init(0, SHAPE)


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_written_from_a_shape_has_no_value(change):
    def f(x):
        _, ref = made_inside(x, CHANGES[change])
        return hkx.get_parameter("v", [3], init=lambda *_: 1 * ref[...])

    with pytest.raises(AbstractInitError):
        hkx.transform(f).init(None, SHAPE)
