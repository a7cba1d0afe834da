"""Every lifted function, alone and around every other one, gives what the plain Python program gives."""

from __future__ import annotations

import itertools
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lift_table import NESTED, REVERSE_MODE, TABLE, F, body

import hkx
from hkx.init.create import run_initialising

pytestmark = pytest.mark.unoptimised

KEY = jax.random.key(3)
X = jnp.array([0.3, -0.7])


def program(f: F) -> Any:
    """With a parameter and a key asked for afterwards, which show where the keys stand."""

    def run(x: jax.Array) -> Any:
        y = f(x)
        return (
            y,
            hkx.get_parameter("after", [2], init=hkx.initializers.RandomNormal()),
            jax.random.key_data(hkx.next_rng_key()),
        )

    return run


def assert_close(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6, err_msg=jax.tree_util.keystr(path))


def perturbed(params: Any) -> Any:
    return jax.tree.map(lambda p: p * 1.2 + 0.1, params)


FULLY = ["cond_true"]


@pytest.mark.parametrize("name", [n if n in FULLY else pytest.param(n, marks=pytest.mark.slow) for n in TABLE])
def test_derivatives_and_vmap(name: str) -> None:
    lifted, plain = program(TABLE[name].lifted(body)), program(TABLE[name].plain(body))
    model, reference = hkx.transform_with_state(lifted), hkx.transform_with_state(plain)
    expected = run_initialising(plain, KEY, (X,))
    assert_close(model.init(KEY, X), expected)
    assert_close(run_initialising(lifted, KEY, (X,)), expected)
    params, state = perturbed(expected[0]), expected[1]

    def run(apply: Any, params: Any, x: jax.Array) -> Any:
        (y, *rest), new = apply(params, state, jax.random.key(9), x)
        return y.sum(), (y, rest, new)

    def derived(apply: Any) -> Any:
        if name == "while_loop":  # has no gradient
            return jax.jit(lambda p, x: run(apply, p, x))(params, X), None
        return jax.jit(jax.value_and_grad(lambda p, x: run(apply, p, x), (0, 1), has_aux=True))(params, X)

    expected = derived(reference.apply)
    assert_close(derived(model.apply), expected)
    assert_close(run(model.apply, params, X), expected[0])
    xs = jnp.stack([X, 2 * X, -X])
    mapped = jax.jit(jax.vmap(lambda x: run(model.apply, params, x)[1][0]))(xs)
    assert_close(mapped, jnp.stack([run(reference.apply, params, x)[1][0] for x in xs]))


def check(lifted: Any, plain: Any) -> None:
    model, reference = hkx.transform_with_state(lifted), hkx.transform_with_state(plain)
    expected = run_initialising(plain, KEY, (X,))
    assert_close(model.init(KEY, X), expected)
    params, state = perturbed(expected[0]), expected[1]
    assert_close(
        jax.jit(model.apply)(params, state, jax.random.key(9), X), reference.apply(params, state, jax.random.key(9), X)
    )


def pair(outer: str, inner: str) -> None:
    if outer in REVERSE_MODE and inner == "while_loop":
        pytest.skip("a while loop has no reverse-mode derivative")
    check(
        program(NESTED[outer].lifted(NESTED[inner].lifted(body))),
        program(NESTED[outer].plain(NESTED[inner].plain(body))),
    )


@pytest.mark.parametrize("name", [n for n in TABLE if n not in FULLY])
def test_alone(name: str) -> None:
    check(program(TABLE[name].lifted(body)), program(TABLE[name].plain(body)))


# What the table does not have, and the file of its own tests: functions of another form than one array to one array.
ELSEWHERE = {
    "test_lift_extras.py": "associative_scan custom_jvp custom_vjp layer_stack shard_map",
    "test_options.py": "eval_shape",
    "test_lift_arguments.py": "stack_params unstack_params",
    "test_vs_haiku.py": "lift lift_with_state transparent_lift transparent_lift_with_state",
}
NO_FUNCTIONS_OF_FUNCTIONS = {"Carry", "Pure", "LayerStackTransparencyMapping", "LiftWithStateUpdater"}


def test_everything_exported_is_in_the_table() -> None:
    exported = {
        n for home, names in vars(hkx)["_EXPORTS"].items() if home.startswith("hkx.lift") for n in names.split()
    }
    assert hkx.checkpoint is hkx.remat
    in_table = {name for name in exported if any(entry.startswith(name) for entry in TABLE)} | {"checkpoint"}
    elsewhere = set()
    for file, names in ELSEWHERE.items():
        source = (pathlib.Path(__file__).parent / file).read_text()
        elsewhere |= {name for name in names.split() if re.search(rf"\b{name}\(", source)}
    assert exported - in_table - elsewhere == NO_FUNCTIONS_OF_FUNCTIONS


FEW = ["scan", "cond_true", "vmap_split_keys"]


@pytest.mark.parametrize("inner", FEW)
@pytest.mark.parametrize("outer", FEW)
def test_nested(outer: str, inner: str) -> None:
    pair(outer, inner)


REST = [names for names in itertools.product(NESTED, NESTED) if not {*names} <= {*FEW}]


@pytest.mark.slow
@pytest.mark.parametrize(("outer", "inner"), REST)
def test_nested_any(outer: str, inner: str) -> None:
    pair(outer, inner)


def drawing(x: jax.Array) -> jax.Array:
    return body(x) + jax.random.uniform(hkx.next_rng_key(), [2])


@pytest.mark.parametrize("name", TABLE)
def test_no_key_is_used_twice_in_the_eyes_of_jax(name: str) -> None:
    model = hkx.transform_with_state(program(TABLE[name].lifted(drawing)))

    def run(key: jax.Array) -> Any:
        of_init, of_apply = jax.random.split(key)
        return model.apply(*model.init(of_init, X), of_apply, X)

    with jax.debug_key_reuse(True):
        jax.eval_shape(run, jax.random.key(0))
