"""Names that Haiku and RLax have removed, and that `hkx.run` still serves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hkx.run import removed


def test_incremental_update_moves_a_tree_part_of_the_way():
    new, old = {"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([3.0, 6.0])}
    np.testing.assert_allclose(removed.incremental_update(new, old, 0.25)["w"], [2.5, 5.0])


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.5, 2.0, 0.0])
def test_epsilon_softmax(temperature):
    logits, epsilon = np.array([[0.0, 1.0, 3.0], [2.0, -1.0, 0.5]], np.float32), 0.1
    if temperature:
        softmax = np.exp(logits / temperature) / np.sum(np.exp(logits / temperature), axis=-1, keepdims=True)
    else:
        softmax = np.array([[0, 0, 1], [1, 0, 0]])
    expected = 0.9 * softmax + 0.1 / 3
    policy = removed.safe_epsilon_softmax(epsilon, temperature)
    np.testing.assert_allclose(policy.probs(logits), expected, rtol=1e-5)
    np.testing.assert_allclose(policy.entropy(logits), -np.sum(expected * np.log(expected), axis=-1), rtol=1e-5)
    np.testing.assert_allclose(policy.logprob(np.array([2, 1]), logits), np.log(expected[[0, 1], [2, 1]]), rtol=1e-5)
    actions = jax.vmap(lambda key: policy.sample(key, logits[0]))(jax.random.split(jax.random.key(0), 2000))
    np.testing.assert_allclose(np.bincount(actions, minlength=3) / 2000, expected[0], atol=0.03)


def test_named_call_calls_the_function():
    assert removed.named_call(lambda x: x + 1, name="f")(1) == 2
    assert removed.profiler_name_scopes(False) is True
