"""The table of removed names: how a row is read, and all rows by the name that they are about."""

from __future__ import annotations

from typing import NamedTuple

from hkx.run import jax_rows, numpy_rows

_PACKAGES = {"jax": "JAX", "jaxlib": "JAX", "numpy": "NumPy"}


class Name(NamedTuple):
    """A name or an argument that a package has removed, and what to write today.

    `old` is one of

        jax.tree_map                        a name; `new` is the expression for it
        jax.numpy.msort(a)                  a function; `new` is the expression for its result
        jax.numpy.clip(a_min=)              a keyword; `new` is the keyword of today with its value, the position of
                                            the argument, or nothing, if the argument is left out
        jax.jit(_1)                         the argument at a position, counted from 0; `new` as for a keyword
        jax.api.*                           a module, whose names are all in the module `new`, if that is not empty

    `x` in `new` is the array whose method or attribute `old` is. If `by` is the name of a function in
    `hkx.run.stand_ins`, this function serves the name, and `new` says what to use instead.
    """

    old: str
    new: str
    since: str
    by: str = ""

    @property
    def path(self) -> str:
        return self.old.partition("(")[0].removesuffix(".*")

    @property
    def owner(self) -> str:
        return self.path.rpartition(".")[0]

    @property
    def attribute(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def signature(self) -> str | None:
        """The parameters of a function that is expressed by `new`."""
        return self.old.partition("(")[2].removesuffix(")") if "(" in self.old and not self.argument else None

    @property
    def argument(self) -> str:
        """The removed argument, as `a_min` or `_1`."""
        inside = self.old.partition("(")[2].removesuffix(")")
        if inside.startswith("_") and inside[1:].isdigit():
            return inside
        return inside.removesuffix("=") if inside.endswith("=") else ""

    @property
    def is_module(self) -> bool:
        return self.old.endswith(".*")

    @property
    def edit(self) -> str:
        """The change to a program, as in `jax.tree_map -> jax.tree.map`."""
        name, _, value = self.new.partition("=")
        if not self.argument:
            return f"{self.old.removesuffix('.*')} -> {self.new.removesuffix('.*') or 'nothing'}"
        old = f"argument {self.argument[1:]}" if self.argument.startswith("_") else f"{self.argument}="
        new = f"argument {name}" if name.isdigit() else f"{name}={value if value != self.argument else ''}"
        return f"{self.path}: {old} -> {new if self.new else 'nothing'}"

    @property
    def release(self) -> str:
        root = self.path.partition(".")[0]
        return f"{_PACKAGES.get(root, root)} {self.since}"


ROWS = [Name(*row) for row in (*jax_rows.ROWS, *numpy_rows.ROWS)]
NAMES = {row.path: row for row in ROWS if not row.argument and not row.is_module}
MODULES = {row.path: row for row in ROWS if row.is_module}

ARGUMENTS: dict[str, list[Name]] = {}  # by the function that had them
for _row in ROWS:
    if _row.argument:
        ARGUMENTS.setdefault(_row.path, []).append(_row)
