"""Counters, reserves, flags and limits that programs seldom meet, each beside a plain model of it."""

from __future__ import annotations

import collections
import itertools
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx import errors
from hkx.lift.checks import difference, same_type

pytestmark = pytest.mark.unoptimised
X = jnp.ones([2, 3])


class Keys:
    """The sequence of keys as its documentation has it: `key, *new = split(key, n + 1)` whenever none is left."""

    def __init__(self, key: Any, reserve: int):
        self.key, self.left, self.size = key, collections.deque[Any](), reserve

    def reserve(self, num: int) -> None:
        if num:
            self.key, *new = jax.random.split(self.key, num + 1)
            self.left.extend(new)

    def next(self) -> Any:
        if not self.left:
            self.reserve(self.size)
        return self.left.popleft()

    def take(self, num: int) -> list[Any]:
        self.reserve(max(num - len(self.left), 0))
        return [self.left.popleft() for _ in range(num)]


def bits(keys: Any) -> list[Any]:
    return [
        np.asarray(jax.random.key_data(k) if jnp.issubdtype(k.dtype, jax.dtypes.prng_key) else k).tolist() for k in keys
    ]


@pytest.mark.parametrize(("make", "size"), [(jax.random.PRNGKey, 3), (lambda n: jax.random.key(n, impl="rbg"), 1)])
def test_keys_are_those_of_the_model(make: Any, size: int) -> None:
    draw = random.Random(size)
    steps = [(draw.choice(["next", "take", "reserve", "stacked"]), draw.choice([0, 1, 2, 4])) for _ in range(12)]

    def f() -> None:
        model = Keys(make(5), size)
        sequence = hkx.PRNGSequence(make(5))
        for what, num in [("stacked", 3), ("stacked", 1), *steps]:
            if what == "next":
                assert bits([hkx.next_rng_key()]) == bits([next(sequence)]) == bits([model.next()])
            elif what == "reserve":
                hkx.reserve_rng_keys(num)
                sequence.reserve(num)
                model.reserve(num)
            else:
                found, expected = hkx.next_rng_keys(num), model.take(num)
                assert found.shape[0] == num and found.dtype == model.key.dtype
                assert bits(found) == bits(expected) == bits(sequence.take(num))
            state = hkx.maybe_get_rng_sequence_state()
            assert state is not None
            for key, left in (state, sequence.internal_state):
                assert bits([key, *left]) == bits([model.key, *model.left])

    with hkx.config.context(rng_reserve_size=size):
        hkx.transform(f).apply({}, make(5))


def test_a_reserve_is_filled_up_and_cut_to_what_is_said() -> None:
    for before, size in ((0, 2), (1, 3), (4, 2), (2, 2)):
        sequence, model = hkx.PRNGSequence(3), Keys(jax.random.PRNGKey(3), 1)
        sequence.reserve(before)
        model.reserve(before)
        with hkx.config.context(rng_reserve_size=size):
            sequence.reserve_up_to_full()
        model.reserve(size - before if size > before else 0)
        assert len(sequence.internal_state[1]) == size
        assert bits(sequence.internal_state[1]) == bits(list(model.left)[:size])


FLAGS = [(True, False), (False, True), (True, True), (False, False)]


@pytest.mark.parametrize(("params", "state"), FLAGS)
@pytest.mark.parametrize("hook", [hkx.custom_creator, hkx.custom_getter])
def test_a_hook_runs_for_what_its_flags_say(hook: Any, params: bool, state: bool) -> None:
    heard: list[str] = []

    def creator(next_creator: Any, shape: Any, dtype: Any, init: Any, context: Any) -> Any:
        heard.append(context.name)
        return next_creator(shape, dtype, init)

    def getter(next_getter: Any, value: Any, context: Any) -> Any:
        heard.append(context.name)
        return next_getter(value)

    def f() -> None:
        with hook(creator if hook is hkx.custom_creator else getter, params=params, state=state):
            hkx.get_parameter("w", [], init=jnp.ones)
            hkx.get_state("n", [], init=jnp.ones)

    made = hkx.transform_with_state(f).init(0)
    assert heard == ["w"] * params + ["n"] * state
    heard.clear()
    hkx.transform_with_state(f).apply(*made, None)
    assert heard == (["w"] * params + ["n"] * state if hook is hkx.custom_getter else [])


def test_a_setter_hears_dtypes_and_shapes_of_a_tree() -> None:
    heard: list[Any] = []

    def setter(next_setter: Any, value: Any, context: Any) -> Any:
        heard.append(context)
        return next_setter(value)

    def f() -> None:
        with hkx.custom_setter(setter), hkx.name_scope("a/b"):
            hkx.set_state("n", {"x": jnp.ones([2], jnp.bfloat16), "y": (3,)})

    hkx.transform_with_state(f).init(None)
    (context,) = heard
    assert (context.full_name, context.module, context.lifted_prefix_name) == ("a/b/n", None, None)
    assert context.original_shape == {"x": (2,), "y": (None,)}
    assert context.original_dtype == {"x": jnp.bfloat16, "y": (None,)}
    assert (context.module_name, context.name) == ("a/b", "n")


def test_stacks_with_numbers_in_their_names_become_layers_and_back() -> None:
    arrays = {n: np.arange(6.0).reshape(3, 2) + i for i, n in enumerate("abcd")}
    params = {
        "linear": {"w": np.ones(1)},  # beside the stack, and of no layer's name
        "s/linear_4": {"w": arrays["a"]},
        "s/linear_5/~/deep_1": {"w": arrays["b"], "v": arrays["c"]},
        "s/norm": {"w": arrays["d"]},
    }
    flat = hkx.unstack_params(params, "s")
    expected = {"linear": params["linear"]}
    for i in range(3):  # linear_4 and linear_5 are the last of six that a layer has
        expected[f"linear_{4 + 6 * i}"] = {"w": arrays["a"][i]}
        expected[f"linear_{5 + 6 * i}/~/deep_1"] = {"w": arrays["b"][i], "v": arrays["c"][i]}
        expected[f"norm_{i}" if i else "norm"] = {"w": arrays["d"][i]}
    assert jax.tree.structure(flat) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, flat, expected)
    again = hkx.stack_params(flat, jax.eval_shape(lambda: jax.tree.map(jnp.asarray, params)), "s")
    assert jax.tree.structure(again) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, again, params)


def lines(given: Any, returned: Any, **options: Any) -> list[str]:
    return (difference(given, returned, **options) or "").splitlines()


def test_a_difference_names_five_leaves_and_six_that_are_missing() -> None:
    ones, twos = ({f"k{i}": jnp.ones([n]) for i in range(9)} for n in (1, 2))
    assert lines(ones, twos) == [f"  ['k{i}']: given float32[1], returned float32[2]" for i in range(5)]
    assert lines(ones, {}) == [f"  ['k{i}']: given float32[1], returned nothing" for i in range(6)]
    assert lines({}, ones, names=("before", "after")) == [
        f"  ['k{i}']: after float32[1], before nothing" for i in range(6)
    ]
    assert lines(jnp.ones(3), jnp.ones(2)) == ["  the value: given float32[3], returned float32[2]"]
    assert lines((), jnp.ones(2)) == ["  a single value: returned float32[2], given nothing"]
    assert lines((1,), [1]) == [
        "  given the structure PyTreeDef((*,))", "  returned the structure PyTreeDef([*])"
    ]  # fmt: skip
    text = "a"
    assert lines(text, text, alike=same_type) == ["  the value: returned 'a' (not an array)"]


WEAK, HALF, INT, BOOL, KEY = 1.0, jnp.bfloat16(1), jnp.int32(1), jnp.asarray(True), jax.random.key(0)


def loops_take(x: Any, y: Any) -> bool:
    """Whether a loop of JAX's own that is given `x` may return `y`."""
    try:
        jax.eval_shape(lambda: jax.lax.scan(lambda carry, _: (y, None), x, None, length=2))
    except (TypeError, ValueError):  # ValueError: for keys
        return False
    return True


@pytest.mark.parametrize("x64", [False])
def test_a_number_of_python_takes_the_dtype_of_what_it_becomes(x64: bool) -> None:
    with jax.enable_x64(x64):
        numbers = 1, WEAK, True, INT, BOOL, HALF, jnp.float16(1), jnp.float32(1), jnp.int8(1), jnp.asarray(1.0), KEY
        for x, y in itertools.product(numbers, repeat=2):
            assert (difference(x, y) is None) == loops_take(x, y), (x, y)
    for x, y in ((jnp.ones(2), jnp.ones(3)), ("a", "a"), ("a", 1), (1, "a")):
        assert difference(x, y) is not None, (x, y)
    assert same_type(jnp.ones(2), np.ones(2, np.float32)) and same_type(1.0, jnp.float32(1))
    for x, y in ((1, 1.0), (jnp.ones(2), jnp.ones(1)), ("a", 1), (1, "a"), (HALF, 1.0)):
        assert not same_type(x, y), (x, y)


def stacked_along(axis: Any, **options: Any) -> Any:
    def f(x: Any) -> Any:
        return hkx.vmap(lambda x: hkx.Linear(2)(x), param_axes=axis, split_rng=True, **options)(x)

    return hkx.transform(f)


@pytest.mark.parametrize("axis", [0, 1, -1, lambda module, name: 1 if name == "w" else None])
def test_ensembles_along_any_axis(axis: Any) -> None:
    x, model = jnp.arange(12.0).reshape(4, 3), stacked_along(axis)
    params = model.init(0, x)
    w = params["linear"]["w"]
    place = axis if isinstance(axis, int) else 1
    assert w.shape == {0: (4, 3, 2), 1: (3, 4, 2), -1: (3, 2, 4)}[place]
    shared = callable(axis)
    assert params["linear"]["b"].shape == ((2,) if shared else {0: (4, 2), 1: (2, 4), -1: (2, 4)}[place])
    each = np.moveaxis(np.asarray(w), place, 0)
    assert len({m.tobytes() for m in each}) == 4
    np.testing.assert_allclose(model.apply(params, None, x), np.einsum("nd,ndh->nh", x, each), rtol=1e-6)
    for wrong in (jnp.ones([5, 5, 5]), jnp.ones([])):
        with pytest.raises(errors.MappedSizeError, match="linear/w"):
            model.apply({"linear": {**params["linear"], "w": wrong}}, None, x)


def test_an_axis_that_an_entry_does_not_have_is_named() -> None:
    for axis in (2, -3):  # of a bias [2], which has two with the mapped one
        model = stacked_along(lambda module, name, axis=axis: axis if name == "b" else 0)
        good = {"linear": {"w": jnp.ones([4, 3, 2]), "b": jnp.ones([4, 2])}}
        with pytest.raises(errors.MappedSizeError, match="linear/b"):
            model.apply(good, None, jnp.ones([4, 3]))


@pytest.mark.slow
@pytest.mark.eight_devices
def test_every_device_draws_keys_of_its_own_if_asked() -> None:
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    out = jax.P(("a", "b"))

    def draws(split: bool, **options: Any) -> Any:
        def f() -> Any:
            body = lambda: jax.random.uniform(hkx.next_rng_key(), [1])  # noqa: E731
            return hkx.shard_map(
                body, mesh=mesh, in_specs=(), out_specs=out, split_rng=split, check_vma=False, **options
            )(), hkx.next_rng_key()

        return hkx.transform(f).apply({}, jax.random.key(3))

    drawn, after = draws(True)
    first = hkx.PRNGSequence(jax.random.key(3))
    key = next(first)
    expected = [
        jax.random.uniform(next(hkx.PRNGSequence(jax.random.fold_in(jax.random.fold_in(key, a), b))))
        for a in range(4)
        for b in range(2)
    ]
    np.testing.assert_array_equal(drawn, expected)
    assert bits([after]) == bits([next(first)])
    same, _ = draws(False)
    assert len(set(same.tolist())) == 1 and same[0] == jax.random.uniform(key)


def test_initial_states_have_weak_dtypes_where_those_of_the_ordinary_run_do() -> None:
    def f() -> None:
        hkx.set_state("a", jnp.broadcast_to(1.0, [2]))
        hkx.set_state("b", jnp.broadcast_to(np.float32(1), [2]))
        hkx.set_state("c", jnp.full([2], 1.0))
        hkx.set_state("d", 2 * jnp.full([2], 1.0))
        hkx.set_state("e", jnp.zeros(2))

    (_, traced), (_, eager) = (hkx.transform_with_state(f, init=way).init(0) for way in ("traced", "eager"))
    assert jax.tree.map(jax.typeof, traced) == jax.tree.map(jax.typeof, eager)
    assert [jax.typeof(x).weak_type for x in traced["~"].values()] == [True, False, True, True, False]
