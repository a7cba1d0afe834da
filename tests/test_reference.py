"""Every public name stands on exactly one page of the reference, docs/api, and those of rlx on the cheat sheet."""

import importlib.util
import pathlib
import re

import pytest

import rlx

DOCS = pathlib.Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def reading():
    spec = importlib.util.spec_from_file_location("public_names", DOCS / "_ext" / "public_names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_stands_on_one_page(reading):
    assert reading.complaints(DOCS / "api") == []


def test_a_name_that_is_missing_unknown_or_there_twice_is_named(reading, tmp_path):
    folder = tmp_path / "api"
    folder.mkdir()
    public = sorted(reading.public_names() - {"hkx.Linear"})
    blocks = [f"```{{api}} {name.rpartition('.')[0]}\n{name.rpartition('.')[2]}\n```\n" for name in public]
    (folder / "all.md").write_text("".join(blocks), encoding="utf-8")
    (folder / "more.md").write_text("```{api} hkx\nLiner scan\n```\n", encoding="utf-8")
    assert reading.complaints(folder) == [
        "hkx.Linear stands on no page of api/",
        "hkx.Liner, on more.md, is not public",
        "hkx.scan stands twice: all.md, more.md",
    ]


def test_every_page_is_in_the_table_of_its_package():
    for package in ("hkx", "rlx"):
        folder = DOCS / "api" / package
        listed = (folder / "index.md").read_text(encoding="utf-8").split("```")[1].split("\n")
        assert {path.stem for path in folder.glob("*.md")} - {"index"} == set(listed) & {
            line for line in listed if line.isidentifier()
        }


@pytest.fixture
def cheat_sheet(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    return importlib.import_module("cheat_sheet")


def test_the_cheat_sheet_has_a_line_for_every_name_of_rlx(cheat_sheet, reading):
    rows = [row for _, _, rows in cheat_sheet.families() for row in rows]
    assert sorted(name for name, _, _ in rows) == sorted(name for name in reading.public_names() if name[:3] == "rlx")
    assert not [name for name, line, _ in rows if not line or "\n" in line]


def test_the_cheat_sheets_names_exist(reading):
    text = (DOCS / "rlx" / "cheat_sheet.md").read_text("utf-8")
    columns = re.findall(r"^\| (.*?) \|.*\|$", text, re.MULTILINE)
    ours = {f"rlx.{name}" for mine in columns for name in re.findall(r"`([a-z]\w*(?:\.\w+)?)`", mine)}
    assert len(ours) > 30
    assert ours <= reading.public_names() | {"rlx.running_statistics"}


def test_every_operator_of_rlax_has_its_name_here():
    rlax = pytest.importorskip("rlax")
    assert [name for name in rlax.__all__ if not hasattr(rlx, name)] == []
