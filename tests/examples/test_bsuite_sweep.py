"""The sweep over bsuite: what it says of a run's log."""

import time

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ids": ("bandit",)}, "argument --ids: there is no 'bandit'"),
        ({"agents": ("dqn", "dqm")}, "argument --agents: there is no 'dqm'; there are actor_critic, "),
        ({"agents": ("dqn,n_steps=3",)}, "argument --agents: dqn has no setting 'n_steps'; it has double, "),
        ({"agents": ("bsuite:dqm",)}, "argument --agents: there is no 'bsuite:dqm'; bsuite has actor_critic, "),
    ],
)
def test_what_cannot_be_run_is_one_line(arguments, message, tmp_path, capsys):
    assert bsuite_sweep.main(bsuite_sweep.Config(output=str(tmp_path / "out"), **arguments)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_run_whose_metrics_are_damaged_is_done_again(tmp_path):
    run = bsuite_sweep.Run("dqn", "catch/0", 0)
    metrics = run.folder(str(tmp_path)) / "metrics.json"
    metrics.parent.mkdir(parents=True)
    for text, ended in [('{"steps": 1}', True), ('{"interrupted": true}', False), ('{"ste', False), ("", False)]:
        metrics.write_text(text)
        assert bsuite_sweep.ended(run, str(tmp_path)) is ended


def test_a_run_that_is_named_twice_is_done_once(tmp_path, monkeypatch):
    did = []
    monkeypatch.setattr(bsuite_sweep, "do", lambda run, output: did.append(run) or "")
    config = bsuite_sweep.Config(agents=("dqn", "dqn"), ids=("catch/0", "catch/0"), output=str(tmp_path))
    assert bsuite_sweep.main(config) == 1 and did == [bsuite_sweep.Run("dqn", "catch/0", 0)]


def test_ctrl_c_begins_no_further_run(tmp_path, monkeypatch):
    did = []

    def interrupted(futures):
        first, *_ = futures
        first.result()
        raise KeyboardInterrupt

    def do(run, output):
        time.sleep(0.1)  # while it runs, the interrupt comes
        did.append(run)
        return ""

    monkeypatch.setattr(bsuite_sweep, "do", do)
    monkeypatch.setattr(bsuite_sweep.concurrent.futures, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bsuite_sweep.main(bsuite_sweep.Config(agents=("dqn",), seeds=9, output=str(tmp_path)))
    assert len(did) <= 2


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(bsuite_sweep.BadFlag, match="argument --output: cannot write into the folder"):
        bsuite_sweep.main(bsuite_sweep.Config(output=str(tmp_path / "file" / "out")))


def test_settings_are_flags_of_the_agent():
    for agent in "dqn", "dqn,n_step=3", "dqn,n-step=3,double", "actor_critic,memory=gru", "bsuite:actor_critic_rnn":
        assert bsuite_sweep.wrong_agent(agent) == ""


def test_the_reason_is_read_from_what_a_program_said():
    box = "╭─ Value error ───╮\n│ argument --epsilon: must be 1 │\n│ ─── │\n│ For full helptext, see x --help │\n╰──╯\n"
    assert bsuite_sweep.last_words(box) == "argument --epsilon: must be 1"
    assert bsuite_sweep.last_words("Traceback\n  File\nKeyError: 'x'\n") == "KeyError: 'x'"
    assert bsuite_sweep.last_words("\n") == ""
