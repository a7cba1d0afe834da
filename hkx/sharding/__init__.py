"""Models on many devices: shardings from rules, initial values created in shards, and helpers for `jax.pmap`.

Arrays are sharded over a mesh by name. A rule is a pattern for `module/name` and a `jax.sharding.PartitionSpec`.

    rules = [(r".*/linear.*/w", P(None, "model"))]
    shapes = jax.eval_shape(model.init, key, x)
    tree = hkx.sharding.shardings(shapes, mesh, rules)
    params = hkx.sharding.sharded_init(model.init, tree)(key, x)
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from hkx.arguments import checked_function
from hkx.errors.core import ShardingRuleError, UnevenBatchError
from hkx.sharding.rules import check_divides, check_mesh, checked_rule, sizes_of

__all__ = ["Rules", "global_batch", "optimizer_shardings", "replicate", "shard_batch", "sharded_init", "shardings",
           "unreplicate"]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
Tree = TypeVar("Tree")
Rules: TypeAlias = Sequence[tuple["str | re.Pattern[str]", PartitionSpec]]
"""Pairs of a regular expression and the spec of the arrays whose path it matches as a whole."""
_Keys: TypeAlias = tuple[Any, ...]


def shardings(
    shapes: Any, mesh: Mesh | AbstractMesh, rules: Rules, *, unmatched: Literal["replicate", "error"] = "replicate"
) -> Any:
    """Returns how to divide each array of a tree over a mesh, by rules on its name.

    The path of an array is `module/name`, for example `mlp/~/linear_0/w`. In a tuple such as `(params, state)`, the
    position in the tuple is not part of the path. The first rule that matches the whole path (`re.fullmatch`) is used.

    Args:
      shapes: arrays, or anything with a shape, such as what `jax.eval_shape(model.init, …)` gives: parameters, state,
        both, or any other tree.
      mesh: a `jax.sharding.Mesh`, or an `AbstractMesh` if there are no devices.
      rules: pairs of a regular expression and a `PartitionSpec`. For each dimension, the spec names the mesh axis that
        divides it, or None, or a tuple of axes. A spec may be shorter than the shape.
      unmatched: what to do with an array that no rule matches: `"replicate"` keeps it whole on every device, `"error"`
        raises an error.

    Returns:
      A tree of `jax.sharding.NamedSharding` with the structure of `shapes`.

    Raises:
      ShardingRuleError: if a rule matches nothing, is not a pair of a pattern and a spec, is longer than a shape, names
        an axis that the mesh does not have, or one axis twice, or does not divide a shape into equal parts; or if no
        rule matches an array and `unmatched` is `"error"`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> from jax.sharding import PartitionSpec as P
      >>> mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"))
      >>> model = hkx.transform(lambda x: hkx.nets.MLP([8, 3])(x))
      >>> shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.ones([1, 6]))
      >>> tree = hkx.sharding.shardings(shapes, mesh, [(r".*/linear_0/w", P("data", "model"))])
      >>> tree["mlp/~/linear_0"]["w"].shard_shape((6, 8))  # what one of the eight devices has of it
      (3, 2)
      >>> tree["mlp/~/linear_1"]["w"].is_fully_replicated
      True
    """
    check_mesh(mesh)
    if unmatched not in ("replicate", "error"):
        raise ShardingRuleError(f"`unmatched` must be 'replicate' or 'error', got {unmatched!r}.")
    pairs = rules.items() if isinstance(rules, Mapping) else rules
    if not isinstance(pairs, Iterable):
        raise ShardingRuleError(f"`rules` must be a list of pairs (pattern, PartitionSpec), got {rules!r}.")
    checked = [checked_rule(rule, mesh, i) for i, rule in enumerate(pairs)]
    leaves, structure = jax.tree.flatten_with_path(shapes)
    paths = [_path(keys) for keys, _ in leaves]
    for rule in checked:
        if not any(rule.pattern.fullmatch(path) for path in paths):
            raise ShardingRuleError.unused(rule.text, paths)
    out = []
    for path, (_, leaf) in zip(paths, leaves, strict=True):
        if not hasattr(leaf, "shape") and not isinstance(leaf, (int, float, complex)):
            raise ShardingRuleError(
                f"`shapes` must be a tree of arrays, and {path or 'it'!r} is {leaf!r}. Pass the parameters, or their "
                "shapes: `jax.eval_shape(model.init, key, x)`."
            )
        rule = next((rule for rule in checked if rule.pattern.fullmatch(path)), None)
        if rule is None and unmatched == "error":
            raise ShardingRuleError.unmatched(path, np.shape(leaf))
        if rule is not None:
            check_divides(rule, path, np.shape(leaf), mesh)
        out.append(NamedSharding(mesh, PartitionSpec() if rule is None else rule.spec))
    return jax.tree.unflatten(structure, out)


def _path(keys: _Keys) -> str:
    """The path of a leaf, `module/name/…`, without the indices of tuples above the first mapping."""
    first = next((i for i, key in enumerate(keys) if isinstance(key, jax.tree_util.DictKey)), len(keys))
    return jax.tree_util.keystr(keys[first:], simple=True, separator="/")


def _is_sharding(x: Any) -> bool:
    """True if `x` says where an array is: a `jax.experimental.layout.Format` does, too."""
    return isinstance(x, (Sharding, PartitionSpec)) or (hasattr(x, "sharding") and not isinstance(x, jax.Array))


class sharded_init(Generic[P, R]):
    """Returns an `init` that creates every array in its shards: no device, nor the host, ever holds a whole array.

    The values are bit for bit those of the unsharded `init`, but for rounding where they are computed from an example,
    as the first averages of a batch norm. One program is compiled for all devices, and each device fills its own
    shards. With the default keys (Threefry), element i of a random array depends only on the key and i. Arrays that an
    initializer does not compute element by element (`hkx.initializers.Orthogonal`, a constant that is a NumPy array)
    may be whole for a moment.

    Args:
      init: the `init` of a transformed function, or any function that calls one and returns arrays, for example one
        that also creates the state of an optimiser. It must not be compiled yet.
      shardings: a tree of shardings with the structure of what `init` returns; see `hkx.sharding.shardings`.

    Returns:
      A function of the arguments of `init` that returns sharded arrays. Its method `lower` takes the same arguments,
      and returns the program (`jax.stages.Lowered`) for inspection. If there are several processes, all must call it.

    Raises:
      TypeError: if `init` is already compiled, or not a function, or something in `shardings` is not a sharding.
      ShardingRuleError: if `shardings` does not have the structure of what `init` returns.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> from jax.sharding import PartitionSpec as P
      >>> mesh = jax.make_mesh((1,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
      >>> model = hkx.transform(lambda x: hkx.Linear(4)(x))
      >>> key, x = jax.random.key(0), jnp.ones([1, 6])
      >>> shapes = jax.eval_shape(model.init, key, x)
      >>> tree = hkx.sharding.shardings(shapes, mesh, [("linear/w", P(None, "model"))])
      >>> params = hkx.sharding.sharded_init(model.init, tree)(key, x)
      >>> params["linear"]["w"].sharding.spec == P(None, "model")
      True
    """

    def __init__(self, init: Callable[P, R], shardings: Any):
        if isinstance(init, jax.stages.Wrapped):
            raise TypeError("`init` is compiled already: pass the function itself, it is compiled for the mesh here.")
        wrong = [leaf for leaf in jax.tree.leaves(shardings) if not _is_sharding(leaf)]
        if wrong:
            raise TypeError(f"`shardings` must be a tree of shardings, see `hkx.sharding.shardings`, got {wrong[0]!r}.")
        self._init = checked_function(init, "hkx.sharding.sharded_init", "init")
        self._shardings = shardings

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        program, arrays = self._program(args, kwargs)
        return program(arrays)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> jax.stages.Lowered:
        """Returns the program that creates the arrays, not compiled yet; the arguments are those of `init`."""
        program, arrays = self._program(args, kwargs)
        return program.lower(arrays)

    def _program(self, args: Any, kwargs: Any) -> tuple[jax.stages.Wrapped, list[Any]]:
        leaves, structure = jax.tree.flatten((args, kwargs))
        are_arrays = [isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves]
        others = tuple(None if is_array else (leaf,) for is_array, leaf in zip(are_arrays, leaves, strict=True))
        mesh = next((s.mesh for s in jax.tree.leaves(self._shardings) if isinstance(s, NamedSharding)), None)
        arrays = [_on_mesh(leaf, mesh) for is_array, leaf in zip(are_arrays, leaves, strict=True) if is_array]
        run = _of_arrays(self._init, structure, others, jax.tree.structure(self._shardings, is_leaf=_is_none))
        return jax.jit(run, out_shardings=self._shardings), arrays


_functions: weakref.WeakKeyDictionary[Any, dict[Any, Callable[..., Any]]] = weakref.WeakKeyDictionary()


def _is_none(x: Any) -> bool:
    return x is None


def _check_covers(shardings: Any, out: Any) -> None:
    """Raises an error if the structure of the shardings is neither that of what `init` returns nor a prefix of it."""
    marks = jax.tree.unflatten(shardings, range(shardings.num_leaves))
    try:
        jax.tree.broadcast(marks, out)
    except ValueError:
        have, need = ([_named(keys) for keys, _ in jax.tree.leaves_with_path(tree)] for tree in (marks, out))
        raise ShardingRuleError(
            "`shardings` does not have the structure of what `init` returns. It has shardings for "
            f"{', '.join(have) or 'nothing'}; the arrays are {', '.join(need) or 'none'}. Make it from the shapes of "
            "the same `init`: `hkx.sharding.shardings(jax.eval_shape(init, ...), mesh, rules)`."
        ) from None


def _of_arrays(
    init: Any, structure: Any, others: tuple[tuple[Any] | None, ...], shardings: Any
) -> Callable[[list[Any]], Any]:
    """`init` as a function of its arrays only; cached by its other arguments, so that JAX finds its program."""
    place = structure, others, tuple(type(other[0]) for other in others if other), shardings  # True equals 1
    function: Callable[[], Any] = lambda: init  # noqa: E731

    def run(arrays: list[Any]) -> Any:
        given = iter(arrays)
        args, kwargs = jax.tree.unflatten(structure, [other[0] if other else next(given) for other in others])
        out = function()(*args, **kwargs)
        _check_covers(shardings, out)
        return out

    with suppress(TypeError):  # not hashable, or without weak references
        known, function = _functions.setdefault(init, {}), weakref.ref(init)
        return known.setdefault(place, run)
    return run


def _on_mesh(x: Any, mesh: Any) -> Any:
    """`x`, copied to all devices of the mesh if it was put on other devices."""
    if not isinstance(mesh, Mesh) or not getattr(x, "committed", False):
        return x
    everywhere = NamedSharding(mesh, PartitionSpec())
    return x if x.sharding.device_set == everywhere.device_set else jax.device_put(x, everywhere)


def optimizer_shardings(opt_state: Any, params: Any, shardings: Any) -> Any:
    """Returns how to divide the state of an optimiser: arrays that belong to a parameter are divided like it.

    An array belongs to a parameter if its path in the tree ends with the parameter's path and its shape is the same,
    like the moments of Adam. This also works if some parameters are left out (`optax.masked`). All other arrays, such
    as the number of steps, are replicated.

    Args:
      opt_state: the optimiser's state, or its shapes: `jax.eval_shape(optimizer.init, params)`.
      params: the parameters, or their shapes.
      shardings: how the parameters are divided, as returned by `hkx.sharding.shardings`.

    Returns:
      A tree of `jax.sharding.NamedSharding` with the structure of `opt_state`.

    Raises:
      ValueError: if `params` and `shardings` differ in structure, or are empty.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> from jax.sharding import PartitionSpec as P
      >>> mesh = jax.sharding.AbstractMesh((4,), ("model",))
      >>> params = {"linear": {"w": jnp.ones([6, 8])}}
      >>> tree = hkx.sharding.shardings(params, mesh, [("linear/w", P(None, "model"))])
      >>> momentum = {"count": jnp.zeros([]), "trace": params}
      >>> tree = hkx.sharding.optimizer_shardings(momentum, params, tree)
      >>> tree["trace"]["linear"]["w"].shard_shape((6, 8)), tree["count"].is_fully_replicated
      ((6, 2), True)
    """
    leaves, structure = jax.tree.flatten_with_path(params)
    if jax.tree.structure(shardings) != structure or not leaves:
        raise ValueError(
            "`shardings` must have one sharding for each of `params`, and there must be at least one. They are "
            f"{jax.tree.structure(shardings)} and {structure}."
        )
    of_params = jax.tree.leaves(shardings)
    known = {_texts(keys): (np.shape(leaf), s) for (keys, leaf), s in zip(leaves, of_params, strict=True)}
    replicated = NamedSharding(of_params[0].mesh, PartitionSpec())

    def find(keys: _Keys, leaf: Any) -> Any:
        texts = _texts(keys)
        for start in range(len(texts) + 1):
            shape, sharding = known.get(texts[start:], (None, None))
            if sharding is not None and shape == np.shape(leaf):
                return sharding
        return replicated

    return jax.tree.map_with_path(find, opt_state)


def _texts(keys: _Keys) -> tuple[str, ...]:
    return tuple(map(str, keys))


def replicate(tree: Tree, devices: Sequence[Any] | None = None) -> Tree:
    """Copies every array to each device, for `jax.pmap`.

    Args:
      tree: arrays of shape `[…]`; typed keys are allowed.
      devices: the devices; by default this process's devices, `jax.local_devices()`.

    Returns:
      The tree with arrays of shape `[devices, …]`; each device has one copy.

    Example:

      >>> import hkx, jax
      >>> params = {"linear": {"w": jax.numpy.ones([2, 3])}}
      >>> hkx.sharding.replicate(params, jax.devices()[:1])["linear"]["w"].shape
      (1, 2, 3)
    """
    sharding = _replicas(devices)
    to = jax.local_devices() if devices is None else devices

    def copy(x: Any) -> jax.Array:
        row = (x if isinstance(x, jax.Array) else np.asarray(x))[None]
        rows = [jax.device_put(row, device) for device in to]
        return jax.make_array_from_single_device_arrays((len(rows), *rows[0].shape[1:]), sharding, rows)

    return jax.tree.map(copy, tree)


def unreplicate(tree: Tree) -> Tree:
    """Returns the first of the copies that `hkx.sharding.replicate`, or a function under `jax.pmap`, returned.

    Args:
      tree: arrays of shape `[devices, …]`.

    Returns:
      The tree with arrays of shape `[…]`, on the first of the devices.

    Raises:
      ValueError: if an array has no leading dimension.

    Example:

      >>> import hkx, jax
      >>> copies = hkx.sharding.replicate({"w": jax.numpy.ones([2, 3])}, jax.devices()[:1])
      >>> hkx.sharding.unreplicate(copies)["w"].shape
      (2, 3)
    """

    def first(keys: _Keys, x: Any) -> Any:
        if np.ndim(x) == 0:
            raise ValueError(f"`tree`: {_named(keys)} has no leading dimension of devices. Is it replicated?")
        return x.addressable_shards[0].data[0] if isinstance(x, jax.Array) else x[0]

    return jax.tree.map_with_path(first, tree)


def shard_batch(batch: Tree, devices: Sequence[Any] | None = None) -> Tree:
    """Divides a batch among devices, for `jax.pmap`: row `d` of the result goes to device `d`.

    Args:
      batch: arrays of shape `[B, …]`, with the same B for all.
      devices: the devices; by default this process's devices, `jax.local_devices()`.

    Returns:
      The tree with arrays of shape `[devices, B / devices, …]`, in the same order.

    Raises:
      UnevenBatchError: if B is not divisible by the number of devices, or the arrays do not have the same B.

    Example:

      >>> import hkx, jax, numpy as np
      >>> batch = {"image": np.zeros([6, 8, 8]), "label": np.zeros([6])}
      >>> hkx.sharding.shard_batch(batch, jax.devices()[:1])["image"].shape
      (1, 6, 8, 8)
    """
    sharding = _replicas(devices)
    parts = sharding.mesh.size
    _check_batch(batch, parts, f"the {parts} devices")

    def divide(x: Any) -> jax.Array:
        return jax.device_put(x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), sharding)

    return jax.tree.map(divide, batch)


def global_batch(batch: Tree, mesh: Mesh, axes: str | tuple[str, ...] = "data") -> Tree:
    """Divides a batch over a mesh, for `jax.jit`; with several processes, each passes its own part of the batch.

    Args:
      batch: arrays of shape `[B, …]`, with the same B for all: the rows of this process. Processes that share a part
        of the mesh along `axes` pass the same rows.
      mesh: the mesh.
      axes: the axis of the mesh that divides the batch, or several axes.

    Returns:
      The tree with arrays of shape `[B × parts, …]`, where `parts` counts the parts from different processes: `[B, …]`
      with one process. The rows are in the order of the mesh's devices.

    Raises:
      UnevenBatchError: if this process's share of the mesh does not divide B, or the arrays do not have the same B.
      ShardingRuleError: if `mesh` is not a mesh, does not have the axis, or the axis is named twice.

    Example:

      >>> import hkx, jax, numpy as np
      >>> mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
      >>> hkx.sharding.global_batch({"image": np.zeros([6, 8, 8])}, mesh)["image"].shape
      (6, 8, 8)
    """
    check_mesh(mesh, (Mesh,))
    names = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
    for name in names:
        if name not in mesh.shape:
            raise ShardingRuleError(f"`axes` names the axis {name!r}, and the mesh has {sizes_of(mesh)}.")
        if names.count(name) > 1:
            raise ShardingRuleError(f"`axes` names the axis {name!r} more than once: {axes!r}.")
    sharding = NamedSharding(mesh, PartitionSpec(axes))
    parts = math.prod(mesh.shape[name] for name in names)
    here = {index[0].indices(parts) for index in sharding.addressable_devices_indices_map((parts,)).values() if index}
    _check_batch(batch, len(here), f"this process's {len(here)} of the {parts} parts along {axes!r} of the mesh")
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x), batch)


def _replicas(devices: Sequence[Any] | None) -> NamedSharding:
    """One part on each device."""
    if not isinstance(devices, (Sequence, np.ndarray, type(None))):
        raise TypeError(f"`devices` must be a list of devices, such as `jax.local_devices()[:2]`, got {devices!r}.")
    devices = jax.local_devices() if devices is None else list(devices)
    if not devices:
        raise ValueError("`devices` is empty: leave it out for all devices of this process.")
    return NamedSharding(Mesh(np.array(devices), ("replica",)), PartitionSpec("replica"))


def _check_batch(batch: Any, parts: int, which: str) -> None:
    """Raises an error unless all arrays have the same leading size, divisible by `parts`."""
    sizes = {}
    for keys, x in jax.tree.leaves_with_path(batch):
        if np.ndim(x) == 0:
            raise UnevenBatchError(f"`batch`: {_named(keys)} has no leading dimension to divide.")
        sizes[_named(keys)] = np.shape(x)[0]
    if len(set(sizes.values())) > 1:
        some = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise UnevenBatchError(f"`batch`: the arrays must have one leading dimension, and they have: {some}.")
    for size in set(sizes.values()):
        if size % parts:
            more = size - size % parts + parts
            some = f"{more - parts} or {more}" if more > parts else more
            raise UnevenBatchError(
                f"`batch`: {size} rows cannot be divided equally among {which}. Take {some} rows, or fewer devices."
            )


def _named(keys: _Keys) -> str:
    return repr(jax.tree_util.keystr(keys, simple=True, separator="/")) if keys else "the array"
