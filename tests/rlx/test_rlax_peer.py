"""Every operator of RLax against RLax itself: values and gradients, over random values, masks, flags and dtypes.

Shapes are few and fixed, so that each operator is compiled once for each, and the values are what varies.
"""

import functools
import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzzing import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operator_checks import assert_close, cast, weighted_sum
from operator_registry import RLAX as CASES

import rlx

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    rlax = pytest.importorskip("rlax", reason="compares with RLax, which is not installed")

# RLax warns of its own deprecated functions, and reaches into distrax, which uses what JAX deprecates.
pytestmark = [
    pytest.mark.unoptimised,
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
few = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
many = cases(40)
seeds = st.integers(0, 2**32 - 1)

# RLax lets gradients into the target of the quantile regression itself although its flag says not to.
DIFFERENT_GRADIENTS = {"quantile_regression_loss": ("dist_target",)}
NOT_IN_RLAX = {"importance_corrected_td_errors", "hyperbolic_sin", "hyperbolic_arcsin"}


class Peer:
    """RLax, with what it keeps in private modules at the top."""

    def __getattr__(self, name):
        if name in NOT_IN_RLAX:
            pytest.skip(f"RLax does not export {name}; its oracle stands for it")
        return getattr(rlax, name)


PEER = Peer()


@functools.cache
def compiled(name, library):
    """(results, gradients for every float argument) of one operator, for a batch."""
    case = next(case for case in CASES if case.name == name)

    def both(arguments):
        floats = {k: v for k, v in arguments.items() if jnp.issubdtype(v.dtype, jnp.floating)}

        def total(floats):
            results = case.run({**arguments, **floats}, library)
            return weighted_sum(results), results

        grads, results = jax.grad(total, has_aux=True)(floats)
        return results, grads

    return jax.jit(jax.vmap(both))


@every_case
@few
@given(seed=seeds)
def test_values_and_gradients(case, seed):
    check_values_and_gradients(case, seed)


@pytest.mark.slow
@every_case
@many
@given(seed=seeds)
def test_values_and_gradients_many_times(case, seed):
    check_values_and_gradients(case, seed)


def check_values_and_gradients(case, seed):
    rng = np.random.default_rng(seed)
    batch = [cast(case.make(rng), jnp.float32) for _ in range(8)]
    arguments = jax.tree.map(lambda *x: jnp.stack(x), *batch)
    ours, our_grads = compiled(case.name, rlx)(arguments)
    with jax.numpy_rank_promotion("allow"):
        theirs, their_grads = compiled(case.name, PEER)(arguments)
    # 1e-4: RLax's inverse of the hyperbolic transform loses four digits to a difference of near numbers.
    tolerance = 2e-3 if "parabolic" in case.name or "transformed_q" in case.name else 1e-4
    assert_close(tuple(jax.tree.leaves(ours)), tuple(jax.tree.leaves(theirs)), rtol=tolerance, atol=tolerance)
    for name in our_grads:
        if name not in DIFFERENT_GRADIENTS.get(case.name, ()):
            np.testing.assert_allclose(
                our_grads[name], their_grads[name], rtol=tolerance, atol=5 * tolerance, err_msg=name
            )


@functools.cache
def compiled_vtrace(name, library):
    return jax.jit(jax.vmap(lambda x, mask: getattr(library, name)(**x, sample_mask=mask)))


@pytest.mark.parametrize("name", ["vtrace", "leaky_vtrace", "vtrace_td_error_and_advantage"])
@few
@given(seed=seeds)
def test_vtrace_with_sample_masks(name, seed):
    case = next(case for case in CASES if case.name == name)
    rng = np.random.default_rng(seed)
    arguments = jax.tree.map(lambda *x: jnp.stack(x), *[cast(case.make(rng), jnp.float32) for _ in range(8)])
    mask = jnp.asarray(rng.uniform(size=arguments["r_t"].shape) < 0.6)
    assert_close(
        tuple(compiled_vtrace(name, rlx)(arguments, mask)),
        tuple(compiled_vtrace(name, rlax)(arguments, mask)),
        rtol=1e-5,
        atol=1e-5,
    )


@every_case
def test_dtypes_are_those_of_rlax(case):
    """Half precision in, half precision out; where RLax widens, the narrower is the better."""
    arguments = cast(case.make(np.random.default_rng(0)), jnp.bfloat16)
    ours = jax.tree.leaves(jax.eval_shape(case.run, arguments))
    with jax.numpy_rank_promotion("allow"):
        theirs = jax.tree.leaves(jax.eval_shape(lambda x: case.run(x, PEER), arguments))
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert one.dtype in (other.dtype, jnp.bfloat16)


@every_case
def test_errors_are_caught_by_clauses_written_for_rlax(case):
    """Whatever RLax raises for a wrong rank or a wrong kind of number, ours is one of those too.

    Both are traced alone: where RLax raises nothing, there is nothing to compile.
    """
    arguments = cast(case.make(np.random.default_rng(0)), jnp.float32)
    for name, value in arguments.items():
        for wrong in (value[None, None], value.astype(jnp.complex64)):
            try:
                with jax.numpy_rank_promotion("allow"):
                    jax.eval_shape(lambda: case.run({**arguments, name: wrong}, PEER))  # noqa: B023
            except (AssertionError, ValueError, TypeError) as error:
                try:
                    jax.eval_shape(lambda: case.run({**arguments, name: wrong}))  # noqa: B023
                except Exception as ours:
                    kinds = [kind for kind in (AssertionError, ValueError, TypeError) if isinstance(error, kind)]
                    assert isinstance(ours, tuple(kinds)), (name, error, ours)


def test_what_is_left_out_is_what_rlax_takes():
    """All defaults that are numbers, names or flags, of every function that both have."""

    def defaults(library):
        functions = {
            name: f for name in dir(library) if callable(f := getattr(library, name)) and not isinstance(f, type)
        }
        return {
            (name, argument): parameter.default
            for name, f in functions.items()
            for argument, parameter in inspect.signature(f).parameters.items()
            if isinstance(parameter.default, (bool, int, float, str, type(None)))
        }

    ours, theirs = defaults(rlx), defaults(rlax)
    both = ours.keys() & theirs.keys()
    assert len(both) > 100
    assert {key: ours[key] for key in both} == {key: theirs[key] for key in both}
