"""Trace marks, which tell whether a value or a side effect would escape from a function that JAX is tracing."""

from __future__ import annotations

from typing import Any

from jax.extend.core import find_top_trace

from hkx.jaxprs.traces import holds_tracer_of, opened_within, top_trace


class TraceMark:
    """Remembers the JAX trace that was running when the mark was created, without keeping that trace alive."""

    __slots__ = ("_trace",)

    def __init__(self) -> None:
        self._trace = top_trace()

    def __reduce__(self) -> tuple[type[TraceMark], tuple[()]]:
        return TraceMark, ()  # the trace cannot be pickled: an unpickled mark refers to the trace that is running then

    def __deepcopy__(self, memo: Any) -> TraceMark:
        return self  # a copy is valid where the original is

    @property
    def current(self) -> bool:
        """True if the marked trace is the one running now."""
        return self._trace() is find_top_trace(())

    @property
    def records(self) -> bool:
        """True if a trace that started later (jit, scan, cond …) records operations on values of the marked trace.

        `vmap` and `grad` do not: they pass operations that do not depend on their inputs on to the outer trace.
        """
        return not self.current and opened_within(self._trace())[1]

    @property
    def runs_elsewhere(self) -> bool:
        """True if the running code may execute more or less than once where it is called: in a loop, for example.

        Like `records`, except that functions with a custom derivative do not count: their code executes once.
        """
        return not self.current and opened_within(self._trace(), through_custom=True)[1]

    def is_inner(self, value: Any) -> bool:
        """True if `value` contains a tracer that is valid only inside a trace that started later."""
        return not self.current and holds_tracer_of(value, opened_within(self._trace(), through_custom=True)[0])
