"""How the values of `capture_intermediates` pass out of the loops and transforms of this package.

A value that is computed inside a JAX transform is not valid outside of it. So a purified function collects values in
its own frame, and `Crossing.run` returns them as a part of the carry. Its caller passes on the value itself (`grad`,
`remat`, `jit`) or a stack of values (`scan`, `vmap`, `layer_stack`), or raises an error if neither exists.
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
    """Collects the values of one call of a capturing function.

    Attributes:
      values: the values so far: `{module_name: {method_name: (first, second, …)}}`.
      frame: the frame that was innermost when the call began, if any.
      mark: the mark of the trace that was running then.
    """

    def __init__(self) -> None:
        self.values: Values = {}
        self.frame: Frame | None = local.frames[-1] if local.frames else None
        self.mark = TraceMark()

    def close(self) -> Values:
        """Returns the values and drops them, because JAX caches labels, which must not keep tracers alive."""
        values, self.values, self.frame = self.values, {}, None
        return values


class Label(NamedTuple):
    """Identifies a captured value."""

    destination: Destination
    module: str
    method: str


@jax.tree_util.register_pytree_node_class
class Captured:
    """Captured values and their labels, in the order in which the methods returned. A pytree of the values."""

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
        """Records the values in the function that is running now."""
        for label, value in self:
            record(label, value)

    def refuse(self, function: str) -> None:
        """Raises an error if there are any values, because `function` cannot return them."""
        for label, _ in self:
            raise IntermediateInInnerTraceError(label.module, label.method, function)


def record(label: Label, value: Any) -> None:
    """Stores a value in the innermost purified function that is part of the capture, or at its destination."""
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
