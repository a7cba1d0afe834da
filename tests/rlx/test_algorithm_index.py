"""rlx/README.md, by which a newcomer finds an algorithm, says where things are."""

import inspect
import pathlib
import re

import pytest

import rlx

FOLDER = pathlib.Path(__file__).parents[2] / "rlx"
PACKAGE = pathlib.Path(rlx.__file__).parent
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")
LINES = [line for line in TEXT.splitlines() if line.startswith("| ")][1:]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES]
NAMED = """
    A2C, AWAC, AWR, C51, CQL, CrossQ, D4PG, DDPG, DPO, DQN, DreamerV3, DroQ, GAE, GRPO, HL-Gauss, IMPALA, IQL, IQN, KTO,
    MPO, MuZero, Munchausen, NGU, PQN, PPO, PopArt, QMIX, QR-DQN, R2D2, REDQ, RND, Rainbow, Retrace, SAC, SARSA, SPR,
    TD-MPC2, TD3, TQC, UPGO, V-MPO, V-trace, VDN, double DQN, dueling DQN
"""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_operators_are_where_the_index_says(row):
    _, files, names = row
    paths = [FOLDER / path for path in re.findall(r"\]\(([^)]+)\)", files)]
    assert paths and all(path.exists() for path in paths)
    for name in re.findall(r"`(\w+)`", names):
        home = FOLDER / pathlib.Path(inspect.getfile(inspect.getmodule(getattr(rlx, name)))).relative_to(PACKAGE)
        assert home in paths or home.parent in paths, name


def test_the_index_names_every_file_and_the_algorithms_that_people_look_for():
    assert {path.name for path in FOLDER.glob("[!_]*.py")} <= set(re.findall(r"\]\(([^)]+)\)", TEXT))
    found = {name for row in ROWS for name in re.sub(r" \(.*?\)", "", row[0]).split(", ")}
    assert {name.strip() for name in NAMED.split(",")} <= found
