"""The operations that stand for draws and splits of keys in an abstract run, mapped over keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx as hk
from hkx.base.draws import Draw
from hkx.base.key_arrays import for_each_key
from hkx.init.recording import Recording

pytestmark = pytest.mark.unoptimised


@pytest.mark.parametrize("kind", ["raw"])
def test_keys_along_another_axis_of_vmap(kind):
    def f():
        hk.get_parameter("w", [2, 3], init=hk.initializers.RandomNormal())
        return hk.get_parameter("b", [2], init=hk.initializers.RandomUniform())

    init = hk.transform(f).init
    seeds = np.arange(6).reshape(2, 3)
    keys = jax.vmap(jax.vmap(jax.random.PRNGKey if kind == "raw" else jax.random.key))(seeds)
    inner = jax.vmap(init, in_axes=1 if kind == "raw" else 0)  # raw keys are [3, 2] there, and then [2, 3]
    made = jax.vmap(inner, in_axes=1)(jnp.moveaxis(keys, 2, 0) if kind == "raw" else keys.T)
    for i, j in np.ndindex(seeds.shape):
        one = init(keys[i, j])["~"]
        jax.tree.map(lambda a, b, i=i, j=j: np.testing.assert_array_equal(a[i, j], b), made["~"], one)


def test_draws_and_splits_along_any_axis_of_their_keys():
    """What stands for them in an abstract run, mapped: one draw and one split for each key."""
    keys = jax.vmap(jax.random.PRNGKey, out_axes=1)(np.arange(3))  # [2, 3], a raw key in each column
    recorder = Recording(keys[:, 0])
    one = Draw("normal", (4,), np.dtype(np.float32), -np.inf, np.inf)
    drawn = jax.vmap(lambda key: recorder.draw(one, key), in_axes=1)(keys)
    halves = jax.vmap(lambda key: jnp.stack(recorder.split(key, 2)), in_axes=1)(keys)
    for i in range(3):
        np.testing.assert_array_equal(drawn[i], jax.random.normal(keys[:, i], [4]))
        np.testing.assert_array_equal(halves[i], jax.random.split(keys[:, i]))


def test_what_is_drawn_for_several_keys_is_what_each_draws_alone():
    """Under `jax.vmap` a key of another kind than JAX's default draws something else."""
    keys = jax.random.split(jax.random.key(0, impl="rbg"), 3)
    alone = [jax.random.normal(key, [2]) for key in keys]
    np.testing.assert_array_equal(for_each_key(lambda key: jax.random.normal(key, [2]), keys), np.stack(alone))
