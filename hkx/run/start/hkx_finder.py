"""One finder that imports `haiku` and `rlax` as hkx and rlx, and what else a program gets before it starts.

Every process of a program imports this file when Python starts, and so it imports little itself, and nothing of hkx.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Iterable, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FLAGS = "HKX_RUN"  # the environment variable that hands the flags of hkx.run to child processes
OF_OLD_ARRAYS = "jax._src.device_array"  # the module that pickled arrays name which JAX 0.3.8 to 0.4.0 wrote
NEW = {"haiku": "hkx", "rlax": "rlx"}
_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


def begin() -> None:
    """Prepares this process, before its program starts: the finder, and JAX's old names or a hint of them."""
    if any(finder.__class__.__name__ == Finder.__name__ for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
    sys.excepthook = _show
    flags = os.environ.get(FLAGS, "").split()
    if "--jax-names" in flags:
        importlib.import_module("hkx.run.jax_names").install(report="--report" in flags)


class Finder:
    """Finds `haiku.X` as the module object of `hkx.X`, and `rlax.X` as that of `rlx.X`: an entry of `sys.meta_path`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in NEW.values():  # the copy that this file is part of, even if no folder of sys.path has it
            return importlib.machinery.PathFinder.find_spec(name, [_ROOT])
        if name.partition(".")[0] not in NEW and name != OF_OLD_ARRAYS:
            return None
        if not _private().is_served(name) and importlib.import_module("importlib.util").find_spec(_new(name)) is None:
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
            new.__version__ = _private().RELEASES[name]  # type: ignore[attr-defined]
            importlib.import_module(f"{name}._src")  # an attribute of `haiku` without an import of its own
        for served, removed in _private().REMOVED.items():
            if served == name:
                vars(new)["__getattr__"] = _with_removed(removed, new.__getattr__)
            elif served.startswith(f"{name}."):
                importlib.import_module(served)

    def find_distributions(self, context: Any) -> Iterable[Any]:
        """Answers `importlib.metadata.version("dm-haiku")`, installed or not."""
        return importlib.import_module("hkx.run.metadata").served(context.name)


def _new(name: str) -> str:
    old, dot, rest = name.partition(".")
    return NEW[old] + dot + rest


def _private() -> Any:
    return importlib.import_module("hkx.run.private")


def _with_removed(removed: Sequence[str], others: Callable[[str], Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module that once had the names `removed` too."""
    return lambda name: getattr(importlib.import_module("hkx.run.removed"), name) if name in removed else others(name)


def _show(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
    """Shows the error that ends the program: without frames of ours that raised it, with a hint of `--jax-names`."""
    if isinstance(error, AttributeError | ImportError | TypeError):
        if "--jax-names" not in os.environ.get(FLAGS, ""):
            hint = importlib.import_module("hkx.run.jax_names").hint(error)
            if hint is not None:
                error.add_note(hint)
        _leave_out(traceback)
    sys.__excepthook__(kind, error, traceback)


def _leave_out(entry: types.TracebackType | None) -> None:
    last = None  # before the frames of hkx.run that end the traceback
    while entry is not None and entry.tb_next is not None:
        own = entry.tb_next.tb_frame.f_code.co_filename.startswith(os.path.join(_ROOT, "hkx", "run"))
        last = (last or entry) if own else None
        entry = entry.tb_next
    if last is not None:
        last.tb_next = None
