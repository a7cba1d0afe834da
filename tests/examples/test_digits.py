"""The digits example: that it learns, what it returns and saves, and its data, as the generative programs have it."""

import csv
import importlib
import re

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the pictures come with scikit-learn: pip install '.[examples]'")

import digits
import vqvae
from fuzzing import SEEDS

LAST_LINE = re.compile(r"test accuracy: (0\.\d+) with the averaged parameters, (0\.\d+) with those of the last step")
REDUCED = {"epochs": 15, "channels": 16}  # about a fifth of the work of the default settings


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    output = tmp_path_factory.mktemp("digits")
    return output, digits.main(digits.Config(**REDUCED, output=str(output)))


@pytest.mark.slow
def test_reduced_settings_read_most_digits(run):
    _, metrics = run
    assert metrics["test_accuracy"] >= 0.97
    assert metrics["losses"][-1] < 0.1 * metrics["losses"][0]
    assert metrics["accuracies"][-1] == metrics["test_accuracy"]


@pytest.mark.slow
def test_what_is_saved_is_what_was_measured(run, tmp_path, capsys):
    output, metrics = run
    assert {path.name for path in output.iterdir()} == {"parameters.npz", "metrics.csv", "curve.png"}
    with open(output / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == list(range(1, 16))
    assert [float(row["training_loss"]) for row in rows] == metrics["losses"]
    evaluation = {**REDUCED, "epochs": 0, "parameters": str(output / "parameters.npz")}
    again = digits.main(digits.Config(**evaluation, output=str(tmp_path / "none")))
    assert again["test_accuracy"] == metrics["test_accuracy"]
    assert float(LAST_LINE.fullmatch(capsys.readouterr().out.splitlines()[-1])[1]) == round(again["test_accuracy"], 3)
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_the_averages_are_the_exponential_averages():
    config = digits.Config(channels=1, decay=0.9, learning_rate=0.1)
    init, update, _ = digits.make_learner(config)
    learner = init()
    expected, weight = jax.tree.map(np.zeros_like, learner.params), 0.0
    train, _ = digits.load()
    for step, batch in enumerate(digits.batches(train, config.batch_size, np.random.default_rng(0))):
        if step == 3:
            break
        learner, _ = update(learner, batch)
        weight = 0.9 * weight + 0.1
        expected = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * np.asarray(new), expected, learner.params)
    expected = jax.tree.map(lambda x: x / weight, expected)
    for average, value in zip(jax.tree.leaves(learner.averages), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(average, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["digits", "gan", "vae", "vqvae"])
def test_a_batch_of_more_images_than_there_are_is_refused(name, tmp_path):
    module = importlib.import_module(name)
    with pytest.raises(SystemExit, match="--batch-size must be between 1 and 1437, and is 1438"):
        module.main(module.Config(batch_size=1438, output=str(tmp_path)))


def test_ctrl_c_saves_what_there_is(tmp_path, monkeypatch):
    init, update, accuracy = digits.make_learner(digits.Config(channels=1))
    calls = []

    def interrupted(*arguments):
        calls.append(None)
        if len(calls) == 23:  # in the second epoch
            raise KeyboardInterrupt
        return update(*arguments)

    monkeypatch.setattr(digits, "make_learner", lambda config: (init, interrupted, accuracy))
    found = digits.main(digits.Config(channels=1, output=str(tmp_path)))
    assert len(found["losses"]) == 1
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 2


@pytest.mark.slow
def test_parameters_of_another_size_are_refused(run):
    saved = str(run[0] / "parameters.npz")
    with pytest.raises(SystemExit, match=r"has \(16,\) for conv2_d/b, and the network needs \(8,\)"):
        digits.main(digits.Config(**(REDUCED | {"channels": 8, "epochs": 0}), parameters=saved))


def test_the_split_is_the_same_for_all_and_shares_no_picture():
    train, test = digits.load()
    assert train.images.shape == (digits.TRAINING, 8, 8, 1)
    assert test.images.shape == (360, 8, 8, 1)
    assert (train.images.min(), train.images.max()) == (0, 1)
    assert set(train.labels) == set(test.labels) == set(range(10))
    seen = {image.tobytes() for image in train.images}
    assert not seen & {image.tobytes() for image in test.images}


def test_batches_hold_every_picture_at_most_once():
    few = digits.Digits(np.arange(10.0)[:, None], np.arange(10))
    got = list(digits.batches(few, 3, np.random.default_rng(0)))
    assert [len(batch.labels) for batch in got] == [3, 3, 3]
    assert len({label for batch in got for label in batch.labels}) == 9
    assert all((batch.images[:, 0] == batch.labels).all() for batch in got)


def test_the_judge_knows_digits_and_wants_the_right_ones():
    _, test = digits.load()
    assert vqvae.recognised(test) >= 0.98
    assert vqvae.recognised(test._replace(labels=(test.labels + 1) % 10)) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_default_settings(tmp_path, seed):
    metrics = digits.main(digits.Config(seed=seed, output=str(tmp_path)))
    assert metrics["test_accuracy"] >= 0.97
