"""Arguments of the wrong kind: functions, structures, initializers, shapes, dtypes and names of entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hkx.errors.core import HkxError, described


def _of(taker: str) -> str:
    return f" of `{taker}`" if taker else ""


class NotAFunctionError(HkxError, TypeError):
    """Something that is not callable was given where a function is expected."""

    def __init__(self, taker: str, value: object, argument: str = ""):
        place = f"as `{argument}`, which must be a function" if argument else "where it takes a function"
        super().__init__(
            f"`{taker}` was given {described(value)} {place}: it is not callable. Pass "
            "the function itself, not what it returns."
        )


class NotAStructureError(HkxError, TypeError):
    """Something other than parameters or states was given, or an entry of them is not a mapping."""

    def __init__(self, taker: str, value: object, module: object = None, argument: str = "structure"):
        place = "" if module is None else f"[{module!r}]"
        super().__init__(
            f"`{argument}{place}` of `{taker}` is {described(value)}, expected a mapping"
            f" {'{name: value}' if place else '{module: {name: value}}'}, like the parameters that `init` returns."
        )


class InvalidInitializerError(HkxError, TypeError):
    """The initializer of a parameter or state is not callable."""

    def __init__(self, subject: str, init: object):
        advice = "Was one argument too many passed to the layer?"
        if hasattr(init, "shape"):
            advice = "For given values, use `hkx.initializers.Constant(values)`."
        super().__init__(
            f"{subject} is not callable: it is {init!r}, and should be a function of (shape, dtype), for example "
            f"`jnp.zeros`. {advice}"
        )


class NotABoolError(HkxError, TypeError):
    """An argument that must be True or False is something else, often an output size as second argument."""

    def __init__(self, taker: str, argument: str, value: object):
        advice = ""
        if isinstance(value, int):
            advice = " A layer takes only the size of its output: it reads the size of its input from the input."
        super().__init__(f"`{argument}` of `{taker}` must be True or False, got {described(value)}.{advice}")


class InvalidSizeError(HkxError, TypeError):
    """An argument that must be an integer is something else, or is too small or too large."""

    def __init__(self, argument: str, value: object, least: int | None, taker: str = ""):
        bounds = [] if least is None else [f"at least {least}"]
        if isinstance(value, int) and value >= 2**63:
            bounds.append("below 2**63")
        bound = f", {' and '.join(bounds)}" if bounds else ""
        super().__init__(f"`{argument}`{_of(taker)} must be an integer{bound}, got {described(value)}.")


class InvalidShapeError(HkxError, TypeError):
    """The requested shape of a parameter or state is not a shape."""

    def __init__(self, path: str, shape: object):
        wanted = f": [{shape}]" if isinstance(shape, int) else " of whole numbers, for example [2, 3]"
        super().__init__(f"The shape of {path!r} is {shape!r}, and should be a sequence{wanted}.")


class InvalidDTypeError(HkxError, TypeError):
    """The requested dtype of a parameter or state is not one that JAX has."""

    def __init__(self, path: str, dtype: object):
        super().__init__(
            f"The dtype of {path!r} is {dtype!r}, and should be one that JAX has, for example `jnp.float32`."
        )


class InvalidEntryNameError(HkxError, TypeError):
    """The requested name of a parameter or state is not a string."""

    def __init__(self, bundle: str, name: object):
        super().__init__(
            f"The name of a parameter or a state of {bundle!r} is {described(name)}, and "
            "should be a string, for example 'w'."
        )


_HOOKS = {"create": "creator", "get": "getter", "set": "setter"}


def checked_hook(hook: Callable[..., Any], kinds: Sequence[str]) -> Callable[..., Any]:
    """Returns `hook`, which will be added to the chains of these kinds; raises an error if it is not callable."""
    if not callable(hook):
        argument = _HOOKS.get(kinds[0].partition("_")[0] if kinds else "", "interceptor")
        taker = "hkx.intercept_methods" if argument == "interceptor" else f"hkx.custom_{argument}"
        raise NotAFunctionError(taker, hook, argument)
    return hook


class NotANumberError(HkxError, TypeError):
    """An argument that must be a number is something else."""

    def __init__(self, argument: str, value: object, taker: str = ""):
        super().__init__(f"`{argument}`{_of(taker)} must be a number or a scalar array, got {described(value)}.")
