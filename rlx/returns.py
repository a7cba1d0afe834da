"""Returns of sequences (discounted, λ-, n-step and UPGO returns) and generalised advantage estimation (GAE)."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import require
from rlx.core.operator import maybe_stop, operator
from rlx.core.recurrence import backward, backward_in_windows, discounted, product, saved
from rlx.core.segments import following, segments, with_ends
from rlx.core.types import Array


@operator()
def discounted_returns(
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    v_t: Float[Array, "", "#T"],
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Discounted returns: G_{t-1} = r_t + γ_t G_t, with G_T = v_T.

    See Sutton and Barto, "Reinforcement Learning: An Introduction", section 3.3.

    Args:
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      v_t: value of the state at time T, or values at times [1, ..., T]; only the last value and those where
        `truncation_t` is true are used.
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the return of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; taken from
        `v_t` by default.

    Returns:
      Returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.discounted_returns(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), 8.0).tolist()
      [4.0, 6.0]
    """
    v_t, continues_t = segments(jnp.broadcast_to(v_t, r_t.shape), truncation_t, truncation_value_t)
    returns = backward(discounted, (r_t, discount_t), end=v_t, continues_t=continues_t)
    return maybe_stop(returns, stop_target_gradients)


@operator()
def lambda_returns(
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    v_t: Float[Array, "T"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """λ-returns: G_{t-1} = r_t + γ_t [(1 - λ_t) v_t + λ_t G_t], where the last step bootstraps from v_T.

    λ = 0 gives one-step targets and λ = 1 the discounted return of the whole sequence. If `v_t` holds the values under
    the policy, these are the targets of TD(λ); `v_t = max_a q_t` gives Peng's Q(λ) and `v_t = q_t[a_t]` gives SARSA(λ).
    A per-step `lambda_` can include importance ratios: λ_t = λ min(1, ρ_t).

    See Sutton and Barto, "Reinforcement Learning: An Introduction", chapter 12.

    Args:
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      v_t: values of the states at times [1, ..., T].
      lambda_: λ in [0, 1]; the last entry has no effect.
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the return of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; taken from
        `v_t` by default.

    Returns:
      Returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.lambda_returns(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([4.0, 8.0]), 0.5).tolist()
      [3.5, 6.0]
    """
    v_t, continues_t = segments(v_t, truncation_t, truncation_value_t)
    # The loop of a gradient computes its results in this order. That of the discount takes longest, so it comes first.
    sequences = discount_t, v_t, r_t, with_ends(lambda_, continues_t)
    equation = _return_of_one_lambda if isinstance(lambda_, float) else _lambda_return
    returns = backward(equation, sequences, end=v_t, continues_t=continues_t)
    return maybe_stop(returns, stop_target_gradients)


def _lambda_return(g_t: Array, discount_t: Array, v_t: Array, r_t: Array, lambda_: Array | float) -> Array:
    ahead = product(product(discount_t, lambda_), g_t)
    return r_t + product(product(discount_t, 1 - lambda_), v_t) + ahead


def _return_of_one_lambda(g_t: Array, discount_t: Array, v_t: Array, r_t: Array, lambda_: float) -> Array:
    # λ is a number without a gradient: only the discount is compared with 0. Gradients are faster so, and with G first.
    return r_t + product(discount_t, saved(product(lambda_, g_t) + product(1 - lambda_, v_t)))


@operator()
def n_step_bootstrapped_returns(
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    v_t: Float[Array, "T"],
    n: int,
    lambda_t: Real[Array | float, "", "#T", "T-1", "in [0, 1] if scalar"] = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """n-step returns: λ-returns that look at most n steps ahead and then bootstrap.

    G⁽¹⁾_{t-1} = r_t + γ_t v_t and G⁽ⁿ⁾_{t-1} = r_t + γ_t [(1 - λ_t) v_t + λ_t G⁽ⁿ⁻¹⁾_t]. With λ = 1, the default, these
    are r_t + γ_t r_{t+1} + ... + γ_t ... γ_{t+n-1} v_{t+n-1}. Fewer than n steps before the end, the return bootstraps
    from the last value, so n larger than T gives the λ-returns of the whole sequence.

    See Sutton and Barto, "Reinforcement Learning: An Introduction", chapter 7.

    Args:
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      v_t: values of states, or of states and actions, at times [1, ..., T].
      n: number of steps, at least 1, a Python integer.
      lambda_t: λ at times [1, ..., T] or [1, ..., T-1]; the one at time T has no effect.
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: no return goes past it. The
        result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; taken from
        `v_t` by default.

    Returns:
      Returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> ones = jnp.ones(3)
      >>> rlx.n_step_bootstrapped_returns(ones, 0.5 * ones, 4.0 * ones, n=2).tolist()
      [2.5, 2.5, 3.0]
    """
    require(n >= 1, "n", n, "a positive number of steps")
    v_t, continues_t = segments(v_t, truncation_t, truncation_value_t)
    if jnp.ndim(lambda_t) and jnp.shape(lambda_t) != r_t.shape:
        lambda_t = jnp.append(lambda_t, 0)
    elif jnp.ndim(lambda_t) == 0 and continues_t is not None:
        lambda_t *= continues_t.astype(v_t.dtype)
    lambda_t = with_ends(lambda_t, continues_t)
    if isinstance(lambda_t, float):  # nothing is left of v_t if it is 1, the default
        delta_t = r_t + product(1 - lambda_t, product(discount_t, v_t))
    else:
        delta_t = r_t + product(product(discount_t, 1 - lambda_t), v_t)
    returns = backward_in_windows(delta_t, product(discount_t, lambda_t), v_t, n)
    return maybe_stop(returns, stop_target_gradients)


@operator()
def truncated_generalized_advantage_estimation(
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"],
    values: Float[Array, "T+1"],
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Generalised advantage estimates over a sequence: Â_t = δ_t + γ_{t+1} λ_{t+1} Â_{t+1}.

    Here δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t, and the last step has Â_{T-1} = δ_{T-1}. Adding `values[:-1]` gives
    λ-returns. From "High-Dimensional Continuous Control Using Generalized Advantage Estimation", Schulman et al. 2015
    (https://arxiv.org/abs/1506.02438); truncated as in PPO (https://arxiv.org/abs/1707.06347).

    Args:
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      lambda_: λ in [0, 1].
      values: values of the states at times [0, ..., T]: one more than the number of rewards.
      stop_target_gradients: whether to stop gradients through the advantages.
      truncation_t: true where the sequence was truncated at time t without terminating: the advantage of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true. With
        auto-resetting environments, `values` holds the value of the next episode's first state there, so pass this
        argument; taken from `values` by default.

    Returns:
      Advantages at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> r_t, discount_t, values = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]), jnp.array([1.0, 2.0, 4.0])
      >>> rlx.truncated_generalized_advantage_estimation(r_t, discount_t, 0.5, values).tolist()
      [1.5, 2.0]
    """
    v_t, continues_t = segments(values[1:], truncation_t, truncation_value_t)
    delta_t = r_t + product(discount_t, v_t) - values[:-1]
    advantages = backward(discounted, (delta_t, discount_t, lambda_), continues_t=continues_t)
    return maybe_stop(advantages, stop_target_gradients)


@operator()
def upgo_returns(
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    v_t: Float[Array, "T"],
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Upgoing returns: G_{t-1} = r_t + γ_t G_t if r_{t+1} + γ_{t+1} v_{t+1} ≥ v_t, else r_t + γ_t v_t.

    The condition compares a one-step estimate of the value of the action taken at time t with the value of the state:
    the return follows a good continuation, and bootstraps from the value where the continuation is bad. The last step
    bootstraps from v_T. From "Grandmaster level in StarCraft II using multi-agent reinforcement learning", Vinyals et
    al. 2019 (https://www.nature.com/articles/s41586-019-1724-z), as in AlphaStar. These are λ-returns whose λ_t is 0 or
    1.

    Args:
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      v_t: values of the states at times [1, ..., T].
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the return of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; taken from
        `v_t` by default.

    Returns:
      Returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> ones = jnp.ones(3)
      >>> rlx.upgo_returns(jnp.array([0.0, 1.0, 0.0]), ones, jnp.array([1.0, 5.0, 3.0])).tolist()
      [6.0, 6.0, 3.0]
    """
    ahead_t, _ = segments(v_t, truncation_t, truncation_value_t)
    upgoing_t = following(r_t + product(discount_t, ahead_t)) >= ahead_t
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    lambda_t = upgoing_t.astype(v_t.dtype)
    return lambda_returns.kernel(r_t, discount_t, v_t, lambda_t, stop_target_gradients, **ends)


@operator()
def upgo_advantages(
    v_tm1: Float[Array, "T"],
    v_t: Float[Array, "T"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    rho_tm1: Real[Array, "T"],
    clip_rho_threshold: Real[Array | float, "", "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Advantages for AlphaStar's UPGO policy gradient: min(ρ̄, ρ_{t-1}) (G_{t-1} - v_{t-1}), with `rlx.upgo_returns`.

    From "Grandmaster level in StarCraft II using multi-agent reinforcement learning", Vinyals et al. 2019
    (https://www.nature.com/articles/s41586-019-1724-z). Use the result as the advantages of `rlx.policy_gradient_loss`.

    Args:
      v_tm1: values of the states at times [0, ..., T-1].
      v_t: values of the states at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      rho_tm1: importance ratios ρ = π(a) / μ(a) of the actions at times [0, ..., T-1].
      clip_rho_threshold: ρ̄ ≥ 0.
      stop_target_gradients: whether to stop gradients through the advantages.
      truncation_t: as in `rlx.upgo_returns`.
      truncation_value_t: as in `rlx.upgo_returns`.

    Returns:
      Weighted advantages at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> v_t, rho = jnp.array([1.0, 5.0]), jnp.array([0.5, 2.0])
      >>> rlx.upgo_advantages(jnp.zeros(2), v_t, jnp.zeros(2), jnp.ones(2), rho).tolist()
      [2.5, 5.0]
    """
    returns = upgo_returns.kernel(
        r_t, discount_t, v_t, truncation_t=truncation_t, truncation_value_t=truncation_value_t
    )
    return maybe_stop(jnp.minimum(rho_tm1, clip_rho_threshold) * (returns - v_tm1), stop_target_gradients)
