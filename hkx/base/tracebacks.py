"""Tracebacks and warnings that point to the user's code instead of hkx's own."""

from __future__ import annotations

import contextlib
import inspect
import os
import types
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from hkx.errors.core import HkxError

P = ParamSpec("P")
R = TypeVar("R")

_THIS = (lambda: None).__code__.co_filename  # as in frames; `__file__` differs if only bytecode is installed
_HKX = os.path.dirname(os.path.dirname(_THIS)) + os.sep
_LAYERS = tuple(_HKX + name for name in ("nn", "nets", "initializers"))  # their lines are informative
_JAX = os.path.dirname(jax.__file__) + os.sep
_NOTE = "hkx has left its own frames out of this traceback: JAX_TRACEBACK_FILTERING=off shows them."
_TRACED_FLAG = (
    "A Python `if` needs the value of an array that JAX traces. Make a flag such as `is_training` a static argument, "
    '`jax.jit(model.apply, static_argnames="is_training")`, and pass it by name. To choose by a computed value, use '
    "`hkx.cond` or `jnp.where`."
)


def leaves_out_own_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Wraps `function` so that the tracebacks of its errors leave out the frames of hkx.

    Frames of layers stay. So does the frame that raised the error, unless it is an `HkxError`, whose text explains more
    than our code. If `jax.config.jax_traceback_filtering` is "off", all frames stay.
    """

    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, jax.errors.TracerBoolConversionError) and not getattr(error, "of_transform", False):
                _note_once(error, _TRACED_FLAG)
            if jax.config.jax_traceback_filtering != "off":  # type: ignore[attr-defined]
                _leave_out(error)
            raise

    called.__name__, called.__qualname__ = function.__name__, function.__qualname__
    called.hkx_calls = function  # type: ignore[attr-defined]  # not `__wrapped__`, which JAX uses to name compiled programs
    return called


def level_of_the_user(*passed: str) -> int:
    """The `stacklevel` with which a warning raised by the caller points to the user's line.

    Args:
      passed: prefixes of further files, besides those of hkx and JAX, that are not the user's.
    """
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith((_HKX, _JAX, *passed)):
        level, frame = level + 1, frame.f_back
    return level


def _leave_out(error: Exception) -> None:
    entries, entry = [], error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    files = [entry.tb_frame.f_code.co_filename for entry in entries]
    began = max((i for i, file in enumerate(files) if not file.startswith(_JAX)), default=-1)
    rest = None
    for i, (entry, file) in reversed(list(enumerate(zip(entries, files, strict=True)))):
        own = file.startswith(_HKX) and not file.startswith(_LAYERS)
        if not own or (i == began and not isinstance(error, HkxError)):
            rest = types.TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.with_traceback(rest)
    if not any("JAX_TRACEBACK_FILTERING" in note for note in getattr(error, "__notes__", ())):  # JAX's own note
        _note_once(error, _NOTE)


def _note_once(error: Exception, note: str) -> None:
    if note not in getattr(error, "__notes__", ()):
        with contextlib.suppress(Exception):  # errors whose attributes cannot be set, such as frozen dataclasses
            error.add_note(note)
