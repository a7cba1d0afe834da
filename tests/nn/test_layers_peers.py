"""The layers that Haiku lacks, against Flax, Equinox and PyTorch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = [pytest.mark.peer, pytest.mark.unoptimised]
RANDOM = np.random.RandomState(0)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    RANDOM.seed(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def apply(f: Any, params: Any, *args: Any, rng: Any = None) -> np.ndarray:
    return np.asarray(hkx.transform(f).apply(params, rng, *args))


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


@pytest.fixture
def linen() -> Any:
    return pytest.importorskip("flax.linen", reason="flax is not installed")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def test_einsum(linen: Any) -> None:
    x, w, b = normal(2, 4), normal(4, 2, 3), normal(2, 3)
    theirs = linen.Einsum((4, 2, 3), "...d,dhk->...hk").apply({"params": {"kernel": w, "bias": b}}, x)
    close(apply(lambda x: hkx.Einsum([4, 2, 3], "...d,dhk->...hk")(x), {"einsum": {"w": w, "b": b}}, x), theirs)


def test_weight_norm(linen: Any) -> None:
    x, w, b, g = normal(2, 4), normal(4, 3), normal(3), normal(3)
    module = linen.WeightNorm(linen.Dense(3))
    made = module.init(jax.random.key(0), x)

    def value(path: Any, leaf: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path[-1:])
        return w if leaf.ndim == 2 else b if name == "['bias']" else g

    filled = jax.tree_util.tree_map_with_path(value, made)
    ours = apply(lambda x: hkx.WeightNorm(hkx.Linear(3))(x), {"linear": {"w": w, "b": b, "w_scale": g}}, x)
    close(ours, module.apply(filled, x))


def test_prelu(torch: Any) -> None:
    x, alpha = normal(2, 4), normal(4)
    theirs = torch.nn.functional.prelu(torch.tensor(x), torch.tensor(alpha))
    close(apply(lambda x: hkx.PReLU(param_axis=1)(x), {"p_re_lu": {"alpha": alpha}}, x), theirs)


def test_lora() -> None:
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")
    x, w, b, lora_a, lora_b = normal(2, 4), normal(4, 3), normal(3), normal(4, 2), normal(2, 3)
    theirs = nnx.LoRALinear(4, 3, lora_rank=2, rngs=nnx.Rngs(0))
    for variable, value in (
        (theirs.kernel, w),
        (theirs.bias, b),
        (theirs.lora.lora_a, lora_a),
        (theirs.lora.lora_b, lora_b),
    ):
        variable[...] = value
    params = {"lo_ra_linear": {"w": w, "b": b, "lora_a": lora_a, "lora_b": lora_b}}
    close(apply(lambda x: hkx.LoRALinear(3, rank=2)(x), params, x), theirs(jnp.asarray(x)))


@pytest.mark.parametrize("size", [1, 3, 4, (5, 2), (9, 8)])
def test_adaptive_avg_pool(torch: Any, size: Any) -> None:
    x = normal(2, 3, 7, 6)
    theirs = torch.nn.functional.adaptive_avg_pool2d(torch.tensor(x), size)
    close(apply(lambda x: hkx.AdaptiveAvgPool(size, channel_axis=1)(x), {}, x), theirs)


def test_rotary() -> None:
    equinox = pytest.importorskip("equinox", reason="equinox is not installed")
    x = normal(5, 8)
    theirs = equinox.nn.RotaryPositionalEmbedding(8, theta=100.0)(jnp.asarray(x))
    close(apply(lambda x: hkx.RotaryEmbedding(theta=100.0)(x), {}, x[None, :, None])[0, :, 0], theirs)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("is_causal", [False, True])
def test_grouped_query_attention(torch: Any, kv_heads: int, is_causal: bool) -> None:
    x = normal(2, 5, 6)
    f = lambda x: hkx.GroupedQueryAttention(4, kv_heads, 8)(x, is_causal=is_causal)  # noqa: E731
    params = hkx.transform(f).init(jax.random.key(0), x)
    w = {name.rpartition("/")[2]: torch.tensor(np.asarray(entries["w"])) for name, entries in params.items()}
    q, k, v = ((torch.tensor(x) @ w[n]).reshape(2, 5, -1, 8).transpose(1, 2) for n in ("query", "key", "value"))
    attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True)
    close(apply(f, params, x), attended.transpose(1, 2).reshape(2, 5, -1) @ w["output"])


def test_bidirectional_with_lengths(torch: Any) -> None:
    """Against PyTorch's packed sequences."""
    xs, lengths, size = normal(5, 3, 2), [5, 4, 2], 3
    theirs = torch.nn.LSTM(2, size, bidirectional=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(xs), torch.tensor(lengths))
    with torch.no_grad():
        out, (hidden, cell) = theirs(packed)
        padded = torch.nn.utils.rnn.pad_packed_sequence(out, total_length=5)[0]
    params = {}
    for name, suffix in (("there", ""), ("back", "_reverse")):
        parts = [
            getattr(theirs, f"{kind}_l0{suffix}").detach().numpy()
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        w, b = np.concatenate(parts[:2], axis=1).T, parts[2] + parts[3]
        order = np.concatenate([np.arange(size) + size * gate for gate in (0, 2, 1, 3)])  # PyTorch: i, f, g, o
        w, b = w[:, order], b[order]
        b[2 * size : 3 * size] -= 1  # what our forget gate adds
        params[f"{name}/linear"] = {"w": w, "b": b}

    def ours(xs: Any) -> Any:
        module = hkx.Bidirectional(hkx.LSTM(size, name="there"), hkx.LSTM(size, name="back"))
        return module(xs, sequence_lengths=jnp.asarray(lengths))

    ys, states = hkx.transform(ours).apply(params, None, xs)
    close(ys, padded)
    for i, state in enumerate(states):
        close(state.hidden, hidden[i])
        close(state.cell, cell[i])


@pytest.mark.parametrize("kind", ["linear", "conv", "conv_transpose", "lstm", "embedding"])
def test_initial_distributions(torch: Any, kind: str) -> None:
    """Same bounds and variance as what PyTorch's layers start from."""
    torch.manual_seed(0)
    make = {
        "linear": (torch.nn.Linear(50, 400).weight, hkx.initializers.TorchUniform(), [50, 400]),
        "conv": (torch.nn.Conv2d(20, 100, 3).weight, hkx.initializers.TorchUniform(), [3, 3, 20, 100]),
        "conv_transpose": (
            torch.nn.ConvTranspose2d(100, 20, 3).weight,
            hkx.initializers.TorchUniform(),
            [3, 3, 20, 100],
        ),
        "lstm": (torch.nn.LSTM(100, 50).weight_ih_l0, hkx.initializers.TorchUniform(fan_in=50), [100, 200]),
        "embedding": (torch.nn.Embedding(200, 100).weight, hkx.initializers.TorchEmbedding(), [200, 100]),
    }
    theirs, init, shape = make[kind]
    theirs = theirs.detach().numpy()
    ours = np.asarray(hkx.testing.transform_and_run(lambda: init(shape, jnp.float32))())
    assert ours.size == theirs.size
    assert abs(ours.std() / theirs.std() - 1) < 0.03
    if kind != "embedding":
        assert abs(np.abs(ours).max() / np.abs(theirs).max() - 1) < 0.01
