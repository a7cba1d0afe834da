"""Trees whose numbers have the same bits, or would have where nothing is rounded otherwise."""

import jax
import numpy as np


def same_bits(a, b):
    def check(x, y):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_array_equal(x.view(np.uint8) if x.ndim else x, y.view(np.uint8) if y.ndim else y)

    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(check, a, b)


def same_but_for_rounding(a, b):
    """The same bits on a CPU. Other compilers round a program otherwise than its operations one by one."""
    if jax.default_backend() == "cpu":
        return same_bits(a, b)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)
