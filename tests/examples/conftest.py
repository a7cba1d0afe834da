"""The programs import what they share by its bare name, as they do when they are run."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))
