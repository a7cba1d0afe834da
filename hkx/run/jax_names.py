"""Restores names and arguments that JAX, NumPy, optax and chex have removed, in this process alone.

`install()` adds one finder to `sys.meta_path`. It gives a `__getattr__` to the modules of which the table has rows,
when the program imports them, and serves modules that no longer exist. Names that a package still has are left alone.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import functools
import importlib
import importlib.abc
import importlib.machinery
import inspect
import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from hkx.run.table import ARGUMENTS, MODULES, NAMES, Name

_uses: dict[tuple[str, int, Name], None] = {}  # where the program used a row: file, line
_OWNERS = {path.rpartition(".")[0] for path in [*NAMES, *MODULES, *ARGUMENTS]}  # of which the table has rows
_OWNERS |= {path.rpartition(".")[0] for path in _OWNERS if "." in path}
_MISSING = re.compile(  # Python's text
    r"cannot import name '(\w+)' from '([\w.]+)'|module '([\w.]+)' has no attribute '(\w+)'"
)
_UNEXPECTED = re.compile(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'")


def install(report: bool = False) -> None:
    """Restores removed names from now on; with `report`, prints at exit which of them were used, and where."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for path in sorted(_OWNERS & sys.modules.keys()):
        _restore(sys.modules[path])
    if report:
        atexit.register(_print_report)


def edits() -> list[str]:
    """The uses so far, as `train.py:12: jax.tree_map -> jax.tree.map`, without those in installed packages."""
    own = [use for use in _uses if not _is_installed(use[0])]
    return [f"{_relative(file)}:{line}: {row.edit}" for file, line, row in sorted(own)]


def hint(error: BaseException) -> str | None:
    """One line that names `--jax-names`, if the error is of a removed name or argument."""
    restores = "`python -m hkx.run --jax-names …` restores it"
    if isinstance(error, TypeError):
        found = _UNEXPECTED.match(str(error))
        rows = [row for rows in ARGUMENTS.values() for row in rows]
        same = [row for row in rows if found and (row.attribute, row.argument) == (found[1], found[2])]
        return f"removed in {same[0].release}: {restores} ({same[0].edit})" if same else None
    path = _path_in(error)
    row = NAMES.get(path) or MODULES.get(path)
    if row is not None:
        return f"removed in {row.release}: {restores} ({row.edit})"
    is_module = any(name.startswith(f"{path}.") for name in [*NAMES, *MODULES])
    return f"{path} has been removed: {restores}" if is_module and path not in sys.modules else None


def _path_in(error: BaseException) -> str:
    """The full path of the name that an error is about."""
    if isinstance(error, ModuleNotFoundError):
        return error.name or ""
    found = _MISSING.match(str(error))
    if found:
        return f"{found[2]}.{found[1]}" if found[1] else f"{found[3]}.{found[4]}"
    if isinstance(error, AttributeError):
        owners = {"Config": "jax.config", "ArrayImpl": "jax.Array"}
        return f"{owners.get(type(error.obj).__name__)}.{error.name}"
    return ""


def _print_report() -> None:
    lines = edits()
    installed = sorted({_package(file) for file, _, _ in _uses if _is_installed(file)})
    print("Removed names that this program used:" if lines else "This program used no removed names.", file=sys.stderr)
    for line in lines:
        print(f"  {line}", file=sys.stderr)
    if installed:
        print(f"Installed packages used some too: {', '.join(installed)}", file=sys.stderr)


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file or file.startswith(os.path.dirname(os.__file__))


def _package(file: str) -> str:
    return re.split(r"(?:site|dist)-packages[\\/]", file)[-1].replace("\\", "/").partition("/")[0]


def _relative(file: str) -> str:
    return os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Restores names in modules that others find, and finds the removed modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _OWNERS and name not in MODULES:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None and "." in name:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if spec is not None and spec.loader is not None and name in _OWNERS:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), _restore(module))[0]  # type: ignore[method-assign]
        return spec

    def exec_module(self, module: types.ModuleType) -> None:
        path = module.__name__
        row = MODULES.get(path)
        owner, _, name = path.rpartition(".")
        if row is not None:
            _record(row)
        if row is not None and row.new:
            sys.modules[path] = importlib.import_module(row.new.removesuffix(".*"))
        elif name in vars(sys.modules[owner]):  # `jax.config`, which is no longer a module
            sys.modules[path] = vars(sys.modules[owner])[name]
        else:
            _restore(module)


def _restore(module: types.ModuleType) -> None:
    """Serves the removed names of a module, and the removed arguments of its functions."""
    path = module.__name__
    module.__dict__["__getattr__"] = functools.partial(_missing, path, vars(module).get("__getattr__"))
    for function in ARGUMENTS:
        owner, _, name = function.rpartition(".")
        if owner == path and name in vars(module):
            setattr(module, name, _with_old_arguments(vars(module)[name], function))
    if path == "jax":
        _restore_objects(module)


def _missing(path: str, before: Callable[[str], Any] | None, name: str) -> Any:
    """A name that a module does not have: `before` is the `__getattr__` of the module itself."""
    whole = f"{path}.{name}"
    try:
        if before is None:
            raise AttributeError(f"module {path!r} has no attribute {name!r}", name=name, obj=sys.modules.get(path))
        with warnings.catch_warnings():
            if whole in NAMES:  # NumPy warns before it raises
                warnings.simplefilter("ignore", FutureWarning)
            value = before(name)
        return _with_old_arguments(value, whole) if whole in ARGUMENTS else value
    except AttributeError:
        if whole in NAMES:
            return _use(NAMES[whole])
        if whole in MODULES or whole in _OWNERS:
            return importlib.import_module(whole)
        raise


def _restore_objects(jax: types.ModuleType) -> None:
    """Serves what `jax.config`, arrays and devices no longer have."""

    def attribute_of(owner: str) -> Callable[[Any, str], Any]:
        def __getattr__(self: Any, name: str) -> Any:
            row = NAMES.get(f"{owner}.{name}")
            if row is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            return _use(row, self)

        return __getattr__

    type(jax.config).__getattr__ = attribute_of("jax.config")
    jax.Array.__getattr__ = attribute_of("jax.Array")
    jax.Device.__call__ = lambda self: _use(NAMES["jax.Array.device"], types.SimpleNamespace(device=self))()
    for cls in jax.Array.__subclasses__():
        for name in ("__int__", "__float__"):
            if name in vars(cls):
                setattr(cls, name, _of_one_element(vars(cls)[name], NAMES[f"jax.Array.{name}"]))
    update = type(jax.config).update

    @functools.wraps(update)
    def update_what_exists(self: Any, name: str, value: Any) -> Any:
        try:
            return update(self, name, value)
        except AttributeError:
            if f"jax.config.{name}" not in NAMES:
                raise
            _record(NAMES[f"jax.config.{name}"])

    type(jax.config).update = update_what_exists


def _of_one_element(convert: Callable[[Any], Any], row: Name) -> Callable[[Any], Any]:
    """A conversion to a number that takes arrays of one element and any number of axes."""
    return functools.wraps(convert)(lambda x: _use(row, x)() if x.ndim and x.size == 1 else convert(x))


@functools.cache
def _with_old_arguments(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    """The function, called with its arguments of today when the program gives those of old."""
    by_argument = {row.argument: row for row in ARGUMENTS[path]}
    positions = [int(argument[1:]) for argument in by_argument if argument.startswith("_")]
    first = min(positions, default=sys.maxsize)

    @functools.wraps(function)
    def with_old_arguments(*args: Any, **kwargs: Any) -> Any:
        if len(args) > first or not kwargs.keys().isdisjoint(by_argument):
            args, kwargs = _of_today(function, by_argument, args, kwargs)
        return function(*args, **kwargs)

    with_old_arguments.__module__ = path.rpartition(".")[0]  # where pickle finds it
    return with_old_arguments


def _of_today(
    function: Callable[..., Any], rows: dict[str, Name], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    by_position, by_keyword = _accepted(function)
    given = {f"_{i}": value for i, value in enumerate(args) if i >= by_position and f"_{i}" in rows}
    args = args[: len(args) - len(given)]
    new = {name: value for name, value in kwargs.items() if name not in rows}
    for argument in [*given, *(name for name in rows if name in kwargs)]:
        row, value = rows[argument], (given | kwargs)[argument]
        name, _, expression = row.new.partition("=")
        if row.new and argument in by_keyword and argument != name:
            new[argument] = value  # this version of the package has it still
            continue
        if argument != name or value is False:
            _record(row)
        if name.isdigit():
            args = (*args[: int(name)], value, *args[int(name) :])
        elif name:
            new[name] = eval(expression, {argument: value})
    return args, new


@functools.cache
def _accepted(function: Callable[..., Any]) -> tuple[int, set[str]]:
    """How many arguments a function takes by position, and which by keyword."""
    parameters = inspect.signature(function).parameters.values()
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_keyword = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return len(by_position), by_keyword


def _use(row: Name, x: Any = None) -> Any:
    """The present value of a removed name, of the array or the settings `x` if given; records the line that asks."""
    _record(row)
    return _present(row) if x is None else _present(row)(x)


def _record(row: Name) -> None:
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    _uses[frame.f_code.co_filename, frame.f_lineno, row] = None


def _is_ours(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen importlib") or file == importlib.__file__


@functools.cache
def _present(row: Name) -> Any:
    """The value that `row.new` has today; a function of the array or the settings that it belongs to, as `x`."""
    if row.by:
        return getattr(importlib.import_module("hkx.run.stand_ins"), row.by)
    code = row.new if row.signature is None else f"lambda {row.signature}: {row.new}"
    if row.owner in ("jax.Array", "jax.config"):
        code = f"lambda x: {code}"
    return eval(code, _modules_in(code))


def _modules_in(code: str) -> dict[str, types.ModuleType]:
    """The modules that an expression reads from, by their first names, imported with their submodules."""
    tree = ast.parse(code, mode="eval")
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found = {}
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
        root = text.partition(".")[0]
        if root.isidentifier() and root not in bound and not hasattr(builtins, root):
            found[root] = _import_along(text)
    return {name: module for name, module in found.items() if module is not None}


def _import_along(path: str) -> types.ModuleType | None:
    """Imports `jax`, `jax.tree` … of a dotted path, as far as they are modules; returns the first."""
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        try:
            importlib.import_module(".".join(parts[:end]))
        except ImportError:
            if end == 1:
                raise
            break
    return sys.modules[parts[0]]
