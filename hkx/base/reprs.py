"""The `repr` of a module: the constructor call that created it, and its submodules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any


def _is_module(value: Any) -> bool:
    """Whether `value` is a `hkx.Module`, which this file cannot import; a Deferred, which stands for one, is not."""
    return "hkx_names_below" in getattr(value, "__dict__", ())


def module_text(module: Any) -> str:
    """The constructor call that created a module; for a class that is not of hkx, also its submodules, one per line."""
    line = _constructor_text(module)
    says_all = vars(module).get("hkx_made_with") is None or type(module).__module__.startswith("hkx.")
    return line if says_all else "\n".join([line, *_children_text(module)])


def _constructor_text(module: Any) -> str:
    """The constructor call that created a module, with the arguments that differ from their defaults."""
    cls, made_with = type(module), vars(module).get("hkx_made_with")
    if made_with is None:
        return object.__repr__(module)
    try:
        signature = inspect.signature(cls.__init__)
        bound = signature.bind(None, *made_with[0], **made_with[1])
    except (TypeError, ValueError):
        return f"{cls.__name__}(…)"
    shown = []
    for name, value in list(bound.arguments.items())[1:]:
        parameter = signature.parameters[name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            shown += [_value_text(v) for v in value]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            shown += [f"{k}={_value_text(v)}" for k, v in value.items()]
        elif not _equal(value, parameter.default):
            shown.append(f"{name}={_value_text(value)}")
    return f"{cls.__name__}({', '.join(shown)})"


def _equal(value: Any, default: Any) -> bool:
    """Whether an argument equals its default; False if `==` gives no single truth value, as for arrays."""
    try:
        return value is default or bool(value == default)
    except Exception:
        return False


def _value_text(value: Any) -> str:
    """The `repr` of an argument, with modules shown as constructor calls and functions by their names."""
    if _is_module(value):
        return _constructor_text(value)
    if type(value) is list:
        return f"[{', '.join(map(_value_text, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(_value_text, value))}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return f"{{{', '.join(f'{k!r}: {_value_text(v)}' for k, v in value.items())}}}"
    if callable(value) and not isinstance(value, type):
        return getattr(value, "__name__", None) or _fields_text(value)
    return _fields_text(value)


def _fields_text(value: Any) -> str:
    """The `repr`; instead of the default one with an address, the class and its numbers and strings."""
    if isinstance(value, functools.partial):
        fields = [_value_text(v) for v in (value.func, *value.args)]
        return f"partial({', '.join([*fields, *[f'{k}={_value_text(v)}' for k, v in value.keywords.items()]])})"
    if type(value).__repr__ is not object.__repr__:
        return repr(value)
    fields = [f"{k}={v!r}" for k, v in getattr(value, "__dict__", {}).items() if isinstance(v, (bool, int, float, str))]
    return f"{type(value).__name__}({', '.join(f for f in fields if not f.startswith('_'))})"


def _modules_in(label: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The modules in a value, including those nested in lists, tuples and dicts, each with a label."""
    if _is_module(value):
        yield label, value
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _modules_in(f"{label}[{i}]", inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _modules_in(f"{label}[{key!r}]", inner)


def _children_text(module: Any) -> list[str]:
    """The lines for the modules in a module's attributes, except for those passed to its constructor."""
    given = {id(child) for _, child in _modules_in("", [*module.hkx_made_with[0], module.hkx_made_with[1]])}
    attributes = [(name, value) for name, value in vars(module).items() if name != "hkx_made_with"]
    lines = []
    for label, child in (pair for name, value in attributes for pair in _modules_in(name, value)):
        if id(child) not in given:
            lines += f"{label}: {child!r}".splitlines()
    return [f"  {line}" for line in lines]
