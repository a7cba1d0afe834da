"""The sweep over bsuite: what it says of a run's log."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("bsuite")
pytest.importorskip("tyro")

import bsuite_sweep
import pandas as pd

LOGS = [  # episodes, those of them that were bad, and whether that is a solution for a sea of 10 x 10
    ([100, 1000, 2000], [100, 890, 1000], 1.0),  # less than nine of ten bad ones before 2**10 + 100 episodes
    ([100, 1000, 2000], [100, 1000, 1000], 0.0),  # later
    ([100, 1000, 2000], [100, 1000, 1990], 0.0),  # never
]


def log_of(episodes: list[int], bad: list[int]):
    return pd.DataFrame({"size": 10, "episode": episodes, "total_bad_episodes": bad})


@pytest.mark.parametrize(("episodes", "bad", "score"), LOGS)
def test_the_score_of_deep_sea(episodes, bad, score):
    assert bsuite_sweep.deep_sea_score(log_of(episodes, bad)) == score


@pytest.mark.slow  # imports what bsuite plots with
@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("episodes", "bad", "score"), LOGS)
def test_the_score_of_deep_sea_is_bsuites(episodes, bad, score, monkeypatch):
    from bsuite.experiments.deep_sea import analysis

    monkeypatch.setattr(pd.Series, "append", lambda one, other: pd.concat([one, other]), raising=False)
    assert analysis.score(log_of(episodes, bad)) == score


def test_a_run_has_a_folder_of_its_own():
    runs = [bsuite_sweep.Run(agent, "catch/0", 1) for agent in ("dqn", "bsuite:dqn", "dqn,n_step=3")]
    assert [str(run.folder("out")) for run in runs] == [
        "out/runs/dqn/catch-0/1",
        "out/runs/bsuite-dqn/catch-0/1",
        "out/runs/dqn-n_step=3/catch-0/1",
    ]
