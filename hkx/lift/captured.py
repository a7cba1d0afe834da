"""What `capture_intermediates` keeps, on its way out of the loops and transforms of this package.

A value that is computed inside of one has no meaning outside. A purified function therefore collects in its own frame,
and `Crossing.run` hands that out as one more part of the carry. Who called it says what becomes of it: the same value
again (`grad`, `remat`, `jit`), a stack of them (`scan`, `vmap`, `layer_stack`), or an error where there is no value to
give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax

from hkx.core.frame import Frame, local
from hkx.core.guard import TraceMark
from hkx.errors.core import IntermediateInInnerTraceError
from hkx.lift.checks import is_value

Values = dict[str, dict[str, tuple[Any, ...]]]


class Destination:
    """Where one call of a capturing function collects.

    Attributes:
      values: what has arrived: `{module_name: {method_name: (first, second, …)}}`.
      frame: the innermost running function when the call began, if any.
      mark: the trace that was running then.
    """

    def __init__(self) -> None:
        self.values: Values = {}
        self.frame: Frame | None = local.frames[-1] if local.frames else None
        self.mark = TraceMark()

    def close(self) -> Values:
        """Gives the values out. JAX remembers labels, as parts of tree structures, and they must hold no tracer."""
        values, self.values, self.frame = self.values, {}, None
        return values


class Label(NamedTuple):
    """Which value it is."""

    destination: Destination
    module: str
    method: str


@jax.tree_util.register_pytree_node_class
class Captured:
    """Values and their labels, in the order of the returns; a tree of which the values are the leaves."""

    __slots__ = ("_labels", "_values")

    def __init__(self, entries: Iterable[tuple[Label, Any]] = ()):
        entries = tuple(entries)
        self._labels = tuple(label for label, _ in entries)
        self._values = tuple(value for _, value in entries)

    def __iter__(self) -> Iterator[tuple[Label, Any]]:
        return zip(self._labels, self._values, strict=True)

    def tree_flatten(self) -> tuple[Any, Any]:
        return self._values, self._labels

    @classmethod
    def tree_unflatten(cls, labels: Any, values: Any) -> Captured:
        return cls(zip(labels, values, strict=True))

    def hand_on(self) -> None:
        """Passes them to whatever runs now."""
        for label, value in self:
            record(label, value)

    def refuse(self, function: str) -> None:
        """Raises if there are any: there is no value that `function` could give out."""
        for label, _ in self:
            raise IntermediateInInnerTraceError(label.module, label.method, function)


def record(label: Label, value: Any) -> None:
    """Keeps a value: in the innermost purified function since the capture began, or where it is to end up."""
    destination = label.destination
    for frame in reversed(local.frames):
        if frame is destination.frame:
            break
        if frame.captured is not None:
            _check(label, value, frame.mark)
            for leaf in jax.tree.leaves(value):
                if not is_value(leaf):
                    raise IntermediateInInnerTraceError(label.module, label.method, value=leaf)
            frame.captured.append((label, value))
            return
    _check(label, value, destination.mark)
    methods = destination.values.setdefault(label.module, {})
    methods[label.method] = (*methods.get(label.method, ()), value)


def _check(label: Label, value: Any, mark: TraceMark) -> None:
    if mark.is_inner(value):
        raise IntermediateInInnerTraceError(label.module, label.method)
