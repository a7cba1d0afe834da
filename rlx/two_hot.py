"""Values as probabilities over a row of bins: two-hot encodings and the pairs built on them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.checks import check, check_ascending, check_numbers, known, require, whole_number
from rlx.core.types import Array, ArrayLike
from rlx.value_transforms import TxPair, check_pair, compose_tx

# Values between two bins share their mass in proportion to distance / (bin width + guard), as RLax's do, so that the
# projections of both agree to the last digit.
_WIDTH_GUARD = 1e-5


def check_bins(function: str, min_value: Any, max_value: Any, num_bins: Any, least: int) -> int:
    """Checks the bins of a pair: finite ends in ascending order, and a number of bins, which is returned."""
    check_numbers(function, min_value=(min_value, "(-inf, inf)"), max_value=(max_value, "(-inf, inf)"))
    check_ascending(function, min_value=min_value, max_value=max_value)
    return whole_number(function, "num_bins", num_bins, f"at least {least}", least)


def transform_to_2hot(scalar: ArrayLike, min_value: float, max_value: float, num_bins: int) -> Array:
    """Spreads values over the two nearest of a row of evenly spaced bins, so that their mean is the value.

    Args:
      scalar: numbers [...]; clipped to [min_value, max_value].
      min_value: position of the first bin.
      max_value: position of the last bin, more than `min_value`.
      num_bins: number of bins, at least 2.

    Returns:
      Probabilities [..., num_bins].

    Raises:
      ArgumentError: if `scalar` is not an array of numbers, the ends are not in order, or there are fewer than 2 bins.

    Example:
      >>> import rlx
      >>> [round(p, 3) for p in rlx.transform_to_2hot(0.25, 0.0, 2.0, 3).tolist()]
      [0.75, 0.25, 0.0]
    """
    (scalar,) = check("transform_to_2hot", scalar=(scalar, "[*E]", "real"))
    num_bins = check_bins("transform_to_2hot", min_value, max_value, num_bins, 2)
    wide = scalar.astype(jnp.promote_types(scalar.dtype, jnp.float32))  # half precision would blur the position
    width = (max_value - min_value) / (num_bins - 1)
    position = (jnp.clip(wide, min_value, max_value) - min_value) / width
    low, high = jnp.floor(position), jnp.ceil(position)
    weight_low = (high - position) * (width / (width + _WIDTH_GUARD))
    return _two_hot(low, high, weight_low, num_bins).astype(scalar.dtype)


def transform_from_2hot(probs: ArrayLike, min_value: float, max_value: float, num_bins: int) -> Array:
    """The mean of probabilities over evenly spaced bins: Σ_i p_i (min_value + i · width).

    Args:
      probs: numbers [..., num_bins].
      min_value: position of the first bin.
      max_value: position of the last bin, more than `min_value`.
      num_bins: number of bins.

    Returns:
      Floats [...]; of a single vector [num_bins] as of a row of one, [1], which is what RLax does.

    Raises:
      ArgumentError: if the last axis of `probs` is not of length `num_bins`, `probs` is not numbers, or the ends are
        not in order.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.transform_from_2hot(jnp.array([[0.75, 0.25, 0.0]]), 0.0, 2.0, 3).tolist()
      [0.25]
    """
    num_bins = check_bins("transform_from_2hot", min_value, max_value, num_bins, 1)
    (probs,) = check("transform_from_2hot", probs=(probs, f"[*E, {num_bins}]", "real"))
    return jnp.atleast_1d(_mean(probs, _bins(min_value, max_value, num_bins, probs)))


def twohot_pair(min_value: float, max_value: float, num_bins: int) -> TxPair:
    """The pair of `transform_to_2hot` and `transform_from_2hot` for given bins.

    Args:
      min_value: position of the first bin.
      max_value: position of the last bin, more than `min_value`.
      num_bins: number of bins, at least 2.

    Returns:
      A pair between values [...] and probabilities [..., num_bins]; a single vector of probabilities gives [1].

    Raises:
      OptionError: if the ends are not in order, or there are fewer than 2 bins.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> pair = rlx.twohot_pair(-1.0, 1.0, 3)
      >>> [round(x, 4) for x in pair.apply_inv(pair.apply(jnp.array([0.5]))).tolist()]
      [0.5]
    """
    return _two_hot_pair("twohot_pair", min_value, max_value, num_bins)


def muzero_pair(min_value: float, max_value: float, num_bins: int, tx: TxPair) -> TxPair:
    """MuZero's pair: squash a value, then spread it over evenly spaced bins.

    From "Mastering Atari, Go, Chess and Shogi by Planning with a Learned Model", Schrittwieser et al. 2019
    (https://arxiv.org/abs/1911.08265), appendix F.

    Args:
      min_value: position of the first bin, in squashed space.
      max_value: position of the last bin, in squashed space, more than `min_value`.
      num_bins: number of bins, at least 2.
      tx: the pair that squashes, for instance `rlx.SIGNED_HYPERBOLIC_PAIR`.

    Returns:
      A pair between values [...] and probabilities [..., num_bins]; a single vector of probabilities gives [1].

    Raises:
      OptionError: if the ends are not in order, or there are fewer than 2 bins.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> pair = rlx.muzero_pair(-5.0, 5.0, 11, rlx.SIGNED_HYPERBOLIC_PAIR)
      >>> [round(x, 2) for x in pair.apply_inv(pair.apply(jnp.array([3.0]))).tolist()]
      [3.0]
    """
    check_pair("muzero_pair", tx, "tx")
    return compose_tx(tx, _two_hot_pair("muzero_pair", min_value, max_value, num_bins))


def unbiased_transform_pair(min_value: float, max_value: float, num_bins: int, tx: TxPair) -> TxPair:
    """A pair like `muzero_pair` that squashes the positions of the bins, not the values.

    The mean of what `apply` gives is then the value itself, so averaging over targets stays unbiased.

    Args:
      min_value: position of the first bin, in squashed space.
      max_value: position of the last bin, in squashed space, more than `min_value`.
      num_bins: number of bins, at least 2.
      tx: the pair whose inverse spaces the bins, for instance `rlx.SIGNED_HYPERBOLIC_PAIR`.

    Returns:
      A pair between values [...] and probabilities [..., num_bins]. A single value counts as a row of one, so it gives
      [1, num_bins], and a single vector of probabilities gives [1].

    Raises:
      OptionError: if the ends are not in order, or there are fewer than 2 bins.

    Example:
      >>> import rlx
      >>> pair = rlx.unbiased_transform_pair(-5.0, 5.0, 11, rlx.SIGNED_HYPERBOLIC_PAIR)
      >>> [round(x, 4) for x in pair.apply_inv(pair.apply(3.0)).tolist()]
      [3.0]
    """
    name = "unbiased_transform_pair"
    num_bins = check_bins(name, min_value, max_value, num_bins, 2)
    check_pair(name, tx, "tx")
    with jax.ensure_compile_time_eval():
        bins = known(tx.apply_inv(jnp.linspace(min_value, max_value, num_bins)))
    if bins is not None:
        require(name, "tx", bool((bins[1:] >= bins[:-1]).all()), tx, "a pair whose inverse keeps the bins in order")
    ends_and_tx = min_value, max_value, num_bins, tx
    return TxPair(functools.partial(_to_unbiased, *ends_and_tx), functools.partial(_from_unbiased, *ends_and_tx))


def _to_unbiased(min_value: float, max_value: float, num_bins: int, tx: TxPair, x: ArrayLike) -> Array:
    (x,) = check("unbiased_transform_pair.apply", x=(x, "[*E]", "real"))
    x = jnp.atleast_1d(x)
    # In half precision neighbouring bins may round to one number.
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    bins = tx.apply_inv(_bins(min_value, max_value, num_bins, wide))
    wide = jnp.clip(wide, bins[0], bins[-1])
    low = jnp.clip(jnp.searchsorted(bins, wide, side="right") - 1, 0, num_bins - 2)
    gap = bins[low + 1] - bins[low]
    # Bins that the inverse squeezes into one number share its mass.
    weight_low = jnp.where(gap > 0, (bins[low + 1] - wide) / jnp.where(gap > 0, gap, 1), jnp.where(gap == 0, 0.5, gap))
    return _two_hot(low, low + 1, weight_low, num_bins).astype(x.dtype)


def _from_unbiased(min_value: float, max_value: float, num_bins: int, tx: TxPair, probs: ArrayLike) -> Array:
    (probs,) = check("unbiased_transform_pair.apply_inv", probs=(probs, f"[*E, {num_bins}]", "real"))
    return jnp.atleast_1d(_mean(probs, tx.apply_inv(_bins(min_value, max_value, num_bins, probs))))


def _two_hot_pair(function: str, min_value: float, max_value: float, num_bins: int) -> TxPair:
    num_bins = check_bins(function, min_value, max_value, num_bins, 2)
    bins = {"min_value": min_value, "max_value": max_value, "num_bins": num_bins}
    return TxPair(functools.partial(transform_to_2hot, **bins), functools.partial(transform_from_2hot, **bins))


def _bins(min_value: float, max_value: float, num_bins: int, like: Array) -> Array:
    return jnp.linspace(min_value, max_value, num_bins, dtype=like.dtype)


def _mean(probs: Array, bins: Array) -> Array:
    """Σ_i p_i b_i as a sum: a matrix product would round its inputs on accelerators."""
    return jnp.sum(probs * jnp.broadcast_to(bins, probs.shape), axis=-1)


def _two_hot(low: Array, high: Array, weight_low: Array, num_bins: int) -> Array:
    classes = jnp.arange(num_bins).reshape((1,) * low.ndim + (num_bins,))
    weight_low = weight_low[..., None]
    is_low, is_high = (low[..., None] == classes), (high[..., None] == classes)
    zero = jnp.where(jnp.isnan(weight_low), weight_low, 0)  # a NaN shows in all bins
    return jnp.where(is_low, weight_low, zero) + jnp.where(is_high, 1 - weight_low, zero)
