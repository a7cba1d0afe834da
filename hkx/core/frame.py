"""The frame: everything that belongs to one running transform, and the one thread-local that finds it.

A frame knows names as plain strings. What pushes scopes (modules, name scopes) and what reads values (parameters,
state, keys) live above it.
"""

from __future__ import annotations

import enum
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, find_top_trace

from hkx.core.making import EAGER, Maker
from hkx.core.settings import current_settings
from hkx.errors.core import MissingSuperInitError, NotInTransformError, StrictUsageError

ROOT = "~"


class Scope:
    """One entry of the name scope: a method of a module, a `name_scope`, or the root of the transformed function.

    `bundle` is the name under which parameters are stored; None while a module's `__init__` runs that has not called
    its super constructor yet.
    """

    __slots__ = ("bundle", "counts", "elsewhere", "method", "module", "taken")

    def __init__(self, bundle: str | None, method: str, module: Any = None):
        self.bundle = bundle
        self.method = method
        self.module = module
        self.counts: dict[str, int] = {}
        self.taken: set[Any] = set()  # names, as (stem, digits); in the outermost scope also name scopes once entered
        self.elsewhere: dict[tuple[str | None, str], Scope] = {}  # left scopes that are entered again from this one

    def copy(self) -> Scope:
        """An independent scope in the same condition."""
        new = Scope(self.bundle, self.method, self.module)
        new.counts, new.taken = dict(self.counts), set(self.taken)
        new.elsewhere = {place: scope.copy() for place, scope in self.elsewhere.items()}
        return new

    def reentered(self, left: Scope) -> Scope:
        """A scope in the place of one that was left, whose names are counted anew while this one is the innermost."""
        return self.elsewhere.setdefault((left.bundle, left.method), Scope(left.bundle, left.method, left.module))

    @property
    def prefix(self) -> str:
        """What stands before the name of a module that is made in this scope."""
        if self.bundle is None:
            raise MissingSuperInitError(type(self.module).__name__, too_late=True)
        if self.bundle == ROOT and self.module is None and self.method == ROOT:
            return ""
        if self.method == "__call__":
            return f"{self.bundle}/"
        if self.method == "__init__":
            return f"{self.bundle}/~/"
        return f"{self.bundle}/~{self.method}/"


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


class Phase(enum.IntEnum):
    """What the running code may ask for."""

    OPEN = 0  # `init`: what does not exist is created
    RUN = 1  # `init`, a loop after its first iteration: what it would create now is an error
    MADE = 2  # `init`, what has been run to create everything already: as in `apply`
    CLOSED = 3  # `apply`


Asked = Callable[[tuple[Any, ...], Any], None]
"""Is told what the code asks for, a parameter with its shape, and with what shape and dtype it would make a state."""


class Frame:
    """The parameters, state, key sequences and name scopes of one running transform."""

    __slots__ = (
        "__weakref__",
        "asked",
        "at_end",
        "captured",
        "initial_state",
        "lifted_prefix",
        "maker",
        "mark",
        "params",
        "phase",
        "rngs",
        "scopes",
        "state",
    )

    def __init__(
        self, params: Any, state: Mapping[str, Mapping[str, Any]], rng: Any, *, phase: Phase, maker: Maker = EAGER
    ):
        self.params = params
        self.initial_state: dict[str, dict[str, Any]] = {k: dict(v) for k, v in state.items()}
        self.state: dict[str, dict[str, Any]] = {k: dict(v) for k, v in state.items()}
        self.rngs: list[Any] = [rng]
        self.phase = phase
        self.maker = maker
        self.scopes = [Scope(ROOT, ROOT)]
        self.lifted_prefix: str | None = local.lifted_prefix
        self.at_end: list[Callable[[], None]] = []  # checks that run when the function has returned
        self.asked: Asked | None = None
        self.captured: list[Any] | None = None  # what is to be handed out of the JAX transform that runs this
        self.mark = TraceMark()

    @property
    def running_init(self) -> bool:
        """Whether this is a part of `init`."""
        return self.phase < Phase.CLOSED

    @property
    def scope(self) -> Scope:
        """The innermost scope."""
        return self.scopes[-1]

    @property
    def bundle(self) -> str:
        """The name under which a parameter of the innermost scope is stored."""
        scope = self.scopes[-1]
        if scope.bundle is None:
            raise MissingSuperInitError(type(scope.module).__name__, too_late=True)
        return scope.bundle


class _Local(threading.local):
    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.hooks: Mapping[str, tuple[Callable[..., Any], ...]] = {}
        self.lifted_prefix: str | None = None
        self.draws = 0  # how often `next_rng_key` was called, in order that calls can be counted

    def __reduce__(self) -> str:
        return "local"  # every process has its own: a pickled method of a module finds it by its name


local = _Local()
"""The one thread-local: the frames that are running, innermost last, the hooks in force,
the name under which a transform that starts now is lifted into the one around it, and how many keys were drawn."""


def current_frame(name: str) -> Frame:
    """The innermost running frame; `name` is the public function that asks for it."""
    frames = local.frames
    if not frames:
        raise NotInTransformError(name)
    return frames[-1]


def effectful_frame(name: str) -> Frame:
    """The innermost running frame, for a function that creates, sets or draws.

    With the setting `check_jax_usage` on, it may not be called inside any JAX transform opened since the frame began.
    """
    frame = local.frames[-1] if local.frames else current_frame(name)  # a call less, for every parameter
    if current_settings().check_jax_usage and not frame.mark.current:
        raise StrictUsageError(name)
    return frame


def paths(tree: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """The full names in a two-level mapping."""
    flat = [bundle for bundle, entries in tree.items() if not isinstance(entries, Mapping)]  # a mistake, to be named
    return flat + [f"{b}/{name}" for b, entries in tree.items() if isinstance(entries, Mapping) for name in entries]
