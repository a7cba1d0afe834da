"""What can be wrong about how `init` runs a function, one exception each."""

from __future__ import annotations

from collections.abc import Iterable

import jax

from hkx.errors.core import HkxError


class AbstractInitError(HkxError, ValueError):
    """An initial value depends on an argument of which `init` was told only the shape and dtype."""

    def __init__(self, setting: str = "traced") -> None:
        problem = "An initial value depends on the values of an argument that was given to `init`"
        if setting != "traced":
            problem = f'With the setting init="{setting}" the function runs on real values, and an argument was given'
        super().__init__(f"{problem} as a `jax.ShapeDtypeStruct`, which has none. Pass an array for that argument.")


class LeakedByInitError(HkxError, ValueError, jax.errors.UnexpectedTracerError):
    """The function keeps a traced array of `init` where `init` cannot replace it by a real one."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"A traced array of `init` is still held by {place}. `init` runs the function on abstract values, as "
            "`jax.jit` does. An array that the function keeps in a list, a dict, a tuple, an attribute or a variable "
            "is replaced there by its value afterwards, but not in other places, and not where an argument is a "
            "`jax.ShapeDtypeStruct`. Return what is to be seen outside, or run `init` on real values only: "
            '`hkx.transform(f, init="eager")`, or `hkx.config.set(init="eager")`.'
        )


class InitDependsOnTracingError(HkxError, ValueError):
    """With `init="check"`: what `init` makes abstractly is not what it makes on real values."""

    def __init__(self, differences: Iterable[str]) -> None:
        lines = "".join(f"\n  {line}" for line in differences)
        super().__init__(
            f"`init` on abstract values makes something else than on real ones:{lines}\n"
            "The function notices that it is traced (`isinstance(x, jax.core.Tracer)`, a `try` around `float(x)`), or "
            "uses what changes from one call to the next. Make it do the same in both, or use "
            '`hkx.transform(f, init="eager")`.'
        )
