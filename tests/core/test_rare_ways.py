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


def test_what_stands_for_nothing_stored_has_neither_shape_nor_dtype():
    assert repr(hkx.DO_NOT_STORE) == "DO_NOT_STORE"
    with pytest.raises(ValueError, match="it has no `shape`"):
        _ = hkx.DO_NOT_STORE.shape
    with pytest.raises(ValueError, match="no `shape` and no `dtype`"):
        _ = hkx.DO_NOT_STORE.dtype


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


class Child(hkx.Module):
    def __init__(self, name=None):
        super().__init__(name)
        self.inner = hkx.Linear(3)

    def __call__(self, x):
        return self.inner(x)


class Parent(hkx.Module):
    def __init__(self):
        super().__init__()
        self.child = Child()

    def __call__(self, x):
        out = self.child(x)
        self.child.__init__("other")
        return out + self.child(x)


class Helper(hkx.Module):
    def construct(self, module, name):
        hkx.Module.__init__(module, name)


class ConstructedByAnother(hkx.Module):
    def __init__(self, helper):
        helper.construct(self, "by_another")
        self.inner = hkx.Linear(3)

    def __call__(self, x):
        return self.inner(x)


def constructed_twice(x):
    child = Child()
    out = child(x)
    child.__init__()
    return out + child(x)


@pytest.mark.parametrize(
    "f, modules",
    [
        (constructed_twice, ["child/~/linear", "linear"]),  # the second constructor runs in f, as any call of f's does
        (lambda x: Parent()(x), ["parent/~/child/~/linear", "parent/linear"]),
        (lambda x: ConstructedByAnother(Helper())(x), ["by_another/~/linear"]),
    ],
)
def test_a_constructor_that_is_called_by_hand_names_what_it_makes_after_where_it_runs(f, modules):
    assert list(hkx.transform(f).init(0, X)) == modules


def test_what_a_constructor_called_by_hand_is_named_after():
    def f(x):
        parent = Parent()
        parent(x)
        child = Child()
        child.__init__()
        return [m.module_name for m in (parent.child, child, ConstructedByAnother(Helper()))]

    assert hkx.transform(f).apply(hkx.transform(f).init(0, X), None, X) == ["parent/other", "child_1", "by_another"]


def test_what_only_looks_like_a_module_is_none():
    """Python 3.11 would go by the attributes, since the metaclass is that of protocols too."""
    names = {name for name in dir(hkx.Module) if not name.startswith("__")} | {*hkx.Module.__annotations__}
    alike = type("Alike", (), dict.fromkeys(names))
    assert not isinstance(alike(), hkx.Module)
