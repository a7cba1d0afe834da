"""What the tests of operators share: arguments of a dtype, comparison, and everything of one operator at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import rlx

SEEDS = range(4)


def draw(case, seed, *steps):
    return case.make(np.random.default_rng(seed), *steps)


def cast(arguments, dtype):
    """The arguments with floats of `dtype`, which NumPy converts: JAX would compile a program for each shape."""
    values = {name: np.asarray(value) for name, value in arguments.items()}
    return {
        name: jnp.asarray(x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x) for name, x in values.items()
    }


def assert_close(results, expected, **tolerance):
    results, expected = jax.tree.leaves(results), jax.tree.leaves(expected)
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        assert np.shape(result) == np.shape(value)
        np.testing.assert_allclose(np.asarray(result, np.float64), np.asarray(value, np.float64), **tolerance)


def weighted_sum(results, numpy=jnp):
    """A scalar in which every entry has a weight of its own, so that no gradient can hide behind a symmetry."""
    total = 0.0
    for i, x in enumerate(jax.tree.leaves(results)):
        x = numpy.asarray(x)
        total += numpy.sum(numpy.ravel(x) * numpy.cos(0.7 * i + numpy.arange(x.size, dtype=x.dtype)))
    return total


def gradients(case, arguments, names, package=rlx, **more):
    def total(chosen):
        return weighted_sum(case.run({**arguments, **chosen}, package, **more))

    return jax.grad(total)({name: arguments[name] for name in names})


@functools.cache
def compiled(case):
    """Of a batch of one operator's arguments: results, gradients, and gradients with the flag that stops them off."""

    def everything(arguments):
        names = case.learns + case.stopped
        flowing = gradients(case, arguments, names, stop_target_gradients=False) if case.stopped else {}
        return case.run(arguments), gradients(case, arguments, names), flowing

    return jax.jit(jax.vmap(everything))


def everything_in_double_precision(case, batch):
    with jax.enable_x64(True):
        stacked = {name: np.stack([item[name] for item in batch]) for name in batch[0]}
        return jax.tree.map(np.asarray, compiled(case)(stacked))


@functools.cache
def drawn_in_double_precision(case):
    """Everything of one case for several seeds: under vmap and jit, as one program."""
    return everything_in_double_precision(case, [draw(case, seed) for seed in SEEDS])


def oracle_gradient(case, arguments, name, step=1e-5):
    """Central differences of the oracle, in float64."""
    frozen = {"weights_from": arguments["log_probs_t"]} if case.name == "cispo_loss" else {}

    def total(x):
        return float(weighted_sum(case.oracle({**arguments, name: x}, **frozen), np))

    x = arguments[name]
    gradient = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        high, low = x.copy(), x.copy()
        high[index] += step
        low[index] -= step
        gradient[index] = (total(high) - total(low)) / (2 * step)
    return gradient
