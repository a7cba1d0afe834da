"""`pytest -m smoke`: an installation initialises, applies, differentiates and compiles, in seconds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
import rlx

pytestmark = pytest.mark.smoke


def test_a_network_is_the_program_written_by_hand():
    network = hkx.without_apply_rng(hkx.transform(lambda x: hkx.nets.MLP([4, 3])(x)))
    x = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)
    params = network.init(jax.random.key(0), x)
    first, second = (jax.tree.map(np.asarray, params[f"mlp/~/linear_{n}"]) for n in (0, 1))
    expected = np.maximum(x @ first["w"] + first["b"], 0) @ second["w"] + second["b"]
    np.testing.assert_allclose(jax.jit(network.apply)(params, x), expected, rtol=1e-5, atol=1e-6)


def test_a_td_error_and_its_gradient_are_those_of_the_equation():
    q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 3.0])
    td_error, gradient = jax.value_and_grad(rlx.q_learning)(q_tm1, 0, 1.0, 0.9, q_t)
    assert td_error == pytest.approx(1.0 + 0.9 * 3.0 - 1.0)
    np.testing.assert_allclose(gradient, [-1.0, 0.0])
