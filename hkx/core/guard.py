"""Marks of JAX traces: is this value, is this effect, allowed to leave the function that JAX is tracing?"""

from __future__ import annotations

from typing import Any

from jax.extend.core import find_top_trace

from hkx.jaxprs.traces import holds_tracer_of, opened_within, where


class TraceMark:
    """Remembers the JAX trace that was running when it was made, without keeping that trace alive.

    What was made in the abstract run of an `init` was made, once that is over, where `init` was called.
    """

    __slots__ = ("_where",)

    def __init__(self) -> None:
        self._where = where()

    def __reduce__(self) -> tuple[type[TraceMark], tuple[()]]:
        return TraceMark, ()  # no other process has that trace: what is unpickled was made where it is unpickled

    def __deepcopy__(self, memo: Any) -> TraceMark:
        return self  # but a copy has a meaning where the original has

    @property
    def current(self) -> bool:
        """Whether that trace is the one running now."""
        return self._where.trace is find_top_trace(())

    @property
    def records(self) -> bool:
        """Whether operations on values of the marked trace are recorded by a trace opened since (jit, scan, cond …).

        Under `vmap` and `grad` they are not: what does not depend on their inputs is handed on to the outer trace.
        """
        return not self.current and opened_within(self._where.trace)[1]

    @property
    def runs_elsewhere(self) -> bool:
        """Whether the running code may be run another number of times than once, where it stands: in a loop, say.

        As `records`, but a function with a derivative of its own is run once: JAX records it where it is called.
        """
        return not self.current and opened_within(self._where.trace, through_custom=True)[1]

    def is_inner(self, value: Any) -> bool:
        """Whether `value` holds a tracer that has a meaning only inside a trace opened since."""
        return not self.current and holds_tracer_of(value, opened_within(self._where.trace, through_custom=True)[0])
