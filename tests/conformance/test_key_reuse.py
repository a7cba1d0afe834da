"""`jax.debug_key_reuse` finds no key that hkx uses twice, in `init` and `apply`, and finds those of a user."""

import jax
import jax.numpy as jnp
import pytest
from layer_registry import CASES

import hkx

pytestmark = pytest.mark.unoptimised


@pytest.fixture(autouse=True)
def checked():
    with jax.debug_key_reuse(True):
        yield


def keys(n):
    return jax.random.split(jax.random.key(0), n)


def init_and_apply(model, *args):
    def run(key):
        of_init, of_apply = jax.random.split(key)
        return model.apply(*model.init(of_init, *args), of_apply, *args)

    return run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_modules(case):
    model = hkx.transform_with_state(lambda *args: case.call(hkx, *args))
    jax.eval_shape(init_and_apply(model, *case.arrays()), jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_modules_on_values_and_for_several_keys(case):
    model = hkx.transform_with_state(lambda *args: case.call(hkx, *args))
    run = init_and_apply(model, *case.arrays())
    run(jax.random.key(0))
    if case.name != "decoder":  # in `jax.vmap`, JAX takes a chain of two splits for reuse
        jax.eval_shape(jax.vmap(run), keys(2))


def of_values(x):
    scale = hkx.get_parameter("scale", [3], init=hkx.initializers.RandomNormal())
    return x * scale if float(x[0] * scale[0]) < 9 else x


def in_reserve(x):
    hkx.reserve_rng_keys(5)
    return x + sum(map(jax.random.normal, hkx.next_rng_keys(3))) + hkx.Linear(3)(x)


def key_as_state(x):
    hkx.set_state("key", hkx.next_rng_key())
    return x + jax.random.normal(hkx.get_state("key"))


def ensemble(x):
    f = hkx.vmap(lambda x: hkx.Linear(3)(x), in_axes=None, param_axes=0, axis_size=4, split_rng=True)
    return f(x) + hkx.vmap(lambda x: hkx.dropout(hkx.next_rng_key(), 0.5, hkx.Linear(3)(x)), split_rng=True)(x[None])


def lifted(x):
    inner = hkx.transform(lambda x: hkx.Linear(3)(x))
    return inner.apply(hkx.lift(inner.init, name="inner")(hkx.next_rng_key(), x), None, x)


@pytest.mark.parametrize("way", ["traced", "eager", "check"])
@pytest.mark.parametrize(
    "f", [of_values, in_reserve, key_as_state, pytest.param(ensemble, marks=pytest.mark.slow), lifted]
)
def test_programs_on_values(f, way):
    init_and_apply(hkx.transform_with_state(f, init=way), jnp.ones(3))(jax.random.key(0))


def used_twice(x):
    key = hkx.next_rng_key()
    return hkx.Linear(3)(x) + jax.random.normal(key) + jax.random.uniform(key)


def test_a_key_that_is_used_twice_is_found():
    model, x = hkx.transform(used_twice), jnp.ones(3)
    for init in (model.init, jax.jit(model.init), hkx.transform(used_twice, init="eager").init):
        with pytest.raises(jax.errors.KeyReuseError):
            init(jax.random.key(0), x)
    key, drop = jax.random.key(0), hkx.transform(lambda x: hkx.dropout(hkx.next_rng_key(), 0.5, hkx.Linear(3)(x)))
    params = drop.init(key, x)
    with pytest.raises(jax.errors.KeyReuseError):
        drop.apply(params, key, x)
