"""Estimators of the KL divergence between a policy and a reference, from log-probabilities of sampled actions."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask
from rlx.core.arrays import half_square
from rlx.core.masking import finite_exponent
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(masks={"mask_t": ("log_probs_t", "ref_log_probs_t")})
def kl_k1(
    log_probs_t: Float[Array, "*E"],
    ref_log_probs_t: Float[Array, "*E"],
    mask_t: Mask[Array, "", "*E"] | None = None,
) -> Float[Array, "*E"]:
    """The estimator k1 of KL(π ‖ π_ref) from actions sampled from π: log π(a) - log π_ref(a).

    It is unbiased, but of high variance and negative for some actions. Its expected gradient is zero: use `kl_k2` or
    `kl_k3` in a loss, or k1 as a penalty in the reward. From "Approximating KL Divergence", Schulman 2020
    (http://joschu.net/blog/kl-approx.html).

    Args:
      log_probs_t: log π(a_t).
      ref_log_probs_t: log π_ref(a_t).
      mask_t: false for entries to ignore: their estimates are 0, and their contents (even NaN) reach no gradient. By
        default all count.

    Returns:
      Elementwise estimates in nats.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.kl_k1(jnp.array([-1.0, -2.0]), jnp.array([-1.5, -1.0])).tolist()
      [0.5, -1.0]
    """
    return log_probs_t - ref_log_probs_t


@operator(masks={"mask_t": ("log_probs_t", "ref_log_probs_t")})
def kl_k2(
    log_probs_t: Float[Array, "*E"],
    ref_log_probs_t: Float[Array, "*E"],
    mask_t: Mask[Array, "", "*E"] | None = None,
) -> Float[Array, "*E"]:
    """The estimator k2 of KL(π ‖ π_ref) from actions sampled from π: ½ (log π(a) - log π_ref(a))².

    It is biased, but of low variance and never negative; near the reference the bias is of third order. Its expected
    gradient is exactly that of KL(π ‖ π_ref). From "Approximating KL Divergence", Schulman 2020
    (http://joschu.net/blog/kl-approx.html).

    Args:
      log_probs_t: log π(a_t).
      ref_log_probs_t: log π_ref(a_t).
      mask_t: false for entries to ignore: their estimates are 0, and their contents (even NaN) reach no gradient. By
        default all count.

    Returns:
      Elementwise estimates in nats.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.kl_k2(jnp.array([-1.0, -2.0]), jnp.array([-1.5, -1.0])).tolist()
      [0.125, 0.5]
    """
    return half_square(log_probs_t - ref_log_probs_t)


@operator(masks={"mask_t": ("log_probs_t", "ref_log_probs_t")})
def kl_k3(
    log_probs_t: Float[Array, "*E"],
    ref_log_probs_t: Float[Array, "*E"],
    mask_t: Mask[Array, "", "*E"] | None = None,
) -> Float[Array, "*E"]:
    """The estimator k3 of KL(π ‖ π_ref) from actions sampled from π: ρ - 1 - log ρ with ρ = π_ref(a) / π(a).

    It is unbiased, of low variance and never negative: it is k1 plus the control variate ρ - 1. Its expected gradient
    is that of KL(π_ref ‖ π). GRPO uses it as a penalty. From "Approximating KL Divergence", Schulman 2020
    (http://joschu.net/blog/kl-approx.html).

    Args:
      log_probs_t: log π(a_t).
      ref_log_probs_t: log π_ref(a_t).
      mask_t: false for entries to ignore: their estimates are 0, and their contents (even NaN) reach no gradient. By
        default all count.

    Returns:
      Elementwise estimates in nats.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> [round(k, 4) for k in rlx.kl_k3(jnp.array([-1.0, -2.0]), jnp.array([-1.5, -1.0])).tolist()]
      [0.1065, 0.7183]
    """
    log_ratio = finite_exponent(ref_log_probs_t - log_probs_t)
    # expm1 preserves precision near zero, where the estimate is about ½ log_ratio².
    return jnp.expm1(log_ratio) - log_ratio
