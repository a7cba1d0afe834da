"""The names of the weights of each kind of layer in PyTorch and in hkx, and the conversions between them.

All arrays are NumPy's. A PyTorch layer is represented by a dict of its weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hkx.errors.interop import WeightMismatchError

Weights = dict[str, np.ndarray]
ADVICE = "Say which PyTorch module is which hkx module: names={'torch.prefix': 'hkx/module', …}."
_STARTED = np.iinfo(np.int32).max  # a counter of values with which no average is corrected for its start


_RECURRENT = re.compile(r"((?:weight|bias)_[ih]h)((?:_l\d+(?:_reverse)?)?)")


def layers_of(prefix: str, local: Weights) -> list[Weights]:
    """The layers of a recurrent network, which are one module in PyTorch; any other module is a single layer.

    The two directions of a bidirectional layer are two layers, the forward one first.
    """
    if not any(k.startswith("weight_ih") for k in local):
        return [local]
    found = {k: match for k in local if (match := _RECURRENT.fullmatch(k))}
    if left := sorted(f"{prefix}.{k}".lstrip(".") for k in set(local) - set(found)):
        raise WeightMismatchError("These weights of a recurrent network have no counterpart in hkx", left)
    suffixes = sorted({m.group(2) for m in found.values()}, key=lambda s: (len(s.removesuffix("_reverse")), s))
    layers = [{k: local[k] for k, m in found.items() if m.group(2) == suffix} for suffix in suffixes]
    for layer in layers:
        _gates(prefix, layer)
    return layers


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
    """For layers whose weights correspond one to one: from PyTorch's name to hkx's path and the two conversions."""
    own = f"params:{module}"
    ndim = local["weight"].ndim if "weight" in local else 1
    if f"{own}/scale" in unit or f"{own}/offset" in unit:  # a normalisation, for any number of axes
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


def averages_of(module: str) -> dict[str, str]:
    return {"running_mean": f"state:{module}/~/mean_ema", "running_var": f"state:{module}/~/var_ema"}


def _recurrent(prefix: str, local: Weights) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The weights of one layer and its two biases, which are zero if there are none."""
    by_kind = {_kind(k): v for k, v in local.items()}
    if absent := sorted({"weight_ih", "weight_hh"} - set(by_kind)):
        raise WeightMismatchError(f"The recurrent network {prefix!r} of the PyTorch model lacks a weight", absent)
    w_i, w_h = by_kind["weight_ih"], by_kind["weight_hh"]
    zero = np.zeros(len(w_i), w_i.dtype)
    return w_i, w_h, by_kind.get("bias_ih", zero), by_kind.get("bias_hh", zero)


def _kind(key: str) -> str:
    """Shortens `"weight_ih_l0_reverse"` to `"weight_ih"`."""
    return key.partition("_l")[0]


def _swapped(w: np.ndarray) -> np.ndarray:
    """Converts the gates of an LSTM along the first axis from PyTorch's order (i, f, g, o) to (i, g, f, o), or back."""
    i, second, third, o = np.split(w, 4)
    return np.concatenate([i, third, second, o])


def _forget(size: int) -> np.ndarray:
    """The constant that `hkx.LSTM` adds to the bias of the forget gate, in PyTorch's order of gates."""
    return np.concatenate([np.zeros(size), np.ones(size), np.zeros(2 * size)])


def _gates(prefix: str, local: Weights) -> int:
    w_i, w_h, *_ = _recurrent(prefix, local)
    gates = len(w_i) // w_h.shape[1]
    if gates == 1:
        raise WeightMismatchError(
            f"{prefix!r} is a recurrent network without gates",
            advice="`torch.nn.RNN` takes tanh unless told otherwise and `hkx.VanillaRNN` relu; weights do not tell.",
        )
    if gates not in (3, 4):
        raise WeightMismatchError(f"{prefix!r} is neither an LSTM nor a GRU: it has {gates} gates")
    return gates


def _check_gru(prefix: str, module: str, unit: Mapping[str, Any]) -> None:
    if f"params:{module}/b_h" not in unit:
        raise WeightMismatchError(
            f"{prefix!r} is a GRU, which {module!r} cannot compute",
            advice="PyTorch's GRU applies its reset gate after the product: use `hkx.interop.torch.ResetAfterGRU`.",
        )


def weights_to_hkx(prefix: str, local: Weights, module: str, unit: Mapping[str, Any], flip: bool) -> Weights:
    """Converts the weights of one PyTorch layer to those of an hkx module, by path."""
    own = f"params:{module}"
    if any(k.startswith("weight_ih") for k in local):
        w_i, w_h, b_i, b_h = _recurrent(prefix, local)
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
        if key in averages_of(module):
            ema = averages_of(module)[key]
            out |= {f"{ema}/average": value, f"{ema}/hidden": value, f"{ema}/counter": np.array(_STARTED)}
        elif key != "num_batches_tracked":
            if key not in rules:
                raise WeightMismatchError("hkx has no counterpart to this weight", [f"{prefix}.{key}".lstrip(".")])
            path, (to_hkx, _) = rules[key]
            out[path] = to_hkx(value)
    return out


def _attention_to_hkx(prefix: str, local: Weights, own: str) -> Weights:
    known = {"in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight"}
    if left := sorted(set(local) - known - {"out_proj.weight", "out_proj.bias"}):
        raise WeightMismatchError(
            "hkx has no counterpart to these weights", [f"{prefix}.{k}".lstrip(".") for k in left]
        )
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


def weights_to_torch(prefix: str, like: Weights, module: str, unit: Mapping[str, Any], flip: bool) -> Weights:
    """Converts the weights of one hkx module to those of a PyTorch layer, by name."""
    own = f"params:{module}"

    def get(path: str) -> np.ndarray:
        if path not in unit:
            raise WeightMismatchError("The hkx model has no weight for this of the PyTorch model", [path], ADVICE)
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
    out, averages, rules = {}, averages_of(module), _rules(like, module, unit, flip)
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
    own, by_kind = f"params:{module}", {_kind(k): v for k, v in like.items()}
    if _gates(prefix, like) == 3:
        _check_gru(prefix, module, unit)
        w_i, w_h, b_i, b_h = (get(f"{own}/{n}").T for n in ("w_i", "w_h", "b_i", "b_h"))
    else:
        linear = own if own.endswith("/linear") else f"{own}/linear"
        size = by_kind["weight_hh"].shape[1]
        w_i, w_h = np.split(_swapped(get(f"{linear}/w").T), [-size], axis=1)
        b_i = _swapped(get(f"{linear}/b")) + _forget(size)
        b_h = np.zeros_like(b_i)
    if "bias_ih" not in by_kind and np.any(b_i + b_h):
        raise WeightMismatchError("The PyTorch model has no bias to take this weight of the hkx model", [f"{module}/b"])
    named = {"weight_ih": w_i, "weight_hh": w_h, "bias_ih": b_i, "bias_hh": b_h}
    return {k: named[_kind(k)] for k in like}
