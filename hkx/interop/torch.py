"""Converts the weights of PyTorch models to hkx parameters, and back. Needs the package `torch`.

Layers are recognised by the names and shapes of their weights. Images are `[N, H, W, C]` in hkx and `[N, C, H, W]` in
PyTorch. Weights are converted accordingly; inputs are not, and neither is the order in which a `Flatten` between a
convolution and a linear layer arranges its output.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from hkx.errors.interop import WeightMismatchError
from hkx.interop.cells import ResetAfterGRU as ResetAfterGRU
from hkx.interop.torch_layers import ADVICE, Weights, averages_of, layers_of, weights_to_hkx, weights_to_torch

__all__ = ["ResetAfterGRU", "from_state_dict", "to_state_dict"]

Tree = Mapping[str, Mapping[str, Any]]
Names = Mapping[str, str | Sequence[str]]


def from_state_dict(
    state_dict: Mapping[str, Any],
    params: Tree,
    state: Tree | None = None,
    *,
    names: Names | None = None,
    transposed: Collection[str] | None = None,
) -> tuple[dict[str, dict[str, jax.Array]], dict[str, dict[str, jax.Array]]]:
    """Converts the weights of a PyTorch model.

    `Linear`, `Conv1d/2d/3d`, `ConvTranspose1d/2d/3d`, `BatchNorm`, `LayerNorm`, `GroupNorm`, `InstanceNorm`,
    `RMSNorm`, `PReLU`, `Embedding`, `LSTM` and `LSTMCell` (to `hkx.LSTM`), `GRU` and `GRUCell` (to
    `hkx.interop.torch.ResetAfterGRU`), of any number of layers and of both directions (to `hkx.Bidirectional`),
    `MultiheadAttention`, and models made of them.

    Args:
      state_dict: the result of `model.state_dict()`, of tensors or arrays.
      params: the parameters of the hkx model, from `init`; only their names, shapes and dtypes are used, and
        `jax.ShapeDtypeStruct` will do.
      state: the state of the hkx model, if it has any.
      names: for each PyTorch module, by its path in the model, the name of the hkx module; for a recurrent network of
        several layers or of both directions, a sequence of names: layer by layer, the one that goes forward first.
        Weights that the PyTorch model shares may be given one name. None pairs them in order: the modules in the
        order of `state_dict` with those in the order of `params`, which is the order of their creation if `init`
        itself returned it. Modules sorted by name since (as by `jax.jit`, `jax.tree.map` and files of safetensors)
        are paired as when modules of the same names were last converted, in either direction, by this process; or
        else in the order of the numbers in the names, and modules of several kinds, such as `enc` and `dec`, then need
        `names`, or their order: `params = {m: params[m] for m in model.init(key, x)}`.
      transposed: the paths in the PyTorch model of its transposed convolutions, whose kernels are flipped. None takes
        those whose hkx module has the word `transpose` in its name; the weights do not show it.

    Returns:
      New `params` and `state`. The moving averages of batch normalisation continue PyTorch's: their counter is the
      largest there is, so that they are not corrected for their start, whatever the decay. (In training, PyTorch
      averages n / (n - 1) times the variance of a batch of n values, and hkx the variance.)

    Raises:
      WeightMismatchError: if a weight is left over, missing or of another shape, or a path in `names` or `transposed`
        is not in the PyTorch model; the message names it.

    Example:

      >>> import hkx, jax, jax.numpy as jnp, torch
      >>> from hkx.interop.torch import from_state_dict
      >>> theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
      >>> ours = hkx.transform(lambda x: hkx.nets.MLP([4, 1])(x))
      >>> x = jnp.ones([2, 3])
      >>> params, _ = from_state_dict(theirs.state_dict(), ours.init(jax.random.key(0), x))
      >>> y = theirs(torch.ones(2, 3)).detach().numpy()
      >>> bool(jnp.allclose(ours.apply(params, None, x), y, atol=1e-6))
      True
    """
    target = _flat(params, state or {})
    weights = _arrays(state_dict)
    by_name = _sorted_by_name(state_dict)
    groups = _groups(weights, by_name)
    transposed = _known(transposed, groups)
    found: Weights = {}
    with _pairing(groups, by_name, target, names) as pairs:
        for prefix, module, local in pairs:
            unit, flip = _unit(target, module), _flipped(prefix, module, transposed)
            for path, value in weights_to_hkx(prefix, local, module, unit, flip).items():
                value = _fitted(value, path, target[path]) if path in target else value
                if path in found and not np.array_equal(found[path], value, equal_nan=True):
                    raise WeightMismatchError(
                        f"Two weights of the PyTorch model, which differ, are for {path!r}", [], ADVICE
                    )
                found[path] = value
        if unknown := sorted(set(found) - set(target)):
            problem = "The hkx model has no place for these weights of the PyTorch model"
            raise WeightMismatchError(problem, unknown, ADVICE)
        if missing := sorted(set(target) - set(found)):
            raise WeightMismatchError("The PyTorch model has no weights for these of the hkx model", missing, ADVICE)
    return _filled(params, found, "params"), _filled(state or {}, found, "state")


def to_state_dict(
    params: Tree,
    state: Tree | None,
    state_dict: Mapping[str, Any],
    *,
    names: Names | None = None,
    transposed: Collection[str] | None = None,
) -> dict[str, torch.Tensor]:
    """Converts hkx parameters to the weights of a PyTorch model.

    Args:
      params: the parameters.
      state: the state, or None.
      state_dict: the weights of the PyTorch model; only names, shapes and dtypes are used, and it may be on the
        device "meta".
      names: as for `from_state_dict`.
      transposed: likewise.

    Returns:
      New weights, for `model.load_state_dict`. Of the two biases of an LSTM, the second is zero.

    Raises:
      WeightMismatchError: if a parameter is left over, missing or of another shape; the message names it.

    Example:

      >>> import hkx, jax, jax.numpy as jnp, torch
      >>> from hkx.interop.torch import to_state_dict
      >>> ours = hkx.transform(lambda x: hkx.Linear(4)(x))
      >>> theirs = torch.nn.Linear(3, 4)
      >>> params = ours.init(jax.random.key(0), jnp.ones([2, 3]))
      >>> theirs.load_state_dict(to_state_dict(params, None, theirs.state_dict()))
      <All keys matched successfully>
    """
    source = {path: np.asarray(leaf) for path, leaf in _flat(params, state or {}).items()}
    like = {key: _blank(value) for key, value in _checked_weights(state_dict).items()}
    by_name = _sorted_by_name(state_dict)
    groups = _groups(like, by_name)
    transposed = _known(transposed, groups)
    out: dict[str, torch.Tensor] = {}
    used: set[str] = set()
    with _pairing(groups, by_name, source, names) as pairs:
        for prefix, module, local in pairs:
            unit, flip = _unit(source, module), _flipped(prefix, module, transposed)
            weights = weights_to_torch(prefix, local, module, unit, flip)
            expected = set(weights_to_hkx(prefix, local, module, unit, flip))
            if absent := sorted(expected - set(unit)):
                problem = "The hkx model has no weights for these of the PyTorch model"
                raise WeightMismatchError(problem, absent, ADVICE)
            used |= expected
            for key, value in weights.items():
                path = f"{prefix}.{key}" if prefix else key
                out[path] = _tensor(_fitted(value, path, like[path]), state_dict[path])
        if left := sorted(set(source) - used):
            raise WeightMismatchError("The PyTorch model has no place for these weights of the hkx model", left, ADVICE)
    return {key: out[key] for key in state_dict}


def _tensor(value: np.ndarray, like: Any) -> torch.Tensor:
    """A new tensor of the dtype of `like`."""
    if jnp.issubdtype(value.dtype, jnp.inexact) and value.dtype.itemsize < 4:
        value = value.astype(np.float32)  # torch does not support NumPy's extension types, such as bfloat16
    return torch.tensor(np.array(value), dtype=torch.as_tensor(like).dtype)


def _checked(tree: Any, argument: str, expected: str) -> Any:
    if not isinstance(tree, Mapping):
        raise WeightMismatchError(f"`{argument}` must be {expected}, got {type(tree).__name__}")
    return tree


def _checked_weights(state_dict: Any) -> Mapping[str, Any]:
    return _checked(state_dict, "state_dict", "the dict that `model.state_dict()` returns")


def _arrays(state_dict: Mapping[str, Any]) -> Weights:
    return {key: _array(key, value) for key, value in _checked_weights(state_dict).items()}


def _blank(value: Any) -> np.ndarray:
    """An array of the shape of a weight, which takes no memory."""
    zero = np.zeros((), np.complex64 if torch.as_tensor(value).is_complex() else np.float32)
    return np.broadcast_to(zero, tuple(value.shape))


def _array(key: str, value: Any) -> np.ndarray:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    if value.is_floating_point() and value.dtype not in (torch.float16, torch.float32, torch.float64):
        value = value.float()  # NumPy has no bfloat16; the conversion is exact
    try:
        return value.detach().cpu().numpy()
    except (NotImplementedError, RuntimeError, TypeError) as error:  # on the device "meta", or sparse, or quantised
        raise WeightMismatchError(f"The weight {key!r} of PyTorch has no values to convert", [str(error)]) from error


def _flat(params: Tree, state: Tree) -> dict[str, Any]:
    out = {}
    for section, tree in (("params", params), ("state", state)):
        for module, entries in _checked(tree, section, f"a dict of the {section} of each module").items():
            entries = _checked(entries, f"{section}[{module!r}]", "a dict of arrays by their names")
            out |= {f"{section}:{module}/{name}": value for name, value in entries.items()}
    return out


def _filled(tree: Tree, found: Weights, section: str) -> dict[str, dict[str, jax.Array]]:
    return {
        # A copy, because PyTorch changes its weights in place.
        m: {n: jnp.array(found[f"{section}:{m}/{n}"], leaf.dtype) for n, leaf in entries.items()}
        for m, entries in tree.items()
    }


def _fitted(value: np.ndarray, path: str, like: Any) -> np.ndarray:
    """Reshapes `value` to the shape of `like`, from which it may differ by axes of size 1."""
    same = [s for s in value.shape if s != 1] == [s for s in like.shape if s != 1]
    if not same or (value.ndim == len(like.shape) and value.shape != tuple(like.shape)):
        raise WeightMismatchError(
            f"The weight for {path!r} has shape {value.shape}, expected {tuple(like.shape)}", advice=ADVICE
        )
    if np.iscomplexobj(value) and not jnp.issubdtype(like.dtype, jnp.complexfloating):
        raise WeightMismatchError(f"The weight for {path!r} is complex, expected {np.dtype(like.dtype).name}")
    return value.reshape(like.shape)


def _by_number(path: str) -> list[Any]:
    """The key for sorting paths, by which numbers are sorted by value."""
    return [int(s) if s.isdecimal() else s for s in re.split(r"(\d+)", path)]


def _in_order(paths: Collection[str]) -> list[str]:
    """The paths, unchanged unless something has sorted them as strings: then numbers are sorted by value."""
    listed = list(paths)
    return sorted(listed, key=_by_number) if listed == sorted(listed) else listed


def _sorted_by_name(state_dict: Mapping[str, Any]) -> bool:
    """True if something has sorted the weights by name, or first by dtype, as files of safetensors do."""
    dtypes = {key: str(getattr(value, "dtype", None)) for key, value in state_dict.items()}
    blocks = [(dtype, list(keys)) for dtype, keys in itertools.groupby(dtypes, dtypes.__getitem__)]
    return len(dict(blocks)) == len(blocks) and all(keys == sorted(keys) for _, keys in blocks)


def _groups(state_dict: Weights, by_name: bool) -> dict[str, Weights]:
    """The weights of each PyTorch module, by the module's path and the weight's name."""
    attention = {k.rpartition(".")[0] for k in state_dict if k.rpartition(".")[2].startswith(("in_proj_", "q_proj_"))}
    groups: dict[str, Weights] = {}
    for key, value in state_dict.items():
        prefix, _, name = key.rpartition(".")
        outer, _, last = prefix.rpartition(".")
        if last == "out_proj" and outer in attention:
            prefix, name = outer, f"out_proj.{name}"
        groups.setdefault(prefix, {})[name] = value
    return {prefix: groups[prefix] for prefix in (sorted(groups, key=_by_number) if by_name else _in_order(groups))}


def _unit(target: Mapping[str, Any], module: str) -> dict[str, Any]:
    """The entries of one hkx module and of its submodules, by path."""
    return {p: v for p, v in target.items() if p.partition(":")[2].startswith(f"{module}/")}


_AVERAGES = re.compile(r"state:(.*)/~/(mean|var)_ema/")


def _without_weights(target: Mapping[str, Any]) -> list[str]:
    """The hkx modules that have moving averages but no weights."""
    found = dict.fromkeys(match.group(1) for path in target if (match := _AVERAGES.match(path)))
    return [module for module in _in_order(found) if not any(p.startswith(f"params:{module}/") for p in target)]


def _units(target: Mapping[str, Any]) -> list[str]:
    """The hkx modules that have weights, in order; the parts of an attention layer count as one."""
    unordered = dict.fromkeys(p.partition(":")[2].rpartition("/")[0] for p in target if p.startswith("params:"))
    bundles, out = _in_order(unordered), {}
    for bundle in bundles:
        outer = bundle.rpartition("/")[0]
        part = outer and all(f"{outer}/{p}" in bundles for p in ("query", "key", "value", "linear"))
        out[outer if part else bundle] = None
    return list(out)


_THEIRS_SORTED = (
    "The modules of the PyTorch model are in the order of their names, as in a file of safetensors, which may not be "
    "that of their creation. `model.state_dict()` of a model that has loaded the file restores it."
)
_OURS_SORTED = (
    "The modules of the hkx model are in the order of their names, as `jax.jit` returns them, which may not be that of "
    "their creation. `params = {m: params[m] for m in model.init(key, x)}` restores it."
)
_PAIRINGS: dict[Any, dict[str, list[str]] | None] = {}
"""The pairs of earlier conversions, by the paths in both models; None where conversions differed."""


@contextlib.contextmanager
def _pairing(
    groups: dict[str, Weights], theirs_sorted: bool, target: Mapping[str, Any], names: Names | None
) -> Iterator[list[tuple[str, str, Weights]]]:
    """Pairs each PyTorch module with an hkx module, and remembers the pairs if the conversion succeeds with them."""
    entries = [p.partition(":")[2].rpartition("/")[::2] for p in target if p.startswith("params:")]
    ours_sorted = entries == sorted(entries)
    paths = (frozenset((prefix, key) for prefix, local in groups.items() for key in local), frozenset(target))
    if names is None and (theirs_sorted or ours_sorted):
        names = _PAIRINGS.get(paths)
    by_order = names is None and len(groups) > 1
    advice = [_THEIRS_SORTED] * (by_order and theirs_sorted) + [_OURS_SORTED] * (by_order and ours_sorted)
    try:
        if by_order:
            _check_order(groups if theirs_sorted else {}, target if ours_sorted else {})
        pairs = _paired(groups, target, names)
        yield pairs
    except WeightMismatchError as error:
        if advice:
            error.args = ("\n".join([str(error).removesuffix(f"\n{ADVICE}"), *advice, ADVICE]),)
        raise
    found: dict[str, list[str]] = {}
    for prefix, module, _ in pairs:
        found.setdefault(prefix, []).append(module)
    _PAIRINGS[paths] = found if _PAIRINGS.get(paths, found) == found else None


def _check_order(groups: Mapping[str, Weights], target: Mapping[str, Any]) -> None:
    """Raises an error if modules of one model, sorted by name, may be paired with several modules of the other.

    If both are sorted, and both have such modules, these are paired in the order of their names.
    """
    theirs, ours = _of_one_shape(groups), _of_one_shape({m: _unit(target, m) for m in _units(target)})
    if bool(theirs) != bool(ours):
        raise WeightMismatchError(
            f"The weights of the {'PyTorch' if theirs else 'hkx'} model have been sorted by name, which does not tell "
            "in which order these were created, whose weights have the same shapes",
            theirs or ours,
            ADVICE,
        )


def _of_one_shape(modules: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Modules whose weights have equal shapes, and whose names differ by more than a number."""
    alike: dict[Any, dict[str, str]] = {}  # by their weights: one module for each name without its numbers
    for module, weights in modules.items():
        shapes = frozenset((name.removeprefix(f"params:{module}/"), tuple(w.shape)) for name, w in weights.items())
        alike.setdefault(shapes, {}).setdefault(re.sub(r"_?\d+", "", module), module)
    return [module for kinds in alike.values() if len(kinds) > 1 for module in kinds.values()]


def _paired(
    groups: dict[str, Weights], target: Mapping[str, Any], names: Names | None
) -> list[tuple[str, str, Weights]]:
    """Pairs each PyTorch module with an hkx module; a recurrent network of several layers is several modules."""
    split = {prefix: layers_of(prefix, local) for prefix, local in groups.items()}
    if names is None:
        theirs = [(prefix, local) for prefix, layers in split.items() for local in layers]
        # For hkx modules without weights, the order is known, but not their position among the others.
        theirs.sort(key=lambda pair: set(pair[1]) <= {*averages_of(""), "num_batches_tracked"})
        ours = _units(target) + _without_weights(target)
        if len(ours) != len(theirs):
            listed = [f"PyTorch: {prefix or '(the model itself)'}" for prefix, _ in theirs] + [
                f"hkx: {m}" for m in ours
            ]
            raise WeightMismatchError("The models have different numbers of layers", listed, ADVICE)
        return [(prefix, module, local) for (prefix, local), module in zip(theirs, ours, strict=True)]
    _checked(names, "names", "a dict of the names of hkx modules by the paths of PyTorch's")
    if left := sorted(set(groups) - set(names)):
        listed = [repr(prefix) for prefix in left]
        raise WeightMismatchError("These modules of the PyTorch model are not in `names`", listed)
    _known(names, groups, "names")
    out = []
    for prefix, layers in split.items():
        given = names[prefix]
        modules = [given] if isinstance(given, str) else given
        if not isinstance(modules, Sequence):
            raise WeightMismatchError(f"`names[{prefix!r}]` must be a name or a sequence of names, got {given!r}")
        if len(modules) != len(layers):
            raise WeightMismatchError(f"{prefix!r} has {len(layers)} layers, and `names` gives {len(modules)} modules")
        if empty := [m for m in modules if not _unit(target, m)]:
            raise WeightMismatchError(f"The hkx model has no module {empty[0]!r}; it has these", _units(target))
        out += [(prefix, module, local) for module, local in zip(modules, layers, strict=True)]
    return out


def _known(paths: Any, groups: Collection[str], argument: str = "transposed") -> Any:
    """`paths`, if all of them are paths of modules of the PyTorch model."""
    if paths is None:
        return None
    if isinstance(paths, str) or not isinstance(paths, Collection):
        raise WeightMismatchError(f"`{argument}` must be a collection of paths, got {paths!r}")
    if left := [repr(path) for path in paths if path not in groups]:
        raise WeightMismatchError(f"These modules in `{argument}` are not in the PyTorch model", left)
    return paths


def _flipped(prefix: str, module: str, transposed: Collection[str] | None) -> bool:
    return "transpose" in module.rpartition("/")[2] if transposed is None else prefix in transposed
