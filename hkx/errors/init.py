"""Errors of `init`, which runs a function on abstract values."""

from __future__ import annotations

from collections.abc import Iterable

from hkx.errors.core import HkxError


class AbstractInitError(HkxError, ValueError):
    """`init` got only the shape and dtype of an argument, and an initial value depends on its values."""

    def __init__(self, setting: str = "traced") -> None:
        problem = "An initial value depends on the values of an argument that was given to `init`"
        if setting != "traced":
            problem = f'With the setting init="{setting}" the function runs on real values, and an argument was given'
        super().__init__(f"{problem} as a `jax.ShapeDtypeStruct`, which has none. Pass an array for that argument.")


class LeakedByInitError(HkxError, ValueError):
    """The function leaves a traced array of `init` where `init` cannot replace it by its value."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"A traced array of `init` is still held by {place}. `init` runs the function on abstract values, as "
            "`jax.jit` does. Afterwards, it replaces an array by its value only in a list, a dict or an attribute, "
            "and in none of them if the function asks for the value of an array, or if an argument is a "
            "`jax.ShapeDtypeStruct`. Return the array, or run `init` on real values only: "
            '`hkx.transform(f, init="eager")`, or `hkx.config.set(init="eager")`.'
        )


class InitDependsOnTracingError(HkxError, ValueError):
    """With `init="check"`: `init` on abstract values does not create the same as `init` on real values."""

    def __init__(self, differences: Iterable[str]) -> None:
        lines = "".join(f"\n  {line}" for line in differences)
        super().__init__(
            f"`init` on abstract values creates something different from `init` on real values:{lines}\n"
            "The function detects that it is traced (`isinstance(x, jax.core.Tracer)`, a `try` around `float(x)`), or "
            "depends on something that changes between calls. Make it do the same in both cases, or use "
            '`hkx.transform(f, init="eager")`.'
        )
