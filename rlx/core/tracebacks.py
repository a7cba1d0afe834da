"""Tracebacks of errors that operators raise: the frames of rlx are left out, as JAX leaves out its own."""

import os
import types

import jax

from rlx.core.errors import ArgumentError

_RLX = os.path.dirname(os.path.dirname((lambda: None).__code__.co_filename)) + os.sep
_NOTE = "rlx has left its own frames out of this traceback: JAX_TRACEBACK_FILTERING=off shows them."


def leave_out_own_frames(error: Exception) -> None:
    """Takes the frames of rlx out of an error's traceback, unless `jax.config.jax_traceback_filtering` is "off".

    The frame that raised the error stays, unless it is an `ArgumentError`, whose text says more than our code.
    """
    if jax.config.jax_traceback_filtering == "off":  # pyright: ignore[reportAttributeAccessIssue]
        return
    entries, entry = [], error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    rest = None
    for entry in reversed(entries):
        own = entry.tb_frame.f_code.co_filename.startswith(_RLX)
        if not own or (entry is entries[-1] and not isinstance(error, ArgumentError)):
            rest = types.TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.with_traceback(rest)
    if _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)
