"""The layers that Haiku lacks, against Flax, Equinox and PyTorch."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = [pytest.mark.peer, pytest.mark.unoptimised]
RANDOM = np.random.RandomState(0)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    RANDOM.seed(0)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


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
