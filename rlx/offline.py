"""Offline RL: conservative values (CQL), expectile values (IQL), advantage-weighted imitation (AWR, AWAC)."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Mask, Real
from rlx.core.arrays import half_square, pick_action, scale_down
from rlx.core.masking import masked, masked_mean, weighted
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.divergences import scaled_log_policy
from rlx.q_learning import q_learning


@operator()
def conservative_q_loss(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    temperature: Real[Array | float, "", "in (0, inf)"] = 1.0,
) -> Float[Array, ""]:
    """The conservative penalty: τ log Σ_a exp(q_tm1[a] / τ) - q_tm1[a_tm1].

    It lowers the values of all actions in proportion to their softmax and raises the value of the action in the data;
    it is never negative. From "Conservative Q-Learning for Offline Reinforcement Learning", Kumar et al. 2020
    (https://arxiv.org/abs/2006.04779), equation 4, CQL(H). For τ = 1 it is the negative log-likelihood of the action
    under a softmax of the values.

    Args:
      q_tm1: action values at time t-1; -inf for actions that do not exist.
      a_tm1: action in the data at time t-1.
      temperature: τ > 0.

    Returns:
      The penalty; add α times the penalty to the temporal-difference loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.conservative_q_loss(jnp.array([1.0, 1.0]), 0)), 4)
      0.6931
    """
    return -pick_action(scaled_log_policy(q_tm1, temperature), a_tm1, -jnp.inf)


@operator()
def sampled_conservative_q_loss(
    sample_q_tm1: Float[Array, "N"],
    sample_log_probs_tm1: Float[Array, "N"],
    q_tm1: Float[Array, ""],
) -> Float[Array, ""]:
    """The conservative penalty for continuous actions: log(1/N Σ_i exp(Q(s, a_i)) / μ(a_i)) - Q(s, a).

    The integral over actions is estimated from N actions sampled from any mixture of proposals, each weighted by the
    inverse of its density. From "Conservative Q-Learning for Offline Reinforcement Learning", Kumar et al. 2020
    (https://arxiv.org/abs/2006.04779), appendix F.

    Args:
      sample_q_tm1: values of the sampled actions.
      sample_log_probs_tm1: log-densities log μ(a_i) under the proposal that each came from.
      q_tm1: value of the action in the data.

    Returns:
      The penalty.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> uniform = jnp.log(jnp.array([0.5, 0.5]))
      >>> round(float(rlx.sampled_conservative_q_loss(jnp.array([1.0, 1.0]), uniform, 1.0)), 4)
      0.6931
    """
    log_count = jnp.log(jnp.asarray(sample_q_tm1.shape[0], sample_q_tm1.dtype))
    # Subtract the largest value first: with large values, on either side, this loses no precision.
    largest = jax.lax.stop_gradient(jnp.max(sample_q_tm1, initial=-jnp.inf))
    largest = jnp.where(jnp.isfinite(largest), largest, 0)
    return (largest - q_tm1) + jax.nn.logsumexp(sample_q_tm1 - largest - sample_log_probs_tm1) - log_count


@operator()
def conservative_q_learning(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "A"],
    conservative_weight: Real[Array | float, "", "in [0, inf)"] = 1.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Conservative Q-learning's loss: α (log Σ_a exp(q_tm1[a]) - q_tm1[a_tm1]) + ½ δ².

    δ = r_t + γ_t max_a q_t[a] - q_tm1[a_tm1] is the error of Q-learning, so this is the sum of α times
    `rlx.conservative_q_loss` and half the square of `rlx.q_learning`; for another error (double, multi-step,
    distributional), add the parts yourself. From "Conservative Q-Learning for Offline Reinforcement Learning", Kumar et
    al. 2020 (https://arxiv.org/abs/2006.04779), equation 4.

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action in the data at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      q_t: action values of the target network at time t.
      conservative_weight: α ≥ 0.
      stop_target_gradients: whether to stop gradients through the target of the error.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q = jnp.array([1.0, 1.0])
      >>> round(float(rlx.conservative_q_learning(q, 0, 2.0, 0.0, q)), 4)
      1.1931
    """
    penalty = conservative_q_loss.kernel(masked(jnp.asarray(conservative_weight), q_tm1), a_tm1)
    error = q_learning.kernel(q_tm1, a_tm1, r_t, discount_t, q_t, stop_target_gradients)
    return weighted(conservative_weight, penalty) + half_square(error)


@operator()
def expectile_value_loss(
    v_tm1: Float[Array, ""],
    q_tm1: Float[Array, ""],
    expectile: Real[Array | float, "", "in [0, 1]"] = 0.7,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """IQL's value loss: |τ - 1{u < 0}| u² with u = Q(s, a) - V(s), for an action in the data.

    As τ → 1 the value tends to that of the best action in the data, without evaluating any action outside the data. The
    other parts of IQL are `rlx.qv_learning` for the action values and `rlx.advantage_weighted_loss` for the policy.
    From "Offline Reinforcement Learning with Implicit Q-Learning", Kostrikov et al. 2021
    (https://arxiv.org/abs/2110.06169), equation 5. At τ = ½ it is `rlx.l2_loss`.

    Args:
      v_tm1: value of the state at time t-1.
      q_tm1: value of the action at time t-1 under the target network (the minimum of two critics).
      expectile: τ in [0, 1].
      stop_target_gradients: whether to stop gradients through `q_tm1`.

    Returns:
      The loss.

    Example:
      >>> import rlx
      >>> round(float(rlx.expectile_value_loss(1.0, 3.0, expectile=0.75)), 4)
      3.0
    """
    u = maybe_stop(q_tm1, stop_target_gradients) - v_tm1
    return jnp.where(u < 0, 1 - expectile, expectile) * u * u  # whose square alone may overflow


@operator(masks={"mask_t": ("log_probs_t", "adv_t")})
def advantage_weighted_loss(
    log_probs_t: Float[Array, "T"],
    adv_t: Real[Array, "T"],
    temperature: Real[Array | float, "", "in (0, inf]"] = 1.0,
    max_weight: Real[Array | float, "", "in (0, inf]"] = 20.0,
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """Advantage-weighted policy loss: mean_t of -min(exp(A_t / β), w_max) log π(a_t | s_t).

    From "Advantage-Weighted Regression: Simple and Scalable Off-Policy Reinforcement Learning", Peng et al. 2019
    (https://arxiv.org/abs/1910.00177), with w_max = 20, and "Offline Reinforcement Learning with Implicit Q-Learning",
    Kostrikov et al. 2021 (https://arxiv.org/abs/2110.06169), equation 7, with A = Q - V, w_max = 100 and the inverse
    temperature 1/β. As β → ∞ it becomes behavioural cloning.

    Args:
      log_probs_t: log π(a_t | s_t) of the actions in the data.
      adv_t: A_t, advantages of these actions.
      temperature: β > 0, in the units of the advantages.
      max_weight: w_max > 0; the maximum weight of a step.
      stop_target_gradients: whether to stop gradients through the weights.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.advantage_weighted_loss(jnp.array([-1.0, -1.0]), jnp.array([0.0, 99.0])))
      10.5
    """
    # Bound the exponent, because exp could overflow before it is bounded.
    weights_t = jnp.exp(jnp.minimum(scale_down(adv_t, temperature), jnp.log(max_weight)))
    return -masked_mean(weighted(maybe_stop(weights_t, stop_target_gradients), log_probs_t), mask_t)
