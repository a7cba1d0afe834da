"""Learning values by classification: spread a target over bins, and predict the bins by their logits."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.checks import check, check_numbers, known
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import rows_if_used
from rlx.core.types import Array, ArrayLike
from rlx.divergences import categorical_cross_entropy
from rlx.two_hot import check_bins, muzero_pair, unbiased_transform_pair
from rlx.value_transforms import SIGNED_LOGP1_PAIR, TxPair, check_pair


def transform_to_hl_gauss(
    scalar: ArrayLike, min_value: float, max_value: float, num_bins: int, sigma: float | None = None
) -> Array:
    """Spreads values over bins by a Gaussian: p_i ∝ Φ((b_{i+1} - x) / σ) - Φ((b_i - x) / σ).

    Φ is the normal distribution function and b_0 … b_n are the edges of bins of equal width between `min_value` and
    `max_value`; the probabilities are normalised to sum to one. From "Stop Regressing: Training Value Functions via
    Classification for Scalable Deep RL", Farebrother et al. 2024 (https://arxiv.org/abs/2403.03950), after Imani and
    White 2018.

    Args:
      scalar: numbers [...]; clipped to [min_value, max_value].
      min_value: lower edge of the first bin.
      max_value: upper edge of the last bin, more than `min_value`.
      num_bins: number of bins, at least 1.
      sigma: σ > 0, in the unit of the values; by default ¾ of the width of a bin, as the paper recommends.

    Returns:
      Probabilities [..., num_bins].

    Raises:
      ArgumentError: if `scalar` is not an array of numbers, or a setting is out of range.

    Example:
      >>> import rlx
      >>> [round(p, 3) for p in rlx.transform_to_hl_gauss(0.5, -1.0, 2.0, 3).tolist()]
      [0.241, 0.519, 0.241]
    """
    name = "transform_to_hl_gauss"
    (scalar,) = check(name, scalar=(scalar, "[*E]", "real"))
    num_bins = _check_edges(name, min_value, max_value, num_bins, sigma)
    sigma = 0.75 * (max_value - min_value) / num_bins if sigma is None else sigma
    wide = jnp.promote_types(scalar.dtype, jnp.float32)
    # The mean of the Gaussian is clipped to the bins: far outside, all of them would get nothing, and 0 / 0.
    mean = jnp.clip(scalar, min_value, max_value).astype(wide)[..., None]
    edges = jnp.linspace(min_value, max_value, num_bins + 1, dtype=wide)
    edges = edges.reshape((1,) * scalar.ndim + edges.shape)
    below = jax.scipy.special.erf((edges - mean) / (np.sqrt(2.0) * sigma))
    mass = jnp.diff(below, axis=-1)
    return (mass / (below[..., -1:] - below[..., :1])).astype(scalar.dtype)


def transform_from_hl_gauss(probs: ArrayLike, min_value: float, max_value: float, num_bins: int) -> Array:
    """The mean of probabilities over bins, each standing for its centre: Σ_i p_i (b_i + b_{i+1}) / 2.

    It inverts `rlx.transform_to_hl_gauss` for values some σ away from the ends; near an end, where part of the Gaussian
    is cut off, the mean lies a little inward. From "Stop Regressing: Training Value Functions via Classification for
    Scalable Deep RL", Farebrother et al. 2024 (https://arxiv.org/abs/2403.03950).

    Args:
      probs: floats [..., num_bins].
      min_value: lower edge of the first bin.
      max_value: upper edge of the last bin, more than `min_value`.
      num_bins: number of bins.

    Returns:
      Floats [...].

    Raises:
      ArgumentError: if the last axis of `probs` is not of length `num_bins`, or `probs` is not floating point.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.transform_from_hl_gauss(jnp.array([0.0, 0.5, 0.5]), -1.0, 2.0, 3))
      1.0
    """
    num_bins = check_bins("transform_from_hl_gauss", min_value, max_value, num_bins, 1)
    (probs,) = check("transform_from_hl_gauss", probs=(probs, f"[*E, {num_bins}]", "float"))
    half_width = 0.5 * (max_value - min_value) / num_bins
    centres = _linspace(min_value + half_width, max_value - half_width, num_bins)
    return _mean(probs, centres)


def hl_gauss_pair(min_value: float, max_value: float, num_bins: int, sigma: float | None = None) -> TxPair:
    """The pair of `rlx.transform_to_hl_gauss` and `rlx.transform_from_hl_gauss` for given bins.

    With a transform before it, `rlx.compose_tx(tx, rlx.hl_gauss_pair(...))`, the bins lie in the transformed space. Use
    the pair with `rlx.classification_value_loss`. From "Stop Regressing: Training Value Functions via Classification
    for Scalable Deep RL", Farebrother et al. 2024 (https://arxiv.org/abs/2403.03950).

    Args:
      min_value: lower edge of the first bin.
      max_value: upper edge of the last bin, more than `min_value`.
      num_bins: number of bins, at least 1.
      sigma: σ > 0; by default ¾ of the width of a bin.

    Returns:
      A pair between values [...] and probabilities [..., num_bins].

    Raises:
      OptionError: if a setting is out of range.

    Example:
      >>> import rlx
      >>> pair = rlx.hl_gauss_pair(-10.0, 10.0, 51)
      >>> round(float(pair.apply_inv(pair.apply(3.3))), 2)
      3.3
    """
    num_bins = _check_edges("hl_gauss_pair", min_value, max_value, num_bins, sigma)
    bins = {"min_value": min_value, "max_value": max_value, "num_bins": num_bins}
    return TxPair(
        functools.partial(transform_to_hl_gauss, sigma=sigma, **bins),
        functools.partial(transform_from_hl_gauss, **bins),
    )


def symlog_twohot_pair(min_value: float = -20.0, max_value: float = 20.0, num_bins: int = 255) -> TxPair:
    """Squash a value with symlog, then spread it over the two nearest of evenly spaced bins.

    `apply` is twohot(symlog(x)), symlog(x) = sign(x) log(|x| + 1), and `apply_inv` symexp(Σ_i p_i b_i): the mean is
    taken of squashed values. From the first version of "Mastering Diverse Domains through World Models", Hafner et al.
    2023 (https://arxiv.org/abs/2301.04104v1), DreamerV3.

    Args:
      min_value: position of the first bin, squashed.
      max_value: position of the last bin, squashed, more than `min_value`.
      num_bins: number of bins, at least 2.

    Returns:
      A pair between values [...] and probabilities [..., num_bins].

    Raises:
      OptionError: if a setting is out of range.

    Example:
      >>> import rlx
      >>> pair = rlx.symlog_twohot_pair()
      >>> round(float(pair.apply_inv(pair.apply(1000.0))), 0)
      1000.0
    """
    check_bins("symlog_twohot_pair", min_value, max_value, num_bins, 2)
    return _one_by_one(muzero_pair(min_value, max_value, num_bins, SIGNED_LOGP1_PAIR))


def symexp_twohot_pair(min_value: float = -20.0, max_value: float = 20.0, num_bins: int = 255) -> TxPair:
    """Spread a value over the two nearest of bins that are spaced exponentially: b_i = symexp(min + i · width).

    Unlike in `rlx.symlog_twohot_pair` the mean is taken of the values themselves, Σ_i p_i b_i, so averages of targets
    are learnt without bias. Bins of opposite sign are summed in pairs, so that a uniform prediction over symmetric bins
    gives 0 although single bins reach 5·10⁸. From "Mastering Diverse Domains through World Models", Hafner et al. 2023
    (https://arxiv.org/abs/2301.04104), DreamerV3, which uses these 255 bins for rewards and values.

    Args:
      min_value: position of the first bin, before symexp.
      max_value: position of the last bin, before symexp, more than `min_value`.
      num_bins: number of bins, at least 2.

    Returns:
      A pair between values [...] and probabilities [..., num_bins].

    Raises:
      OptionError: if a setting is out of range.

    Example:
      >>> import rlx
      >>> pair = rlx.symexp_twohot_pair()
      >>> round(float(pair.apply_inv(pair.apply(1000.0))), 0)
      1000.0
    """
    num_bins = check_bins("symexp_twohot_pair", min_value, max_value, num_bins, 2)
    apply = _one_by_one(unbiased_transform_pair(min_value, max_value, num_bins, SIGNED_LOGP1_PAIR)).apply
    return TxPair(apply, functools.partial(_mean_of_symexp_bins, min_value, max_value, num_bins))


def _mean_of_symexp_bins(min_value: float, max_value: float, num_bins: int, probs: ArrayLike) -> Array:
    (probs,) = check("symexp_twohot_pair.apply_inv", probs=(probs, f"[*E, {num_bins}]", "float"))
    squashed = _linspace(min_value, max_value, num_bins)
    module = np if isinstance(squashed, np.ndarray) else jnp
    return _mean(probs, module.sign(squashed) * module.expm1(module.abs(squashed)))


@stoppable
def classification_value_loss(
    value_logits: ArrayLike, target: ArrayLike, tx_pair: TxPair, stop_target_gradients: bool = True
) -> Array:
    """Cross entropy of predicted bins against a target spread over them: -Σ_i p_i(target) log softmax(value_logits)_i.

    From "Stop Regressing: Training Value Functions via Classification for Scalable Deep RL", Farebrother et al. 2024
    (https://arxiv.org/abs/2403.03950). The predicted value is tx_pair.apply_inv(softmax(value_logits)).

    Args:
      value_logits: logits of the bins, floats [K].
      target: the value to learn, number [].
      tx_pair: pair between values and probabilities of K bins, for instance `rlx.hl_gauss_pair`, `rlx.twohot_pair`,
        `rlx.symlog_twohot_pair` or `rlx.symexp_twohot_pair`.
      stop_target_gradients: whether the target is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank or kind, or the pair another number of bins; map over batches with
        `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> pair = rlx.twohot_pair(-1.0, 1.0, 3)
      >>> round(float(rlx.classification_value_loss(jnp.zeros(3), 0.5, pair)), 4)
      1.0986
    """
    value_logits, target = check(
        "classification_value_loss", value_logits=(value_logits, "[K]", "float"), target=(target, "[]", "real")
    )
    _check_bins("classification_value_loss", value_logits, tx_pair)
    labels = maybe_stop(_one_by_one(tx_pair).apply(target), stop_target_gradients)
    return categorical_cross_entropy(labels, value_logits)


@stoppable
def classification_q_learning(
    q_logits_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_logits_t: ArrayLike,
    tx_pair: TxPair,
    stop_target_gradients: bool = True,
) -> Array:
    """Q-learning by classification: the bins of action a_tm1 are trained on r_t + γ_t max_a Q(s_t, a).

    Q(s, a) = h⁻¹(softmax(logits of a)) for the pair (h, h⁻¹), and the loss is `rlx.classification_value_loss`. Unlike
    categorical Q-learning (C51) it bootstraps from a value, not from a distribution. From "Stop Regressing: Training
    Value Functions via Classification for Scalable Deep RL", Farebrother et al. 2024 (https://arxiv.org/abs/2403.03950).

    Args:
      q_logits_tm1: logits of the bins of each action at time t-1, floats [A, K].
      a_tm1: action at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number []; 0 where the episode ended.
      q_logits_t: logits of the target network at time t, floats [A, K].
      tx_pair: pair between values and probabilities of K bins, for instance `rlx.hl_gauss_pair`.
      stop_target_gradients: whether the target is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits, pair = jnp.zeros([2, 4]), rlx.hl_gauss_pair(-1.0, 1.0, 4)
      >>> round(float(rlx.classification_q_learning(logits, 0, 0.5, 0.9, logits, pair)), 4)
      1.3863
    """
    q_logits_tm1, a_tm1, r_t, discount_t, q_logits_t = check(
        "classification_q_learning",
        q_logits_tm1=(q_logits_tm1, "[A, K]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_logits_t=(q_logits_t, "[A, K]", "float"),
    )
    _check_bins("classification_q_learning", q_logits_tm1[0], tx_pair)
    q_t = tx_pair.apply_inv(jax.nn.softmax(rows_if_used(discount_t, q_logits_t)))
    target = r_t + discount_t * jnp.max(q_t)
    return classification_value_loss(q_logits_tm1[a_tm1], target, tx_pair, stop_target_gradients)


def _check_bins(name: str, value_logits: Array, tx_pair: TxPair) -> None:
    """Raises an error unless the pair has as many bins as there are logits."""
    check_pair(name, tx_pair)
    labels = jnp.zeros(jax.eval_shape(_one_by_one(tx_pair).apply, jnp.zeros([], value_logits.dtype)).shape)
    check(name, value_logits=(value_logits, "[K]", "float"), tx_pair=(labels, "[K]", "float"))


def _one_by_one(pair: TxPair) -> TxPair:
    """A pair that maps [] to [K] and back: RLax's treat a single value or vector as a row of one."""
    return TxPair(functools.partial(_of_one, pair.apply), functools.partial(_of_one, pair.apply_inv))


def _of_one(function: Callable[[Array], Array], x: ArrayLike) -> Array:
    return function(jnp.asarray(x)[None])[0]


def _check_edges(name: str, min_value: Any, max_value: Any, num_bins: Any, sigma: Any) -> int:
    if sigma is not None:
        check_numbers(name, sigma=(sigma, "(0, inf)"))
    return check_bins(name, min_value, max_value, num_bins, 1)


def _linspace(start: Any, stop: Any, num: int) -> np.ndarray | Array:
    """Evenly spaced numbers, in double precision unless an end is traced."""
    linspace = jnp.linspace if known(start) is None or known(stop) is None else np.linspace
    return linspace(start, stop, num)


def _mean(probs: Array, bins: np.ndarray | Array) -> Array:
    """Σ_i p_i b_i, where the first term is added to the last, the second to the last but one, and so on.

    Large terms of opposite sign then cancel before they can swallow small ones.
    """
    wide = jnp.promote_types(probs.dtype, jnp.float32)
    terms = probs.astype(wide) * jnp.asarray(bins, wide).reshape((1,) * (probs.ndim - 1) + bins.shape)
    half, odd = divmod(terms.shape[-1], 2)
    pairs = terms[..., :half] + jnp.flip(terms[..., half + odd :], axis=-1)
    return jnp.sum(jnp.concatenate([pairs, terms[..., half : half + odd]], axis=-1), axis=-1).astype(probs.dtype)
