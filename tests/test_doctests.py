"""Every example in every docstring runs, and every public name has one."""

import doctest
import importlib
import inspect
import pkgutil

import jax
import pytest

import hkx
import rlx

pytestmark = pytest.mark.unoptimised

OPTIONAL = ("flax", "torch")
STARTS = "hkx.run.start.sitecustomize"  # runs where Python starts, once


def modules():
    for package in (hkx, rlx):
        yield package.__name__
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if info.name.rpartition(".")[2] not in OPTIONAL and info.name != STARTS:
                yield info.name


@pytest.mark.slow
@pytest.mark.parametrize("name", list(modules()))
def test_examples(name):
    if name.startswith("hkx.migrate."):
        pytest.importorskip("libcst", reason="the tool is for those who install hkx[migrate]")
    with jax.numpy_rank_promotion("allow"):
        result = doctest.testmod(
            importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        )
    assert result.failed == 0


def public(package):
    members = [(f"{package.__name__}.{name}", getattr(package, name)) for name in package.__all__]
    return [(name, value) for name, value in members if inspect.isfunction(value) or inspect.isclass(value)]


@pytest.mark.parametrize(("name", "value"), public(hkx) + public(rlx), ids=lambda v: v if isinstance(v, str) else "")
def test_public_names_have_a_docstring_with_an_example(name, value):
    doc = inspect.getdoc(value) or ""
    assert len(doc) > 40, f"{name} has no docstring"
    if inspect.isfunction(value):
        assert ">>>" in doc, f"{name} has no example"
