"""Methods that IPython's `%autoreload` has replaced.

It changes functions in place: the code of a wrapper becomes that of the method, or the attributes of the wrapper in the
old class become those in the new one, while the wrapper goes on calling the old method. New methods are added without
a wrapper.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

_AUTORELOAD = "IPython.extensions.autoreload"
Wrap = Callable[[str, Any, list[type]], Any]


def wrap_reloaded(cls: type, wrap: Wrap) -> None:
    """Wraps the methods of a class, and of its bases, anew where they have been replaced.

    Args:
      cls: the class.
      wrap: called as `wrap(name, method, [owner])`; the functions in it are the wrappers, which hold the contract of
        the method.
    """
    if _AUTORELOAD not in sys.modules:
        return
    for owner in [base for base in cls.__mro__ if type(base) is type(cls)]:
        for key, value in list(vars(owner).items()):
            if key == "module_name" or (key.startswith("__") and key not in ("__call__", "__init__")):
                continue
            if isinstance(value, property):
                parts = (value.fget, value.fset, value.fdel)
                getter, setter, deleter = (part and _renewed(key, part, owner, wrap) for part in parts)
                if (getter, setter, deleter) != parts:
                    setattr(owner, key, property(getter, setter, deleter, value.__doc__))
            elif isinstance(value, types.FunctionType) and (new := _renewed(key, value, owner, wrap)) is not value:
                type.__setattr__(owner, key, new)


def _renewed(key: str, function: Any, owner: type, wrap: Any) -> Any:
    """The function, unless it is a wrapper of something else than it should be, or was added without one."""
    method, is_wrapper = function, function.__globals__ is wrap.__globals__
    if is_wrapper and function.__code__ in wrap.__code__.co_consts:
        method = function.__wrapped__
        if any(getattr(cell.cell_contents, "function", None) is method for cell in function.__closure__):
            return function
    elif not is_wrapper and function.__code__.co_filename != "<string>":
        return function
    code, cells = method.__code__, method.__closure__ or ()
    closure = [
        types.CellType(owner) if name == "__class__" else c for name, c in zip(code.co_freevars, cells, strict=True)
    ]
    names = sys.modules[owner.__module__].__dict__
    new = types.FunctionType(code, names, method.__name__, method.__defaults__, tuple(closure))
    new.__dict__.update(method.__dict__)
    for name in ("__kwdefaults__", "__annotations__", "__doc__", "__qualname__", "__module__"):
        setattr(new, name, getattr(method, name))
    return wrap(key, new, [owner])
