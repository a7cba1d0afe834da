"""Rules of `hkx.sharding`: pairs of a pattern and a spec, checked against a mesh."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from hkx.errors.core import ShardingRuleError


class Rule(NamedTuple):
    """One rule, checked, and its text for error messages."""

    pattern: re.Pattern[str]
    spec: PartitionSpec
    text: str

    def axes(self) -> list[tuple[str, ...]]:
        """The names of the mesh axes for each dimension."""
        return [() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in self.spec]


def check_mesh(mesh: Any, kinds: tuple[type, ...] = (Mesh, AbstractMesh)) -> None:
    """Raises ShardingRuleError if `mesh` is not of one of these kinds."""
    if not isinstance(mesh, kinds):
        raise ShardingRuleError(f"`mesh` must be a jax.sharding.Mesh, got {mesh!r}: make one with `jax.make_mesh`.")


def checked_rule(rule: Any, mesh: Mesh | AbstractMesh, place: int) -> Rule:
    """The pair at this place of `rules`, checked; raises ShardingRuleError."""
    if not isinstance(rule, (tuple, list)) or len(rule) != 2:
        raise ShardingRuleError(f"`rules[{place}]` must be a pair (pattern, PartitionSpec), got {rule!r}.")
    pattern, spec = rule
    if not isinstance(spec, PartitionSpec) or not isinstance(pattern, (str, re.Pattern)):
        raise ShardingRuleError(
            f"`rules[{place}]` must be a pair (pattern, PartitionSpec), got {type(pattern).__name__} and "
            f"{type(spec).__name__} in {rule!r}. To have an array whole on every device, give PartitionSpec()."
        )
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ShardingRuleError(f"`rules[{place}]`: {pattern!r} is not a regular expression: {error}.") from None
    if not isinstance(compiled.pattern, str):
        raise ShardingRuleError(f"`rules[{place}]`: the pattern {pattern!r} is of bytes. Paths are strings: '.*/w'.")
    text = f"The rule ({compiled.pattern!r}, {spec})"
    if any(entry is PartitionSpec.UNCONSTRAINED for entry in spec):
        raise ShardingRuleError(f"{text} leaves a dimension unconstrained: give an axis of the mesh, or None.")
    for entry in spec:
        if not isinstance(entry, (str, tuple, list, type(None))):
            raise ShardingRuleError(
                f"{text} has the entry {entry!r}: give an axis of the mesh, a tuple of them, or None."
            )
    checked = Rule(compiled, spec, text)
    named = [axis for axes in checked.axes() for axis in axes]
    for axis in named:
        if axis not in mesh.shape:
            raise ShardingRuleError(f"{text} names the axis {axis!r}, and the mesh has {sizes_of(mesh)}.")
        if named.count(axis) > 1:
            raise ShardingRuleError(f"{text} names the axis {axis!r} more than once: an axis divides one dimension.")
    return checked


def check_divides(rule: Rule, path: str, shape: tuple[int, ...], mesh: Mesh | AbstractMesh) -> None:
    """Raises ShardingRuleError if the rule does not divide an array of this shape into equal parts."""
    if len(rule.spec) > len(shape):
        raise ShardingRuleError(
            f"{rule.text} has {len(rule.spec)} entries, and {path!r} of shape {shape} has {len(shape)} dimensions. "
            "Shorten the spec, or put a rule for this path before it."
        )
    for dimension, axes in enumerate(rule.axes()):
        parts = math.prod(mesh.shape[axis] for axis in axes)
        if shape[dimension] % parts:
            which = " × ".join(f"{axis!r}" for axis in axes)
            raise ShardingRuleError(
                f"{rule.text} does not divide {path!r} of shape {shape}: dimension {dimension} of size "
                f"{shape[dimension]} would be cut into {parts} parts by the axis {which} of the mesh "
                f"({sizes_of(mesh)}). Change the size or the mesh, or put a rule for this path before it."
            )


def sizes_of(mesh: Mesh | AbstractMesh) -> str:
    """The axes of a mesh with their sizes, for errors."""
    return ", ".join(f"{name!r} of size {size}" for name, size in mesh.shape.items()) or "no axes"
