"""The short programs: each prints what its docstring says it prints, and what it says is so, by another way."""

import math
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import conv_layernorm
import custom_module
import jax
import jax.numpy as jnp
import linear_regression
import lstm_lm
import numpy as np
import program
import pytest
import random_and_control_flow
import resnet_state
import tyro
import xor
from children import environment

import hkx

pytestmark = pytest.mark.unoptimised

ROOT = pathlib.Path(__file__).parents[2]
FAST = [xor, linear_regression, lstm_lm, conv_layernorm, custom_module, random_and_control_flow]


@pytest.fixture(autouse=True)
def as_for_a_reader():
    with jax.numpy_rank_promotion("allow"):
        yield


def comparable(text):
    """The lines, without times and what is made of them, and without the words of JAX's own error."""
    text = re.sub(r"\d+\.\d+ ms", "_ ms", text)
    text = re.sub(r"[\d.]+ times faster", "_ times faster", text)
    return [re.sub(r"  +", "  ", line.rstrip()) for line in re.sub(r"says: .*", "says: _", text).splitlines()]


def promised(module):
    """The indented lines of the docstring after the one that begins with `prints`."""
    lines = module.__doc__.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("prints")) + 2
    end = next((i for i in range(begin, len(lines)) if lines[i] and not lines[i].startswith(" ")), len(lines))
    return comparable(textwrap.dedent("\n".join(lines[begin:end])).strip())


@pytest.fixture(scope="module")
def results():
    """What `main` returned for the default settings, by module: the tests below share one run."""
    return {}


@pytest.mark.parametrize("module", FAST, ids=lambda module: module.__name__)
def test_it_prints_what_its_docstring_says(module, capsys, results):
    results[module] = module.main(module.Config())
    assert comparable(capsys.readouterr().out) == promised(module)


def result_of(module, results):
    if module not in results:
        results[module] = module.main(module.Config())
    return results[module]


# xor


@pytest.mark.slow
def test_xor_is_right_for_seeds_0_to_9():
    for seed in range(10):
        metrics = xor.main(xor.Config(seed=seed, rounds=1))
        assert metrics["right"] == 4
        np.testing.assert_allclose(metrics["probabilities"], [0, 1, 1, 0], atol=0.02)


def test_xor_has_three_tanh_units_and_their_gradient(results):
    params = xor.network.init(jax.random.key(3), xor.CASES[0])
    assert jax.tree.map(jnp.shape, params) == {
        "mlp/~/linear_0": {"w": (2, 3), "b": (3,)},
        "mlp/~/linear_1": {"w": (3, 1), "b": (1,)},
    }
    (w1, b1), (w2, b2) = ((np.asarray(layer["w"]), np.asarray(layer["b"])) for layer in params.values())
    gradients = xor.WAYS["and vmap"](params)
    for i, (case, label) in enumerate([((-1, -1), 0), ((-1, 1), 1), ((1, -1), 1), ((1, 1), 0)]):
        hidden = np.tanh(np.array(case) @ w1 + b1)
        error = 1 / (1 + np.exp(-(hidden @ w2 + b2))) - label  # the derivative of the cross-entropy in the logit
        back = error * w2[:, 0] * (1 - hidden**2)
        expected = {
            "mlp/~/linear_0": {"w": np.outer(case, back), "b": back},
            "mlp/~/linear_1": {"w": hidden[:, None] * error, "b": error},
        }
        jax.tree.map(lambda g, e, i=i: np.testing.assert_allclose(g[i], e, atol=1e-6), gradients, expected)


def test_xor_notices_when_the_ways_differ(monkeypatch):
    params = xor.network.init(jax.random.key(0), xor.CASES[0])
    assert xor.difference(params) < 1e-6
    monkeypatch.setitem(xor.WAYS, "and jit", lambda params: xor.one_by_one(jax.jit(jax.grad(wrong)), params))
    assert xor.difference(params) > 0.1


def wrong(params, case, label):
    return xor.cross_entropy(params, case, 1 - label)


# linear_regression


def test_linear_regression_has_the_same_losses_by_hand_and_with_a_module(results):
    metrics = result_of(linear_regression, results)
    assert metrics["losses"] == metrics["losses_by_hand"]
    np.testing.assert_allclose(metrics["losses"][:4], [46.0, 42.47, 38.94, 35.41], atol=1e-3)
    # While the error is positive, d loss / d (w, b) = (42, 1).
    expected = [46 - 0.002 * (42**2 + 1) * step for step in range(14)]
    np.testing.assert_allclose(metrics["losses"], expected, atol=2e-3)
    linear = metrics["params"]["linear"]
    assert linear["w"].shape == (1, 1) and linear["b"].shape == (1,)
    assert float(linear["w"][0, 0]) == pytest.approx(13 - 13 * 0.084, abs=1e-4)


# lstm_lm


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_lstm_says_the_sequence_from_other_seeds(seed):
    metrics = lstm_lm.main(lstm_lm.Config(seed=seed))
    assert metrics["words"] == [4, 8, 15, 16, 23, 42]
    assert len(metrics["losses"]) == 101


def test_lstm_gradient_stays_within_a_piece(results):
    params = result_of(lstm_lm, results)["params"]
    assert len(results[lstm_lm]["losses"]) == 101 and results[lstm_lm]["words"] == [4, 8, 15, 16, 23, 42]
    gradient = jax.jit(jax.grad(lstm_lm.loss_model.apply), static_argnums=2)
    in_pieces, first_piece = (
        np.stack(list(gradient(params, words, 3)["language_model"].values()))
        for words in (lstm_lm.SEQUENCE, lstm_lm.SEQUENCE[:3])
    )
    np.testing.assert_allclose(in_pieces, first_piece, rtol=1e-5, atol=1e-8)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def test_lstm_loss_against_a_loop(results):
    params = jax.tree.map(np.float64, result_of(lstm_lm, results)["params"])
    model, table = params["language_model"], params["language_model/~/embed"]["embeddings"]
    linear = params["language_model/~/lstm/linear"]
    hidden, cell, loss = model["hidden"], model["cell"], 0.0
    for before, word in zip([0, 4, 8, 15, 16, 23], [4, 8, 15, 16, 23, 42], strict=True):
        i, g, f, o = np.split(np.concatenate([table[before], hidden]) @ linear["w"] + linear["b"], 4)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        logits = table @ hidden
        loss -= logits[word] - np.log(np.exp(logits).sum())
    computed = lstm_lm.loss_model.apply(jax.tree.map(jnp.float32, params), lstm_lm.SEQUENCE, 3)
    assert float(computed) == pytest.approx(loss, rel=1e-4)
    assert set(model) == {"hidden", "cell"} and np.abs(model["hidden"]).max() > 0.01  # it began at 0, and was learned


# conv_layernorm


def test_conv_layernorm_names_and_values(results):
    metrics = result_of(conv_layernorm, results)
    made_in_call, made_in_init, chain, one_call = metrics["params"].values()
    assert {module: list(arrays) for module, arrays in made_in_call.items()} == {
        "block/conv2_d": ["w", "b"],
        "block/layer_norm": ["scale", "offset"],
    }
    assert list(made_in_init) == ["block/~/conv2_d", "block/~/layer_norm"]
    assert list(chain)[2:] == [
        f"chain/~/block_in_init_{i}/~/{name}" for i in (1, 2) for name in ("conv2_d", "layer_norm")
    ]
    assert metrics["equal"] == {"parameters": True, "outputs": True, "one call": True}
    assert list(one_call) == list(made_in_call)


def test_conv_layernorm_computes_the_block():
    x = np.random.default_rng(0).uniform(size=[1, 4, 4, 3]).astype(np.float32)
    model = hkx.transform(lambda x: conv_layernorm.BlockInCall(5, name="block")(x))
    params = model.init(jax.random.key(0), x)
    w = np.asarray(params["block/conv2_d"]["w"])
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    y = sum(padded[:, i : i + 4, j : j + 4] @ w[i, j] for i in range(3) for j in range(3))
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(model.apply(params, None, x), np.where(y > 0, y, 0.01 * y), atol=1e-4)


# custom_module


def test_custom_module_weights_and_answers(results):
    metrics = result_of(custom_module, results)
    assert metrics["right"] == dict.fromkeys(["transform", "grad", "vmap", "jit", "together"], True)
    assert metrics["traces"] == 1
    weights = np.asarray(metrics["weights"])
    limit = 2 / math.sqrt(400)
    assert np.abs(weights).max() <= limit * (1 + 1e-6)
    cut = 2 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2))  # z φ(z) / (2 Φ(z) - 1), twice, at z = 2
    assert weights.std() == pytest.approx(limit / 2 * math.sqrt(1 - 2 * cut), rel=0.01)


def test_custom_module_notices_a_wrong_layer(monkeypatch):
    layer = custom_module.MyLinear.__call__
    monkeypatch.setattr(custom_module.MyLinear, "__call__", lambda self, x: layer(self, x * x.mean()))
    right = custom_module.main(custom_module.Config())["right"]
    assert not right["transform"] and not right["grad"] and not right["vmap"] and right["jit"]


# random_and_control_flow


def test_control_flow_table(results):
    table = result_of(random_and_control_flow, results)["table"]
    assert {name: row["reverse"] == "yes" for (name, _), row in table.items()} == {
        "cond": True,
        "switch": True,
        "while_loop": False,
        "fori_loop, 3 times": True,
        "fori_loop, n times": False,
        "scan": True,
    }
    assert {row["forward"] for row in table.values()} == {row["value"] for row in table.values()} == {"yes"}


def test_control_flow_notices_what_is_wrong(monkeypatch):
    scan, statements = random_and_control_flow.PAIRS["scan", "for, and append"]
    stopped = (lambda *args: jax.lax.stop_gradient(scan(*args)), statements)
    monkeypatch.setattr(random_and_control_flow, "PAIRS", {("stopped", "for"): stopped})
    table = random_and_control_flow.try_derivatives(jax.random.key(0), jnp.array([0.5, -1.0, 2.0]))
    assert table == {("stopped", "for"): {"value": "yes", "forward": "wrong", "reverse": "wrong"}}


def test_keys_by_hand_and_by_hkx_are_the_same(results):
    keys = result_of(random_and_control_flow, results)["keys"]
    assert keys["JAX, a split before each draw"] == keys["hkx, next_rng_key() for each draw"]
    assert len(set(keys["JAX, three draws from one key"].split())) == 1
    assert len(set(keys["hkx, next_rng_key() for each draw"].split())) == 3


# resnet_state


def check_state(metrics, arrays):
    assert metrics["moved"] == {"training": [arrays] * 2, "evaluation": [0] * 2}
    assert metrics["depends"] == {"training": True, "evaluation": False}


@pytest.mark.slow
def test_state_moves_in_training_and_stands_still_in_evaluation():
    """Reduced: ResNet-18, two steps of each kind."""
    metrics = resnet_state.main(resnet_state.Config(network="ResNet18", batch=2, steps=2))
    check_state(metrics, arrays=6 * 20)  # 20 batch normalisations, each with two averages of three arrays
    means = [module for module in metrics["state"] if module.endswith("/mean_ema")]
    assert len(means) == 20 and all(int(metrics["state"][module]["counter"]) == 2 for module in means)


# All of them, as commands


@pytest.mark.parametrize("module", [*FAST, resnet_state], ids=lambda module: module.__name__)
def test_a_bad_flag_is_named(module, refusal):
    assert "Unrecognized options: --no-such-flag" in refusal(module.Config, "--no-such-flag")
    assert tyro.cli(module.Config, args=[]) == module.Config()


def test_ctrl_c_where_there_is_nothing_to_save_is_one_line(monkeypatch, capsys):
    def main(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["examples/xor.py"])
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        program.start(xor.Config, main, xor.__doc__)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "\nxor.py: interrupted\n"


@pytest.mark.slow
def test_ctrl_c_ends_without_cleaning_up():
    """JAX crashes in that if Ctrl-C came while it compiled."""
    crash = "import atexit, os; atexit.register(os._exit, 11)"
    interrupt = "def main(config): print('begun'); raise KeyboardInterrupt"
    start = "import program, xor; program.start(xor.Config, main, None)"
    variables = environment(PYTHONPATH=os.pathsep.join(map(str, [ROOT, ROOT / "examples", ROOT / "examples/zoo"])))
    command = [sys.executable, "-c", "\n".join([crash, interrupt, start])]
    done = subprocess.run(command, env=variables, text=True, capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "begun\n", "\n-c: interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("module", [xor, resnet_state], ids=lambda module: module.__name__)
def test_a_command_prints_what_its_docstring_says(module, tmp_path):
    """All commands start in the same way: one of those that are run above, and the one that is not."""
    command = [sys.executable, ROOT / "examples" / f"{module.__name__}.py"]
    variables = environment(unoptimised=module is not resnet_state, PYTHONPATH=ROOT, PYTHONWARNINGS="error")
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, text=True, encoding="utf-8", capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert comparable(done.stdout) == promised(module)
    assert not list(tmp_path.iterdir())
