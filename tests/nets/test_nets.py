"""Networks against closed forms: published parameter counts, and NumPy written from the papers' equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.key(0)
IMAGE = jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.float32)


def shapes(make, image=IMAGE):
    model = hkx.transform_with_state(lambda x: make()(x, is_training=True))
    return jax.eval_shape(model.init, KEY, image)


@pytest.mark.parametrize(
    ("net", "count"),
    [
        # The published counts of the torchvision models, which have the same layers.
        (hkx.nets.ResNet50, 25_557_032),
    ],
)
def test_parameters_of_residual_networks(net, count):
    params, _ = shapes(lambda: net(1000))
    assert hkx.data_structures.tree_size(params) == count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "count"),
    [(hkx.nets.ResNet34, 21_797_672), (hkx.nets.ResNet101, 44_549_160), (hkx.nets.ResNet152, 60_192_808)],
)
def test_parameters_of_larger_residual_networks(net, count):
    params, _ = shapes(lambda: net(1000))
    assert hkx.data_structures.tree_size(params) == count


def test_mobilenet():
    params, _ = shapes(lambda: hkx.nets.MobileNetV1())
    assert hkx.data_structures.tree_size(params) == 4_231_976  # "4.2 million" in table 8 of the paper
    with pytest.raises(ValueError, match="same length"):
        shapes(lambda: hkx.nets.MobileNetV1(strides=(1, 2)))


def test_wrong_lengths_are_named():
    for what in ("blocks_per_group", "channels_per_group", "strides", "use_projection"):
        kwargs = {"blocks_per_group": [1] * 4, "num_classes": 5, what: [1] * 3}
        with pytest.raises(ValueError, match=f"`{what}` must be of length 4"):
            shapes(lambda kwargs=kwargs: hkx.nets.ResNet(**kwargs))


def numpy_quantise(x, table):
    """The equations of van den Oord et al. (2017), one vector at a time."""
    flat = x.reshape(-1, x.shape[-1]).astype(np.float64)
    numbers = [int(np.argmin([np.sum((v - table[:, k]) ** 2) for k in range(table.shape[1])])) for v in flat]
    quantised = np.stack([table[:, k] for k in numbers])
    used = np.bincount(numbers, minlength=table.shape[1]) / len(numbers)
    perplexity = np.exp(-sum(p * np.log(p) for p in used if p > 0))
    return numbers, quantised, perplexity, np.mean((quantised - flat) ** 2)


X = np.random.RandomState(0).standard_normal((4, 3, 6)).astype(np.float32)


@pytest.mark.slow
def test_vector_quantizer():
    model = hkx.transform(lambda x: hkx.nets.VectorQuantizer(6, 5, 0.25)(x, is_training=True))
    params = model.init(KEY, X)
    table = np.asarray(params["vector_quantizer"]["embeddings"], np.float64)
    numbers, quantised, perplexity, distance = numpy_quantise(X, table)
    out = model.apply(params, None, X)
    assert out["encoding_indices"].shape == (4, 3) and out["encoding_indices"].ravel().tolist() == numbers
    np.testing.assert_allclose(out["quantize"], quantised.reshape(X.shape), atol=1e-6)
    np.testing.assert_allclose(out["perplexity"], perplexity, rtol=1e-5)
    np.testing.assert_allclose(out["loss"], 1.25 * distance, rtol=1e-5)
    np.testing.assert_array_equal(np.argmax(out["encodings"], 1), numbers)
    # Straight through: the gradient passes to the input; of the loss, the input sees the commitment only.
    through = jax.grad(lambda x: (model.apply(params, None, x)["quantize"] * X).sum())(X)
    np.testing.assert_allclose(through, X, rtol=1e-6)
    loss = jax.grad(lambda p, x: model.apply(p, None, x)["loss"], argnums=(0, 1))(params, X)
    residual = quantised.reshape(X.shape) - X
    np.testing.assert_allclose(loss[1], -0.25 * 2 * residual / X.size, rtol=1e-4, atol=1e-7)
    expected = np.zeros_like(table)
    for k, r in zip(numbers, residual.reshape(-1, 6), strict=True):
        expected[:, k] += 2 * r / X.size
    np.testing.assert_allclose(loss[0]["vector_quantizer"]["embeddings"], expected, rtol=1e-4, atol=1e-7)
    with pytest.raises(TypeError, match="expected"):
        model.apply(params, None, X[..., :5])


def test_vector_quantizer_with_moving_averages():
    def f(x, training):
        return hkx.nets.VectorQuantizerEMA(6, 5, 0.25, decay=0.9, epsilon=0.1)(x, is_training=training)

    model = hkx.transform_with_state(f)
    params, state = model.init(KEY, X, True)
    assert params == {}
    counts, sums = np.zeros(5), np.zeros((6, 5))
    apply = jax.jit(model.apply, static_argnums=4)
    for step in range(1, 4):
        table = np.asarray(state["vector_quantizer_ema"]["embeddings"], np.float64)
        numbers, _, perplexity, distance = numpy_quantise(X, table)
        out, state = apply({}, state, None, X, True)
        np.testing.assert_allclose(out["loss"], 0.25 * distance, rtol=1e-5)
        np.testing.assert_allclose(out["perplexity"], perplexity, rtol=1e-5)
        onehot = np.eye(5)[numbers]
        counts = 0.9 * counts + 0.1 * onehot.sum(0)
        sums = 0.9 * sums + 0.1 * X.reshape(-1, 6).T @ onehot
        n, m = counts / (1 - 0.9**step), sums / (1 - 0.9**step)
        smooth = (n + 0.1) / (n.sum() + 5 * 0.1) * n.sum()
        np.testing.assert_allclose(state["vector_quantizer_ema"]["embeddings"], m / smooth, rtol=2e-4, atol=1e-5)
    same = apply({}, state, None, X, False)[1]
    jax.tree.map(np.testing.assert_array_equal, same, state)
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        hkx.transform_with_state(lambda: hkx.nets.VectorQuantizerEMA(6, 5, 0.25, decay=1.5)).init(KEY)


@pytest.mark.slow
def test_replicas_share_the_averages():
    def f(axis):
        def quantise(x):
            return hkx.nets.VectorQuantizerEMA(6, 5, 0.25, decay=0.9, cross_replica_axis=axis)(x, is_training=True)

        return hkx.transform_with_state(quantise)

    params, state = f(None).init(KEY, X)
    jax.tree.map(np.testing.assert_array_equal, f("i").init(KEY, X), (params, state))  # needs no replicas
    with pytest.raises(NameError, match="i"):  # as `apply` does
        f("i").apply(params, state, None, X)
    together, whole = f(None).apply(params, state, None, X)
    apart, each = jax.vmap(lambda x: f("i").apply(params, state, None, x), axis_name="i")(X)
    np.testing.assert_allclose(apart["perplexity"], np.full(4, together["perplexity"]), rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-6), each, whole)
