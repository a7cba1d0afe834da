"""Marks of JAX traces: is this value, is this effect, allowed to leave the function that JAX is tracing?

JAX has no public names for what this has to know of its traces: which one a tracer belongs to, which is around which,
and which of them hand on what does not depend on their inputs. All that leans on how JAX does it today stands in this
file, and is learnt by looking where that is possible; tests/core/test_guard.py says which of it a new JAX has changed.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, find_top_trace


class TraceMark:
    """Remembers the JAX trace that was running when it was made, without keeping that trace alive."""

    __slots__ = ("_trace",)

    def __init__(self) -> None:
        self._trace = weakref.ref(find_top_trace(()))

    def __reduce__(self) -> tuple[type[TraceMark], tuple[()]]:
        return TraceMark, ()  # no other process has that trace: what is unpickled was made where it is unpickled

    def __deepcopy__(self, memo: Any) -> TraceMark:
        return self  # but a copy has a meaning where the original has

    @property
    def current(self) -> bool:
        """Whether that trace is the one running now."""
        return self._trace() is find_top_trace(())

    def _inner(self, through_custom: bool = False) -> tuple[list[Any], bool]:
        """The traces opened since, and whether one of them records operations instead of passing them on.

        With `through_custom` those that record a function with a derivative of its own count as passing them on.
        """
        mine, trace = self._trace(), find_top_trace(())
        around = set(map(id, _from_inside(mine)))  # of the marked trace: what holds there holds in it
        inner = []
        while trace is not None and id(trace) not in around and not any(trace is t for t in inner):
            inner.append(trace)
            if through_custom and _traces(trace) in _custom_kinds():
                trace = _opened_from(trace)
            elif isinstance(trace, _passing_traces()):
                trace = getattr(trace, "parent_trace", None)
            else:
                return inner, True
        return inner, trace is None

    @property
    def records(self) -> bool:
        """Whether operations on values of the marked trace are recorded by a trace opened since (jit, scan, cond …).

        Under `vmap` and `grad` they are not: what does not depend on their inputs is handed on to the outer trace.
        """
        return not self.current and self._inner()[1]

    @property
    def runs_elsewhere(self) -> bool:
        """Whether the running code may be run another number of times than once, where it stands: in a loop, say.

        As `records`, but a function with a derivative of its own is run once: JAX records it where it is called.
        """
        return not self.current and self._inner(through_custom=True)[1]

    def is_inner(self, value: Any) -> bool:
        """Whether `value` holds a tracer that has a meaning only inside a trace opened since."""
        if self.current:
            return False
        inner, _ = self._inner(through_custom=True)
        ids = {id(t) for t in inner}
        # A tracer refers to the trace that made it; JAX has no public name for that reference, so ask the collector.
        return any(
            isinstance(leaf, jax.core.Tracer) and not ids.isdisjoint(map(id, gc.get_referents(leaf)))
            for leaf in jax.tree.leaves(value)
        )


def _from_inside(trace: Any) -> Iterator[Any]:
    """A trace, and those around it."""
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent_trace", None)


def _traces(trace: Any) -> str | None:
    """What kind of function a trace records, in JAX's words."""
    return getattr(getattr(getattr(trace, "frame", None), "debug_info", None), "traced_for", None)


@functools.cache
def _custom_kinds() -> frozenset[str | None]:
    """What JAX calls functions with a derivative of their own, learnt by looking inside them."""
    seen: set[str | None] = set()

    def look(x: Any) -> Any:
        seen.add(_traces(find_top_trace(())))
        return x

    forward, reverse = jax.custom_jvp(look), jax.custom_vjp(look)
    forward.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    reverse.defvjp(lambda x: (x, None), lambda _, g: (g,))
    with jax.ensure_compile_time_eval():
        for function in (forward, reverse):
            jax.make_jaxpr(function)(np.float32(0))
    return frozenset(seen - {None, _traces_of_a_program()})


@functools.cache
def _traces_of_a_program() -> str | None:
    seen = []
    jax.make_jaxpr(lambda: seen.append(_traces(find_top_trace(()))))()
    return seen[0]


def _opened_from(trace: Any) -> Any:
    """The trace in which a function with a derivative of its own was called; None where that cannot be told.

    JAX forgets it in the trace that records the function, but holds it in a variable for as long as that is open.
    """
    python, found = sys._getframe(1), False
    while python is not None and python.f_globals is globals():  # what asks holds it too
        python = python.f_back
    while python is not None:
        held = [v for v in python.f_locals.values() if isinstance(v, jax.core.Trace)]
        if any(v is trace for v in held):
            found = True
        elif found and held:
            return held[0]
        python = python.f_back
    return None


def without_trace(value: Any) -> Any:
    """`value` with the numbers that a trace has written down (`jnp.ones(())`, say) as arrays that belong to none."""

    def constant(leaf: Any) -> Any:
        literal = getattr(leaf, "val", None) if isinstance(leaf, jax.core.Tracer) else None
        if not isinstance(literal, Literal):
            return leaf
        aval, number = jax.typeof(leaf), np.asarray(literal.val)
        with jax.ensure_compile_time_eval():
            return jnp.asarray(number.item()) if getattr(aval, "weak_type", False) else jnp.asarray(number, aval.dtype)

    return jax.tree.map(constant, value)


@functools.cache
def _passing_traces() -> tuple[type, ...]:
    """The classes of traces that hand on what does not depend on their inputs, learnt by looking inside them."""
    seen = []

    def look(x: Any) -> Any:
        seen.append(type(find_top_trace(())))
        return x

    ruled = jax.custom_jvp(lambda x: x)
    ruled.defjvp(lambda primals, tangents: (look(primals[0]), tangents[0]))
    with jax.ensure_compile_time_eval():
        jax.vmap(look)(np.zeros(1, np.float32))
        jax.jvp(look, (np.float32(0),), (np.float32(0),))
        jax.linearize(look, np.float32(0))
        jax.linearize(ruled, np.float32(0))
    return tuple(set(seen))


def recording() -> bool:
    """Whether operations are recorded now, by `jit`, `scan` and the like, instead of being run one by one."""
    trace = find_top_trace(())
    while isinstance(trace, _passing_traces()):
        trace = getattr(trace, "parent_trace", None)
    return not isinstance(trace, _running_trace())


@functools.cache
def _running_trace() -> type:
    """The class of the trace that runs operations one by one: what a new thread begins with."""
    seen: list[type] = []
    thread = threading.Thread(target=lambda: seen.append(type(find_top_trace(()))))
    thread.start()
    thread.join()
    return seen[0]
