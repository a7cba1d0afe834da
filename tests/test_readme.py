"""README.md: the form of its first two commands, its picture and its figures. Blocks: test_guides.py."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("index", "extra", "program"),
    [(0, "examples", "examples/catch_q_learning.py"), (1, "test", "pytest")],
    ids=["train", "test"],
)
def test_the_first_two_blocks_are_one_shell_line_each(index, extra, program):
    command = [text for language, text in BLOCKS if language == "sh"][index]
    assert command.count("\n") == 1, "one line, so that it can be pasted at once"
    assert command.startswith("python3 -m venv "), "any Python that is supported"
    assert f"'.[{extra}]'" in command
    assert program in command


def test_the_picture_moves_and_is_small():
    picture = (ROOT / "docs" / "catch_play.gif").read_bytes()
    assert picture.startswith(b"GIF89a")
    assert b"NETSCAPE2.0" in picture  # over and over
    assert len(picture) < 100_000
    assert "](docs/catch_play.gif)" in README


@pytest.mark.parametrize("page", ["README.md", "docs/compare.md"])
def test_the_figures_are_those_of_the_benchmarks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]*(?:\bms\b|µs|CPU s)[^|]*\|(.*)\|$", text, re.MULTILINE)
    figures = [figure for row in rows for figure in re.findall(r"\d[\d.]*", row)]
    measured = set(
        re.findall(r"(?<![\d.])\d[\d.]*\d|(?<![\d.])\d", (ROOT / "benchmarks" / "README.md").read_text("utf-8"))
    )
    assert len(figures) > 10
    assert set(figures) <= measured
