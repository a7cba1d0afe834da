"""Every module of the registry, held to every property."""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import layer_golden
import numpy as np
import pytest
from layer_registry import CASES, Case

import hkx
from hkx.init.create import run_initialising

GOLDEN = json.loads(layer_golden.GOLDEN.read_text())
KEY = jax.random.PRNGKey(1)
# scope: all tests of one module follow each other, so that each compiles what the ones before have not.
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name, scope="module")
main = pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=() if c.main else pytest.mark.slow) for c in CASES], scope="module"
)


@functools.cache
def model(case: Case) -> Any:
    """The transformed function; its outputs and its new state come out together."""
    return hkx.transform_with_state(lambda *args: case.call(hkx, *args))


@functools.cache
def compiled(case: Case) -> Any:
    return jax.jit(model(case).apply)


def initialised(case: Case) -> Any:
    return model(case).init(jax.random.PRNGKey(layer_golden.SEED), *case.arrays())


initial = functools.cache(initialised)  # for tests that compare no bits of it


@functools.cache
def expected(case: Case) -> Any:
    """What the compiled function returns."""
    return compiled(case)(*initial(case), KEY, *case.arrays())


def assert_close(actual: Any, desired: Any, tolerance: float) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(desired)
    for a, d in zip(jax.tree.leaves(actual), jax.tree.leaves(desired), strict=True):
        assert np.shape(a) == np.shape(d)
        a, d = np.asarray(a), np.asarray(d)
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, d)
        else:
            a, d = a.astype(np.float64), d.astype(np.float64)
            scale = max(1.0, np.max(np.abs(d), initial=0.0))
            np.testing.assert_allclose(a, d, rtol=0, atol=tolerance * scale)


@each
def test_initial_values(case: Case) -> None:
    """Names, shapes, dtypes and bits are those that dm-haiku makes from the same seed; they were recorded, on a CPU."""
    if case.ours:
        pytest.skip("Haiku has no such module")
    params, state = initialised(case)
    found, golden = layer_golden.described(params), GOLDEN[case.name]["params"]
    if jax.default_backend() != "cpu":  # the error function has other last bits
        found, golden = ({name: facts[:2] for name, facts in some.items()} for some in (found, golden))
    assert found == golden
    states = {name: facts[:2] for name, facts in layer_golden.described(state).items()}
    assert states == GOLDEN[case.name]["state"]


@main
def test_init_without_forward_pass(case: Case) -> None:
    """The shape-only init gives what an ordinary run gives."""
    ordinary = run_initialising(
        lambda *args: case.call(hkx, *args), jax.random.PRNGKey(layer_golden.SEED), case.arrays()
    )
    params, state = initialised(case)
    assert_close(params, ordinary[0], 0.0)
    assert_close(state, ordinary[1], 1e-6)


@each
@pytest.mark.unoptimised
def test_jit(case: Case) -> None:
    eager = model(case).apply(*initial(case), KEY, *map(jnp.asarray, case.arrays()))
    assert_close(expected(case), eager, 1e-6)


@each
@pytest.mark.unoptimised
def test_vmap(case: Case) -> None:
    """A mapped call is a loop of calls."""
    if case.no_vmap:
        pytest.skip("JAX does not map jax.lax.ragged_dot")
    other = case.arrays(seed=100)
    both = [np.stack(pair) for pair in zip(case.arrays(), other, strict=True)]
    mapped = jax.jit(jax.vmap(model(case).apply, in_axes=(None, None, None, *(0 for _ in both))))
    second = compiled(case)(*initial(case), KEY, *other)
    loop = jax.tree.map(lambda *xs: np.stack(xs), expected(case), second)
    assert_close(mapped(*initial(case), KEY, *both), loop, 1e-5)


@each
@pytest.mark.unoptimised
def test_numpy_inputs(case: Case) -> None:
    """Parameters, state and inputs may be NumPy arrays, without a transform around them."""
    values = jax.tree.map(np.asarray, initial(case))
    out, state = model(case).apply(*values, KEY, *case.arrays())
    assert_close((out, state), expected(case), 1e-6)


@pytest.mark.parametrize("dtype,tolerance", [(jnp.bfloat16, 3e-2), (np.float16, 4e-3)], ids=["bfloat16", "float16"])
@main
@pytest.mark.unoptimised
def test_half_precision(case: Case, dtype: Any, tolerance: float) -> None:
    """Parameters are made in the dtype of the inputs; the result is that of float32 up to rounding."""
    made = jax.eval_shape(model(case).init, KEY, *case.arrays(dtype))
    wide = "latent_attention", "mixture_of_experts"  # norms and routers compute, and make parameters, in float32
    if case.inputs[0].high == 0 and not _has_float32_state(case) and case.name not in wide:
        assert {x.dtype for x in jax.tree.leaves(made[0])} <= {jnp.dtype(dtype)}
    half = jax.tree.map(lambda x, spec: jnp.asarray(x, spec.dtype), initial(case), made)
    got = compiled(case)(*half, KEY, *case.arrays(dtype))
    assert all(np.isfinite(np.asarray(x, np.float64)).all() for x in jax.tree.leaves(got))
    if case.rng:  # the noise is drawn in the dtype of the inputs
        return
    single = jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), half, initial(case))
    args = [jnp.asarray(a, b.dtype) for a, b in zip(case.arrays(dtype), case.arrays(), strict=True)]
    assert_close(got, compiled(case)(*single, KEY, *args), tolerance * case.loose)


def _has_float32_state(case: Case) -> bool:
    """Cores start from a state of float32, and so make float32 parameters for it."""
    return any(word in case.name for word in ("rnn", "lstm", "reset", "unroll", "bidirectional"))


@main
@pytest.mark.unoptimised
def test_float64(case: Case) -> None:
    """In 64 bits nothing is rounded to 32 on the way."""
    single = initial(case)  # kept for other tests: not to be made in 64 bits
    with jax.enable_x64(True):
        args = case.arrays(np.float64)
        made = jax.eval_shape(model(case).init, KEY, *args)
        assert {x.dtype for x in jax.tree.leaves(made[0])} <= {np.dtype(np.float64), np.dtype(np.float32)}
        values = jax.tree.map(lambda x, spec: jnp.asarray(x, spec.dtype), single, made)
        out, state = jax.jit(model(case).apply)(*values, KEY, *args)
    if not case.rng:
        assert_close((out, state), expected(case), 1e-5)
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves((out, state)))


@main
@pytest.mark.unoptimised
def test_no_leaks(case: Case) -> None:
    """No tracer stays behind, in `init` or in `apply`."""
    fresh = hkx.transform_with_state(lambda *args: case.call(hkx, *args))
    with jax.checking_leaks():
        jax.eval_shape(fresh.init, KEY, *case.arrays())
        jax.eval_shape(fresh.apply, *initial(case), KEY, *case.arrays())
