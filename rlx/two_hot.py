"""Values as probabilities over bins: the two-hot encodings of MuZero and DreamerV3."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.annotations import Float, Real
from rlx.core.arguments import as_arrays, known, require, require_ascending, whole
from rlx.core.arrays import at_indices
from rlx.core.operator import operator
from rlx.core.tracing import traced_once
from rlx.core.types import Array, ArrayLike, settings_in, wide_dtype
from rlx.value_transforms import SIGNED_LOGP1_PAIR, TxPair, compose_tx, require_pair

# Values between two bins share their mass in proportion to distance / (bin width + guard), as RLax's do, so that the
# projections of both agree to the last digit.
_WIDTH_GUARD = 1e-5
_END = Real[Array, "*P", "in (-inf, inf)"]


@operator()
def transform_to_2hot(
    scalar: Real[Array, "*E"],
    min_value: Real[Array | float, "", "in (-inf, inf)"],
    max_value: Real[Array | float, "", "in (-inf, inf)"],
    num_bins: Annotated[int, "at least 2"],
) -> Float[Array, "*E {num_bins}"]:
    """Spreads each value over its two nearest evenly spaced bins, so that the mean equals the value.

    Args:
      scalar: values, clipped to [min_value, max_value].
      min_value: position of the first bin.
      max_value: position of the last bin, greater than `min_value`.
      num_bins: number of bins, at least 2.

    Returns:
      Probabilities of the bins, along a new last axis.

    Example:
      >>> import rlx
      >>> [round(p, 3) for p in rlx.transform_to_2hot(0.25, 0.0, 2.0, 3).tolist()]
      [0.75, 0.25, 0.0]
    """
    require_bins(min_value, max_value, num_bins, 2)
    wide = scalar.astype(wide_dtype(scalar.dtype))  # half precision would lose the position between bins
    min_value, max_value = settings_in(wide.dtype, min_value, max_value)
    width = (max_value - min_value) / (num_bins - 1)
    position = (jnp.clip(wide, min_value, max_value) - min_value) / width
    # Rounding may place the largest value after the last bin.
    low, high = jnp.floor(position), jnp.minimum(jnp.ceil(position), num_bins - 1)
    weight_low = (high - position) * (width / (width + _WIDTH_GUARD))
    return _two_hot(low, high, weight_low, num_bins).astype(scalar.dtype)


@operator()
def transform_from_2hot(
    probs: Real[Array, "*E {num_bins}"],
    min_value: Real[Array | float, "", "in (-inf, inf)"],
    max_value: Real[Array | float, "", "in (-inf, inf)"],
    num_bins: Annotated[int, "at least 1"],
) -> Float[Array, "*E"]:
    """The mean of a distribution over evenly spaced bins: Σ_i p_i (min_value + i · width).

    Args:
      probs: probabilities of the bins.
      min_value: position of the first bin.
      max_value: position of the last bin, greater than `min_value`.
      num_bins: number of bins.

    Returns:
      The means; a single vector [num_bins] is treated as a batch of one and gives [1], as in RLax.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.transform_from_2hot(jnp.array([[0.75, 0.25, 0.0]]), 0.0, 2.0, 3).tolist()
      [0.25]
    """
    require_bins(min_value, max_value, num_bins, 1)
    return jnp.atleast_1d(_mean(probs, _bins(min_value, max_value, num_bins, probs)))


def twohot_pair(min_value: float, max_value: float, num_bins: int) -> TxPair:
    """The pair of `transform_to_2hot` and `transform_from_2hot` for given bins.

    Args:
      min_value: position of the first bin.
      max_value: position of the last bin, greater than `min_value`.
      num_bins: number of bins, at least 2.

    Returns:
      A pair between values [...] and probabilities [..., num_bins]; a single vector of probabilities gives [1].

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
      max_value: position of the last bin, in squashed space, greater than `min_value`.
      num_bins: number of bins, at least 2.
      tx: the squashing pair, such as `rlx.SIGNED_HYPERBOLIC_PAIR`.

    Returns:
      A pair between values [...] and probabilities [..., num_bins]; a single vector of probabilities gives [1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> pair = rlx.muzero_pair(-5.0, 5.0, 11, rlx.SIGNED_HYPERBOLIC_PAIR)
      >>> [round(x, 2) for x in pair.apply_inv(pair.apply(jnp.array([3.0]))).tolist()]
      [3.0]
    """
    require_pair(tx, "tx", "muzero_pair")
    apply, apply_inv = compose_tx(tx, _two_hot_pair("muzero_pair", min_value, max_value, num_bins))
    return binned_pair("muzero_pair", num_bins, apply, apply_inv)


def unbiased_transform_pair(min_value: float, max_value: float, num_bins: int, tx: TxPair) -> TxPair:
    """A pair like `muzero_pair` that squashes the positions of the bins, not the values.

    The mean of the output of `apply` is then the value itself, so averaging over targets stays unbiased.

    Args:
      min_value: position of the first bin, in squashed space.
      max_value: position of the last bin, in squashed space, greater than `min_value`.
      num_bins: number of bins, at least 2.
      tx: the pair whose inverse spaces the bins, such as `rlx.SIGNED_HYPERBOLIC_PAIR`.

    Returns:
      A pair between values [...] and probabilities [..., num_bins]. A single value is treated as a batch of one and
      gives [1, num_bins], and a single vector of probabilities gives [1].

    Example:
      >>> import rlx
      >>> pair = rlx.unbiased_transform_pair(-5.0, 5.0, 11, rlx.SIGNED_HYPERBOLIC_PAIR)
      >>> [round(x, 4) for x in pair.apply_inv(pair.apply(3.0)).tolist()]
      [3.0]
    """
    name = "unbiased_transform_pair"
    num_bins = check_bins(name, min_value, max_value, num_bins, 2)
    require_pair(tx, "tx", name)
    with jax.ensure_compile_time_eval():
        bins = known(tx.apply_inv(jnp.linspace(min_value, max_value, num_bins)))
    if bins is not None:
        in_order = bool((bins[1:] >= bins[:-1]).all())
        require(in_order, "tx", tx, "a pair whose inverse keeps the bins in order", name)
    squashed = min_value, max_value, num_bins, tx
    apply, apply_inv = functools.partial(_to_unbiased, *squashed), functools.partial(_from_unbiased, *squashed)
    return binned_pair(name, num_bins, apply, apply_inv)


def symlog_twohot_pair(min_value: float = -20.0, max_value: float = 20.0, num_bins: int = 255) -> TxPair:
    """Squashes a value with symlog, then spreads it over its two nearest evenly spaced bins.

    `apply` is twohot(symlog(x)), symlog(x) = sign(x) log(|x| + 1), and `apply_inv` symexp(Σ_i p_i b_i): the mean is
    taken over squashed values. From the first version of "Mastering Diverse Domains through World Models", Hafner et
    al. 2023 (https://arxiv.org/abs/2301.04104v1), DreamerV3.

    Args:
      min_value: position of the first bin, in squashed space.
      max_value: position of the last bin, in squashed space, greater than `min_value`.
      num_bins: number of bins, at least 2.

    Returns:
      A pair between values [...] and probabilities [..., num_bins].

    Example:
      >>> import rlx
      >>> pair = rlx.symlog_twohot_pair()
      >>> round(float(pair.apply_inv(pair.apply(1000.0))), 0)
      1000.0
    """
    check_bins("symlog_twohot_pair", min_value, max_value, num_bins, 2)
    return one_by_one(muzero_pair(min_value, max_value, num_bins, SIGNED_LOGP1_PAIR))


def symexp_twohot_pair(min_value: float = -20.0, max_value: float = 20.0, num_bins: int = 255) -> TxPair:
    """Spreads a value over its two nearest exponentially spaced bins: b_i = symexp(min + i · width).

    Unlike in `rlx.symlog_twohot_pair`, the mean is taken over the values themselves, Σ_i p_i b_i, so averages of
    targets are learnt without bias. Bins of opposite sign are summed in pairs, so that a uniform prediction over
    symmetric bins gives 0 although single bins reach 5·10⁸. From "Mastering Diverse Domains through World Models",
    Hafner et al. 2023 (https://arxiv.org/abs/2301.04104), DreamerV3, which uses these 255 bins for rewards and values.

    Args:
      min_value: position of the first bin, before symexp.
      max_value: position of the last bin, before symexp, greater than `min_value`.
      num_bins: number of bins, at least 2.

    Returns:
      A pair between values [...] and probabilities [..., num_bins].

    Example:
      >>> import rlx
      >>> pair = rlx.symexp_twohot_pair()
      >>> round(float(pair.apply_inv(pair.apply(1000.0))), 0)
      1000.0
    """
    num_bins = check_bins("symexp_twohot_pair", min_value, max_value, num_bins, 2)
    apply = one_by_one(unbiased_transform_pair(min_value, max_value, num_bins, SIGNED_LOGP1_PAIR)).apply
    apply_inv = functools.partial(_mean_of_symexp_bins, min_value, max_value, num_bins)
    return binned_pair("symexp_twohot_pair", num_bins, apply, apply_inv)


def require_bins(min_value: Any, max_value: Any, num_bins: int, least: int, function: str = "") -> None:
    """Requires the ends to be in ascending order, and enough bins."""
    require_ascending(function=function, min_value=min_value, max_value=max_value)
    require(num_bins >= least, "num_bins", num_bins, f"at least {least}", function)


def check_bins(function: str, min_value: Any, max_value: Any, num_bins: Any, least: int) -> int:
    """Checks the bins of a pair: finite ends in ascending order, and a number of bins, which is returned."""
    as_arrays(function, min_value=(min_value, _END), max_value=(max_value, _END))
    num_bins = whole("num_bins", num_bins, f"at least {least}", function, least)
    require_bins(min_value, max_value, num_bins, least, function)
    return num_bins


def binned_pair(
    function: str, num_bins: int, apply: Callable[[Array], Array], apply_inv: Callable[[Array], Array]
) -> TxPair:
    """A pair of kernels, which takes anything convertible to values, or to probabilities of `num_bins` bins."""
    return TxPair(
        functools.partial(_apply, f"{function}.apply", apply),
        functools.partial(_apply_inv, f"{function}.apply_inv", num_bins, apply_inv),
    )


def one_by_one(pair: TxPair) -> TxPair:
    """A pair that maps [] to [K] and back, whereas RLax's pairs treat a single value or vector as a batch of one."""
    return TxPair(functools.partial(_of_one, pair.apply), functools.partial(_of_one, pair.apply_inv))


def evenly_spaced(start: Any, stop: Any, num: int) -> np.ndarray | Array:
    """Evenly spaced numbers, in double precision unless an end is traced."""
    linspace = jnp.linspace if known(start) is None or known(stop) is None else np.linspace
    return linspace(start, stop, num)


def balanced_mean(probs: Array, bins: np.ndarray | Array) -> Array:
    """Σ_i p_i b_i, where the first term is added to the last, the second to the last but one, and so on.

    Large terms of opposite sign then cancel before they can swallow small ones.
    """
    wide = wide_dtype(probs.dtype)
    terms = probs.astype(wide) * jnp.asarray(bins, wide).reshape((1,) * (probs.ndim - 1) + bins.shape)
    half, odd = divmod(terms.shape[-1], 2)
    pairs = terms[..., :half] + jnp.flip(terms[..., half + odd :], axis=-1)
    return jnp.sum(jnp.concatenate([pairs, terms[..., half : half + odd]], axis=-1), axis=-1).astype(probs.dtype)


def _apply(function: str, kernel: Callable[[Array], Array], scalar: ArrayLike) -> Array:
    return kernel(*as_arrays(function, scalar=(scalar, Real[Array, "*E"])))


def _apply_inv(function: str, num_bins: int, kernel: Callable[[Array], Array], probs: ArrayLike) -> Array:
    return kernel(*as_arrays(function, probs=(probs, Real[Array, f"*E {num_bins}"])))


def _of_one(function: Callable[[Array], Array], x: ArrayLike) -> Array:
    return function(jnp.asarray(x)[None])[0]


def _two_hot_pair(function: str, min_value: float, max_value: float, num_bins: int) -> TxPair:
    num_bins = check_bins(function, min_value, max_value, num_bins, 2)
    bins = {"min_value": min_value, "max_value": max_value, "num_bins": num_bins}
    apply = functools.partial(transform_to_2hot.kernel, **bins)
    return binned_pair(function, num_bins, apply, functools.partial(transform_from_2hot.kernel, **bins))


def _to_unbiased(min_value: float, max_value: float, num_bins: int, tx: TxPair, x: Array) -> Array:
    x = jnp.atleast_1d(x)
    # In half precision, neighbouring bins may round to the same number.
    wide = x.astype(wide_dtype(x.dtype))
    bins = tx.apply_inv(_bins(min_value, max_value, num_bins, wide))
    wide = jnp.clip(wide, bins[0], bins[-1])
    low = jnp.clip(jnp.searchsorted(bins, wide, side="right", method="compare_all") - 1, 0, num_bins - 2)
    above = at_indices(bins, low + 1)
    gap = above - at_indices(bins, low)
    # Bins that the inverse transform maps to the same number share its mass.
    weight_low = jnp.where(gap > 0, (above - wide) / jnp.where(gap > 0, gap, 1), jnp.where(gap == 0, 0.5, gap))
    return _two_hot(low, low + 1, weight_low, num_bins).astype(x.dtype)


def _from_unbiased(min_value: float, max_value: float, num_bins: int, tx: TxPair, probs: Array) -> Array:
    return jnp.atleast_1d(_mean(probs, tx.apply_inv(_bins(min_value, max_value, num_bins, probs))))


def _mean_of_symexp_bins(min_value: float, max_value: float, num_bins: int, probs: Array) -> Array:
    squashed = evenly_spaced(min_value, max_value, num_bins)
    module = np if isinstance(squashed, np.ndarray) else jnp
    return balanced_mean(probs, module.sign(squashed) * module.expm1(module.abs(squashed)))


def _bins(min_value: Array | float, max_value: Array | float, num_bins: int, like: Array) -> Array:
    return jnp.linspace(min_value, max_value, num_bins, dtype=like.dtype)


@traced_once
def _mean(probs: Array, bins: Array) -> Array:
    """Σ_i p_i b_i as a sum: a matrix product would round its inputs on accelerators."""
    return jnp.sum(probs * jnp.broadcast_to(bins, probs.shape), axis=-1)


def _two_hot(low: Array, high: Array, weight_low: Array, num_bins: int) -> Array:
    dtype, weight_low = weight_low.dtype, weight_low[..., None]
    positions = jnp.arange(num_bins).reshape((1,) * low.ndim + (num_bins,)).astype(dtype)
    is_low, is_high = ((bins.astype(dtype)[..., None] == positions).astype(dtype) for bins in (low, high))
    return is_low * weight_low + is_high * (1 - weight_low)
