"""The names of modules in the branches of a `cond` or `switch`: which branches share modules, and which do not."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from hkx.core.frame import Frame, local, paths
from hkx.lift.crossing import NOTHING, Crossing

R = TypeVar("R")


class Unshared(BaseException):
    """A branch that was assumed to share its modules with an earlier branch does not."""


class _Found(NamedTuple):
    """How the names of a branch begin, and what it requested.

    They begin like those of the first branch ("shared"; "first" if it is not to be compared with other branches), or
    continue those of the earlier branches ("after").
    """

    start: Literal["shared", "after", "first"]
    asked: frozenset[Any] | None = None
    params: frozenset[str] | None = None


_MOST_REMEMBERED = 1024
_remembered: dict[Any, tuple[_Found, ...]] = {}
"""A cache of how branches were named, by the code of the branches and the names taken before.

It saves calling a branch twice to find this out again: `apply` can use what `init` found. An entry is only a guess,
which is checked against what the branch requests, so it never changes the result.
"""


def _code(f: Any) -> Any:
    """A cache key for a function; functions that request different parameters usually have different keys."""
    func = f.func if isinstance(f, functools.partial) else None  # a module would suggest other names
    inner = func or getattr(f, "__func__", None) or getattr(f, "__wrapped__", None)
    code = getattr(f, "__code__", None) or (type(f).__module__, type(f).__qualname__)
    return code if inner is None else (code, _code(inner))


class BranchNames:
    """Decides how the modules of each branch are named.

    If a branch, named like the first one, requests exactly the same parameters (of the same shapes) and states as an
    earlier branch, the two share them. Otherwise its names continue those of the earlier branches.

    Attributes:
      wanted: the shape and dtype with which the branch that was called last would create a state, by module and name.
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
        """The function of a branch that has been called."""
        return Crossing(self._branches[i], self._name, after=self._starts[i])

    def shares(self, i: int) -> bool:
        """Whether a branch that has been called shares the entries of an earlier one."""
        return self._found[i].start == "shared"

    def call(self, i: int, run: Callable[[Crossing[..., Any]], R], guess: bool = False) -> R:
        """Returns the result of `run` for branch `i`. It may be called more than once until the names are right.

        With `guess`, the names that the cache contains are tried first.
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
        """Calls a branch with names that begin like those of the first branch, without comparing the two."""
        return self._call(i, run, _Found("first"))

    def _call(self, i: int, run: Callable[[Crossing[..., Any]], R], found: _Found) -> R:
        """Calls a branch with names that begin in one way; raises Unshared if that turns out to be wrong.

        If a branch that was assumed to share requests something new, but has not yet taken a name that an earlier
        branch has too, it continues with names after those of the earlier branches.
        """
        start, last, depth = found.start, self._last, len(local.frames)
        known, requests = frozenset[Any]().union(*self._asked), dict[tuple[Any, ...], Any]()
        crossing: Crossing[..., Any] = Crossing(self._branches[i], self._name, after=last if start == "after" else None)
        begun: weakref.ref[Frame] | None = None

        def ask(request: tuple[Any, ...], wanted: Any) -> None:
            nonlocal start, begun
            if begun is None or begun() is not local.frames[depth]:  # a new run of the branch
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
            raise Unshared from None  # maybe due to a wrong guess; otherwise the next call raises it again
        finally:
            crossing.asked = None  # breaks a reference cycle
        asked = frozenset(requests)
        if not asked and not crossing.took_names and last is not None:
            start = "after"  # without requests and names, both are the same
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
        """The cached entry of a branch, if the earlier branches and the parameters are as they were then."""
        known = _remembered.get(self._place, ())
        if len(known) <= i or tuple(self._found) != known[:i] or known[i].start == "shared":
            return None
        return known[i] if known[i].params in (None, self._params()) else None

    def finish(self) -> None:
        """Marks the names of all branches as taken, and caches what was found."""
        assert self._last is not None
        self._last.finish(NOTHING)
        if len(self._branches) > 1:
            while len(_remembered) >= _MOST_REMEMBERED:
                _remembered.pop(next(iter(_remembered)), None)
            _remembered[self._place] = tuple(self._found)
