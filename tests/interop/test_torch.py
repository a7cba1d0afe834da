"""PyTorch weights in hkx: both compute the same, and both ways of conversion are inverse to each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="compares with torch")

import hkx  # noqa: E402
from hkx.errors import WeightMismatchError  # noqa: E402
from hkx.interop.torch import ResetAfterGRU, from_state_dict, to_state_dict  # noqa: E402

pytestmark = [pytest.mark.peer, pytest.mark.unoptimised]

NN = torch.nn


def data(*shape):
    return np.random.RandomState(0).standard_normal(shape).astype(np.float32)


def channels_last(x):
    return np.moveaxis(x, 1, -1)


def norm(x):
    return hkx.BatchNorm(True, True, 0.9)(x, is_training=False, test_local_stats=False)


def unrolled(core, x):
    return hkx.dynamic_unroll(core, x, core.initial_state(x.shape[1]))[0]


IMAGE, SOUND, SEQUENCE = data(2, 6, 9, 8), data(2, 6, 11), data(5, 2, 6)
LAYERS = {
    "linear": (lambda: NN.Linear(6, 4), lambda x: hkx.Linear(4)(x), data(3, 6)),
    "linear_no_bias": (lambda: NN.Linear(6, 4, bias=False), lambda x: hkx.Linear(4, with_bias=False)(x), data(3, 6)),
    "conv1d": (lambda: NN.Conv1d(6, 4, 3), lambda x: hkx.Conv1D(4, 3, padding="VALID")(x), SOUND),
    "conv2d": (
        lambda: NN.Conv2d(6, 4, (3, 2), stride=2, padding=1, groups=2),
        lambda x: hkx.Conv2D(4, (3, 2), stride=2, padding=[(1, 1), (1, 1)], feature_group_count=2)(x),
        IMAGE,
    ),
    "conv3d": (lambda: NN.Conv3d(2, 4, 3), lambda x: hkx.Conv3D(4, 3, padding="VALID")(x), data(1, 2, 4, 5, 6)),
    "depthwise": (
        lambda: NN.Conv2d(6, 6, 3, groups=6),
        lambda x: hkx.DepthwiseConv2D(1, 3, padding="VALID")(x),
        IMAGE,
    ),
    "transposed1d": (
        lambda: NN.ConvTranspose1d(6, 4, 3, stride=2),
        lambda x: hkx.Conv1DTranspose(4, 3, stride=2, padding="VALID")(x),
        SOUND,
    ),
    "transposed2d": (
        lambda: NN.ConvTranspose2d(6, 4, (3, 2), stride=2),
        lambda x: hkx.Conv2DTranspose(4, (3, 2), stride=2, padding="VALID")(x),
        IMAGE,
    ),
    "transposed3d": (
        lambda: NN.ConvTranspose3d(2, 3, 2),
        lambda x: hkx.Conv3DTranspose(3, 2, padding="VALID")(x),
        data(1, 2, 3, 4, 3),
    ),
    "layer_norm": (lambda: NN.LayerNorm(6), lambda x: hkx.LayerNorm(-1, True, True)(x), SEQUENCE),
    "group_norm": (lambda: NN.GroupNorm(3, 6), lambda x: hkx.GroupNorm(3)(x), IMAGE),
    "batch_norm": (lambda: NN.BatchNorm2d(6), norm, IMAGE),
    "lstm": (lambda: NN.LSTM(6, 5), lambda x: unrolled(hkx.LSTM(5), x), SEQUENCE),
    "lstm_no_bias": (lambda: NN.LSTM(6, 5, bias=False), lambda x: unrolled(hkx.LSTM(5), x), SEQUENCE),
    "circular": (
        lambda: NN.Conv2d(6, 4, 3, padding=1, padding_mode="circular"),
        lambda x: hkx.Conv2D(4, 3, padding="VALID")(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="wrap")),
        IMAGE,
    ),
    "dilated": (
        lambda: NN.Conv2d(6, 4, 3, dilation=2),
        lambda x: hkx.Conv2D(4, 3, rate=2, padding="VALID")(x),
        IMAGE,
    ),
    "transposed_output_padding": (
        lambda: NN.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1),
        lambda x: hkx.Conv2DTranspose(4, 3, stride=2, padding=[(1, 2), (1, 2)])(x),
        IMAGE,
    ),
    "layer_norm_of_two_axes": (
        lambda: NN.LayerNorm([2, 6]),
        lambda x: hkx.LayerNorm((-2, -1), True, True, param_axis=(-2, -1))(x),
        SEQUENCE,
    ),
    "rms_norm": (lambda: NN.RMSNorm(6, eps=1e-5), lambda x: hkx.RMSNorm(-1)(x), SEQUENCE),
    "instance_norm": (
        lambda: NN.InstanceNorm2d(6, affine=True),
        lambda x: hkx.InstanceNorm(True, True)(x),
        IMAGE,
    ),
    "prelu": (lambda: NN.PReLU(6), lambda x: hkx.PReLU(-1)(x), IMAGE),
    "gru": (lambda: NN.GRU(6, 5), lambda x: unrolled(ResetAfterGRU(5), x), SEQUENCE),
}
SPATIAL = ("conv1d", "conv2d", "conv3d", "depthwise", "transposed1d", "transposed2d", "transposed3d") + (
    "group_norm",
    "batch_norm",
    "circular",
    "dilated",
    "transposed_output_padding",
    "instance_norm",
    "prelu",
)


def trained(module):
    """Random weights, so that nothing is zero or one."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
    return module.eval()


def initialised(f, *args):
    """Parameters and state of `f`, whose batch normalisation has been trained once."""
    params, state = hkx.transform_with_state(f).init(jax.random.key(0), *args)
    return params, state


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_the_same(name):
    make, f, x = LAYERS[name]
    module = trained(make())
    theirs = module(torch.tensor(x))
    theirs = (theirs[0] if isinstance(theirs, tuple) else theirs).detach().numpy()
    ours_x = channels_last(x) if name in SPATIAL else x
    model = hkx.transform_with_state(f)
    if name == "batch_norm":
        training = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, is_training=True))
        template = training.init(jax.random.key(0), ours_x)
    else:
        template = model.init(jax.random.key(0), ours_x)
    params, state = from_state_dict(module.state_dict(), *template)
    ours = np.asarray(model.apply(params, state, None, ours_x)[0])
    theirs = channels_last(theirs) if name in SPATIAL else theirs
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)

    back = make()
    back.load_state_dict(to_state_dict(params, state, back.state_dict()))
    again = back.eval()(torch.tensor(x))
    again = (again[0] if isinstance(again, tuple) else again).detach().numpy()
    np.testing.assert_allclose(channels_last(again) if name in SPATIAL else again, theirs, rtol=2e-5, atol=2e-5)


def test_embedding_and_attention():
    table = trained(NN.Embedding(7, 6))
    params, _ = from_state_dict(
        table.state_dict(), hkx.transform(lambda i: hkx.Embed(7, 6)(i)).init(jax.random.key(0), np.arange(3))
    )
    np.testing.assert_array_equal(params["embed"]["embeddings"], table.weight.detach().numpy())

    attention = trained(NN.MultiheadAttention(6, 2))
    init = hkx.initializers.VarianceScaling()
    model = hkx.transform(lambda q, kv: hkx.MultiHeadAttention(2, 3, w_init=init)(q, kv, kv))
    q, kv = data(4, 6), data(5, 6)
    params, _ = from_state_dict(attention.state_dict(), model.init(jax.random.key(0), q, kv))
    theirs = attention(torch.tensor(q), torch.tensor(kv), torch.tensor(kv))[0].detach().numpy()
    np.testing.assert_allclose(model.apply(params, None, q, kv), theirs, rtol=1e-5, atol=1e-5)
    back = to_state_dict(params, None, attention.state_dict())
    assert all(torch.equal(back[k], v) for k, v in attention.state_dict().items())


def test_a_sequence_of_layers_and_a_network_of_two_recurrent_layers():
    theirs = trained(NN.Sequential(NN.Linear(6, 4), NN.LayerNorm(4), NN.ReLU(), NN.Linear(4, 2)))
    ours = hkx.transform(
        lambda x: hkx.Sequential([hkx.Linear(4), hkx.LayerNorm(-1, True, True), jax.nn.relu, hkx.Linear(2)])(x)
    )
    x = data(3, 6)
    params, _ = from_state_dict(theirs.state_dict(), ours.init(jax.random.key(0), x))
    np.testing.assert_allclose(ours.apply(params, None, x), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5)

    def deep(x):
        core = hkx.DeepRNN([hkx.LSTM(5), hkx.LSTM(4)])
        return hkx.dynamic_unroll(core, x, core.initial_state(2))[0]

    class Two(NN.Module):
        def __init__(self):
            super().__init__()
            self.rnn = NN.LSTM(6, 5)
            self.second = NN.LSTM(5, 4)

        def forward(self, x):
            return self.second(self.rnn(x)[0])[0]

    stacked = trained(NN.LSTM(6, 5, num_layers=2))
    model = hkx.transform(lambda x: unrolled(hkx.DeepRNN([hkx.LSTM(5), hkx.LSTM(5)]), x))
    names = {"": ["lstm", "lstm_1"]}
    params, _ = from_state_dict(stacked.state_dict(), model.init(jax.random.key(0), SEQUENCE), names=names)
    np.testing.assert_allclose(
        model.apply(params, None, SEQUENCE), stacked(torch.tensor(SEQUENCE))[0].detach().numpy(), rtol=1e-5, atol=1e-5
    )
    two = trained(Two())
    model = hkx.transform(deep)
    names = {"second": "lstm_1", "rnn": "lstm"}
    params, _ = from_state_dict(two.state_dict(), model.init(jax.random.key(0), SEQUENCE), names=names)
    np.testing.assert_allclose(
        model.apply(params, None, SEQUENCE), two(torch.tensor(SEQUENCE)).detach().numpy(), rtol=1e-5, atol=1e-5
    )


class Summed(hkx.Module):
    """Recurrent layers, each of one direction or of both."""

    def __init__(self, core, sizes, both, time_major=True):
        super().__init__()
        self.core, self.sizes, self.both, self.time_major = core, sizes, both, time_major

    def __call__(self, x):
        for size in self.sizes:
            if self.both:
                x, _ = hkx.Bidirectional(self.core(size), self.core(size))(x, time_major=self.time_major)
            else:
                core = self.core(size)
                batch_size = x.shape[1 if self.time_major else 0]
                x, _ = hkx.dynamic_unroll(core, x, core.initial_state(batch_size), self.time_major)
        return x


@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_recurrent_networks_of_several_layers_and_directions(cell, layers, both):
    core = {"LSTM": hkx.LSTM, "GRU": ResetAfterGRU}[cell]
    for options in ({}, {"batch_first": True, "bias": False}):
        theirs = trained(getattr(NN, cell)(6, 3, num_layers=layers, bidirectional=both, **options))
        time_major = not options.get("batch_first", False)
        model = hkx.transform(lambda x, t=time_major: Summed(core, [3] * layers, both, t)(x))
        template = model.init(jax.random.key(0), SEQUENCE)
        params, _ = from_state_dict(theirs.state_dict(), template)
        expected = theirs(torch.tensor(SEQUENCE))[0].detach().numpy()
        np.testing.assert_allclose(model.apply(params, None, SEQUENCE), expected, rtol=1e-5, atol=1e-5)
        # Sorted by name; and the names given one by one.
        again, _ = from_state_dict(theirs.state_dict(), jax.tree.map(jnp.zeros_like, template))
        named, _ = from_state_dict(
            theirs.state_dict(), template, names={"": [m.removesuffix("/linear") for m in template]}
        )
        for other in (again, named):
            jax.tree.map(np.testing.assert_array_equal, params, other)
        back = getattr(NN, cell)(6, 3, num_layers=layers, bidirectional=both, **options)
        back.load_state_dict(to_state_dict(params, None, back.state_dict()))
        np.testing.assert_allclose(back(torch.tensor(SEQUENCE))[0].detach().numpy(), expected, rtol=1e-5, atol=1e-5)
    jax.clear_caches()


@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell"])
def test_one_step_of_a_recurrent_network(cell):
    theirs = trained(NN.Sequential(getattr(NN, cell)(6, 3)))
    core = {"LSTMCell": hkx.LSTM, "GRUCell": ResetAfterGRU}[cell]
    model = hkx.transform(lambda x: core(3)(x, core(3).initial_state(2))[0])
    params, _ = from_state_dict(theirs.state_dict(), model.init(jax.random.key(0), SEQUENCE[0]))
    out = theirs(torch.tensor(SEQUENCE[0]))
    expected = (out[0] if isinstance(out, tuple) else out).detach().numpy()
    np.testing.assert_allclose(model.apply(params, None, SEQUENCE[0]), expected, rtol=1e-5, atol=1e-5)
    back = getattr(NN, cell)(6, 3)
    back.load_state_dict(to_state_dict(params, None, back.state_dict()))


def test_weights_sorted_by_name_are_paired_by_their_numbers():
    theirs = trained(NN.Sequential(*[NN.Linear(4, 4) for _ in range(12)]))
    model = hkx.transform(lambda x: hkx.Sequential([hkx.Linear(4) for _ in range(12)])(x))
    template = model.init(jax.random.key(0), data(2, 4))
    expected, _ = from_state_dict(theirs.state_dict(), template)
    np.testing.assert_array_equal(expected["linear_10"]["b"], theirs[10].bias.detach().numpy())
    by_name = dict(sorted(theirs.state_dict().items()))  # as files of safetensors hold them: 0, 1, 10, 11, 2
    shapes = jax.eval_shape(model.init, jax.random.key(0), data(2, 4))  # linear, linear_1, linear_10, linear_11, …
    for weights, params in ((theirs.state_dict(), shapes), (by_name, template), (by_name, shapes)):
        found, _ = from_state_dict(weights, params)
        jax.tree.map(np.testing.assert_array_equal, found, expected)
        back = to_state_dict(found, None, weights)
        assert all(torch.equal(back[k], v) for k, v in theirs.state_dict().items())


def test_weights_in_the_order_of_a_file_of_safetensors_are_paired_by_their_numbers():
    class Net(NN.Module):
        def __init__(self):
            super().__init__()
            self.a = NN.ModuleList([NN.Linear(3, 3) for _ in range(11)])
            self.z = NN.ModuleList([NN.BatchNorm1d(3) for _ in range(11)])

    def f(x):
        for _ in range(11):
            x = hkx.BatchNorm(True, True, 0.9, name="z")(hkx.Linear(3, name="a")(x), True)
        return x

    weights = trained(Net()).state_dict()
    of_file = dict(sorted(weights.items(), key=lambda item: (item[1].is_floating_point(), item[0])))  # integers first
    shapes = jax.eval_shape(hkx.transform_with_state(f).init, jax.random.key(0), data(2, 3))  # sorted by name
    names = {f"{m}.{i}": m if i == 0 else f"{m}_{i}" for m in "az" for i in range(11)}
    expected = from_state_dict(weights, *shapes, names=names)
    jax.tree.map(np.testing.assert_array_equal, from_state_dict(of_file, *shapes), expected)
    back = to_state_dict(*expected, of_file)
    assert all(torch.equal(back[k], v) for k, v in weights.items() if v.is_floating_point())


def test_modules_whose_order_is_not_known_are_named():
    theirs = trained(NN.Sequential())
    for name, size in (("q", 3), ("k", 3), ("out1", 4), ("out2", 4)):
        theirs.add_module(name, NN.Linear(size, size))
    weights = theirs.state_dict()
    sizes = {"query": 3, "key": 3, "out": 4, "out_1": 4}
    template = {name: {"w": data(n, n), "b": data(n)} for name, n in sizes.items()}
    by_name = jax.tree.map(lambda x: x, template)
    for theirs_sorted, params, match in (
        (dict(sorted(weights.items())), template, r"the PyTorch model .* same shapes:\n  k\n  q"),
        (weights, by_name, r"the hkx model .* same shapes:\n  key\n  query"),
    ):
        with pytest.raises(WeightMismatchError, match=match):
            from_state_dict(theirs_sorted, params)
        with pytest.raises(WeightMismatchError, match=match):
            to_state_dict(params, None, theirs_sorted)
    both, one = from_state_dict(dict(sorted(weights.items())), by_name)[0], from_state_dict(weights, template)[0]
    jax.tree.map(np.testing.assert_array_equal, both, one)
    np.testing.assert_array_equal(one["query"]["b"], theirs.q.bias.detach().numpy())


class Unalphabetical(NN.Module):
    def __init__(self, size=4):
        super().__init__()
        self.stem = NN.Sequential(NN.Conv2d(3, 4, 1), NN.BatchNorm2d(4))
        self.body, self.arms, self.head = NN.Linear(4, 4), NN.Linear(4, 4), NN.Linear(4, size, bias=False)

    def forward(self, x):
        return self.head(self.arms(self.body(self.stem(x).mean([2, 3]))))


def unalphabetical(prefix, size=4):
    def f(x, is_training=False):
        h = hkx.Conv2D(4, 1, name=f"{prefix}stem")(x)
        h = hkx.BatchNorm(True, True, 0.9)(h, is_training).mean([1, 2])
        for name in ("body", "arms"):
            h = hkx.Linear(4, name=prefix + name)(h)
        return hkx.Linear(size, with_bias=False, name=f"{prefix}head")(h)

    model = hkx.transform_with_state(f)
    return model, model.init(jax.random.key(0), data(2, 5, 5, 3), True)


def test_weights_go_back_after_training_as_they_came():
    model, template = unalphabetical("a_")
    theirs = trained(Unalphabetical())
    params, state = jax.jit(lambda *trees: trees)(*from_state_dict(theirs.state_dict(), *template))
    assert list(params) == sorted(params) != list(template[0])
    back = to_state_dict(jax.tree.map(lambda w: 2 * w, params), state, theirs.state_dict())
    for key, value in theirs.state_dict().items():
        if "running" in key or "tracked" not in key:
            assert torch.equal(back[key], value if "running" in key else 2 * value)
    again = from_state_dict(back, params, state)
    image = data(2, 3, 5, 5)
    theirs.load_state_dict(back)
    expected = theirs.eval()(torch.tensor(image)).detach().numpy()
    np.testing.assert_allclose(model.apply(*again, None, channels_last(image))[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [3, 4])
def test_an_order_that_is_lost_is_named_and_can_be_restored(size):
    _, (template, state) = unalphabetical(f"b{size}_", size)
    weights = trained(Unalphabetical(size)).state_dict()
    params, state = jax.jit(lambda *trees: trees)(template, state)
    for convert in (lambda: to_state_dict(params, state, weights), lambda: from_state_dict(weights, params, state)):
        with pytest.raises(WeightMismatchError, match=r"jax.jit.* restores it\.\nSay which .*names="):
            convert()
    in_order = {m: params[m] for m in template}
    expected = from_state_dict(weights, in_order, state)
    np.testing.assert_array_equal(expected[0][f"b{size}_body"]["w"].T, weights["body.weight"])
    jax.tree.map(np.testing.assert_array_equal, from_state_dict(weights, params, state), expected)


def test_modules_that_were_paired_in_two_ways_need_names():
    params = {name: {"b": data(4), "w": data(4, 4)} for name in ("one", "two")}  # sorted by name
    weights = trained(NN.Sequential(NN.Linear(4, 4), NN.Linear(4, 4))).state_dict()
    for first, second in (("one", "two"), ("two", "one")):
        from_state_dict(weights, params, names={"0": first, "1": second})
        to_state_dict(params, None, weights, names={"0": first, "1": second})
    with pytest.raises(WeightMismatchError, match="restores it"):
        to_state_dict(params, None, weights)


def test_sorted_modules_of_several_names_are_not_paired_with_numbered_ones():
    """Weights without biases are always in the order of their names, so nothing tells that they have been sorted."""
    weights = NN.Sequential(NN.Linear(4, 4, bias=False), NN.Linear(4, 4, bias=False)).state_dict()
    with pytest.raises(WeightMismatchError, match=r"the hkx model .* same shapes:\n  inner\n  outer"):
        to_state_dict({"inner": {"w": data(4, 4)}, "outer": {"w": data(4, 4)}}, None, weights)


def test_shared_weights_have_one_place():
    class Tied(NN.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = NN.Embedding(7, 4), NN.Linear(4, 7, bias=False)
            self.out.weight = self.embed.weight

    theirs = Tied()
    model = hkx.transform(lambda i: hkx.Embed(7, 4)(i))
    template = model.init(jax.random.key(0), np.arange(3))
    names = {"embed": "embed", "out": "embed"}
    params, _ = from_state_dict(theirs.state_dict(), template, names=names)
    np.testing.assert_array_equal(params["embed"]["embeddings"], theirs.embed.weight.detach().numpy())
    back = to_state_dict(params, None, theirs.state_dict(), names=names)
    assert torch.equal(back["out.weight"], theirs.out.weight) and torch.equal(back["embed.weight"], theirs.out.weight)
    theirs.out.weight = NN.Parameter(torch.ones(7, 4))
    with pytest.raises(WeightMismatchError, match="which differ, are for 'params:embed/embeddings'"):
        from_state_dict(theirs.state_dict(), template, names=names)


def test_what_does_not_fit_is_named():
    ours = hkx.transform(lambda x: hkx.Linear(4)(x)).init(jax.random.key(0), np.ones([1, 6], np.float32))
    with pytest.raises(WeightMismatchError, match="different numbers of layers"):
        from_state_dict(NN.Sequential(NN.Linear(6, 4), NN.Linear(4, 4)).state_dict(), ours)
    with pytest.raises(WeightMismatchError, match="no weights for these of the hkx model:\n  params:linear/b"):
        from_state_dict(NN.Linear(6, 4, bias=False).state_dict(), ours)
    without = {"linear": {"w": ours["linear"]["w"]}}
    with pytest.raises(
        WeightMismatchError, match="no place for these weights of the PyTorch model:\n  params:linear/b"
    ):
        from_state_dict(NN.Linear(6, 4).state_dict(), without)
    with pytest.raises(WeightMismatchError, match=r"'params:linear/w' has shape \(5, 4\), expected \(6, 4\)"):
        from_state_dict(NN.Linear(5, 4).state_dict(), ours)
    with pytest.raises(WeightMismatchError, match="not in `names`:\n  '1'"):
        from_state_dict(NN.Sequential(NN.Linear(6, 4), NN.Linear(4, 4)).state_dict(), ours, names={"0": "linear"})
    with pytest.raises(WeightMismatchError, match="no module 'dense'"):
        from_state_dict(NN.Linear(6, 4).state_dict(), ours, names={"": "dense"})
    with pytest.raises(WeightMismatchError, match="no place for these weights of the hkx model:\n  params:other/w"):
        to_state_dict({**ours, "other": {"w": np.ones(2)}}, None, NN.Linear(6, 4).state_dict(), names={"": "linear"})
    with pytest.raises(WeightMismatchError, match=r"PyTorch model:\n  params:linear/b"):
        to_state_dict(without, None, NN.Linear(6, 4).state_dict())
    with pytest.raises(WeightMismatchError, match=r"`state_dict` must be the dict .*, got Linear"):
        from_state_dict(NN.Linear(6, 4), ours)
    with pytest.raises(WeightMismatchError, match=r"`params` must be a dict .*, got tuple"):
        from_state_dict(NN.Linear(6, 4).state_dict(), (ours, {}))
    with pytest.raises(WeightMismatchError, match="'params:linear/w' is complex, expected float32"):
        from_state_dict(NN.Linear(6, 4, dtype=torch.complex64).state_dict(), ours)
    tall = hkx.transform(lambda x: hkx.Conv2D(4, (3, 1))(x)).init(jax.random.key(0), np.ones([1, 5, 5, 6]))
    with pytest.raises(WeightMismatchError, match=r"shape \(1, 3, 6, 4\), expected \(3, 1, 6, 4\)"):
        from_state_dict(NN.Conv2d(6, 4, (1, 3)).state_dict(), tall)
    lstm = hkx.transform(lambda x: unrolled(hkx.LSTM(5), x)).init(jax.random.key(0), SEQUENCE)
    with pytest.raises(WeightMismatchError, match="no bias to take"):
        to_state_dict(lstm, None, NN.LSTM(6, 5, bias=False).state_dict())
    gru = hkx.transform(lambda x: unrolled(hkx.GRU(5), x)).init(jax.random.key(0), SEQUENCE)
    with pytest.raises(WeightMismatchError, match="ResetAfterGRU"):
        from_state_dict(NN.GRU(6, 5).state_dict(), gru)


@pytest.mark.parametrize("options", [{"bias": False}, {"kdim": 4, "vdim": 7}, {"batch_first": True}])
def test_attention_with_other_options(options):
    theirs = trained(NN.MultiheadAttention(6, 2, **{"batch_first": True, **options}))
    init = hkx.initializers.VarianceScaling()
    q, k, v = (data(2, 5, options.get(size, 6)) for size in ("embed_dim", "kdim", "vdim"))
    model = hkx.transform(
        lambda *qkv: hkx.MultiHeadAttention(2, 3, w_init=init, with_bias=options.get("bias", True))(*qkv)
    )
    params, _ = from_state_dict(theirs.state_dict(), model.init(jax.random.key(0), q, k, v))
    expected = theirs(*map(torch.tensor, (q, k, v)))[0].detach().numpy()
    np.testing.assert_allclose(model.apply(params, None, q, k, v), expected, rtol=1e-5, atol=1e-5)
    back = to_state_dict(params, None, theirs.state_dict())
    assert all(torch.equal(back[key], value) for key, value in theirs.state_dict().items())


def test_a_transformer_layer_by_names():
    theirs = trained(NN.TransformerEncoderLayer(6, 2, 8, batch_first=True, activation="gelu"))

    def layer(x):
        def norm(name, x):
            return hkx.LayerNorm(-1, True, True, name=name)(x)

        init = hkx.initializers.VarianceScaling()
        x = norm("first", x + hkx.MultiHeadAttention(2, 3, w_init=init, name="attention")(x, x, x))
        y = jax.nn.gelu(hkx.Linear(8, name="up")(x), approximate=False)
        return norm("second", x + hkx.Linear(6, name="down")(y))

    x = data(2, 5, 6)
    names = {"self_attn": "attention", "linear1": "up", "linear2": "down", "norm1": "first", "norm2": "second"}
    model = hkx.transform(layer)
    params, _ = from_state_dict(theirs.state_dict(), model.init(jax.random.key(0), x), names=names)
    with torch.no_grad():
        expected = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(model.apply(params, None, x), expected, rtol=1e-5, atol=1e-5)


def test_batch_normalisation_without_weights():
    whole = trained(NN.Sequential(NN.Conv2d(6, 6, 1), NN.BatchNorm2d(6, affine=False), NN.Conv2d(6, 3, 1)))
    for theirs, f, names in (
        (
            whole,
            lambda x, n: hkx.Conv2D(3, 1)(n(hkx.Conv2D(6, 1, name="first")(x))),
            ["first", "batch_norm", "conv2_d"],
        ),
        (whole[1], lambda x, n: n(x), None),  # without names: the layers that have no weights are paired in order
    ):
        model = hkx.transform_with_state(
            lambda x, training, f=f: f(x, lambda y: hkx.BatchNorm(False, False, 0.9)(y, training))
        )
        x = channels_last(IMAGE)
        template = model.init(jax.random.key(0), x, True)
        given = names and {str(i): name for i, name in enumerate(names)}
        params, state = from_state_dict(theirs.state_dict(), *template, names=given)
        ours = model.apply(params, state, None, x, False)[0]
        expected = channels_last(theirs(torch.tensor(IMAGE)).detach().numpy())
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


def test_a_transposed_convolution_of_another_name():
    theirs = trained(NN.ConvTranspose2d(4, 4, 3))
    x = data(1, 4, 5, 5)
    model = hkx.transform(lambda x: hkx.Conv2DTranspose(4, 3, padding="VALID", name="up")(x))
    params, _ = from_state_dict(theirs.state_dict(), model.init(0, channels_last(x)), transposed=[""])
    expected = channels_last(theirs(torch.tensor(x)).detach().numpy())
    np.testing.assert_allclose(model.apply(params, None, channels_last(x)), expected, rtol=1e-5, atol=1e-5)
    back = to_state_dict(params, None, theirs.state_dict(), transposed=[""])
    assert torch.equal(back["weight"], theirs.weight)


def test_paths_that_the_pytorch_model_does_not_have_are_named():
    theirs = NN.Sequential()
    theirs.add_module("conv", NN.Conv2d(4, 4, 3))
    theirs.add_module("upconv", NN.ConvTranspose2d(4, 4, 3))
    x = channels_last(data(1, 4, 5, 5))
    model = hkx.transform(lambda x: hkx.Conv2DTranspose(4, 3, name="up")(hkx.Conv2D(4, 3)(x)))
    params = model.init(0, x)
    with pytest.raises(WeightMismatchError, match="`transposed` must be a collection of paths, got 'upconv'"):
        from_state_dict(theirs.state_dict(), params, transposed="upconv")  # "conv" is in it, too
    with pytest.raises(WeightMismatchError, match="`transposed` are not in the PyTorch model:\n  'up'"):
        to_state_dict(params, None, theirs.state_dict(), transposed=["up"])
    for names, message in (
        (["up"], r"`names` must be a dict .*, got list"),
        ({"conv": None, "upconv": "up"}, r"`names\['conv'\]` must be a name or a sequence of names, got None"),
    ):
        with pytest.raises(WeightMismatchError, match=message):
            from_state_dict(theirs.state_dict(), params, names=names)


def test_averages_of_batch_normalisation_go_on_from_pytorchs():
    theirs, x = NN.BatchNorm1d(3, momentum=1e-4), data(4, 3)
    with torch.no_grad():
        theirs.running_mean.copy_(torch.tensor([1.0, -2.0, 3.0]))
    model = hkx.transform_with_state(lambda x, training: hkx.BatchNorm(True, True, 1 - 1e-4)(x, training))
    params, state = from_state_dict(theirs.state_dict(), *model.init(0, x, True))
    _, state = model.apply(params, state, None, x, True)
    theirs.train()(torch.tensor(x))
    np.testing.assert_allclose(state["batch_norm/~/mean_ema"]["average"][0], theirs.running_mean, rtol=1e-6)
    correction = 1e-4 * x.var(0) / 3  # PyTorch averages the variance times 4 / 3
    expected = theirs.running_var.numpy() - correction
    np.testing.assert_allclose(state["batch_norm/~/var_ema"]["average"][0], expected, rtol=1e-6)


def test_a_pytorch_model_without_values_takes_weights():
    def theirs(**options):
        return NN.Sequential(NN.Linear(3, 4, **options), NN.BatchNorm1d(4, **options), NN.Linear(4, 4, **options))

    def f(x):
        return hkx.Linear(4)(hkx.BatchNorm(True, True, 0.9)(hkx.Linear(4)(x), True))

    params, state = hkx.transform_with_state(f).init(0, data(2, 3))
    shapes = to_state_dict(params, state, theirs(device="meta", dtype=torch.float64).state_dict())
    values = to_state_dict(params, state, theirs(dtype=torch.float64).state_dict())
    assert list(shapes) == list(values)
    assert all(shapes[key].dtype == value.dtype and torch.equal(shapes[key], value) for key, value in values.items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_other_precisions(dtype):
    theirs = trained(NN.Linear(6, 3).to(dtype))
    for ours, same in ((jnp.float32, torch.float32), (jnp.bfloat16, torch.bfloat16)):
        like = {"linear": {"w": jax.ShapeDtypeStruct((6, 3), ours), "b": jax.ShapeDtypeStruct((3,), ours)}}
        params, _ = from_state_dict(theirs.state_dict(), like)
        expected = theirs.weight.detach().T.to(same)
        assert params["linear"]["w"].dtype == ours
        np.testing.assert_array_equal(np.asarray(params["linear"]["w"], np.float32), expected.float().numpy())
        back = to_state_dict(params, None, theirs.state_dict())
        assert back["weight"].dtype == dtype and torch.equal(back["weight"], expected.T.to(dtype))
    strided = {"weight": torch.rand(6, 3).T, "bias": torch.rand(6)[::2]}
    params, _ = from_state_dict(strided, like)
    np.testing.assert_array_equal(params["linear"]["w"], strided["weight"].T.to(same).float().numpy())


def test_weights_that_cannot_be_converted_are_named():
    def raised(weights, f, x, match):
        template = hkx.transform(f).init(jax.random.key(0), x)
        with pytest.raises(WeightMismatchError, match=match):
            from_state_dict(weights, template)

    lstm = lambda x: unrolled(hkx.LSTM(5), x)  # noqa: E731
    both_ways = NN.LSTM(6, 5, bidirectional=True)
    raised(both_ways.state_dict(), lstm, SEQUENCE, "different numbers of layers")
    raised({"weight_ih_l0": torch.ones(20, 6)}, lstm, SEQUENCE, "lacks a weight:\n  weight_hh")
    raised(NN.RNN(6, 5).state_dict(), lambda x: unrolled(hkx.VanillaRNN(5), x), SEQUENCE, "tanh unless told otherwise")
    raised(NN.LSTM(6, 5, proj_size=3).state_dict(), lstm, SEQUENCE, "counterpart in hkx:\n  weight_hr_l0")
    attention = lambda x: hkx.MultiHeadAttention(2, 3, w_init=jnp.zeros)(x, x, x)  # noqa: E731
    raised(NN.MultiheadAttention(6, 2, add_bias_kv=True).state_dict(), attention, data(2, 5, 6), "bias_k")
    linear = lambda x: hkx.Linear(3)(x)  # noqa: E731
    without_values = "'weight' of PyTorch has no values to convert:\n  .*"
    raised(NN.Linear(6, 3, device="meta").state_dict(), linear, data(2, 6), f"{without_values}meta")
    sparse = {"weight": torch.eye(3, 6).to_sparse(), "bias": torch.zeros(3)}
    raised(sparse, linear, data(2, 6), f"{without_values}Sparse")


class Block(NN.Module):
    """The basic block of He et al. (2015), written for this test."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = NN.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = NN.BatchNorm2d(channels)
        self.conv2 = NN.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = NN.BatchNorm2d(channels)
        self.shortcut = None
        if stride != 1 or inputs != channels:
            self.shortcut = NN.Sequential(NN.Conv2d(inputs, channels, 1, stride, bias=False), NN.BatchNorm2d(channels))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet18(NN.Module):
    def __init__(self):
        super().__init__()
        self.conv = NN.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn = NN.BatchNorm2d(64)
        sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
        self.blocks = NN.Sequential(*[Block(*s) for s in [*sizes, (256, 512, 2), (512, 512, 1)]])
        self.head = NN.Linear(512, 10)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.bn(self.conv(x))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def test_resnet18():
    theirs = ResNet18()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in theirs.state_dict().items():
            if "running" in name or ("bn" in name and "weight" in name):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    theirs.eval()
    names = {"conv": "initial_conv", "bn": "initial_batchnorm", "head": "logits"}
    for i in range(8):
        block = f"block_group_{i // 2}/~/block_{i % 2}/~"
        pairs = {"conv1": "conv_0", "bn1": "batchnorm_0", "conv2": "conv_1", "bn2": "batchnorm_1"}
        if i in (2, 4, 6):
            pairs |= {"shortcut.0": "shortcut_conv", "shortcut.1": "shortcut_batchnorm"}
        names |= {f"blocks.{i}.{a}": f"{block}/{b}" for a, b in pairs.items()}
    names = {a: f"res_net18/~/{b}" for a, b in names.items()}
    # 33 pixels: there hkx's "SAME" pads as PyTorch's fixed padding does, at every stride.
    x = data(2, 3, 33, 33)
    model = hkx.transform_with_state(lambda x, training: hkx.nets.ResNet18(10)(x, training))
    template = jax.eval_shape(lambda key, x: model.init(key, x, True), jax.random.key(0), channels_last(x))
    params, state = from_state_dict(theirs.state_dict(), *template, names=names)
    ours, _ = jax.jit(lambda p, s, x: model.apply(p, s, None, x, False))(params, state, channels_last(x))
    logits = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours, logits, rtol=1e-4, atol=1e-5 * np.abs(logits).max())
    back = to_state_dict(params, state, theirs.state_dict(), names=names)
    assert all(torch.equal(back[k], v) for k, v in theirs.state_dict().items() if "num_batches" not in k)
    assert jnp.asarray(back["bn.num_batches_tracked"].numpy()) == 2**31 - 1


def test_converted_weights_stay_when_the_others_change():
    theirs = NN.LayerNorm(1024)  # NumPy arrays of this size are taken over by JAX as they are, if it may
    model = hkx.transform(lambda x: hkx.LayerNorm(-1, True, True)(x))
    params, _ = from_state_dict(theirs.state_dict(), model.init(0, data(2, 1024)))
    with torch.no_grad():
        for tensor in theirs.parameters():
            tensor.fill_(7.0)
    assert jnp.all(params["layer_norm"]["scale"] == 1)
    assert jnp.all(params["layer_norm"]["offset"] == 0)
