"""Conversion between the parameters of a `layer_stack` and those of separate layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hkx.base.entries import check_structure, copied
from hkx.errors.lift import StackError
from hkx.lift.layer_stack import LayerStackTransparencyMapping, stack

_NUMBERED = re.compile(r"(.*)_(\d+)")
_DEFAULT = "__layer_stack_no_per_layer"


def _stem(name: str) -> tuple[str, int]:
    numbered = _NUMBERED.fullmatch(name)
    return (numbered.group(1), int(numbered.group(2))) if numbered else (name, 0)


class _Loop:
    """The names that a Python loop over the layer would give, with numbers that continue from layer to layer."""

    def __init__(self, modules: Any):
        self._per_layer: dict[str, int] = {}
        for module in modules:
            stem, number = _stem(module.split("/")[0])
            self._per_layer[stem] = max(self._per_layer.get(stem, 0), number + 1)

    def stacked_to_flat(self, module: str, layer: int) -> str:
        first, *rest = module.split("/")
        stem, number = _stem(first)
        number += layer * self._per_layer[stem]
        return "/".join([f"{stem}_{number}" if number else stem, *rest])


def _find(params: Any, name: str, taker: str) -> tuple[str, dict[str, Any]]:
    check_structure(taker, params)
    found = {bundle: entries for bundle, entries in params.items() if bundle.startswith(f"{name}/")}
    if not found:
        stacks = sorted({b.partition("/")[0] for b in params})
        raise StackError(
            f"There is no stack called {name!r} in these parameters. At the top level there are: {stacks}."
        )
    parent = f"{name.rpartition('/')[0]}/" if "/" in name else ""
    return parent, {bundle[len(name) + 1 :]: entries for bundle, entries in found.items()}


def _depth(name: str, stacked: Mapping[str, Any]) -> int:
    depths = {jnp.shape(leaf)[0] for leaf in jax.tree.leaves(stacked)}
    if len(depths) != 1:
        raise StackError(f"The parameters of the stack {name!r} have the different leading sizes {sorted(depths)}.")
    return depths.pop()


def unstack_params(
    params: Mapping[str, Mapping[str, Any]],
    name: str = _DEFAULT,
    *,
    mapping: LayerStackTransparencyMapping | None = None,
) -> dict[str, dict[str, Any]]:
    """Converts parameters of a model with a `hkx.layer_stack` for the same model with a Python loop over the layers.

    Args:
      params: the parameters. States may be converted in the same way.
      name: the full name of the stack.
      mapping: the names of the modules in the layers. By default as in `for _ in range(n): x = layer(x)`:
        `linear`, `linear_1`, `linear_2` and so on, next to the stack.

    Returns:
      New parameters: each array `[depth, ...]` of the stack becomes `depth` arrays `[...]`; others are unchanged.

    Raises:
      StackError: if there is no such stack, or a name is taken.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> layer = lambda x: hkx.Linear(4)(x)
      >>> model = hkx.transform(lambda x: hkx.layer_stack(3, name="stack")(layer)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 4]))
      >>> jax.tree.map(jnp.shape, hkx.unstack_params(params, "stack"))
      {'linear': {'b': (4,), 'w': (4, 4)}, 'linear_1': {'b': (4,), 'w': (4, 4)}, 'linear_2': {'b': (4,), 'w': (4, 4)}}
    """
    parent, stacked = _find(params, name, "hkx.unstack_params")
    flat_name = (mapping or _Loop(stacked)).stacked_to_flat
    out = {bundle: dict(entries) for bundle, entries in params.items() if not bundle.startswith(f"{name}/")}
    for layer in range(_depth(name, stacked)):
        for module, entries in stacked.items():
            flat = parent + flat_name(module, layer)
            if flat in out:
                raise StackError(
                    f"Layer {layer} of {name!r} would be called {flat!r}, which already exists. Pass `mapping=`, "
                    "a `hkx.LayerStackTransparencyMapping` that defines the names of the layers."
                )
            out[flat] = jax.tree.map(lambda leaf, i=layer: leaf[i], dict(entries))
    return out


def stack_params(
    params: Mapping[str, Mapping[str, Any]],
    like: Mapping[str, Mapping[str, Any]],
    name: str = _DEFAULT,
    *,
    mapping: LayerStackTransparencyMapping | None = None,
) -> dict[str, dict[str, Any]]:
    """Converts parameters of a model with a Python loop over layers for the same model with a `hkx.layer_stack`.

    Args:
      params: the parameters. States may be converted in the same way.
      like: parameters of the model with the stack, or their shapes, from `jax.eval_shape(model.init, key, x)`.
      name: the full name of the stack.
      mapping: the names of the layers' modules in `params`, as for `hkx.unstack_params`.

    Returns:
      New parameters: the arrays `[...]` of the layers become one array `[depth, ...]`; others are unchanged.

    Raises:
      StackError: if there is no such stack in `like`, or a layer is missing.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> layer = lambda x: hkx.Linear(4)(x)
      >>> model = hkx.transform(lambda x: hkx.layer_stack(3, name="stack")(layer)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 4]))
      >>> again = hkx.stack_params(hkx.unstack_params(params, "stack"), params, "stack")
      >>> jax.tree.map(jnp.shape, again)
      {'stack/linear': {'b': (3, 4), 'w': (3, 4, 4)}}
    """
    parent, stacked = _find(like, name, "hkx.stack_params")
    flat_name = (mapping or _Loop(stacked)).stacked_to_flat
    out = copied(params)
    for module in stacked:
        layers = []
        for layer in range(_depth(name, stacked)):
            flat = parent + flat_name(module, layer)
            if flat not in out:
                raise StackError(f"Layer {layer} of {name!r} should be called {flat!r}, but there is no such module.")
            layers.append(out.pop(flat))
        out[f"{name}/{module}"] = stack(layers)
    return out
