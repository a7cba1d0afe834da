"""`shard_map`: runs a function on every device of a mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from hkx.base.entries import walk
from hkx.base.signatures import like, positional
from hkx.core.frame import current_frame, local
from hkx.lift.crossing import Carry, Crossing, creating, snapshot
from hkx.lift.loops import varies

_Spec = jax.sharding.PartitionSpec


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = None,
    mesh: Any = None,
    split_rng: bool = False,
    **options: Any,
) -> Callable[..., Any]:
    """`jax.shard_map` of a function that may create modules, ask for parameters, set state and draw keys.

    Parameters, state and keys are the same on all devices.

    Args:
      f: the function, which gets one device's parts of the arguments; without it, a decorator is returned.
      out_specs: how the results are put together, a tree of `jax.sharding.PartitionSpec`.
      in_specs: how the arguments are divided, likewise: one for each argument. On a mesh with explicit axes, None
        keeps the division of the arguments.
      mesh: the `jax.sharding.Mesh`; by default the one that is set.
      split_rng: whether every device draws its own keys in `apply`. During `init`, all devices draw the same keys.
      **options: further options of `jax.shard_map`.

    Returns:
      A function like `f`, of whole arrays.

    Outside of a transformed function it is `jax.shard_map`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> from jax.sharding import PartitionSpec as P
      >>> mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
      >>> def f(x):
      ...     return hkx.shard_map(hkx.Linear(2), mesh=mesh, in_specs=(P("data"),), out_specs=P("data"))(x)
      >>> model = hkx.transform(f)
      >>> params = model.init(jax.random.key(0), jnp.ones([4, 3]))
      >>> model.apply(params, None, jnp.ones([4, 3])).shape
      (4, 2)
    """
    options.update(mesh=mesh)
    if f is None:
        return functools.partial(shard_map, out_specs=out_specs, in_specs=in_specs, split_rng=split_rng, **options)
    in_specs = tuple(in_specs) if isinstance(in_specs, list) else in_specs
    given = {} if in_specs is None else {"in_specs": in_specs}
    outside = jax.shard_map(f, out_specs=out_specs, **given, **options)

    @like(f, positional)
    def wrapped(*args: Any) -> Any:
        if not local.frames:
            return outside(*args)
        frame = current_frame("hkx.shard_map")
        crossing: Crossing[..., Any] = Crossing(f, "hkx.shard_map")
        before = snapshot(frame)
        split = split_rng and before.rng is not None and not creating(frame)
        if split:
            before = before._replace(rng=(frame.rngs[-1].next(), ()))

        def body(before: Any, args: Any) -> Any:
            if split:
                whole_mesh = jax.sharding.get_abstract_mesh() if mesh is None else mesh
                key = before.rng[0]
                for name in sorted(options.get("axis_names") or whole_mesh.axis_names):
                    key = jax.random.fold_in(key, jax.lax.axis_index(name))
                before = before._replace(rng=(key, ()))
            out, changed = crossing.call(before, args)
            changed.captured.refuse("hkx.shard_map")
            _check_shared(changed)
            return out, changed._replace(rng=None) if split else changed

        specs = jax.tree.map(lambda a: jax.typeof(a).sharding.spec, args) if in_specs is None else in_specs
        mapped = jax.shard_map(body, in_specs=(_Spec(), specs), out_specs=(out_specs, _Spec()), **options)
        out, changed = mapped(before, args)
        crossing.finish(changed)
        return out

    return wrapped


def _check_shared(changed: Carry) -> None:
    for kind, tree in (("parameter", changed.params), ("state", changed.state)):
        for bundle, name, value in walk(tree):
            if varies(value):
                raise ValueError(
                    f"In `hkx.shard_map`, the {kind} {f'{bundle}/{name}'!r} gets a value that differs between the "
                    f"devices, and they share one {kind}. Reduce it over the mesh axis first: "
                    "`jax.lax.pmean(x, axis)`, or `cross_replica_axis=axis` in a `hkx.BatchNorm`."
                )
