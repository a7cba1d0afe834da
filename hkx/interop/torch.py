"""The weights of PyTorch models as hkx parameters, and the other way. Needs the package `torch`.

The layers are told apart by the names and shapes of their weights. Images are `[N, H, W, C]` in hkx and `[N, C, H, W]`
in PyTorch; weights are converted, inputs are up to the caller, and so is the order in which a `Flatten` between a
convolution and a linear layer sees them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from hkx.interop.cells import ResetAfterGRU as ResetAfterGRU
from hkx.interop.errors import WeightMismatchError

Weights = dict[str, np.ndarray]
Tree = Mapping[str, Mapping[str, Any]]
Names = Mapping[str, str | Sequence[str]]
_ADVICE = "Say which PyTorch module is which hkx module: names={'torch.prefix': 'hkx/module', …}."
_WARM = 10_000


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
    `RMSNorm`, `PReLU`, `Embedding`, `LSTM`
    (to `hkx.LSTM`), `GRU` (to `hkx.interop.torch.ResetAfterGRU`), `MultiheadAttention`, and models made of them.

    Args:
      state_dict: what `model.state_dict()` returns, of tensors or arrays.
      params: the parameters of the hkx model, from `init`; only their names, shapes and dtypes are used, and
        `jax.ShapeDtypeStruct` will do.
      state: the state of the hkx model, if it has any.
      names: for each PyTorch module, by its path in the model, the name of the hkx module; for a recurrent network of
        several layers, a sequence of names. None pairs them in order: the modules in the order of `state_dict` with
        those in the order of `params`, which is the order of their creation where `init` itself returned it.
      transposed: the paths in the PyTorch model of its transposed convolutions, whose kernels are flipped. None takes
        those whose hkx module has the word `transpose` in its name; weights do not tell.

    Returns:
      New `params` and `state`. The moving averages of batch normalisation continue as PyTorch's would, with a counter
      of at least 10,000, so that they are not corrected for their start.

    Raises:
      WeightMismatchError: if a weight is left over, missing or of another shape; the message names it.

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
    groups = _groups(_arrays(state_dict))
    found: Weights = {}
    for prefix, module, local in _paired(groups, target, names):
        unit, flip = _unit(target, module), _flipped(prefix, module, transposed)
        for path, value in _to_hkx(prefix, local, module, unit, flip).items():
            found[path] = _fitted(value, path, target[path]) if path in target else value
    if unknown := sorted(set(found) - set(target)):
        raise WeightMismatchError("The hkx model has no place for these weights of the PyTorch model", unknown, _ADVICE)
    if missing := sorted(set(target) - set(found)):
        raise WeightMismatchError("The PyTorch model has no weights for these of the hkx model", missing, _ADVICE)
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
      state_dict: the weights of the PyTorch model, for their names, shapes and dtypes.
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
    like = _arrays(state_dict)
    out: dict[str, torch.Tensor] = {}
    used: set[str] = set()
    for prefix, module, local in _paired(_groups(like), source, names):
        unit, flip = _unit(source, module), _flipped(prefix, module, transposed)
        weights = _to_torch(prefix, local, module, unit, flip)
        expected = set(_to_hkx(prefix, local, module, unit, flip))
        if absent := sorted(expected - set(unit)):
            raise WeightMismatchError("The hkx model has no weights for these of the PyTorch model", absent, _ADVICE)
        used |= expected
        for key, value in weights.items():
            path = f"{prefix}.{key}" if prefix else key
            fitted = _fitted(value, path, like[path])
            if jnp.issubdtype(fitted.dtype, jnp.inexact) and fitted.dtype.itemsize < 4:
                fitted = fitted.astype(np.float32)  # torch does not know NumPy's extensions by bfloat16 and the like
            out[path] = torch.tensor(np.array(fitted), dtype=torch.as_tensor(state_dict[path]).dtype)
    if left := sorted(set(source) - used):
        raise WeightMismatchError("The PyTorch model has no place for these weights of the hkx model", left, _ADVICE)
    return {key: out[key] for key in state_dict}


def _arrays(state_dict: Mapping[str, Any]) -> Weights:
    return {key: _array(key, value) for key, value in state_dict.items()}


def _array(key: str, value: Any) -> np.ndarray:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    if value.is_floating_point() and value.dtype not in (torch.float16, torch.float32, torch.float64):
        value = value.float()  # NumPy has no bfloat16; nothing is lost
    try:
        return value.detach().cpu().numpy()
    except (NotImplementedError, RuntimeError, TypeError) as error:  # on the device "meta", sparse, quantised
        raise WeightMismatchError(f"The weight {key!r} of PyTorch has no values to convert", [str(error)]) from error


def _flat(params: Tree, state: Tree) -> dict[str, Any]:
    trees = {"params": params, "state": state}
    return {f"{s}:{m}/{n}": v for s, tree in trees.items() for m, entries in tree.items() for n, v in entries.items()}


def _filled(tree: Tree, found: Weights, section: str) -> dict[str, dict[str, jax.Array]]:
    return {
        # A copy: PyTorch changes its weights in place.
        m: {n: jnp.array(found[f"{section}:{m}/{n}"], leaf.dtype) for n, leaf in entries.items()}
        for m, entries in tree.items()
    }


def _fitted(value: np.ndarray, path: str, like: Any) -> np.ndarray:
    """`value` in the shape of `like`, where that differs in axes of size 1 at most."""
    same = [s for s in value.shape if s != 1] == [s for s in like.shape if s != 1]
    if not same:
        raise WeightMismatchError(
            f"The weight for {path!r} has shape {value.shape}, expected {tuple(like.shape)}", advice=_ADVICE
        )
    return value.reshape(like.shape)


def _groups(state_dict: Weights) -> dict[str, Weights]:
    """The weights of each PyTorch module, by its path and their own names."""
    attention = {k.rpartition(".")[0] for k in state_dict if k.rpartition(".")[2].startswith(("in_proj_", "q_proj_"))}
    groups: dict[str, Weights] = {}
    for key, value in state_dict.items():
        prefix, _, name = key.rpartition(".")
        outer, _, last = prefix.rpartition(".")
        if last == "out_proj" and outer in attention:
            prefix, name = outer, f"out_proj.{name}"
        groups.setdefault(prefix, {})[name] = value
    return groups


def _unit(target: Mapping[str, Any], module: str) -> dict[str, Any]:
    """What belongs to one hkx module and to those below it, by path."""
    return {p: v for p, v in target.items() if p.partition(":")[2].startswith(f"{module}/")}


_AVERAGES = re.compile(r"state:(.*)/~/(mean|var)_ema/")


def _without_weights(target: Mapping[str, Any]) -> list[str]:
    """The hkx modules that hold moving averages and no weights."""
    found = dict.fromkeys(match.group(1) for path in target if (match := _AVERAGES.match(path)))
    return [module for module in found if not any(p.startswith(f"params:{module}/") for p in target)]


def _units(target: Mapping[str, Any]) -> list[str]:
    """The hkx modules that hold weights, in order; the parts of an attention count as one."""
    bundles = dict.fromkeys(p.partition(":")[2].rpartition("/")[0] for p in target if p.startswith("params:"))
    out = {}
    for bundle in bundles:
        outer = bundle.rpartition("/")[0]
        part = outer and all(f"{outer}/{p}" in bundles for p in ("query", "key", "value", "linear"))
        out[outer if part else bundle] = None
    return list(out)


def _paired(
    groups: dict[str, Weights], target: Mapping[str, Any], names: Names | None
) -> list[tuple[str, str, Weights]]:
    """Which PyTorch module is which hkx module; a recurrent network of several layers is several modules."""
    split = {prefix: _layers(prefix, local) for prefix, local in groups.items()}
    if names is None:
        theirs = [(prefix, local) for prefix, layers in split.items() for local in layers]
        # Of the modules of hkx without weights the place among the others is not known, but the order is.
        theirs.sort(key=lambda pair: set(pair[1]) <= {*_averages(""), "num_batches_tracked"})
        ours = _units(target) + _without_weights(target)
        if len(ours) != len(theirs):
            listed = [f"PyTorch: {prefix or '(the model itself)'}" for prefix, _ in theirs] + [
                f"hkx: {m}" for m in ours
            ]
            raise WeightMismatchError("The models have different numbers of layers", listed, _ADVICE)
        return [(prefix, module, local) for (prefix, local), module in zip(theirs, ours, strict=True)]
    if left := sorted(set(groups) - set(names)):
        raise WeightMismatchError("These modules of the PyTorch model are not in `names`", left)
    if left := sorted(set(names) - set(groups)):
        raise WeightMismatchError("These modules in `names` are not in the PyTorch model", left)
    out = []
    for prefix, layers in split.items():
        given = names[prefix]
        modules = [given] if isinstance(given, str) else list(given)
        if len(modules) != len(layers):
            raise WeightMismatchError(f"{prefix!r} has {len(layers)} layers, and `names` gives {len(modules)} modules")
        if empty := [m for m in modules if not _unit(target, m)]:
            raise WeightMismatchError(f"The hkx model has no module {empty[0]!r}; it has these", _units(target))
        out += [(prefix, module, local) for module, local in zip(modules, layers, strict=True)]
    return out


def _layers(prefix: str, local: Weights) -> list[Weights]:
    """The layers of a recurrent network, which PyTorch keeps in one module; anything else is one layer."""
    numbers = [int(k.rpartition("_l")[2]) for k in local if k.startswith("weight_ih_l") and k[11:].isdigit()]
    if not numbers:
        return [local]
    out = [{k: v for k, v in local.items() if k.endswith(f"_l{n}")} for n in range(max(numbers) + 1)]
    taken = {k for layer in out for k in layer if not k.startswith("weight_hr_l")}  # that projects the output
    if left := sorted(set(local) - taken):
        raise WeightMismatchError(
            "These weights of a recurrent network have no counterpart in hkx",
            [f"{prefix}.{k}".lstrip(".") for k in left],
        )
    return out


def _flipped(prefix: str, module: str, transposed: Collection[str] | None) -> bool:
    return "transpose" in module.rpartition("/")[2] if transposed is None else prefix in transposed


def _kernel(flip: bool) -> tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]:
    def turned(w: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.flip(w, axes) if flip else w

    def to_hkx(w: np.ndarray) -> np.ndarray:
        return turned(w, tuple(range(2, w.ndim))).transpose(*range(2, w.ndim), 1, 0)

    def to_torch(w: np.ndarray) -> np.ndarray:
        return turned(w, tuple(range(w.ndim - 2))).transpose(w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))

    return to_hkx, to_torch


def _same(w: np.ndarray) -> np.ndarray:
    return w


_TRANSPOSED = (np.transpose, np.transpose)
_UNCHANGED = (_same, _same)
Rules = dict[str, tuple[str, tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]]]


def _rules(local: Weights, module: str, unit: Mapping[str, Any], flip: bool) -> Rules:
    """For a layer whose weights correspond one to one: PyTorch's name to hkx's path and the two conversions."""
    own = f"params:{module}"
    ndim = local["weight"].ndim if "weight" in local else 1
    if f"{own}/scale" in unit or f"{own}/offset" in unit:  # a normalisation, of any number of axes
        ndim = 1
    if f"{own}/alpha" in unit:
        return {"weight": (f"{own}/alpha", _UNCHANGED)}
    if ndim >= 3:
        return {"weight": (f"{own}/w", _kernel(flip)), "bias": (f"{own}/b", _UNCHANGED)}
    if ndim == 2 and f"{own}/embeddings" in unit:
        return {"weight": (f"{own}/embeddings", _UNCHANGED)}
    if ndim == 2:
        return {"weight": (f"{own}/w", _TRANSPOSED), "bias": (f"{own}/b", _UNCHANGED)}
    return {"weight": (f"{own}/scale", _UNCHANGED), "bias": (f"{own}/offset", _UNCHANGED)}


def _averages(module: str) -> dict[str, str]:
    return {"running_mean": f"state:{module}/~/mean_ema", "running_var": f"state:{module}/~/var_ema"}


def _recurrent(local: Weights) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The weights of one layer and its two biases, zero where there are none."""
    by_kind = {k.rpartition("_l")[0]: v for k, v in local.items()}
    w_i, w_h = by_kind["weight_ih"], by_kind["weight_hh"]
    zero = np.zeros(len(w_i), w_i.dtype)
    return w_i, w_h, by_kind.get("bias_ih", zero), by_kind.get("bias_hh", zero)


def _swapped(w: np.ndarray) -> np.ndarray:
    """PyTorch's order of the gates of an LSTM along the first axis (i, f, g, o) to hkx's (i, g, f, o), or back."""
    i, second, third, o = np.split(w, 4)
    return np.concatenate([i, third, second, o])


def _forget(size: int) -> np.ndarray:
    """What `hkx.LSTM` adds to the bias of the forget gate, in PyTorch's order of gates."""
    return np.concatenate([np.zeros(size), np.ones(size), np.zeros(2 * size)])


def _gates(prefix: str, local: Weights) -> int:
    w_i, w_h, *_ = _recurrent(local)
    gates = len(w_i) // w_h.shape[1]
    if gates not in (3, 4):
        raise WeightMismatchError(f"{prefix!r} is neither an LSTM nor a GRU: it has {gates} gates")
    return gates


def _check_gru(prefix: str, module: str, unit: Mapping[str, Any]) -> None:
    if f"params:{module}/b_h" not in unit:
        raise WeightMismatchError(
            f"{prefix!r} is a GRU, which {module!r} cannot compute",
            advice="PyTorch's GRU applies its reset gate after the product: use `hkx.interop.torch.ResetAfterGRU`.",
        )


def _to_hkx(prefix: str, local: Weights, module: str, unit: Mapping[str, Any], flip: bool) -> Weights:
    """The weights of one PyTorch layer by the paths of hkx."""
    own = f"params:{module}"
    if any(k.startswith("weight_ih") for k in local):
        w_i, w_h, b_i, b_h = _recurrent(local)
        if _gates(prefix, local) == 3:
            _check_gru(prefix, module, unit)
            return {f"{own}/w_i": w_i.T, f"{own}/w_h": w_h.T, f"{own}/b_i": b_i, f"{own}/b_h": b_h}
        linear = own if own.endswith("/linear") else f"{own}/linear"
        bias = b_i + b_h - _forget(w_h.shape[1])
        return {f"{linear}/w": _swapped(np.concatenate([w_i, w_h], axis=1)).T, f"{linear}/b": _swapped(bias)}
    if "out_proj.weight" in local:
        return _attention_to_hkx(prefix, local, own)
    rules = _rules(local, module, unit, flip)
    out = {}
    for key, value in local.items():
        if key in _averages(module):
            ema = _averages(module)[key]
            count = max(int(local.get("num_batches_tracked", np.array(0))), _WARM)
            out |= {f"{ema}/average": value, f"{ema}/hidden": value, f"{ema}/counter": np.array(count)}
        elif key != "num_batches_tracked":
            if key not in rules:
                raise WeightMismatchError("hkx has no counterpart to this weight", [f"{prefix}.{key}"])
            path, (to_hkx, _) = rules[key]
            out[path] = to_hkx(value)
    return out


def _attention_to_hkx(prefix: str, local: Weights, own: str) -> Weights:
    known = {"in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight"}
    if left := sorted(set(local) - known - {"out_proj.weight", "out_proj.bias"}):
        raise WeightMismatchError("hkx has no counterpart to these weights", [f"{prefix}.{k}" for k in left])
    parts = ("query", "key", "value")
    if "in_proj_weight" in local:
        inputs = np.split(local["in_proj_weight"], 3)
    else:
        inputs = [local[f"{p[0]}_proj_weight"] for p in parts]
    out = {f"{own}/{p}/w": w.T for p, w in zip(parts, inputs, strict=True)}
    if "in_proj_bias" in local:
        biases = np.split(local["in_proj_bias"], 3)
        out |= {f"{own}/{p}/b": b for p, b in zip(parts, biases, strict=True)}
    out[f"{own}/linear/w"] = local["out_proj.weight"].T
    if "out_proj.bias" in local:
        out[f"{own}/linear/b"] = local["out_proj.bias"]
    return out


def _to_torch(prefix: str, like: Weights, module: str, unit: Mapping[str, Any], flip: bool) -> Weights:
    """The weights of one hkx module by the names that PyTorch gives them in its layer."""
    own = f"params:{module}"

    def get(path: str) -> np.ndarray:
        if path not in unit:
            raise WeightMismatchError("The hkx model has no weight for this of the PyTorch model", [path], _ADVICE)
        return np.asarray(unit[path])

    if any(k.startswith("weight_ih") for k in like):
        return _recurrent_to_torch(prefix, like, module, unit, get)
    if "out_proj.weight" in like:
        parts, out = ("query", "key", "value"), {}
        weights = [get(f"{own}/{p}/w").T for p in parts]
        if "in_proj_weight" in like:
            out["in_proj_weight"] = np.concatenate(weights)
        else:
            out |= {f"{p[0]}_proj_weight": w for p, w in zip(parts, weights, strict=True)}
        if "in_proj_bias" in like:
            out["in_proj_bias"] = np.concatenate([get(f"{own}/{p}/b") for p in parts])
        out["out_proj.weight"] = get(f"{own}/linear/w").T
        return out | ({"out_proj.bias": get(f"{own}/linear/b")} if "out_proj.bias" in like else {})
    out, averages, rules = {}, _averages(module), _rules(like, module, unit, flip)
    for key in like:
        if key == "num_batches_tracked":
            out[key] = get(f"{averages['running_mean']}/counter")
        elif key in averages:
            out[key] = get(f"{averages[key]}/average")
        elif key in rules:
            path, (_, to_torch) = rules[key]
            out[key] = to_torch(get(path))
    return out


def _recurrent_to_torch(
    prefix: str, like: Weights, module: str, unit: Mapping[str, Any], get: Callable[[str], np.ndarray]
) -> Weights:
    own, suffix = f"params:{module}", "_l" + next(iter(like)).rpartition("_l")[2]
    if _gates(prefix, like) == 3:
        _check_gru(prefix, module, unit)
        w_i, w_h, b_i, b_h = (get(f"{own}/{n}").T for n in ("w_i", "w_h", "b_i", "b_h"))
    else:
        linear = own if own.endswith("/linear") else f"{own}/linear"
        size = like[f"weight_hh{suffix}"].shape[1]
        w_i, w_h = np.split(_swapped(get(f"{linear}/w").T), [-size], axis=1)
        b_i = _swapped(get(f"{linear}/b")) + _forget(size)
        b_h = np.zeros_like(b_i)
    if f"bias_ih{suffix}" not in like and np.any(b_i + b_h):
        raise WeightMismatchError("The PyTorch model has no bias to take this weight of the hkx model", [f"{module}/b"])
    named = {"weight_ih": w_i, "weight_hh": w_h, "bias_ih": b_i, "bias_hh": b_h}
    return {k: named[k.rpartition("_l")[0]] for k in like}
