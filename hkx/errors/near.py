"""Names that look like another: what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def _alike(a: str, b: str) -> float:
    """How alike two names are, in [0, 1], in whatever case they are written."""
    return difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error's text that names the one of `known` that was meant, if one looks like it.

    Python asks the same, but in what it prints itself alone: not in a log.
    """
    likeness, near = max(((_alike(name, other), other) for other in known), default=(0.0, ""))
    return f". Did you mean: {near!r}?" if likeness >= 0.7 else ""


def _nearness(path: str, other: str) -> float:
    """How near a full name is to another, 0 if a person would not take one for the other.

    The modules have to be alike, since many parameters are called `w`; or to be called the same in another module.
    """
    (module, _, name), (other_module, _, other_name) = path.rpartition("/"), other.rpartition("/")
    likeness = _alike(path, other)
    moved = name == other_name and module.rpartition("/")[2] == other_module.rpartition("/")[2]
    return likeness if moved or min(likeness, _alike(module, other_module)) >= 0.6 else 0.0


def nearest(path: str, known: Iterable[str], what: str) -> str:
    """One line that names those of `known` that look most like `path`, or says that none does."""
    known = list(known)
    if not known:
        return f"There are no {what} at all."
    nearness = {other: _nearness(path, other) for other in known}
    close = sorted((other for other in known if nearness[other]), key=lambda other: -nearness[other])[:3]
    if not close:
        return f"None of the {len(known)} {what} that exist has a similar name."
    more = f" (of {len(known)})" if len(known) > len(close) else ""
    return f"The nearest {what} that exist{more}: {', '.join(repr(c) for c in close)}."
