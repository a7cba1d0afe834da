"""Statistics of a few runs: interquartile mean, bootstrap intervals, probability of improvement, performance profile.

Scores are arrays [R] of R runs (seeds) of one task, or [R, M] of M tasks, normalised so that tasks are comparable. All
of it is NumPy, in float64, on the host. From "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
Agarwal et al. 2021 (https://arxiv.org/abs/2108.13264).

Example:
  >>> from rlx import evaluation
  >>> scores = [1.0, 2.0, 3.0, 30.0]
  >>> evaluation.interquartile_mean(scores)
  2.5
  >>> low, high = evaluation.bootstrap_interval(evaluation.interquartile_mean, scores)
  >>> low < 2.5 < high
  True
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rlx.core.errors import ArgumentError, RankError, ShapeError

__all__ = ["bootstrap_interval", "interquartile_mean", "performance_profile", "probability_of_improvement"]


def _runs(scores: npt.ArrayLike, name: str) -> np.ndarray:
    """The scores as [R, M]."""
    found = np.asarray(scores, np.float64)
    if found.ndim not in (1, 2):
        raise RankError(f"argument `{name}` has shape {list(found.shape)}, expected [R] of runs, or [R, M] of M tasks")
    if not found.size:
        raise ShapeError(f"argument `{name}` has shape {list(found.shape)}, expected at least one run of each task")
    return found.reshape(len(found), -1)


def interquartile_mean(scores: npt.ArrayLike) -> float:
    """The mean of the middle half of the scores, pooled over tasks.

    With the N scores in order, x₁ ≤ … ≤ x_N, and k = ⌊N / 4⌋: 1 / (N - 2k) Σᵢ xᵢ, for i from k + 1 to N - k.

    Args:
      scores: [R] of R runs, or [R, M] of R runs of each of M tasks.

    Returns:
      The interquartile mean.

    Raises:
      RankError: if `scores` has another rank.
      ShapeError: if there are no scores.

    Example:
      >>> from rlx import evaluation
      >>> evaluation.interquartile_mean([[0.0, 1.0], [2.0, 100.0]])
      1.5
    """
    ordered = np.sort(_runs(scores, "scores").ravel())
    cut = len(ordered) // 4
    return float(np.mean(ordered[cut : len(ordered) - cut]))


def probability_of_improvement(scores_x: npt.ArrayLike, scores_y: npt.ArrayLike) -> float:
    """The probability that a run of X is better than one of Y, averaged over tasks; equal scores count a half.

    P(X > Y) = 1 / M Σₘ 1 / (R K) Σᵢⱼ ([xᵢₘ > yⱼₘ] + [xᵢₘ = yⱼₘ] / 2), the Mann-Whitney U statistic.

    Args:
      scores_x: [R] or [R, M], of the first algorithm.
      scores_y: [K] or [K, M], of the second one; the same tasks.

    Returns:
      The probability, 0 to 1.

    Raises:
      RankError: if scores have another rank.
      ShapeError: if there are no scores, or the numbers of tasks differ.

    Example:
      >>> from rlx import evaluation
      >>> evaluation.probability_of_improvement([2.0, 3.0], [1.0, 2.0])
      0.875
    """
    x, y = _runs(scores_x, "scores_x"), _runs(scores_y, "scores_y")
    if x.shape[1] != y.shape[1]:
        raise ShapeError(f"argument `scores_y` is of {y.shape[1]} tasks, expected {x.shape[1]}, as in `scores_x`")
    return float(np.mean((x[:, None] > y[None]) + 0.5 * (x[:, None] == y[None])))


def performance_profile(scores: npt.ArrayLike, thresholds: npt.ArrayLike) -> np.ndarray:
    """The share of runs with a score above each threshold, pooled over tasks.

    F(τ) = 1 / (R M) Σᵢₘ [xᵢₘ > τ].

    Args:
      scores: [R] or [R, M].
      thresholds: [T], the τ.

    Returns:
      float64[T], the shares.

    Raises:
      RankError: if `scores` has another rank.
      ShapeError: if there are no scores.

    Example:
      >>> from rlx import evaluation
      >>> evaluation.performance_profile([1.0, 2.0, 3.0, 4.0], [0.0, 2.0]).tolist()
      [1.0, 0.5]
    """
    return np.mean(_runs(scores, "scores").ravel() > np.asarray(thresholds, np.float64)[..., None], axis=-1)


def bootstrap_interval(
    statistic: Callable[..., float],
    *scores: npt.ArrayLike,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Confidence interval of a statistic by the stratified bootstrap: each task's runs are resampled with replacement.

    The limits are the (1 - level) / 2 and (1 + level) / 2 quantiles of the statistic over the resamples. With fewer
    than five runs an interval is too narrow: report it together with the number of runs.

    Args:
      statistic: a function from as many arrays as `scores`, each of shape [R, M], to a number.
      *scores: [R] or [R, M] each; they are resampled independently.
      level: confidence level, between 0 and 1.
      resamples: number of resamples; the published figures use 50,000.
      seed: seed of the resampling.

    Returns:
      The lower and the upper limit.

    Raises:
      RankError: if scores have another rank.
      ShapeError: if there are no scores.
      ArgumentError: if `level` is not between 0 and 1.

    Example:
      >>> from rlx import evaluation
      >>> evaluation.bootstrap_interval(evaluation.interquartile_mean, [[1.0, 5.0], [1.0, 5.0]])
      (3.0, 3.0)
    """
    if not 0 < level < 1:
        raise ArgumentError(f"bootstrap_interval: argument `level` is {level}, expected a number between 0 and 1")
    runs, random = [_runs(each, "scores") for each in scores], np.random.default_rng(seed)
    found = []
    for _ in range(resamples):
        drawn = [np.take_along_axis(x, random.integers(len(x), size=x.shape), axis=0) for x in runs]
        found.append(statistic(*drawn))
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
