"""The `repr` of a module: the constructor call that created it, and its submodules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

_RECORD = "_hkx_record"


class Record:
    """A note in an attribute of a module: the constructor call, and the names of the modules inside.

    It is no container, so that programs that search a module's attributes do not find the arguments. These may be
    something that cannot be copied or pickled: copies share them, and what is unpickled has their text.
    """

    __slots__ = ("call", "cls", "names_below", "shown")

    def __init__(self, cls: type, call: Any = None, names_below: Iterable[str] = (), shown: str = ""):
        self.cls = cls
        self.call = call  # the args and kwargs, or None
        self.names_below = set(names_below)
        self.shown = shown

    def __deepcopy__(self, memo: Any) -> Record:
        return Record(self.cls, self.call, self.names_below, self.shown)

    def __reduce__(self) -> Any:
        return Record, (self.cls, None, self.names_below, self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (self.text, self.names_below) == (other.text, other.names_below)

    @property
    def text(self) -> str:
        """The constructor call, with the arguments that differ from their defaults."""
        return self.shown if self.call is None else _call_text(self.cls, *self.call)


def _is_module(value: Any) -> bool:
    """True if `value` is a `hkx.Module`, which this file cannot import; a Deferred, which stands for one, is not."""
    return _RECORD in getattr(value, "__dict__", ())


def note_record(module: Any, record: Record) -> None:
    """Notes a record in a module, whatever its `__setattr__` does."""
    object.__setattr__(module, _RECORD, record)


def record_of(module: Any) -> Record:
    """The record that was noted in a module."""
    return getattr(module, _RECORD)


def _record_if_any(module: Any) -> Record:
    """The record that was noted in a module; one that says nothing if there is none."""
    return vars(module).get(_RECORD, Record(type(module)))


def module_text(module: Any) -> str:
    """The constructor call that created a module; for a class that is not of hkx, also its submodules, one per line."""
    line, record = _constructor_text(module), _record_if_any(module)
    says_all = record.call is None or type(module).__module__.startswith("hkx.")
    return line if says_all else "\n".join([line, *_children_text(module, record)])


def _constructor_text(module: Any) -> str:
    return _record_if_any(module).text or object.__repr__(module)


def _call_text(cls: type, args: Any, kwargs: Any) -> str:
    try:
        signature = inspect.signature(cls.__init__)
        bound = signature.bind(None, *args, **kwargs)
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
    """True if an argument equals its default; False if `==` gives no single truth value, as for arrays."""
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


def _children_text(module: Any, record: Record) -> list[str]:
    """The lines for the modules in a module's attributes, except for those passed to its constructor."""
    given = {id(child) for _, child in _modules_in("", list(record.call))}
    lines = []
    for label, child in (pair for name, value in vars(module).items() for pair in _modules_in(name, value)):
        if id(child) not in given:
            lines += f"{label}: {child!r}".splitlines()
    return [f"  {line}" for line in lines]
