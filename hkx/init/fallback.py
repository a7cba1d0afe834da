"""Whether code needs the values of traced arrays, which the abstract run of `init` does not have."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.core

from hkx.jaxprs.traces import shows_tracer

_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class ValuesNeeded(Exception):
    """The user's function cannot run on abstract values, usually because it needs the value of a traced array."""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, followed by its causes and contexts."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def asks_for_values(error: BaseException | None) -> bool:
    """Whether an exception comes from code that needed the value of a traced array."""
    return any(
        isinstance(e, _NEEDS_VALUES) or (isinstance(e, AttributeError) and isinstance(e.obj, jax.core.Tracer))
        for e in _chain(error)
    )


def needs_values(error: BaseException | None) -> bool:
    """Whether on real values an exception would not be raised, or have another text.

    This is so if it comes from code that needed a value, or if its text mentions a traced array.
    """
    texts = (x for e in _chain(error) for x in e.args if isinstance(x, str))
    return asks_for_values(error) or any(map(shows_tracer, texts))
