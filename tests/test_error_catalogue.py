"""docs/errors.md shows every named error of hkx: code that raises it, the message as it comes out, and right code."""

import importlib.util

import error_catalogue
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

CODE = {name: (wrong, right) for name, wrong, right in error_catalogue.entries()}
NEEDS = {"WeightMismatchError": "torch"}
PAGE = error_catalogue.PAGE.read_text(encoding="utf-8")


def test_every_named_error_is_in_it():
    assert set(CODE) == set(hkx.errors.__all__) - error_catalogue.BASES


def test_it_was_written_where_all_libraries_were_installed():
    assert "No module named" not in PAGE


@pytest.mark.parametrize("name", CODE)
def test_code_message_and_right_code(name):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    wrong, right = CODE[name]
    raised, message = error_catalogue.run(wrong)
    assert raised == name
    assert error_catalogue.run(right) is None
    about = getattr(hkx.errors, name).__doc__.strip().splitlines()[0]
    text = error_catalogue.wrapped(message)
    shown = f"### {name}\n\n{about}\n\n```py\n{wrong}\n```\n\n```text\n{text}\n```\n\nInstead:\n\n```py\n{right}\n```\n"
    assert shown in PAGE, "`python tests/error_catalogue.py` writes the page anew"
