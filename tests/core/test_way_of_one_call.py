"""docs/how_it_works.md, the ways of one call and of one branch: what they name is what runs, in their order."""

import collections
import pathlib
import re
import sys

import jax
import jax.numpy as jnp
import pytest

import hkx

ROOT = pathlib.Path(__file__).parents[2]
HKX = str(pathlib.Path(hkx.__file__).parent)
LINK = re.compile(r"\]\(\.\./hkx/([\w/]+\.py)\)")
ITEM = re.compile(r"^\d+\. (?:Back in )?\[[\w/.]+\]\(\.\./hkx/([\w/]+\.py)\)(?:, `([\w.]+)`)?", re.MULTILINE)


def section(title: str) -> str:
    page = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    return page.partition(f"### {title}\n")[2].partition("\n### ")[0]


def of_apply_and_of_init() -> tuple[str, str]:
    apply, found, init = section("The way of one call").partition("\n`init` of the same")
    assert found
    return apply, init


def called(function) -> list[tuple[str, str]]:
    """The functions of hkx that a call runs, in order, each with its file."""
    calls = []

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HKX):
            calls.append((pathlib.Path(code.co_filename).relative_to(HKX).as_posix(), code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


def by_file(calls) -> dict[str, list[str]]:
    files = collections.defaultdict(list)
    for file, name in calls:
        files[file].append(name)
    return files


@pytest.fixture(scope="module")
def calls():
    model = hkx.transform(lambda x: hkx.Linear(2)(x))
    key, x = jax.random.key(0), jnp.ones([1, 3])
    params = model.init(key, x)
    traced = jax.jit(lambda *args: model.apply(*args))
    return by_file(called(lambda: traced.trace(params, key, x))), by_file(called(lambda: model.init(key, x)))


def check_items(text, files):
    items = ITEM.findall(text)
    assert len(items) >= 3
    for file, function in items:
        assert any(function in name.split(".") or name.endswith(function) for name in files[file]), (file, function)
    order = list(files)
    first = [order.index(file) for file in dict.fromkeys(file for file, _ in items)]
    assert first == sorted(first)


def test_apply_goes_through_the_files_that_the_page_names(calls):
    text, _ = of_apply_and_of_init()
    way, _, asked = text.partition("These eight files")
    assert len(set(LINK.findall(way))) == 8
    assert set(LINK.findall(way)) | set(LINK.findall(asked)) == set(calls[0])
    check_items(way, calls[0])


def test_init_goes_through_them_too_and_through_those_that_the_page_adds(calls):
    of_apply, text = of_apply_and_of_init()
    assert set(LINK.findall(text)) - {"init/transform.py"} <= set(calls[1])  # which has run before, in `hkx.transform`
    assert set(calls[1]) <= set(LINK.findall(of_apply)) | set(LINK.findall(text))
    check_items(text, calls[1])


def test_a_branch_goes_through_the_functions_that_the_page_names():
    items = ITEM.findall(section("The way of one branch"))
    assert len(items) == 5
    model = hkx.transform(lambda x: hkx.cond(x.sum() > 0, hkx.Linear(2), hkx.Linear(2), x))
    model.init(jax.random.key(0), jnp.ones(3))  # imports the files, whose classes Python's profiler takes for calls
    calls = called(lambda: model.init(jax.random.key(0), jnp.ones(3)))
    first = [next(i for i, (f, name) in enumerate(calls) if f == file and do in name.split(".")) for file, do in items]
    assert first == sorted(first)
