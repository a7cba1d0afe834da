"""Parameters and states that are separate for each mapped call or iteration, stacked along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hkx.arguments import checked_integer
from hkx.base.entries import Tree, mapped, selected, walk
from hkx.base.keys import as_key
from hkx.core.frame import Phase, current_frame
from hkx.core.making import Shapes
from hkx.errors.lift import MappedSizeError
from hkx.lift.captured import Captured
from hkx.lift.crossing import NOTHING, Carry, Crossing, both, changes, each, only_looking

Axes = int | None | Callable[[str, str], int | None]
"""The axis along which entries are stacked, None if they are shared, or a function of module and name for this."""


def created_by(fun: Any, name: str, before: Carry, own_states: bool, args: Any, kwargs: Any) -> Carry:
    """The names of the entries that a function creates when it runs as in `init`, in the current trace."""
    key = as_key(0) if before.rng is None else before.rng[0]
    empty = (NOTHING if own_states else before)._replace(params={}, rng=(key, ()))
    with only_looking():
        maker = Shapes(current_frame(name).maker.on_shapes)
        created = Crossing[..., Any](fun, name, phase=Phase.OPEN, maker=maker).call(empty, args, kwargs)[1]
    return each(lambda tree: mapped(lambda *_: None, tree), created)


class Stacked:
    """Which parameters and states are stacked, and along which axis.

    Attributes:
      nothing: whether all entries are shared, and neither `param_axes` nor `state_axes` is an int.
    """

    def __init__(self, created: Carry, param_axes: Axes, state_axes: Axes):
        self._created = created

        def said(argument: str, spec: Axes, tree: Tree) -> Tree:
            def axis_of(bundle: str, name: str, _: Any) -> int | None:
                axis = spec(bundle, name) if callable(spec) else spec
                return None if axis is None else checked_integer(axis, argument, None)

            axes = mapped(axis_of, tree)
            return selected(axes, lambda bundle, name, axis: axis is not None)

        params = said("param_axes", param_axes, created.params)
        state = said("state_axes", state_axes, created.initial_state)
        self._axes = Carry(params, state, state, None)
        asked_for = any(isinstance(spec, int) for spec in (param_axes, state_axes))
        self.nothing = not (params or state or asked_for)

    def _part(self, carry: Carry, stacked: bool) -> Carry:
        def part(tree: Tree, axes: Tree) -> Tree:
            return selected(tree, lambda bundle, name, _: (name in axes.get(bundle, {})) is stacked)

        return each(part, carry, self._axes)._replace(rng=None if stacked else carry.rng)

    def divide(self, carry: Carry) -> tuple[Carry, Carry]:
        """Divides a carry into the shared entries, with the keys, and the stacked ones."""
        return (self._part(carry, False), self._part(carry, True)) if any(self._axes[:2]) else (carry, NOTHING)

    def shares_new(self, before: Carry) -> bool:
        """True if any shared entry has to be created."""
        shared, _ = self.divide(changes(before, both(self._created, before)))
        return self.nothing or bool(shared.params or shared.initial_state)

    def axes(self, own: Carry) -> Carry:
        """The axis of each entry, as a tree of the same structure."""
        return each(lambda tree, axes: mapped(lambda bundle, name, _: axes[bundle][name], tree), own, self._axes)

    def _move(self, own: Carry, move: Callable[[Any, int], Any]) -> Carry:
        def moved(axis: int, entry: Any) -> Any:
            return jax.tree.map(lambda leaf: move(leaf, axis), entry)

        entries = own._replace(rng=None, captured=Captured())
        return jax.tree.map(moved, self.axes(own), entries)._replace(captured=own.captured)

    def moved(self, own: Carry) -> Carry:
        """Moves the leading axis of stacked entries to their own axis, if they have it."""
        return self._move(own, lambda leaf, axis: jnp.moveaxis(leaf, 0, axis))

    def leading(self, carry: Carry, size: int) -> Carry:
        """The stacked entries of a carry, with their axis, which must have the given size, moved to the front."""
        _, own = self.divide(carry)
        self.check_sizes(own, size)
        return self._move(own, lambda leaf, axis: jnp.moveaxis(leaf, axis, 0))

    def check_sizes(self, own: Carry, size: int) -> None:
        """Raises an error if an entry does not have the given size along its axis."""
        for kind, tree, axes in zip(("parameter", "state"), own[:2], self._axes[:2], strict=True):
            for bundle, name, entry in walk(tree):
                axis = axes[bundle][name]
                for shape in map(jnp.shape, jax.tree.leaves(entry)):
                    if not -len(shape) <= axis < len(shape) or shape[axis] != size:
                        raise MappedSizeError(kind, f"{bundle}/{name}", shape, axis, size)


SHARED = Stacked(NOTHING, None, None)
"""Nothing is stacked."""
