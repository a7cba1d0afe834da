"""What JAX does not say of its traces: which is around which, what each is for, and which one a tracer belongs to.

JAX has no public names for these. All that leans on how JAX does it today stands in this file, and is learnt by looking
where that is possible; tests/core/test_guard.py says which of it a new JAX has changed.
"""

from __future__ import annotations

import functools
import gc
import opcode
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


class Where:
    """A trace, without keeping it alive; once it has been left for good, the one around it."""

    __slots__ = ("__weakref__", "_around", "_trace")

    def __init__(self, trace: Any):
        self._trace = weakref.ref(trace)
        self._around: Where | None = None

    @property
    def trace(self) -> Any:
        return self._trace() if self._around is None else self._around.trace

    def left(self) -> None:
        """What was made in it belongs from now on to the trace that is running now."""
        self._around = where()


_known: weakref.WeakKeyDictionary[Any, Where] = weakref.WeakKeyDictionary()


def where() -> Where:
    """Where the running code is: the same object for all that runs in one trace."""
    trace = find_top_trace(())
    return _known.get(trace) or _known.setdefault(trace, Where(trace))


def opened_within(outer: Any, through_custom: bool = False) -> tuple[list[Any], bool]:
    """The traces opened within `outer`, and whether one of them records operations instead of passing them on.

    With `through_custom` those that record a function with a derivative of its own count as passing them on.
    """
    trace = find_top_trace(())
    around = set(map(id, _enclosing(outer)))  # what holds there holds in `outer`
    inner = []
    while trace is not None and id(trace) not in around and not any(trace is t for t in inner):
        inner.append(trace)
        if through_custom and _purpose(trace) in _custom_purposes():
            trace = _opened_from(trace)
        elif isinstance(trace, _passing_traces()):
            trace = getattr(trace, "parent_trace", None)
        else:
            return inner, not isinstance(trace, _running_trace())
    return inner, trace is None


def holds_tracer_of(value: Any, traces: list[Any]) -> bool:
    """Whether one of the arrays in a tree is a tracer of one of the traces."""
    ids = {id(t) for t in traces}
    # A tracer refers to the trace that made it; JAX has no public name for that reference, so ask the collector.
    return any(
        isinstance(leaf, jax.core.Tracer) and not ids.isdisjoint(map(id, gc.get_referents(leaf)))
        for leaf in jax.tree.leaves(value)
    )


def _enclosing(trace: Any) -> Iterator[Any]:
    """A trace, and those that enclose it."""
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent_trace", None)


def _purpose(trace: Any) -> str | None:
    """What kind of function a trace records, in JAX's words."""
    return getattr(getattr(getattr(trace, "frame", None), "debug_info", None), "traced_for", None)


@functools.cache
def _custom_purposes() -> frozenset[str | None]:
    """What JAX calls functions with a derivative of their own, learnt by looking inside them."""
    seen: set[str | None] = set()

    def look(x: Any) -> Any:
        seen.add(_purpose(find_top_trace(())))
        return x

    forward, reverse = jax.custom_jvp(look), jax.custom_vjp(look)
    forward.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    reverse.defvjp(lambda x: (x, None), lambda _, g: (g,))
    with jax.ensure_compile_time_eval():
        for function in (forward, reverse):
            jax.make_jaxpr(function)(np.float32(0))
    return frozenset(seen - {None, _purpose_of_a_program()})


@functools.cache
def _purpose_of_a_program() -> str | None:
    seen = []
    jax.make_jaxpr(lambda: seen.append(_purpose(find_top_trace(()))))()
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
        literal = variable_of(leaf) if isinstance(leaf, jax.core.Tracer) else None
        if not isinstance(literal, Literal):
            return leaf
        aval, number = jax.typeof(leaf), np.asarray(literal.val)
        with jax.ensure_compile_time_eval():
            return jnp.asarray(number.item()) if getattr(aval, "weak_type", False) else jnp.asarray(number, aval.dtype)

    return jax.tree.map(constant, value)


def variable_of(tracer: Any) -> Any:
    """What stands for a traced array in the program that was recorded, a variable or a literal; None if unknown."""
    return getattr(tracer, "val", None)


def shows_tracer(text: str) -> bool:
    """Whether a text names an array that is being recorded: by its class, or in the words in which JAX shows one."""
    return any(word in text for word in _words_for_a_tracer())


def refused_by_compiled_code(error: BaseException) -> bool:
    """Whether an exception comes from compiled code, NumPy's say, that was called where a traced array is at hand.

    Such code refuses what it cannot read in words of its own. JAX says what it means, and is not meant here.
    """
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or last.tb_frame.f_globals.get("__name__", "").partition(".")[0] in ("hkx", "jax", "jaxlib"):
        return False
    called = "CALL" in opcode.opname[last.tb_frame.f_code.co_code[last.tb_lasti]]
    return called and any(isinstance(x, jax.core.Tracer) for x in last.tb_frame.f_locals.values())


@functools.cache
def _words_for_a_tracer() -> frozenset[str]:
    seen: set[str] = set()

    def look(x: Any) -> Any:
        seen.update((type(x).__name__, repr(x).partition("(")[0]))
        return x

    with jax.ensure_compile_time_eval():
        jax.make_jaxpr(look)(np.float32(0))
    return frozenset(seen)


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
    """Whether operations are not run one by one now, but recorded, by `jit`, `scan` and the like."""
    return not isinstance(_trace_that_acts(), _running_trace())


def recording_program() -> bool:
    """Whether operations are written into a program now: not under `jet`, say, which does what it wants with each."""
    return isinstance(_trace_that_acts(), _program_trace())


def _trace_that_acts() -> Any:
    """The innermost trace that does not hand on what does not depend on its inputs."""
    trace = find_top_trace(())
    while isinstance(trace, _passing_traces()):
        trace = getattr(trace, "parent_trace", None)
    return trace


@functools.cache
def _program_trace() -> type:
    """The class of the trace that writes operations into a program, learnt by looking inside one."""
    seen: list[type] = []
    with jax.ensure_compile_time_eval():
        jax.make_jaxpr(lambda: seen.append(type(find_top_trace(()))))()
    return seen[0]


@functools.cache
def _running_trace() -> type:
    """The class of the trace that runs operations one by one: what a new thread begins with."""
    seen: list[type] = []
    thread = threading.Thread(target=lambda: seen.append(type(find_top_trace(()))))
    thread.start()
    thread.join()
    return seen[0]
