"""Layers against NumPy, at their edges, and their errors; the registry of tests/conformance holds the rest."""

from __future__ import annotations

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

RANDOM = np.random.RandomState(1)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    RANDOM.seed(1)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(f: Any, *args: Any) -> Any:
    return hkx.testing.transform_and_run(f)(*args)


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def convolved(x: np.ndarray, w: np.ndarray, stride: int, rate: int, before: int, after: int) -> np.ndarray:
    """A one-dimensional convolution as loops: x[N, W, C], w[K, C, O]."""
    x = np.pad(x, [(0, 0), (before, after), (0, 0)])
    reach = (w.shape[0] - 1) * rate + 1
    starts = range(0, x.shape[1] - reach + 1, stride)
    return np.stack([sum(x[:, i + k * rate] @ w[k] for k in range(w.shape[0])) for i in starts], 1)


@pytest.mark.parametrize(
    "padding,before,after",
    [
        ("VALID", 0, 0),
        ((1, 2), 1, 2),
        ([(3, 0)], 3, 0),
        (hkx.pad.causal, 4, 0),
        (hkx.pad.reverse_causal, 0, 4),
        (hkx.pad.full, 4, 4),
        ([hkx.pad.same], 2, 2),
        ("same", 1, 2),  # 8 inputs, stride 2 and a reach of 5: 4 outputs, 3 to add
    ],
)
def test_conv_padding(padding: Any, before: int, after: int) -> None:
    x, w = normal(2, 8, 3), normal(3, 3, 4)
    f = lambda x: hkx.Conv1D(4, 3, 2, 2, padding, with_bias=False)(x)  # noqa: E731
    y = hkx.transform(f).apply({"conv1_d": {"w": w}}, None, x)
    close(y, convolved(x, w, 2, 2, before, after))


def test_an_argument_for_each_dimension() -> None:
    assert hkx.pad.per_dimension("SAME", 2) == ("SAME", "SAME") and hkx.pad.per_dimension([5], 3) == (5, 5, 5)
    with pytest.raises(hkx.errors.InvalidLengthError, match=r"strides must be .* length 3, got \(1, 2\)"):
        hkx.pad.per_dimension((1, 2), 3, "strides")


@pytest.mark.parametrize("padding", ["SAME", "VALID", (2, 1)])
@pytest.mark.parametrize("stride", [1, 2, 4])
def test_conv_transpose(padding: Any, stride: int) -> None:
    x, w = normal(2, 4, 3), normal(3, 5, 3)
    f = lambda x: hkx.Conv1DTranspose(5, 3, stride, padding=padding, with_bias=False)(x)  # noqa: E731
    y = hkx.transform(f).apply({"conv1_d_transpose": {"w": w}}, None, x)
    spread = np.zeros([2, 3 * stride + 1, 3], np.float32)
    spread[:, ::stride] = x
    if padding == "SAME":
        total = stride + 1
        before = 2 if stride > 2 else -(-total // 2)
    elif padding == "VALID":
        before, total = 2, stride + 1 + max(3 - stride, 0)
    else:
        before, total = 2, 3
    close(y, convolved(spread, w.transpose(0, 2, 1), 1, 1, before, total - before))
    if padding != (2, 1):
        assert y.shape[1] == 4 * stride + (max(3 - stride, 0) if padding == "VALID" else 0)


def in_groups(x: np.ndarray, w: np.ndarray, groups: int, stride: int) -> np.ndarray:
    """A convolution without padding as loops: x[N, H, W, C], w[K, L, C / groups, O]; output o reads its group alone."""
    high, wide, channels, outputs = w.shape
    out = np.zeros([len(x), (x.shape[1] - high) // stride + 1, (x.shape[2] - wide) // stride + 1, outputs])
    for n, i, j, o in np.ndindex(out.shape):
        first = o // (outputs // groups) * channels
        window = x[n, i * stride :, j * stride :, first : first + channels][:high, :wide]
        out[n, i, j, o] = np.sum(window * w[..., o])
    return out


def normalised_in_groups(x: np.ndarray, groups: int) -> np.ndarray:
    out, size = np.zeros_like(x), x.shape[-1] // groups
    for n, g in np.ndindex(len(x), groups):
        own = x[n, ..., g * size : (g + 1) * size]
        out[n, ..., g * size : (g + 1) * size] = (own - own.mean()) / np.sqrt(own.var() + 1e-5)
    return out


GROUPED: dict[str, tuple[Any, dict[str, tuple[int, ...]], Any]] = {
    "grouped convolution": (
        lambda x: hkx.Conv2D(6, (3, 2), 2, padding="VALID", feature_group_count=2)(x),
        {"w": (3, 2, 2, 6), "b": (6,)},
        lambda x, p: in_groups(x, p["w"], 2, 2) + p["b"],
    ),
    "depthwise convolution": (
        lambda x: hkx.DepthwiseConv2D(2, (3, 2), 2, padding="VALID")(x),
        {"w": (3, 2, 1, 8), "b": (8,)},
        lambda x, p: in_groups(x, p["w"], 4, 2) + p["b"],
    ),
    "group norm": (
        lambda x: hkx.GroupNorm(2)(x),
        {"scale": (4,), "offset": (4,)},
        lambda x, p: normalised_in_groups(x, 2) * p["scale"] + p["offset"],
    ),
}


@pytest.mark.parametrize("name", GROUPED)
def test_channels_in_groups(name: str) -> None:
    f, shapes, expected = GROUPED[name]
    x, model = normal(2, 7, 6, 4), hkx.transform(f)
    ((module, made),) = model.init(0, x).items()
    assert jax.tree.map(jnp.shape, made) == shapes
    params = {entry: normal(*shape) for entry, shape in shapes.items()}
    close(model.apply({module: params}, None, x), expected(x, params))


def test_pooling() -> None:
    x = normal(2, 5, 3)
    windows = [(0, 2), (1, 4), (3, 5)]  # window 3, stride 2, one added on each side
    close(hkx.max_pool(x, 3, 2, "SAME"), np.stack([x[:, a:b].max(1) for a, b in windows], 1))
    close(hkx.avg_pool(x, 3, 2, "SAME"), np.stack([x[:, a:b].mean(1) for a, b in windows], 1))
    close(hkx.avg_pool(x, (2, 1), 1, "VALID"), (x[:, :-1] + x[:, 1:]) / 2)
    assert hkx.max_pool(np.full([1, 4, 1], -5, np.int8), 2, 2, "SAME").tolist() == [[[-5], [-5]]]


ERRORS = [
    (TypeError, "padding", lambda x: hkx.Conv2D(3, 3, padding=1)(x)),
    (ValueError, "feature_group_count", lambda x: hkx.Conv2D(3, 3, feature_group_count=3)(x)),
    (ValueError, "channel", lambda x: hkx.Conv2D(3, 3, data_format="HWC")(x)),
    (ValueError, "num_spatial_dims", lambda x: hkx.ConvND(0, 3, 3)(x)),
    (ValueError, "it takes one of size", lambda x: hkx.Conv2DTranspose(3, 3, 2, output_shape=30)(x)),
    (ValueError, "output_shape", lambda x: hkx.Conv2DTranspose(3, 3, 2, output_shape=9, padding=(1, 1))(x)),
    (ValueError, "channel axis", lambda x: hkx.avg_pool(x, 2, 2, "SAME", channel_axis=4)),
    (ValueError, "scale_init", lambda x: hkx.LayerNorm(-1, False, True, scale_init=jnp.ones)(x)),
    (ValueError, "offset", lambda x: hkx.LayerNorm(-1, True, True)(x, offset=1.0)),
    (ValueError, "cross_replica_axis", lambda x: hkx.BatchNorm(1, 1, 0.9, cross_replica_axis_index_groups=[[0]])(x, 1)),
    (ValueError, "divisible", lambda x: hkx.GroupNorm(3)(x)),
    (ValueError, "it is that of a matrix", lambda x: hkx.SpectralNorm()(x[0, 0, 0])),
    (ValueError, "4D", lambda x: hkx.SpectralNorm()(x, error_on_non_matrix=True)),
    (ValueError, "warmup_length", lambda x: hkx.ExponentialMovingAverage(0.9, warmup_length=2)(x)),
    (ValueError, "embedding_matrix", lambda x: hkx.Embed(5)(x)),
    (ValueError, "w_init", lambda x: hkx.MultiHeadAttention(2, 3)(x, x, x)),
    (
        ValueError,
        "dimensionality",
        lambda x: hkx.MultiHeadAttention(2, 3, w_init=hkx.initializers.VarianceScaling())(
            x, x, x, mask=np.ones([4, 4])
        ),
    ),
    (ValueError, r"rank in \[1, 2\]", lambda x: hkx.LSTM(3)(x, hkx.LSTM(3).initial_state(2))),
    (ValueError, "should_reset", lambda x: hkx.ResetCore(hkx.GRU(3))((x[0, 0], np.ones([2, 3])), jnp.zeros([4, 3]))),
    (ValueError, "RNNCore", lambda x: hkx.deep_rnn_with_skip_connections([jax.nn.relu])),
    (ValueError, "no steps", lambda x: hkx.static_unroll(hkx.IdentityCore(), x[:0], ())),
    (TypeError, "abstract", lambda x: hkx.RNNCore()),
    (ValueError, "merges 5 dimensions", lambda x: hkx.BatchApply(jnp.sin, num_dims=5)(x)),
    (ValueError, "axis", lambda x: hkx.expand_apply(jnp.sin, axis=1)(x)),
    (ValueError, "-1", lambda x: hkx.Reshape([-1, -1])(x)),
    (ValueError, "reshaped", lambda x: hkx.Reshape([7])(x)),
    (ValueError, "rank >= 2", lambda x: hkx.Bias()(x[0, 0, 0])),
    (AttributeError, "not been made", lambda x: hkx.Deferred(lambda: hkx.Linear(3)).output_size),
]


@pytest.mark.parametrize("error,words,f", ERRORS, ids=[f"{i}-{e[1]}" for i, e in enumerate(ERRORS)])
def test_errors(error: type[Exception], words: str, f: Any) -> None:
    with pytest.raises(error, match=words):
        run(f, np.ones([2, 4, 4, 4], np.float32))


# The mean of these squares minus the square of the mean is negative in float32.
CANCELLING = np.full([3, 5, 2], 1234.5678, np.float32)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: hkx.BatchNorm(True, True, 0.9)(x, True),
        lambda x: hkx.BatchNorm(True, True, 0.9)(x, False, True),
        lambda x: hkx.LayerNorm(1, True, True, use_fast_variance=True)(x),
        lambda x: hkx.LayerNorm(-1, True, True)(x),
        lambda x: hkx.InstanceNorm(True, True)(x),
        lambda x: hkx.GroupNorm(2)(x),
        lambda x: hkx.RMSNorm(-1)(0 * x),
    ],
)
@pytest.mark.parametrize("x", [CANCELLING, 3e4 + 1e-3 * normal(3, 5, 2)], ids=["equal", "close"])
def test_degenerate_statistics_stay_finite(f: Any, x: np.ndarray) -> None:
    model = hkx.transform_with_state(f)
    params, state = model.init(None, x)

    def total(x: Any) -> Any:
        out, new = model.apply(params, state, None, x)
        return jnp.sum(out), (out, new)

    everything = jax.jit(jax.value_and_grad(total, has_aux=True))(x)  # one program; as it is, each primitive is one
    assert all(np.isfinite(v).all() for v in jax.tree.leaves(everything))


def test_batch_norm_empty_and_untrained() -> None:
    model = hkx.transform_with_state(lambda x, t: hkx.BatchNorm(True, True, 0.9)(x, t))
    x = normal(4, 3)
    with pytest.raises(hkx.errors.MissingAverageError, match="is_training=True"):
        model.init(None, x, False)
    params, state = model.init(None, x[:0], True)
    with pytest.raises(ValueError, match="nothing to take mean"):
        model.apply(params, state, None, x[:0], True)
    close(model.apply(params, state, None, x, False)[0], x / np.sqrt(1 + 1e-5))
    params, state = model.init(None, x, True)
    assert model.apply(params, state, None, x[:0], False)[0].shape == (0, 3)
    # The averages start from the first batch, so that they can be used at once.
    y, _ = model.apply(params, state, None, x, False)
    close(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5))


def test_batch_norm_averages() -> None:
    model = hkx.transform_with_state(lambda x: hkx.BatchNorm(False, False, 0.75)(x, True))
    batches = [normal(5, 2) for _ in range(3)]
    params, state = model.init(None, batches[0])
    hidden = np.zeros(2)
    for x in batches:
        _, state = model.apply(params, state, None, x)
        hidden = 0.75 * hidden + 0.25 * x.mean(0)
    close(state["batch_norm/~/mean_ema"]["average"][0], hidden / (1 - 0.75**3))
    assert state["batch_norm/~/mean_ema"]["counter"] == 3


@pytest.mark.eight_devices
@pytest.mark.parametrize("groups", [None, [[0, 1], [2, 3]]])
def test_batch_norm_over_replicas(groups: Any) -> None:
    """Statistics over replicas are those of the joined batches."""
    x = normal(4, 3, 2)

    def f(x: Any) -> Any:
        norm = hkx.BatchNorm(True, True, 0.9, cross_replica_axis="i", cross_replica_axis_index_groups=groups)
        return norm(x, True)

    model = hkx.transform_with_state(f)
    devices = jax.sharding.Mesh(np.array(jax.devices()[:4]), "i")
    spec = jax.sharding.PartitionSpec("i")

    def both(x: Any) -> Any:
        params, state = model.init(None, x[0])
        return model.apply(params, state, None, x[0])[0][None]

    y = jax.jit(jax.shard_map(both, mesh=devices, in_specs=spec, out_specs=spec, check_vma=False))(x)
    for members in groups or [[0, 1, 2, 3]]:
        joined = x[members].reshape(-1, 2)
        close(y[np.array(members)], (x[members] - joined.mean(0)) / np.sqrt(joined.var(0) + 1e-5), 1e-4)


@pytest.mark.eight_devices
@pytest.mark.parametrize(("way", "groups"), [("vmap of jit", [[0, 2], [1, 3]]), ("shard_map", [[3], [0, 1, 2]])])
def test_batch_norm_over_groups_of_replicas_where_jax_has_none(way: str, groups: list[list[int]]) -> None:
    x = normal(4, 3, 2)

    def f(x: Any) -> Any:
        return hkx.BatchNorm(False, False, 0.9, cross_replica_axis="i", cross_replica_axis_index_groups=groups)(x, True)

    model = hkx.transform_with_state(f)
    params, state = model.init(None, x[0])
    outputs = lambda x: model.apply(params, state, None, x)[0]  # noqa: E731
    mapped = jax.vmap(jax.jit(outputs) if way == "vmap of jit" else outputs, axis_name="i")
    if way == "shard_map":
        mesh, rows = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,)), jax.P("i")
        mapped = jax.shard_map(lambda x: outputs(x[0])[None], mesh=mesh, in_specs=rows, out_specs=rows)
    y = jax.jit(mapped)(x)
    for members in groups:
        joined = x[members].reshape(-1, 2)
        close(y[np.array(members)], (x[members] - joined.mean(0)) / np.sqrt(joined.var(0) + 1e-5), 1e-4)


def test_groups_of_replicas_list_each_of_them_once() -> None:
    norm = lambda x: hkx.BatchNorm(  # noqa: E731
        False, False, 0.9, cross_replica_axis="i", cross_replica_axis_index_groups=[[0, 1], [1]]
    )(x, True)
    model = hkx.transform_with_state(norm)
    with pytest.raises(ValueError, match=r"each of the 3 indices along 'i' once.*got \[\[0, 1\], \[1\]\]"):
        jax.vmap(lambda x: model.init(None, x), axis_name="i")(normal(3, 2, 2))


def test_batch_norm_over_replicas_starts_without_them() -> None:
    x = normal(4, 2)
    model = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9, cross_replica_axis="i")(x, True))
    params, state = model.init(None, x)
    close(state["batch_norm/~/mean_ema"]["average"][0], x.mean(0))
    with pytest.raises(NameError, match="i"):  # JAX's own: in `apply` the axis is meant
        model.apply(params, state, None, x)


def test_spectral_norm() -> None:
    w = normal(6, 4)
    model = hkx.transform_with_state(lambda w: hkx.SpectralNorm(n_steps=50, eps=1e-8)(w))
    y, state = jax.jit(model.apply)(*model.init(0, w), None, w)
    sigma = np.linalg.svd(w)[1][0]
    close(state["spectral_norm"]["sigma"], sigma, 1e-3)
    close(y, w / sigma, 1e-3)


def test_attention_where_nothing_is_allowed() -> None:
    """Every key counts alike, also where -1e30 is not a number of the dtype."""
    x = normal(1, 3, 4).astype(np.float16)
    model = hkx.transform(
        lambda x: hkx.MultiHeadAttention(2, 3, w_init=hkx.initializers.VarianceScaling())(
            x, x, x, mask=np.zeros([1, 1, 3, 3])
        )
    )
    y = np.asarray(jax.jit(model.apply)(model.init(0, x), None, x), np.float32)
    assert np.isfinite(y).all()
    close(y, np.broadcast_to(y[:, :1], y.shape), 1e-6)


def test_reset_core_over_episodes() -> None:
    xs, starts = normal(6, 2, 3), RANDOM.randint(0, 2, (6, 2)).astype(bool)

    def unroll(xs: Any, starts: Any) -> Any:
        core = hkx.ResetCore(hkx.LSTM(4))
        return hkx.dynamic_unroll(core, (xs, starts), core.initial_state(2))[0]

    model = hkx.transform(unroll)
    params = model.init(0, xs, starts)
    ys = model.apply(params, None, xs, starts)
    one = hkx.transform(lambda x, s: hkx.LSTM(4)(x, s))
    for b in range(2):
        state = hkx.LSTMState(jnp.zeros(4), jnp.zeros(4))
        for t in range(6):
            if starts[t, b]:
                state = hkx.LSTMState(jnp.zeros(4), jnp.zeros(4))
            y, state = one.apply(params, None, xs[t, b], state)
            close(ys[t, b], y)


def test_unrolls_agree_and_states() -> None:
    xs = normal(4, 2, 3)

    def both(xs: Any) -> Any:
        core = hkx.GRU(3)
        state = core.initial_state(2)
        return (
            hkx.static_unroll(core, xs, state),
            hkx.dynamic_unroll(core, xs, state),
            hkx.dynamic_unroll(core, xs, state, return_all_states=True),
        )

    (ys, last), (zs, final), (us, states) = run(both, xs)
    close(ys, zs)
    close(last, final)
    close(us, states)
    close(states[-1], final)
    # Outside of a transform the same functions take plain functions.
    totals, total = hkx.dynamic_unroll(lambda x, s: (s + x, s + x), xs, jnp.zeros([2, 3]), reverse=True)
    close(totals, xs[::-1].cumsum(0)[::-1])
    close(total, xs.sum(0))


def test_deferred_names() -> None:
    class Outer(hkx.Module):
        def __init__(self) -> None:
            super().__init__()
            self.later = hkx.Deferred(lambda: hkx.Linear(2))

        def __call__(self, x: Any) -> Any:
            return self.later(x)

    assert list(hkx.transform(lambda x: Outer()(x)).init(0, normal(1, 3))) == ["outer/~/linear"]


def test_reset_core_keeps_the_dtype_of_its_state() -> None:
    with jax.enable_x64(True):
        state = jnp.ones([2, 3], jnp.float32)

        class Core(hkx.RNNCore):
            def __call__(self, inputs: Any, state: Any) -> Any:
                return inputs, state

            def initial_state(self, batch_size: int | None) -> Any:
                return jnp.zeros([batch_size or 1, 3])

        run = hkx.transform(lambda s: hkx.ResetCore(Core())((s, jnp.array([True, False])), s)[1])
        after = run.apply({}, None, state)
    assert after.dtype == jnp.float32
    np.testing.assert_array_equal(after, [[0] * 3, [1] * 3])


def test_attention_of_another_kind_projects_to_heads_as_in_haiku():
    """As public programs have it; the names were read off dm-haiku, and a helper of theirs may have any name."""

    class Linear(hkx.MultiHeadAttention):
        def __call__(self, x: Any) -> Any:
            q, k, v = (self._linear_projection(x, self.key_size, name) for name in ("q", "k", "v"))
            return self._linear(jnp.einsum("qhd,khd,khe->qhe", q, k, v).reshape(len(x), -1)) + super().__call__(x, x, x)

        def _linear(self, x: Any) -> Any:
            return hkx.Linear(self.model_size, name="out")(x)

    params = hkx.transform(lambda: Linear(2, 3, w_init=jnp.ones)(jnp.ones([4, 5]))).init(0)
    names = ["q", "k", "v", "~_linear/out", "query", "key", "value", "linear"]
    assert list(params) == [f"linear/{name}" for name in names]


def test_attention_drops_weights() -> None:
    """Queries of zero attend to all keys alike; the values and the other projections show the weights as they are."""
    eye, zero = np.eye(4, dtype=np.float32), np.zeros([4, 4], np.float32)
    weights = {"query": zero, "key": eye, "value": eye, "linear": eye}
    params = {f"multi_head_attention/{name}": {"w": w} for name, w in weights.items()}

    def f(query: Any, rate: Any) -> Any:
        layer = hkx.MultiHeadAttention(1, 4, w_init=jnp.ones, with_bias=False)
        return layer(query, eye, eye, dropout_rate=rate)

    apply, query = hkx.transform(f).apply, np.ones([100, 4], np.float32)
    np.testing.assert_array_equal(apply(params, None, query, 0.0), np.full([100, 4], 0.25))
    dropped = apply(params, 0, query, 0.75)
    np.testing.assert_array_equal(np.unique(dropped), [0, 1])  # 0.25 / (1 - 0.75)
    assert 70 < dropped.sum() < 130  # of 400, a quarter; three standard deviations are 26
    np.testing.assert_array_equal(jax.jit(apply)(params, 0, query, 0.75), dropped)
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        apply(params, 0, query, 1.0)


@pytest.mark.parametrize("file,name", [("linear", "Linear"), ("norm/batch", "BatchNorm")])
def test_a_copy_of_a_layer_works_as_the_layer_does(file: str, name: str) -> None:
    source = (pathlib.Path(hkx.__file__).parent / "nn" / f"{file}.py").read_text(encoding="utf-8")
    mine: dict[str, Any] = {"__name__": "mine"}
    exec(source, mine)
    assert mine[name].__module__ == "mine"
    x, make, more = normal(4, 3), (2,), ()
    if name == "BatchNorm":
        make, more = (True, True, 0.5), (True,)
    pairs = [hkx.transform_with_state(lambda x, c=c: c(*make)(x, *more)) for c in (mine[name], getattr(hkx, name))]
    variables = [pair.init(0, x) for pair in pairs]
    jax.tree.map(np.testing.assert_array_equal, *variables)
    outputs = [pair.apply(*given, None, x) for pair, given in zip(pairs, variables, strict=True)]
    jax.tree.map(np.testing.assert_array_equal, *outputs)
