"""Q-learning and its variants: DQN, double DQN, Munchausen, Q(λ) and PQN; targets use the greedy action."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Mask, Real
from rlx.core.arrays import pick, scale_down
from rlx.core.masking import masked, weighted, weighted_sum
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.divergences import scaled_log_policy
from rlx.returns import lambda_returns


@operator()
def q_learning(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Q-learning temporal-difference error: r_t + γ_t max_a q_t[a] - q_tm1[a_tm1].

    From "Learning from Delayed Rewards", Watkins 1989; see Sutton and Barto, "Reinforcement Learning", section 6.5.

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_t: action values at time t.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.q_learning(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, jnp.array([3.0, 5.0])))
      2.0
    """
    target = r_t + weighted(discount_t, jnp.max(q_t))
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@operator(masks={"discount_t": ("q_t_value",)})
def double_q_learning(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t_value: Float[Array, "A"],
    q_t_selector: Float[Array, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Double Q-learning temporal-difference error: r_t + γ_t q_t_value[argmax q_t_selector] - q_tm1[a_tm1].

    One set of values selects the next action and another evaluates it, which removes the upward bias of the maximum.
    From "Double Q-learning", van Hasselt 2010
    (https://papers.nips.cc/paper/3964-double-q-learning.pdf).

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      q_t_value: action values at time t that evaluate the selected action.
      q_t_selector: action values at time t that select the next action.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, selector = jnp.array([3.0, 5.0]), jnp.array([1.0, 0.0])
      >>> float(rlx.double_q_learning(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, q_t, selector))
      1.0
    """
    target = r_t + discount_t * q_t_value[jnp.argmax(q_t_selector)]
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@operator()
def persistent_q_learning(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "A"],
    action_gap_scale: Real[Array, "", "in [0, 1]"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Persistent Q-learning temporal-difference error, which widens the gap between the best and other actions.

    r_t + γ_t [(1 - α) max_a q_t[a] + α q_t[a_tm1]] - q_tm1[a_tm1]

    From "Increasing the Action Gap: New Operators for Reinforcement Learning", Bellemare et al. 2016
    (https://arxiv.org/abs/1512.04860).

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      q_t: action values at time t.
      action_gap_scale: α in [0, 1]; 0 gives Q-learning.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.persistent_q_learning(jnp.array([1.0, 2.0]), 0, 0.5, 0.5, jnp.array([3.0, 5.0]), 0.5))
      1.5
    """
    best, repeated = masked(discount_t, jnp.max(q_t)), masked(discount_t, q_t[a_tm1])
    bootstrap = weighted(1 - action_gap_scale, best) + weighted(action_gap_scale, repeated)
    target = r_t + discount_t * bootstrap
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]


@operator()
def dqn_reg_loss(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "A"],
    value_weight: Real[Array | float, "", "in [0, inf)"] = 0.1,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """DQN-Reg's loss: w q_tm1[a_tm1] + δ², where δ is the error of `q_learning`.

    This loss was found by a search over programs. Its first term pushes values down to counter the upward bias of the
    maximum. From "Evolving Reinforcement Learning Algorithms", Co-Reyes et al. 2021 (https://arxiv.org/abs/2101.03958).

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_t: action values at time t, of the target network.
      value_weight: w ≥ 0; 0 gives the squared error alone.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.dqn_reg_loss(jnp.array([1.0, 2.0]), 1, 0.5, 0.5, jnp.array([3.0, 5.0]), value_weight=0.5))
      2.0
    """
    error = q_learning.kernel(q_tm1, a_tm1, r_t, discount_t, q_t, stop_target_gradients)
    return value_weight * q_tm1[a_tm1] + jnp.square(error)


@operator()
def q_lambda(
    q_tm1: Float[Array, "T A"],
    a_tm1: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    q_t: Float[Array, "T A"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"],
    stop_target_gradients: bool = True,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Q(λ) temporal-difference errors: λ-returns that bootstrap from max_a q_t[a], minus q_{t-1}[a_{t-1}].

    A scalar λ gives Peng's Q(λ); setting λ_t to zero where the action a_t is not greedy gives Watkins's Q(λ). See
    Sutton and Barto, "Reinforcement Learning: An Introduction", section 12.10.

    Args:
      q_tm1: action values at times [0, ..., T-1].
      a_tm1: actions at times [0, ..., T-1].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      q_t: action values at times [1, ..., T].
      lambda_: λ in [0, 1]; the last entry has no effect.
      stop_target_gradients: whether to stop gradients through the targets (all but the values at times [0, ..., T-1]).
      truncation_t: true where the sequence was truncated at time t without terminating: the target of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; by default
        max_a q_t[a].

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, half = jnp.array([[4.0, 0.0], [0.0, 8.0]]), jnp.array([0.5, 0.5])
      >>> rlx.q_lambda(jnp.ones([2, 2]), jnp.array([0, 1]), jnp.array([1.0, 2.0]), half, q_t, 0.5).tolist()
      [2.5, 5.0]
    """
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    v_t = jnp.max(q_t, axis=-1)
    target = lambda_returns.kernel(r_t, discount_t, v_t, lambda_, stop_target_gradients, **ends)
    return target - pick(q_tm1, a_tm1)


@operator()
def pqn_q_lambda(
    q: Float[Array, "T+1 A"],
    a_tm1: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    lambda_: Real[Array | float, "", "T", "in [0, 1] if scalar"],
    stop_target_gradients: bool = True,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """PQN's temporal-difference errors: λ-returns of the network's own greedy values, minus its action values.

    G_{t-1} = r_t + γ_t (λ G_t + (1 - λ) max_a q_t[a]) with G_{T-1} = r_T + γ_T max_a q_T[a]; the errors are G_{t-1} -
    q_{t-1}[a_{t-1}]. A single forward pass over T + 1 observations gives both predictions and targets: with layer
    normalisation and many parallel environments, no target network is needed. From "Simplifying Deep Temporal
    Difference Learning", Gallici et al. 2024 (https://arxiv.org/abs/2407.04811). Equivalent to `rlx.q_lambda` with
    `q[:-1]` as the source and `q[1:]` as the destination.

    Args:
      q: action values of one network at times [0, ..., T].
      a_tm1: actions at times [0, ..., T-1].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      lambda_: λ in [0, 1].
      stop_target_gradients: whether to stop gradients through the λ-returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the target of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; by default
        max_a q_t[a].

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q, half = jnp.array([[1.0, 1.0], [4.0, 0.0], [0.0, 8.0]]), jnp.array([0.5, 0.5])
      >>> rlx.pqn_q_lambda(q, jnp.array([0, 1]), jnp.array([1.0, 2.0]), half, 0.5).tolist()
      [2.5, 6.0]
    """
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    return q_lambda.kernel(q[:-1], a_tm1, r_t, discount_t, q[1:], lambda_, stop_target_gradients, **ends)


@operator(masks={"discount_t": ("q_t",), "munchausen_scale": ("target_q_tm1",)})
def munchausen_q_learning(
    q_tm1: Float[Array, "A"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_t: Float[Array, "A"],
    target_q_tm1: Float[Array, "A"],
    temperature: Real[Array | float, "", "in (0, inf)"] = 0.03,
    munchausen_scale: Real[Array | float, "", "in [0, 1]"] = 0.9,
    clip_value_min: Real[Array | float, "", "in [-inf, 0]"] = -1.0,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Munchausen Q-learning temporal-difference error.

    r_t + α max(l₀, τ log π(a_tm1 | s_tm1)) + γ_t Σ_a π(a | s_t) (q_t[a] - τ log π(a | s_t)) - q_tm1[a_tm1], where the
    policy is π(· | s) = softmax(q(s, ·) / τ) of the target network. α = 0 gives soft Q-learning, and τ → 0 as well
    gives Q-learning. From "Munchausen Reinforcement Learning", Vieillard et al. 2020
    (https://arxiv.org/abs/2007.14430).

    Args:
      q_tm1: action values at time t-1.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t; 0 where the episode ended.
      q_t: action values of the target network at time t; -inf for actions that do not exist.
      target_q_tm1: action values of the target network at time t-1.
      temperature: τ > 0, in the units of the values.
      munchausen_scale: α in [0, 1].
      clip_value_min: l₀ ≤ 0; the lower bound of the scaled log-policy.
      stop_target_gradients: whether to stop gradients through the target (all but `q_tm1`).

    Returns:
      The temporal-difference error.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q = jnp.array([0.0, 0.0])
      >>> round(float(rlx.munchausen_q_learning(q, 0, 1.0, 0.5, q, q, temperature=1.0)), 4)
      0.7227
    """
    bonus = jnp.clip(scaled_log_policy(target_q_tm1, temperature)[a_tm1], clip_value_min, 0)
    log_policy_t = scaled_log_policy(q_t, temperature)
    probs_t = jax.nn.softmax(scale_down(log_policy_t, temperature))  # not of q / τ: in half precision it may overflow
    # q - τ log π is the same for all possible actions: the soft value.
    bootstrap = weighted_sum(probs_t, q_t - log_policy_t)
    target = r_t + weighted(munchausen_scale, bonus) + weighted(discount_t, bootstrap)
    return maybe_stop(target, stop_target_gradients) - q_tm1[a_tm1]
