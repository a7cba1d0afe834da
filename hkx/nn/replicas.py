"""Sums and means over the replicas of a network."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx import running_init
from hkx.errors import UnboundAxisError


def mean_over_replicas(x: Any, axis_name: Any, groups: Sequence[Sequence[int]] | None) -> Any:
    """The mean over all replicas, or over those of each of the groups of indices; else see `over_replicas`."""

    def mean(x: Any, axis_name: Any) -> Any:
        if groups is None:
            return jax.lax.pmean(x, axis_name)
        size = jax.lax.axis_size(axis_name)
        if sorted(int(index) for members in groups for index in members) != list(range(size)):
            raise ValueError(
                f"`cross_replica_axis_index_groups` must list each of the {size} indices along {axis_name!r} once, as "
                f"{[list(range(size))]} does, got {groups!r}."
            )
        if _jax_takes_groups(axis_name):
            return jax.lax.pmean(x, axis_name, axis_index_groups=groups)
        return _mean_in_groups(x, axis_name, groups)

    return over_replicas(mean, x, axis_name)


def _jax_takes_groups(axis_name: Any) -> bool:
    """True if this axis is one of devices, and the `jax.shard_map` over them does not check what varies along it.

    For others JAX has no groups. It says so when `jax.vmap` is applied, which is after a `jax.jit` inside was traced.
    """
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    index = jax.eval_shape(lambda: jax.lax.axis_index(axis_name))  # which varies where that is checked
    unchecked = index == jax.ShapeDtypeStruct(index.shape, index.dtype)
    return unchecked and set(names) <= set(jax.sharding.get_abstract_mesh().manual_axes)


def _mean_in_groups(x: Any, axis_name: Any, groups: Sequence[Sequence[int]]) -> Any:
    """Sums over all replicas, in which each group has a row."""
    numbers = {int(index): number for number, members in enumerate(groups) for index in members}
    mine = jnp.asarray([numbers[index] for index in range(len(numbers))])[jax.lax.axis_index(axis_name)]
    members = jnp.asarray([len(group) for group in groups])[mine]

    def mean(x: jax.Array) -> jax.Array:
        row = jax.lax.broadcasted_iota(mine.dtype, (len(groups), *x.shape), 0)
        rows = jnp.where(row == mine, x[None], jnp.zeros((), x.dtype))
        return jax.lax.psum(rows, axis_name)[mine] / members.astype(x.dtype)

    return jax.tree.map(mean, x)


def over_replicas(reduce: Callable[..., Any], x: Any, axis_name: Any) -> Any:
    """`reduce(x, axis_name)`, with `reduce` such as `jax.lax.pmean`.

    Returns `x` if `axis_name` is None, or if `init` runs outside of the `vmap` or mesh that has this axis.
    """
    if axis_name is None:
        return x
    names = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    if not all(isinstance(name, Hashable) and not isinstance(name, (int, float, np.generic)) for name in names):
        raise TypeError(
            "`cross_replica_axis` must be the `axis_name` of a `jax.vmap`, `jax.pmap` or mesh, such as 'batch', or a "
            f"tuple of them, got {axis_name!r}."
        )
    try:
        return reduce(x, axis_name)
    except NameError as error:  # no such axis
        if not running_init():
            raise UnboundAxisError("cross_replica_axis", axis_name) from error
        return x
