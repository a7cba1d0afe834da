"""The digits example: that it learns, what it returns and saves, and the data that the generative programs share."""

import csv
import re

import jax
import numpy as np
import program
import pytest

pytest.importorskip("sklearn", reason="the pictures come with scikit-learn: pip install '.[examples]'")

import digits
import digits_data
from fuzzing import SEEDS

LAST_LINE = re.compile(r"test accuracy: (0\.\d+) with the averaged parameters, (0\.\d+) with those of the last step")
REDUCED = {"epochs": 15, "channels": 16, "progress": False}  # about a fifth of the work of the default settings


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
    assert not metrics["interrupted"]


@pytest.mark.slow
def test_what_is_saved_is_what_was_measured(run, tmp_path, capsys):
    output, metrics = run
    assert {path.name for path in output.iterdir()} == {"parameters.npz", "metrics.csv", "learning_curve.png"}
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
    training = digits.Training(config)
    learner = training.create(training.initial_params())
    expected, weight = jax.tree.map(np.zeros_like, learner.params), 0.0
    train, _ = digits_data.load()
    for step, batch in enumerate(digits_data.batches(train, config.batch_size, np.random.default_rng(0))):
        if step == 3:
            break
        learner, _ = training.update(learner, batch)
        weight = 0.9 * weight + 0.1
        expected = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * np.asarray(new), expected, learner.params)
    expected = jax.tree.map(lambda x: x / weight, expected)
    for average, value in zip(jax.tree.leaves(learner.averages), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(average, value, rtol=1e-5, atol=1e-6)


def test_bad_settings_are_named(refusal):
    assert "batch_size must be between 1 and 1437, not 1438" in refusal(digits.Config, "--batch-size 1438")


@pytest.mark.slow
def test_parameters_of_another_size_are_refused(run):
    saved = str(run[0] / "parameters.npz")
    with pytest.raises(program.BadFlag, match=r"has \(16,\) for conv2_d/b, and the network needs \(8,\)"):
        digits.main(digits.Config(**(REDUCED | {"channels": 8, "epochs": 0}), parameters=saved))


def test_the_split_is_the_same_for_all_and_shares_no_picture():
    train, test = digits_data.load()
    assert train.images.shape == (digits_data.TRAINING, 8, 8, 1)
    assert test.images.shape == (digits_data.TEST, 8, 8, 1)
    assert (train.images.min(), train.images.max()) == (0, 1)
    assert set(train.labels) == set(test.labels) == set(range(10))
    seen = {image.tobytes() for image in train.images}
    assert not seen & {image.tobytes() for image in test.images}


def test_batches_hold_every_picture_at_most_once():
    few = digits_data.Digits(np.arange(10.0)[:, None], np.arange(10))
    got = list(digits_data.batches(few, 3, np.random.default_rng(0)))
    assert [len(batch.labels) for batch in got] == [3, 3, 3]
    assert len({label for batch in got for label in batch.labels}) == 9
    assert all((batch.images[:, 0] == batch.labels).all() for batch in got)


def test_the_judge_knows_digits_and_wants_the_right_ones():
    _, test = digits_data.load()
    assert digits_data.recognised(test) >= 0.98
    assert digits_data.recognised(test._replace(labels=(test.labels + 1) % 10)) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_default_settings(tmp_path, seed):
    metrics = digits.main(digits.Config(seed=seed, output=str(tmp_path), progress=False))
    assert metrics["test_accuracy"] >= 0.97
