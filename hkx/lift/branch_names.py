"""Which modules the branches of a `cond` or `switch` share, and how those that do not are called."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from hkx.core.frame import Frame, local, paths
from hkx.lift.crossing import NOTHING, Crossing

R = TypeVar("R")


class Unshared(BaseException):
    """A branch asks for what no branch before it asks for."""


class _Found(NamedTuple):
    """Where the names of one branch start (with those of the first, or after the branches before), and why."""

    start: Literal["shared", "after", "first"]
    asked: frozenset[Any] | None = None
    params: frozenset[str] | None = None


_MOST_REMEMBERED = 1024
_remembered: dict[Any, tuple[_Found, ...]] = {}
"""What was found of the branches of one `cond` or `switch`, by the code of the branches and the names taken before.

It spares a second call of a branch, to find out the same again: `apply` is told by `init`. It is a guess, that is held
against what the branch then asks for, and never changes what comes out.
"""


def _code(f: Any) -> Any:
    """Tells functions apart that ask for other parameters, most of the time."""
    inner = getattr(f, "func", None) or getattr(f, "__func__", None) or getattr(f, "__wrapped__", None)
    code = getattr(f, "__code__", None) or (type(f).__module__, type(f).__qualname__)
    return code if inner is None else (code, _code(inner))


class BranchNames:
    """What the modules of each branch are called.

    A branch whose names start where those of the first do, and which then asks for exactly the parameters and state,
    with their shapes, that an earlier branch asks for, shares them. Any other goes on from the names of those before.

    Attributes:
      wanted: the shape and dtype with which the last branch that was called would create a state, by module and name.
    """

    def __init__(self, frame: Frame, name: str, branches: Sequence[Callable[..., Any]]):
        self._frame = frame
        self._name = name
        self._branches = branches
        self._asked: list[frozenset[Any]] = []
        self._starts: dict[int, Crossing[..., Any] | None] = {}
        self._last: Crossing[..., Any] | None = None
        self._found: list[_Found] = []
        self.wanted: dict[tuple[Any, ...], Any] = {}
        scopes = tuple((s.bundle, s.method, frozenset(s.counts.items())) for s in frame.scopes)
        self._place = name, scopes, tuple(map(_code, branches))
        frame.names_copied = True

    def crossing(self, i: int) -> Crossing[..., Any]:
        """The function of a branch that was called before."""
        return Crossing(self._branches[i], self._name, after=self._starts[i])

    def shares(self, i: int) -> bool:
        """Whether a branch that was called before shares what an earlier one has."""
        return self._found[i].start == "shared"

    def call(self, i: int, run: Callable[[Crossing[..., Any]], R], guess: bool = False) -> R:
        """What `run` returns for branch `i`; it may be called, and abandoned, before.

        With `guess` it is first called as it was found to be called before, if that was.
        """
        if i in self._starts:
            return run(self.crossing(i))
        if self._last is not None and self._last.took_names:
            draws = local.draws
            guesses = [self._found_before(i)] if guess else []
            for found in (*guesses, _Found("shared")):
                with contextlib.suppress(Unshared):
                    if found is not None:
                        return self._call(i, run, found)
                local.draws = draws
        return self._call(i, run, _Found("after"))

    def from_the_start(self, i: int, run: Callable[[Crossing[..., Any]], R]) -> R:
        """Calls a branch as if it were the first."""
        return self._call(i, run, _Found("first"))

    def _call(self, i: int, run: Callable[[Crossing[..., Any]], R], found: _Found) -> R:
        """Calls a branch with its names starting in one way, and raises Unshared where that turns out to be wrong.

        One that was to share and asks for something else goes on as if it were after the branches before, if it has
        taken no name by then that they have.
        """
        start, last, depth = found.start, self._last, len(local.frames)
        known, requests = frozenset[Any]().union(*self._asked), dict[tuple[Any, ...], Any]()
        crossing: Crossing[..., Any] = Crossing(self._branches[i], self._name, after=last if start == "after" else None)
        begun: weakref.ref[Frame] | None = None

        def ask(request: tuple[Any, ...], wanted: Any) -> None:
            nonlocal start, begun
            if begun is None or begun() is not local.frames[depth]:  # it may be run again, for its values
                begun, start = weakref.ref(local.frames[depth]), found.start
                requests.clear()
            if start == "shared" and request not in known:
                assert last is not None
                if len(local.frames) > depth + 1 or not crossing.continue_after(last, local.frames[-1]):
                    raise Unshared
                start = "after"
            requests[request] = requests.get(request) or wanted

        crossing.asked = ask
        try:
            out = run(crossing)
        except Exception:
            if found.asked is None:
                raise
            raise Unshared from None  # a wrong guess; if not, it is raised again
        finally:
            crossing.asked = None  # which refers to the crossing itself
        asked = frozenset(requests)
        if not asked and not crossing.took_names and last is not None:
            start = "after"  # of what asks for nothing and has no names, it is all the same
        if found.asked not in (None, asked) or (start == "shared" and asked not in self._asked):
            raise Unshared
        self.wanted = {request: wanted for request, wanted in requests.items() if wanted is not None}
        self._found.append(_Found(start, asked, self._params() if start == "first" else None))
        self._starts[i] = last if start == "after" else None
        if start == "after":
            self._last = crossing if last is None or crossing.took_names else last
            self._asked.append(asked)
        if start != "shared" and self._frame.asked is not None:
            for request, wanted in requests.items():
                self._frame.asked(request, wanted)
        return out

    def _params(self) -> frozenset[str]:
        return frozenset(paths(self._frame.params))

    def _found_before(self, i: int) -> _Found | None:
        """How a branch was called before, if all is now as it was then."""
        known = _remembered.get(self._place, ())
        if len(known) <= i or tuple(self._found) != known[:i] or known[i].start == "shared":
            return None
        return known[i] if known[i].params in (None, self._params()) else None

    def finish(self) -> None:
        """Counts the names of all branches as taken, and keeps what was found for the next call in the same place."""
        assert self._last is not None
        self._last.finish(NOTHING)
        if len(self._branches) > 1:
            while len(_remembered) >= _MOST_REMEMBERED:
                _remembered.pop(next(iter(_remembered)), None)
            _remembered[self._place] = tuple(self._found)
