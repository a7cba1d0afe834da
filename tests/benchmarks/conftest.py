"""The benchmarks are run from the top of the repository, as `python -m benchmarks`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
