"""Keys that are given to a Flax module inside hkx."""

import jax
import jax.numpy as jnp
import pytest

import hkx

nn = pytest.importorskip("flax.linen", reason="flax is not installed")
flax_errors = pytest.importorskip("flax.errors")


def test_a_bare_key_is_refused_as_flax_and_haiku_do():
    from hkx.interop import flax as hkx_flax

    f = hkx.transform(lambda x: hkx_flax.lift(nn.Dense(1), name="dense")(x, rngs=jax.random.key(0)))
    with pytest.raises(flax_errors.InvalidRngError, match="should be a dictionary"):
        f.init(None, jnp.ones([1, 2]))
