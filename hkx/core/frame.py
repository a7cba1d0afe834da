"""The frame: everything that belongs to one running transform, and the one thread-local that finds it.

A frame knows names as plain strings. What pushes scopes (modules, name scopes) and what reads values (parameters,
state, keys) live above it.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hkx.base.entries import Tree, copied
from hkx.core.guard import TraceMark
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
        "captured",
        "exit_checks",
        "initial_state",
        "lifted_prefix",
        "maker",
        "mark",
        "names_copied",
        "params",
        "phase",
        "rngs",
        "scopes",
        "state",
        "unshared",
    )

    def __init__(
        self, params: Any, state: Mapping[str, Mapping[str, Any]], rng: Any, *, phase: Phase, maker: Maker = EAGER
    ):
        self.params = params
        self.initial_state: Tree = copied(state)
        self.state: Tree = copied(state)
        self.rngs: list[Any] = [rng]
        self.phase = phase
        self.maker = maker
        self.scopes = [Scope(ROOT, ROOT)]
        self.lifted_prefix: str | None = local.lifted_prefix
        self.exit_checks: list[Callable[[], None]] = []  # checks that run when the function has returned
        self.asked: Asked | None = None
        self.captured: list[Any] | None = None  # what is to be handed out of the JAX transform that runs this
        self.mark = TraceMark()
        self.names_copied = False  # whether something goes on later from the names as they were
        self.unshared: dict[int, dict[str, Any]] = {}  # the modules' dicts that nobody has kept, by identity

    @property
    def running_init(self) -> bool:
        """Whether this is a part of `init`."""
        return self.phase < Phase.CLOSED

    def put(self, tree: Tree, bundle: str, name: str, value: Any) -> None:
        """Puts an entry into one of the trees; a module's dict that somebody may have kept is copied before."""
        entries = tree.get(bundle)
        if entries is None or id(entries) not in self.unshared:
            entries = tree[bundle] = dict(entries or {})
            self.unshared[id(entries)] = entries
        entries[name] = value

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


def leave(frame: Frame) -> None:
    """Takes away a frame, if it is there, with those above it that somebody entered and did not leave."""
    if frame in local.frames:
        del local.frames[local.frames.index(frame) :]


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
