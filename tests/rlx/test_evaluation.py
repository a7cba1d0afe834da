"""Statistics of runs: the published equations, and numbers that rliable 1.2 gives for the same scores."""

import numpy as np
import pytest

import rlx
from rlx import evaluation


def scores():
    random = np.random.default_rng(0)
    x = random.normal(size=(6, 4))
    y = x * 0.5 + random.normal(size=(6, 4))
    y[0] = x[0]  # ties
    return x, y


def test_statistics_are_those_of_rliable():
    x, y = scores()
    assert evaluation.interquartile_mean(x) == pytest.approx(-0.12615606020805237, abs=1e-12)
    assert evaluation.probability_of_improvement(x, y) == pytest.approx(0.3402777777777778, abs=1e-12)
    found = evaluation.performance_profile(x, [-1.0, 0.0, 0.5])
    np.testing.assert_allclose(found, [0.875, 0.4583333333333333, 0.20833333333333334], atol=1e-12)


def test_intervals_are_those_of_rliable_but_for_its_random_numbers():
    """Its limits from 50,000 and 5,000 resamples; those of 2,000 have a standard error of 0.01."""
    x, y = scores()
    found = evaluation.bootstrap_interval(evaluation.interquartile_mean, x)
    np.testing.assert_allclose(found, [-0.42858446, 0.2065259], atol=0.03)
    found = evaluation.bootstrap_interval(evaluation.probability_of_improvement, x, y)
    np.testing.assert_allclose(found, [0.19097222, 0.50347222], atol=0.03)


def test_an_interval_is_the_quantiles_over_runs_drawn_task_by_task():
    x, _ = scores()
    random, found = np.random.default_rng(7), []
    for _ in range(50):
        rows = random.integers(6, size=(6, 4))
        found.append(np.mean([x[rows[i, m], m] for i in range(6) for m in range(4)]))
    interval = evaluation.bootstrap_interval(np.mean, x, level=0.8, resamples=50, seed=7)
    np.testing.assert_allclose(interval, np.quantile(found, [0.1, 0.9]), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: evaluation.interquartile_mean(1.0), rlx.RankError, "`scores` has shape"),
        (lambda: evaluation.interquartile_mean([]), rlx.ShapeError, "at least one run"),
        (lambda: evaluation.probability_of_improvement([[1.0]], [[1.0, 2.0]]), rlx.ShapeError, "is of 2 tasks"),
        (lambda: evaluation.bootstrap_interval(np.mean, [1.0], level=2.0), rlx.ArgumentError, "`level` is 2.0"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
