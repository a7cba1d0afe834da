"""One finder that imports `haiku` and `rlax` as hkx and rlx."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hkx.run

NEW = {"haiku": "hkx", "rlax": "rlx"}
RELEASES = {"haiku": "0.0.17", "rlax": "0.1.9"}  # those whose names hkx and rlx have
_ROOT = os.path.dirname(os.path.dirname(hkx.run.__path__[0]))


class Finder:
    """Finds `haiku.X` as the module object of `hkx.X`, and `rlax.X` as that of `rlx.X`: an entry of `sys.meta_path`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in NEW.values():  # the copy that this finder is part of, even if no folder of sys.path has it
            return importlib.machinery.PathFinder.find_spec(name, [_ROOT])
        if name.partition(".")[0] not in NEW:
            return None
        if not _private().is_served(name) and importlib.util.find_spec(_new(name)) is None:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return _private().module_of(spec.name) if _private().is_served(spec.name) else None

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        if _private().is_served(name):
            return
        sys.modules[name] = new = importlib.import_module(_new(name))
        if name in NEW:
            new.__version__ = RELEASES[name]  # type: ignore[attr-defined]
            importlib.import_module(f"{name}._src")  # an attribute of `haiku` without an import of its own
        for served, removed in _private().REMOVED.items():
            if served == name:
                vars(new)["__getattr__"] = functools.partial(_attribute, removed, new.__getattr__)
            elif served.startswith(f"{name}."):
                importlib.import_module(served)

    def find_distributions(self, context: Any) -> Iterable[Any]:
        """Answers `importlib.metadata.version("dm-haiku")`, installed or not."""
        return importlib.import_module("hkx.run.metadata").served(context.name)


def _attribute(removed: Sequence[str], others: Callable[[str], Any], name: str) -> Any:
    """The `__getattr__` of a module that once had the names `removed` too."""
    return getattr(importlib.import_module("hkx.run.removed"), name) if name in removed else others(name)


def _new(name: str) -> str:
    old, dot, rest = name.partition(".")
    return NEW[old] + dot + rest


def _private() -> Any:
    return importlib.import_module("hkx.run.private")
