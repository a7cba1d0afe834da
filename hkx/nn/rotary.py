"""Rotary position embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module
from hkx.arguments import Flag, Float, Num, Number, PositiveSize
from hkx.errors import LeadingDimensionsError


class RotaryEmbedding(Module):
    """Rotates pairs of features by angles that grow with the position, so that dot products depend only on distances.

    Feature i is paired with feature `i + D / 2`, and both are rotated by `position * theta**(-2 i / D)`.

    Lower frequencies f, of wavelength `2 pi / f`, let a model read longer texts than it was trained on. `scaling`
    describes them like `rope_scaling` of a Hugging Face `config.json`, by `rope_type` and entries for each type:

    - `"linear"`: `factor`; `f / factor`.
    - `"llama3"`: `factor`, `low_freq_factor`, `high_freq_factor`, `original_max_position_embeddings`; `f / factor` for
      wavelengths above `original / low`, f for those below `original / high`, and a mixture between them.
    - `"yarn"`: `factor`, `original_max_position_embeddings`, and optionally `beta_fast`, `beta_slow`, `truncate`,
      `attention_factor`, `mscale`, `mscale_all_dim`; f for features that turn more than `beta_fast` times in the
      original length, `f / factor` for those that turn fewer than `beta_slow` times, and a mixture between them. The
      result is multiplied by `attention_factor`, by default `0.1 log(factor) + 1`.

    References: Su et al. (2021), "RoFormer: enhanced transformer with rotary position embedding", arXiv:2104.09864;
    Chen et al. (2023), "Extending context window of large language models via positional interpolation",
    arXiv:2306.15595; Peng et al. (2023), "YaRN: efficient context window extension of large language models",
    arXiv:2309.00071; Grattafiori et al. (2024), "The Llama 3 herd of models", arXiv:2407.21783.

    Args:
      theta: the base of the angles.
      name: the module's name.
      size: the number of features that are rotated, even; the others stay as they are. All by default.
      scaling: lower frequencies, as above; None for none.
      interleaved: whether feature 2i is paired with feature `2i + 1` instead.

    Raises:
      ValueError: if `scaling` has an unknown type or entry, or lacks one.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> f = hkx.transform(lambda x: hkx.RotaryEmbedding()(x))
      >>> print(f.apply({}, None, jnp.ones([1, 1, 1, 4]))[0, 0, 0])  # at position 0 nothing is rotated
      [1. 1. 1. 1.]
    """

    def __init__(
        self,
        theta: Number[float, "(0, inf)"] = 10000.0,
        name: str | None = None,
        *,
        size: PositiveSize | None = None,
        scaling: Mapping[str, Any] | None = None,
        interleaved: Flag = False,
    ):
        super().__init__(name=name)
        self.theta = theta
        self.size = size
        self.scaling = {} if scaling is None else checked_scaling(scaling)
        self.interleaved = interleaved

    def __call__(self, x: Float[jax.Array, "... T N D"], positions: Num[jax.Array, "..."] | None = None) -> jax.Array:
        """Rotates queries or keys.

        Args:
          x: `[..., T, N, D]`: queries or keys of N heads. D must be even.
          positions: `int[T]`, or `int[..., T]` that broadcasts to `x`; `0 … T - 1` by default.

        Returns:
          An array of the shape and dtype of `x`; the angles are computed in float32.

        Raises:
          InvalidRankError: if `x` has fewer than three dimensions.
          LeadingDimensionsError: if `positions` does not broadcast to `x`.
          InputDTypeError: if `x` is of integers.
          ValueError: if D is odd or smaller than `size`, or `theta` is not positive.
        """
        *leading, length, _, size = x.shape
        if size % 2:
            raise ValueError(f"The last dimension of `x` must be even, got the shape {x.shape}.")
        positions = jnp.arange(length) if positions is None else positions
        places = zip(reversed(positions.shape), reversed([*leading, length]), strict=False)
        if not 1 <= positions.ndim < x.ndim - 1 or any(n not in (1, size) for n, size in places):
            expected = f"one that broadcasts to {(*leading, length)}, the shape of `x` without heads and features"
            raise LeadingDimensionsError("RotaryEmbedding", "positions", positions.shape, expected)
        rotated_size = size if self.size is None else self.size
        if rotated_size % 2 or rotated_size > size:
            raise ValueError(f"`size` must be even and at most {size}, the last dimension of `x`, got {rotated_size}.")
        cos, sin = self.cos_and_sin(positions, rotated_size)
        cos, sin = (jnp.expand_dims(y, tuple(range(x.ndim - y.ndim))) for y in (cos, sin))
        return rotated(x, cos, sin, self.interleaved)

    def cos_and_sin(self, positions: jax.Array, size: int | None = None) -> tuple[jax.Array, jax.Array]:
        """Cosines and sines of all angles, which the layers of a model can share.

        Args:
          positions: `int[..., T]`.
          size: the number of features that are rotated; `size` of the constructor by default.

        Returns:
          Two arrays `float32[..., T, 1, size / 2]`, to be passed to `hkx.nn.rotary.rotated`.

        Raises:
          ValueError: if `size` is given neither here nor to the constructor.
        """
        size = self.size if size is None else size
        if size is None:
            raise ValueError("`size` must be given, here or to the constructor.")
        frequencies, factor = scaled_frequencies(self.theta, size, self.scaling)
        frequencies = frequencies.astype(np.float32).reshape((1,) * positions.ndim + (-1,))
        angles = jnp.expand_dims(positions.astype(jnp.float32)[..., None] * frequencies, -2)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return (cos, sin) if factor == 1 else (cos * factor, sin * factor)


def rotated(x: jax.Array, cos: jax.Array, sin: jax.Array, interleaved: bool = False) -> jax.Array:
    """Rotates pairs of the first features of `x`, `[..., N, D]`, by angles with these cosines and sines."""
    size = 2 * cos.shape[-1]
    turned, rest = (x, None) if size == x.shape[-1] else (x[..., :size], x[..., size:])
    wide = jnp.asarray(turned, jnp.promote_types(x.dtype, jnp.float32))
    first, second = (wide[..., ::2], wide[..., 1::2]) if interleaved else jnp.split(wide, 2, axis=-1)
    pair = first * cos - second * sin, second * cos + first * sin
    out = jnp.stack(pair, -1).reshape(turned.shape) if interleaved else jnp.concatenate(pair, axis=-1)
    out = out.astype(x.dtype)
    return out if rest is None else jnp.concatenate([out, rest], axis=-1)


_ENTRIES = {  # the entries that each type needs, and those that it may have
    "default": ((), ()),
    "linear": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
    "yarn": (
        ("factor", "original_max_position_embeddings"),
        ("beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"),
    ),
}


def checked_scaling(scaling: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `scaling` without what is None, if it has a known type and this type's entries."""
    if not isinstance(scaling, Mapping):
        raise TypeError(f"`scaling` must be a mapping, as `rope_scaling` of a config.json, got {scaling!r}.")
    entries = {name: value for name, value in scaling.items() if value is not None}
    old = entries.pop("type", None)
    kind = entries.setdefault("rope_type", "default" if old is None else old)
    if kind not in _ENTRIES:
        raise ValueError(f"The `rope_type` of `scaling` must be one of {', '.join(map(repr, _ENTRIES))}, got {kind!r}.")
    needed, optional = _ENTRIES[kind]
    missing = [name for name in needed if name not in entries]
    unknown = sorted(set(entries) - {"rope_type", *needed, *optional})
    if missing or unknown:
        wrong = " and ".join(
            f"{verb} {', '.join(map(repr, names))}" for verb, names in (("lacks", missing), ("has", unknown)) if names
        )
        raise ValueError(f"`scaling` of type {kind!r} {wrong}: its entries are {', '.join((*needed, *optional))}.")
    return entries


def scaled_frequencies(theta: Any, size: int, scaling: Mapping[str, Any]) -> tuple[np.ndarray, float]:
    """The frequencies of `size / 2` pairs, and the factor by which rotated features are multiplied."""
    frequencies = theta ** (-np.arange(0, size, 2) / size)
    kind = scaling.get("rope_type", "default")
    if kind == "linear":
        return frequencies / scaling["factor"], 1.0
    if kind == "llama3":
        return _llama3(frequencies, **{name: value for name, value in scaling.items() if name != "rope_type"}), 1.0
    if kind == "yarn":
        return _yarn(frequencies, theta, scaling), _yarn_factor(scaling)
    return frequencies, 1.0


def _llama3(
    frequencies: np.ndarray,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> np.ndarray:
    turns = original_max_position_embeddings * frequencies / (2 * math.pi)  # in the original length
    unscaled = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    return unscaled * frequencies + (1 - unscaled) * frequencies / factor


def _yarn(frequencies: np.ndarray, theta: float, scaling: Mapping[str, Any]) -> np.ndarray:
    pairs = len(frequencies)

    def pair_that_turns(times: float) -> float:
        """The index of the pair that turns so often in the original length."""
        return pairs * math.log(scaling["original_max_position_embeddings"] / (2 * math.pi * times)) / math.log(theta)

    fast, slow = scaling.get("beta_fast") or 32, scaling.get("beta_slow") or 1
    first, last = pair_that_turns(fast), pair_that_turns(slow)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    scaled = np.clip((np.arange(pairs) - first) / max(last - first, 1e-3), 0, 1)
    return (1 - scaled) * frequencies + scaled * frequencies / scaling["factor"]


def yarn_scale(factor: float, multiplier: float = 1.0) -> float:
    """`0.1 multiplier log(factor) + 1`: how YaRN sharpens attention over a text that is longer by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0


def _yarn_factor(scaling: Mapping[str, Any]) -> float:
    if "attention_factor" in scaling:
        return scaling["attention_factor"]
    factor, mscale, mscale_all = scaling["factor"], scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and mscale_all:
        return yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all)
    return yarn_scale(factor)
