"""Programs written as Haiku's first release had them: no key for `apply`, and a loss closed over the network."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx as hk

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=[16, 3]).astype(np.float32)
Y = RANDOM.integers(0, 4, size=16)


def net(x, width=8):
    return hk.Sequential([hk.Linear(width), jnp.tanh, hk.Linear(4)])(x)


network = hk.transform(net, apply_rng=False)


@pytest.fixture(scope="module")
def params():
    return network.init(jax.random.PRNGKey(42), X)


def numpy_forward(params, x):
    (w1, b1), (w2, b2) = ((np.float64(layer["w"]), np.float64(layer["b"])) for layer in params.values())
    hidden = np.tanh(x @ w1 + b1)
    return hidden, hidden @ w2 + b2


def test_apply_takes_parameters_and_the_arguments(params):
    assert list(params) == ["linear", "linear_1"]
    np.testing.assert_allclose(network.apply(params, X), numpy_forward(params, X)[1], rtol=1e-4, atol=1e-5)
    wide = network.init(jax.random.PRNGKey(0), X, width=5)
    assert network.apply(wide, X, width=5).shape == network.apply(params=wide, x=X, width=5).shape == (16, 4)
    assert list(inspect.signature(network.apply).parameters) == ["params", "x", "width"]


def test_a_loss_closed_over_the_network_is_differentiated_through_apply(params):
    @jax.jit
    def loss(params, x, y):
        log_p = jax.nn.log_softmax(network.apply(params, x))
        return -jnp.mean(jnp.sum(hk.one_hot(y, 4) * log_p, axis=-1))

    value, gradient = jax.value_and_grad(loss)(params, X, Y)

    hidden, logits = numpy_forward(params, X)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert float(value) == pytest.approx(-np.log(p[np.arange(16), Y]).mean(), rel=1e-5)
    error = (p - np.eye(4)[Y]) / 16
    back = error @ np.float64(params["linear_1"]["w"]).T * (1 - hidden**2)
    expected = {
        "linear": {"w": X.T @ back, "b": back.sum(0)},
        "linear_1": {"w": hidden.T @ error, "b": error.sum(0)},
    }
    jax.tree.map(lambda g, e: np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-6), gradient, expected)

    for _ in range(5):
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, jax.grad(loss)(params, X, Y))
    assert loss(params, X, Y) < value


def test_the_loss_itself_is_transformed(params):
    """The other habit of that time: the whole loss is the transformed function, and `apply` is differentiated as is."""

    def loss(x, y):
        return jnp.mean((net(x)[:, 0] - y) ** 2)

    pure = hk.transform(loss, apply_rng=False)
    same = pure.init(jax.random.PRNGKey(42), X, Y)
    jax.tree.map(np.testing.assert_array_equal, same, params)
    gradient = jax.jit(jax.grad(pure.apply))(same, X, jnp.float32(Y))
    hidden, logits = numpy_forward(params, X)
    error = 2 * (logits[:, 0] - Y) / 16
    np.testing.assert_allclose(gradient["linear_1"]["w"][:, 0], hidden.T @ error, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(gradient["linear_1"]["w"][:, 1:], 0)


def test_jax_transforms_go_around_apply(params):
    whole = network.apply(params, X)
    np.testing.assert_allclose(jax.jit(network.apply)(params, X), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(network.apply, (None, 0))(params, X), whole, rtol=1e-5, atol=1e-6)


def test_apply_rng_may_be_true_and_is_by_default(params):
    key = jax.random.PRNGKey(1)
    for model in (hk.transform(net, apply_rng=True), hk.transform(net)):
        np.testing.assert_array_equal(model.apply(params, key, X), network.apply(params, X))
        np.testing.assert_array_equal(model.apply(params, None, X), network.apply(params, X))


def test_random_numbers_without_a_key_are_refused(params):
    dropout = hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, net(x)), apply_rng=False)
    dropout.init(jax.random.PRNGKey(0), X)
    with pytest.raises(ValueError, match="apply"):
        dropout.apply(params, X)
    noisy = hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, net(x)), apply_rng=True)
    assert not jnp.array_equal(noisy.apply(params, 0, X), noisy.apply(params, 1, X))
