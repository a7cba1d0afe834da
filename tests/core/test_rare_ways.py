"""What programs seldom ask for, and find when they do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx import errors

pytestmark = pytest.mark.unoptimised

X = jnp.ones([2, 3])


def test_a_deferred_module_is_reached_through_what_defers_it():
    class Tower(hkx.Module):
        def __call__(self, x):
            return hkx.Linear(2)(x)

        def twice(self, x):
            return 2 * self(x)

    def f(x):
        tower = hkx.Deferred(Tower, call_methods=["__call__", "twice"])
        tower.note = "before it is made"
        del tower.note
        with pytest.raises(AttributeError):
            _ = tower.note
        out = tower.twice(x)
        tower.note = "kept by the module"
        assert tower.target.note == "kept by the module" and tower.module_name == "tower"
        del tower.note
        assert not hasattr(tower.target, "note")
        assert str(tower) == repr(tower) == f"Deferred({tower.target!r})"
        return out, tower(x)

    model = hkx.transform(f)
    params = model.init(0, X)
    assert list(params) == ["tower/linear"]
    twice, once = model.apply(params, None, X)
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-6)


def test_a_deferred_module_may_be_made_with_no_transform_around_its_deferral():
    later = hkx.Deferred(lambda: hkx.Linear(2))
    assert list(hkx.transform(lambda x: later(x)).init(0, X)) == ["linear"]


def test_a_context_looks_at_the_end_whether_all_that_was_lifted_was_used():
    def leave_one():
        hkx.lift_with_state(hkx.transform_with_state(lambda: None).init)[0](None)

    with pytest.raises(errors.StateUpdaterError, match="in the function that made it"), hkx.new_context(rng=0):
        leave_one()
    with pytest.raises(ZeroDivisionError), hkx.new_context(rng=0):  # the first error is the one that is told
        leave_one()
        _ = 1 / 0


@pytest.mark.parametrize("core", [lambda: hkx.ResetCore(hkx.GRU(3)), lambda: hkx.DeepRNN([hkx.GRU(3), hkx.LSTM(2)])])
def test_a_sequence_batch_first_is_that_with_time_first(core):
    xs = jax.random.normal(jax.random.key(1), [2, 4, 3])

    def unrolled(unroll, xs, time_major):
        def f(xs):
            cell = core()
            given = (xs, jnp.zeros(xs.shape[:2], bool).at[..., 1].set(True)) if isinstance(cell, hkx.ResetCore) else xs
            if time_major:
                given = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), given)
            return unroll(cell, given, cell.initial_state(2), time_major=time_major)[0]

        model = hkx.transform(f)
        return model.apply(model.init(jax.random.key(0), xs), None, xs)

    for unroll in (hkx.static_unroll, hkx.dynamic_unroll):
        time_first = unrolled(unroll, xs, True)
        assert time_first.shape[:2] == (4, 2)
        np.testing.assert_allclose(unrolled(unroll, xs, False), jnp.swapaxes(time_first, 0, 1), rtol=1e-5, atol=1e-5)
