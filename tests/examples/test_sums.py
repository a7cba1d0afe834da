"""The decoder that learns to add: its questions, its answers, and a run that stops and goes on."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax", reason="the example learns by optax: pip install '.[examples]'")
pytest.importorskip("tyro", reason="flags of the command line: pip install '.[examples]'")

import sums

pytestmark = pytest.mark.unoptimised

TINY = sums.Config(layers=1, width=8, heads=2, questions=2, group=3, pairs=4, pretraining=2, updates=2)


def written(tokens: np.ndarray) -> str:
    return "".join(sums.TOKENS[token] for token in tokens)


def test_every_sum_is_there_once_and_right():
    seen = set()
    for question, answer in zip(*sums.all_sums(), strict=True):
        one, other = written(question).removesuffix("=").split("+")
        assert int(written(answer)[::-1]) == int(one) + int(other)
        seen.add((int(one), int(other)))
    assert seen == {(one, other) for one in range(100) for other in range(100)}


def test_no_question_of_the_test_is_asked():
    learner = sums.Learner(TINY)
    asked, test = ({written(question) for question in np.asarray(part[0])} for part in (learner.training, learner.test))
    assert len(asked) == 9_000
    assert len(test) == 1_000
    assert not asked & test


@pytest.mark.slow
def test_a_greedy_answer_is_the_likeliest_digit_by_digit():
    learner = sums.Learner(TINY)
    params, questions = learner.begin().params, learner.test[0][:5]
    answers = learner.answer(params, None, questions, 0).tokens
    for position in range(sums.ANSWER):
        others = [answers.at[:, position].set(token) for token in range(len(sums.TOKENS))]
        log_probs = [learner.log_probs(params, questions, other)[:, position] for other in others]
        np.testing.assert_array_equal(np.argmax(log_probs, axis=0), answers[:, position])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_a_run_that_stops_and_goes_on_learns_the_same(method, tmp_path, monkeypatch):
    def run(folder):
        sums.main(dataclasses.replace(TINY, method=method, output=str(tmp_path / folder)))

    def stopping(*args):
        if len(saved) == 3:
            raise KeyboardInterrupt
        saved.append(args)
        save(*args)

    save, saved = sums.save, []
    monkeypatch.setattr(sums, "PART", 1)
    run("whole")
    monkeypatch.setattr(sums, "save", stopping)
    with pytest.raises(KeyboardInterrupt):
        run("parts")
    monkeypatch.setattr(sums, "save", save)
    run("parts")
    with np.load(tmp_path / "whole/checkpoint.npz") as one, np.load(tmp_path / "parts/checkpoint.npz") as other:
        assert one.files == other.files and len(one.files) > 10
        for name in set(one.files) - {"settings"}:
            np.testing.assert_array_equal(one[name], other[name])
    header, *rows = (tmp_path / "parts/metrics.csv").read_text().split()
    assert header == "updates,right_as_it_learns,right_in_test"
    assert [float(row.split(",")[0]) for row in rows] == [1, 2, 3, 4]
    assert jnp.all(jnp.isfinite(jnp.array([float(row.split(",")[2]) for row in rows])))
    assert (tmp_path / "parts/curve.png").read_bytes()[:4] == b"\x89PNG"
