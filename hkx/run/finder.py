"""One finder that imports `haiku` and `rlax` as hkx and rlx."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Sequence

import hkx.run

NEW = {"haiku": "hkx", "rlax": "rlx"}
_ROOT = os.path.dirname(os.path.dirname(hkx.run.__path__[0]))


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `haiku.X` as the module object of `hkx.X`, and `rlax.X` as that of `rlx.X`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in NEW.values():  # the hkx that this finder is part of, even if no folder of sys.path has it
            return importlib.machinery.PathFinder.find_spec(name, [_ROOT])
        if name.partition(".")[0] in NEW:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        old, dot, rest = module.__name__.partition(".")
        sys.modules[module.__name__] = importlib.import_module(NEW[old] + dot + rest)
