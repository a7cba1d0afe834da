"""The frame: everything that belongs to one running transform, and the thread-local that holds the running frames.

A frame knows names only as strings. The code that pushes scopes (modules, name scopes) and that reads values
(parameters, state, keys) is in other files, which import this one.
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
    """One level of the name scope: a method of a module, a `name_scope`, or the root of the transformed function.

    A scope without a module has a name of its own, `named`.
    """

    __slots__ = ("ahead", "counts", "elsewhere", "method", "module", "named", "taken")

    def __init__(self, named: str | None, method: str, module: Any = None):
        self.named = named
        self.method = method
        self.module = module
        self.counts: dict[str, int] = {}
        self.ahead: dict[
            str, int
        ] = {}  # in `apply`: the counts that loops and branches have reached, see `unique_name`
        self.taken: set[Any] = set()  # names, as (stem, digits); the outermost scope also lists all name scopes entered
        self.elsewhere: dict[tuple[str | None, str], Scope] = {}  # scopes re-entered from this one, by (bundle, method)

    def copy(self) -> Scope:
        """An independent copy, with the same names taken."""
        new = Scope(self.named, self.method, self.module)
        new.counts, new.ahead, new.taken = dict(self.counts), dict(self.ahead), set(self.taken)
        new.elsewhere = {place: scope.copy() for place, scope in self.elsewhere.items()}
        return new

    def reentered(self, left: Scope) -> Scope:
        """A stand-in for a scope that has ended. It counts names afresh for each scope from which it is re-entered."""
        return self.elsewhere.setdefault((left.bundle, left.method), Scope(left.named, left.method, left.module))

    @property
    def bundle(self) -> str | None:
        """The name under which parameters are stored. A module's is that of the moment, since the module may change it.

        It is None while a module's `__init__` runs, until it calls the super constructor.
        """
        return self.named if self.module is None else getattr(self.module, "module_name", None)

    @property
    def prefix(self) -> str:
        """The prefix of the names of modules that are created in this scope."""
        bundle = self.bundle
        if bundle is None:
            raise MissingSuperInitError(type(self.module), too_late=True)
        if bundle == ROOT and self.module is None and self.method == ROOT:
            return ""
        if self.method == "__call__":
            return f"{bundle}/"
        if self.method == "__init__":
            return f"{bundle}/~/"
        return f"{bundle}/~{self.method}/"


class Phase(enum.IntEnum):
    """The entries that the running code may create."""

    OPEN = 0  # `init`: parameters and state that do not exist are created
    RUN = 1  # `init`, a loop after its first iteration: creating anything now is an error
    CREATED = 2  # `init`, code that has already run once to create everything: behaves as in `apply`
    CLOSED = 3  # `apply`


class Frame:
    """The parameters, state, key sequences and name scopes of one running transform."""

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
        self.in_loop = False  # whether it runs the body of a loop or a branch, at any depth
        self.captured: list[Any] | None = None  # intermediates to pass out of the JAX transform that runs this
        self.mark = TraceMark()
        self.unshared: dict[int, dict[str, Any]] = {}  # the modules' dicts that only this frame refers to, by id

    @property
    def running_init(self) -> bool:
        """True if this frame belongs to `init`."""
        return self.phase < Phase.CLOSED

    def put(self, tree: Tree, bundle: str, name: str, value: Any) -> None:
        """Stores an entry in one of the trees, copying the module's dict first if something else may refer to it."""
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
        bundle = self.scopes[-1].bundle
        if bundle is None:
            raise MissingSuperInitError(type(self.scope.module), too_late=True)
        return bundle


class _Local(threading.local):
    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.hooks: Mapping[str, tuple[Callable[..., Any], ...]] = {}
        self.lifted_prefix: str | None = None
        self.draws = 0  # the number of calls of `next_rng_key`

    def __reduce__(self) -> str:
        return "local"  # pickled by name, for pickled methods of modules: each process has its own


local = _Local()
"""The only thread-local of the core's running state: the frames, innermost last; the active hooks; the name under which
a transform that starts now is lifted into the one around it; and the number of keys drawn."""


def leave(frame: Frame) -> None:
    """Removes a frame from the stack, if it is there, together with any frames left behind above it."""
    if frame in local.frames:
        del local.frames[local.frames.index(frame) :]


def current_frame(name: str) -> Frame:
    """The innermost running frame; `name` is the public function that needs it, for the error."""
    frames = local.frames
    if not frames:
        raise NotInTransformError(name)
    return frames[-1]


def effectful_frame(name: str) -> Frame:
    """The innermost running frame, for a function that creates or sets values or draws keys.

    With the setting `check_jax_usage` on, it raises an error inside any JAX transform that started after the frame.
    """
    frame = local.frames[-1] if local.frames else current_frame(name)  # saves a call per parameter
    if current_settings().check_jax_usage and not frame.mark.current:
        raise StrictUsageError(name)
    return frame


def paths(tree: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """The full names of all entries in a two-level mapping."""
    flat = [bundle for bundle, entries in tree.items() if not isinstance(entries, Mapping)]  # mistakes, for errors
    return flat + [f"{b}/{name}" for b, entries in tree.items() if isinstance(entries, Mapping) for name in entries]
