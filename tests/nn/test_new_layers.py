"""The layers that Haiku lacks, against NumPy loops written from their equations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

RANDOM = np.random.RandomState(0)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    RANDOM.seed(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(f: Any, *args: Any, params: Any = None, rng: Any = None) -> tuple[Any, Any]:
    """The result, and the parameters: given, or made."""
    model = hkx.transform(f)
    if params is None:
        params = model.init(jax.random.key(0), *args)
    return jax.jit(model.apply)(params, rng, *args), params


def close(a: Any, b: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def test_dropout() -> None:
    x = normal(400, 5) + 3
    y, _ = run(lambda x: hkx.Dropout(0.25)(x, True), x, rng=jax.random.key(1))
    kept = np.asarray(y) != 0
    close(np.asarray(y)[kept], x[kept] / 0.75)
    assert abs(kept.mean() - 0.75) < 4 * np.sqrt(0.25 * 0.75 / x.size)
    y, _ = run(lambda x: hkx.Dropout(0.25, broadcast_dims=[1])(x, True), x, rng=jax.random.key(1))
    assert set((np.asarray(y) != 0).sum(1).tolist()) == {0, 5}
    assert run(lambda x: hkx.Dropout(0.25)(x, False), x)[0].tolist() == x.tolist()
    with pytest.raises(hkx.errors.MissingRNGError):
        run(lambda x: hkx.Dropout(0.25)(x, True), x, params={})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_dropout_drops_is_zero_even_if_it_was_infinite(dtype: str) -> None:
    key = jax.random.key(2)
    x = np.resize(np.array([np.inf, -np.inf, np.nan, 3.0, -3.0], np.float32), (8, 5)).astype(jnp.dtype(dtype))
    expected = np.where(jax.random.bernoulli(key, 0.5, x.shape), np.asarray(x, np.float32) / 0.5, 0)
    for drop in (hkx.dropout, jax.jit(hkx.dropout, static_argnums=1)):
        y = np.asarray(drop(key, 0.5, jnp.asarray(x)), np.float32)
        np.testing.assert_array_equal(y, expected)
        assert not np.signbit(y[expected == 0]).any()


@pytest.mark.parametrize("zero", [0, 0.0, np.float32(0), np.int64(0)])
def test_a_rate_of_zero_asks_for_no_key(zero: Any) -> None:
    attention = lambda: hkx.MultiHeadAttention(1, 2, w_init=jnp.ones)  # noqa: E731
    for layer in (lambda x: hkx.Dropout(zero)(x, True), lambda x: attention()(x, x, x, dropout_rate=zero)):
        model = hkx.transform(layer)
        model.apply(model.init(None, jnp.ones([2, 2])), None, jnp.ones([2, 2]))


@pytest.mark.parametrize(
    "equation,shape,bias",
    [
        ("...d,dhk->...hk", (4, 2, 3), (2, 3)),
        ("btd,dk->btk", (4, 3), (3,)),
        ("bhd,hdk->bhk", (5, 4, 3), (5, 3)),
        ("d...,dk->k...", (2, 3), (3,)),
    ],
)
def test_einsum(equation: str, shape: tuple[int, ...], bias: tuple[int, ...]) -> None:
    x = normal(2, 5, 4)
    params = {"einsum": {"w": normal(*shape), "b": normal(*bias)}}
    made = hkx.transform(lambda x: hkx.Einsum(shape, equation)(x)).init(jax.random.key(0), x)
    assert jax.tree.map(np.shape, made) == jax.tree.map(np.shape, params)
    y, _ = run(lambda x: hkx.Einsum(shape, equation)(x), x, params=params)
    b = params["einsum"]["b"]
    wanted = np.einsum(equation, x, params["einsum"]["w"]) + (b[:, None, None] if equation.endswith("k...") else b)
    close(y, wanted, 1e-5)


@pytest.mark.parametrize("equation", ["ab->ba", "ab,...b->a", "ab,bc"])
def test_einsum_rejects(equation: str) -> None:
    with pytest.raises(ValueError, match="equation"):
        hkx.testing.transform_and_run(lambda: hkx.Einsum([2, 2], equation))()
    with pytest.raises(ValueError, match="shape"):
        hkx.testing.transform_and_run(lambda: hkx.Einsum([2, 2], "a,b->ab"))()


def test_prelu() -> None:
    x = normal(3, 4)
    y, params = run(lambda x: hkx.PReLU()(x), x)
    assert params["p_re_lu"]["alpha"] == 0.25
    close(y, np.where(x >= 0, x, 0.25 * x))
    alpha = normal(4)
    y, _ = run(lambda x: hkx.PReLU(param_axis=-1)(x), x, params={"p_re_lu": {"alpha": alpha}})
    close(y, np.where(x >= 0, x, alpha * x))


def test_lora() -> None:
    x = normal(3, 4)
    y, params = run(lambda x: hkx.LoRALinear(5, rank=2, name="linear")(x), x)
    close(y, run(lambda x: hkx.Linear(5)(x), x, params=params)[0])  # starts as the linear layer
    own = {"linear": {**params["linear"], "lora_b": normal(2, 5)}}
    y, _ = run(lambda x: hkx.LoRALinear(5, rank=2, alpha=6.0, name="linear")(x), x, params=own)
    p = jax.tree.map(np.asarray, own["linear"])
    close(y, x @ p["w"] + p["b"] + 3.0 * x @ p["lora_a"] @ p["lora_b"], 1e-5)
    assert np.abs(p["lora_a"]).max() <= np.sqrt(3 * 2.0 / 4)


def test_weight_norm() -> None:
    x, w, scale, b = normal(2, 6, 4), normal(3, 4, 5), normal(5), normal(5)
    params = {"conv1_d": {"w": w, "w_scale": scale, "b": b}}
    f = lambda x: hkx.WeightNorm(hkx.Conv1D(5, 3, padding="VALID"))(x)  # noqa: E731
    made = hkx.transform(f).init(jax.random.key(0), x)
    assert jax.tree.map(np.shape, made) == jax.tree.map(np.shape, params)
    w = scale * w / np.sqrt((w**2).sum((0, 1)))
    wanted = np.stack([np.einsum("nkc,kco->no", x[:, i : i + 3], w) + b for i in range(4)], 1)
    close(run(f, x, params=params)[0], wanted, 1e-5)


@pytest.mark.parametrize("size", [3, 9])
def test_adaptive_avg_pool(size: int) -> None:
    x = normal(2, 7, 6, 3)
    y, _ = run(lambda x: hkx.AdaptiveAvgPool([size, None])(x), x)
    ends = [(i * 7 // size, -((-(i + 1) * 7) // size)) for i in range(size)]
    close(y, np.stack([x[:, a:b].mean(1) for a, b in ends], 1))
    y, _ = run(lambda x: hkx.AdaptiveAvgPool(size, channel_axis=1)(x), x)
    assert y.shape == (2, 7, size, size)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool"])
def test_adaptive_avg_pool_of_integers(dtype: str) -> None:
    x = (normal(2, 5, 3) > 0).astype(dtype)
    close(run(lambda x: hkx.AdaptiveAvgPool(2)(x), x)[0], np.stack([x[:, :3].mean(1), x[:, 2:].mean(1)], 1))


def test_rotary() -> None:
    x, positions = normal(2, 5, 3, 8), np.array([0, 3, 4, 9, 100])
    y, _ = run(lambda x: hkx.RotaryEmbedding(theta=50.0)(x, positions), x)
    wanted = np.empty_like(x)
    for t, position in enumerate(positions):
        for i in range(4):
            angle = position * 50.0 ** (-2 * i / 8)
            a, b = x[:, t, :, i], x[:, t, :, i + 4]
            wanted[:, t, :, i] = a * np.cos(angle) - b * np.sin(angle)
            wanted[:, t, :, i + 4] = b * np.cos(angle) + a * np.sin(angle)
    close(y, wanted, 2e-5)  # the angle 100 in float32
    batched, _ = run(lambda x: hkx.RotaryEmbedding(theta=50.0)(x, np.stack([positions, positions])), x)
    close(y, batched)
    with pytest.raises(ValueError, match="even"):
        run(lambda x: hkx.RotaryEmbedding()(x), x[..., :7])


def attended(params: Any, x: np.ndarray, heads: int, kv_heads: int, allowed: np.ndarray) -> np.ndarray:
    """Attention written as loops; `allowed` is bool[B, T, S]."""
    p = {name.rpartition("/")[2]: np.asarray(entries["w"], np.float64) for name, entries in params.items()}
    q, k, v = (np.reshape(x @ p[n], (*x.shape[:2], -1, 4)) for n in ("query", "key", "value"))
    out = np.zeros((*x.shape[:2], heads, 4))
    for b, t, h in np.ndindex(*out.shape[:3]):
        shared = h // (heads // kv_heads)
        logits = np.where(allowed[b, t], k[b, :, shared] @ q[b, t, h] / 2.0, -np.inf)
        weights = np.exp(logits - logits.max())
        out[b, t, h] = (weights / weights.sum()) @ v[b, :, shared]
    return out.reshape(*x.shape[:2], -1) @ p["output"]


T = np.arange(6)
CAUSAL = T[None] <= T[:, None]
LENGTHS = np.array([6, 4])
MASKS = {
    "window": ({"is_causal": True, "window": 3}, CAUSAL & (T[None] > T[:, None] - 3)),
    "all": ({"is_causal": True, "lengths": LENGTHS}, CAUSAL & (T[None, None] < LENGTHS[:, None, None])),
    "mask": ({"mask": (T[None] != 2)[None, None]}, np.broadcast_to(T[None] != 2, [6, 6])),
}


@pytest.mark.parametrize("name,kv_heads", [("all", 2), ("mask", 1), ("window", 4)])
def test_grouped_query_attention(name: str, kv_heads: int) -> None:
    options, allowed = MASKS[name]
    x = normal(2, 6, 5)
    y, params = run(lambda x: hkx.GroupedQueryAttention(4, kv_heads, 4)(x, **options), x)
    close(y, attended(params, x, 4, kv_heads, np.broadcast_to(allowed, [2, 6, 6])), 1e-5)


@pytest.mark.parametrize(("window", "rotary"), [(None, False), (3, True)])
def test_cache(window: int | None, rotary: bool) -> None:
    """Token by token, or in two pieces, is the same as all at once."""
    x = normal(2, 6, 5)

    def layer() -> hkx.GroupedQueryAttention:
        return hkx.GroupedQueryAttention(4, 2, 4, rotary=hkx.RotaryEmbedding() if rotary else None)

    def decode(x: Any) -> Any:
        attention = layer()
        first, cache = attention(x[:, :2], cache=attention.initial_cache(2, 8), window=window)

        def step(cache: Any, token: Any) -> Any:
            y, cache = attention(token[:, None], cache=cache, window=window)
            return cache, y[:, 0]

        cache, rest = hkx.scan(step, cache, jnp.swapaxes(x[:, 2:], 0, 1))
        return jnp.concatenate([first, jnp.swapaxes(rest, 0, 1)], 1), cache.length

    whole, params = run(lambda x: layer()(x, is_causal=True, window=window), x)
    (pieces, length), _ = run(decode, x, params=params)
    close(pieces, whole, 1e-5)
    assert length == 6


def test_grouped_query_attention_rejects() -> None:
    x = normal(1, 3, 4)
    with pytest.raises(ValueError, match="num_kv_heads"):
        run(lambda x: hkx.GroupedQueryAttention(4, 3, 4)(x), x)
    with pytest.raises(ValueError, match="window"):
        run(lambda x: hkx.GroupedQueryAttention(4, 2, 4)(x, window=2), x)

    def overfull(x: Any) -> Any:
        attention = hkx.GroupedQueryAttention(4, 2, 4)
        return attention(x, cache=attention.initial_cache(1, 2))[0]

    with pytest.raises(ValueError, match="room for 2"):
        hkx.testing.transform_and_run(overfull)(x)


@pytest.mark.parametrize("stored,given", [("bfloat16", "float32")])
def test_a_cache_of_another_dtype(stored: str, given: str) -> None:
    x = normal(2, 4, 5).astype(given)

    def decode(x: Any, dtype: Any) -> Any:
        layer = hkx.GroupedQueryAttention(4, 2, 4)
        return layer(x, cache=layer.initial_cache(2, 8, dtype))

    (y, cache), params = run(lambda x: decode(x, stored), x)
    (expected, _), _ = run(lambda x: decode(x, given), x, params=params)
    assert y.dtype == given and cache.key.dtype == cache.value.dtype == stored
    close(y.astype("float32"), expected.astype("float32"), 0.05)


def test_queries_and_keys_of_different_dtypes() -> None:
    x, others = normal(2, 4, 5), normal(2, 3, 5).astype("bfloat16")
    y, params = run(lambda x, others: hkx.GroupedQueryAttention(4, 2, 4)(x, others), x, others)
    expected, _ = run(lambda x, o: hkx.GroupedQueryAttention(4, 2, 4)(x, o.astype("float32")), x, others, params=params)
    assert y.dtype == "float32"
    close(y, expected, 0.05)


def test_tokens_for_which_a_cache_of_traced_length_has_no_room_are_nan() -> None:
    def decode(x: Any) -> Any:
        layer = hkx.GroupedQueryAttention(4, 2, 4)

        def step(cache: Any, token: Any) -> Any:
            y, cache = layer(token[:, None], cache=cache)
            return cache, y[:, 0]

        return hkx.scan(step, layer.initial_cache(2, 3), jnp.swapaxes(x, 0, 1))[1]

    ys, _ = run(decode, normal(2, 5, 4))
    assert np.isfinite(ys[:3]).all() and np.isnan(ys[3:]).all()


def test_one_core_for_both_directions() -> None:
    def f(xs: Any) -> Any:
        core = hkx.VanillaRNN(3)
        return hkx.Bidirectional(core, core)(xs)[0]

    xs = normal(4, 2, 3)
    ys, params = run(f, xs)
    w, v = (jax.tree.map(np.asarray, params[f"vanilla_rnn/{name}"]) for name in ("linear", "linear_1"))
    for direction, got in ((1, ys[..., :3]), (-1, ys[..., 3:])):
        state = np.zeros([2, 3])
        for x, y in zip(xs[::direction], got[::direction], strict=True):
            state = np.maximum(x @ w["w"] + w["b"] + state @ v["w"] + v["b"], 0)
            close(y, state, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_attention_to_what_is_masked_for_all_queries(bad: float) -> None:
    model = hkx.transform(lambda x, others, **options: hkx.GroupedQueryAttention(2, 1, 4)(x, others, **options))
    others = np.random.default_rng(0).normal(size=[2, 3, 5]).astype("float32")
    x, padded = others[:, :2], others.copy()
    params = model.init(0, x, others)
    padded[0, 2:], padded[1, 1:] = bad, bad
    lengths = np.array([2, 1])
    mask = np.broadcast_to(np.arange(3) < lengths[:, None, None, None], [2, 1, 2, 3])
    expected = np.concatenate([model.apply(params, None, x[i, None], others[i, None, : lengths[i]]) for i in (0, 1)])
    for options in ({"lengths": lengths}, {"mask": mask}, {"lengths": np.array([3, 1]), "mask": mask}):
        np.testing.assert_allclose(model.apply(params, None, x, padded, **options), expected, rtol=1e-5, atol=1e-6)
    unmasked = model.apply(params, None, x, padded, lengths=lengths + 1)
    assert not np.isfinite(unmasked).any()  # what is not masked still shows


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_multi_head_attention_to_what_is_masked_for_all_queries(bad: float) -> None:
    def attend(x: Any, others: Any, mask: Any = None) -> Any:
        w_init = hkx.initializers.VarianceScaling()
        return hkx.MultiHeadAttention(2, 4, w_init=w_init)(x, others, others, mask)

    model = hkx.transform(attend)
    others = np.random.default_rng(0).normal(size=[2, 3, 5]).astype("float32")
    x, padded, mask = others[:, :2], others.copy(), np.ones([2, 1, 2, 3], bool)
    params = model.init(0, x, others)
    padded[1, 2:], mask[1, :, :, 2:] = bad, False

    def loss(x: Any, others: Any, mask: Any) -> jax.Array:
        return jnp.sum(model.apply(params, None, x, others, mask) ** 2)

    expected = [jax.value_and_grad(loss)(x, others, mask) for mask in (mask, mask.astype(float))]
    got = [jax.value_and_grad(loss)(x, padded, mask) for mask in (mask, mask[:, :, :1].astype(int))]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, expected)
    mask[1, :, 1, 2] = True
    assert not np.isfinite(loss(x, padded, mask))  # what is not masked still shows


@pytest.mark.parametrize("reverse", [False, True])
def test_sequence_lengths(reverse: bool) -> None:
    """A padded sequence is unrolled as its part within the length."""
    xs, lengths = normal(5, 3, 2), np.array([5, 2, 0])

    def unroll(xs: Any, lengths: Any = None) -> Any:
        core = hkx.LSTM(3)
        state = core.initial_state(xs.shape[1])
        return hkx.dynamic_unroll(core, xs, state, reverse=reverse, sequence_lengths=lengths)

    (ys, state), params = run(unroll, xs, lengths)
    for i, n in enumerate(lengths[:2]):
        (part, final), _ = run(unroll, xs[:n, i : i + 1], params=params)
        close(ys[:n, i : i + 1], part)
        close(state.cell[i : i + 1], final.cell)
    assert not ys[2:, 1].any() and not ys[:, 2].any() and not state.hidden[2].any()


def test_bidirectional() -> None:
    xs, lengths = normal(3, 5, 2), np.array([5, 2, 4])

    def both(xs: Any) -> Any:
        module = hkx.Bidirectional(hkx.GRU(3, name="there"), hkx.GRU(3, name="back"))
        return module(xs, time_major=False, sequence_lengths=lengths)

    (ys, states), params = run(both, xs)
    for i, n in enumerate(lengths):
        for name, part, state in (("there", ys[i, :n, :3], states[0]), ("back", ys[i, :n, 3:], states[1])):
            core = hkx.transform(lambda x, h, name=name: hkx.GRU(3, name=name)(x, h)[0])
            steps = range(n) if name == "there" else reversed(range(n))
            h = np.zeros(3, np.float32)
            for t in steps:
                h = core.apply(params, None, xs[i, t], h)
                close(part[t], h)
            close(state[i], h)


def test_torch_uniform() -> None:
    w = hkx.testing.transform_and_run(lambda: hkx.initializers.TorchUniform()([3, 50, 200], jnp.float32))()
    limit = 1 / np.sqrt(150)
    assert 0.99 * limit < np.abs(w).max() <= limit
    assert abs(np.var(w) - limit**2 / 3) < 0.02 * limit**2
    with pytest.raises(ValueError, match="fan_in"):
        hkx.testing.transform_and_run(lambda: hkx.initializers.TorchUniform()([3], jnp.float32))()


@pytest.mark.parametrize("dtype", [pytest.param(jnp.bfloat16, marks=pytest.mark.slow), jnp.float16])
def test_orthogonal_weights_in_half_precision(dtype):
    w = hkx.transform(lambda: hkx.initializers.Orthogonal(2.0)([3, 5], dtype)).apply({}, jax.random.key(0))
    rows = np.asarray(w, np.float32)
    assert w.dtype == dtype
    np.testing.assert_allclose(rows @ rows.T, 4 * np.eye(3), atol=16 * float(jnp.finfo(dtype).eps))


def test_sparse_weights():
    """ceil(sparsity · fan_in) weights of each output are zero, in other places for each; the others are uniform."""
    model, zeros = hkx.transform(lambda: hkx.initializers.Sparse(0.7)([1, 3, 3, 4], jnp.float32)), 7  # of nine, 6.3
    w = np.asarray(jax.jit(model.apply)({}, jax.random.key(1)))
    rows = w.reshape(-1, 4)
    assert np.all((rows == 0).sum(axis=0) == zeros) and np.all(np.abs(rows) <= len(rows) ** -0.5)
    assert len({tuple(column) for column in (rows == 0).T}) > 1 and len(np.unique(rows)) == 1 + 4 * (len(rows) - zeros)


def test_sparse_weights_that_cannot_be():
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        hkx.initializers.Sparse(1.5)
    with pytest.raises(ValueError, match="at least a 2D shape"):
        hkx.testing.transform_and_run(lambda: hkx.initializers.Sparse()([3], jnp.float32))()


def test_batch_renormalisation():
    """Ioffe (2017), algorithm 1, over three batches, with corrections that are cut off and those that are not."""
    random = np.random.default_rng(0)
    sizes, eps, decay, r_max, d_max = np.array([1.0, 0.3, 5.0, 4.0]), 1e-3, 0.9, 1.5, 0.8
    batches = random.normal(size=(4, 16, 3)) * sizes[:, None, None] + np.array([0, -2, 3, 1])[:, None, None]
    renorm = lambda: hkx.BatchRenorm(False, False, decay, eps, r_max, d_max)  # noqa: E731
    model = hkx.transform_with_state(lambda x, is_training: renorm()(x, is_training))
    _, state = model.init(None, jnp.float32(batches[0]), True)

    @jax.jit
    def step(state, x):
        return model.apply({}, state, None, x, True)

    hidden_mean, hidden_var, mean, var = 0.0, 0.0, batches[0].mean(0), batches[0].var(0)
    ratios = []
    for n, x in enumerate(batches[1:], 1):
        mu, sigma, old = x.mean(0), np.sqrt(x.var(0) + eps), np.sqrt(var + eps)
        r, d = np.clip(sigma / old, 1 / r_max, r_max), np.clip((mu - mean) / old, -d_max, d_max)
        ratios += [*r]
        y, state = step(state, jnp.float32(x))
        np.testing.assert_allclose(y, (x - mu) / sigma * r + d, rtol=1e-4, atol=1e-5)
        hidden_mean = decay * hidden_mean + (1 - decay) * mu
        hidden_var = decay * hidden_var + (1 - decay) * x.var(0)
        mean, var = hidden_mean / (1 - decay**n), hidden_var / (1 - decay**n)
    assert {1 / r_max, r_max} <= set(ratios) and any(1 / r_max < r < r_max for r in ratios)
    y, _ = model.apply({}, state, None, jnp.float32(batches[0]), False)
    np.testing.assert_allclose(y, (batches[0] - mean) / np.sqrt(var + eps), rtol=1e-4, atol=1e-5)


def test_corrections_of_batch_renormalisation_are_constants():
    """The slopes are those of batch normalisation, times r."""
    x, other = np.random.default_rng(1).normal(size=(2, 8, 1)).astype(np.float32)
    slopes = []
    for make in (hkx.BatchRenorm, hkx.BatchNorm):
        model = hkx.transform_with_state(lambda x, make=make: make(False, False, 0.9, 1e-3)(x, True))
        _, state = model.init(None, jnp.asarray(2 * other))
        slopes.append(jax.jit(jax.jacobian(lambda x: model.apply({}, state, None, x)[0]))(x))  # noqa: B023
    r = np.sqrt((x.var() + 1e-3) / ((2 * other).var() + 1e-3))
    assert abs(r - 1) > 0.1
    np.testing.assert_allclose(slopes[0], r * slopes[1], rtol=1e-4, atol=1e-5)


def test_batch_renormalisation_without_corrections_is_batch_normalisation():
    """`r_max` and `d_max` may be traced, so that a schedule need not compile anew."""
    x = np.random.default_rng(2).normal(size=(8, 2)).astype(np.float32)

    def net(x, step):
        bounds = {"r_max": jnp.where(step < 10, 1.0, 3.0), "d_max": jnp.where(step < 10, 0.0, 5.0)}
        return hkx.BatchRenorm(True, True, 0.9, 1e-5, **bounds)(x, True), hkx.BatchNorm(True, True, 0.9)(x, True)

    model = hkx.transform_with_state(net)
    params, state = model.init(None, x, 0)
    (early, plain), _ = jax.jit(model.apply)(params, state, None, 3 * x + 1, 9)
    (late, _), _ = jax.jit(model.apply)(params, state, None, 3 * x + 1, 10)
    np.testing.assert_allclose(early, plain, rtol=1e-5, atol=1e-6)
    assert np.max(np.abs(late - plain)) > 0.5
    with pytest.raises(ValueError, match="r_max"):
        hkx.transform(lambda x: hkx.BatchRenorm(True, True, 0.9, r_max=0.5)(x, True)).init(None, x)
