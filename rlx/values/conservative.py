"""Conservative Q-learning: action values that are pushed down on actions which the data does not contain."""

import jax
import jax.numpy as jnp

from rlx.core.arrays import pick
from rlx.core.checks import check
from rlx.core.gradients import stoppable
from rlx.core.masking import rows_if_used, weigh
from rlx.core.types import Array, ArrayLike
from rlx.divergences import scaled_log_policy
from rlx.losses import l2_loss
from rlx.q_learning import q_learning


def conservative_q_loss(q_tm1: ArrayLike, a_tm1: ArrayLike, temperature: ArrayLike = 1.0) -> Array:
    """The conservative penalty: τ log Σ_a exp(q_tm1[a] / τ) - q_tm1[a_tm1].

    It lowers the values of all actions in proportion to their softmax and raises that of the action in the data; it is
    never negative. From "Conservative Q-Learning for Offline Reinforcement Learning", Kumar et al. 2020
    (https://arxiv.org/abs/2006.04779), equation 4, CQL(H). For τ = 1 it is minus the log-likelihood of the action under
    a softmax of the values.

    Args:
      q_tm1: action values at time t-1, floats [A]; -inf for actions that do not exist.
      a_tm1: action in the data at time t-1, integer [].
      temperature: τ > 0, number [].

    Returns:
      The penalty, float []; add α times it to the loss of the temporal-difference error.

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.conservative_q_loss(jnp.array([1.0, 1.0]), 0)), 4)
      0.6931
    """
    q_tm1, a_tm1, temperature = check(
        "conservative_q_loss",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        temperature=(temperature, "[]", "real in (0, inf)"),
    )
    return -pick(scaled_log_policy(q_tm1, temperature), a_tm1)


def sampled_conservative_q_loss(sample_q_tm1: ArrayLike, sample_log_probs_tm1: ArrayLike, q_tm1: ArrayLike) -> Array:
    """The conservative penalty for continuous actions: log(1/N Σ_i exp(Q(s, a_i)) / μ(a_i)) - Q(s, a).

    The integral over actions is estimated from N actions sampled from any mixture of proposals, each weighted by the
    inverse of its density. From "Conservative Q-Learning for Offline Reinforcement Learning", Kumar et al. 2020
    (https://arxiv.org/abs/2006.04779), appendix F.

    Args:
      sample_q_tm1: values of the sampled actions, floats [N].
      sample_log_probs_tm1: log-densities log μ(a_i) under the proposal that each came from, floats [N].
      q_tm1: value of the action in the data, float [].

    Returns:
      The penalty, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> uniform = jnp.log(jnp.array([0.5, 0.5]))
      >>> round(float(rlx.sampled_conservative_q_loss(jnp.array([1.0, 1.0]), uniform, 1.0)), 4)
      0.6931
    """
    sample_q_tm1, sample_log_probs_tm1, q_tm1 = check(
        "sampled_conservative_q_loss",
        sample_q_tm1=(sample_q_tm1, "[N]", "float"),
        sample_log_probs_tm1=(sample_log_probs_tm1, "[N]", "float"),
        q_tm1=(q_tm1, "[]", "float"),
    )
    log_count = jnp.log(jnp.asarray(sample_q_tm1.shape[0], sample_q_tm1.dtype))
    # The difference of values first: of large ones only that keeps its digits.
    return jax.nn.logsumexp(sample_q_tm1 - q_tm1 - sample_log_probs_tm1) - log_count


@stoppable
def conservative_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    conservative_weight: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
) -> Array:
    """Conservative Q-learning's loss: α (log Σ_a exp(q_tm1[a]) - q_tm1[a_tm1]) + ½ δ².

    δ = r_t + γ_t max_a q_t[a] - q_tm1[a_tm1] is the error of Q-learning, so this is the sum of α times
    `rlx.conservative_q_loss` and half the square of `rlx.q_learning`; for another error (double, multi-step,
    distributional) add the parts by hand. From "Conservative Q-Learning for Offline Reinforcement Learning", Kumar et
    al. 2020 (https://arxiv.org/abs/2006.04779), equation 4.

    Args:
      q_tm1: action values at time t-1, floats [A].
      a_tm1: action in the data at time t-1, integer [].
      r_t: reward at time t, number [].
      discount_t: discount at time t, number [].
      q_t: action values of the target network at time t, floats [A].
      conservative_weight: α ≥ 0, number [].
      stop_target_gradients: whether the target of the error is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q = jnp.array([1.0, 1.0])
      >>> round(float(rlx.conservative_q_learning(q, 0, 2.0, 0.0, q)), 4)
      1.1931
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, weight = check(
        "conservative_q_learning",
        q_tm1=(q_tm1, "[A]", "float"),
        a_tm1=(a_tm1, "[]", "int"),
        r_t=(r_t, "[]", "real"),
        discount_t=(discount_t, "[]", "real"),
        q_t=(q_t, "[A]", "float"),
        conservative_weight=(conservative_weight, "[]", "real in [0, inf)"),
    )
    error = q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, stop_target_gradients)
    return weigh(weight, conservative_q_loss(rows_if_used(weight, q_tm1), a_tm1)) + l2_loss(error)
