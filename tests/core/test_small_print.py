"""Counters, reserves, flags and limits that programs seldom meet, each beside a plain model of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx import errors

pytestmark = pytest.mark.unoptimised
X = jnp.ones([2, 3])


def bits(keys: Any) -> list[Any]:
    return [
        np.asarray(jax.random.key_data(k) if jnp.issubdtype(k.dtype, jax.dtypes.prng_key) else k).tolist() for k in keys
    ]


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
