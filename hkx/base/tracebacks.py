"""Tracebacks and warnings that show the user's program and not how hkx runs it."""

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

_THIS = (lambda: None).__code__.co_filename  # as frames give it, which `__file__` is not where there are no sources
_HKX = os.path.dirname(os.path.dirname(_THIS)) + os.sep
_LAYERS = tuple(_HKX + name for name in ("nn", "nets", "initializers"))  # their lines are equations
_JAX = os.path.dirname(jax.__file__) + os.sep
_NOTE = "hkx has left its own frames out of this traceback: JAX_TRACEBACK_FILTERING=off shows them."
_TRACED_FLAG = (
    "A Python `if` asked for a value that JAX traces. A flag such as `is_training` is an argument that is not traced: "
    '`jax.jit(model.apply, static_argnames="is_training")`, given by its name. By a value that is computed, '
    "`hkx.cond` or `jnp.where` chooses."
)


def leaves_out_own_frames(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, through which errors pass without the frames of hkx: their tracebacks end in the user's code.

    Each frame that goes is one of this package, layers excepted; the one in which an error began stays, unless it is an
    `HkxError`, whose text says more than our code. Nothing goes where `jax.config.jax_traceback_filtering` is "off".
    """

    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, jax.errors.TracerBoolConversionError):
                _note_once(error, _TRACED_FLAG)
            if jax.config.jax_traceback_filtering != "off":  # type: ignore[attr-defined]
                _leave_out(error)
            raise

    called.__name__, called.__qualname__ = function.__name__, function.__qualname__
    called.hkx_calls = function  # type: ignore[attr-defined]  # `__wrapped__` would name programs that JAX compiles
    return called


def level_of_the_user(*passed: str) -> int:
    """The `stacklevel` by which a warning of the caller's names the user's line.

    Args:
      passed: files besides those of hkx and JAX that are not the user's.
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
    if not any("JAX_TRACEBACK_FILTERING" in note for note in getattr(error, "__notes__", ())):  # JAX says it too
        _note_once(error, _NOTE)


def _note_once(error: Exception, note: str) -> None:
    if note not in getattr(error, "__notes__", ()):
        with contextlib.suppress(Exception):  # an error whose attributes cannot be set, a frozen dataclass say
            error.add_note(note)
