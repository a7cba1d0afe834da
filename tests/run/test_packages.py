"""Packages written for Haiku: their own tests, unedited, have the same outcome under `hkx.run` as beside Haiku.

The environment of the tests has distrax, which RLax needs. For any other package that brings its tests, as e3nn-jax,
surjectors and dm-clrs do, compare the two lists of

    python -m pytest -rA PATH            python -m hkx.run -m pytest -rA PATH
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DISTRAX = ["_src/utils/monte_carlo_test.py"]  # of those that import Haiku, one that takes seconds


def outcomes(tests, *start):
    words = ["-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--import-mode=importlib", *map(str, tests)]
    variables = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    options = {"cwd": ROOT.parent, "env": os.environ | variables, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *start, *words], **options)
    return sorted(re.findall(r"^(?:PASSED|FAILED|ERROR|SKIPPED) \S+", done.stdout, re.MULTILINE))


@pytest.mark.long
@pytest.mark.peer
def test_the_tests_of_distrax_have_the_same_outcome():
    distrax = pytest.importorskip("distrax")
    pytest.importorskip("haiku")
    tests = [pathlib.Path(distrax.__file__).parent / test for test in DISTRAX]
    beside_haiku = outcomes(tests)
    assert len(beside_haiku) >= 4
    assert outcomes(tests, "-m", "hkx.run") == beside_haiku
