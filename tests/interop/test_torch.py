"""PyTorch weights in hkx: both compute the same, and both ways of conversion are inverse to each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="compares with torch")

import hkx  # noqa: E402
from hkx.errors import WeightMismatchError  # noqa: E402
from hkx.interop.torch import ResetAfterGRU, from_state_dict, to_state_dict  # noqa: E402

pytestmark = pytest.mark.peer

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
    "gru": (lambda: NN.GRU(6, 5), lambda x: unrolled(ResetAfterGRU(5), x), SEQUENCE),
}
SPATIAL = ("conv1d", "conv2d", "conv3d", "depthwise", "transposed1d", "transposed2d", "transposed3d") + (
    "group_norm",
    "batch_norm",
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
    with pytest.raises(WeightMismatchError, match="not in `names`:\n  1"):
        from_state_dict(NN.Sequential(NN.Linear(6, 4), NN.Linear(4, 4)).state_dict(), ours, names={"0": "linear"})
    with pytest.raises(WeightMismatchError, match="no module 'dense'"):
        from_state_dict(NN.Linear(6, 4).state_dict(), ours, names={"": "dense"})
    with pytest.raises(WeightMismatchError, match="no place for these weights of the hkx model:\n  params:other/w"):
        to_state_dict({**ours, "other": {"w": np.ones(2)}}, None, NN.Linear(6, 4).state_dict(), names={"": "linear"})
    with pytest.raises(WeightMismatchError, match=r"PyTorch model:\n  params:linear/b"):
        to_state_dict(without, None, NN.Linear(6, 4).state_dict())
    lstm = hkx.transform(lambda x: unrolled(hkx.LSTM(5), x)).init(jax.random.key(0), SEQUENCE)
    with pytest.raises(WeightMismatchError, match="no bias to take"):
        to_state_dict(lstm, None, NN.LSTM(6, 5, bias=False).state_dict())
    gru = hkx.transform(lambda x: unrolled(hkx.GRU(5), x)).init(jax.random.key(0), SEQUENCE)
    with pytest.raises(WeightMismatchError, match="ResetAfterGRU"):
        from_state_dict(NN.GRU(6, 5).state_dict(), gru)


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
    assert jnp.asarray(back["bn.num_batches_tracked"].numpy()) == 10_000


def test_converted_weights_stay_when_the_others_change():
    theirs = NN.LayerNorm(1024)  # NumPy arrays of this size are taken over by JAX as they are, if it may
    model = hkx.transform(lambda x: hkx.LayerNorm(-1, True, True)(x))
    params, _ = from_state_dict(theirs.state_dict(), model.init(0, data(2, 1024)))
    with torch.no_grad():
        for tensor in theirs.parameters():
            tensor.fill_(7.0)
    assert jnp.all(params["layer_norm"]["scale"] == 1)
    assert jnp.all(params["layer_norm"]["offset"] == 0)
