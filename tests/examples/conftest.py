"""Programs are imported by their bare names, those of the zoo too."""

import pathlib
import sys

import pytest
import tyro

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "zoo")]


@pytest.fixture
def refusal(capsys):
    """What a program says of flags that it refuses, without the box around it."""

    def words(settings, arguments):
        with pytest.raises(SystemExit) as ended:
            tyro.cli(settings, args=arguments.split())
        assert ended.value.code == 2
        return " ".join(capsys.readouterr().err.replace("│", " ").split())

    return words
