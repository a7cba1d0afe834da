"""Upgoing returns: look ahead for as long as things go better than expected."""

import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.masking import weigh
from rlx.core.types import Array, ArrayLike
from rlx.returns.segments import bootstrapped_returns, following, split_at_truncations


@stoppable
def upgo_returns(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """Upgoing returns: G_{t-1} = r_t + γ_t G_t if r_{t+1} + γ_{t+1} v_{t+1} ≥ v_t, else r_t + γ_t v_t.

    The condition compares a one-step estimate of the value of the action taken at time t with the value of the state: a
    good continuation is followed, from a bad one the return is cut off at its value. The last step bootstraps from v_T.
    From "Grandmaster level in StarCraft II using multi-agent reinforcement learning", Vinyals et al. 2019
    (https://www.nature.com/articles/s41586-019-1724-z), AlphaStar. These are λ-returns whose λ_t is 0 or 1.

    Args:
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      v_t: values of the states at times [1, ..., T], floats [T].
      stop_target_gradients: whether the returns are constants to gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the return of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default `v_t` is taken to hold them.

    Returns:
      Returns from times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> ones = jnp.ones(3)
      >>> rlx.upgo_returns(jnp.array([0.0, 1.0, 0.0]), ones, jnp.array([1.0, 5.0, 3.0])).tolist()
      [6.0, 6.0, 3.0]
    """
    r_t, discount_t, v_t = check(
        "upgo_returns",
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        v_t=(v_t, "[T]", "float"),
    )
    v_t, goes_on_t = split_at_truncations("upgo_returns", v_t, truncation_t, truncation_value_t)
    upgoing_t = (following(r_t + weigh(discount_t, v_t)) >= v_t).astype(v_t.dtype)
    return maybe_stop(bootstrapped_returns(r_t, discount_t, v_t, upgoing_t, goes_on_t), stop_target_gradients)


@stoppable
def upgo_advantages(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """What weights AlphaStar's upgoing policy gradient: min(ρ̄, ρ_{t-1}) (G_{t-1} - v_{t-1}), with `rlx.upgo_returns`.

    From "Grandmaster level in StarCraft II using multi-agent reinforcement learning", Vinyals et al. 2019
    (https://www.nature.com/articles/s41586-019-1724-z). Use the result as the advantages of `rlx.policy_gradient_loss`.

    Args:
      v_tm1: values of the states at times [0, ..., T-1], floats [T].
      v_t: values of the states at times [1, ..., T], floats [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      rho_tm1: ρ = π(a) / μ(a), importance ratios of the actions at times [0, ..., T-1], numbers [T].
      clip_rho_threshold: ρ̄ ≥ 0, number [].
      stop_target_gradients: whether the advantages are constants to gradients.
      truncation_t: as in `rlx.upgo_returns`.
      truncation_value_t: as in `rlx.upgo_returns`.

    Returns:
      Weighted advantages at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> v_t, rho = jnp.array([1.0, 5.0]), jnp.array([0.5, 2.0])
      >>> rlx.upgo_advantages(jnp.zeros(2), v_t, jnp.zeros(2), jnp.ones(2), rho).tolist()
      [2.5, 5.0]
    """
    v_tm1, v_t, r_t, discount_t, rho_tm1, threshold = check(
        "upgo_advantages",
        v_tm1=(v_tm1, "[T]", "float"),
        v_t=(v_t, "[T]", "float"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        rho_tm1=(rho_tm1, "[T]", "real"),
        clip_rho_threshold=(clip_rho_threshold, "[]", "real in [0, inf]"),
    )
    returns = upgo_returns(r_t, discount_t, v_t, truncation_t=truncation_t, truncation_value_t=truncation_value_t)
    return maybe_stop(jnp.minimum(rho_tm1, threshold) * (returns - v_tm1), stop_target_gradients)
