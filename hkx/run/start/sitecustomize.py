"""Imported by each Python that `python -m hkx.run` starts, and by its child processes, before their program."""

import importlib
import os
import sys

if sys.version_info >= (3, 11):  # noqa: UP036  # PYTHONPATH also reaches other Pythons that the program starts
    importlib.import_module("hkx_finder").begin()
sys.path[:] = [folder for folder in sys.path if folder != os.path.dirname(__file__)]

# This file hides the installation's own sitecustomize.
this = sys.modules.pop(__name__)
try:
    importlib.import_module(__name__)
except ModuleNotFoundError as error:
    if error.name != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, this)
