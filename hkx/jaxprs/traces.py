"""Which trace encloses another, its purpose, and the trace of a tracer: JAX has no public names for these.

All code that depends on JAX's current implementation is in this file. If possible, it finds out at run time what it
needs to know. tests/core/test_guard.py shows what a new version of JAX has changed.
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
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var, find_top_trace, jaxprs_in_params


def top_trace() -> weakref.ref[Any]:
    """The trace that is running, without keeping it alive."""
    return weakref.ref(find_top_trace(()))


def opened_within(outer: Any, through_custom: bool = False) -> tuple[list[Any], bool]:
    """The traces started within `outer`, and whether one of them records operations on values of `outer`.

    Other traces pass such operations on to the enclosing one. With `through_custom`, traces that record a function with
    a custom derivative count among these.
    """
    trace = find_top_trace(())
    around = set(map(id, _enclosing(outer)))  # these are not within `outer`
    inner = []
    while trace is not None and id(trace) not in around and not any(trace is t for t in inner):
        inner.append(trace)
        if through_custom and _purpose(trace) in _custom_purposes():
            trace = _opened_from(trace)
        elif isinstance(trace, _passing()[0]):
            trace = _around(trace)
        else:
            return inner, not isinstance(trace, _running_and_recording()[0])
    return inner, trace is None


def holds_tracer_of(value: Any, traces: list[Any]) -> bool:
    """True if a leaf of a tree is a tracer of one of the traces."""
    ids = {id(t) for t in traces}
    # JAX has no public name for a tracer's reference to its trace, so we ask the garbage collector.
    return any(
        isinstance(leaf, jax.core.Tracer) and not ids.isdisjoint(map(id, gc.get_referents(leaf)))
        for leaf in jax.tree.leaves(value)
    )


def _enclosing(trace: Any) -> Iterator[Any]:
    """A trace, followed by those that enclose it."""
    while trace is not None:
        yield trace
        trace = _around(trace)


def _around(trace: Any) -> Any:
    """The trace that encloses another, or None if it is unknown."""
    _, names = _passing()
    return next((getattr(trace, name) for name in names if hasattr(trace, name)), None)


def _purpose(trace: Any) -> str | None:
    """JAX's word for the kind of function that a trace records."""
    return getattr(getattr(getattr(trace, "frame", None), "debug_info", None), "traced_for", None)


@functools.cache
def _custom_purposes() -> frozenset[str | None]:
    """JAX's words for functions with a custom derivative, found by tracing some."""
    seen: set[str | None] = set()
    others: set[str | None] = {None}

    def look(x: Any) -> Any:
        seen.add(_purpose(find_top_trace(())))
        return x

    forward, reverse = jax.custom_jvp(look), jax.custom_vjp(look)
    forward.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    reverse.defvjp(lambda x: (x, None), lambda _, g: (g,))
    with jax.ensure_compile_time_eval():
        for function in (forward, reverse):
            jax.make_jaxpr(function)(np.float32(0))
        jax.make_jaxpr(lambda: others.add(_purpose(find_top_trace(()))))()
    return frozenset(seen - others)


def _opened_from(trace: Any) -> Any:
    """The trace in which a function with a custom derivative was called, or None if it cannot be found.

    The trace that records the function does not refer to it, but a local variable of JAX does, for as long as that
    trace is active.
    """
    python, found = sys._getframe(1), False
    while python is not None and python.f_globals is globals():  # the functions of this file have such variables too
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
    """Replaces tracers in `value` that stand for known constants, such as `jnp.ones(())`, by concrete arrays.

    And those of `vmap` that stand for the same in all mapped calls, as a custom derivative may return, by what that is.
    """

    def constant(leaf: Any) -> Any:
        if not isinstance(leaf, jax.core.Tracer):
            return leaf
        common = getattr(leaf, "val", None) if getattr(leaf, "batch_dim", 0) is None else None
        if common is not None:
            return constant(common)
        literal = variable_of(leaf)
        if not isinstance(literal, Literal):
            return leaf
        aval, number = jax.typeof(leaf), np.asarray(literal.val)
        with jax.ensure_compile_time_eval():
            return jnp.asarray(number.item()) if getattr(aval, "weak_type", False) else jnp.asarray(number, aval.dtype)

    return jax.tree.map(constant, value)


def variable_of(tracer: Any) -> Any:
    """The variable or literal of the recorded program that a tracer stands for; None if unknown."""
    return next((x for x in gc.get_referents(tracer) if isinstance(x, (Var, Literal))), None)


def with_all_results(equations: list[JaxprEqn], tracers: list[Any]) -> list[JaxprEqn]:
    """The equations of a program, with a variable for each result of an operation that made one of the tracers.

    JAX 0.10.0 and 0.10.1 omit the variables of results that nothing in the program uses. A tracer refers to its
    operation, which has all of them. Two operations with the same context and inputs compute the same.
    """
    if jax.__version_info__ >= (0, 10, 2):
        return equations
    operations = {id(x): x for x in gc.get_referents(*tracers) if hasattr(x, "in_tracers")}
    results: dict[tuple[int, ...], list[list[Var]]] = {}
    for x in operations.values():
        results.setdefault((id(x.ctx), *(id(variable_of(t)) for t in x.in_tracers)), []).append(x.outvars)
    found = []
    for eqn in equations:
        candidates = results.get((id(eqn.ctx), *map(id, eqn.invars)), [])
        fitting = [
            r for r in candidates if all(v is w or type(v) is not Var for v, w in zip(eqn.outvars, r, strict=True))
        ]
        found.append(eqn.replace(outvars=fitting[0]) if fitting else eqn)
        candidates[:] = [r for r in candidates if r is not found[-1].outvars]
    return found


def inner_programs(eqn: JaxprEqn) -> list[Jaxpr]:
    """The programs inside an equation: the body of a loop, the branches of a conditional, a compiled function.

    An operation of `jax.experimental.hijax` holds none, but says what it does by a method, which is traced.
    """
    programs: list[Any] = list(jaxprs_in_params(eqn.params))
    if (rules := _rules_of(eqn)) and all(hasattr(v.aval, "shape") for v in eqn.invars):
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), rules.in_avals)
        programs.append(jax.make_jaxpr(rules.expand)(*shapes))
    return [getattr(p, "jaxpr", p) for p in programs]


def operation_name(eqn: JaxprEqn) -> str:
    """The name of an equation's operation; one of `jax.experimental.hijax` has that of its class."""
    rules = _rules_of(eqn)
    return eqn.primitive.name if rules is None else type(rules).__name__


def _rules_of(eqn: JaxprEqn) -> Any:
    """The object that defines an operation of `jax.experimental.hijax`, whose class each version calls otherwise."""
    return next((p for p in eqn.params.values() if hasattr(p, "expand") and hasattr(p, "in_avals")), None)


@functools.cache
def _passing() -> tuple[tuple[type, ...], tuple[str, ...]]:
    """The classes of traces that pass operations on, and the attributes in which they refer to the enclosing trace.

    They are found at run time, by looking inside such traces.
    """
    classes: set[type] = set()
    names: dict[str, None] = {}

    def look(x: Any) -> Any:
        trace = find_top_trace(())
        classes.add(type(trace))
        names.update(dict.fromkeys(name for name in dir(trace) if getattr(trace, name, None) is outer))
        return x

    ruled = jax.custom_jvp(lambda x: x)
    ruled.defjvp(lambda primals, tangents: (look(primals[0]), tangents[0]))
    with jax.ensure_compile_time_eval():
        outer = find_top_trace(())
        jax.vmap(look)(np.zeros(1, np.float32))
        jax.jvp(look, (np.float32(0),), (np.float32(0),))
        jax.linearize(look, np.float32(0))
        jax.linearize(ruled, np.float32(0))
    return tuple(classes), tuple(names)


def recording() -> bool:
    """True if operations are currently not executed, but recorded, by `jit`, `scan` and the like."""
    return not isinstance(_trace_that_acts(), _running_and_recording()[0])


def recording_program() -> bool:
    """True if operations are currently recorded in a program. Under `jet`, for example, they are not."""
    return isinstance(_trace_that_acts(), _running_and_recording()[1])


def _trace_that_acts() -> Any:
    """The innermost trace that does not pass operations on to the enclosing one."""
    trace = find_top_trace(())
    while isinstance(trace, _passing()[0]):
        trace = _around(trace)
    return trace


@functools.cache
def _running_and_recording() -> tuple[type, type]:
    """The classes of the trace that executes operations immediately, as in a new thread, and of those of programs."""
    seen: list[type] = []

    def look() -> None:
        seen.append(type(find_top_trace(())))

    thread = threading.Thread(target=lambda: (look(), jax.make_jaxpr(look)()))
    thread.start()
    thread.join()
    return seen[0], seen[1]
