"""One call of a function inside a JAX transform that runs it once, and what it changed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.core
import numpy as np

from hkx.core.frame import Frame, Phase, current_frame
from hkx.lift.purify import Carry, Pure, absorb, changes, snapshot


class Once:
    """One call of a function inside a trace, whose changes are handed out of it.

    Attributes:
      frame: the running function.
      pure: the function.
      before: what the running function held before the call.
    """

    def __init__(self, fun: Callable[..., Any], name: str, as_given: Collection[int | str] = ()):
        self.frame: Frame = current_frame(name)
        self.pure: Pure[..., Any] = Pure(fun, name, as_given=as_given)
        self.before = snapshot(self.frame)

    def call(self, before: Carry, args: Any, kwargs: Any = None, phase: Phase = Phase.OPEN) -> tuple[Any, Carry]:
        """The result and the changes, in the trace that is running."""
        out, after = self.pure.run(before, args, kwargs, phase=phase)
        return out, changes(before, after)

    def passing(self, has_aux: bool = False) -> Callable[..., Any]:
        """The function for a transform through which passes whatever does not depend on its inputs.

        It returns the result, then what else it returned and the changes.
        """

        def function(*args: Any, **kwargs: Any) -> Any:
            out, changed = self.call(self.before, args, kwargs)
            out, aux = out if has_aux else (out, None)
            return out, (aux, changed)

        return function

    def recorded(self) -> Callable[..., Any]:
        """The function for a transform that reads what it uses of the running function as constants of its trace."""

        def function(*args: Any, **kwargs: Any) -> tuple[Any, Carry]:
            return self.call(self.before, args, kwargs)

        return function

    def with_operands(self) -> tuple[Callable[..., Any], list[Any]]:
        """The same, for one that would write arrays into its program: those are operands, `hkx_arrays` by name."""
        leaves, structure = jax.tree.flatten(self.before)
        given = [isinstance(leaf, (jax.Array, np.ndarray)) and not isinstance(leaf, jax.core.Tracer) for leaf in leaves]

        def function(*args: Any, hkx_arrays: list[Any], **kwargs: Any) -> tuple[Any, Carry]:
            arrays = iter(hkx_arrays)
            held = [next(arrays) if is_given else leaf for is_given, leaf in zip(given, leaves, strict=True)]
            return self.call(jax.tree.unflatten(structure, held), args, kwargs)

        return function, [leaf for is_given, leaf in zip(given, leaves, strict=True) if is_given]

    def finish(self, changed: Carry) -> None:
        """Makes the changes in the running function."""
        absorb(self.frame, changed)
