"""When `init` has to run a function on real values, because it failed on abstract ones."""

from __future__ import annotations

import traceback

import jax
import jax.core

from hkx.errors.core import HkxError, JaxUsageError

_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class ValuesNeeded(Exception):
    """A function failed on abstract values, and may not fail on real ones."""


class ConstantsRefused(Exception):
    """A constant cannot be computed before the program that it is a part of."""


def raised_in_shard_map(error: Exception) -> bool:
    """True if an exception comes from the function of a `jax.shard_map`, where JAX cannot compute constants at once."""
    return jax.shard_map.__module__ in _modules(error)


def _modules(error: Exception) -> list[str]:
    """The modules of the functions in a traceback, the innermost last."""
    return [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]


def asks_for_values(error: BaseException | None) -> bool:
    """True if an exception, or one of its causes, comes from code that needed the value of a traced array."""
    while error is not None:
        if isinstance(error, _NEEDS_VALUES) or isinstance(getattr(error, "obj", None), jax.core.Tracer):
            return True
        error = error.__cause__ or error.__context__
    return False


def may_pass_on_values(error: Exception) -> bool:
    """True if a function that failed on abstract values may not fail on real ones.

    JAX says so by the class of its error, as do Python's missing attributes of a traced array. Code that is neither
    JAX's nor hkx's, such as Python's own and NumPy's, refuses a traced array by a TypeError. There are fewer errors on
    the use of JAX in an ordinary run.
    """
    if asks_for_values(error) or isinstance(error, JaxUsageError):
        return True
    by_others = _modules(error)[-1].partition(".")[0] not in ("jax", "jaxlib", "hkx")
    return isinstance(error, TypeError) and not isinstance(error, HkxError) and by_others
