"""Raw JAX transforms inside a transformed function, and loops that cannot be run, stop with an error that says why."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hkx
from hkx import errors

KEY = jax.random.key(0)
X = jnp.arange(6.0).reshape(3, 2)


def linear(x: Any) -> Any:
    return hkx.Linear(1)(x)


def noisy(x: jax.Array) -> jax.Array:
    return x + jax.random.uniform(hkx.next_rng_key())


def test_keys_that_a_raw_vmap_left_behind_are_named_where_they_are_needed() -> None:
    def f(x: jax.Array, again: bool) -> jax.Array:
        y = jax.vmap(lambda v: hkx.cond(v.sum() > 0, noisy, jnp.negative, v))(x)
        y = hkx.remat(jnp.tanh)(y)  # needs no key
        return noisy(y) if again else y

    assert hkx.transform(f).apply({}, KEY, X, False).shape == X.shape  # as with Haiku
    with pytest.raises(errors.KeyInInnerTraceError):
        hkx.transform(f).apply({}, KEY, X, True)


BROKEN = {
    "carry_dtype": (lambda x: hkx.scan(lambda c, v: (c.astype(jnp.bfloat16), v), x[0], x), errors.CarryMismatchError),
    "carry_structure": (lambda x: hkx.scan(lambda c, v: ((c, c), v), x[0], x), errors.CarryMismatchError),
    "no_pair": (lambda x: hkx.scan(lambda c, v: c, x[0], x), errors.BodyResultError),
    "no_length": (lambda x: hkx.scan(lambda c, v: (c, v), x, None), errors.ScanLengthError),
    "lengths": (lambda x: hkx.scan(lambda c, v: (c, v), x, (x, x[:2])), errors.ScanLengthError),
    "fori_shape": (lambda x: hkx.fori_loop(0, 3, lambda i, v: v[None], x), errors.CarryMismatchError),
    "while_shape": (lambda x: hkx.while_loop(lambda v: v.sum() < 0, lambda v: v[None], x), errors.CarryMismatchError),
    "no_branches": (lambda x: hkx.switch(0, [], x), ValueError),
    "float_index": (lambda x: hkx.switch(0.5, [linear], x), TypeError),
    "batched_parameter": (
        lambda x: hkx.vmap(lambda v: hkx.get_parameter("s", [2], init=lambda s, d: v), split_rng=False)(x),
        errors.BatchedValueError,
    ),
    "batched_keys_in_a_loop": (
        lambda x: hkx.vmap(lambda v: hkx.while_loop(lambda v: v.sum() < 9, noisy, v), split_rng=False)(x),
        errors.BatchedKeysError,
    ),
    "layer_shape": (lambda x: hkx.layer_stack(2)(lambda x: x[:1])(x), errors.CarryMismatchError),
    "layer_map": (lambda x: hkx.layer_stack(2, transparent=True)(linear)(x), errors.LayerFunctionError),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_run_is_named(name: str) -> None:
    f, error = BROKEN[name]
    model = hkx.transform_with_state(f)
    with pytest.raises(error):
        params, state = model.init(KEY, X)
        model.apply(params, state, KEY, X)


def test_programs_for_haiku_catch_the_kinds_that_they_know() -> None:
    with pytest.raises(ValueError, match="neither inputs nor a length"):
        hkx.transform(BROKEN["no_length"][0]).init(KEY, X)
    with pytest.raises(TypeError, match="pair"):
        hkx.transform(BROKEN["no_pair"][0]).init(KEY, X)
    with pytest.raises(TypeError, match="params argument does not appear valid"):
        hkx.transform(linear).apply(KEY, hkx.transform(linear).init(KEY, X), X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"jax\.jit"):
        hkx.transform(lambda: jax.jit(hkx.next_rng_key)()).apply({}, KEY)


def test_the_message_names_the_leaf() -> None:
    model = hkx.transform(lambda x: hkx.scan(lambda c, v: ({"h": c["h"].astype(int)}, v), {"h": x[0]}, x))
    with pytest.raises(errors.CarryMismatchError, match=r"\['h'\]: given float32\[2\], returned int32\[2\]"):
        model.init(KEY, X)


def test_a_state_created_in_a_loop_in_apply() -> None:
    def f(xs: Any) -> Any:
        if not hkx.running_init():
            hkx.map(lambda x: hkx.set_state("late", x.sum()), xs)

    with pytest.raises(errors.StateInLoopError, match="~/late"):
        hkx.transform_with_state(f).apply({}, {}, None, X)


def label(x: Any) -> Any:
    hkx.set_state("label", {"kind": "text"})
    return x


def test_a_state_that_is_no_array_where_jax_need_not_carry_it() -> None:
    def f(x: Any) -> Any:
        label(x)
        return hkx.grad(lambda v: label(v).sum())(x), hkx.jit(jnp.sin)(x), hkx.remat(jnp.sin)(x)

    (slope, *_), state = hkx.transform_with_state(f).apply({}, {}, None, X)
    assert state == {"~": {"label": {"kind": "text"}}} and (slope == 1).all()


def ruled(f: Any) -> Any:
    function = hkx.custom_jvp(f)
    function.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return function


IN_PLACE = {
    "remat": hkx.remat,
    "jit": hkx.jit,
    "custom_jvp": ruled,
    "associative_scan": lambda f: lambda x: hkx.associative_scan(lambda a, b: f(a + b), x),
    "scan": lambda f: lambda x: hkx.scan(lambda c, _: (f(c), None), x, None, 1)[0],
    "fori_loop": lambda f: lambda x: hkx.fori_loop(0, 1, lambda i, v: f(v), x),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_state_that_is_no_array_in_init_where_no_transform_is_around_it(name: str) -> None:
    _, state = hkx.transform_with_state(IN_PLACE[name](label)).init(None, X)
    assert state == {"~": {"label": {"kind": "text"}}}
