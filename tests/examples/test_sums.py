"""The transformer that learns to add: its questions, its answers, a run that stops, and what it learns."""

import dataclasses
import shutil

import numpy as np
import pytest

pytest.importorskip("orbax.checkpoint", reason="checkpoints are Orbax's: pip install '.[examples]'")
pytest.importorskip("optax", reason="the example learns by optax: pip install '.[examples]'")

import jax
import jax.numpy as jnp
import sums

pytestmark = pytest.mark.unoptimised

TINY = sums.Config(
    layers=1, width=8, heads=2, questions=2, group=3, batch_size=4, pretraining=2, updates=2, progress=False
)


@pytest.mark.parametrize(("width", "heads"), [(9, 2), (64, 3), (2, 4), (6, 6)])
def test_heads_of_no_or_an_odd_size_are_named(width, heads):
    with pytest.raises(ValueError, match=f"width must be a multiple of {2 * heads}, twice the heads, not {width}"):
        sums.Config(width=width, heads=heads)


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
    asked, test = ({written(question) for question in part[0]} for part in (learner.training, learner.test))
    assert len(asked) == 9_000
    assert len(test) == 1_000
    assert not asked & test


@pytest.mark.parametrize("method", ["pretrain", "grpo", "dpo"])
def test_a_part_of_a_run_gives_a_state_like_the_one_it_got(method):
    learner = sums.Learner(TINY)
    state = jax.eval_shape(learner.begin)
    learned, right = jax.eval_shape(lambda state: learner.advance(state, method, 2), state)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), learned) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert right.shape == (2,)


@pytest.mark.slow
def test_a_greedy_answer_is_the_likeliest_digit_by_digit():
    learner = sums.Learner(TINY)
    params, questions = learner.begin().params, jnp.asarray(learner.test[0][:5])
    answers = learner.answer(params, None, questions, 5, greedy=True)
    for position in range(sums.ANSWER):
        others = [answers.at[:, position].set(token) for token in range(len(sums.TOKENS))]
        log_probs = [learner.log_probs(params, None, questions, other)[:, position] for other in others]
        np.testing.assert_array_equal(np.argmax(log_probs, axis=0), answers[:, position])


@pytest.mark.slow
def test_answers_to_one_question_are_read_with_it_as_if_it_were_theirs_alone():
    learner = sums.Learner(TINY)
    params, questions = learner.begin().params, jnp.asarray(learner.test[0][:2])
    answers = learner.answer(params, jax.random.key(0), questions, 6)
    together = learner.log_probs(params, None, questions, answers)
    for i in range(6):
        alone = learner.log_probs(params, None, questions[i // 3][None], answers[i : i + 1])
        np.testing.assert_allclose(together[i : i + 1], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_a_run_that_stops_and_goes_on_learns_the_same(method, tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "PART", 1)
    whole = dataclasses.replace(TINY, method=method, output=str(tmp_path / "whole"))
    found = sums.main(whole)
    assert found["updates"] == 4
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "4")
    (tmp_path / "parts" / "parameters.npz").unlink()
    assert sums.main(dataclasses.replace(whole, output=str(tmp_path / "parts"))) == found
    one, other = (np.load(tmp_path / folder / "parameters.npz") for folder in ("whole", "parts"))
    for array in one:
        np.testing.assert_array_equal(one[array], other[array])
    header, *rows = (tmp_path / "parts" / "metrics.csv").read_text().split()
    assert header == "updates,right_as_it_learns,right_in_test"
    assert [float(row.split(",")[0]) for row in rows] == [1, 2, 3, 4]
    assert (tmp_path / "parts" / "curve.png").read_bytes()[:4] == b"\x89PNG"
