"""Imported by each Python that `python -m hkx.run` starts, and by its child processes, before their program."""

import importlib
import os
import sys

folder = os.path.dirname(__file__)
sys.path.remove(folder)
if sys.version_info >= (3, 11):  # noqa: UP036  # PYTHONPATH also reaches other Pythons that the program starts
    root = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    sys.path.insert(0, root)
    importlib.import_module("hkx.run.process").begin()
    sys.path.remove(root)

# This file hides the installation's own sitecustomize.
this = sys.modules.pop(__name__)
try:
    importlib.import_module(__name__)
except ModuleNotFoundError as error:
    if error.name != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, this)
