"""The layers of language models, against NumPy loops written from their equations."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

HEADS, KV_HEADS, SIZE, TIME = 4, 2, 6, 7


@pytest.fixture
def random():
    return np.random.default_rng(3)


def model_of(f):
    model = hkx.without_apply_rng(hkx.transform(f))
    return model._replace(apply=jax.jit(model.apply))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def made(model, *args, random):
    """Parameters of this model's shapes, all of them random."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), *args)
    return jax.tree.map(lambda x: random.normal(0, 0.5, x.shape).astype(np.float32), shapes)


def turned(x, position, theta=10000.0):
    """Pairs (i, i + D / 2) of a vector, as complex numbers, times e^(i angle)."""
    half = len(x) // 2
    z = (x[:half] + 1j * x[half:]) * np.exp(1j * position * theta ** (-np.arange(half) / half))
    return np.concatenate([z.real, z.imag])


def attended(q, k, v, *, scale, cap, window, sinks):
    """One query head and its head of keys and values, `[T, D]`: token by token."""
    out = []
    for t in range(len(q)):
        first = max(0, t - window + 1)
        logits = np.array([scale * q[t] @ k[s] for s in range(first, t + 1)])
        logits = np.append(cap * np.tanh(logits / cap), sinks)
        out.append(softmax(logits)[:-1] @ v[first : t + 1])
    return np.array(out)


def everything(x, cache=None, window=3, **options):
    norm = {f"{n}_norm": lambda y, n=n: hkx.RMSNorm(-1, 1e-6, name=f"{n}_norm")(y) for n in ("query", "key")}
    layer = hkx.CausalAttention(
        HEADS, KV_HEADS, SIZE, model_size=5, bias=["query", "value"], rotary=hkx.RotaryEmbedding(100.0),
        scale=0.3, soft_cap=1.5, sinks=True, **norm,
    )  # fmt: skip
    return layer(x, cache=cache, window=window, **options)


def test_attention_is_the_loop_over_heads_and_tokens(random):
    x = random.normal(size=(2, TIME, 8)).astype(np.float32)
    model = model_of(everything)
    params = made(model, x, random=random)
    p = {name.removeprefix("causal_attention").strip("/"): entries for name, entries in params.items()}
    assert {name: sorted(entries) for name, entries in p.items()} == {
        "": ["sinks"], "query": ["b", "w"], "key": ["w"], "value": ["b", "w"], "output": ["w"],
        "query_norm": ["scale"], "key_norm": ["scale"],
    }  # fmt: skip

    def rms(y, name):
        return y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-6) * p[name]["scale"]

    rows = []
    for row in x:
        q = rms((row @ p["query"]["w"] + p["query"]["b"]).reshape(TIME, HEADS, SIZE), "query_norm")
        k = rms((row @ p["key"]["w"]).reshape(TIME, KV_HEADS, SIZE), "key_norm")
        v = (row @ p["value"]["w"] + p["value"]["b"]).reshape(TIME, KV_HEADS, SIZE)
        q, k = (np.array([[turned(h, t, 100.0) for h in token] for t, token in enumerate(y)]) for y in (q, k))
        heads = [
            attended(q[:, h], k[:, h // 2], v[:, h // 2], scale=0.3, cap=1.5, window=3, sinks=p[""]["sinks"][h])
            for h in range(HEADS)
        ]
        rows.append(np.concatenate(heads, axis=-1) @ p["output"]["w"])
    np.testing.assert_allclose(model.apply(params, x), np.stack(rows), atol=2e-5)
    traced = model.apply(params, x, None, 3)
    np.testing.assert_allclose(traced, np.stack(rows), atol=2e-5)


def test_it_has_the_numbers_and_names_of_grouped_query_attention(random):
    x = random.normal(size=(2, TIME, 8)).astype(np.float32)
    sizes = {"num_heads": 4, "num_kv_heads": 2, "key_size": 6, "name": "a"}
    old = model_of(
        lambda x: hkx.GroupedQueryAttention(**sizes, rotary=hkx.RotaryEmbedding())(x, is_causal=True, window=4)
    )
    new = model_of(lambda x: hkx.CausalAttention(**sizes, rotary=hkx.RotaryEmbedding())(x, window=4))
    params = made(old, x, random=random)
    np.testing.assert_allclose(new.apply(params, x), old.apply(params, x), atol=1e-5)


def test_a_cache_gives_the_same_and_rows_may_start_late_or_be_replaced(random):
    x = random.normal(size=(2, TIME, 8)).astype(np.float32)
    model = model_of(lambda x, cache, window: everything(x, cache, window))
    params = made(model, x, None, 3, random=random)
    empty = hkx.transform(lambda: hkx.CausalAttention(4, 2, 6).initial_cache(2, 12)).apply({}, None)
    whole = model.apply(params, x, None, 3)
    padded = np.stack([x[0], np.concatenate([np.full([3, 8], 9.0, np.float32), x[1, :4]])])
    cache, out = empty._replace(start=jnp.array([0, 3])), []
    for piece in np.split(padded, [4, 5], axis=1):
        y, cache = model.apply(params, piece, cache, 3)
        out.append(y)
    out = np.concatenate(out, axis=1)
    np.testing.assert_allclose(out[0], whole[0], atol=1e-5)
    np.testing.assert_allclose(out[1, 3:], whole[1, :4], atol=1e-5)
    # row 0 has ended: the first four tokens of x[1] take its place, and both rows go on with the fifth
    alone = model.apply(params, x[1:, :4], jax.tree.map(lambda leaf: leaf[:1] if leaf.ndim else leaf, empty), 3)[1]
    key, value = (
        old.at[0, :, 3:7].set(new[0, :, :4]) for old, new in ((cache.key, alone.key), (cache.value, alone.value))
    )
    cache = cache._replace(key=key, value=value, start=jnp.array([3, 3]))
    y, cache = model.apply(params, np.stack([x[1, 4:5]] * 2), cache, 3)
    np.testing.assert_allclose(y[:, 0], np.stack([whole[1, 4]] * 2), atol=1e-5)
    with pytest.raises(ValueError, match="has room for 12 tokens and holds 8: 7 more do not fit"):
        hkx.transform(everything).apply(params, None, x, cache)


def test_latent_attention_is_attention_to_keys_and_values_of_heads(random):
    x = random.normal(size=(1, TIME, 8)).astype(np.float32)

    def f(x, cache=None):
        return hkx.LatentAttention(3, 5, 4, 6, 4, 2, bias=True, rotary=hkx.RotaryEmbedding(), name="a")(x, cache=cache)

    model = model_of(f)
    params = made(model, x, random=random)
    p = {name.removeprefix("a").strip("/"): entries for name, entries in params.items()}

    def rms(y, name):
        return y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-6) * p[name]["scale"]

    q = rms(x[0] @ p["query_down"]["w"] + p["query_down"]["b"], "query_norm") @ p["query_up"]["w"]
    q = q.reshape(TIME, 3, 10)
    down = x[0] @ p["kv_down"]["w"] + p["kv_down"]["b"]
    up = (rms(down[:, :5], "kv_norm") @ p[""]["kv_up"]).reshape(TIME, 3, 8)
    heads = []
    for h in range(3):
        rotary = [np.array([turned(y, t) for t, y in enumerate(part)]) for part in (q[:, h, 6:], down[:, 5:])]
        queries = np.concatenate([q[:, h, :6], rotary[0]], axis=-1)
        keys = np.concatenate([up[:, h, :6], rotary[1]], axis=-1)
        heads.append(attended(queries, keys, up[:, h, 6:], scale=10**-0.5, cap=1e9, window=99, sinks=-np.inf))
    expected = np.concatenate(heads, axis=-1) @ p["output"]["w"] + p["output"]["b"]
    np.testing.assert_allclose(model.apply(params, x)[0], expected, atol=2e-5)
    cache, out = hkx.transform(lambda: hkx.LatentAttention(3, 5, 4, 6, 4, 2).initial_cache(1, 9)).apply({}, None), []
    assert cache.key.shape == (1, 1, 9, 5 + 4)
    for piece in np.split(x, [4, 5, 6], axis=1):
        y, cache = model.apply(params, piece, cache)
        out.append(y[0])
    np.testing.assert_allclose(np.concatenate(out), expected, atol=2e-5)


@pytest.mark.parametrize("layer", [lambda: hkx.CausalAttention(4, 2, 6), lambda: hkx.LatentAttention(3, 5, 4, 6, 4, 2)])
@pytest.mark.parametrize(
    "mask,error",
    [
        (np.ones([1, 3, 3]), "`mask` of `.*Attention` is of dtype float.*, expected bool"),
        (np.ones([3, 3], bool), r"`mask` of `.*Attention` has shape \(3, 3\)"),
        (np.ones([1, 3, 4], bool), r"`mask` of `.*Attention` has shape \(1, 3, 4\), expected \(2, 3, 3\)"),
    ],
)
def test_masks_of_another_dtype_or_shape(layer, mask, error):
    with pytest.raises(hkx.errors.HkxError, match=error):
        hkx.transform(lambda x: layer()(x, mask=mask)).init(0, np.ones([2, 3, 8], np.float32))


def silu(x):
    return x / (1 + np.exp(-x))


def test_gated_mlp(random):
    x = random.normal(size=(2, 3)).astype(np.float32)
    model = model_of(lambda x: hkx.GatedMLP(4, 5, with_bias=True, name="m")(x))
    params = made(model, x, random=random)
    gate, up, down = (lambda y, p=params[f"m/{n}"]: y @ p["w"] + p["b"] for n in ("gate", "up", "down"))
    np.testing.assert_allclose(model.apply(params, x), down(silu(gate(x)) * up(x)), rtol=1e-5, atol=1e-6)


def swiglu(gate, up):
    return silu(gate) * up


def chosen(scores, correction, k, groups, top_groups):
    """The experts of one token: the best of those in the best groups."""
    choice = scores + correction
    size = len(scores) // groups
    best = sorted(range(groups), key=lambda g: -np.sort(choice[g * size : (g + 1) * size])[-2:].sum())[:top_groups]
    return sorted((e for e in range(len(scores)) if e // size in best), key=lambda e: -choice[e])[:k]


MIXTURES = {
    "softmax_not_normalised": {"normalize": False},
    "sigmoid": {"router": "sigmoid", "correction": True, "num_groups": 3, "top_groups": 2, "scale": 2.5},
    "biases": {"router_bias": True, "with_bias": True, "combine": lambda gate, up: jnp.minimum(gate, 0.1) * (up + 1)},
}


@pytest.mark.parametrize("kind", MIXTURES)
def test_mixture_of_experts_is_the_loop_over_tokens_and_experts(kind, random):
    options, x = MIXTURES[kind], random.normal(size=(2, 5, 4)).astype(np.float32)
    model = model_of(lambda x: hkx.MixtureOfExperts(6, 2, 3, name="m", **options)(x))
    params = made(model, x, random=random)
    p, router = params["m"], params["m/router"]
    combine = (lambda gate, up: np.minimum(gate, 0.1) * (up + 1)) if "combine" in options else swiglu
    expected = np.zeros_like(x)
    counts, means = np.zeros(6), np.zeros(6)
    for at in np.ndindex(2, 5):
        logits = x[at] @ router["w"] + router.get("b", 0)
        scores = 1 / (1 + np.exp(-logits)) if kind == "sigmoid" else softmax(logits)
        picked = chosen(scores, p.get("correction", np.zeros(6)), 2, *((3, 2) if kind == "sigmoid" else (1, 1)))
        weights = scores[picked] / (scores[picked].sum() if options.get("normalize", True) else 1)
        for e, weight in zip(picked, weights * options.get("scale", 1), strict=True):
            gate, up = (x[at] @ p[n][e] + (p[f"{n}_bias"][e] if "with_bias" in options else 0) for n in ("gate", "up"))
            y = combine(gate, up) @ p["down"][e] + (p["down_bias"][e] if "with_bias" in options else 0)
            expected[at] += weight * y
        counts[picked] += 1 / 10
        means += scores / 10
    np.testing.assert_allclose(model.apply(params, x), expected, atol=3e-5)
    layer = hkx.transform(lambda x: hkx.MixtureOfExperts(6, 2, 3, name="m", **options)(x))
    captured = hkx.capture_intermediates(layer, lambda module, method: method == "load_balancing_loss")
    (loss,) = jax.jit(captured.apply)(params, None, x)[1]["m"]["load_balancing_loss"]
    np.testing.assert_allclose(loss, 6 * (counts * means).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 7}, "`top_k` 7 must be at most the number of experts"),
        ({"num_groups": 4}, "`num_groups` 4 must divide `num_experts` 6"),
        ({"router": "linear"}, "`router` must be 'softmax' or 'sigmoid', got 'linear'"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        hkx.transform(lambda x: hkx.MixtureOfExperts(6, **{"top_k": 2, "hidden_size": 3} | options)(x)).init(None, 1.0)


def rotated(random, *, positions=None, **options):
    x = random.normal(size=(1, 5, 2, 8)).astype(np.float32)
    layer = hkx.transform(lambda x: hkx.RotaryEmbedding(100.0, **options)(x, positions))
    return x, np.asarray(layer.apply({}, None, x))


def angles(**scaling):
    """The angles at position 1 of a vector of ones and zeros, with theta 100 and a size of 64."""
    x = np.concatenate([np.ones(32), np.zeros(32)])[None, None, None]
    y = hkx.transform(lambda x: hkx.RotaryEmbedding(100.0, scaling=scaling)(x, jnp.ones(1, int))).apply({}, None, x)
    y = np.asarray(y)[0, 0, 0]
    return np.arctan2(y[32:], y[:32]), np.hypot(y[32:], y[:32])


PLAIN = 100.0 ** (-np.arange(32) / 32)


def test_a_part_of_the_features_is_rotated(random):
    x, y = rotated(random, size=4)
    expected = [[np.append(turned(head[:4], t, 100.0), head[4:]) for head in token] for t, token in enumerate(x[0])]
    np.testing.assert_allclose(y[0], expected, atol=1e-6)


def test_neighbours_are_rotated(random):
    x, y = rotated(random, interleaved=True)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    expected = [[turned(head[order], t, 100.0) for head in token] for t, token in enumerate(x[0])]
    np.testing.assert_allclose(y[0][..., order], expected, atol=1e-6)


def test_linear_scaling_is_a_smaller_position(random):
    _, y = rotated(random, scaling={"rope_type": "linear", "factor": 4.0}, positions=4 * np.arange(5))
    _, expected = rotated(np.random.default_rng(3))
    np.testing.assert_allclose(y, expected, atol=1e-6)


def test_llama3_scaling_spares_short_waves_and_divides_long_ones():
    found, _ = angles(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=100
    )
    turns = 100 * PLAIN / (2 * np.pi)
    np.testing.assert_allclose(found[turns > 4], PLAIN[turns > 4], rtol=1e-5)
    np.testing.assert_allclose(found[turns < 1], PLAIN[turns < 1] / 8, rtol=1e-5)
    between = (turns > 1) & (turns < 4)
    assert np.all((found[between] < PLAIN[between]) & (found[between] > PLAIN[between] / 8))
    assert between.sum() > 5


def test_yarn_scaling_goes_from_one_to_the_other_and_sharpens():
    found, size = angles(rope_type="yarn", factor=8.0, original_max_position_embeddings=600, truncate=False)
    turns = 600 * PLAIN / (2 * np.pi)
    np.testing.assert_allclose(found[turns > 32], PLAIN[turns > 32], rtol=1e-5)
    np.testing.assert_allclose(found[turns < 1], PLAIN[turns < 1] / 8, rtol=1e-5)
    np.testing.assert_allclose(size, 0.1 * math.log(8) + 1, rtol=1e-5)
    # between them the share of the divided frequency grows evenly with the index
    share = (PLAIN - found) / (PLAIN * (1 - 1 / 8))
    between = (turns > 1.1) & (turns < 30)
    np.testing.assert_allclose(np.diff(share[between], 2), 0, atol=1e-4)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (
            {"rope_type": "dynamic", "factor": 2.0},
            "must be one of 'default', 'linear', 'llama3', 'yarn', got 'dynamic'",
        ),
        ({"type": "linear"}, "`scaling` of type 'linear' lacks 'factor'"),
        ({"type": "linear", "factor": 2.0, "mscale": 1.0}, "`scaling` of type 'linear' has 'mscale'"),
    ],
)
def test_unknown_scaling_is_refused(scaling, message):
    with pytest.raises(ValueError, match=message):
        hkx.transform(lambda: hkx.RotaryEmbedding(scaling=scaling)).apply({}, None)


def test_rms_norm_with_an_offset_starts_as_without(random):
    x = random.normal(size=(2, 4)).astype(np.float32)
    plain, offset = (model_of(lambda x, o=o: hkx.RMSNorm(-1, scale_offset=o, name="n")(x)) for o in (0.0, 1.0))
    params = offset.init(None, x)
    np.testing.assert_array_equal(params["n"]["scale"], np.zeros(4))
    np.testing.assert_array_equal(offset.apply(params, x), plain.apply(plain.init(None, x), x))
    scale = np.arange(4, dtype=np.float32)
    expected = plain.apply({"n": {"scale": 1 + scale}}, x)
    np.testing.assert_array_equal(offset.apply({"n": {"scale": scale}}, x), expected)
