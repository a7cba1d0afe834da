"""Functions for removed names of JAX whose present equivalent is more than one expression."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback


def id_tap(tap_func: Callable[..., Any], arg: Any, *, result: Any = None, **_: Any) -> Any:
    """Calls `tap_func(arg, ())` on the host, and returns `result`, or else `arg`."""
    jax.debug.callback(lambda values: tap_func(_on_host(values), ()), arg)
    return arg if result is None else result


def id_print(arg: Any, *, result: Any = None, output_stream: Any = None, **what: Any) -> Any:
    """Prints `arg` on the host, after the keyword arguments, and returns `result`, or else `arg`."""
    names = " ".join(f"{name}: {value}" for name, value in what.items() if name not in ("tap_with_device", "threshold"))
    heading = f"{names}\n" if names else ""
    jax.debug.callback(lambda values: print(f"{heading}{_on_host(values)}", file=output_stream), arg)
    return arg if result is None else result


def host_call(callback_func: Callable[..., Any], arg: Any, *, result_shape: Any = None, **_: Any) -> Any:
    """Calls `callback_func(arg)` on the host, and returns its result, which has the shapes of `result_shape`."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jnp.result_type(x)), result_shape)
    return io_callback(lambda values: callback_func(_on_host(values)), shapes, arg)


def _on_host(values: Any) -> Any:
    return jax.tree.map(np.asarray, values)


def device_put_replicated(x: Any, devices: Sequence[Any]) -> Any:
    """A copy of each array on each device: `[N, …]`, divided along the first axis."""
    return jax.tree.map(lambda leaf: _over(jnp.stack([leaf] * len(devices)), devices), x)


def device_put_sharded(shards: Sequence[Any], devices: Sequence[Any]) -> Any:
    """The shards, one on each device, stacked: `[N, …]`, divided along the first axis."""
    return jax.tree.map(lambda *leaves: _over(jnp.stack(leaves), devices), *shards)


def _over(x: jax.Array, devices: Sequence[Any]) -> jax.Array:
    mesh = jax.sharding.Mesh(np.array(devices), ("devices",))
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices")))


def axis_frame(axis_name: Any) -> Any:
    """The name and the size of a mapped axis; raises NameError if there is none of this name."""
    return types.SimpleNamespace(name=axis_name, size=jax.lax.axis_size(axis_name))


def split_list(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Lists of `ns` elements each, and the rest."""
    ends = [*itertools.accumulate(ns), len(args)]
    return [list(args[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]


def xmap(fun: Callable[..., Any], in_axes: Any, out_axes: Any, *, donate_argnums: Any = (), **_: Any) -> Any:
    """Maps `fun` over named axes of its arguments: `jax.vmap` for each name. Resources do not change the result."""
    names = list(dict.fromkeys(name for axes in _leaves(in_axes) for name in _named(axes).values()))
    mapped = fun
    for i in reversed(range(len(names))):  # the first name is mapped outermost: inside, its axes are gone

        def position(axes: Any, i: int = i) -> int | None:
            named = _named(axes)
            places = [place for place, name in named.items() if name == names[i]]
            return places[0] - sum(p < places[0] for p, n in named.items() if n in names[:i]) if places else None

        into, out = (jax.tree.map(position, axes, is_leaf=_is_axes) for axes in (in_axes, out_axes))
        into = tuple(into) if isinstance(into, list) else into
        mapped = jax.vmap(mapped, in_axes=into, out_axes=out, axis_name=names[i])
    return jax.jit(mapped, donate_argnums=donate_argnums)


def _named(axes: Any) -> dict[int, Any]:
    """`{0: "batch"}` for `["batch", ...]` and for `{0: "batch"}`."""
    items = axes.items() if isinstance(axes, dict) else enumerate(axes)
    return {place: name for place, name in items if name is not ... and name is not None}


def _is_axes(x: Any) -> bool:
    """True if `x` names the axes of an array, and is no tree of such names."""
    if isinstance(x, dict):
        return all(isinstance(place, int) for place in x)
    return isinstance(x, list) and not any(isinstance(part, dict | list | tuple) for part in x)


def _leaves(axes: Any) -> list[Any]:
    return jax.tree.leaves(axes, is_leaf=_is_axes)
