"""HL-Gauss: learning values by classification over bins, for which a network predicts logits."""

import functools
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.arguments import as_arrays
from rlx.core.errors import ShapeError
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array, settings_in, wide_dtype
from rlx.divergences import categorical_cross_entropy
from rlx.two_hot import balanced_mean, binned_pair, check_bins, evenly_spaced, one_by_one, require_bins
from rlx.value_transforms import TxPair, require_pair

# With JAX's own derivative, JAX 0.12 refuses gradients in a `jax.shard_map` that checks what varies.
_erf = jax.custom_jvp(jax.lax.erf)
_erf.defjvps(lambda tangent, _, x: 2 / math.sqrt(math.pi) * jnp.exp(-x * x) * tangent)


@operator()
def transform_to_hl_gauss(
    scalar: Real[Array, "*E"],
    min_value: Real[Array | float, "", "in (-inf, inf)"],
    max_value: Real[Array | float, "", "in (-inf, inf)"],
    num_bins: Annotated[int, "at least 1"],
    sigma: Real[Array | float, "", "in (0, inf)"] | None = None,
) -> Float[Array, "*E {num_bins}"]:
    """Spreads values over bins with a Gaussian: p_i ∝ Φ((b_{i+1} - x) / σ) - Φ((b_i - x) / σ).

    Φ is the standard normal distribution function and b_0 … b_n are the edges of bins of equal width between
    `min_value` and `max_value`; the probabilities are normalised to sum to one. From "Stop Regressing: Training Value
    Functions via Classification for Scalable Deep RL", Farebrother et al. 2024 (https://arxiv.org/abs/2403.03950),
    after Imani and White 2018.

    Args:
      scalar: values, clipped to [min_value, max_value].
      min_value: lower edge of the first bin.
      max_value: upper edge of the last bin, greater than `min_value`.
      num_bins: number of bins, at least 1.
      sigma: σ > 0, in the units of the values; by default ¾ of the bin width, as the paper recommends.

    Returns:
      Probabilities of the bins, along a new last axis.

    Example:
      >>> import rlx
      >>> [round(p, 3) for p in rlx.transform_to_hl_gauss(0.5, -1.0, 2.0, 3).tolist()]
      [0.241, 0.519, 0.241]
    """
    require_bins(min_value, max_value, num_bins, 1)
    wide = wide_dtype(scalar.dtype)
    min_value, max_value, sigma = settings_in(wide, min_value, max_value, sigma)
    sigma = 0.75 * (max_value - min_value) / num_bins if sigma is None else sigma
    # The mean of the Gaussian is clipped to the bins: far outside, all bins would have mass 0, and the result be 0 / 0.
    mean = jnp.clip(scalar.astype(wide), min_value, max_value)[..., None]
    edges = jnp.linspace(min_value, max_value, num_bins + 1, dtype=wide)
    edges = edges.reshape((1,) * scalar.ndim + edges.shape)
    below = _erf((edges - mean) / (math.sqrt(2.0) * sigma))
    mass = jnp.diff(below, axis=-1)
    return (mass / (below[..., -1:] - below[..., :1])).astype(scalar.dtype)


@operator()
def transform_from_hl_gauss(
    probs: Float[Array, "*E {num_bins}"],
    min_value: Real[Array | float, "", "in (-inf, inf)"],
    max_value: Real[Array | float, "", "in (-inf, inf)"],
    num_bins: Annotated[int, "at least 1"],
) -> Float[Array, "*E"]:
    """The mean of a distribution over bins, with each bin at its centre: Σ_i p_i (b_i + b_{i+1}) / 2.

    It inverts `rlx.transform_to_hl_gauss` for values several σ away from the ends; near an end, where part of the
    Gaussian is cut off, the mean is biased slightly inwards. From "Stop Regressing: Training Value Functions via
    Classification for Scalable Deep RL", Farebrother et al. 2024 (https://arxiv.org/abs/2403.03950).

    Args:
      probs: probabilities of the bins.
      min_value: lower edge of the first bin.
      max_value: upper edge of the last bin, greater than `min_value`.
      num_bins: number of bins.

    Returns:
      The means.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.transform_from_hl_gauss(jnp.array([0.0, 0.5, 0.5]), -1.0, 2.0, 3))
      1.0
    """
    require_bins(min_value, max_value, num_bins, 1)
    half_width = 0.5 * (max_value - min_value) / num_bins
    centres = evenly_spaced(min_value + half_width, max_value - half_width, num_bins)
    return balanced_mean(probs, centres)


def hl_gauss_pair(min_value: float, max_value: float, num_bins: int, sigma: float | None = None) -> TxPair:
    """The pair of `rlx.transform_to_hl_gauss` and `rlx.transform_from_hl_gauss` for given bins.

    With a transform in front, `rlx.compose_tx(tx, rlx.hl_gauss_pair(...))`, the bins lie in the transformed space. Use
    the pair with `rlx.classification_value_loss`. From "Stop Regressing: Training Value Functions via Classification
    for Scalable Deep RL", Farebrother et al. 2024 (https://arxiv.org/abs/2403.03950).

    Args:
      min_value: lower edge of the first bin.
      max_value: upper edge of the last bin, greater than `min_value`.
      num_bins: number of bins, at least 1.
      sigma: σ > 0; by default ¾ of the bin width.

    Returns:
      A pair between values [...] and probabilities [..., num_bins].

    Example:
      >>> import rlx
      >>> pair = rlx.hl_gauss_pair(-10.0, 10.0, 51)
      >>> round(float(pair.apply_inv(pair.apply(3.3))), 2)
      3.3
    """
    num_bins = check_bins("hl_gauss_pair", min_value, max_value, num_bins, 1)
    if sigma is not None:
        as_arrays("hl_gauss_pair", sigma=(sigma, Real[Array, "*P", "in (0, inf)"]))
    bins = {"min_value": min_value, "max_value": max_value, "num_bins": num_bins}
    apply = functools.partial(transform_to_hl_gauss.kernel, sigma=sigma, **bins)
    apply_inv = functools.partial(transform_from_hl_gauss.kernel, **bins)
    return binned_pair("hl_gauss_pair", num_bins, apply, apply_inv)


@operator()
def classification_value_loss(
    value_logits: Float[Array, "K"], target: Real[Array, ""], tx_pair: TxPair, stop_target_gradients: bool = True
) -> Float[Array, ""]:
    """Cross entropy between a target spread over bins and the prediction: -Σ_i p_i(target) log softmax(value_logits)_i.

    From "Stop Regressing: Training Value Functions via Classification for Scalable Deep RL", Farebrother et al. 2024
    (https://arxiv.org/abs/2403.03950). The predicted value is tx_pair.apply_inv(softmax(value_logits)).

    Args:
      value_logits: predicted logits of the bins.
      target: the target value.
      tx_pair: pair between values and probabilities of K bins, such as `rlx.hl_gauss_pair`, `rlx.twohot_pair`,
        `rlx.symlog_twohot_pair` or `rlx.symexp_twohot_pair`.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> pair = rlx.twohot_pair(-1.0, 1.0, 3)
      >>> round(float(rlx.classification_value_loss(jnp.zeros(3), 0.5, pair)), 4)
      1.0986
    """
    require_pair(tx_pair)
    target = target.astype(jnp.result_type(value_logits, target))  # a Python number has no dtype of its own
    labels = one_by_one(tx_pair).apply(target)
    _require_as_many(labels, value_logits)
    return categorical_cross_entropy.kernel(maybe_stop(labels, stop_target_gradients), value_logits)


@operator(masks={"discount_t": ("q_logits_t",)})
def classification_q_learning(
    q_logits_tm1: Float[Array, "A K"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_logits_t: Float[Array, "A K"],
    tx_pair: TxPair,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Q-learning by classification: the bins of action a_tm1 are trained on r_t + γ_t max_a Q(s_t, a).

    Q(s, a) = h⁻¹(softmax(logits of a)) for the pair (h, h⁻¹), and the loss is `rlx.classification_value_loss`. Unlike
    categorical Q-learning (C51) it bootstraps from a value, not from a distribution. From "Stop Regressing: Training
    Value Functions via Classification for Scalable Deep RL", Farebrother et al. 2024 (https://arxiv.org/abs/2403.03950).

    Args:
      q_logits_tm1: logits of the bins of each action at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_logits_t: logits of the target network at time t.
      tx_pair: pair between values and probabilities of K bins, such as `rlx.hl_gauss_pair`.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits, pair = jnp.zeros([2, 4]), rlx.hl_gauss_pair(-1.0, 1.0, 4)
      >>> round(float(rlx.classification_q_learning(logits, 0, 0.5, 0.9, logits, pair)), 4)
      1.3863
    """
    require_pair(tx_pair)
    _require_as_many(jax.eval_shape(one_by_one(tx_pair).apply, r_t), q_logits_t)
    q_t = tx_pair.apply_inv(jax.nn.softmax(q_logits_t))
    target = r_t + discount_t * jnp.max(q_t)
    return classification_value_loss.kernel(q_logits_tm1[a_tm1], target, tx_pair, stop_target_gradients)


def _require_as_many(labels: Any, logits: Array) -> None:
    """Raises an error unless the pair that produced the labels has one bin per logit."""
    if labels.shape[-1:] != logits.shape[-1:]:
        raise ShapeError(
            f"argument `tx_pair` has shape {list(labels.shape)}, expected shape [K] with K = {logits.shape[-1]}, one "
            "bin for each logit."
        )
